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

mod bell;
pub(crate) mod guests;
mod lane;

pub(super) use self::bell::Bell;
pub(super) use self::lane::Lane;
use self::lane::Turn;

use crate::budget;
use crate::cancelled::is_cancelled;
use crate::current::{self, Frame, go_on};
use crate::failures;
use crate::must_not_unwind::MustNotUnwind;
use crate::net::socket::Socket;
use crate::scheduler::Scheduler;
use crate::sync::failure::late;
use crate::waiter::{REFUSAL, Waiter, Woken, earlier};
use crate::waits_for::WaitsFor;
use coracle_loop::demux::{
    Address, Completion, Finished, Landed, Memory, Message, Operation, Outcome, Outgoing, Payload,
    Space, Submitted, Token,
};
use coracle_loop::{Complete, Loop};
use rustix::io::Errno;
use std::cell::Cell;
use std::io;
use std::ptr::NonNull;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The coroutine that calls, which may wait. It was not cancelled when it began, or is shielded.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    frame: &'a Frame,
}

/// Calls `act` with the coroutine that calls.
///
/// # Errors
/// There is no loop at all, or the coroutine is cancelled.
///
/// # Panics
/// In a callback, and inside `no_park`.
#[inline]
pub(super) fn with_caller<R>(act: impl FnOnce(Caller<'_>) -> io::Result<R>) -> io::Result<R> {
    current::with(|frame| {
        let Some(frame) = frame else { return Err(refuse()) };
        frame.assert_may_park();
        let caller = Caller { frame };
        if caller.is_cancelled() || thread::panicking() {
            return Err(refuse_cancelled());
        }
        act(caller)
    })
}

/// The same for who finishes what is over in a moment, cancelled or not.
pub(super) fn with_finishing_caller<R>(
    act: impl FnOnce(Caller<'_>) -> io::Result<R>,
) -> io::Result<R> {
    current::with(|frame| {
        let Some(frame) = frame else { return Err(refuse()) };
        frame.assert_may_park();
        if thread::panicking() { Err(refuse_cancelled()) } else { act(Caller { frame }) }
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

impl<'a> Caller<'a> {
    /// Its loop.
    #[inline]
    pub(super) fn lp(self) -> &'a Loop {
        self.frame.lp()
    }

    /// Fails if `scheduler` is not that of the caller's loop.
    #[inline]
    pub(super) fn check_home(self, scheduler: &Weak<Scheduler>) -> io::Result<()> {
        if std::ptr::eq(scheduler.as_ptr(), self.frame.scheduler()) {
            Ok(())
        } else {
            Err(wrong_loop())
        }
    }

    /// The earliest of the deadlines around the caller, and of one that is `timeout` from now.
    #[inline]
    pub(super) fn limit(self, timeout: Option<Duration>) -> Option<Instant> {
        let around = self.frame.deadline.get(); // in a shield, that of the shield
        match timeout {
            None => around,
            Some(timeout) => earlier(around, Some(self.lp().deadline(timeout))),
        }
    }

    /// Whether there is no deadline around the caller.
    #[inline]
    fn has_time(self) -> bool {
        self.frame.deadline.get().is_none()
    }

    /// An operation was done at once. Now and then, that is the moment to let others have their turn.
    #[inline]
    pub(super) fn done_at_once(self) {
        budget::share_in(self.frame);
    }

    /// Takes in an operation that was over at once.
    #[inline]
    fn done(self, landing: &Landing, finished: Finished) -> io::Result<usize> {
        self.done_at_once();
        match finished.result {
            Ok(Outcome::Count(count)) => Ok(count),
            Err(error) => Err(error),
            done => {
                landing.other.set(Some(done));
                Ok(0)
            }
        }
    }

    /// Parks until what is awaited has landed. If the caller is cancelled meanwhile, the end of a receive is asked
    /// for; a send is over soon.
    ///
    /// Only if it has let nobody run since it was not cancelled. A cancel that comes from another thread at this
    /// moment strikes later, in a turn of the loop.
    #[inline]
    fn wait_for_landing(self, what: WaitsFor) -> io::Result<usize> {
        let ticket = self.frame.sleeper.begin_in_coroutine();
        let must_not_unwind = KernelHasOurMemory;
        self.leave(what, ticket);
        let result = match self.frame.landing.take_count() {
            Some(count) => Ok(count),
            None => self.wait_on_for_landing(what, ticket),
        };
        std::mem::forget(must_not_unwind);
        result
    }

    /// The same if something else than bytes has landed, or something has struck.
    #[cold]
    #[inline(never)]
    fn wait_on_for_landing(self, what: WaitsFor, mut ticket: u64) -> io::Result<usize> {
        let mut asked = None;
        loop {
            match self.frame.landing.take() {
                Landed::Count(count) => return Ok(count),
                Landed::Failed(code) => {
                    return Err(tell_failure(io::Error::from_raw_os_error(code), asked));
                }
                Landed::Nothing => {}
            }
            if asked.is_none() {
                asked = self.why_struck(ticket);
                if asked.is_some() {
                    self.cancel_awaited(what);
                }
            }
            ticket = self.frame.sleeper.begin_in_coroutine();
            // After the wait was begun, as in `wait_on`.
            if asked.is_none() && self.is_cancelled() {
                self.cancel_awaited(what);
                asked = Some(Errno::CANCELED);
            }
            self.leave(what, ticket);
        }
    }

    fn cancel_awaited(self, what: WaitsFor) {
        if let WaitsFor::Read(socket) = what {
            self.lp().cancel_receive(socket);
        }
    }

    /// Parks until the operation has come to its final completion. If the caller is cancelled meanwhile, or
    /// `limit` has passed, that is asked for.
    fn wait_within(
        self,
        landing: &Landing,
        token: Token,
        limit: Option<Instant>,
    ) -> io::Result<usize> {
        landing.token.set(Some(token));
        let must_not_unwind = KernelHasOurMemory;
        let result = self.wait_on(landing, token, limit);
        std::mem::forget(must_not_unwind);
        result
    }

    #[inline(never)]
    fn wait_on(self, landing: &Landing, token: Token, limit: Option<Instant>) -> io::Result<usize> {
        let mut asked = None;
        loop {
            let ticket = self.park_in(landing);
            let mut timer = None;
            if asked.is_none() {
                // After the wait was begun: whoever cancels says so first and then looks for a wait. One sees the
                // other.
                if self.is_cancelled() {
                    self.lp().cancel(token);
                    asked = Some(Errno::CANCELED);
                } else if let Some(limit) = limit {
                    let sleeper = Arc::clone(&self.frame.sleeper);
                    timer = Some(self.lp().at(limit, move |_| {
                        sleeper.end_and_tell(ticket, Woken::TimedOut);
                    }));
                }
            }
            self.leave(landing.what, ticket);
            if let Some(timer) = timer {
                timer.cancel();
            }
            match landing.take() {
                Came::Count(count) => return Ok(count),
                Came::Other => return landing.tell_other(asked),
                Came::Nothing => {}
            }
            if asked.is_none() {
                asked = self.why_struck(ticket);
                if asked.is_some() {
                    self.lp().cancel(token);
                }
            }
        }
    }

    /// Begins a wait for what lands there.
    #[inline]
    fn park_in(self, landing: &Landing) -> u64 {
        landing.waiting.set(Some(NonNull::from(self.frame)));
        self.frame.sleeper.begin_in_coroutine()
    }

    #[inline]
    fn is_cancelled(self) -> bool {
        self.frame.sleeper.is_cancelled() && !self.frame.is_shielded()
    }

    /// Leaves the coroutine, until its operation has landed or something has struck.
    #[inline]
    fn leave(self, what: WaitsFor, ticket: u64) {
        self.frame.wait(ticket, what);
    }

    /// A wait was ended, and not by its operation, whose end is to be asked for because of this; unless the caller
    /// is shielded.
    #[cold]
    fn why_struck(self, ticket: u64) -> Option<Errno> {
        match self.frame.sleeper.outcome(ticket) {
            Some(Woken::TimedOut) => Some(Errno::TIMEDOUT),
            _ if self.frame.is_shielded() => None,
            _ => Some(Errno::CANCELED),
        }
    }
}

/// For the length of a wait for the kernel. It takes no room on the stack of who waits.
struct KernelHasOurMemory;

impl Drop for KernelHasOurMemory {
    #[cold]
    fn drop(&mut self) {
        drop(MustNotUnwind("a panic in the middle of a wait for the kernel, which has our memory"));
    }
}

/// Where the result of an operation lands, and who waits for it.
pub(super) struct Landing {
    /// What it is, for who wants to know.
    what: WaitsFor,
    /// The coroutine's frame, which is on its stack, and so stays where it is until this has landed.
    waiting: Cell<Option<NonNull<Frame>>>,
    /// The operation in flight.
    token: Cell<Option<Token>>,
    came: Cell<Came>,
    /// What has landed, if it is not a number.
    other: Cell<Option<io::Result<Outcome>>>,
}

/// What has come of it.
#[derive(Default, Clone, Copy)]
enum Came {
    #[default]
    Nothing,
    /// So many bytes: nearly always, so that nothing is moved about for it.
    Count(usize),
    Other,
}

impl Landing {
    fn new(what: WaitsFor) -> Landing {
        Landing {
            what,
            waiting: Cell::new(None),
            token: Cell::new(None),
            came: Cell::default(),
            other: Cell::new(None),
        }
    }

    /// Takes in the result. Who waits for it is to be [resumed](go_on).
    #[inline]
    fn land(&self, completion: Completion) -> Option<NonNull<Frame>> {
        let Completion { result, payload, .. } = completion;
        if !matches!(payload, Payload::Many(_)) {
            std::mem::forget(payload); // nothing of it is its own: it was lent, or is empty
        }
        if let Ok(Outcome::Count(count)) = &result {
            self.came.set(Came::Count(*count));
            std::mem::forget(result); // a number, and not worth asking whether it has to be dropped
        } else {
            self.came.set(Came::Other);
            self.other.set(Some(result));
        }
        self.waiting.take()
    }

    #[inline]
    fn take(&self) -> Came {
        let came = self.came.replace(Came::Nothing);
        if !matches!(came, Came::Nothing) {
            self.token.set(None);
        }
        came
    }

    /// If what has landed is an error, what that means to whoever has `asked` for the end of the operation.
    #[cold]
    fn tell_other(&self, asked: Option<Errno>) -> io::Result<usize> {
        match self.other.take().expect("it has landed") {
            Err(error) => Err(tell_failure(error, asked)),
            done => {
                self.other.set(Some(done));
                Ok(0)
            }
        }
    }
}

/// What a failure means to whoever has `asked` for the end of the operation.
#[cold]
fn tell_failure(error: io::Error, asked: Option<Errno>) -> io::Error {
    if !is_cancelled(&error) {
        return error;
    }
    if asked.is_some() {
        failures::note();
    }
    // If nobody has asked for it: somebody has closed the descriptor.
    match asked {
        Some(Errno::TIMEDOUT) => late(),
        asked => asked.unwrap_or(Errno::BADF).into(),
    }
}

/// The tags of a socket's operations.
const READING: u32 = 0;
const WRITING: u32 = 1;

impl Complete for Socket {
    #[inline]
    fn complete(self: Rc<Self>, _lp: &Loop, tag: u32, completion: Completion) {
        let waiting = self.landing(tag).land(completion);
        drop(self);
        if let Some(coroutine) = waiting {
            // SAFETY: an operation is told to its socket in a turn of the loop it was submitted to, by a coroutine
            // of that loop; and this has just landed.
            unsafe { go_on(coroutine) };
        }
    }
}

impl Socket {
    /// The lane of operations with this tag, and what somebody waits for there.
    #[inline]
    fn lane(&self, tag: u32) -> (&Lane, WaitsFor) {
        match tag {
            READING => (&self.reading, WaitsFor::Read(self.handle)),
            _ => (&self.writing, WaitsFor::Write(self.handle)),
        }
    }

    #[inline]
    fn landing(&self, tag: u32) -> &Landing {
        let (lane, what) = self.lane(tag);
        &lane.waits(what).landing
    }

    /// The caller's turn on one of its lanes, unless it is closed.
    #[inline]
    fn take_turn(
        &self,
        caller: Caller<'_>,
        tag: u32,
        limit: Option<Instant>,
    ) -> io::Result<Turn<'_>> {
        caller.check_home(&self.scheduler)?;
        let (lane, what) = self.lane(tag);
        let turn = lane.take_turn(what, limit)?;
        if self.is_gone() { Err(Errno::BADF.into()) } else { Ok(turn) }
    }

    /// Takes the turn to read, for longer than a call: until [`Lane::give_up`].
    pub(super) fn keep_reading(
        &self,
        caller: Caller<'_>,
        limit: Option<Instant>,
    ) -> io::Result<()> {
        self.take_turn(caller, READING, limit).map(Turn::keep)
    }

    /// What whoever has kept that turn has in flight: a close asks for its end.
    pub(super) fn note_reading(&self, token: Option<Token>) {
        self.landing(READING).token.set(token);
    }

    /// Whether nothing stands against an operation on one of its lanes: it is open, the caller is of its loop, and
    /// nobody else uses the lane.
    #[inline]
    fn is_free(&self, caller: Caller<'_>, lane: &Lane) -> bool {
        std::ptr::eq(self.home.get(), caller.frame.scheduler()) && lane.is_free()
    }

    /// Receives once, straight into `space`.
    #[inline]
    pub(super) fn receive(self: &Rc<Self>, space: &mut [u8]) -> io::Result<usize> {
        with_caller(|caller| {
            let lane = &self.reading;
            // SAFETY: this returns after the operation's final completion, in whatever way it ends, and `space`
            // is exclusively borrowed until then. A coroutine that never goes on is leaked with its stack.
            let lent = unsafe { Space::borrowed(space) };
            // The shortest way, which is the most frequent.
            if self.read_timeout.get().is_none()
                && caller.has_time()
                && self.is_free(caller, lane)
                && let Some(lent) = lent
                // SAFETY: as above.
                && let landing = unsafe { caller.frame.lend_landing() }
                && caller.lp().await_receive(self.handle, lent, landing)
            {
                let _turn = lane.take();
                return caller.wait_for_landing(WaitsFor::Read(self.handle));
            }
            self.receive_within(caller, space)
        })
    }

    /// The same in all other cases.
    #[inline(never)]
    fn receive_within(self: &Rc<Self>, caller: Caller<'_>, space: &mut [u8]) -> io::Result<usize> {
        let limit = caller.limit(self.read_timeout.get());
        let _turn = self.take_turn(caller, READING, limit)?;
        // SAFETY: as in `receive`.
        let space = unsafe { Memory::borrowed_mut(space) };
        let receive = Operation::Receive { socket: self.handle, space };
        self.operate(caller, READING, receive, limit)
    }

    /// Receives one message, straight into `space`; what else is known of it is in the answer.
    pub(super) fn receive_message(
        self: &Rc<Self>,
        timeout: Option<Duration>,
        space: &mut [u8],
    ) -> io::Result<Message> {
        with_caller(|caller| {
            let limit = caller.limit(timeout);
            let _turn = self.take_turn(caller, READING, limit)?;
            // SAFETY: as in `receive`.
            let space = unsafe { Memory::borrowed_mut(space) };
            let (socket, limit_descriptors) = (self.handle, 0);
            let receive = Operation::ReceiveMessage { socket, space, limit_descriptors };
            self.operate(caller, READING, receive, limit)?;
            match self.landing(READING).other.take() {
                Some(Ok(Outcome::Message(message))) => Ok(*message),
                other => unreachable!("a receive of a message does not give {other:?}"),
            }
        })
    }

    /// Sends all of `bytes`, straight from there. If it ends before, what was sent is told, and the error will be
    /// back; it is told at once if nothing was sent.
    #[inline]
    pub(super) fn send(self: &Rc<Self>, bytes: &[u8]) -> io::Result<usize> {
        with_caller(|caller| {
            // The shortest way, which is the most frequent.
            if self.is_free(caller, &self.writing) {
                let sent = self.send_now(caller, bytes)?;
                if sent == bytes.len() {
                    caller.done_at_once();
                    return Ok(sent);
                }
                return self.send_within(caller, bytes, Some(sent));
            }
            self.send_within(caller, bytes, None)
        })
    }

    /// As much as can be sent at once.
    #[inline]
    fn send_now(&self, caller: Caller<'_>, bytes: &[u8]) -> io::Result<usize> {
        self.carried.set(true);
        caller.lp().try_send(self.handle, bytes)
    }

    /// The same in all other cases, when so many bytes were `sent`, if it was tried.
    #[inline(never)]
    fn send_within(
        self: &Rc<Self>,
        caller: Caller<'_>,
        bytes: &[u8],
        sent: Option<usize>,
    ) -> io::Result<usize> {
        let limit = caller.limit(self.write_timeout.get());
        let _turn = self.take_turn(caller, WRITING, limit)?;
        let mut sent = match sent {
            Some(sent) => sent,
            None => self.send_now(caller, bytes)?,
        };
        while sent < bytes.len() {
            match self.send_once(caller, limit, &bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    /// Sends as much as there is room for, together with what others send in this turn; 0 if there is none, if
    /// that cannot be, or if nothing is gained by it.
    #[inline]
    fn send_together(&self, caller: Caller<'_>, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: this returns when it has landed, and `bytes` are borrowed until then. A coroutine that never
        // goes on is leaked with its stack.
        if !unsafe { self.begin_together(caller, bytes) } {
            return Ok(0);
        }
        let _turn = self.writing.take();
        caller.wait_for_landing(WaitsFor::Write(self.handle))
    }

    /// Has them sent, if that can be. By itself, so that it leaves nothing on the stack of who waits.
    ///
    /// # Safety
    /// The bytes stay until it has landed at the caller.
    #[inline(never)]
    unsafe fn begin_together(&self, caller: Caller<'_>, bytes: &[u8]) -> bool {
        if !self.is_free(caller, &self.writing) {
            return false;
        }
        // SAFETY: as promised.
        let (bytes, awaited) = unsafe { (Memory::borrowed(bytes), caller.frame.lend_landing()) };
        caller.lp().await_send(self.handle, bytes, awaited)
    }

    fn send_once(
        self: &Rc<Self>,
        caller: Caller<'_>,
        limit: Option<Instant>,
        bytes: &[u8],
    ) -> io::Result<usize> {
        // SAFETY: `operate` returns after the operation's final completion, in whatever way it ends, and `bytes`
        // are borrowed until then. A coroutine that never goes on is leaked with its stack.
        let payload = Payload::One(unsafe { Memory::borrowed(bytes) });
        let send = Operation::Send { socket: self.handle, payload };
        self.operate(caller, WRITING, send, limit)
    }

    /// Sends several stretches, in order, as if they were one; as many bytes as can be sent at once.
    pub(super) fn send_vectored(
        self: &Rc<Self>,
        timeout: Option<Duration>,
        stretches: &[io::IoSlice<'_>],
    ) -> io::Result<usize> {
        with_caller(|caller| {
            let limit = caller.limit(timeout);
            let _turn = self.take_turn(caller, WRITING, limit)?;
            // SAFETY: as in `send_once`.
            let lend = |stretch: &io::IoSlice<'_>| unsafe { Memory::borrowed(stretch) };
            let payload = Payload::Many(stretches.iter().map(lend).collect());
            let send = Operation::Send { socket: self.handle, payload };
            self.operate(caller, WRITING, send, limit)
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
            let _turn = self.take_turn(caller, WRITING, limit)?;
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
            self.operate(caller, WRITING, send, limit)
        })
    }

    /// Waits until everything that was sent is with the kernel.
    pub(super) fn flush(self: &Rc<Self>) -> io::Result<()> {
        if !self.carried.get() {
            return Ok(());
        }
        with_caller(|caller| {
            let limit = caller.limit(None);
            let _turn = self.take_turn(caller, WRITING, limit)?;
            if !caller.lp().is_carrying(self.handle) {
                self.carried.set(false);
                return Ok(());
            }
            // A send of nothing, which goes behind what is carried.
            let send = Operation::Send { socket: self.handle, payload: Payload::from(Vec::new()) };
            self.operate(caller, WRITING, send, limit)?;
            self.carried.set(false);
            Ok(())
        })
    }

    /// Has `operation` done, whose lane is the caller's. Never returns before its final completion. What came of
    /// it is in the landing, unless it is a number.
    #[inline]
    fn operate(
        self: &Rc<Self>,
        caller: Caller<'_>,
        tag: u32,
        operation: Operation,
        limit: Option<Instant>,
    ) -> io::Result<usize> {
        let landing = self.landing(tag);
        match caller.lp().submit(operation, self, tag) {
            Submitted::Done(finished) => caller.done(landing, finished),
            Submitted::Pending(token) => caller.wait_within(landing, token, limit),
        }
    }
}

/// Has an operation done that carries no memory and has no lane: connect, shut down, close, poll.
///
/// # Errors
/// As for all waits, and what comes of the operation.
pub(super) fn operate(
    operation: Operation,
    timeout: Option<Duration>,
    what: WaitsFor,
) -> io::Result<()> {
    with_caller(|caller| {
        let single = Rc::new(Single { landing: Landing::new(what) });
        let limit = caller.limit(timeout);
        match caller.lp().submit(operation, &single, 0) {
            Submitted::Done(finished) => caller.done(&single.landing, finished)?,
            Submitted::Pending(token) => caller.wait_within(&single.landing, token, limit)?,
        };
        Ok(())
    })
}

/// One operation by itself.
struct Single {
    landing: Landing,
}

impl Complete for Single {
    fn complete(self: Rc<Self>, _lp: &Loop, _tag: u32, completion: Completion) {
        if let Some(coroutine) = self.landing.land(completion) {
            // SAFETY: as above.
            unsafe { go_on(coroutine) };
        }
    }
}
