//! A listening socket: connections that have come, and those who wait for one.

use super::wire::{close, current};
use crate::cancelled::is_cancelled;
use crate::net::pause::Pause;
use coracle_loop::demux::{Completion, Handle, Operation, Outcome, Submitted, Token};
use coracle_loop::{Complete, Loop, LoopHandle, Timer};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// How many connections may be accepted and wait to be taken; more stay in the kernel's backlog.
const LIMIT_ACCEPTED: usize = 64;

/// How many connections the kernel is to keep that nobody has accepted.
pub(super) const BACKLOG: i32 = 1024;

/// Its owner's; the socket is closed with it.
pub(super) struct Listener(Rc<Door>);

struct Door {
    home: LoopHandle,
    socket: Handle,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    accepted: VecDeque<Handle>,
    accepting: Option<Token>,
    /// It was asked to end, because there is no more room.
    ending: bool,
    /// There is nothing to serve connections with: a timer will go on.
    timer: Option<Timer>,
    pause: Pause,
    error: Option<io::Error>,
    waiting: Vec<Waker>,
    gone: bool,
}

impl Listener {
    pub(super) fn new(lp: &Loop, socket: Handle) -> Listener {
        Listener(Rc::new(Door { home: lp.handle(), socket, state: RefCell::default() }))
    }

    pub(super) fn socket(&self) -> Handle {
        self.0.socket
    }

    pub(super) fn lp(&self) -> Loop {
        current(&self.0.home)
    }

    pub(super) fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<Handle>> {
        let lp = self.lp();
        let mut state = self.0.state.borrow_mut();
        if let Some(socket) = state.accepted.pop_front() {
            return Poll::Ready(Ok(socket));
        }
        if let Some(error) = state.error.take() {
            return Poll::Ready(Err(error));
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting.push(cx.waker().clone());
        }
        drop(state);
        self.0.accept(&lp)?;
        Poll::Pending
    }
}

impl Door {
    /// Accepts, unless that is under way.
    fn accept(self: &Rc<Self>, lp: &Loop) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        if state.accepting.is_some() || state.timer.is_some() {
            return Ok(());
        }
        if let Some(end) = state.pause.take_end() {
            let door = Rc::downgrade(self);
            state.timer = Some(lp.at(end, move |_| {
                if let Some(door) = door.upgrade() {
                    let mut state = door.state.borrow_mut();
                    state.timer = None;
                    let waiting = std::mem::take(&mut state.waiting);
                    drop(state);
                    waiting.into_iter().for_each(Waker::wake); // whoever polls begins anew
                }
            }));
            return Ok(());
        }
        drop(state);
        match lp.submit(Operation::Accept { listener: self.socket }, self, 0) {
            Submitted::Pending(token) => {
                self.state.borrow_mut().accepting = Some(token);
                Ok(())
            }
            Submitted::Done(finished) => {
                finished.result.map(|_| unreachable!("many results cannot be there at once"))
            }
        }
    }
}

impl Complete for Door {
    fn complete(self: Rc<Self>, lp: &Loop, _tag: u32, completion: Completion) {
        let mut state = self.state.borrow_mut();
        if !completion.more {
            state.accepting = None;
            state.ending = false;
        }
        match completion.result {
            Ok(Outcome::Accepted(socket)) if state.gone => close(lp, socket),
            Ok(Outcome::Accepted(socket)) => {
                state.pause.succeeded();
                state.accepted.push_back(socket);
            }
            Ok(other) => unreachable!("an accept does not give {other:?}"),
            Err(error) if is_cancelled(&error) => {}
            Err(error) => {
                state.pause.failed(lp);
                state.error = Some(error);
            }
        }
        if state.accepted.len() >= LIMIT_ACCEPTED
            && !state.ending
            && let Some(token) = state.accepting
        {
            state.ending = true;
            lp.cancel(token);
        }
        // Also if it has ended without a reason: whoever polls begins anew.
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.0.state.borrow_mut();
        state.gone = true;
        let mut sockets = std::mem::take(&mut state.accepted);
        let (waiting, timer) = (std::mem::take(&mut state.waiting), state.timer.take());
        drop(state);
        drop(waiting);
        timer.iter().for_each(|timer| _ = timer.cancel());
        sockets.push_back(self.0.socket);
        match Loop::current().filter(|lp| self.0.home.is_of(lp)) {
            Some(lp) => sockets.into_iter().for_each(|socket| close(&lp, socket)),
            // If the loop is gone, so are its sockets.
            None => {
                let _ = self.0.home.post(move |lp| {
                    sockets.into_iter().for_each(|socket| close(lp, socket));
                });
            }
        }
    }
}
