//! A number of permits, and those who wait for some: what mutexes, read-write locks and semaphores are made of.
//!
//! ```text
//!   state:  ┌─────────────────────┬─────────┐
//!           │ permits that are    │ somebody│     nobody waits:   acquire and release are one atomic step each
//!           │ there for the taking│ waits   │     somebody waits: only who holds the line's lock takes any
//!           └─────────────────────┴─────────┘
//! ```
//!
//! Permits that come back while somebody waits go to the first in the line, as soon as there are as many as it
//! needs. Nobody who comes later can take them on the way, and nobody overtakes one that needs many: so neither
//! a thread that locks and unlocks in a loop nor a crowd of readers keeps the others out.
//!
//! The bit is set and cleared under the line's lock, and is set exactly while the line is not empty. Who gives
//! permits back adds them first and looks at the bit in the same step; who wants to wait sets the bit only if
//! there are not enough of them, in one step as well. So one of the two always sees the other.

use crate::primitive::{AtomicUsize, Lock};
use crate::sync::failure::Failure;
use crate::sync::line::{Line, Ticket, Told};
use crate::waiter::{Waiter, Waker};
use crate::waits_for::WaitsFor;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The bit for "somebody waits".
const WAITING: usize = 1;

/// One permit.
const ONE: usize = 2;

/// More permits than anybody has.
pub(crate) const LIMIT_PERMITS: usize = usize::MAX >> 3;

pub(crate) struct Permits {
    state: AtomicUsize,
    /// How many each of those who wait needs.
    line: Lock<Line<usize>>,
}

impl Permits {
    pub(crate) const fn new(count: usize) -> Permits {
        assert!(count <= LIMIT_PERMITS, "more permits than can be counted");
        Permits { state: AtomicUsize::new(count * ONE), line: Lock::new(Line::new()) }
    }

    /// How many there are for the taking, at one moment.
    pub(crate) fn available(&self) -> usize {
        self.state.load(Ordering::Relaxed) / ONE
    }

    /// Takes `count` of them if they are there and nobody waits.
    #[inline]
    pub(crate) fn try_acquire(&self, count: usize) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & WAITING == 0 && state / ONE >= count {
            let fewer = state - count * ONE;
            match self.take(state, fewer) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Takes `count` of them, when it is its turn and they are there.
    #[inline]
    pub(crate) fn acquire(
        &self,
        count: usize,
        deadline: Option<Instant>,
        what: WaitsFor,
    ) -> Result<(), Failure> {
        if self.try_acquire(count) { Ok(()) } else { self.wait(count, deadline, what) }
    }

    /// Gives `count` back, or new ones.
    #[inline]
    pub(crate) fn release(&self, count: usize) {
        let before = self.state.fetch_add(count * ONE, Ordering::Release);
        if before & WAITING != 0 {
            self.serve_line();
        }
    }

    #[cold]
    fn wait(&self, count: usize, deadline: Option<Instant>, what: WaitsFor) -> Result<(), Failure> {
        // It may refuse, or take its time: before anything is locked.
        let waiter = Waiter::new().waiting_for(what);
        let Some(ticket) = self.join(count, waiter.waker()) else { return Ok(()) };
        // Who woke us has taken the permits for us.
        let Some(failure) = Failure::of(waiter.wait(deadline)) else { return Ok(()) };
        self.leave(ticket);
        Err(failure)
    }

    /// Takes `count` of them at once, or else a place in the line.
    pub(crate) fn join(&self, count: usize, waker: Waker) -> Option<Ticket> {
        let mut told = Told::default();
        let mut line = self.line.lock();
        if self.take_or_announce(count) {
            return None;
        }
        let ticket = line.join(waker, count);
        // All before us may be gone by now, and have not left yet.
        self.serve(&mut line, &mut told);
        drop(line);
        drop(told);
        Some(ticket)
    }

    /// Gives up a place. False if somebody was quicker and has taken the permits for it.
    pub(crate) fn leave(&self, ticket: Ticket) -> bool {
        let mut told = Told::default();
        let mut line = self.line.lock();
        let left = line.leave(ticket).is_some();
        // Somebody behind us may need fewer.
        self.serve(&mut line, &mut told);
        drop(line);
        drop(told);
        left
    }

    fn serve_line(&self) {
        let mut told = Told::default();
        self.serve(&mut self.line.lock(), &mut told);
        drop(told);
    }

    /// With the line locked: takes permits, or else says that somebody waits.
    fn take_or_announce(&self, count: usize) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let free = state & WAITING == 0 && state / ONE >= count;
            let next = if free { state - count * ONE } else { state | WAITING };
            match self.take(state, next) {
                Ok(_) => return free,
                Err(now) => state = now,
            }
        }
    }

    /// With the line locked: gives what is there to those whose turn it is.
    fn serve(&self, line: &mut Line<usize>, told: &mut Told) {
        loop {
            // More may be added meanwhile, but only we take, while somebody waits.
            let available = self.state.load(Ordering::Acquire) / ONE;
            let first = line.claim_first_if(|needed| *needed <= available);
            let Some((_, needed, claimed)) = first else { break };
            self.state.fetch_sub(needed * ONE, Ordering::AcqRel);
            told.add(claimed);
        }
        if line.is_empty() {
            self.state.fetch_and(!WAITING, Ordering::AcqRel);
        }
    }

    #[inline]
    fn take(&self, state: usize, next: usize) -> Result<usize, usize> {
        self.state.compare_exchange_weak(state, next, Ordering::Acquire, Ordering::Relaxed)
    }

    /// How many are in the line.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.line.lock().len()
    }
}
