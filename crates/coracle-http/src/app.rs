//! Who answers: anything that can be called with a request.

use crate::{IntoResponse, Refusal, Request, Response};
use std::rc::Rc;
use std::sync::Arc;

/// Answers requests. A function is one:
///
/// ```
/// use coracle_http::{App, OwnedRequest, Request};
///
/// fn app(req: &Request<'_>) -> String {
///     format!("you asked for {}\n", req.path())
/// }
///
/// let request = OwnedRequest::new("GET", "/ahoy");
/// assert_eq!(app.call(&request.request()).body().as_bytes(), Some(&b"you asked for /ahoy\n"[..]));
/// ```
///
/// It runs in a coroutine and may wait: for sockets, channels, time, other coroutines. While it does, others run
/// on the same thread.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer HTTP requests",
    label = "this is no app",
    note = "an app is a function `fn(&Request) -> impl IntoResponse`, or a `Router`",
    note = "a closure names the type of its argument: `|req: &Request| …`"
)]
pub trait App: 'static {
    /// Answers a request.
    fn call(&self, req: &Request<'_>) -> Response;

    /// How a request is to be treated, decided when its head is there and its body is not. Called on the loop,
    /// where nothing may wait.
    fn plan(&self, req: &Request<'_>) -> Plan {
        let _ = req;
        Plan::default()
    }

    /// The [`plan`](App::plan) of all requests, if it is the same for all of them: it is not asked for again.
    #[doc(hidden)]
    fn plan_of_all(&self) -> Option<Plan> {
        None
    }

    /// What a client is told whose request the server does not let through to [`call`](App::call): one that
    /// cannot be understood, is too large or comes too slowly, or whose handler has panicked. It is for error
    /// pages and logs, which are [middlewares](crate::middleware::Middleware::refuse); an app that is made of
    /// another one asks that.
    ///
    /// What is not known of the request is `-`: its method, its path, even both. There may be header fields
    /// missing. Called on the loop, where nothing may wait; the body of the answer must be in memory. Whatever it
    /// is, the connection is closed behind it, unless it was the handler's fault.
    ///
    /// ```
    /// use coracle_http::{App, IntoResponse, Refusal, Request, Response};
    ///
    /// struct Terse;
    ///
    /// impl App for Terse {
    ///     fn call(&self, _: &Request<'_>) -> Response {
    ///         "ahoy\n".into_response()
    ///     }
    ///
    ///     fn refuse(&self, _: &Request<'_>, refusal: &Refusal) -> Response {
    ///         Response::new(refusal.status())
    ///     }
    /// }
    /// ```
    fn refuse(&self, req: &Request<'_>, refusal: &Refusal) -> Response {
        let _ = req;
        refusal.into_response()
    }
}

impl<F, R> App for F
where
    F: Fn(&Request<'_>) -> R + 'static,
    R: IntoResponse,
{
    fn call(&self, req: &Request<'_>) -> Response {
        self(req).into_response()
    }

    fn plan_of_all(&self) -> Option<Plan> {
        Some(Plan::default())
    }
}

impl<A: App + ?Sized> App for Rc<A> {
    fn call(&self, req: &Request<'_>) -> Response {
        (**self).call(req)
    }

    fn plan(&self, req: &Request<'_>) -> Plan {
        (**self).plan(req)
    }

    fn plan_of_all(&self) -> Option<Plan> {
        (**self).plan_of_all()
    }

    fn refuse(&self, req: &Request<'_>, refusal: &Refusal) -> Response {
        (**self).refuse(req, refusal)
    }
}

impl<A: App + ?Sized> App for Arc<A> {
    fn call(&self, req: &Request<'_>) -> Response {
        (**self).call(req)
    }

    fn plan(&self, req: &Request<'_>) -> Plan {
        (**self).plan(req)
    }

    fn plan_of_all(&self) -> Option<Plan> {
        (**self).plan_of_all()
    }

    fn refuse(&self, req: &Request<'_>, refusal: &Refusal) -> Response {
        (**self).refuse(req, refusal)
    }
}

/// How a request is treated. The default: its body is received first, up to the server's limit, and then a
/// coroutine runs the handler.
///
/// ```
/// use coracle_http::Plan;
///
/// let upload = Plan::default().streamed().limit_body_bytes(10 << 30);
/// # let _ = upload;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Plan {
    pub(crate) streamed: bool,
    pub(crate) inline: bool,
    pub(crate) limit_body_bytes: Option<u64>,
    pub(crate) cancel: bool,
}

impl Plan {
    /// The handler starts when the head is there, and reads the body by
    /// [`body_reader`](crate::Request::body_reader) as it comes.
    #[must_use]
    pub fn streamed(mut self) -> Plan {
        self.streamed = true;
        self
    }

    /// The handler is called on the loop itself, without a coroutine. It must not wait: that is a panic, and a
    /// 500.
    #[must_use]
    pub fn inline(mut self) -> Plan {
        self.inline = true;
        self
    }

    /// The longest body there may be, instead of the server's limit. A longer one is answered with 413.
    #[must_use]
    pub fn limit_body_bytes(mut self, bytes: u64) -> Plan {
        self.limit_body_bytes = Some(bytes);
        self
    }

    /// The handler is cancelled when the client is gone, instead of running on for nobody: what it waits for fails
    /// with `ECANCELED`.
    ///
    /// That it is gone is noticed as long as something is received from it: not while more than
    /// [`limit_ahead_bytes`](crate::Settings::limit_ahead_bytes) of further requests, or more of a body than its
    /// reader takes, wait here unread. Then it is noticed when something is sent to it, or read on.
    #[must_use]
    pub fn cancel_when_gone(mut self) -> Plan {
        self.cancel = true;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middleware::{around, catch_panics};
    use crate::{OwnedRequest, Router, asynchronous, inline, streaming};

    #[test]
    fn j5_a_plan_of_all_requests_is_that_of_each() {
        fn answer(_: &Request<'_>) -> &'static str {
            ""
        }
        let apps: [Rc<dyn App>; 7] = [
            Rc::new(answer),
            Rc::new(Rc::new(Arc::new(answer))),
            Rc::new(inline(answer)),
            Rc::new(streaming(answer)),
            Rc::new(asynchronous(async |_: &Request<'_>| "")),
            Rc::new(around(catch_panics, inline(answer))),
            Rc::new(streaming(inline(answer))),
        ];
        for app in apps {
            let request = OwnedRequest::new("POST", "/a");
            assert_eq!(app.plan_of_all(), Some(app.plan(&request.request())));
        }
        assert_eq!(inline(Router::new(())).plan_of_all(), None); // each of its routes has its own
    }
}
