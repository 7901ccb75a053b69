//! A connection that speaks HTTP/1: from bytes to requests, from answers to bytes, one request at a time.
//!
//! ```text
//!            head is there                 body is there                     answered
//!   ┌──────┐ (and no body) ┌──────┐        ┌─────────┐ answer is  ┌─────────┐
//!   │ Head │──────────────►│      │───────►│ Running │───────────►│ Sending │──► Head, or closed
//!   └──────┘               │ Body │        └─────────┘ too big    └─────────┘
//!       └─────────────────►│      │             │  for one go
//!                          └──────┘             └─────────────────────────────► Head, or closed
//! ```
//!
//! While it is in `Head` it holds no stack and no buffer. What arrives while a request is answered stays in the
//! connection's buffer, up to a limit; then it is not read.
//!
//! A handler starts inside the callback that saw the end of its request, on a stack of its own
//! ([`spawn_now`](coracle_coro::spawn_now())). If it does not wait, its answer is written by the same callback:
//! so a dozen requests that came together are answered together, and
//! [by one coroutine](desk). If it waits, the connection goes on without it,
//! and the coroutine finds the connection again by its [`ConnHandle`] when it has an answer. It never holds the
//! connection.

mod answering;
mod desk;
mod facts;
mod timing;
mod total;

pub(crate) use self::desk::Desk;
use self::facts::{Fact, Facts};
use self::timing::Watched;
use self::total::Total;
use crate::exchange::Exchange;
use crate::h1::head::{Parsed, parse};
use crate::h1::{Framing, Refusal};
use crate::h2::{H2, PREFACE};
use crate::peer::{Agreed, Peer};
use crate::per_address::Seated;
use crate::site::Site;
use crate::upload::Upload;
use crate::{Status, handling};
use bytes::Bytes;
use coracle_coro::{Coroutine, JoinHandle};
use coracle_loop::Loop;
use coracle_net::{Buffer, Conn, ConnHandle, Protocol, Reason};
use smallvec::SmallVec;
use std::cell::{Cell, OnceCell};
use std::io;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// After so much was written by one callback it looks whether there is room for more.
const LOOK_BYTES: u64 = 64 << 10;

/// What a client is told that waits before it sends a body.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The protocol, as the loop has it.
pub(crate) struct H1(Rc<Shared>);

/// What the protocol and the coroutine of its request share.
pub(crate) struct Shared {
    pub(crate) site: Rc<Site>,
    peer: Peer,
    handle: OnceCell<ConnHandle>,
    phase: Cell<Phase>,
    facts: Facts,
    /// How many bytes of a head that is not whole were looked at.
    seen: Cell<u32>,
    /// How many requests there were.
    requests: Cell<u32>,
    /// Its place among those who wait.
    place: Cell<u32>,
    /// Since when the phase lasts, of a head since its first byte: as the [site](Site::moment) counts.
    since: Cell<u64>,
    /// How much was written.
    written: Cell<u64>,
    exchange: Cell<Option<Box<Exchange>>>,
    rare: Cell<Option<Box<Rare>>>,
}

/// What most requests do not have.
#[derive(Default)]
pub(crate) struct Rare {
    /// A body that is read by the handler while it comes.
    pub(crate) upload: Option<Upload>,
    /// The rest of an answer that is too big for one go, and whether the connection goes on after it.
    download: Option<(Bytes, bool)>,
    /// Who waits for bytes, or for room: mostly one, but a body may be read while its answer is written.
    waiting: SmallVec<[Waiting; 1]>,
    /// What was seen when somebody last looked, while a client is slow.
    watched: Option<Watched>,
    /// Who is to be cancelled when the client is gone.
    handler: Option<JoinHandle<()>>,
    /// When requests are late that have begun and whose answers are not sent, if that is limited.
    total: Option<Rc<Total>>,
}

impl Rare {
    /// What there is still to know when an answer is written.
    fn outlast_answer(mut self: Box<Self>) -> Option<Box<Rare>> {
        let (watched, total) = (self.watched.take(), self.total.take());
        if watched.is_none() && total.is_none() {
            return None;
        }
        *self = Rare { watched, total, ..Rare::default() };
        Some(self)
    }
}

/// How somebody waits.
enum Waiting {
    Parked(Coroutine),
    /// A future, polled by a coroutine.
    Polled(Waker),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Head,
    Body,
    Running,
    Sending,
    /// Nothing that comes is looked at any more.
    Closing,
    /// What comes is for another protocol.
    Switched,
}

impl H1 {
    pub(crate) fn new(site: Rc<Site>, peer: Peer) -> H1 {
        H1(Rc::new(Shared {
            site,
            peer,
            handle: OnceCell::new(),
            phase: Cell::new(Phase::Head),
            facts: Facts::default(),
            seen: Cell::new(0),
            requests: Cell::new(0),
            since: Cell::new(0), // until `on_open`
            place: Cell::new(0),
            written: Cell::new(0),
            exchange: Cell::new(None),
            rare: Cell::new(None),
        }))
    }
}

impl Protocol for H1 {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        let shared = &self.0;
        let _ = shared.handle.set(conn.handle());
        shared.begin_phase(conn);
        shared.place.set(shared.site.idle.enter(conn.lp(), &shared.site, shared));
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        if conn.unsent_bytes() == 0 || !self.0.look_at_unsent(conn) {
            let mut looked = self.0.written.get();
            self.0.advance(conn, input, &mut looked);
        }
        Ok(())
    }

    fn on_ready(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        if self.0.phase.get() == Phase::Sending {
            self.0.send_on(conn);
        }
        self.0.go_on(conn);
        self.0.wake();
        Ok(())
    }

    fn on_idle(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.0.look_at_the_clock(conn);
        Ok(())
    }

    /// The client may have ended its side only: it still gets its answers.
    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.0.facts.set(Fact::Ended, true);
        match self.0.phase.get() {
            Phase::Head if self.0.facts.is(Fact::Left) => {} // requests that wait for room have come
            Phase::Head | Phase::Body => self.0.close(conn),
            Phase::Running => {
                self.0.end_upload();
                self.0.wake();
            }
            Phase::Sending | Phase::Closing | Phase::Switched => {}
        }
        Ok(())
    }

    /// Nobody is kept any more, but a request that is on its way is answered: one that has come is looked at
    /// first, and who has not asked anything yet has connected to do so.
    fn on_shutdown(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        let shared = &self.0;
        shared.site.stopping.begin();
        if shared.phase.get() == Phase::Head && shared.seen.get() == 0 {
            let wait = match shared.requests.get() {
                0 => shared.site.settings.stop_timeout,
                _ => Duration::ZERO,
            };
            shared.arm(conn, conn.lp().now() + wait);
        }
        Ok(())
    }

    fn on_close(&mut self, _reason: &Reason) {
        self.0.facts.set(Fact::Gone, true);
        self.0.end_upload();
        self.0.wake();
        let rare = self.0.rare.take();
        if let Some(handler) = rare.and_then(|rare| rare.handler) {
            handler.cancel();
        }
        if let Some(exchange) = self.0.exchange.take() {
            self.0.site.give_back(exchange);
        }
    }
}

impl Drop for H1 {
    /// It is gone, or another protocol has taken its place.
    fn drop(&mut self) {
        if self.0.handle.get().is_some() {
            self.0.site.idle.leave(self.0.place.get());
        }
    }
}

/// A connection whose request waits for a coroutine. One that finds no stack is dropped, and this with it.
struct Unstarted(Option<Rc<Shared>>);

impl Unstarted {
    fn start(mut self) -> Rc<Shared> {
        self.0.take().expect("it is started once")
    }
}

impl Drop for Unstarted {
    #[inline]
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.refuse_unstarted();
        }
    }
}

impl Shared {
    /// What is rare, if it is there. `f` must not look for it again.
    #[inline]
    fn if_rare<T>(&self, f: impl FnOnce(&mut Rare) -> T) -> Option<T> {
        let mut rare = self.rare.take()?;
        let result = f(&mut rare);
        self.rare.set(Some(rare));
        Some(result)
    }

    /// The same, of which there is something from now on.
    fn with_rare<T>(&self, f: impl FnOnce(&mut Rare) -> T) -> T {
        let mut rare = self.rare.take().unwrap_or_default();
        let result = f(&mut rare);
        self.rare.set(Some(rare));
        result
    }

    fn since(&self) -> Instant {
        self.site.instant(self.since.get())
    }

    /// A phase begins now.
    fn begin_phase(&self, conn: &Conn<'_>) {
        self.since.set(self.site.moment(conn.lp().now()));
    }

    // --- Bytes in --------------------------------------------------------------------------------------

    /// Goes on with what has come. `looked`: how much was written when it was last looked whether there is room.
    fn advance(self: &Rc<Self>, conn: &mut Conn<'_>, input: &mut Buffer, looked: &mut u64) {
        self.facts.set(Fact::Left, false);
        loop {
            match self.phase.get() {
                Phase::Head if input.is_empty() => break self.rest(conn),
                // Who asks and does not read is not answered on.
                Phase::Head if self.written.get() - *looked > LOOK_BYTES => {
                    *looked = self.written.get();
                    if !conn.writable() {
                        self.facts.set(Fact::Left, true); // until `on_ready`
                        break self.wait_for_next(conn);
                    }
                }
                Phase::Head => {
                    if !self.read_head(conn, input, looked) {
                        break;
                    }
                }
                Phase::Body => {
                    if !self.read_body(conn, input, looked) {
                        break;
                    }
                }
                Phase::Running | Phase::Sending => break self.leave(conn, input),
                Phase::Closing => {
                    input.take_all();
                    self.look_if_slow(conn); // what comes has put the timer off
                    break;
                }
                Phase::Switched => break,
            }
        }
        if self.facts.is(Fact::Paused) {
            self.read_again(conn, input.len());
        }
    }

    /// Reads again, if more is needed, or so little is left that more may come.
    #[cold]
    fn read_again(&self, conn: &mut Conn<'_>, left: usize) {
        let full = self.with_upload(|upload| upload.is_full()).unwrap_or(false);
        let needed =
            matches!(self.phase.get(), Phase::Head | Phase::Body) && !self.facts.is(Fact::Left);
        if needed || (!full && left <= self.site.settings.limit_ahead_bytes / 2) {
            self.read_on(conn);
        }
    }

    /// Between two requests, with nothing unread.
    #[inline]
    fn rest(&self, conn: &mut Conn<'_>) {
        let begun = self.seen.get() > 0; // the next one is on its way
        if !begun && (self.facts.is(Fact::Ended) || self.site.stopping.get()) {
            self.close(conn);
        } else {
            self.wait_for_next(conn);
        }
    }

    /// Looks for the next request; true if there is something to go on with.
    fn read_head(
        self: &Rc<Self>,
        conn: &mut Conn<'_>,
        input: &mut Buffer,
        looked: &mut u64,
    ) -> bool {
        let unread = input.unread();
        if self.requests.get() == 0
            && let Some(goes_on) = self.try_http2(conn, unread)
        {
            return goes_on;
        }
        let seen = self.seen.get() as usize;
        if seen > 0
            && memchr::memchr2(b'\n', b'\r', &unread[seen.min(unread.len())..]).is_none()
            && unread.len() <= self.site.settings.limit_target_bytes
        {
            // Nothing can have become whole.
            return self.await_head(conn, unread.len());
        }
        if let Some(timeout) = self.site.settings.request_timeout.filter(|_| seen == 0) {
            self.begin_total(conn, timeout);
        }
        let mut exchange = self.site.take_exchange();
        match parse(unread, &self.site.settings, &mut exchange.owned) {
            Ok(Parsed::Whole(facts)) => {
                input.consume(facts.len);
                self.seen.set(0);
                exchange.begin(&facts);
                self.peer.tell(&mut exchange.owned);
                self.begin_request(conn, exchange, input, looked)
            }
            Ok(Parsed::Partial) => {
                let len = unread.len();
                self.site.give_back(exchange);
                self.await_head(conn, len)
            }
            Err(refusal) => {
                self.refuse(conn, Some(exchange), refusal);
                true
            }
        }
    }

    /// Before the first request: `None` if what has come is for HTTP/1. Else whether there is something to go on
    /// with.
    #[inline(never)]
    fn try_http2(&self, conn: &mut Conn<'_>, unread: &[u8]) -> Option<bool> {
        match self.peer.agreed() {
            Agreed::Nothing => {
                let begun = unread.len().min(PREFACE.len());
                let is_known = self.site.settings.http2.prior_knowledge;
                let is_it = unread.starts_with(b"PRI") && unread[..begun] == PREFACE[..begun];
                (is_known && is_it).then(|| match begun == PREFACE.len() {
                    true => self.become_http2(conn),
                    false => self.await_head(conn, unread.len()),
                })
            }
            #[cfg(feature = "tls")]
            Agreed::Http2 => Some(self.become_http2(conn)), // whatever has come
            #[cfg(feature = "tls")]
            Agreed::Http1 => None,
        }
    }

    /// What has come is for HTTP/2, its beginning included.
    #[cold]
    fn become_http2(&self, conn: &mut Conn<'_>) -> bool {
        self.disarm(conn);
        self.phase.set(Phase::Switched);
        let peer = self.peer.address();
        let protocol = H2::new(Rc::clone(&self.site), self.peer.clone());
        match self.site.addresses.get() {
            Some(addresses) => conn.switch(Seated::new(protocol, addresses.hold(&peer))),
            None => conn.switch(protocol),
        }
        false
    }

    /// A head has begun and is not whole.
    #[cold]
    fn await_head(&self, conn: &mut Conn<'_>, len: usize) -> bool {
        if self.seen.replace(len as u32) == 0 {
            self.facts.set(Fact::Answered, false);
            self.begin_phase(conn);
            self.site.idle.stop_waiting(self.place.get());
        }
        if self.facts.is(Fact::Ended) {
            self.close(conn);
            return true;
        }
        self.arm(conn, self.since() + self.site.settings.header_timeout)
    }

    /// The head of a request is there; true if there is something to go on with.
    fn begin_request(
        self: &Rc<Self>,
        conn: &mut Conn<'_>,
        mut exchange: Box<Exchange>,
        input: &mut Buffer,
        looked: &mut u64,
    ) -> bool {
        let requests = self.requests.get().saturating_add(1);
        self.requests.set(requests);
        if self.site.stopping.get() || u64::from(requests) >= self.site.settings.limit_requests {
            exchange.keep_alive = false;
        }
        if let Err(refusal) = handling::plan(&self.site, &mut exchange) {
            self.refuse(conn, Some(exchange), refusal);
            return true;
        }
        match exchange.framing {
            Framing::None => self.start(conn, exchange, input, looked),
            _ if exchange.plan.streamed && !exchange.plan.inline => {
                self.begin_upload(conn, &exchange, input);
                self.start(conn, exchange, input, looked)
            }
            _ => {
                self.phase.set(Phase::Body);
                self.begin_phase(conn);
                self.site.idle.stop_waiting(self.place.get());
                self.exchange.set(Some(exchange));
                true
            }
        }
    }

    /// Receives a body that is kept in memory; true if there is something to go on with.
    fn read_body(
        self: &Rc<Self>,
        conn: &mut Conn<'_>,
        input: &mut Buffer,
        looked: &mut u64,
    ) -> bool {
        let Some(mut exchange) = self.exchange.take() else { return false };
        match exchange.receive(&self.site, input) {
            Ok(true) => self.start(conn, exchange, input, looked),
            Ok(false) if self.facts.is(Fact::Ended) => {
                self.site.give_back(exchange);
                self.close(conn); // the rest of it does not come
                true
            }
            Ok(false) => {
                if std::mem::take(&mut exchange.expects_continue) && exchange.received() == 0 {
                    conn.write_slice(CONTINUE);
                }
                let deadline = self.body_deadline(self.since(), exchange.received());
                self.exchange.set(Some(exchange));
                self.arm(conn, deadline)
            }
            Err(refusal) => {
                self.refuse(conn, Some(exchange), refusal);
                true
            }
        }
    }

    /// A request is being answered: what follows it waits.
    fn leave(self: &Rc<Self>, conn: &mut Conn<'_>, input: &mut Buffer) {
        if self.phase.get() == Phase::Running {
            self.feed_upload(conn, input);
            self.wake();
        }
        self.look_if_slow(conn); // what comes has put the timer off
        self.facts.set(Fact::Left, !input.is_empty());
        if input.len() >= self.site.settings.limit_ahead_bytes
            && !self.facts.set(Fact::Paused, true)
        {
            conn.pause();
        }
    }

    // --- Handlers --------------------------------------------------------------------------------------

    /// The request is there: has it answered. True if there is something to go on with.
    #[inline(always)] // with every request
    fn start(
        self: &Rc<Self>,
        conn: &mut Conn<'_>,
        exchange: Box<Exchange>,
        input: &mut Buffer,
        looked: &mut u64,
    ) -> bool {
        self.disarm(conn);
        self.phase.set(Phase::Running);
        self.site.stats.count_request();
        if self.is_starting() {
            self.exchange.set(Some(exchange)); // whoever is at the desk runs it, or leaves it
            return false;
        }
        self.start_here(conn, exchange, input, looked)
    }

    /// The same in a callback.
    #[inline(never)]
    fn start_here(
        self: &Rc<Self>,
        conn: &mut Conn<'_>,
        exchange: Box<Exchange>,
        input: &mut Buffer,
        looked: &mut u64,
    ) -> bool {
        let mut next = Some(exchange);
        while let Some(exchange) = next {
            if exchange.plan.inline {
                self.call_inline(conn, exchange);
                return true;
            }
            next = self.run(conn, exchange, input, looked);
        }
        match self.exchange.take() {
            // It did not wait, and there was nothing else to do.
            Some(exchange) if exchange.response.is_some() => {
                self.respond(conn, exchange);
                true
            }
            other => {
                self.exchange.set(other); // it is not started, or waits, or was not the last
                self.phase.get() == Phase::Running
            }
        }
    }

    /// Calls a handler that does not wait.
    #[inline]
    fn call_inline(self: &Rc<Self>, conn: &mut Conn<'_>, mut exchange: Box<Exchange>) {
        handling::call(self, &mut exchange);
        if !exchange.is_streamed() {
            return self.respond(conn, exchange);
        }
        let waiting = Unstarted(Some(Rc::clone(self)));
        self.exchange.set(Some(exchange));
        drop(coracle_coro::spawn(move || handling::stream_left(&waiting.start())));
    }

    /// Runs a handler in a coroutine, and those of the requests behind it, until one waits. Gives a request that
    /// needs another one.
    #[inline]
    fn run(
        self: &Rc<Self>,
        conn: &mut Conn<'_>,
        exchange: Box<Exchange>,
        input: &mut Buffer,
        looked: &mut u64,
    ) -> Option<Box<Exchange>> {
        let cancel = exchange.plan.cancel;
        let waiting = Unstarted(Some(Rc::clone(self)));
        self.exchange.set(Some(exchange));
        self.facts.set(Fact::Starting, true);
        let mut handler = None;
        let left = self.with_desk(conn, input, looked, |lp| {
            let spawner = self.site.spawner(lp);
            let handle = move || handling::handle(&waiting.start());
            match cancel {
                false => spawner.start_now(lp, handle),
                true => handler = Some(spawner.spawn_now(lp, handle)),
            }
        });
        self.facts.set(Fact::Starting, false);
        if left.is_none() && handler.as_ref().is_some_and(|handler| !handler.is_finished()) {
            self.with_rare(|rare| rare.handler = handler); // to be cancelled when the client is gone
        }
        left
    }

    /// There is no stack for the request.
    #[cold]
    fn refuse_unstarted(self: Rc<Self>) {
        const NO_STACK: Refusal =
            Refusal::new(Status::SERVICE_UNAVAILABLE, "there is no memory for the request");
        let Some(lp) = Loop::current() else { return };
        // Not here, where a callback of the connection may be running.
        lp.defer(move |_| {
            let Some(exchange) = self.take_exchange() else { return };
            let _ = self.reach(|conn| match &exchange.response {
                None => self.refuse(conn, Some(exchange), NO_STACK),
                // The app has answered, and need not be asked again: whoever logs answers has logged it.
                Some(_) => self.refuse_answer(conn, exchange, NO_STACK),
            });
        });
    }

    /// Which request it is, counted from one.
    pub(crate) fn request_number(&self) -> u32 {
        self.requests.get()
    }

    /// Whether the connection can be reached by the coroutine that asks.
    pub(crate) fn is_starting(&self) -> bool {
        self.facts.is(Fact::Starting)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.facts.is(Fact::Paused)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.facts.is(Fact::Gone)
    }

    /// What the handler was started for.
    pub(crate) fn take_exchange(&self) -> Option<Box<Exchange>> {
        self.exchange.take()
    }

    /// Leaves an answer for the callback that has started the handler.
    pub(crate) fn leave_answer(&self, exchange: Box<Exchange>) {
        self.exchange.set(Some(exchange));
    }

    /// Calls `f` with the connection, if it is still there. Not while it [starts](Shared::is_starting) a handler.
    pub(crate) fn reach<T>(&self, f: impl FnOnce(&mut Conn<'_>) -> T) -> Option<T> {
        let lp = coracle_loop::Loop::current()?;
        self.handle.get()?.with(&lp, f)
    }

    /// Waits until something has changed: bytes have come, there is room, or the connection is gone.
    pub(crate) fn wait(&self) -> io::Result<()> {
        let coroutine = coracle_coro::current();
        let id = coroutine.id();
        self.with_rare(|rare| rare.waiting.push(Waiting::Parked(coroutine)));
        let woken = coracle_coro::park();
        self.if_rare(|rare| {
            rare.waiting.retain(|one| !matches!(one, Waiting::Parked(other) if other.id() == id));
        });
        woken
    }

    /// Has `waker` woken when something has changed.
    #[cfg_attr(not(feature = "tower"), allow(dead_code))]
    pub(crate) fn wake_later(&self, waker: &Waker) {
        self.with_rare(|rare| {
            let is_it =
                |one: &Waiting| matches!(one, Waiting::Polled(other) if other.will_wake(waker));
            if !rare.waiting.iter().any(is_it) {
                rare.waiting.push(Waiting::Polled(waker.clone()));
            }
        });
    }

    /// Wakes who waits for a change.
    fn wake(&self) {
        let waiting = self.if_rare(|rare| std::mem::take(&mut rare.waiting));
        for waiting in waiting.into_iter().flatten() {
            match waiting {
                Waiting::Parked(coroutine) => coroutine.unpark(),
                Waiting::Polled(waker) => waker.wake(),
            }
        }
    }

    // --- Uploads ---------------------------------------------------------------------------------------

    pub(crate) fn with_upload<T>(&self, f: impl FnOnce(&mut Upload) -> T) -> Option<T> {
        self.if_rare(|rare| rare.upload.as_mut().map(f)).flatten()
    }

    /// The body of this request is read by its handler. What is there can be read at once; what is missing has its
    /// time when the handler has started.
    #[inline(never)]
    fn begin_upload(&self, conn: &Conn<'_>, exchange: &Exchange, input: &mut Buffer) {
        let upload = Upload::new(exchange, conn.lp().now());
        self.with_rare(|rare| rare.upload = Some(upload));
        self.with_upload(|upload| upload.feed(&self.site, input));
        if self.facts.is(Fact::Ended) {
            self.end_upload();
        }
    }

    /// Takes what has come of a body that a handler reads meanwhile.
    fn feed_upload(&self, conn: &mut Conn<'_>, input: &mut Buffer) {
        let fed = self.with_upload(|upload| {
            upload.feed(&self.site, input);
            if upload.is_full() {
                upload.pause(conn.lp().now());
            }
            upload.is_full()
        });
        if fed == Some(true) && !self.facts.set(Fact::Paused, true) {
            conn.pause();
        }
        if fed.is_some() {
            self.await_upload(conn);
        }
    }

    /// Nothing more comes.
    fn end_upload(&self) {
        const CUT: Refusal = Refusal::bad("the body ended too early");
        self.with_upload(|upload| upload.fail(io::ErrorKind::UnexpectedEof, CUT));
    }

    /// There is room for more of a body.
    pub(crate) fn read_on(&self, conn: &mut Conn<'_>) {
        if self.facts.set(Fact::Paused, false) {
            if self.with_upload(|upload| upload.resume(conn.lp().now())).is_some() {
                self.await_upload(conn);
            }
            conn.resume();
        }
    }
}
