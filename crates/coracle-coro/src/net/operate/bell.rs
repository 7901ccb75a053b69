//! Where one coroutine waits to be told that something is there, whatever that is.

use super::{Caller, refuse_cancelled};
use crate::current::{Frame, go_on};
use crate::failures;
use crate::sync::failure::late;
use crate::waiter::Woken;
use crate::waits_for::WaitsFor;
use coracle_loop::Timer;
use rustix::io::Errno;
use std::cell::Cell;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

/// One waits, and who [rings](Bell::ring) has it go on. Nothing of anybody's is lent meanwhile, so a
/// cancel or a deadline ends the wait at once.
#[derive(Default)]
pub(in crate::net) struct Bell {
    /// The frame of who waits, which is on its stack. It takes it back before it does anything else.
    waiting: Cell<Option<NonNull<Frame>>>,
}

/// Who waited, and is to go on.
pub(in crate::net) struct Called(Option<NonNull<Frame>>);

impl Bell {
    /// Calls whoever waits. Only for what the loop itself calls: a completion.
    #[inline]
    pub(in crate::net) fn ring(&self) -> Called {
        Called(self.waiting.take())
    }
}

impl Called {
    /// Has it go on, before this returns; with nothing borrowed.
    #[inline]
    pub(in crate::net) fn go_on(self) {
        if let Some(coroutine) = self.0 {
            // SAFETY: it was at the bell only while that coroutine waits, on this thread, and it does not go on
            // before this. It is a turn of its loop: one waits on the loop of the socket whose completions ring.
            unsafe { go_on(coroutine) };
        }
    }
}

impl Caller<'_> {
    /// Parks until the bell is rung.
    ///
    /// # Errors
    /// It was cancelled, or `limit` has passed, and the bell was not rung. In a copy of the process nobody would
    /// ring it.
    #[inline]
    pub(in crate::net) fn wait_for(
        self,
        bell: &Bell,
        what: WaitsFor,
        limit: Option<Instant>,
    ) -> io::Result<()> {
        if self.is_cancelled() {
            return Err(refuse_cancelled()); // it may have waited for its turn before
        }
        if self.frame.scheduler().is_forked() {
            return Err(Errno::OWNERDEAD.into());
        }
        debug_assert!(bell.waiting.get().is_none(), "one waits at a time");
        bell.waiting.set(Some(NonNull::from(self.frame)));
        let ticket = self.frame.sleeper.begin_in_coroutine();
        match limit {
            None => self.leave(what, ticket),
            Some(limit) => self.leave_until(what, ticket, limit),
        }
        // If it is still there, it was not rung.
        if bell.waiting.take().is_none() { Ok(()) } else { self.tell_strike(ticket) }
    }

    #[inline(never)]
    fn leave_until(self, what: WaitsFor, ticket: u64, limit: Instant) {
        let timer = self.time_out_at(limit, ticket);
        self.leave(what, ticket);
        timer.cancel();
    }

    fn time_out_at(self, limit: Instant, ticket: u64) -> Timer {
        let sleeper = Arc::clone(&self.frame.sleeper);
        self.lp().at(limit, move |_| _ = sleeper.end_and_tell(ticket, Woken::TimedOut))
    }

    /// What has ended a wait that nobody has rung for; nothing if the caller is shielded from it.
    #[cold]
    fn tell_strike(self, ticket: u64) -> io::Result<()> {
        let Some(why) = self.why_struck(ticket) else { return Ok(()) };
        failures::note();
        Err(if why == Errno::TIMEDOUT { late() } else { why.into() })
    }
}
