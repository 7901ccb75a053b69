//! A panic becomes an answer, before it passes those further out.

use super::Next;
use crate::{IntoResponse, Request, Response, Status};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Makes a 500 of a panic.
///
/// A server does that by itself; here it is done further in, so that what is around it (the access log, error
/// pages) sees the answer. The message is where panics go: to standard error, or to a hook. The client is not
/// told.
///
/// ```
/// use coracle_http::middleware::catch_panics;
/// use coracle_http::{App, OwnedRequest, Router, Status};
///
/// let app = Router::new(()).with(catch_panics).get("/", |_, _| -> &'static str { panic!("as it is meant to") });
/// let response = app.call(&OwnedRequest::new("GET", "/").request());
/// assert_eq!(response.status(), Status::INTERNAL_SERVER_ERROR);
/// ```
pub fn catch_panics(req: &Request<'_>, next: Next<'_>) -> Response {
    // What the handler left half-done is its own affair, as it is when the server catches it.
    catch_unwind(AssertUnwindSafe(|| next.run(req))).unwrap_or_else(|_| {
        tracing::error!(
            "a handler panicked: {} {}",
            req.method_name(),
            req.full_path().escape_debug()
        );
        Status::INTERNAL_SERVER_ERROR.into_response()
    })
}
