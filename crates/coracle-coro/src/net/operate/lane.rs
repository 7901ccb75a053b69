//! One direction of a descriptor: one at a time uses it, the others wait in a line.

use super::Landing;
use crate::sync::line::Line;
use crate::waiter::Waiter;
use crate::waits_for::WaitsFor;
use coracle_loop::Loop;
use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::time::Instant;

/// One direction of a descriptor.
#[derive(Default)]
pub(in crate::net) struct Lane {
    turn: Cell<TurnState>,
    /// Made when it is needed, which it seldom is: the sockets of a thousand coroutines compete for the cache.
    waits: OnceCell<Box<Waits>>,
}

/// Those who wait on a lane for more than a receive that lands in their frame.
pub(super) struct Waits {
    /// For their turn.
    line: RefCell<Line<()>>,
    /// For the operation in flight.
    pub(super) landing: Landing,
}

/// Whose turn it is on a lane.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum TurnState {
    /// Nobody's.
    #[default]
    Free,
    /// Somebody's, and nobody waits for it.
    Taken,
    /// Somebody's, and the line may have others.
    Awaited,
}

impl Lane {
    pub(super) fn waits(&self, what: WaitsFor) -> &Waits {
        self.waits.get_or_init(|| {
            Box::new(Waits { line: RefCell::new(Line::new()), landing: Landing::new(what) })
        })
    }

    /// Whether it is nobody's turn on this lane.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.turn.get() == TurnState::Free
    }

    /// The caller's turn on this lane, which is free.
    #[inline]
    pub(super) fn take(&self) -> Turn<'_> {
        self.turn.set(TurnState::Taken);
        Turn(self)
    }

    /// The caller's turn on this lane; first come, first served.
    pub(super) fn take_turn(&self, what: WaitsFor, limit: Option<Instant>) -> io::Result<Turn<'_>> {
        if self.is_free() {
            return Ok(self.take());
        }
        self.wait_for_turn(what, limit)?;
        Ok(Turn(self))
    }

    #[cold]
    fn wait_for_turn(&self, what: WaitsFor, limit: Option<Instant>) -> io::Result<()> {
        // It may let others run: before the lane is looked at.
        let waiter = Waiter::new().waiting_for(what);
        if self.is_free() {
            self.turn.set(TurnState::Taken);
            return Ok(());
        }
        self.turn.set(TurnState::Awaited);
        let line = &self.waits(what).line;
        let place = line.borrow_mut().join(waiter.waker(), ());
        let woken = waiter.wait(limit);
        // If it was woken, the lane was handed over; else nobody has done so, and nobody will.
        line.borrow_mut().leave(place);
        woken.result()
    }

    /// Gives up a turn that was [kept](Turn::keep).
    pub(in crate::net) fn give_up(&self) {
        drop(Turn(self));
    }

    #[cold]
    fn hand_over(&self) {
        let next = self.waits.get().and_then(|waits| waits.line.borrow_mut().wake_first());
        if next.is_none() {
            self.turn.set(TurnState::Free);
        }
    }

    /// Asks for the end of the operation in flight.
    pub(in crate::net) fn cancel(&self, lp: &Loop) {
        if let Some(token) = self.waits.get().and_then(|waits| waits.landing.token.get()) {
            lp.cancel(token);
        }
    }
}

/// The right to have an operation in flight on a lane.
pub(super) struct Turn<'a>(&'a Lane);

impl Turn<'_> {
    /// It is the caller's for longer than this lives: until it [gives it up](Lane::give_up).
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.0.turn.get() {
            TurnState::Awaited => self.0.hand_over(),
            _ => self.0.turn.set(TurnState::Free),
        }
    }
}
