//! What the hooks (`coracle-hook`) need of coroutines: whether somebody may be parked here, and a wait.
//!
//! Not for others: everything here is also to be had with a name and an example, but for the hooks, which are
//! called from anywhere, often, and by code that must not be unwound.

pub use crate::net::operate::guests::{
    Answer, Number, forget, forget_older, has_guests, is_on_uring,
};
pub use crate::unasked::{Ask, Unasked, expect_timeouts_of};

use crate::budget;
use crate::current::{self, Frame};
use crate::deadline;
use crate::failures;
use crate::shield::Shield;
use crate::waiter::{Waiter, Waker, Woken};
use crate::waits_for::WaitsFor;
use std::thread;
use std::time::Instant;

/// Whether a coroutine calls that may be parked here and now, and whose hooks are on. Never panics.
#[inline]
pub fn may_park() -> bool {
    current::with(|frame| frame.is_some_and(may_park_in))
}

#[inline]
fn may_park_in(frame: &Frame) -> bool {
    frame.unhooked.get() == 0
        && frame.no_park.get() == 0
        && !thread::panicking()
        && frame.scheduler().is_turning()
        && !frame.scheduler().is_forked()
}

/// Whether the coroutine that calls is on its own stack, and not on that of a signal handler, or one that it has
/// borrowed.
#[inline]
pub fn is_on_own_stack() -> bool {
    current::with(|frame| frame.is_some_and(Frame::is_on_own_stack))
}

/// Whether a coroutine calls, whatever its hooks.
pub fn is_coroutine() -> bool {
    current::with(|frame| frame.is_some())
}

/// Runs `f`, in which the hooks of this coroutine are off: also after a panic. Nothing in a plain thread.
#[inline]
pub fn unhooked<R>(f: impl FnOnce() -> R) -> R {
    let _before = Before(set_unhooked(|before| before + 1));
    f()
}

/// Runs `f`, in which the hooks of this coroutine are on, even inside [`unhooked`]. Nothing in a plain thread.
pub fn hooked<R>(f: impl FnOnce() -> R) -> R {
    let _before = Before(set_unhooked(|_| 0));
    f()
}

struct Before(u32);

impl Drop for Before {
    fn drop(&mut self) {
        set_unhooked(|_| self.0);
    }
}

fn set_unhooked(change: impl FnOnce(u32) -> u32) -> u32 {
    current::with(|frame| {
        frame.map_or(0, |frame| frame.unhooked.replace(change(frame.unhooked.get())))
    })
}

/// Whether others have something to do in this turn of the loop, so that what is asked of the kernel goes together
/// with what they ask of it.
#[inline]
pub fn is_shared_turn() -> bool {
    current::with(|frame| {
        frame.is_some_and(|frame| {
            frame.lp().has_more_completions() || !frame.scheduler().has_nobody_ready()
        })
    })
}

/// Whether every wait of this coroutine fails, because it is cancelled.
#[inline]
pub fn is_cancelled() -> bool {
    current::with(|frame| {
        frame.is_some_and(|frame| frame.sleeper.is_cancelled() && !frame.is_shielded())
    })
}

/// A call was done without a wait. Now and then, that is the moment to let others have their turn.
#[inline]
pub fn done_at_once() {
    budget::share();
}

/// Runs `f`, whose waits fail for nothing.
pub fn shielded<R>(f: impl FnOnce() -> R) -> R {
    let _shield = Shield::new(None);
    f()
}

/// How a [`Wait`] has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By its [`Wake`].
    Woken,
    /// Its own deadline has passed.
    TimedOut,
    /// A deadline [around](crate::deadline()) it has passed.
    Late,
    /// The coroutine is cancelled.
    Cancelled,
}

/// One wait of a coroutine. Made anew for each, and one at a time.
pub struct Wait(Waiter);

impl Wait {
    /// Whoever calls, which [may be parked](may_park). Others may run before it returns.
    pub fn new(what: WaitsFor) -> Wait {
        Wait(Waiter::new().waiting_for(what))
    }

    /// What ends it.
    pub fn waker(&self) -> Wake {
        Wake(self.0.waker())
    }

    /// Until woken, or the deadline, or whatever else ends the waits of a coroutine.
    pub fn wait(self, own: Option<Instant>) -> Ended {
        self.wait_until(own, || own)
    }

    /// The same for a call whose deadline may not be known before it has waited for a while.
    pub fn wait_unasked(self, call: &Unasked) -> Ended {
        self.wait_until(call.deadline(), || call.deadline())
    }

    #[inline]
    fn wait_until(self, own: Option<Instant>, found: impl Fn() -> Option<Instant>) -> Ended {
        let outer = deadline::limit();
        let is_own = || found().is_some_and(|own| outer.is_none_or(|outer| own <= outer));
        match self.0.wait(own) {
            Woken::Woken => Ended::Woken,
            Woken::Cancelled => Ended::Cancelled,
            Woken::TimedOut if is_own() => {
                failures::forgive();
                Ended::TimedOut
            }
            Woken::TimedOut => Ended::Late,
        }
    }
}

/// Ends one [`Wait`]. Any thread, any number of times.
#[derive(Clone)]
pub struct Wake(Waker);

impl Wake {
    /// True if it was this that ended the wait.
    pub fn wake(&self) -> bool {
        self.0.wake()
    }
}
