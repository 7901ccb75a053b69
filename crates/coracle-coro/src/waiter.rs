//! The one primitive that everything waits by, from coroutines and from plain threads.
//!
//! ```text
//!   let waiter = Waiter::new();          whoever calls: this coroutine, or this thread
//!   queue.push(waiter.waker());          somebody else will find it there
//!   waiter.wait(deadline)                until woken, or the deadline, or cancelled
//! ```
//!
//! It is made anew for every wait: a token that was used twice once lost a wake-up.

use crate::budget;
use crate::current::{self, Caller, Frame};
use crate::deadline;
use crate::failures;
use crate::leak::leak;
use crate::sleeper::Sleeper;
use crate::sync::failure::late;
use crate::waits_for::WaitsFor;
use coracle_loop::{Loop, Timer};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// So many waits of a cancelled coroutine fail at once. Before a later one it is made to wait a while, so that
/// code that ignores the error cannot keep its loop busy.
const FREE_CANCELLED_WAITS: u32 = 8;

/// After so many, it is parked for good, and the log says so.
const LIMIT_CANCELLED_WAITS: u32 = 32;

/// The longest that a cancelled coroutine is made to wait.
const BACK_OFF: Duration = Duration::from_secs(1);

/// How often one looks for a moment: first after each pause of the processor, which is some microseconds in all,
/// then after letting other threads run. Longer pauses would not be kinder to the other core: as long as nothing
/// has changed, what is looked at is in the cache of this one.
const LOOKS: u32 = 120;
const LOOKS_BETWEEN_OTHER_THREADS: u32 = 4;

/// What is said to who waits in a callback.
pub(crate) const REFUSAL: &str = "cannot wait in a callback of a loop, which would wait with it: \
     `spawn` a coroutine from here, and wait there; a future that the loop polls awaits instead";

/// How a wait has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::enum_variant_names)] // it is read as a sentence: woken, timed out, cancelled
pub(crate) enum Woken {
    /// By a [`Waker`].
    Woken = 1,
    /// By its deadline, or by one of those [around it](crate::deadline()).
    TimedOut = 2,
    /// Whoever waited is [cancelled](crate::JoinHandle::cancel).
    Cancelled = 3,
}

impl Woken {
    /// `TimedOut` or `ECANCELED`, if it was not by a [`Waker`].
    pub(crate) fn result(self) -> io::Result<()> {
        match self {
            Woken::Woken => Ok(()),
            Woken::TimedOut => Err(late()),
            Woken::Cancelled => Err(Errno::CANCELED.into()),
        }
    }
}

/// Somebody who waits: a coroutine, or a plain thread. Made anew for every wait, and one at a time.
pub(crate) struct Waiter {
    pub(crate) sleeper: Caller,
    pub(crate) ticket: u64,
    /// Only to be seen by others.
    waits_for: WaitsFor,
}

impl Waiter {
    /// Whoever calls.
    ///
    /// Others may run before it returns, if a cancelled coroutine has ignored that often enough: hold no lock.
    /// That is why it happens here, before anybody knows that it waits, and has it in a line.
    ///
    /// # Panics
    /// On a loop's thread outside a coroutine, and in `no_park`, where nobody may wait.
    #[inline]
    pub(crate) fn new() -> Waiter {
        back_off();
        Waiter::begin()
    }

    /// As [`new`](Waiter::new), under a lock: nobody runs meanwhile. Who is cancelled then has to
    /// [`back_off`] when the lock is free.
    ///
    /// # Panics
    /// As [`new`](Waiter::new).
    #[inline]
    pub(crate) fn begin() -> Waiter {
        assert_may_wait();
        let sleeper = Caller::new();
        let ticket = sleeper.begin();
        Waiter { sleeper, ticket, waits_for: WaitsFor::Something }
    }

    /// As [`new`](Waiter::new), for who is known to be the coroutine with this frame.
    ///
    /// # Panics
    /// As [`new`](Waiter::new).
    #[inline]
    pub(crate) fn of(frame: &Frame) -> Waiter {
        back_off_in(frame);
        frame.assert_may_park();
        let sleeper = Caller::of(frame);
        let ticket = sleeper.begin_in_coroutine();
        Waiter { sleeper, ticket, waits_for: WaitsFor::Something }
    }

    /// Says what for, to who [looks](crate::seeing).
    #[inline]
    pub(crate) fn waiting_for(mut self, what: WaitsFor) -> Waiter {
        self.waits_for = what;
        self
    }

    /// What ends the wait. Any thread, any number of times.
    pub(crate) fn waker(&self) -> Waker {
        Waker { sleeper: Arc::clone(&self.sleeper), ticket: self.ticket }
    }

    /// Whether it is woken in a moment, by another thread that is just about to do it. Not if there is anything
    /// better to do: for a coroutine, if another one is ready.
    pub(crate) fn is_woken_in_a_moment(&self) -> bool {
        in_a_moment(|| self.sleeper.outcome(self.ticket)).is_some()
    }

    /// Until woken, or `deadline`. A wake that came before is not lost. Always inlined, as all that a switch
    /// lies in.
    #[inline(always)]
    pub(crate) fn wait(self, deadline: Option<Instant>) -> Woken {
        current::with(|frame| match frame {
            Some(frame) => self.wait_in(frame, deadline),
            None => self.wait_in_thread(deadline),
        })
    }

    /// Whoever calls waits for an [`unpark`](crate::Coroutine::unpark).
    #[inline(always)]
    pub(crate) fn park(deadline: Option<Instant>) -> Woken {
        current::with(|frame| match frame {
            Some(frame) => {
                frame.assert_may_park();
                back_off_in(frame);
                if let Err(failure) = budget::begin_in(frame) {
                    return failure.into();
                }
                Caller::of(frame).park(|waiter| waiter.wait_in(frame, deadline))
            }
            None => park_thread(deadline),
        })
    }

    /// As [`wait`](Waiter::wait), by the coroutine with this frame.
    #[inline(always)]
    pub(crate) fn wait_in(&self, frame: &Frame, deadline: Option<Instant>) -> Woken {
        let woken = self.wait_in_coroutine(frame, earlier(deadline, frame.deadline.get()));
        if woken != Woken::Woken {
            failures::note();
        }
        woken
    }

    #[inline(always)]
    fn wait_in_coroutine(&self, frame: &Frame, limit: Option<Instant>) -> Woken {
        let Waiter { sleeper, ticket, waits_for } = self;
        // In a copy of the process, nobody would wake it.
        let cancelled =
            sleeper.is_cancelled() && !frame.is_shielded() || frame.scheduler().is_forked();
        // Others of this thread would run with its panic count raised, and one more panic ends the process.
        if (cancelled || thread::panicking()) && sleeper.end(*ticket, Woken::Cancelled) {
            let ignored = frame.cancelled_waits.get().saturating_add(u32::from(cancelled));
            frame.cancelled_waits.set(ignored);
            return Woken::Cancelled;
        }
        if let Some(woken) = sleeper.outcome(*ticket) {
            return woken;
        }
        match limit {
            None => frame.wait(*ticket, *waits_for),
            Some(limit) => self.wait_until(frame, limit),
        }
        sleeper.outcome(*ticket).expect("a coroutine goes on when its wait has ended")
    }

    #[inline(never)]
    fn wait_until(&self, frame: &Frame, limit: Instant) {
        let timer = self.set_timer(limit);
        frame.wait(self.ticket, self.waits_for);
        timer.cancel();
    }

    /// A function of its own, so that no loop is kept alive by who waits.
    fn set_timer(&self, limit: Instant) -> Timer {
        let waker = self.waker();
        let lp = current_loop();
        if limit > lp.now() {
            lp.at(limit, move |lp| _ = waker.sleeper.time_out_now(lp, waker.ticket))
        } else {
            lp.at(limit, move |_| waker.time_out()) // others have a turn before
        }
    }

    #[cold]
    fn wait_in_thread(&self, deadline: Option<Instant>) -> Woken {
        let woken = self.wait_in_thread_until(earlier(deadline, deadline::limit()));
        if woken != Woken::Woken {
            failures::note();
        }
        woken
    }

    fn wait_in_thread_until(&self, limit: Option<Instant>) -> Woken {
        let Waiter { sleeper, ticket, .. } = self;
        if sleeper.is_cancelled() {
            sleeper.end(*ticket, Woken::Cancelled);
        }
        loop {
            if let Some(woken) = sleeper.outcome(*ticket) {
                return woken;
            }
            match limit.map(|limit| limit.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(left) if left.is_zero() => _ = sleeper.end(*ticket, Woken::TimedOut),
                Some(left) => thread::park_timeout(left),
            }
        }
    }
}

/// What `look` finds, if it does so in a moment, because of another thread. Not if there is anything better to
/// do: for a coroutine, if another one is ready.
#[inline]
pub(crate) fn in_a_moment<T>(look: impl FnMut() -> Option<T>) -> Option<T> {
    current::with(|frame| match frame {
        Some(frame) if frame.has_a_moment() => {
            let found = look_for_a_moment(look)?;
            budget::share_a_look(frame);
            Some(found)
        }
        None if Loop::current().is_none() => look_for_a_moment(look),
        _ => None,
    })
}

#[inline]
fn look_for_a_moment<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    for nth in 0..LOOKS + LOOKS_BETWEEN_OTHER_THREADS {
        let found = look();
        if found.is_some() {
            return found;
        }
        if nth < LOOKS {
            std::hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
    None
}

#[cold]
fn park_thread(deadline: Option<Instant>) -> Woken {
    refuse_callbacks();
    Caller::new().park(|waiter| waiter.wait_in_thread(deadline))
}

impl Caller {
    /// It waits for an [`unpark`](crate::Coroutine::unpark), in this way.
    #[inline(always)]
    fn park(self, wait: impl FnOnce(&Waiter) -> Woken) -> Woken {
        if self.take_permit() {
            return Woken::Woken;
        }
        let ticket = self.begin();
        let waiter = Waiter { sleeper: self, ticket, waits_for: WaitsFor::Unpark };
        // Else it was unparked at this moment.
        let woken = if waiter.sleeper.begin_park(ticket) { wait(&waiter) } else { Woken::Woken };
        waiter.sleeper.end_park(ticket);
        if woken == Woken::Woken {
            let taken = waiter.sleeper.take_permit();
            debug_assert!(taken, "only an `unpark` wakes from a `park`");
        }
        woken
    }
}

/// Ends one wait of somebody.
#[derive(Clone)]
pub(crate) struct Waker {
    pub(crate) sleeper: Arc<Sleeper>,
    pub(crate) ticket: u64,
}

impl Waker {
    /// Wakes whoever waits, now or in a moment. True if it was this that ended the wait; false if it had
    /// ended before, by whatever. Any thread; no lock and no system call if both are of one loop.
    pub(crate) fn wake(&self) -> bool {
        self.sleeper.end_and_tell(self.ticket, Woken::Woken)
    }

    /// As [`wake`](Waker::wake), if all who can end the wait are of the thread of who waits, as is who calls.
    #[inline]
    pub(crate) fn wake_here(&self) {
        if self.sleeper.end_here(self.ticket, Woken::Woken) {
            self.sleeper.tell(self.ticket);
        }
    }

    /// As [`wake`](Waker::wake), but whoever waits is told later, by [`tell`](Waker::tell): for who holds a lock.
    #[inline]
    pub(crate) fn claim(&self) -> bool {
        self.sleeper.end(self.ticket, Woken::Woken)
    }

    /// After [`claim`](Waker::claim).
    #[inline]
    pub(crate) fn tell(&self) {
        self.sleeper.tell(self.ticket);
    }

    /// Whether it never comes to leave the line that this is in.
    pub(crate) fn is_lost(&self) -> bool {
        self.sleeper.is_lost()
    }

    fn time_out(&self) {
        self.sleeper.end_and_tell(self.ticket, Woken::TimedOut);
    }
}

/// Makes a cancelled coroutine wait a while that was often told so, before it waits once more.
#[inline]
pub(crate) fn back_off() {
    current::with(|frame| frame.into_iter().for_each(back_off_in));
}

#[inline]
fn back_off_in(frame: &Frame) {
    if frame.cancelled_waits.get() >= FREE_CANCELLED_WAITS {
        pause(frame);
    }
}

#[cold]
fn pause(frame: &Frame) {
    let count = frame.cancelled_waits.get();
    if frame.is_shielded() || thread::panicking() {
        return;
    }
    frame.assert_may_park();
    if frame.scheduler().is_forked() {
        return; // nobody would wake it, and there is nobody whom it holds up
    }
    if count >= LIMIT_CANCELLED_WAITS {
        leak(frame, "it was cancelled, and went on waiting");
    }
    let doublings = (count + 1 - FREE_CANCELLED_WAITS).min(10);
    let pause = Duration::from_millis(1 << doublings).min(BACK_OFF);
    let ticket = frame.sleeper.begin();
    let waker = Waker { sleeper: Arc::clone(&frame.sleeper), ticket };
    let timer = current_loop().after(pause, move |_| waker.time_out());
    frame.wait(ticket, WaitsFor::BackOff);
    timer.cancel();
}

/// Panics where nobody may wait: outside a coroutine on a loop's thread, and in `no_park`.
#[inline]
fn assert_may_wait() {
    current::with(|frame| match frame {
        Some(frame) => frame.assert_may_park(),
        None => refuse_callbacks(),
    });
}

/// Panics on a loop's thread outside a coroutine: whoever waited there would hold up the loop, and with it
/// most likely what is waited for.
#[inline]
pub(crate) fn refuse_callbacks() {
    if current::with(|frame| frame.is_none()) {
        refuse_turns();
    }
}

#[cold]
fn refuse_turns() {
    assert!(Loop::current().is_none(), "{REFUSAL}");
}

/// The loop that a coroutine runs on.
pub(crate) fn current_loop() -> Loop {
    Loop::current().expect("a coroutine runs in a turn of its loop")
}

#[inline]
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests;
