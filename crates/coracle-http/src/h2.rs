//! A connection that speaks HTTP/2: frames, HPACK and windows are the crate `h2`'s, on this loop.
//!
//! ```text
//!   Conn ◄──bytes──► Pipe ◄──► h2: frames, HPACK, windows ──request──► Stream ──► a handler's coroutine
//!    ▲                          ▲                                        │
//!    │ TLS is a layer below     └── polled with each bytes, or by a driver └── has a place, if it waits
//! ```
//!
//! To the app it is the same as HTTP/1: the same requests, answers, plans and limits. What is said about a
//! connection there holds for a stream here: one that is refused, or too slow, is reset, and the others go on.
//!
//! `h2` is polled inside the callback that has brought bytes for it, with the bytes in the pipe, until it has
//! nothing more to do, and what it writes is given to the connection then: so a dozen requests that came together
//! are answered together, if their handlers do not wait. When something is done with one of its handles elsewhere,
//! by a handler that has waited, the [driver](Shared::drive) polls it in the same way.

mod answer;
mod download;
mod notice;
mod piece;
mod pipe;
mod request;
mod session;
mod stream;
mod timing;
mod upload;
mod waiting;
mod watch;

pub(crate) use self::watch::PREFACE;

use self::notice::Notice;
use self::pipe::{Buffers, LIMIT_INPUT_BYTES, Pipe};
use self::session::{Request, Session};
use self::stream::Stream;
use self::timing::Clock;
use self::waiting::Waiting;
use self::watch::{Flood, Watch};
use crate::peer::Peer;
use crate::site::Site;
use bytes::Bytes;
use coracle_coro::future::spawn_future;
use coracle_loop::Loop;
use coracle_net::{Buffer, Conn, ConnHandle, Protocol, Reason};
use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};

/// How often it is polled at once because there is more to do; then others have their turn.
const LIMIT_POLLS: u32 = 16;

/// How many requests are taken before they are begun. The code that takes them and the code that answers them do
/// not fit together into a processor's first cache: by turns for each, they would be loaded anew for each.
const REQUESTS_AT_ONCE: usize = 16;

/// Memory that all connections of a site use by turns.
#[derive(Default)]
pub(crate) struct Memory {
    /// What is written.
    output: Cell<Vec<u8>>,
    /// Requests that were taken and are not begun.
    requests: Cell<Vec<Request>>,
}

/// The protocol, as the loop has it.
pub(crate) struct H2(Rc<Shared>);

/// What the protocol and the streams share.
pub(crate) struct Shared {
    pub(crate) site: Rc<Site>,
    peer: Peer,
    handle: OnceCell<ConnHandle>,
    buffers: Rc<Buffers>,
    /// Not here while it is polled, and when it is over.
    session: Cell<Option<Box<Session>>>,
    /// Who is told that there is something to do, from when its driver runs.
    notice: OnceCell<Arc<Notice>>,
    /// Something was done with a handle of `h2`'s, which it has not looked at.
    touched: Cell<bool>,
    watch: RefCell<Watch>,
    /// Streams that wait for something.
    waiting: RefCell<Waiting>,
    /// Those whose answers are with `h2`, but not all of them in frames.
    leaving: RefCell<Vec<Rc<Stream>>>,
    requests: Cell<u64>,
    /// How much was given to the connection.
    written: Cell<u64>,
    /// The client has sent everything.
    ended: Cell<bool>,
    /// `h2`'s connection is over, or the connection itself.
    over: Cell<bool>,
    paused: Cell<bool>,
    clock: Clock,
    this: Weak<Shared>,
}

impl H2 {
    pub(crate) fn new(site: Rc<Site>, peer: Peer) -> H2 {
        let now = Loop::current().map_or_else(std::time::Instant::now, |lp| lp.now());
        H2(Rc::new_cyclic(|this| Shared {
            site,
            peer,
            handle: OnceCell::new(),
            buffers: Rc::default(),
            session: Cell::new(None),
            notice: OnceCell::new(),
            touched: Cell::new(true),
            watch: RefCell::new(Watch::new(now)),
            waiting: RefCell::default(),
            leaving: RefCell::default(),
            requests: Cell::new(0),
            written: Cell::new(0),
            ended: Cell::new(false),
            over: Cell::new(false),
            paused: Cell::new(false),
            clock: Clock::new(now),
            this: Weak::clone(this),
        }))
    }
}

impl Protocol for H2 {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        let shared = &self.0;
        let _ = shared.handle.set(conn.handle());
        conn.set_idle_timeout(None);
        let pipe = Pipe(Rc::clone(&shared.buffers));
        shared.session.set(Some(Box::new(Session::new(pipe, &shared.site.settings))));
        shared.drive();
        if shared.site.stopping.get() {
            shared.stop(conn); // what it came through was told before
        }
        shared.arm(conn);
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        let shared = &self.0;
        if shared.over.get() {
            input.take_all();
            return Ok(());
        }
        let (sent, http2) = (shared.written.get(), &shared.site.settings.http2);
        let now = conn.lp().now();
        shared.clock.note_bytes(now);
        let looked = shared.watch.borrow_mut().look(input.unread(), now, sent, http2);
        if let Err(flood) = looked {
            input.take_all();
            shared.calm(conn, &flood);
            return Ok(());
        }
        let is_lent = shared.buffers.lend(input);
        shared.run(conn);
        if is_lent {
            shared.buffers.keep();
        }
        Ok(())
    }

    fn on_ready(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.0.run(conn);
        Ok(())
    }

    /// The client may have ended its side only: it still gets its answers.
    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.0.ended.set(true);
        self.0.run(conn);
        Ok(())
    }

    /// Says that it takes no more requests, and ends when those that are under way are answered.
    fn on_shutdown(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        let shared = &self.0;
        shared.site.stopping.begin();
        shared.stop(conn);
        shared.run(conn);
        Ok(())
    }

    fn on_close(&mut self, _reason: &Reason) {
        self.0.end();
    }
}

impl Drop for H2 {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Shared {
    /// Has the loop poll it whenever there is something to do.
    fn drive(self: &Rc<Self>) {
        let shared = Rc::clone(self);
        drop(spawn_future(poll_fn(move |cx| {
            let notice = shared.notice.get_or_init(|| Notice::new(cx.waker().clone()));
            let is_more = shared.touched.get() || notice.is_woken();
            if is_more
                && !shared.over.get()
                && let (Some(lp), Some(handle)) = (Loop::current(), shared.handle.get())
            {
                handle.with(&lp, |conn| shared.run(conn));
            }
            if shared.over.get() { Poll::Ready(()) } else { Poll::Pending }
        })));
    }

    /// Something was done with a handle of `h2`'s: has it polled soon, unless it is anyway.
    fn touch(&self) {
        if !self.touched.replace(true)
            && let Some(notice) = self.notice.get().filter(|notice| !notice.is_polled())
        {
            notice.wake_driver();
        }
    }

    /// Polls it, and gives what it writes to the connection under it.
    fn run(&self, conn: &mut Conn<'_>) {
        let Some(notice) = self.notice.get().filter(|_| !self.over.get()) else { return };
        let was_busy = self.is_busy();
        self.buffers.set_full(!conn.writable());
        // One for all connections: it is empty when this returns.
        self.buffers.set_memory(self.site.memory.output.take());
        notice.begin();
        let ran = self.run_on(conn, notice);
        self.site.memory.output.set(self.buffers.set_memory(Vec::new()));
        self.touched.set(ran == Ran::More);
        notice.end(ran == Ran::More);
        if was_busy && !self.is_busy() {
            self.clock.note_request(); // it has its last answer
        }
        match ran {
            Ran::Over => self.close(conn),
            Ran::Done | Ran::More => {
                self.pause_or_resume(conn);
                self.arm(conn);
            }
        }
    }

    fn run_on(&self, conn: &mut Conn<'_>, notice: &Notice) -> Ran {
        for _ in 0..LIMIT_POLLS {
            let is_over = self.poll();
            self.poll_woken(notice);
            self.drop_sent();
            let written = self.buffers.flush(conn);
            self.written.set(self.written.get() + written as u64);
            let full = !conn.writable();
            let is_room = self.buffers.set_full(full);
            self.note_room(conn, full);
            if is_over {
                return Ran::Over;
            }
            let more = self.touched.get() || is_room || (self.has_ended() && !self.buffers.end());
            if !more {
                return Ran::Done;
            }
        }
        Ran::More
    }

    /// Polls it until there are no more requests; true when it is over.
    fn poll(&self) -> bool {
        let Some(mut session) = self.session.take() else { return false };
        let Some(this) = self.this.upgrade() else { return true };
        let mut requests = self.site.memory.requests.take();
        let is_over = loop {
            self.touched.set(false);
            let is_over = take_requests(&mut session, &mut requests);
            let is_idle = requests.is_empty();
            self.drop_sent(); // so that their memory is used again
            for request in requests.drain(..) {
                self.count_request();
                Stream::begin(&this, request);
            }
            if is_over || is_idle {
                break is_over;
            }
        };
        self.site.memory.requests.set(requests);
        if !is_over {
            self.session.set(Some(session));
        }
        is_over
    }

    /// Polls the streams that were woken.
    fn poll_woken(&self, notice: &Notice) {
        while let Some(number) = notice.take_woken() {
            let woken = self.waiting.borrow().get(number);
            if let Some((stream, waker)) = woken {
                stream.poll(&mut Context::from_waker(&waker));
            }
        }
    }

    /// Whether the client has sent everything, and has its answers as far as its windows reach: it cannot move
    /// them any more.
    fn has_ended(&self) -> bool {
        if !self.ended.get() || self.buffers.unread() > 0 || self.buffers.is_refused() {
            return false;
        }
        let waiting = self.waiting.borrow();
        waiting.iter().all(|stream| stream.download.unsent().is_some())
    }

    /// Whether there is something to answer, or to send.
    fn is_busy(&self) -> bool {
        !self.waiting.borrow().is_empty()
            || !self.leaving.borrow().is_empty()
            || self.buffers.is_refused()
    }

    fn pause_or_resume(&self, conn: &mut Conn<'_>) {
        let unread = self.buffers.unread();
        if unread >= LIMIT_INPUT_BYTES && !self.paused.replace(true) {
            conn.pause();
        } else if unread <= LIMIT_INPUT_BYTES / 2 && self.paused.replace(false) {
            conn.resume();
        }
    }

    /// The server stops.
    fn stop(&self, conn: &Conn<'_>) {
        self.clock.stop(conn.lp().now());
        self.end_gracefully();
    }

    fn end_gracefully(&self) {
        self.with_session(Session::end_gracefully);
    }

    /// Does something with it, and has it polled.
    fn with_session<T>(&self, f: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let mut session = self.session.take()?;
        let result = f(&mut session);
        self.session.set(Some(session));
        self.touch();
        Some(result)
    }

    /// Nothing more is done here, and nobody takes what is left.
    fn end(&self) {
        self.over.set(true);
        self.clock.disarm();
        drop(self.session.take());
        let waiting = self.waiting.borrow_mut().take_all();
        let leaving = self.leaving.take();
        for stream in waiting.iter().chain(&leaving) {
            stream.be_gone();
        }
        if let Some(notice) = self.notice.get() {
            notice.wake_driver(); // so that it ends
        }
    }

    /// Tells a client that floods us to calm down, and closes the connection.
    #[cold]
    fn calm(&self, conn: &mut Conn<'_>, flood: &Flood) {
        tracing::debug!("a connection of HTTP/2 is closed: {}", flood.0);
        self.site.stats.count_refused();
        self.go_away(conn, flood.0);
    }

    /// Ends it with `ENHANCE_YOUR_CALM`.
    fn go_away(&self, conn: &mut Conn<'_>, why: &str) {
        let between = self.buffers.is_between_frames();
        self.end();
        if between {
            let last_stream = self.watch.borrow().last_stream;
            conn.write(watch::goaway(last_stream, why));
        }
        self.close(conn);
    }

    /// Closes the connection when everything is sent, as long as the client takes it at the least rate.
    fn close(&self, conn: &mut Conn<'_>) {
        self.end();
        if conn.unsent_bytes() == 0 {
            return conn.close();
        }
        conn.write_then(Bytes::new(), |conn| {
            conn.close();
            Ok(())
        });
        self.note_room(conn, true);
        self.arm(conn);
    }

    fn count_request(&self) {
        self.requests.set(self.requests.get() + 1);
        self.clock.note_request();
        if self.requests.get() == self.site.settings.limit_requests {
            self.clock.note_last_request();
        }
    }

    /// A stream that has to wait.
    fn enter(&self, stream: &Rc<Stream>) {
        let Some(notice) = self.notice.get() else { return };
        let mut waiting = self.waiting.borrow_mut();
        let number = waiting.enter(stream, notice);
        self.clock.note_deadline(stream.deadline());
        let place = waiting.get(number);
        drop(waiting);
        if let Some((_, waker)) = place {
            stream.set_place(number, &waker);
            stream.poll(&mut Context::from_waker(&waker));
        }
    }

    /// Looks whether a stream is over: it waits no more, unless the client has to take the end of its answer.
    fn settle(&self, stream: &Rc<Stream>) {
        if !stream.is_over() || stream.settled.replace(true) {
            return;
        }
        if stream.download.unsent().is_some() {
            self.leaving.borrow_mut().push(Rc::clone(stream));
            self.clock.note_deadline(stream.deadline());
        }
        if let Some(number) = stream.take_place() {
            let stream = self.waiting.borrow_mut().leave(number);
            drop(stream);
            self.note_idle();
        }
    }

    /// Forgets streams whose answers are in frames, or thrown away.
    fn drop_sent(&self) {
        self.leaving.borrow_mut().retain(|stream| stream.download.unsent().is_some());
    }

    /// If nothing is asked any more, it is idle from now on.
    fn note_idle(&self) {
        if self.is_busy() {
            return;
        }
        self.clock.note_request();
        if self.ended.get() {
            self.touch();
        }
    }
}

/// Takes requests that have come, as many as are begun at once. True if none will come any more.
fn take_requests(session: &mut Session, requests: &mut Vec<Request>) -> bool {
    while requests.len() < REQUESTS_AT_ONCE {
        match session.poll() {
            Poll::Ready(Some(Ok(request))) => requests.push(request),
            Poll::Ready(Some(Err(error))) => {
                tracing::debug!("a connection of HTTP/2 ends: {error}");
                return true;
            }
            Poll::Ready(None) => return true,
            Poll::Pending => return false,
        }
    }
    false
}

/// What came of polling it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ran {
    /// There is nothing more to do.
    Done,
    /// There is, but it is not its turn any more.
    More,
    Over,
}
