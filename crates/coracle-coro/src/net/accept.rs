//! New connections: one operation accepts them, and gives each to the first who waits for one.
//!
//! ```text
//!   accept (many results) ──► somebody waits: handed to the first in the line
//!        │        └────────► nobody waits: kept, up to a limit; then it is cancelled until somebody asks
//!        └─ EMFILE, … ─────► told to the first in the line; then a pause, twice as long each time
//! ```
//!
//! The pause is in here, and not in the program: one that only tries again would keep its loop busy with failing.

use crate::cancelled::is_cancelled;
use crate::net::arms::attempt_now;
use crate::net::operate::{no_loop, with_caller};
use crate::net::pause::Pause;
use crate::net::socket::{Socket, close};
use crate::sync::failure::Failure;
use crate::sync::line::{Line, Ticket};
use crate::sync::select::{Arm, Party, Wait};
use crate::waiter::Waiter;
use crate::waits_for::WaitsFor;
use coracle_loop::demux::{
    Address, Completion, Finished, Handle, Operation, Outcome, Submitted, Token,
};
use coracle_loop::{Complete, Loop};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::Rc;

/// So many connections are kept that nobody has asked for yet. Further ones wait in the kernel.
const LIMIT_KEPT: usize = 64;

/// A listening socket.
pub(super) struct Acceptor {
    pub(super) socket: Rc<Socket>,
    queue: Rc<Queue>,
}

/// What its operation is told to. It does not own the socket, whose last owner closes it.
struct Queue {
    listener: Handle,
    state: RefCell<State>,
}

struct State {
    accepting: Option<Token>,
    kept: VecDeque<Handle>,
    failed: Option<io::Error>,
    line: Line<Place>,
    pause: Pause,
    /// A timer will go on.
    pausing: bool,
    closed: bool,
}

/// Where one who waits finds what it waited for.
type Place = Rc<Cell<Option<io::Result<Handle>>>>;

impl Acceptor {
    pub(super) fn new(socket: Rc<Socket>) -> Acceptor {
        let state = State {
            accepting: None,
            kept: VecDeque::new(),
            failed: None,
            line: Line::new(),
            pause: Pause::default(),
            pausing: false,
            closed: false,
        };
        let queue = Rc::new(Queue { listener: socket.handle, state: RefCell::new(state) });
        Acceptor { socket, queue }
    }

    /// The next connection.
    pub(super) fn accept(&self) -> io::Result<Handle> {
        with_caller(|caller| {
            caller.check_home(&self.socket.scheduler)?;
            let known = self.queue.state.borrow_mut().take_known();
            if let Some(known) = known {
                caller.done_at_once(); // others may run: nothing is borrowed
                return known;
            }
            // It may let others run: then look again.
            let waiter = Waiter::new().waiting_for(WaitsFor::Accept(self.socket.handle));
            if let Some(known) = self.queue.state.borrow_mut().take_known() {
                return known;
            }
            let place = Place::default();
            let ticket = self.queue.join(caller.lp(), waiter.waker(), &place);
            let woken = waiter.wait(caller.limit(self.socket.read_timeout.get()));
            self.queue.state.borrow_mut().line.leave(ticket);
            place.take().unwrap_or_else(|| woken.result().and(Err(Errno::CANCELED.into())))
        })
    }

    /// As an arm of a select; `finish` makes something of the connection and the address of its peer.
    pub(super) fn accepting<T>(
        &self,
        finish: fn(&Loop, Handle, Address) -> io::Result<T>,
    ) -> Accepting<'_, T> {
        Accepting { acceptor: self, finish, waiting: None, result: None }
    }

    /// Whoever waits is told `EBADF`.
    pub(super) fn close(&self) -> io::Result<()> {
        self.socket.close()?;
        self.end();
        Ok(())
    }

    /// Stops accepting. What was accepted and is not asked for is closed.
    pub(super) fn end(&self) {
        let mut state = self.queue.state.borrow_mut();
        state.closed = true;
        while let Some((_, place)) = state.line.wake_first() {
            place.set(Some(Err(Errno::BADF.into())));
        }
        let (kept, accepting) = (std::mem::take(&mut state.kept), state.accepting);
        drop(state);
        if kept.is_empty() && accepting.is_none() {
            return;
        }
        let stop = move |lp: &Loop| {
            kept.iter().for_each(|&connection| close(lp, connection, false));
            accepting.into_iter().for_each(|token| lp.cancel(token));
        };
        let Some(scheduler) = self.socket.scheduler.upgrade() else { return };
        match Loop::current() {
            Some(lp) if scheduler.handle().is_of(&lp) => stop(&lp),
            _ => _ = scheduler.handle().post(stop),
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.end();
    }
}

impl State {
    fn has_known(&self) -> bool {
        let something = !self.kept.is_empty() || self.failed.is_some();
        self.closed || (something && !self.line.has(|_| true))
    }

    /// What need not be waited for. Those in the line come first.
    fn take_known(&mut self) -> Option<io::Result<Handle>> {
        if self.closed {
            return Some(Err(Errno::BADF.into()));
        }
        if self.line.has(|_| true) {
            return None;
        }
        self.kept.pop_front().map(Ok).or_else(|| self.failed.take().map(Err))
    }

    /// Hands over to the first who waits, or keeps it.
    fn hand_over(&mut self, what: io::Result<Handle>) {
        match (self.line.wake_first(), what) {
            (Some((_, place)), what) => place.set(Some(what)),
            (None, Ok(connection)) => self.kept.push_back(connection),
            (None, Err(error)) => self.failed = Some(error),
        }
    }
}

impl Queue {
    fn join(self: &Rc<Queue>, lp: &Loop, waker: crate::waiter::Waker, place: &Place) -> Ticket {
        let ticket = self.state.borrow_mut().line.join(waker, Rc::clone(place));
        self.start(lp);
        ticket
    }

    /// Begins to accept, or goes on; after a pause, if there is one.
    fn start(self: &Rc<Queue>, lp: &Loop) {
        let mut state = self.state.borrow_mut();
        if state.accepting.is_some() || state.pausing || state.closed {
            return;
        }
        if let Some(end) = state.pause.take_end() {
            state.pausing = true;
            let queue = Rc::downgrade(self);
            lp.at(end, move |lp| {
                if let Some(queue) = queue.upgrade() {
                    queue.state.borrow_mut().pausing = false;
                    queue.start(lp);
                }
            });
            return;
        }
        match lp.submit(Operation::Accept { listener: self.listener }, self, 0) {
            Submitted::Pending(token) => state.accepting = Some(token),
            Submitted::Done(Finished { result: Err(error), .. }) => state.hand_over(Err(error)),
            Submitted::Done(_) => unreachable!("an accept has many results"),
        }
    }
}

impl Complete for Queue {
    fn complete(self: Rc<Self>, lp: &Loop, _tag: u32, completion: Completion) {
        let mut state = self.state.borrow_mut();
        if !completion.more {
            state.accepting = None;
        }
        match completion.result {
            Ok(Outcome::Accepted(connection)) if state.closed => {
                drop(state);
                return close(lp, connection, false);
            }
            Ok(Outcome::Accepted(connection)) => {
                state.pause.succeeded();
                state.hand_over(Ok(connection));
                if let Some(token) = state.accepting.filter(|_| state.kept.len() >= LIMIT_KEPT) {
                    lp.cancel(token);
                }
            }
            Ok(other) => unreachable!("an accept does not give {other:?}"),
            Err(error) if is_cancelled(&error) => {}
            Err(error) => {
                state.pause.failed(lp);
                state.hand_over(Err(error));
            }
        }
        let go_on = !completion.more && state.line.has(|_| true);
        drop(state);
        if go_on {
            self.start(lp);
        }
    }
}

/// An arm of [`select!`](crate::select!) that accepts a connection. See
/// [`TcpListener::accepting`](crate::net::TcpListener::accepting).
#[must_use = "an arm does nothing by itself"]
pub struct Accepting<'a, T> {
    acceptor: &'a Acceptor,
    finish: fn(&Loop, Handle, Address) -> io::Result<T>,
    /// Its place in the line.
    waiting: Option<(Ticket, Place)>,
    result: Option<io::Result<(Handle, Address)>>,
}

/// What is worth choosing an arm for: not a connection that was reset before we had it. That is nobody's any more.
fn worth(accepted: io::Result<Handle>) -> Option<io::Result<(Handle, Address)>> {
    let known = accepted.and_then(|connection| {
        let lp = Loop::current().ok_or_else(no_loop)?;
        lp.peer_address(connection).map(|peer| (connection, peer)).inspect_err(|_| {
            close(&lp, connection, false);
        })
    });
    match known {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => None,
        known => Some(known),
    }
}

impl<T> Wait for Accepting<'_, T> {
    fn attempt(&mut self) -> bool {
        while self.result.is_none() {
            let known = match self.acceptor.socket.home() {
                Ok(_) => self.acceptor.queue.state.borrow_mut().take_known(),
                Err(error) => Some(Err(error)),
            };
            let Some(known) = known else { break };
            self.result = worth(known);
        }
        self.is_chosen()
    }

    fn attempt_now(&mut self) -> bool {
        attempt_now(self)
    }

    fn join(&mut self, party: &Party) -> bool {
        let Some(lp) = Loop::current() else { return false };
        let queue = &self.acceptor.queue;
        if queue.state.borrow().has_known() {
            return false;
        }
        let place = Place::default();
        self.waiting = Some((queue.join(&lp, party.waker.clone(), &place), place));
        true
    }

    fn leave(&mut self) {
        if let Some((ticket, place)) = self.waiting.take() {
            self.acceptor.queue.state.borrow_mut().line.leave(ticket);
            self.result = place.take().and_then(worth); // if it is not, the select tries again
        }
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Accept(self.acceptor.socket.handle)
    }

    fn is_chosen(&self) -> bool {
        self.result.is_some()
    }

    fn end(&mut self, failure: Failure) {
        self.result = Some(Err(failure.into()));
    }
}

impl<T> Arm for Accepting<'_, T> {
    /// What `accept` returns.
    type Output = io::Result<T>;

    fn output(&mut self) -> io::Result<T> {
        let (connection, peer) = self.result.take().expect("this arm was not chosen")?;
        let lp = Loop::current().ok_or_else(no_loop)?;
        (self.finish)(&lp, connection, peer)
    }
}

/// A connection that was accepted and not asked for goes to the next.
impl<T> Drop for Accepting<'_, T> {
    fn drop(&mut self) {
        if let Some(Ok((connection, _))) = self.result.take() {
            self.acceptor.queue.state.borrow_mut().hand_over(Ok(connection));
        }
    }
}

impl<T> fmt::Debug for Accepting<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_chosen() { "Accepting(chosen)" } else { "Accepting" })
    }
}
