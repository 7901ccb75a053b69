//! One request and its answer: from `h2`'s hands to a handler's coroutine, and back.
//!
//! ```text
//!   h2 ──begin──► the head ──► its body is kept ──► handler ──► the answer's head ──► h2, and its body
//!                      └────────────(it is streamed)────▲
//! ```
//!
//! A handler starts as soon as its request is there, as it does for HTTP/1: if it waits for nothing, `h2` has its
//! answer when it is polled for the next request. Only who waits has a [place](super::waiting) in the connection.

use super::Shared;
use super::answer;
use super::download::{Download, Next, Outlet};
use super::piece::{Piece, Unsent};
use super::request::read_head;
use super::session::Request;
use super::upload::{Failure, Upload};
use crate::body::Kind;
use crate::body_reader::Source;
use crate::exchange::Exchange;
use crate::h1::{Framing, Refusal};
use crate::{BodyWriter, IntoResponse, Method, Response, Settings, Status, handling};
use bytes::Bytes;
use coracle_coro::JoinHandle;
use coracle_loop::Loop;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// What a connection and a handler's coroutine share.
pub(super) struct Stream {
    pub(super) conn: Rc<Shared>,
    handle: RefCell<Handle>,
    exchange: Cell<Option<Box<Exchange>>>,
    /// The same, while its body is received.
    receiving: Cell<Option<Box<Exchange>>>,
    /// When it began; not any more, once it was late.
    begun: Cell<Option<Instant>>,
    /// All of it has come, or is to be read by its handler.
    received: Cell<bool>,
    pub(super) upload: RefCell<Upload>,
    pub(super) download: Download,
    /// All of the answer is with `h2`.
    handed_on: Cell<bool>,
    /// The client does not want the answer any more, or was too slow for it.
    gone: Cell<bool>,
    /// Who is to be cancelled when the client is gone.
    handler: Cell<Option<JoinHandle<()>>>,
    /// Its connection knows that it is [over](Stream::is_over).
    pub(super) settled: Cell<bool>,
    /// Its place among those that wait, and who wakes it there.
    place: RefCell<Option<(usize, Waker)>>,
}

/// What `h2` has given for an answer.
enum Handle {
    Head(SendResponse<Piece>),
    Body(SendStream<Piece>),
}

impl Handle {
    fn reset(&mut self, reason: Reason) {
        match self {
            Handle::Head(respond) => respond.send_reset(reason),
            Handle::Body(body) => body.send_reset(reason),
        }
    }

    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Handle::Head(respond) => respond.poll_reset(cx).map(|_| ()),
            Handle::Body(body) => body.poll_reset(cx).map(|_| ()),
        }
    }
}

impl Stream {
    pub(super) fn settings(&self) -> &Settings {
        &self.conn.site.settings
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// Whether there is nothing more to do for it, but for what `h2` has of its answer.
    pub(super) fn is_over(&self) -> bool {
        self.handed_on.get() || self.gone.get()
    }

    /// Whether the head of its answer is with `h2`.
    fn is_answered(&self) -> bool {
        matches!(*self.handle.borrow(), Handle::Body(_))
    }

    /// Whether it is gone, but `h2` has not let go of what it has of the answer. It cannot take back a last piece
    /// that is about to be in a frame, and keeps what does not fit into it.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.is_gone() && self.download.unsent().is_some_and(|unsent| unsent.is_late(now))
    }

    /// Nobody takes its answer any more, nor is its body of use.
    pub(super) fn be_gone(&self) {
        self.gone.set(true);
        self.download.wake_writer();
        if let Some(unsent) = self.download.unsent() {
            let now = Loop::current().map_or_else(Instant::now, |lp| lp.now());
            unsent.begin_anew(now, self.settings());
        }
        if !self.upload.borrow().is_taken() {
            let waker = self.upload.borrow_mut().cut();
            waker.into_iter().for_each(Waker::wake);
            self.conn.touch(); // the window of the connection moves
        }
        if let Some(handler) = self.handler.take() {
            handler.cancel();
        }
        if let Some(exchange) = self.receiving.take() {
            self.conn.site.give_back(exchange);
        }
    }

    /// It waits at this place from now on.
    pub(super) fn set_place(&self, number: usize, waker: &Waker) {
        self.place.replace(Some((number, waker.clone())));
    }

    /// It does not wait any more: where it has waited, if it has.
    pub(super) fn take_place(&self) -> Option<usize> {
        self.place.take().map(|(number, _)| number)
    }

    /// Ends what takes too long; true if there was something.
    pub(super) fn look_at_the_clock(self: &Rc<Self>, now: Instant) -> bool {
        const BODY_LATE: Refusal =
            Refusal::new(Status::REQUEST_TIMEOUT, "the body did not come in time");
        const LATE: Refusal = Refusal::new(Status::REQUEST_TIMEOUT, "the request took too long");
        if self.is_gone() {
            return false;
        }
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.begun.set(None);
            self.fail_upload((io::ErrorKind::TimedOut, LATE));
            if self.received.get() || self.is_answered() {
                self.reset(Reason::CANCEL);
            }
            return true;
        }
        if self.upload.borrow().is_late(now, self.settings()) {
            self.fail_upload((io::ErrorKind::TimedOut, BODY_LATE));
            return true;
        }
        let is_left = self.download.unsent().is_some_and(|unsent| unsent.is_late(now));
        if is_left {
            self.reset(Reason::CANCEL);
        }
        is_left
    }

    /// When it takes too long in all, if there is such a time.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let timeout = self.settings().request_timeout.filter(|_| !self.is_gone())?;
        self.begun.get().map(|begun| begun + timeout)
    }

    /// Whoever reads the body is told that it cannot be read on.
    fn fail_upload(&self, failure: Failure) {
        let waker = self.upload.borrow_mut().fail(failure);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Ends it, and no other, although its handler may go on.
    fn reset(self: &Rc<Self>, reason: Reason) {
        self.handle.borrow_mut().reset(reason);
        self.be_gone();
        self.conn.touch();
        self.conn.settle(self);
    }

    /// Does what there is to be done, after it was woken at its place.
    pub(super) fn poll(self: &Rc<Self>, cx: &mut Context<'_>) {
        if !self.is_over() && self.poll_receive(cx).is_ready() {
            self.hand_on();
        }
        if !self.is_over() && self.handle.borrow_mut().poll_reset(cx).is_ready() {
            self.be_gone();
        }
        self.conn.settle(self);
    }

    // --- The request -----------------------------------------------------------------------------------

    /// A request has come: starts its handler, unless its body is to be received first.
    pub(super) fn begin(conn: &Rc<Shared>, (request, respond): Request) {
        let is_more = !request.body().is_end_stream();
        let has_body = is_more && request.method() != http::Method::CONNECT;
        let mut exchange = conn.site.take_exchange();
        conn.peer.tell(&mut exchange.owned);
        let facts = read_head(&request, has_body, &conn.site.settings, &mut exchange.owned);
        let incoming = request.into_body();
        let stream = Rc::new(Stream {
            conn: Rc::clone(conn),
            handle: RefCell::new(Handle::Head(respond)),
            exchange: Cell::new(None),
            receiving: Cell::new(None),
            begun: Cell::new(Loop::current().map(|lp| lp.now())),
            received: Cell::new(false),
            upload: RefCell::new(Upload::new(is_more.then_some(incoming))),
            download: Download::default(),
            handed_on: Cell::new(false),
            gone: Cell::new(false),
            handler: Cell::new(None),
            settled: Cell::new(false),
            place: RefCell::new(None),
        });
        let planned = facts.and_then(|facts| {
            exchange.begin(&facts);
            handling::plan(&stream.conn.site, &mut exchange)
        });
        match planned {
            Err(refusal) => stream.refuse(exchange, refusal),
            Ok(()) => {
                let limit = exchange.limit_body_bytes();
                stream.upload.borrow_mut().announce(limit, exchange.expects_continue);
                let streams = exchange.plan.streamed && !exchange.plan.inline;
                match exchange.framing {
                    Framing::None => stream.start(exchange),
                    _ if streams => stream.start(exchange),
                    _ => {
                        // Mostly all of it is there.
                        stream.receiving.set(Some(exchange));
                        let cx = &mut Context::from_waker(Waker::noop());
                        let _ = stream.poll_receive(cx);
                    }
                }
            }
        }
        if !stream.is_over() {
            conn.enter(&stream);
        }
    }

    /// Receives a body that is kept in memory, and starts the handler when it is whole.
    fn poll_receive(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<()> {
        let site = &self.conn.site;
        let now = Loop::current().map_or_else(Instant::now, |lp| lp.now());
        while let Some(mut exchange) = self.receiving.take() {
            let refused = match self.poll_upload(cx, now) {
                Poll::Pending => {
                    self.receiving.set(Some(exchange));
                    return Poll::Pending;
                }
                Poll::Ready(Ok(Some(piece))) => exchange.receive_piece(site, piece).err(),
                Poll::Ready(Ok(None)) => {
                    exchange.finish_body(self.upload.borrow_mut().take_trailers());
                    self.start(exchange);
                    break;
                }
                Poll::Ready(Err((_, refusal))) => Some(refusal),
            };
            match refused {
                Some(refusal) => self.refuse(exchange, refusal),
                None => self.receiving.set(Some(exchange)),
            }
        }
        Poll::Ready(())
    }

    /// The next piece of the body; none at its end.
    pub(super) fn poll_upload(
        &self,
        cx: &mut Context<'_>,
        now: Instant,
    ) -> Poll<Result<Option<Bytes>, Failure>> {
        let mut upload = self.upload.borrow_mut();
        let next = upload.poll_piece(cx, now, self.settings());
        if next.is_ready() {
            self.conn.touch(); // its window moves
        } else if upload.is_to_continue() {
            self.send_continue();
        }
        next
    }

    #[cold]
    fn send_continue(&self) {
        let Handle::Head(respond) = &mut *self.handle.borrow_mut() else { return };
        let mut head = http::Response::new(());
        *head.status_mut() = Status::CONTINUE;
        match respond.send_informational(head) {
            Ok(()) => self.conn.touch(),
            Err(error) => tracing::debug!("nobody waits for 100 Continue: {error}"),
        }
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

    /// Gives `h2` an answer whose body is there.
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
        let is_empty = bytes.is_empty() && trailers.is_none();
        if self.answer(head, !follows || is_empty) {
            self.download.set_bytes(bytes, trailers);
            self.hand_on();
        }
    }

    /// Gives `h2` an answer whose body is written from here on, and writes it.
    fn write_body(self: &Rc<Self>, mut exchange: Box<Exchange>) {
        let Some(mut response) = exchange.response.take() else { return };
        let method = exchange.owned.method;
        self.conn.site.give_back(exchange);
        let (head, follows) = self.head(method, &response);
        self.download.set_trailers(response.trailers().cloned());
        let Kind::Stream { writer, len } = response.take_body().0 else { return };
        if !self.answer(head, !follows) {
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
            answer::head(method, status, response.headers(), len, &site.lengths, || {
                site.date.value(now)
            });
        let mut head = http::Response::new(());
        *head.status_mut() = status;
        *head.headers_mut() = fields;
        (head, follows)
    }

    /// Sends the head of the answer, which may be all of it. True if a body follows that somebody takes.
    fn answer(self: &Rc<Self>, head: http::Response<()>, is_all: bool) -> bool {
        let mut handle = self.handle.borrow_mut();
        let sent = match &mut *handle {
            Handle::Head(respond) if !self.is_gone() => respond.send_response(head, is_all),
            _ => {
                drop(handle);
                self.conn.site.stats.count_dropped();
                return false;
            }
        };
        match sent {
            Ok(body) => *handle = Handle::Body(body),
            Err(error) => {
                drop(handle);
                tracing::debug!("nobody takes an answer: {error}");
                self.conn.site.stats.count_dropped();
                self.reset(Reason::INTERNAL_ERROR);
                return false;
            }
        }
        drop(handle);
        self.handed_on.set(is_all);
        self.conn.touch();
        self.conn.settle(self);
        !is_all
    }

    /// Gives `h2` what there is of the body of the answer, if what it had is in frames.
    pub(super) fn hand_on(self: &Rc<Self>) {
        if !self.is_answered() || self.is_over() {
            return;
        }
        while self.download.unsent().is_none() && !self.is_over() {
            let next = self.download.next(self.settings());
            if let Next::Wait = next {
                return;
            }
            self.conn.touch();
            let Handle::Body(body) = &mut *self.handle.borrow_mut() else { return };
            let given = match next {
                Next::Piece(bytes, is_last) => {
                    let piece = self.count(bytes);
                    self.handed_on.set(is_last);
                    body.send_data(piece, is_last)
                }
                Next::Trailers(trailers) => {
                    self.handed_on.set(true);
                    body.send_trailers(trailers.with(answer::trailers))
                }
                Next::Cut => {
                    body.send_reset(Reason::INTERNAL_ERROR);
                    self.gone.set(true);
                    Ok(())
                }
                Next::Wait => Ok(()),
            };
            if let Err(error) = given {
                tracing::debug!("nobody takes the rest of an answer: {error}");
                body.send_reset(Reason::INTERNAL_ERROR);
                self.be_gone();
            }
        }
        if let (Some(unsent), Some((_, waker))) = (self.download.unsent(), &*self.place.borrow()) {
            unsent.set_feeder(waker);
        }
        self.conn.settle(self);
    }

    /// A piece, counted until it is in frames.
    fn count(&self, bytes: Bytes) -> Piece {
        let now = Loop::current().map_or_else(Instant::now, |lp| lp.now());
        let unsent = self.download.unsent.get_or_init(|| Unsent::new(now));
        unsent.piece(bytes, now, self.settings())
    }
}

impl Drop for Stream {
    /// What is left undone is reset by `h2`, when it is polled.
    fn drop(&mut self) {
        if !self.handed_on.get() || !self.upload.get_mut().is_taken() {
            self.conn.touch();
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
