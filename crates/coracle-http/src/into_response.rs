//! What can be an answer.

use crate::h1::Refusal;
use crate::{Body, Response, Status};
use bytes::Bytes;
use std::borrow::Cow;
use std::convert::Infallible;
use std::io;

const PLAIN: &str = "text/plain; charset=utf-8";
const BINARY: &str = "application/octet-stream";

/// Whatever a handler may return.
///
/// | what | answer |
/// |---|---|
/// | `&'static str`, `String`, `Cow<'static, str>` | 200, plain text |
/// | [`Html`] | 200, HTML |
/// | `&'static [u8]`, `Vec<u8>`, `Bytes` | 200, binary |
/// | [`Body`] | 200, whatever it is |
/// | `()` | 204 |
/// | [`Status`] | that, and its name as the text, if it may have one |
/// | `(Status, T)` | `T`, with that status |
/// | `Option<T>` | `T`, or 404 |
/// | `Result<T, E>` | whichever it is |
/// | `io::Error` | 500; the log has the error, the client does not |
/// | `io::Error` of a body that was refused | 400, 408 or 413 |
/// | [`Redirect`] | 303, 307 or 308 |
/// | [`Response`] | itself |
///
/// ```
/// use coracle_http::{IntoResponse, Status};
///
/// assert_eq!("ahoy".into_response().status(), Status::OK);
/// assert_eq!(None::<String>.into_response().status(), Status::NOT_FOUND);
/// assert_eq!((Status::CREATED, "it is there").into_response().status(), Status::CREATED);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent as an HTTP response",
    label = "this is no response",
    note = "return a `String`, a `&'static str`, `Html(…)`, a `Status`, a `(Status, T)`, \
            an `Option`, a `Result` or a `Response`"
)]
pub trait IntoResponse {
    /// The answer it means.
    fn into_response(self) -> Response;
}

/// Text that is HTML.
///
/// ```
/// use coracle_http::{Html, IntoResponse};
///
/// let response = Html("<h1>coracle</h1>").into_response();
/// assert_eq!(response.headers().get("content-type"), Some("text/html; charset=utf-8"));
/// ```
#[derive(Debug, Clone)]
pub struct Html<T>(pub T);

/// Sends the client elsewhere.
///
/// ```
/// use coracle_http::{IntoResponse, Redirect};
///
/// let response = Redirect::to("/posts/7").into_response(); // after a form: see it there, by GET
/// assert_eq!((response.status().as_u16(), response.headers().get("location")), (303, Some("/posts/7")));
/// ```
#[derive(Debug, Clone)]
pub struct Redirect {
    status: Status,
    location: String,
}

impl Redirect {
    /// See there, by GET (303): what follows a form that was sent.
    pub fn to(location: impl Into<String>) -> Redirect {
        Redirect { status: Status::SEE_OTHER, location: location.into() }
    }

    /// Do the same there, for now (307).
    pub fn temporary(location: impl Into<String>) -> Redirect {
        Redirect { status: Status::TEMPORARY_REDIRECT, location: location.into() }
    }

    /// Do the same there, from now on (308). Browsers remember it.
    pub fn permanent(location: impl Into<String>) -> Redirect {
        Redirect { status: Status::PERMANENT_REDIRECT, location: location.into() }
    }
}

impl IntoResponse for Response {
    fn into_response(self) -> Response {
        self
    }
}

impl IntoResponse for Status {
    /// Its name is the text, as in "404 Not Found".
    fn into_response(self) -> Response {
        let mut response = Response::new(self);
        if may_have_body(self) {
            let text = match self.canonical_reason() {
                Some(reason) => format!("{} {reason}\n", self.as_u16()),
                None => format!("{}\n", self.as_u16()),
            };
            response = Response::typed(PLAIN, text.into()).with_status(self);
        }
        response
    }
}

/// Whether an answer with this status has a body at all.
pub(crate) fn may_have_body(status: Status) -> bool {
    !(status.is_informational()
        || status == Status::NO_CONTENT
        || status == Status::RESET_CONTENT
        || status == Status::NOT_MODIFIED)
}

impl IntoResponse for () {
    fn into_response(self) -> Response {
        Response::new(Status::NO_CONTENT)
    }
}

impl IntoResponse for Infallible {
    fn into_response(self) -> Response {
        match self {}
    }
}

impl IntoResponse for Body {
    fn into_response(self) -> Response {
        Response::new(Status::OK).with_body(self)
    }
}

impl IntoResponse for Redirect {
    fn into_response(self) -> Response {
        Response::new(self.status).with_header("location", self.location)
    }
}

impl IntoResponse for io::Error {
    fn into_response(self) -> Response {
        // A body that could not be read is the client's mistake, and told as such.
        if let Some(refusal) = Refusal::of(&self) {
            return refusal.into_response();
        }
        tracing::error!("a handler failed: {self}");
        Status::INTERNAL_SERVER_ERROR.into_response()
    }
}

impl IntoResponse for Cow<'static, str> {
    fn into_response(self) -> Response {
        match self {
            Cow::Borrowed(text) => text.into_response(),
            Cow::Owned(text) => text.into_response(),
        }
    }
}

macro_rules! bodies {
    ($($body:ty => $content_type:expr),*) => {$(
        impl IntoResponse for $body {
            fn into_response(self) -> Response {
                Response::typed($content_type, self.into())
            }
        }
    )*};
}

bodies!(&'static str => PLAIN, String => PLAIN, &'static [u8] => BINARY, Vec<u8> => BINARY, Bytes => BINARY);

impl<T: Into<Body>> IntoResponse for Html<T> {
    fn into_response(self) -> Response {
        Response::typed("text/html; charset=utf-8", self.0.into())
    }
}

impl<T: IntoResponse> IntoResponse for (Status, T) {
    fn into_response(self) -> Response {
        self.1.into_response().with_status(self.0)
    }
}

impl<T: IntoResponse> IntoResponse for Option<T> {
    fn into_response(self) -> Response {
        match self {
            Some(answer) => answer.into_response(),
            None => Status::NOT_FOUND.into_response(),
        }
    }
}

impl<T: IntoResponse, E: IntoResponse> IntoResponse for Result<T, E> {
    fn into_response(self) -> Response {
        match self {
            Ok(answer) => answer.into_response(),
            Err(answer) => answer.into_response(),
        }
    }
}
