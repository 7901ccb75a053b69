//! How a coroutine waits for an operation of the kernel's: it submits, parks, and goes on with what came of it.
//!
//! ```text
//!   the coroutine                          the loop
//!   submit ──► Done: goes on
//!     └─────► Pending: parks ............. other coroutines, callbacks, the wait
//!                 ┌──────────────────────── final completion: lands, and resumes it there and then
//!                 ▼
//!               goes on with the result
//! ```
//!
//! The memory of an operation is the caller's own slice, and on io_uring the kernel works on it while the
//! coroutine is parked. So a coroutine is back only when the *final completion* has landed. A cancel or a
//! deadline that strikes before makes it ask for the end of the operation, and wait on, whatever happens. If
//! the operation had finished after all, that is its result, and the cancel strikes the next wait.
//!
//! Each direction of a descriptor is a [`Lane`]: one at a time uses it, the others wait in a line.
#![allow(unsafe_code)]

use crate::current::{self, Frame};
use crate::failures;
use crate::net::socket::Socket;
use crate::scheduler::Scheduler;
use crate::sync::line::Line;
use crate::task::Task;
use crate::waiter::{REFUSAL, Waiter, Woken, earlier};
use coracle_loop::demux::{
    Address, Completion, Finished, Memory, Message, Operation, Outcome, Outgoing, Payload,
    Submitted, Token,
};
use coracle_loop::{Complete, Loop};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// So many operations in a row may finish at once before whoever makes them lets the others have their turn.
const OPERATIONS_PER_TURN: u32 = 64;

thread_local! {
    /// How many have, since the last that waited.
    static AT_ONCE: Cell<u32> = const { Cell::new(0) };
}

/// The coroutine that calls, which may wait, and its loop.
pub(super) struct Caller<'a> {
    frame: &'a Frame,
    pub(super) lp: Loop,
}

/// Calls `act` with the coroutine that calls.
///
/// # Errors
/// There is no loop at all, or the coroutine is cancelled.
///
/// # Panics
/// In a callback, and inside `no_park`.
#[inline]
pub(super) fn with_caller<R>(act: impl FnOnce(&Caller<'_>) -> io::Result<R>) -> io::Result<R> {
    current::with(|frame| {
        let Some(frame) = frame else { return Err(refuse()) };
        let lp = frame.loop_to_wait_on();
        let cancelled = frame.sleeper.is_cancelled() && !frame.is_shielded();
        if cancelled || thread::panicking() {
            return Err(refuse_cancelled());
        }
        act(&Caller { frame, lp })
    })
}

/// Nobody can wait here.
#[cold]
fn refuse() -> io::Error {
    assert!(Loop::current().is_none(), "{REFUSAL}");
    no_loop()
}

/// What is said where there is no loop.
#[cold]
pub(super) fn no_loop() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "a socket of `coracle_coro::net` belongs to a loop, and there is none here: \
         use it in a coroutine (`run`, `spawn`), or `std::net` in a plain thread",
    )
}

/// What is said on another loop than a socket's own.
#[cold]
pub(super) fn wrong_loop() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "a socket stays on its loop: take it to another with `into_std` and `from_std`",
    )
}

/// Tells a cancelled coroutine so once more; if it goes on and on, not at once.
#[cold]
fn refuse_cancelled() -> io::Error {
    Waiter::new().wait(None);
    Errno::CANCELED.into()
}

impl Caller<'_> {
    /// Fails if `scheduler` is not that of the caller's loop.
    #[inline]
    pub(super) fn check_home(&self, scheduler: &Weak<Scheduler>) -> io::Result<()> {
        if std::ptr::eq(scheduler.as_ptr(), self.frame.scheduler()) {
            Ok(())
        } else {
            Err(wrong_loop())
        }
    }

    /// The earliest of the deadlines around the caller, and of one that is `timeout` from now.
    #[inline]
    pub(super) fn limit(&self, timeout: Option<Duration>) -> Option<Instant> {
        let around = if self.frame.is_shielded() { None } else { self.frame.deadline.get() };
        match timeout {
            None => around,
            Some(timeout) => earlier(around, Some(self.lp.deadline(timeout))),
        }
    }

    /// An operation was done at once. Now and then, that is the moment to let others have their turn.
    #[inline]
    pub(super) fn done_at_once(&self) {
        let count = AT_ONCE.get() + 1;
        AT_ONCE.set(count);
        if count >= OPERATIONS_PER_TURN {
            AT_ONCE.set(0);
            self.frame.give_way();
        }
    }

    /// Parks until the operation has come to its final completion. When `limit` has passed, or the caller is
    /// cancelled, that is asked for.
    fn wait_for(
        &self,
        landing: &Landing,
        token: Token,
        limit: Option<Instant>,
    ) -> io::Result<Outcome> {
        AT_ONCE.set(0);
        let (frame, sleeper) = (self.frame, &self.frame.sleeper);
        let mut asked: Option<Errno> = None;
        loop {
            let ticket = sleeper.begin();
            landing.waiting.set(Some((Rc::clone(frame.task()), ticket)));
            landing.token.set(Some(token));
            let mut timer = None;
            if asked.is_none() {
                // After `begin`: whoever cancels looks for our ticket after having said so. One sees the other.
                if sleeper.is_cancelled() && !frame.is_shielded() {
                    self.lp.cancel(token);
                    asked = Some(Errno::CANCELED);
                } else if let Some(limit) = limit {
                    let sleeper = Arc::clone(sleeper);
                    timer = Some(self.lp.at(limit, move |_| {
                        sleeper.end_and_tell(ticket, Woken::TimedOut);
                    }));
                }
            }
            frame.wait(ticket);
            if let Some(timer) = timer {
                timer.cancel();
            }
            if let Some(result) = landing.result.take() {
                landing.token.set(None);
                return match (result, asked) {
                    (Err(error), Some(asked)) if is_cancelled(&error) => {
                        failures::note();
                        Err(asked.into())
                    }
                    // Somebody has closed the descriptor.
                    (Err(error), None) if is_cancelled(&error) => Err(Errno::BADF.into()),
                    (result, _) => result,
                };
            }
            let why = match sleeper.outcome(ticket) {
                Some(Woken::TimedOut) => Errno::TIMEDOUT,
                _ if frame.is_shielded() => continue,
                _ => Errno::CANCELED,
            };
            if asked.is_none() {
                self.lp.cancel(token);
                asked = Some(why);
            }
        }
    }
}

/// Where the result of an operation lands, and who waits for it.
#[derive(Default)]
pub(super) struct Landing {
    /// The coroutine, and the ticket of its wait.
    waiting: Cell<Option<(Rc<Task>, u64)>>,
    /// The operation in flight.
    token: Cell<Option<Token>>,
    result: Cell<Option<io::Result<Outcome>>>,
}

impl Landing {
    /// Takes in the result. Who waits for it is to be [resumed](go_on).
    #[inline]
    fn land(&self, result: io::Result<Outcome>) -> Option<(Rc<Task>, u64)> {
        self.result.set(Some(result));
        self.waiting.take()
    }
}

/// Runs the coroutine whose operation has landed. Nothing of the descriptor's is held here: the coroutine may be
/// its last owner, and drop it.
#[inline]
fn go_on(lp: &Loop, scheduler: &Weak<Scheduler>, waiting: Option<(Rc<Task>, u64)>) {
    if let (Some((task, ticket)), Some(scheduler)) = (waiting, scheduler.upgrade()) {
        scheduler.resume_now(lp, task, ticket);
    }
}

/// One direction of a descriptor: its operation in flight, and those who wait for their turn.
pub(super) struct Lane {
    busy: Cell<bool>,
    line: RefCell<Line<()>>,
    landing: Landing,
}

impl Lane {
    pub(super) fn new() -> Lane {
        let line = RefCell::new(Line::new());
        Lane { busy: Cell::new(false), line, landing: Landing::default() }
    }

    /// The caller's turn on this lane; first come, first served.
    #[inline]
    fn take_turn(&self, limit: Option<Instant>) -> io::Result<Turn<'_>> {
        if self.busy.replace(true) {
            self.wait_for_turn(limit)?;
        }
        Ok(Turn(self))
    }

    /// Asks for the end of the operation in flight.
    pub(super) fn cancel(&self, lp: &Loop) {
        if let Some(token) = self.landing.token.get() {
            lp.cancel(token);
        }
    }

    #[cold]
    fn wait_for_turn(&self, limit: Option<Instant>) -> io::Result<()> {
        let waiter = Waiter::new();
        let place = self.line.borrow_mut().join(waiter.waker(), ());
        let woken = waiter.wait(limit);
        // If it was woken, the lane was handed over; else nobody has done so, and nobody will.
        self.line.borrow_mut().leave(place);
        woken.result()
    }
}

/// The right to have an operation in flight on a lane.
struct Turn<'a>(&'a Lane);

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        let mut line = self.0.line.borrow_mut();
        if line.is_empty() || line.wake_first().is_none() {
            self.0.busy.set(false);
        }
    }
}

/// The tags of a socket's operations.
const READING: u32 = 0;
const WRITING: u32 = 1;

impl Complete for Socket {
    #[inline]
    fn complete(self: Rc<Self>, lp: &Loop, tag: u32, completion: Completion) {
        let lane = if tag == READING { &self.reading } else { &self.writing };
        let waiting = lane.landing.land(completion.result);
        let scheduler = Weak::clone(&self.scheduler);
        drop(self);
        go_on(lp, &scheduler, waiting);
    }
}

impl Socket {
    /// The caller's turn on one of its lanes, unless it is closed.
    #[inline]
    fn take_turn<'a>(
        &self,
        caller: &Caller<'_>,
        lane: &'a Lane,
        limit: Option<Instant>,
    ) -> io::Result<Turn<'a>> {
        caller.check_home(&self.scheduler)?;
        let turn = lane.take_turn(limit)?;
        if self.is_gone() { Err(Errno::BADF.into()) } else { Ok(turn) }
    }

    /// Receives once, straight into `space`.
    #[inline]
    pub(super) fn receive(
        self: &Rc<Self>,
        timeout: Option<Duration>,
        space: &mut [u8],
    ) -> io::Result<usize> {
        with_caller(|caller| {
            let limit = caller.limit(timeout);
            let _turn = self.take_turn(caller, &self.reading, limit)?;
            // SAFETY: `operate` returns after the operation's final completion, in whatever way it ends, and
            // `space` is exclusively borrowed until then. A coroutine that never goes on is leaked with its stack.
            let space = unsafe { Memory::borrowed_mut(space) };
            let receive = Operation::Receive { socket: self.handle, space };
            count(self.operate(caller, READING, receive, limit)?)
        })
    }

    /// Receives one message, straight into `space`; what else is known of it is in the answer.
    pub(super) fn receive_message(
        self: &Rc<Self>,
        timeout: Option<Duration>,
        space: &mut [u8],
    ) -> io::Result<Message> {
        with_caller(|caller| {
            let limit = caller.limit(timeout);
            let _turn = self.take_turn(caller, &self.reading, limit)?;
            // SAFETY: as in `receive`.
            let space = unsafe { Memory::borrowed_mut(space) };
            let (socket, limit_descriptors) = (self.handle, 0);
            let receive = Operation::ReceiveMessage { socket, space, limit_descriptors };
            match self.operate(caller, READING, receive, limit)? {
                Outcome::Message(message) => Ok(*message),
                other => unreachable!("a receive does not give {other:?}"),
            }
        })
    }

    /// Sends all of `bytes`, straight from there. If it ends before, what was sent is told, and the error will be
    /// back; it is told at once if nothing was sent.
    #[inline]
    pub(super) fn send(
        self: &Rc<Self>,
        timeout: Option<Duration>,
        bytes: &[u8],
    ) -> io::Result<usize> {
        with_caller(|caller| {
            let limit = caller.limit(timeout);
            let _turn = self.take_turn(caller, &self.writing, limit)?;
            self.carried.set(true);
            let mut sent = caller.lp.try_send(self.handle, bytes)?;
            if sent == bytes.len() {
                caller.done_at_once();
                return Ok(sent);
            }
            while sent < bytes.len() {
                match self.send_once(caller, limit, &bytes[sent..]) {
                    Ok(count) => sent += count,
                    Err(error) if sent == 0 => return Err(error),
                    Err(_) => break,
                }
            }
            Ok(sent)
        })
    }

    fn send_once(
        self: &Rc<Self>,
        caller: &Caller<'_>,
        limit: Option<Instant>,
        bytes: &[u8],
    ) -> io::Result<usize> {
        // SAFETY: `operate` returns after the operation's final completion, in whatever way it ends, and `bytes`
        // are borrowed until then. A coroutine that never goes on is leaked with its stack.
        let payload = Payload::One(unsafe { Memory::borrowed(bytes) });
        let send = Operation::Send { socket: self.handle, payload };
        count(self.operate(caller, WRITING, send, limit)?)
    }

    /// Sends several stretches, in order, as if they were one; as many bytes as can be sent at once.
    pub(super) fn send_vectored(
        self: &Rc<Self>,
        timeout: Option<Duration>,
        stretches: &[io::IoSlice<'_>],
    ) -> io::Result<usize> {
        with_caller(|caller| {
            let limit = caller.limit(timeout);
            let _turn = self.take_turn(caller, &self.writing, limit)?;
            // SAFETY: as in `send_once`.
            let lend = |stretch: &io::IoSlice<'_>| unsafe { Memory::borrowed(stretch) };
            let payload = Payload::Many(stretches.iter().map(lend).collect());
            let send = Operation::Send { socket: self.handle, payload };
            count(self.operate(caller, WRITING, send, limit)?)
        })
    }

    /// Sends one message, to an address or to the peer, straight from `bytes`.
    pub(super) fn send_message(
        self: &Rc<Self>,
        timeout: Option<Duration>,
        bytes: &[u8],
        to: Option<Address>,
    ) -> io::Result<usize> {
        with_caller(|caller| {
            let limit = caller.limit(timeout);
            let _turn = self.take_turn(caller, &self.writing, limit)?;
            // SAFETY: as in `send_once`.
            let payload = Payload::One(unsafe { Memory::borrowed(bytes) });
            let socket = self.handle;
            let send = match to {
                None => Operation::Send { socket, payload },
                to => {
                    let descriptors = Vec::new();
                    let message = Outgoing { payload, to, descriptors };
                    Operation::SendMessage { socket, message: Box::new(message) }
                }
            };
            count(self.operate(caller, WRITING, send, limit)?)
        })
    }

    /// Waits until everything that was sent is with the kernel.
    pub(super) fn flush(self: &Rc<Self>) -> io::Result<()> {
        if !self.carried.get() {
            return Ok(());
        }
        with_caller(|caller| {
            let limit = caller.limit(None);
            let _turn = self.take_turn(caller, &self.writing, limit)?;
            // A send of nothing, which goes behind what is carried.
            let send = Operation::Send { socket: self.handle, payload: Payload::from(Vec::new()) };
            self.operate(caller, WRITING, send, limit)?;
            self.carried.set(false);
            Ok(())
        })
    }

    /// Has `operation` done, whose lane is the caller's. Never returns before its final completion.
    #[inline]
    fn operate(
        self: &Rc<Self>,
        caller: &Caller<'_>,
        tag: u32,
        operation: Operation,
        limit: Option<Instant>,
    ) -> io::Result<Outcome> {
        match caller.lp.submit(operation, self, tag) {
            Submitted::Done(Finished { result, .. }) => {
                caller.done_at_once();
                result
            }
            Submitted::Pending(token) => {
                let lane = if tag == READING { &self.reading } else { &self.writing };
                caller.wait_for(&lane.landing, token, limit)
            }
        }
    }
}

/// Has an operation done that carries no memory and has no lane: connect, shut down, close, poll.
///
/// # Errors
/// As for all waits, and what comes of the operation.
pub(super) fn operate(operation: Operation, timeout: Option<Duration>) -> io::Result<Outcome> {
    with_caller(|caller| {
        let scheduler = Scheduler::of(&caller.lp);
        let single =
            Rc::new(Single { landing: Landing::default(), scheduler: Rc::downgrade(&scheduler) });
        match caller.lp.submit(operation, &single, 0) {
            Submitted::Done(Finished { result, .. }) => {
                caller.done_at_once();
                result
            }
            Submitted::Pending(token) => {
                caller.wait_for(&single.landing, token, caller.limit(timeout))
            }
        }
    })
}

/// One operation by itself.
struct Single {
    landing: Landing,
    scheduler: Weak<Scheduler>,
}

impl Complete for Single {
    fn complete(self: Rc<Self>, lp: &Loop, _tag: u32, completion: Completion) {
        let waiting = self.landing.land(completion.result);
        go_on(lp, &self.scheduler, waiting);
    }
}

#[inline]
fn count(outcome: Outcome) -> io::Result<usize> {
    match outcome {
        Outcome::Count(count) => Ok(count),
        other => unreachable!("a transfer does not give {other:?}"),
    }
}

pub(super) fn is_cancelled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::CANCELED.raw_os_error())
}
