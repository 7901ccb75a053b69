//! Handlers in other styles: futures, and callbacks.

use crate::{App, IntoResponse, Plan, Refusal, Request, Response};
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

/// An app that is an `async` function. It runs on the same loop, and awaits what
/// [`coracle_coro::future`] has.
///
/// ```
/// use coracle_http::{Request, Response, asynchronous};
/// use std::time::Duration;
///
/// let app = asynchronous(async |req: &Request<'_>| {
///     coracle_coro::future::sleep(Duration::from_millis(10)).await;
///     format!("you asked for {}\n", req.path())
/// });
/// # let _ = app;
/// ```
pub fn asynchronous<F, R>(f: F) -> Asynchronous<F, R>
where
    F: AsyncFn(&Request<'_>) -> R + 'static,
    R: IntoResponse + 'static,
{
    Asynchronous { f, answer: PhantomData }
}

/// See [`asynchronous`].
pub struct Asynchronous<F, R> {
    f: F,
    answer: PhantomData<fn() -> R>,
}

impl<F, R> App for Asynchronous<F, R>
where
    F: AsyncFn(&Request<'_>) -> R + 'static,
    R: IntoResponse + 'static,
{
    fn call(&self, req: &Request<'_>) -> Response {
        match coracle_coro::block_on((self.f)(req)) {
            Ok(answer) => answer.into_response(),
            Err(error) => error.into_response(),
        }
    }

    fn plan_of_all(&self) -> Option<Plan> {
        Some(Plan::default())
    }
}

impl<F, R> fmt::Debug for Asynchronous<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asynchronous").finish_non_exhaustive()
    }
}

/// An app that never waits, called on the loop itself: a callback. One that waits all the same panics, and its
/// client gets a 500.
///
/// ```
/// use coracle_http::{Request, inline};
///
/// let app = inline(|_: &Request<'_>| "Hello, World!");
/// # let _ = app;
/// ```
pub fn inline<A: App>(app: A) -> Inline<A> {
    Inline(app)
}

/// See [`inline`].
#[derive(Debug)]
pub struct Inline<A>(A);

impl<A: App> App for Inline<A> {
    fn call(&self, req: &Request<'_>) -> Response {
        self.0.call(req)
    }

    fn plan(&self, req: &Request<'_>) -> Plan {
        self.0.plan(req).inline()
    }

    fn plan_of_all(&self) -> Option<Plan> {
        self.0.plan_of_all().map(Plan::inline)
    }

    fn refuse(&self, req: &Request<'_>, refusal: &Refusal) -> Response {
        self.0.refuse(req, refusal)
    }
}

/// An app whose handlers read bodies while they come, by [`body_reader`](Request::body_reader).
///
/// ```
/// use coracle_http::{Request, streaming};
/// use std::io::{self, Read};
///
/// let app = streaming(|req: &Request<'_>| -> io::Result<String> {
///     let count = io::copy(&mut req.body_reader(), &mut io::sink())?;
///     Ok(format!("{count} bytes\n"))
/// });
/// # let _ = app;
/// ```
pub fn streaming<A: App>(app: A) -> Streaming<A> {
    Streaming(app)
}

/// See [`streaming`].
#[derive(Debug)]
pub struct Streaming<A>(A);

impl<A: App> App for Streaming<A> {
    fn call(&self, req: &Request<'_>) -> Response {
        self.0.call(req)
    }

    fn plan(&self, req: &Request<'_>) -> Plan {
        self.0.plan(req).streamed()
    }

    fn plan_of_all(&self) -> Option<Plan> {
        self.0.plan_of_all().map(Plan::streamed)
    }

    fn refuse(&self, req: &Request<'_>, refusal: &Refusal) -> Response {
        self.0.refuse(req, refusal)
    }
}

/// An app that is told of a request, and answers it later: from a timer, another connection, a posted job.
///
/// ```
/// use coracle_http::{Request, Responder, callback};
/// use coracle_loop::Loop;
/// use std::time::Duration;
///
/// let app = callback(|_: &Request<'_>, responder: Responder| {
///     let lp = Loop::current().expect("handlers run on a loop");
///     let mut responder = Some(responder);
///     lp.after(Duration::from_millis(10), move |_| {
///         responder.take().into_iter().for_each(|responder| responder.send("later\n"));
///     });
/// });
/// # let _ = app;
/// ```
///
/// A responder that is dropped is a 500.
pub fn callback<F: Fn(&Request<'_>, Responder) + 'static>(f: F) -> Callback<F> {
    Callback(f)
}

/// See [`callback`].
pub struct Callback<F>(F);

impl<F> fmt::Debug for Callback<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callback").finish_non_exhaustive()
    }
}

impl<F: Fn(&Request<'_>, Responder) + 'static> App for Callback<F> {
    fn call(&self, req: &Request<'_>) -> Response {
        let slot = Rc::new(RefCell::new(Slot::Waiting(coracle_coro::current())));
        (self.0)(req, Responder { slot: Rc::clone(&slot) });
        loop {
            if let Slot::Answered(response) = &mut *slot.borrow_mut() {
                return response.take().unwrap_or_else(failed);
            }
            if let Err(error) = coracle_coro::park() {
                return error.into_response();
            }
        }
    }
}

fn failed() -> Response {
    crate::Status::INTERNAL_SERVER_ERROR.into_response()
}

enum Slot {
    Waiting(coracle_coro::Coroutine),
    Answered(Option<Response>),
}

/// What answers a request, once. Loop thread only.
pub struct Responder {
    slot: Rc<RefCell<Slot>>,
}

impl Responder {
    /// Answers.
    pub fn send(self, answer: impl IntoResponse) {
        self.settle(Some(answer.into_response()));
    }

    fn settle(&self, response: Option<Response>) {
        let mut slot = self.slot.borrow_mut();
        if let Slot::Waiting(_) = *slot {
            let before = std::mem::replace(&mut *slot, Slot::Answered(response));
            drop(slot);
            if let Slot::Waiting(coroutine) = before {
                coroutine.unpark();
            }
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.settle(None);
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").finish_non_exhaustive()
    }
}
