//! What a middleware is, and what comes next.

use crate::{App, IntoResponse, Plan, Refusal, Request, Response};
use std::fmt;
use std::sync::Arc;

/// Stands between a request and the app that answers it. A function is one:
///
/// ```
/// use coracle_http::middleware::Next;
/// use coracle_http::{App, OwnedRequest, Request, Response, Router};
///
/// fn say_who(req: &Request<'_>, next: Next<'_>) -> Response {
///     next.run(req).with_header("server", "coracle")
/// }
///
/// let app = Router::new(()).with(say_who).get("/", |_, _| "ahoy\n");
/// let response = app.call(&OwnedRequest::new("GET", "/").request());
/// assert_eq!(response.headers().get("server"), Some("coracle"));
/// ```
///
/// It may answer by itself, change the answer, measure, and leave something [with the
/// request](Request::set_local). One value serves all requests of all loops, so what it keeps is shared: atomics,
/// or a lock of a few lines.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no middleware",
    label = "this cannot stand between a request and an app",
    note = "a middleware is a function `fn(&Request, Next) -> impl IntoResponse`; a closure names its arguments' \
            types: `|req: &Request<'_>, next: Next<'_>| …`"
)]
pub trait Middleware: Send + Sync + 'static {
    /// Answers a request, by `next` or otherwise.
    fn handle(&self, req: &Request<'_>, next: Next<'_>) -> Response;

    /// Sees a request that the server [refuses](App::refuse) before any app is asked, and by `next` what the
    /// client is told of it. Those that stand between a request and its handler have nothing to do with it; those
    /// that log answers or change how errors look do here what they do there.
    fn refuse(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        next.run(req)
    }
}

impl<F, R> Middleware for F
where
    F: Fn(&Request<'_>, Next<'_>) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    fn handle(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        self(req, next).into_response()
    }
}

/// What is behind a middleware: the next one, and at last the app.
pub struct Next<'n> {
    middlewares: &'n [Arc<dyn Middleware>],
    app: &'n dyn Fn(&Request<'_>) -> Response,
    /// What they are asked: [`Middleware::handle`], or [`Middleware::refuse`].
    refused: bool,
}

impl<'n> Next<'n> {
    pub(crate) fn new(
        middlewares: &'n [Arc<dyn Middleware>],
        app: &'n dyn Fn(&Request<'_>) -> Response,
    ) -> Next<'n> {
        Next { middlewares, app, refused: false }
    }

    /// The same for a request that is refused.
    pub(crate) fn refusing(
        middlewares: &'n [Arc<dyn Middleware>],
        app: &'n dyn Fn(&Request<'_>) -> Response,
    ) -> Next<'n> {
        Next { middlewares, app, refused: true }
    }

    /// Lets it answer.
    pub fn run(self, req: &Request<'_>) -> Response {
        match self.middlewares.split_first() {
            Some((first, middlewares)) if self.refused => {
                first.refuse(req, Next { middlewares, ..self })
            }
            Some((first, middlewares)) => first.handle(req, Next { middlewares, ..self }),
            None => (self.app)(req),
        }
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("middlewares", &self.middlewares.len()).finish_non_exhaustive()
    }
}

/// An app with a middleware around it.
///
/// ```
/// use coracle_http::middleware::{Next, around};
/// use coracle_http::{App, OwnedRequest, Request, Response, Status};
///
/// fn closed(_: &Request<'_>, _: Next<'_>) -> Status {
///     Status::SERVICE_UNAVAILABLE
/// }
///
/// let app = around(closed, |_: &Request<'_>| "ahoy\n");
/// assert_eq!(app.call(&OwnedRequest::new("GET", "/").request()).status(), Status::SERVICE_UNAVAILABLE);
/// ```
pub fn around<M: Middleware, A: App>(middleware: M, app: A) -> Around<M, A> {
    Around { middleware, app }
}

/// What [`around`] makes.
#[derive(Debug)]
pub struct Around<M, A> {
    middleware: M,
    app: A,
}

impl<M: Middleware, A: App> App for Around<M, A> {
    fn call(&self, req: &Request<'_>) -> Response {
        self.middleware.handle(req, Next::new(&[], &|req| self.app.call(req)))
    }

    fn plan(&self, req: &Request<'_>) -> Plan {
        self.app.plan(req)
    }

    fn plan_of_all(&self) -> Option<Plan> {
        self.app.plan_of_all()
    }

    fn refuse(&self, req: &Request<'_>, refusal: &Refusal) -> Response {
        let app = |req: &Request<'_>| self.app.refuse(req, refusal);
        self.middleware.refuse(req, Next::refusing(&[], &app))
    }
}
