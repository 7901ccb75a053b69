//! What both directions of a WebSocket share, and whoever writes to it: how it is closed, and what may be sent.
//!
//! ```text
//!            we say it first                 the peer answers, or is too late
//!   ┌──────┐ close            ┌─────────┐                                  ┌──────┐
//!   │ Open │─────────────────►│ Closing │─────────────────────────────────►│ Over │──► flush, FIN, drain
//!   └──────┘                  └─────────┘                                  └──────┘
//!       └─── the peer says it first (it is answered), breaks the rules, or is gone ──▲
//! ```
//!
//! A coroutine hears everything in order: while it has not taken what was said before, a close waits for it, and
//! so does what is against the rules. Its answers to what came before are sent before the answer to the close. But
//! one that does not listen is not waited for longer than a peer would be.
//!
//! A line is reached by the protocol of its connection, by a coroutine, and by handles from other threads; all of
//! them do so on the loop of the connection, with the connection in their hands: nobody waits for its lock.

use super::code::{Close, CloseCode};
use super::deflate::{Agreed, Deflater};
use super::encoder::{self, Encoded, Frame, Payload};
use super::frame::Opcode;
use super::{End, Message, Role, Settings, WhenFull};
use bytes::Bytes;
use coracle_coro::Coroutine;
use coracle_loop::Loop;
use coracle_net::{Conn, ConnHandle, SocketOption};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A payload up to this size is copied next to its header.
const JOIN_BYTES: usize = 4 << 10;

/// A longer message of a coroutine is sent in frames of this size, so that it waits where it is, and pings do not
/// wait for it.
pub(crate) const FRAGMENT_BYTES: usize = 1 << 20;

/// One WebSocket.
pub(crate) struct Line {
    pub(crate) role: Role,
    pub(crate) settings: Settings,
    pub(crate) agreed: Option<Agreed>,
    pub(crate) subprotocol: Option<Box<str>>,
    /// Whether the last words wait until those before them are taken.
    in_order: bool,
    conn: OnceLock<ConnHandle>,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    /// The last words of the peer, while they wait.
    last: Option<Last>,
    /// How it came to its end, once that is known.
    end: Option<End>,
    /// Nothing more is taken apart, because nobody takes what was said.
    paused: bool,
    /// The peer was asked whether it is there, and has not said a word since.
    asked: bool,
    /// A message is being sent in several frames: others wait.
    fragmenting: bool,
    /// Those others.
    pending: VecDeque<Encoded>,
    pending_bytes: usize,
    deflater: Deflater,
    /// Who waits for something to be said, or for room.
    waiting: Vec<Coroutine>,
}

/// The last that is heard of a peer.
#[derive(Debug, Clone)]
pub(crate) enum Last {
    /// It has said that it says no more.
    Closed(Close),
    /// It has broken a rule, and is to be told this.
    Broken(Close),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// We have said that we say no more.
    Closing,
    Over,
}

impl Line {
    pub(crate) fn new(
        role: Role,
        settings: Settings,
        agreed: Option<Agreed>,
        subprotocol: Option<Box<str>>,
        in_order: bool,
    ) -> Arc<Line> {
        Arc::new(Line {
            role,
            settings: settings.bounded(),
            agreed,
            subprotocol,
            in_order,
            conn: OnceLock::new(),
            state: Mutex::new(State {
                phase: Phase::Open,
                last: None,
                end: None,
                paused: false,
                asked: false,
                fragmenting: false,
                pending: VecDeque::new(),
                pending_bytes: 0,
                deflater: Deflater::default(),
                waiting: Vec::new(),
            }),
        })
    }

    /// The connection is there.
    pub(crate) fn open(&self, conn: &Conn<'_>) {
        let _ = self.conn.set(conn.handle());
    }

    /// Nobody panics while it is locked.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state().phase
    }

    /// Calls `f` with the connection, if it is there, on this loop, and not in a callback of its own.
    pub(crate) fn reach<T>(&self, f: impl FnOnce(&mut Conn<'_>) -> T) -> Option<T> {
        let lp = Loop::current()?;
        self.conn.get()?.with(&lp, f)
    }

    pub(crate) fn conn(&self) -> Option<&ConnHandle> {
        self.conn.get()
    }

    // --- Waiting ---------------------------------------------------------------------------------------

    /// Waits until something has changed.
    pub(crate) fn wait(&self) -> io::Result<()> {
        let this = coracle_coro::current();
        let id = this.id();
        self.state().waiting.push(this);
        let woken = coracle_coro::park();
        self.state().waiting.retain(|other| other.id() != id);
        woken
    }

    /// Wakes all who wait for a change.
    pub(crate) fn wake(&self) {
        let waiting = std::mem::take(&mut self.state().waiting);
        waiting.iter().for_each(Coroutine::unpark);
    }

    // --- Reading ---------------------------------------------------------------------------------------

    pub(crate) fn is_paused(&self) -> bool {
        self.state().paused
    }

    pub(crate) fn pause(&self, conn: &mut Conn<'_>) {
        let mut state = self.state();
        if state.phase == Phase::Open && !std::mem::replace(&mut state.paused, true) {
            drop(state);
            conn.pause();
        }
    }

    pub(crate) fn resume(&self, conn: &mut Conn<'_>) {
        let mut state = self.state();
        if std::mem::replace(&mut state.paused, false) {
            state.asked = false; // it could not be heard
            drop(state);
            self.await_word(conn);
            conn.resume();
        }
    }

    /// The peer has said something: if it was asked to, it need not be asked again for a while.
    pub(crate) fn heard(&self, conn: &mut Conn<'_>) {
        if std::mem::replace(&mut self.state().asked, false) {
            self.await_word(conn);
        }
    }

    /// Has the peer asked whether it is there, when it has been silent for long enough.
    pub(crate) fn await_word(&self, conn: &mut Conn<'_>) {
        conn.set_idle_timeout(self.settings.ping_interval);
    }

    /// It has been silent. True if that was for too long.
    pub(crate) fn silent(&self, conn: &mut Conn<'_>) -> bool {
        let mut state = self.state();
        // Who is not listened to, or has not even got the question, cannot answer.
        if state.phase != Phase::Open || state.paused || !conn.writable() {
            return false;
        }
        if std::mem::replace(&mut state.asked, true) {
            return true;
        }
        drop(state);
        self.write_frame(conn, encoder::control(self.role, Opcode::Ping, b""));
        conn.set_idle_timeout(Some(self.settings.pong_timeout));
        false
    }

    // --- Writing ---------------------------------------------------------------------------------------

    fn write_frame(&self, conn: &mut Conn<'_>, frame: Frame) {
        conn.write_slice(&frame.head);
        write_bytes(conn, &frame.payload);
    }

    /// Whether a message may be sent: it is open, and none is in its middle.
    pub(crate) fn may_send(&self) -> bool {
        let state = self.state();
        state.phase == Phase::Open && !state.fragmenting
    }

    /// Sends a message as one frame.
    ///
    /// # Errors
    /// It is closed.
    pub(crate) fn send(self: &Arc<Self>, conn: &mut Conn<'_>, message: Message) -> io::Result<()> {
        let mut state = self.state();
        if state.phase != Phase::Open {
            return Err(state.closed_error());
        }
        if state.fragmenting {
            drop(state);
            return self.send_encoded(conn, &message.into());
        }
        let payload = Payload::new(message, self.agreed.as_ref(), &mut state.deflater);
        drop(state);
        self.write_frame(conn, payload.frame(self.role, 0, payload.len()));
        Ok(())
    }

    /// Begins a message in several frames, before which no other may go.
    pub(crate) fn begin_fragments(&self, message: Message) -> io::Result<Payload> {
        let mut state = self.state();
        if state.phase != Phase::Open {
            return Err(state.closed_error());
        }
        state.fragmenting = true;
        Ok(Payload::new(message, self.agreed.as_ref(), &mut state.deflater))
    }

    /// Sends the next frame of such a message, from `begin` on: where the one after it begins, if there is one.
    pub(crate) fn send_fragment(
        self: &Arc<Self>,
        conn: &mut Conn<'_>,
        payload: &Payload,
        begin: usize,
    ) -> io::Result<Option<usize>> {
        let mut state = self.state();
        if state.phase != Phase::Open {
            return Err(state.closed_error());
        }
        let end = payload.len().min(begin + FRAGMENT_BYTES);
        let over = end == payload.len();
        state.fragmenting = !over;
        drop(state);
        self.write_frame(conn, payload.frame(self.role, begin, end));
        if over {
            self.send_pending(conn);
        }
        Ok((!over).then_some(end))
    }

    /// Sends what had to wait for the end of a message.
    fn send_pending(self: &Arc<Self>, conn: &mut Conn<'_>) {
        loop {
            let mut state = self.state();
            let Some(next) = state.pending.pop_front() else { break };
            state.pending_bytes -= next.message().len();
            drop(state);
            let _ = self.send_encoded(conn, &next); // or it was closed meanwhile
        }
        self.wake();
    }

    /// Sends a message that many are sent; or does what is to be done with a peer that does not read.
    ///
    /// # Errors
    /// It is closed.
    pub(crate) fn send_encoded(
        self: &Arc<Self>,
        conn: &mut Conn<'_>,
        message: &Encoded,
    ) -> io::Result<()> {
        self.send_behind(conn, message, usize::MAX).map(drop)
    }

    /// Sends several of them in one piece, and says how many. There may be more: what is written here and was not
    /// yet offered to the peer says nothing about it, so who is behind by that alone is judged in the next call.
    pub(crate) fn send_together(
        self: &Arc<Self>,
        conn: &mut Conn<'_>,
        messages: &[Encoded],
    ) -> usize {
        let before = conn.output_bytes() + self.state().pending_bytes;
        for (count, message) in messages.iter().enumerate() {
            match self.send_behind(conn, message, before) {
                Ok(true) => {}
                Ok(false) => return count,
                Err(_) => break, // it is closed
            }
        }
        messages.len()
    }

    /// Sends one of them. False if too much waits for that, and more than `before`.
    fn send_behind(
        self: &Arc<Self>,
        conn: &mut Conn<'_>,
        message: &Encoded,
        before: usize,
    ) -> io::Result<bool> {
        let mut state = self.state();
        if state.phase != Phase::Open {
            return Err(state.closed_error());
        }
        let waiting = conn.output_bytes() + state.pending_bytes;
        if waiting > self.settings.limit_backlog_bytes {
            drop(state);
            if waiting > before {
                return Ok(false);
            }
            if self.settings.when_full == WhenFull::Close {
                self.close(conn, Close::new(CloseCode::TRY_AGAIN, "you do not read"));
            }
            return Ok(true);
        }
        if state.fragmenting {
            state.pending_bytes += message.message().len();
            state.pending.push_back(message.clone());
            return Ok(true);
        }
        if self.role == Role::Client {
            drop(state);
            return self.send(conn, message.message().clone()).map(|()| true);
        }
        let (bytes, compressed) = message.bytes(self.agreed.as_ref());
        if compressed {
            state.deflater.go_astray();
        }
        drop(state);
        write_bytes(conn, bytes);
        Ok(true)
    }

    /// Asks the peer whether it is there.
    pub(crate) fn ping(&self, conn: &mut Conn<'_>, payload: &[u8]) -> io::Result<()> {
        if payload.len() > super::frame::LIMIT_CONTROL_BYTES {
            let text = "a ping has at most 125 bytes";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let state = self.state();
        if state.phase != Phase::Open {
            return Err(state.closed_error());
        }
        drop(state);
        self.write_frame(conn, encoder::control(self.role, Opcode::Ping, payload));
        Ok(())
    }

    /// Answers a ping.
    pub(crate) fn pong(&self, conn: &mut Conn<'_>, payload: &[u8]) {
        if self.phase() == Phase::Open {
            self.write_frame(conn, encoder::control(self.role, Opcode::Pong, payload));
        }
    }

    // --- Closing ---------------------------------------------------------------------------------------

    /// Says that nothing more is said, and gives the peer its time to say the same.
    pub(crate) fn close(self: &Arc<Self>, conn: &mut Conn<'_>, close: Close) {
        let mut state = self.state();
        if state.phase != Phase::Open {
            return;
        }
        if let Some(last) = state.last.take() {
            drop(state);
            return self.answer_last(conn, last, &close); // it has said so already
        }
        state.phase = Phase::Closing;
        drop(state);
        self.write_frame(conn, encoder::close(self.role, &close));
        let (line, handle) = (Arc::clone(self), conn.handle());
        conn.lp().after(self.settings.close_timeout, move |lp| {
            let late = || End::Lost("the peer has not answered a close in time".into());
            handle.with(lp, |conn| {
                line.over(late());
                cut(conn);
            }); // or it is gone
        });
        self.resume(conn); // what comes is read, to find the answer
        conn.set_idle_timeout(None);
        self.wake();
    }

    /// The peer has said its last. It is answered at once, or when everything before it was taken.
    pub(crate) fn hear_last(self: &Arc<Self>, conn: &mut Conn<'_>, last: Last) {
        let mut state = self.state();
        if self.in_order && state.phase == Phase::Open {
            state.last = Some(last);
            drop(state);
            let (line, handle) = (Arc::clone(self), conn.handle());
            conn.lp().after(self.settings.close_timeout, move |lp| {
                handle.with(lp, |conn| line.take_last(conn)); // or it is gone
            });
            return self.wake();
        }
        drop(state);
        self.answer(conn, last);
    }

    /// Whether the peer has said its last, and is not answered.
    pub(crate) fn has_last(&self) -> bool {
        self.state().last.is_some()
    }

    /// Answers the last words, now that everything before them was taken.
    pub(crate) fn take_last(&self, conn: &mut Conn<'_>) {
        let last = self.state().last.take();
        if let Some(last) = last {
            self.answer(conn, last);
        }
    }

    fn answer(&self, conn: &mut Conn<'_>, last: Last) {
        let close = match &last {
            Last::Closed(close) => close.code.into(),
            Last::Broken(close) => close.clone(),
        };
        self.answer_last(conn, last, &close);
    }

    fn answer_last(&self, conn: &mut Conn<'_>, last: Last, close: &Close) {
        if self.phase() == Phase::Open {
            let close = if let Last::Broken(told) = &last { told } else { close };
            self.write_frame(conn, encoder::close(self.role, close));
        }
        self.finish(conn, last.end());
    }

    /// It is over: what was written is sent, then the connection ends.
    fn finish(&self, conn: &mut Conn<'_>, end: End) {
        self.over(end);
        conn.set_idle_timeout(None);
        conn.close();
    }

    /// Notes that it is over, and how; the first who says so is right.
    pub(crate) fn over(&self, end: End) {
        let mut state = self.state();
        state.phase = Phase::Over;
        let end = match (state.last.take(), end) {
            (Some(last), End::Lost(_) | End::Silent) => last.end(),
            (_, end) => end,
        };
        state.end.get_or_insert(end);
        state.pending.clear();
        state.pending_bytes = 0;
        drop(state);
        self.wake();
    }

    /// How it ended, if it has.
    pub(crate) fn end(&self) -> Option<End> {
        self.state().end.clone()
    }

    /// What somebody is told who comes too late.
    pub(crate) fn closed_error(&self) -> io::Error {
        self.state().closed_error()
    }
}

impl Last {
    fn end(self) -> End {
        match self {
            Last::Closed(close) => End::Closed(close),
            Last::Broken(close) => End::Broken(close),
        }
    }
}

impl State {
    fn closed_error(&self) -> io::Error {
        match &self.end {
            Some(End::Closed(_)) | None => {
                io::Error::new(io::ErrorKind::BrokenPipe, "the WebSocket is closed")
            }
            Some(end) => end.to_error(),
        }
    }
}

/// Ends a connection whose peer is not waited for any more. What the kernel has for it goes with it, or it would
/// be kept for as long as the peer takes a little.
pub(crate) fn cut(conn: &mut Conn<'_>) {
    if conn.unsent_bytes() > 0 {
        let _ = conn.set_option(SocketOption::ResetOnClose(true)); // or it is gone
    }
    conn.abort();
}

/// Short ones are copied to what is sent with them, long ones are shared.
fn write_bytes(conn: &mut Conn<'_>, bytes: &Bytes) {
    match bytes.len() {
        0..=JOIN_BYTES => conn.write_slice(bytes),
        _ => conn.write(bytes.clone()),
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("role", &self.role).field("phase", &self.phase()).finish()
    }
}
