//! A connection that speaks HTTP/2: hyper's, on this loop.
//!
//! ```text
//!   Conn ◄──bytes──► Pipe ◄──► hyper: frames, HPACK, windows ──request──► Stream ──► a handler's coroutine
//!    ▲                           ▲                                          │
//!    │ TLS is a layer below      └── polled with each bytes, or by a driver └── a task of hyper's, if it waits
//! ```
//!
//! To the app it is the same as HTTP/1: the same requests, answers, plans and limits. What is said about a
//! connection there holds for a stream here: one that is refused, or too slow, is reset, and the others go on.
//! Only the end of an answer, with which hyper is done, cannot be: nothing more is asked on its connection then,
//! which is ended when the others are answered.
//!
//! Hyper's connection is a future. It is polled inside the callback that has brought bytes for it, with the bytes
//! in the pipe, and what it writes is given to the connection when it returns: so a dozen requests that came
//! together are answered together, if their handlers do not wait. When something else wakes it, its driver polls
//! it in the same way.

mod answer;
mod download;
mod notice;
mod piece;
mod pipe;
mod request;
mod stream;
mod tasks;
mod timer;
mod timing;
mod upload;
mod watch;

pub(crate) use self::watch::PREFACE;

use self::notice::Notice;
use self::piece::Unsent;
use self::pipe::{Buffers, LIMIT_INPUT_BYTES, Pipe};
use self::stream::Stream;
use self::tasks::{Requests, Tasks};
use self::timer::LoopTime;
use self::timing::Clock;
use self::watch::{Flood, Watch};
use crate::peer::Peer;
use crate::site::Site;
use bytes::Bytes;
use coracle_coro::future::spawn_future;
use coracle_loop::Loop;
use coracle_net::{Buffer, Conn, ConnHandle, Protocol, Reason};
use hyper::server::conn::http2;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// How often it is polled at once because it woke itself; then others have their turn.
const LIMIT_POLLS: u32 = 16;

/// What has sent nothing in so many turns waits for the client.
const TURNS: u32 = 3;

/// The protocol, as the loop has it.
pub(crate) struct H2(Rc<Shared>);

type Connection = http2::Connection<Pipe, Requests, Tasks>;

/// What the protocol, hyper and the streams share.
pub(crate) struct Shared {
    pub(crate) site: Rc<Site>,
    peer: Peer,
    handle: OnceCell<ConnHandle>,
    buffers: Rc<Buffers>,
    /// Hyper's; not here while it is polled, and when it is over.
    connection: Cell<Option<Pin<Box<Connection>>>>,
    /// Who is told that it has something to do, from when its driver runs.
    notice: OnceCell<(Arc<Notice>, Waker)>,
    watch: RefCell<Watch>,
    /// The request that hyper has just brought, until it gives away the task of it.
    calling: Cell<Option<Rc<Stream>>>,
    /// Streams with which hyper is not done.
    streams: RefCell<Vec<Rc<Stream>>>,
    /// The ends of answers with which it is, and which wait for the client's windows.
    unsent: RefCell<Vec<Rc<Unsent>>>,
    requests: Cell<u64>,
    /// How much was given to the connection.
    written: Cell<u64>,
    /// The client has sent everything.
    ended: Cell<bool>,
    /// How often in a row nothing was sent since, though nobody is waited for but the client.
    stuck: Cell<u32>,
    /// Hyper's connection is over, or the connection itself.
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
            connection: Cell::new(None),
            notice: OnceCell::new(),
            watch: RefCell::new(Watch::new(now)),
            calling: Cell::new(None),
            streams: RefCell::default(),
            unsent: RefCell::default(),
            requests: Cell::new(0),
            written: Cell::new(0),
            ended: Cell::new(false),
            stuck: Cell::new(0),
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
        shared.connection.set(Some(Box::pin(shared.connect())));
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
        let looked = shared.watch.borrow_mut().look(input.unread(), conn.lp().now(), sent, http2);
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

    /// Has hyper say that it takes no more requests, and end when those that are under way are answered.
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
    /// Hyper's connection, over the pipe.
    fn connect(self: &Rc<Self>) -> Connection {
        let settings = &self.site.settings;
        let http2 = &settings.http2;
        // A field counts as 32 bytes more than it has there (RFC 9113, 6.5.2).
        let header = settings.limit_header_bytes + 32 * settings.limit_headers;
        let mut builder = http2::Builder::new(Tasks(Rc::clone(self)));
        builder
            .timer(LoopTime)
            .auto_date_header(false)
            .max_header_list_size(u32::try_from(header).unwrap_or(u32::MAX))
            .max_concurrent_streams(http2.limit_streams)
            .max_pending_accept_reset_streams(http2.limit_resets as usize)
            .max_local_error_reset_streams(http2.limit_resets as usize)
            .initial_stream_window_size(http2.stream_window_bytes)
            .initial_connection_window_size(http2.connection_window_bytes)
            .max_send_buf_size(http2.limit_send_bytes)
            .keep_alive_interval(http2.ping_interval)
            .keep_alive_timeout(http2.ping_timeout);
        builder.serve_connection(Pipe(Rc::clone(&self.buffers)), Requests(Rc::clone(self)))
    }

    /// Has the loop poll hyper's connection whenever something wakes it.
    fn drive(self: &Rc<Self>) {
        let shared = Rc::clone(self);
        drop(spawn_future(poll_fn(move |cx| {
            shared.notice.get_or_init(|| {
                let notice = Notice::new(cx.waker().clone());
                let waker = Waker::from(Arc::clone(&notice));
                (notice, waker)
            });
            if !shared.over.get()
                && let (Some(lp), Some(handle)) = (Loop::current(), shared.handle.get())
            {
                handle.with(&lp, |conn| shared.run(conn));
            }
            if shared.over.get() { Poll::Ready(()) } else { Poll::Pending }
        })));
    }

    /// Has it polled soon.
    fn wake(&self) {
        if let Some((_, waker)) = self.notice.get() {
            waker.wake_by_ref();
        }
    }

    /// Polls hyper's connection, and gives what it writes to the connection under it.
    fn run(&self, conn: &mut Conn<'_>) {
        if self.over.get() {
            return;
        }
        // One for all connections: it is empty when this returns.
        self.buffers.set_memory(self.site.output.take());
        self.run_on(conn);
        self.site.output.set(self.buffers.set_memory(Vec::new()));
    }

    fn run_on(&self, conn: &mut Conn<'_>) {
        for _ in 0..LIMIT_POLLS {
            let polled = self.poll();
            self.forget_sent();
            let written = self.buffers.flush(conn);
            self.written.set(self.written.get() + written as u64);
            let full = !conn.writable();
            self.buffers.set_full(full);
            self.note_room(conn, full);
            match polled {
                Polled::Over => return self.close(conn),
                Polled::Again => {}
                Polled::Pending if !full && self.buffers.take_refused() => {}
                Polled::Pending if self.has_ended(written) && !self.buffers.end() => {}
                Polled::Pending => {
                    self.pause_or_resume(conn);
                    return self.arm(conn);
                }
            }
        }
        if let Some((notice, _)) = self.notice.get() {
            notice.put_off();
        }
        self.pause_or_resume(conn);
        self.arm(conn);
    }

    fn poll(&self) -> Polled {
        let Some((notice, waker)) = self.notice.get() else { return Polled::Pending };
        let Some(mut connection) = self.connection.take() else { return Polled::Pending };
        notice.begin();
        let polled = connection.as_mut().poll(&mut Context::from_waker(waker));
        match polled {
            Poll::Ready(result) => {
                if let Err(error) = result {
                    tracing::debug!("a connection of HTTP/2 ends: {error}");
                }
                Polled::Over
            }
            Poll::Pending => {
                self.connection.set(Some(connection));
                if notice.is_woken() { Polled::Again } else { Polled::Pending }
            }
        }
    }

    /// Whether the client has sent everything, and has its answers as far as its windows reach: it cannot move
    /// them any more. So much was written just now.
    fn has_ended(&self, written: usize) -> bool {
        let is_looked_at = self.notice.get().is_some() && self.buffers.unread() == 0;
        if !self.ended.get() || !is_looked_at || self.buffers.is_refused() {
            return false;
        }
        let streams = self.streams.borrow();
        let wait = streams.iter().all(|stream| stream.download.unsent().is_some());
        if streams.is_empty() || !wait {
            return wait;
        }
        // Perhaps they wait for windows, or perhaps for the turn of their tasks, which they have meanwhile.
        self.stuck.set(if written == 0 { self.stuck.get() + 1 } else { 0 });
        if self.stuck.get() < TURNS {
            self.wake();
        }
        self.stuck.get() >= TURNS
    }

    /// Whether hyper has something to answer, or to send.
    fn is_busy(&self) -> bool {
        !self.streams.borrow().is_empty()
            || !self.unsent.borrow().is_empty()
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
        if let Some(mut connection) = self.connection.take() {
            connection.as_mut().graceful_shutdown();
            self.connection.set(Some(connection));
        }
    }

    /// Nothing more is done here; the streams are told by hyper.
    fn end(&self) {
        self.over.set(true);
        self.clock.disarm();
        drop(self.connection.take());
        if let Some((notice, _)) = self.notice.get() {
            notice.put_off(); // so that the driver ends
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
            self.wake();
        }
    }

    /// A stream with which hyper is not done when it has brought it.
    fn enter(&self, stream: &Rc<Stream>) {
        let mut streams = self.streams.borrow_mut();
        stream.place.set(streams.len());
        streams.push(Rc::clone(stream));
        self.clock.note_deadline(stream.deadline());
    }

    fn leave(&self, stream: &Rc<Stream>) {
        let mut streams = self.streams.borrow_mut();
        let place = stream.place.get();
        streams.swap_remove(place);
        if let Some(moved) = streams.get(place) {
            moved.place.set(place);
        }
        self.note_unsent(stream);
        if streams.is_empty() {
            drop(streams);
            self.clock.note_request(); // it is idle from now on
            if self.ended.get() {
                self.wake();
            }
        }
    }

    /// Hyper is done with a stream, but may not have put all of its answer into frames.
    fn note_unsent(&self, stream: &Stream) {
        if let Some(unsent) = stream.download.unsent() {
            self.unsent.borrow_mut().push(Rc::clone(unsent));
        }
    }

    /// Forgets answers that are in frames.
    fn forget_sent(&self) {
        let mut unsent = self.unsent.borrow_mut();
        if unsent.is_empty() {
            return;
        }
        unsent.retain(|unsent| !unsent.is_empty());
        if unsent.is_empty() {
            self.clock.note_request(); // as above
        }
    }
}

/// What came of polling it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Polled {
    Pending,
    /// It woke itself.
    Again,
    Over,
}
