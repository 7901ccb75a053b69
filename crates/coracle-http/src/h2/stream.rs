//! One request and its answer: from hyper's hands to a handler's coroutine, and back.
//!
//! ```text
//!   hyper ──call──► the head ──► its body is kept ──► handler ──► the answer's head ──► hyper, and its body
//!                      └────────────(it is streamed)────▲
//! ```
//!
//! A handler starts inside the call, as it does for HTTP/1: if it waits for nothing, its answer is there when
//! hyper looks for it.

use super::Shared;
use super::answer;
use super::download::{Download, Outgoing, Outlet};
use super::request::read_head;
use super::upload::Upload;
use crate::body::Kind;
use crate::body_reader::Source;
use crate::exchange::Exchange;
use crate::h1::{Framing, Refusal};
use crate::{BodyWriter, IntoResponse, Method, Response, Settings, Status, Trailers, handling};
use bytes::Bytes;
use coracle_coro::JoinHandle;
use coracle_loop::Loop;
use http_body::Body as _;
use hyper::body::Incoming;
use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

pub(super) type Answer = http::Response<Outgoing>;

/// What hyper's task and the handler's coroutine share.
pub(super) struct Stream {
    pub(super) conn: Rc<Shared>,
    exchange: Cell<Option<Box<Exchange>>>,
    answer: Cell<Option<Answer>>,
    /// When it began; not any more, once it was late.
    begun: Cell<Option<Instant>>,
    /// All of it has come, or is to be read by its handler.
    received: Cell<bool>,
    pub(super) upload: RefCell<Upload>,
    pub(super) download: Download,
    /// Hyper's task, while it waits for something.
    task: Cell<Option<Waker>>,
    /// The client does not want the answer any more, or has all of it.
    gone: Cell<bool>,
    /// Hyper's task is to be dropped, and the stream to be reset with it.
    failed: Cell<bool>,
    /// Who is to be cancelled when the client is gone.
    handler: Cell<Option<JoinHandle<()>>>,
    /// Its place among those of its connection with which hyper is not done.
    pub(super) place: Cell<usize>,
}

impl Stream {
    pub(super) fn settings(&self) -> &Settings {
        &self.conn.site.settings
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// Nobody takes its answer any more.
    pub(super) fn be_gone(&self) {
        self.gone.set(true);
        self.download.abandon();
        if let Some(handler) = self.handler.take() {
            handler.cancel();
        }
    }

    pub(super) fn is_failed(&self) -> bool {
        self.failed.get()
    }

    /// Notes who is to be told when something has changed.
    pub(super) fn set_task(&self, task: &Waker) {
        match self.task.take() {
            Some(known) if known.will_wake(task) => self.task.set(Some(known)),
            _ => self.task.set(Some(task.clone())),
        }
    }

    fn wake(&self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// Ends what takes too long; true if there was something.
    pub(super) fn look_at_the_clock(&self, now: Instant) -> bool {
        const BODY_LATE: Refusal =
            Refusal::new(Status::REQUEST_TIMEOUT, "the body did not come in time");
        const LATE: Refusal = Refusal::new(Status::REQUEST_TIMEOUT, "the request took too long");
        let settings = self.settings();
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.begun.set(None);
            match self.received.get() {
                true => self.fail(),
                false => {
                    let waker = self.upload.borrow_mut().fail((io::ErrorKind::TimedOut, LATE));
                    waker.into_iter().for_each(Waker::wake);
                }
            }
            return true;
        }
        if self.upload.borrow().is_late(now, settings) {
            let waker = self.upload.borrow_mut().fail((io::ErrorKind::TimedOut, BODY_LATE));
            waker.into_iter().for_each(Waker::wake);
            return true;
        }
        let is_left = self.download.unsent().is_some_and(|unsent| unsent.is_late(now));
        if is_left {
            self.fail();
        }
        is_left
    }

    /// When it takes too long in all, if there is such a time.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let timeout = self.settings().request_timeout?;
        self.begun.get().map(|begun| begun + timeout)
    }

    /// Has it reset.
    fn fail(&self) {
        self.failed.set(true);
        self.be_gone();
        self.wake();
    }

    // --- The request -----------------------------------------------------------------------------------

    /// A request has come: starts its handler, unless its body is to be received first.
    pub(super) fn begin(conn: &Rc<Shared>, request: http::Request<Incoming>) -> Answering {
        let (parts, incoming) = request.into_parts();
        let has_body = !incoming.is_end_stream();
        let stream = Rc::new(Stream {
            conn: Rc::clone(conn),
            exchange: Cell::new(None),
            answer: Cell::new(None),
            begun: Cell::new(Loop::current().map(|lp| lp.now())),
            received: Cell::new(false),
            upload: RefCell::new(Upload::new(has_body.then_some(incoming))),
            download: Download::default(),
            task: Cell::new(None),
            gone: Cell::new(false),
            failed: Cell::new(false),
            handler: Cell::new(None),
            place: Cell::new(0),
        });
        let mut exchange = conn.site.take_exchange();
        conn.peer.tell(&mut exchange.owned);
        let settings = &conn.site.settings;
        let planned =
            read_head(&parts, has_body, settings, &mut exchange.owned).and_then(|facts| {
                exchange.begin(&facts);
                stream.plan(&mut exchange)
            });
        let mut receiving = None;
        match planned {
            Err(refusal) => stream.refuse(exchange, refusal),
            Ok(()) => {
                stream.upload.borrow_mut().limit(exchange.limit_body_bytes());
                let streams = exchange.plan.streamed && !exchange.plan.inline;
                match exchange.framing {
                    Framing::None => stream.start(exchange),
                    _ if streams => stream.start(exchange),
                    _ => receiving = Some(exchange),
                }
            }
        }
        Answering { stream, receiving, answered: false }
    }

    fn plan(&self, exchange: &mut Exchange) -> Result<(), Refusal> {
        let refused = handling::refuse_method(exchange.owned.method);
        if let Some(refusal) = refused.or_else(|| handling::refuse_host(&exchange.owned)) {
            return Err(refusal);
        }
        let site = &self.conn.site;
        let plan = {
            let request = exchange.owned.request();
            catch_unwind(AssertUnwindSafe(|| site.app.plan(&request)))
        };
        match plan {
            Ok(plan) => exchange.follow(plan, site.settings.limit_body_bytes),
            Err(_) => {
                site.stats.count_panic();
                Err(Refusal::new(Status::INTERNAL_SERVER_ERROR, "the app panicked"))
            }
        }
    }

    /// Receives a body that is kept in memory, and starts the handler when it is whole.
    fn poll_receive(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        receiving: &mut Option<Box<Exchange>>,
    ) -> Poll<()> {
        let site = &self.conn.site;
        let now = Loop::current().map_or_else(Instant::now, |lp| lp.now());
        while let Some(exchange) = receiving.as_mut() {
            let next = self.upload.borrow_mut().poll_piece(cx, now, self.settings());
            let refused = match ready!(next) {
                Ok(Some(piece)) => exchange.receive_piece(site, piece).err(),
                Ok(None) => {
                    exchange.finish_body(self.upload.borrow_mut().take_trailers());
                    if let Some(exchange) = receiving.take() {
                        self.start(exchange);
                    }
                    break;
                }
                Err((_, refusal)) => Some(refusal),
            };
            if let Some(refusal) = refused
                && let Some(exchange) = receiving.take()
            {
                self.refuse(exchange, refusal);
            }
        }
        Poll::Ready(())
    }

    // --- The handler -----------------------------------------------------------------------------------

    fn start(self: &Rc<Self>, mut exchange: Box<Exchange>) {
        let site = &self.conn.site;
        self.received.set(true);
        site.stats.count_request();
        let waiting = Unstarted(Some(Rc::clone(self)));
        if exchange.plan.inline {
            self.call(&mut exchange);
            if !exchange.is_streamed() {
                waiting.start();
                return self.respond(exchange);
            }
            self.exchange.set(Some(exchange));
            drop(coracle_coro::spawn(move || {
                let stream = waiting.start();
                if let Some(exchange) = stream.exchange.take() {
                    stream.write_body(exchange);
                }
            }));
            return;
        }
        let cancel = exchange.plan.cancel;
        self.exchange.set(Some(exchange));
        let Some(lp) = Loop::current() else { return };
        let handler = site.spawner(&lp).spawn_now(&lp, move || {
            let stream = waiting.start();
            if let Some(mut exchange) = stream.exchange.take() {
                stream.call(&mut exchange);
                match exchange.is_streamed() {
                    true => stream.write_body(exchange),
                    false => stream.respond(exchange),
                }
            }
        });
        if cancel && !handler.is_finished() {
            self.handler.set(Some(handler));
        }
    }

    /// Calls the app, and leaves its answer in the exchange.
    fn call(self: &Rc<Self>, exchange: &mut Exchange) {
        let is_streamed = exchange.plan.streamed && exchange.framing != Framing::None;
        let source = is_streamed.then(|| Rc::clone(self) as Rc<dyn Source>);
        let refused = || self.upload.borrow().told_refusal();
        handling::call_app(&self.conn.site, exchange, source, refused);
        let Some(response) = exchange.response.as_mut() else { return };
        match response.body().0 {
            Kind::Upgrade(_) => {
                let why = "this needs an upgrade, which HTTP/2 does not have";
                *response = Refusal::new(Status::UPGRADE_REQUIRED, why).into_response();
            }
            Kind::File { .. } => {
                let body = response.take_body().through_the_program();
                response.set_body(body);
            }
            _ => {}
        }
    }

    // --- The answer ------------------------------------------------------------------------------------

    /// Refuses the request, of which as much is known as is in `exchange`.
    #[cold]
    fn refuse(self: &Rc<Self>, mut exchange: Box<Exchange>, refusal: Refusal) {
        let site = &self.conn.site;
        site.stats.count_refused();
        tracing::debug!(
            status = refusal.status.as_u16(),
            why = refusal.why,
            "a request was refused"
        );
        exchange.response = Some(site.refuse(&exchange.owned, refusal));
        self.respond(exchange);
    }

    /// Gives hyper an answer whose body is there.
    fn respond(self: &Rc<Self>, mut exchange: Box<Exchange>) {
        let Some(mut response) = exchange.response.take() else { return };
        let method = exchange.owned.method;
        self.conn.site.give_back(exchange);
        let (head, follows) = self.head(method, &response);
        let trailers = response.trailers().cloned();
        let bytes = match response.take_body().0 {
            Kind::Static(bytes) => Bytes::from_static(bytes),
            Kind::Bytes(bytes) => bytes,
            Kind::Vec(bytes) => bytes.into(),
            _ => Bytes::new(), // not here
        };
        let body = match follows {
            true => Outgoing::bytes(self, bytes, trailers),
            false => Outgoing::nothing(self),
        };
        self.answer(head.map(|()| body));
    }

    /// Gives hyper an answer whose body is written from here on, and writes it.
    fn write_body(self: &Rc<Self>, mut exchange: Box<Exchange>) {
        let Some(mut response) = exchange.response.take() else { return };
        let method = exchange.owned.method;
        self.conn.site.give_back(exchange);
        let (head, follows) = self.head(method, &response);
        let trailers: Option<Trailers> = response.trailers().cloned();
        let Kind::Stream { writer, len } = response.take_body().0 else { return };
        if !follows {
            self.answer(head.map(|()| Outgoing::nothing(self)));
            return;
        }
        if !self.answer(head.map(|()| Outgoing::pieces(self, trailers))) {
            return;
        }
        let mut out = Outlet::new(self, len);
        let stopping = Some(&self.conn.site.stopping);
        let write = || writer(&mut BodyWriter::of(stopping, &mut out));
        let written = catch_unwind(AssertUnwindSafe(write));
        let written = written.unwrap_or_else(|_| {
            self.conn.site.stats.count_panic();
            Err(io::Error::other("it panicked"))
        });
        if let Err(error) = out.finish(written) {
            match self.is_gone() {
                true => self.conn.site.stats.count_dropped(),
                false => tracing::error!("the body of a response is cut off: {error}"),
            }
        }
    }

    fn head(&self, method: Method, response: &Response) -> (http::Response<()>, bool) {
        let site = &self.conn.site;
        let now = Loop::current().map_or_else(Instant::now, |lp| lp.now());
        let (status, len) = (response.status(), response.body().len());
        let (fields, follows) =
            answer::head(method, status, response.headers(), len, || site.date.value(now));
        let mut head = http::Response::new(());
        *head.status_mut() = status;
        *head.headers_mut() = fields;
        (head, follows)
    }

    /// False if nobody takes it.
    fn answer(&self, answer: Answer) -> bool {
        if self.is_gone() {
            self.conn.site.stats.count_dropped();
            return false;
        }
        self.answer.set(Some(answer));
        self.wake();
        true
    }
}

/// What hyper awaits: the answer to a request.
pub(super) struct Answering {
    pub(super) stream: Rc<Stream>,
    /// While its body is received.
    receiving: Option<Box<Exchange>>,
    answered: bool,
}

impl Future for Answering {
    type Output = io::Result<Answer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Answer>> {
        let this = &mut *self;
        if this.receiving.is_some() {
            ready!(this.stream.poll_receive(cx, &mut this.receiving));
        }
        match this.stream.answer.take() {
            Some(answer) => {
                this.answered = true;
                Poll::Ready(Ok(answer))
            }
            None => {
                this.stream.set_task(cx.waker());
                Poll::Pending
            }
        }
    }
}

impl Drop for Answering {
    /// Answered, or taken back by the client.
    fn drop(&mut self) {
        if !self.answered {
            self.stream.be_gone();
            drop(self.stream.answer.take());
        }
        if let Some(exchange) = self.receiving.take() {
            self.stream.conn.site.give_back(exchange);
        }
    }
}

/// A request that waits for a coroutine. One that finds no stack is dropped, and this with it.
struct Unstarted(Option<Rc<Stream>>);

impl Unstarted {
    fn start(mut self) -> Rc<Stream> {
        self.0.take().expect("it is started once")
    }
}

impl Drop for Unstarted {
    fn drop(&mut self) {
        const NO_STACK: Refusal =
            Refusal::new(Status::SERVICE_UNAVAILABLE, "there is no memory for the request");
        let Some(stream) = self.0.take() else { return };
        let Some(mut exchange) = stream.exchange.take() else { return };
        match exchange.response {
            None => stream.refuse(exchange, NO_STACK),
            // The app has answered, and need not be asked again: whoever logs answers has logged it.
            Some(_) => {
                stream.conn.site.stats.count_refused();
                exchange.response = Some(NO_STACK.into_response());
                stream.respond(exchange);
            }
        }
    }
}
