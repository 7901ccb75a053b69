//! Where one coroutine waits to be told that something is there, whatever that is.

use super::{Caller, refuse_cancelled};
use crate::current::{Frame, go_on};
use crate::failures;
use crate::net::socket::Socket;
use crate::sync::failure::late;
use crate::waiter::Woken;
use crate::waits_for::WaitsFor;
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
            // before this. It is a turn of its loop: completions of a socket ring, and one waits on its loop only.
            unsafe { go_on(coroutine) };
        }
    }
}

impl Caller<'_> {
    /// Parks until the bell is rung by a completion of the socket that the caller reads.
    ///
    /// # Errors
    /// It was cancelled, or `limit` has passed, and the bell was not rung. The socket is of another loop, or of
    /// the process that this one is a copy of: nobody would ring.
    #[inline]
    pub(in crate::net) fn wait_for(
        self,
        bell: &Bell,
        socket: &Socket,
        limit: Option<Instant>,
    ) -> io::Result<()> {
        if self.is_cancelled() {
            return Err(refuse_cancelled()); // it may have waited for its turn before
        }
        self.check_bell(socket)?;
        let ticket = self.frame.sleeper.begin_in_coroutine();
        match limit {
            None => self.wait_at(bell, socket, ticket),
            Some(limit) => self.wait_until(bell, socket, ticket, limit),
        }
        // If it is still there, it was not rung.
        if bell.waiting.take().is_none() { Ok(()) } else { self.tell_strike(ticket) }
    }

    /// The same for what is over in a moment, whatever strikes meanwhile: that is for the next wait.
    pub(in crate::net) fn wait_out(self, bell: &Bell, socket: &Socket) -> io::Result<()> {
        self.check_bell(socket)?;
        loop {
            self.wait_at(bell, socket, self.frame.sleeper.begin_in_coroutine());
            if bell.waiting.take().is_none() {
                return Ok(());
            }
        }
    }

    #[inline]
    fn check_bell(self, socket: &Socket) -> io::Result<()> {
        self.check_home(&socket.scheduler)?;
        if self.frame.scheduler().is_forked() { Err(Errno::OWNERDEAD.into()) } else { Ok(()) }
    }

    /// Until the bell is rung, or something strikes.
    #[inline(always)] // a switch lies in it
    fn wait_at(self, bell: &Bell, socket: &Socket, ticket: u64) {
        debug_assert!(bell.waiting.get().is_none(), "one waits at a time");
        bell.waiting.set(Some(NonNull::from(self.frame)));
        self.leave(WaitsFor::Read(socket.handle), ticket);
    }

    #[inline(never)]
    fn wait_until(self, bell: &Bell, socket: &Socket, ticket: u64, limit: Instant) {
        let sleeper = Arc::clone(&self.frame.sleeper);
        let timer = self.lp().at(limit, move |_| _ = sleeper.end_and_tell(ticket, Woken::TimedOut));
        self.wait_at(bell, socket, ticket);
        timer.cancel();
    }

    /// What has ended a wait that nobody has rung for; nothing if the caller is shielded from it.
    #[cold]
    fn tell_strike(self, ticket: u64) -> io::Result<()> {
        let Some(why) = self.why_struck(ticket) else { return Ok(()) };
        failures::note();
        Err(if why == Errno::TIMEDOUT { late() } else { why.into() })
    }
}
