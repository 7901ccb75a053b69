//! A stream socket as futures use it: bytes that have come and were not read, bytes that were written and not
//! sent.
//!
//! ```text
//!            lent, and copied in            ┌───────────┐
//!   kernel ────────────────────────────────►│  input    │──► poll_read
//!     ▲        full: the receive is ended   └───────────┘
//!     │                                     ┌───────────┐
//!     ├──────── one send in flight ◄────────│  output   │◄── poll_write    full: Pending
//!     └──── nothing waits: sent at once ◄───└───────────┘
//! ```
//!
//! A future can be dropped at any time, so the kernel is never given a pointer into one: what is in flight owns
//! its memory. And it is the wire, not the future, that an operation tells of its end. So a half that is
//! dropped leaves nothing behind but what it has promised: bytes that were written are sent, within [`LINGER`].
//!
//! ```text
//!   writer: open ──► gone ──► all sent ──► end of our side ──┐
//!   reader: open ──► gone ───────────────────────────────────┴──► close
//! ```

use crate::budget;
use crate::hold::Hold;
use coracle_loop::demux::{
    Address, Completion, Finished, Handle, Operation, Outcome, Payload, Submitted, Token,
};
use coracle_loop::{Complete, Loop, LoopHandle, Timer};
use rustix::io::Errno;
use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// How many bytes may have come and wait to be read; then reading pauses.
const LIMIT_INPUT_BYTES: usize = 64 * 1024;

/// How many bytes may be written and wait to be sent; then writing does.
const LIMIT_OUTPUT_BYTES: usize = 64 * 1024;

/// How much room stays when everything is read.
const KEEP_BYTES: usize = 4 * 1024;

/// How long a stream that was dropped may take to send what was written.
pub(super) const LINGER: Duration = Duration::from_secs(10);

/// What a completion is about.
const CONNECTED: u32 = 0;
const RECEIVED: u32 = 1;
const SENT: u32 = 2;
const SHUT_DOWN: u32 = 3;

pub(super) struct Wire {
    home: LoopHandle,
    socket: Handle,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    connected: Option<io::Result<()>>,

    input: Input,
    /// The receive in flight.
    receiving: Option<Token>,
    /// It was asked to end, because there is no more room.
    pausing: bool,
    /// The peer has sent everything, or its last error was told.
    ended: bool,
    receive_error: Option<io::Error>,
    reader: Option<Waker>,
    reader_gone: bool,

    /// What is not in flight.
    output: Vec<u8>,
    /// How many bytes the send in flight has; `None` if there is none.
    in_flight: Option<usize>,
    send_error: Option<io::Error>,
    /// A send has failed: nothing will be sent any more.
    broken: bool,
    /// Something was sent, or is to be.
    wrote: bool,
    fin: Fin,
    writer: Option<Waker>,
    writer_gone: bool,

    /// When it takes too long to end; `run` does not return before.
    linger: Option<(Timer, Hold)>,
    closed: bool,
}

/// The end of our side.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Fin {
    #[default]
    No,
    UnderWay,
    Sent,
}

impl Wire {
    /// Takes over a socket of this loop, with bytes that were received and not read.
    pub(super) fn new(lp: &Loop, socket: Handle, unread: Vec<u8>) -> Rc<Wire> {
        let state = State { input: Input { bytes: unread, start: 0 }, ..State::default() };
        Rc::new(Wire { home: lp.handle(), socket, state: RefCell::new(state) })
    }

    pub(super) fn socket(&self) -> Handle {
        self.socket
    }

    /// Its loop, whose turn it must be.
    pub(super) fn lp(&self) -> Loop {
        current(&self.home)
    }

    // --- Connecting ------------------------------------------------------------------------------------

    pub(super) fn connect(self: &Rc<Self>, address: Address) {
        let connect = Operation::Connect { socket: self.socket, address };
        if let Submitted::Done(finished) = self.lp().submit(connect, self, CONNECTED) {
            self.state.borrow_mut().connected = Some(finished.result.map(drop));
        }
    }

    pub(super) fn poll_connected(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let connected = self.state.borrow_mut().connected.take();
        match connected {
            Some(result) => Poll::Ready(result),
            None => {
                self.wake_writer_later(cx);
                Poll::Pending
            }
        }
    }

    // --- Receiving -------------------------------------------------------------------------------------

    pub(super) fn poll_read(
        self: &Rc<Self>,
        cx: &Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let lp = self.lp();
        let mut state = self.state.borrow_mut();
        if space.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let count = state.input.read(space);
        if count > 0 || state.ended {
            return Poll::Ready(Ok(count));
        }
        if let Some(error) = state.receive_error.take() {
            state.ended = true;
            return Poll::Ready(Err(error));
        }
        drop(state);
        let former = self.state.borrow_mut().reader.replace(cx.waker().clone());
        drop(former); // which may be the last of somebody's, when nothing is borrowed
        // Only now: who does not read does not make others send.
        self.receive(&lp)?;
        Poll::Pending
    }

    /// Receives, unless that is under way.
    fn receive(self: &Rc<Self>, lp: &Loop) -> io::Result<()> {
        if self.state.borrow().receiving.is_some() {
            return Ok(());
        }
        match lp.submit(Operation::ReceiveLent { socket: self.socket }, self, RECEIVED) {
            Submitted::Pending(token) => {
                self.state.borrow_mut().receiving = Some(token);
                Ok(())
            }
            Submitted::Done(finished) => {
                finished.result.map(|_| unreachable!("many results cannot be there at once"))
            }
        }
    }

    fn received(self: &Rc<Self>, lp: &Loop, more: bool, result: io::Result<Outcome>) {
        let mut state = self.state.borrow_mut();
        if !more {
            state.receiving = None;
            state.pausing = false;
        }
        match result {
            Ok(Outcome::Lent(bytes)) if bytes.is_empty() => state.ended = true,
            Ok(Outcome::Lent(bytes)) if !state.reader_gone => state.input.add(&bytes),
            Ok(Outcome::Lent(_)) => {}
            Ok(other) => unreachable!("a receive does not give {other:?}"),
            Err(error) if is(&error, Errno::CANCELED) => {}
            Err(error) => state.receive_error = Some(error),
        }
        if state.input.len() >= LIMIT_INPUT_BYTES
            && !state.pausing
            && let Some(token) = state.receiving
        {
            state.pausing = true;
            lp.cancel(token);
        }
        let useful = state.input.len() > 0 || state.ended || state.receive_error.is_some();
        let waker = if useful { state.reader.take() } else { None };
        // It may end without a reason.
        let again = !useful && !more && state.reader.is_some() && !state.closed;
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        if again && let Err(error) = self.receive(lp) {
            let mut state = self.state.borrow_mut();
            state.receive_error = Some(error);
            let waker = state.reader.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    // --- Sending ---------------------------------------------------------------------------------------

    pub(super) fn poll_write(
        self: &Rc<Self>,
        cx: &Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(budget::poll(cx));
        let lp = self.lp();
        let mut state = self.state.borrow_mut();
        state.check()?;
        if state.fin != Fin::No {
            return Poll::Ready(Err(Errno::PIPE.into()));
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let Some(in_flight) = state.in_flight else {
            state.wrote = true;
            drop(state);
            return Poll::Ready(self.send_first(&lp, bytes));
        };
        let room = LIMIT_OUTPUT_BYTES.saturating_sub(in_flight + state.output.len());
        if room == 0 {
            drop(state);
            self.wake_writer_later(cx);
            return Poll::Pending;
        }
        let count = bytes.len().min(room);
        state.output.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    /// Nothing waits: what can be sent at once is, and else begins to wait.
    fn send_first(self: &Rc<Self>, lp: &Loop, bytes: &[u8]) -> io::Result<usize> {
        let sent = lp.try_send(self.socket, bytes);
        match sent {
            Ok(0) => {}
            Ok(count) => return Ok(count),
            Err(error) => {
                self.state.borrow_mut().broken = true;
                return Err(error);
            }
        }
        let count = bytes.len().min(LIMIT_OUTPUT_BYTES);
        let mut output = std::mem::take(&mut self.state.borrow_mut().output);
        output.extend_from_slice(&bytes[..count]);
        self.send(lp, Payload::from(output));
        self.state.borrow_mut().check().map(|()| count)
    }

    /// Sends this, and what is written meanwhile.
    fn send(self: &Rc<Self>, lp: &Loop, payload: Payload) {
        let mut next = Some(payload);
        while let Some(payload) = next {
            let count = payload.len();
            let send = Operation::Send { socket: self.socket, payload };
            next = match lp.submit(send, self, SENT) {
                Submitted::Pending(_) => {
                    self.state.borrow_mut().in_flight = Some(count);
                    None
                }
                Submitted::Done(Finished { result, payload }) => self.what_is_left(result, payload),
            };
        }
    }

    /// A send is over: what is to be sent next.
    fn what_is_left(&self, result: io::Result<Outcome>, mut payload: Payload) -> Option<Payload> {
        let mut state = self.state.borrow_mut();
        state.in_flight = None;
        let error = match result {
            Ok(Outcome::Count(0)) if !payload.is_empty() => io::ErrorKind::WriteZero.into(),
            Ok(Outcome::Count(count)) => {
                payload.advance(count);
                if !payload.is_empty() {
                    return Some(payload);
                }
                let mut spare = payload.into_vec();
                spare.clear();
                let output = std::mem::replace(&mut state.output, spare);
                return (!output.is_empty()).then(|| Payload::from(output));
            }
            Ok(other) => unreachable!("a send does not give {other:?}"),
            Err(error) => error,
        };
        state.broken = true;
        state.output = Vec::new();
        state.send_error = Some(error);
        None
    }

    pub(super) fn poll_flush(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state.borrow_mut();
        state.check()?;
        if state.in_flight.is_none() {
            return Poll::Ready(Ok(()));
        }
        drop(state);
        self.wake_writer_later(cx);
        Poll::Pending
    }

    fn wake_writer_later(&self, cx: &Context<'_>) {
        let former = self.state.borrow_mut().writer.replace(cx.waker().clone());
        drop(former); // which may be the last of somebody's, when nothing is borrowed
    }

    /// Flushes, then ends our side of the connection.
    pub(super) fn poll_close(self: &Rc<Self>, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let lp = self.lp();
        if self.state.borrow().fin == Fin::Sent {
            return Poll::Ready(Ok(()));
        }
        std::task::ready!(self.poll_flush(cx))?;
        self.wake_writer_later(cx);
        self.shut_down(&lp);
        let mut state = self.state.borrow_mut();
        match state.fin {
            Fin::Sent => Poll::Ready(state.check()),
            Fin::No | Fin::UnderWay => Poll::Pending,
        }
    }

    /// Ends our side, when everything is sent, unless that is done or under way.
    fn shut_down(self: &Rc<Self>, lp: &Loop) {
        if self.state.borrow().fin != Fin::No {
            return;
        }
        self.state.borrow_mut().fin = Fin::UnderWay;
        let shutdown = Operation::Shutdown { socket: self.socket, how: Shutdown::Write };
        if let Submitted::Done(finished) = lp.submit(shutdown, self, SHUT_DOWN) {
            self.shut(finished.result);
        }
    }

    fn shut(&self, result: io::Result<Outcome>) {
        let mut state = self.state.borrow_mut();
        state.fin = Fin::Sent;
        match result {
            Ok(_) => {}
            // The peer was quicker: nothing is left to be ended.
            Err(error) if is(&error, Errno::NOTCONN) => {}
            Err(error) => state.send_error = Some(error),
        }
    }

    // --- The end ---------------------------------------------------------------------------------------

    /// Nobody will read any more.
    pub(super) fn reader_left(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        state.reader_gone = true;
        state.input = Input::default();
        let reader = state.reader.take();
        let receiving = state.receiving;
        drop(state);
        drop(reader);
        if let (Some(token), Some(lp)) = (receiving, self.turning()) {
            lp.cancel(token);
        }
        self.end();
    }

    /// Nobody will write any more.
    pub(super) fn writer_left(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        state.writer_gone = true;
        let writer = state.writer.take();
        drop(state);
        drop(writer);
        self.end();
    }

    /// Its loop, if it is its turn. Else it is dropped outside, or with its loop.
    fn turning(&self) -> Option<Loop> {
        Loop::current().filter(|lp| self.home.is_of(lp))
    }

    /// Whether it is somebody's turn or not, does what comes next on the way to the end.
    fn end(self: &Rc<Self>) {
        if let Some(lp) = self.turning() {
            return self.go_on(&lp);
        }
        let state = self.state.borrow();
        let (socket, over) = (self.socket, state.reader_gone && state.writer_gone);
        let (waits, graceful) = (state.in_flight.is_some(), state.is_to_be_shut());
        drop(state);
        // What is in flight goes on by itself, when it ends. If the loop is gone, so is the socket.
        let _ = match (over, waits) {
            // If it is closed by then, that is a stale name.
            (true, true) => {
                self.home.post(move |lp| _ = lp.after(LINGER, move |lp| close(lp, socket)))
            }
            (true, false) => self.home.post(move |lp| end(lp, socket, graceful)),
            (false, false) if graceful => self.home.post(move |lp| shut(lp, socket)),
            (false, _) => Ok(()),
        };
    }

    fn go_on(self: &Rc<Self>, lp: &Loop) {
        let state = self.state.borrow();
        if state.closed || !state.writer_gone {
            return;
        }
        let (over, waits) = (state.reader_gone, state.in_flight.is_some());
        let (graceful, lingers) = (state.is_to_be_shut(), state.linger.is_some());
        drop(state);
        match (over, waits) {
            (true, true) if !lingers => {
                let socket = self.socket;
                let timer = lp.after(LINGER, move |lp| close(lp, socket));
                self.state.borrow_mut().linger = Some((timer, Hold::begin(lp)));
            }
            (true, false) => {
                let mut state = self.state.borrow_mut();
                state.closed = true;
                let linger = state.linger.take();
                drop(state);
                end(lp, self.socket, graceful);
                if let Some((timer, _hold)) = linger {
                    timer.cancel();
                }
            }
            (false, false) if graceful => self.shut_down(lp),
            (_, true) | (false, false) => {}
        }
    }
}

impl State {
    /// The error of the last send, once; and that nothing can be sent any more from then on.
    fn check(&mut self) -> io::Result<()> {
        match self.send_error.take() {
            Some(error) => Err(error),
            None if self.broken => Err(Errno::PIPE.into()),
            None => Ok(()),
        }
    }

    /// Whether our side has to be ended, to be sure that what was written is out.
    fn is_to_be_shut(&self) -> bool {
        let half = !self.reader_gone;
        (self.wrote || half) && !self.broken && self.fin != Fin::Sent
    }
}

impl Complete for Wire {
    fn complete(self: Rc<Self>, lp: &Loop, tag: u32, completion: Completion) {
        let Completion { more, result, payload, .. } = completion;
        match tag {
            RECEIVED => return self.received(lp, more, result),
            CONNECTED => self.state.borrow_mut().connected = Some(result.map(drop)),
            SHUT_DOWN => self.shut(result),
            _ => {
                if let Some(payload) = self.what_is_left(result, payload) {
                    self.send(lp, payload);
                }
            }
        }
        let writer = self.state.borrow_mut().writer.take();
        if let Some(writer) = writer {
            writer.wake();
        }
        self.go_on(lp);
    }
}

/// Bytes that have come and were not read.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    start: usize,
}

impl Input {
    fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    fn add(&mut self, bytes: &[u8]) {
        // What was read goes when it is at least half: so each byte is moved once at most, on average.
        if self.start >= self.len() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn read(&mut self, space: &mut [u8]) -> usize {
        let count = space.len().min(self.len());
        space[..count].copy_from_slice(&self.bytes[self.start..self.start + count]);
        self.start += count;
        if self.len() == 0 && self.bytes.capacity() > KEEP_BYTES {
            *self = Input::default(); // whoever is idle from here on holds nothing of a burst
        }
        count
    }
}

/// The loop with this name, whose turn it must be.
pub(super) fn current(home: &LoopHandle) -> Loop {
    Loop::current().filter(|lp| home.is_of(lp)).expect(
        "a socket of futures is used in a turn of the loop it was made on: `block_on` in a coroutine there, \
         or `spawn_future` there",
    )
}

/// The loop whose turn it is, for what makes sockets.
pub(super) fn any_loop() -> Loop {
    Loop::current().expect(
        "a socket of futures needs a loop, and there is none here: `block_on` in a coroutine, or `spawn_future`",
    )
}

/// Closes a socket; first ends our side of it, so that what was written is out, if that is to be.
fn end(lp: &Loop, socket: Handle, graceful: bool) {
    if graceful {
        let shutdown = Operation::Shutdown { socket, how: Shutdown::Write };
        let hold = Hold::begin(lp);
        lp.operate_within(LINGER, shutdown, move |lp, _| {
            close(lp, socket);
            drop(hold);
        });
    } else {
        close(lp, socket);
    }
}

fn shut(lp: &Loop, socket: Handle) {
    lp.operate(Operation::Shutdown { socket, how: Shutdown::Write }, |_, _| ());
}

pub(super) fn close(lp: &Loop, socket: Handle) {
    lp.operate(Operation::Close { handle: socket }, |_, _| ());
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
