//! Why a request is not served: what the server tells an app that it has refused in its place.

use crate::{IntoResponse, Response, Status};
use std::error::Error;
use std::fmt;
use std::io;

/// Why the server does not ask the app for an answer: a request that is no request, or too large, too slow, too
/// much. As a [response](IntoResponse) it is the status and a line of text.
///
/// [`App::refuse`](crate::App::refuse) and [`Middleware::refuse`](crate::middleware::Middleware::refuse) are
/// told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub(crate) status: Status,
    /// For the client and for the log: what was wrong, in words of ours only.
    pub(crate) why: &'static str,
}

impl Refusal {
    pub(crate) const fn new(status: Status, why: &'static str) -> Refusal {
        Refusal { status, why }
    }

    pub(crate) const fn bad(why: &'static str) -> Refusal {
        Refusal::new(Status::BAD_REQUEST, why)
    }

    /// The status of the answer.
    pub fn status(&self) -> Status {
        self.status
    }

    /// What was wrong, in a few words: nothing that the client has sent is in them. Empty if it was not the
    /// client's fault.
    pub fn why(&self) -> &'static str {
        self.why
    }

    /// The one that an error is about, if it came from reading a body that was refused.
    pub(crate) fn of(error: &(dyn Error + 'static)) -> Option<Refusal> {
        error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref::<Refusal>().copied()
    }
}

/// So that it can be what is in an `io::Error`: a handler that hands on what a read has told it refuses with it.
impl Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.why)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        if self.why.is_empty() {
            return self.status.into_response();
        }
        let mut response = (self.status, format!("{}\n", self.why)).into_response();
        if self.status == Status::METHOD_NOT_ALLOWED {
            response.headers_mut().push_static("allow", crate::handling::ALLOWED);
        }
        if self.status == Status::SERVICE_UNAVAILABLE {
            response.headers_mut().push_static("retry-after", "5");
        }
        response
    }
}
