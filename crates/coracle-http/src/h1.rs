//! HTTP/1 as such: bytes to requests, responses to bytes. No sockets, no time, no waiting.
//!
//! There is one policy, and it is strict: what RFC 9112 lets a server be lenient about is refused here, because
//! whoever is lenient about it reads a message differently from the proxy in front of it. What arrives, and the
//! answer it gets, is a table in docs/reference/http.md; each of its lines is a test.

pub(crate) mod answer;
pub(crate) mod chunks;
pub(crate) mod head;
mod target;

use crate::{IntoResponse, Response, Status};
use std::error::Error;
use std::fmt;
use std::io;

/// Why a request is not served. The answer has this status, and the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
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
}

impl Refusal {
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

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is no body.
    None,
    /// After so many bytes; at least one.
    Length(u64),
    /// By its chunks.
    Chunked,
}

#[cfg(test)]
mod tests;
