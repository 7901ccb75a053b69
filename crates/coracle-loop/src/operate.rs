//! Operations and whom to tell about them.
//!
//! The seam names an operation by a token; the loop keeps, at the token's index, who asked for it. That is
//! a shared object and a tag, so that a connection with a receive and a send in flight needs no closure and
//! no allocation for either.

use crate::{Loop, Timer, WeakLoop};
use coracle_demux::{
    Arrival, Awaited, Completion, Finished, Handle, Memory, Operation, Space, Submitted, Token,
};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// Somebody who can be told what came of an operation. A closure will do.
pub trait Complete {
    /// Called in a turn of the loop, never from inside `submit`. `tag` is what was given with the operation.
    ///
    /// When `completion.more` is false this was the last call for this operation.
    fn complete(self: Rc<Self>, lp: &Loop, tag: u32, completion: Completion);
}

impl<F: Fn(&Loop, u32, Completion)> Complete for F {
    fn complete(self: Rc<Self>, lp: &Loop, tag: u32, completion: Completion) {
        self(lp, tag, completion);
    }
}

/// Whom to tell, by the index of the token.
#[derive(Default)]
pub(crate) struct Targets {
    places: Vec<Option<Target>>,
}

struct Target {
    who: Rc<dyn Complete>,
    tag: u32,
}

impl Targets {
    #[inline]
    fn insert(&mut self, token: Token, target: Target) {
        let index = token.index();
        let place = match self.places.get_mut(index) {
            Some(place) => place,
            None => self.grow(index),
        };
        let old = place.replace(target);
        debug_assert!(old.is_none(), "an index is used by one operation at a time");
        std::mem::forget(old); // `None`: there is nothing to drop
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, index: usize) -> &mut Option<Target> {
        self.places.resize_with(index + 1, || None);
        &mut self.places[index]
    }
}

impl Loop {
    /// Starts an operation; `who` is told, with `tag`, what comes of it. Loop thread only.
    ///
    /// This is the seam itself, with nothing in between: an operation that finishes at once is the answer,
    /// and `who` never hears of it. [`operate`](Loop::operate) is the comfortable form.
    #[inline]
    pub fn submit<T: Complete + 'static>(
        &self,
        operation: Operation,
        who: &Rc<T>,
        tag: u32,
    ) -> Submitted {
        let submitted = self.inner.demux.borrow_mut().submit(operation);
        if let Submitted::Pending(token) = submitted {
            self.expect_completion(token, Rc::clone(who) as Rc<dyn Complete>, tag);
        }
        submitted
    }

    /// Starts a receive into a coroutine's space, by the shortest way: where there is nothing to do but to wait
    /// for bytes. What comes of it lands where it is awaited, and then that goes on, in a turn of the loop.
    /// False in all other cases, and then nothing was done. Loop thread only.
    #[inline]
    pub fn await_receive(&self, socket: Handle, space: Space, awaited: Awaited) -> bool {
        self.inner.demux.borrow_mut().await_receive(socket, space, awaited)
    }

    /// Has a coroutine's bytes sent together with what others send in this turn. How many there was room for lands
    /// where it is awaited, and then that goes on, in a turn of the loop. False if nothing is gained by it, and
    /// then nothing was done. Loop thread only.
    #[inline]
    pub fn await_send(&self, socket: Handle, bytes: Memory, awaited: Awaited) -> bool {
        self.inner.demux.borrow_mut().await_send(socket, bytes, awaited)
    }

    /// Asks for the end of the awaited receive of a socket, if there is one; its result still lands.
    pub fn cancel_receive(&self, socket: Handle) {
        self.inner.demux.borrow_mut().cancel_receive(socket);
    }

    /// Sends what can be sent at once, as send(2) on a non-blocking socket, and says how much that was; the rest
    /// is for [`Operation::Send`]. The cheapest way to send something small. Loop thread only.
    ///
    /// What was sent reaches the peer, unless the connection breaks or is closed while the peer does not read:
    /// an [`Operation::Shutdown`] completes when everything before it is out.
    ///
    /// # Errors
    /// As [`Operation::Send`]; a failure may be told to the next sender only.
    #[inline]
    pub fn try_send(&self, socket: Handle, bytes: &[u8]) -> io::Result<usize> {
        self.inner.demux.borrow_mut().try_send(socket, bytes)
    }

    /// The same for who submits an [`Operation::SendFile`] right after it, so that both leave together.
    ///
    /// # Errors
    /// As [`Operation::Send`].
    pub fn try_send_before_file(&self, socket: Handle, bytes: &[u8]) -> io::Result<usize> {
        self.inner.demux.borrow_mut().try_send_before_file(socket, bytes)
    }

    #[inline]
    fn expect_completion(&self, token: Token, who: Rc<dyn Complete>, tag: u32) {
        self.inner.targets.borrow_mut().insert(token, Target { who, tag });
    }

    /// Starts an operation that has one result; `done` is called with it, in a later turn or later in this
    /// one, never from inside this call. Loop thread only.
    ///
    /// ```
    /// use coracle_loop::Loop;
    /// use coracle_loop::demux::{Operation, Payload};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let lp = Loop::new()?;
    /// let (a, b) = lp.socket_pair()?;
    /// lp.operate(Operation::Send { socket: a, payload: Payload::from(b"ahoy".to_vec()) }, |_, _| ());
    /// lp.operate(Operation::Receive { socket: b, space: vec![0; 16].into() }, |lp, finished| {
    ///     let bytes = finished.payload.into_vec();
    ///     assert_eq!(&bytes[..4], b"ahoy");
    ///     lp.stop();
    /// });
    /// lp.run()
    /// # }
    /// ```
    ///
    /// # Panics
    /// On `Accept`, `ReceiveLent` and `Signal`, which have many results: those are
    /// [submitted](Loop::submit).
    pub fn operate(
        &self,
        operation: Operation,
        done: impl FnOnce(&Loop, Finished) + 'static,
    ) -> Ticket {
        self.start(operation, None, Box::new(done))
    }

    /// [`operate`](Loop::operate) with a limit of time. When it is over the operation is cancelled, and `done`
    /// hears of `ETIMEDOUT`; but what had been done by then is delivered, never thrown away.
    pub fn operate_within(
        &self,
        timeout: Duration,
        operation: Operation,
        done: impl FnOnce(&Loop, Finished) + 'static,
    ) -> Ticket {
        self.start(operation, Some(timeout), Box::new(done))
    }

    fn start(&self, operation: Operation, timeout: Option<Duration>, done: Done) -> Ticket {
        let multishot = matches!(
            operation,
            Operation::Accept { .. } | Operation::ReceiveLent { .. } | Operation::Signal { .. }
        );
        assert!(!multishot, "{} has many results: use Loop::submit", operation.name());
        let waiter = Rc::new(Waiter {
            done: RefCell::new(Some(done)),
            timer: RefCell::new(None),
            timed_out: Cell::new(false),
        });
        match self.submit(operation, &waiter, 0) {
            Submitted::Done(finished) => {
                self.defer(move |lp| waiter.finish(lp, finished));
                Ticket { lp: self.downgrade(), token: None }
            }
            Submitted::Pending(token) => {
                if let Some(timeout) = timeout {
                    let late = Rc::clone(&waiter);
                    let timer = self.after(timeout, move |lp| {
                        late.timed_out.set(true);
                        lp.cancel(token);
                    });
                    *waiter.timer.borrow_mut() = Some(timer);
                }
                Ticket { lp: self.downgrade(), token: Some(token) }
            }
        }
    }

    /// Asks for the end of an operation; its final completion still comes. Stale tokens are ignored.
    pub fn cancel(&self, token: Token) {
        self.inner.demux.borrow_mut().cancel(token);
    }

    /// Takes the next completion and tells whoever asked. False if there was none.
    #[inline]
    pub(crate) fn dispatch_next(&self) -> bool {
        let next = self.inner.demux.borrow_mut().next_arrival();
        let (who, tag) = match &next {
            None => return false,
            Some(Arrival::Completion(completion)) => self.whom(completion.token, completion.more),
            Some(Arrival::Landed(_)) => {
                if let Some(Arrival::Landed(awaited)) = next {
                    awaited.go_on();
                }
                return true;
            }
        };
        // Moved once, and not before it is known whom to.
        if let Some(Arrival::Completion(completion)) = next {
            who.complete(self, tag, completion);
        }
        true
    }

    /// Who is to be told about an operation, for the last time unless there is `more` to come.
    #[inline]
    fn whom(&self, token: Token, more: bool) -> (Rc<dyn Complete>, u32) {
        let mut targets = self.inner.targets.borrow_mut();
        let place = &mut targets.places[token.index()];
        if more {
            let target = place.as_ref().expect("an operation in flight has a target");
            (Rc::clone(&target.who), target.tag)
        } else {
            let target = place.take().expect("an operation in flight has a target");
            (target.who, target.tag)
        }
    }
}

type Done = Box<dyn FnOnce(&Loop, Finished)>;

/// One who waits for one result.
struct Waiter {
    done: RefCell<Option<Done>>,
    timer: RefCell<Option<Timer>>,
    timed_out: Cell<bool>,
}

impl Waiter {
    fn finish(&self, lp: &Loop, mut finished: Finished) {
        if let Some(timer) = self.timer.take() {
            timer.cancel();
        }
        if self.timed_out.get() && is_cancelled(&finished.result) {
            finished.result = Err(io::ErrorKind::TimedOut.into());
        }
        if let Some(done) = self.done.take() {
            done(lp, finished);
        }
    }
}

impl Complete for Waiter {
    fn complete(self: Rc<Self>, lp: &Loop, _tag: u32, completion: Completion) {
        let Completion { result, payload, .. } = completion;
        self.finish(lp, Finished { result, payload });
    }
}

fn is_cancelled<T>(result: &io::Result<T>) -> bool {
    const ECANCELED: i32 = 125;
    result.as_ref().is_err_and(|error| error.raw_os_error() == Some(ECANCELED))
}

/// An operation that was started. Dropping it changes nothing.
#[derive(Debug)]
pub struct Ticket {
    lp: WeakLoop,
    token: Option<Token>,
}

impl Ticket {
    /// Asks for its end; the callback still comes, with `ECANCELED` or with what was done.
    pub fn cancel(&self) {
        if let (Some(lp), Some(token)) = (self.lp.upgrade(), self.token) {
            lp.cancel(token);
        }
    }
}
