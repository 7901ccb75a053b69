//! Sockets as arms of a select: they wait until something can be done, and do nothing themselves.
//!
//! So an arm that is not chosen has consumed nothing. Who is chosen reads or writes after that, and only waits if
//! somebody else was quicker.

use crate::net::socket::Socket;
use crate::sync::failure::Failure;
use crate::sync::select::{Arm, Party, Wait};
use crate::waiter::{Waiter, Waker};
use crate::waits_for::WaitsFor;
use coracle_loop::demux::{Completion, Finished, Interest, Operation, Submitted, Token};
use coracle_loop::{Complete, Loop};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;

/// An arm of [`select!`](crate::select!) that waits until a read would not wait: for bytes, for the end of the
/// stream, or for an error. See [`TcpStream::readable`](crate::net::TcpStream::readable).
#[must_use = "an arm does nothing by itself"]
#[derive(Debug)]
pub struct Readable<'a>(Ready<'a>);

/// An arm of [`select!`](crate::select!) that waits until a write would not wait. See
/// [`TcpStream::writable`](crate::net::TcpStream::writable).
#[must_use = "an arm does nothing by itself"]
#[derive(Debug)]
pub struct Writable<'a>(Ready<'a>);

impl<'a> Readable<'a> {
    pub(super) fn new(socket: &'a Socket) -> Readable<'a> {
        Readable(Ready::new(socket, Interest::READ))
    }
}

impl<'a> Writable<'a> {
    pub(super) fn new(socket: &'a Socket) -> Writable<'a> {
        Writable(Ready::new(socket, Interest::WRITE))
    }
}

/// What both have in common: a poll.
struct Ready<'a> {
    socket: &'a Socket,
    interest: Interest,
    poll: Option<Rc<Poll>>,
    /// What came of a poll that was over at once.
    known: Option<io::Result<()>>,
    result: Option<io::Result<()>>,
}

/// A poll in flight. It holds nothing of the caller's, so that nobody has to wait for its end.
struct Poll {
    token: Cell<Option<Token>>,
    waker: RefCell<Option<Waker>>,
    /// What came of it, if it was this that ended the wait.
    result: Cell<Option<io::Result<()>>>,
}

impl Complete for Poll {
    fn complete(self: Rc<Self>, _: &Loop, _tag: u32, completion: Completion) {
        self.token.set(None);
        let waker = self.waker.take();
        if waker.is_some_and(|waker| waker.wake()) {
            self.result.set(Some(completion.result.map(|_| ())));
        }
    }
}

impl<'a> Ready<'a> {
    fn new(socket: &'a Socket, interest: Interest) -> Ready<'a> {
        Ready { socket, interest, poll: None, known: None, result: None }
    }

    fn attempt(&mut self) -> bool {
        if self.result.is_none() {
            self.result = match self.socket.home() {
                Ok(_) => self.known.take(),
                Err(error) => Some(Err(error)),
            };
        }
        self.result.is_some()
    }

    fn join(&mut self, party: &Party) -> bool {
        let Ok(lp) = self.socket.home() else { return false };
        let poll = Rc::new(Poll {
            token: Cell::new(None),
            waker: RefCell::new(Some(party.waker.clone())),
            result: Cell::new(None),
        });
        let operation = Operation::Poll { handle: self.socket.handle, interest: self.interest };
        match lp.submit(operation, &poll, 0) {
            Submitted::Done(Finished { result, .. }) => {
                self.known = Some(result.map(|_| ()));
                false
            }
            Submitted::Pending(token) => {
                poll.token.set(Some(token));
                self.poll = Some(poll);
                true
            }
        }
    }

    fn leave(&mut self) {
        let Some(poll) = self.poll.take() else { return };
        poll.waker.take();
        match (poll.token.take(), Loop::current()) {
            (Some(token), Some(lp)) => lp.cancel(token),
            _ => self.result = poll.result.take(),
        }
    }

    fn output(&mut self) -> io::Result<()> {
        self.result.take().expect("this arm was not chosen")
    }
}

impl fmt::Debug for Ready<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.result.is_some() { "chosen" } else { "waiting" })
    }
}

/// Tries an arm that only the loop can answer for: gives it one whole turn. Only the coroutine waits.
pub(super) fn attempt_now(arm: &mut dyn Wait) -> bool {
    if arm.attempt() {
        return true;
    }
    let waiter = Waiter::new().waiting_for(arm.waits_for());
    let party = Party { waker: waiter.waker(), name: std::ptr::from_ref(&waiter).addr() };
    if let (true, Some(lp)) = (arm.join(&party), Loop::current()) {
        let waker = waiter.waker();
        // In the next turn, and there when the loop has looked at its descriptors and told what it has found.
        lp.defer(move |lp| lp.defer_to_last(move |_| _ = waker.wake()));
        waiter.wait(None);
    }
    arm.leave();
    arm.is_chosen() || arm.attempt()
}

macro_rules! arm {
    ($name:ident, $what:ident) => {
        impl Wait for $name<'_> {
            fn attempt(&mut self) -> bool {
                self.0.attempt()
            }

            fn attempt_now(&mut self) -> bool {
                attempt_now(self)
            }

            fn join(&mut self, party: &Party) -> bool {
                self.0.join(party)
            }

            fn leave(&mut self) {
                self.0.leave();
            }

            fn waits_for(&self) -> WaitsFor {
                WaitsFor::$what(self.0.socket.handle)
            }

            fn is_chosen(&self) -> bool {
                self.0.result.is_some()
            }

            fn end(&mut self, failure: Failure) {
                self.0.result = Some(Err(failure.into()));
            }
        }

        impl Arm for $name<'_> {
            /// An error is about the socket: it is closed, or the coroutine is cancelled.
            type Output = io::Result<()>;

            fn output(&mut self) -> io::Result<()> {
                self.0.output()
            }
        }
    };
}

arm!(Readable, Read);
arm!(Writable, Write);
