//! The stacks of a loop's coroutines: their limits, and their memory, which goes back after a peak.
//!
//! ```text
//!   living
//!    │        ┌──────┐ peak
//!    │        │      │
//!    │   ┌────┘      └────┐
//!    │───┘                └──────────────────────────────────────────  nobody ends any more: no further look
//!    └────────────────────┬─────────┬─────────┬──────────────────────► time
//!                         look      look      look: nothing to do, the last
//!                    keeps what the   keeps what the
//!                    peak needed      last second needed
//! ```

use crate::scheduler::Scheduler;
use coracle_loop::Loop;
use coracle_stack::{Pool, Settings, Stats};
use std::cell::Cell;
use std::io;
use std::time::Duration;

/// So many stacks of each size keep 16 KiB of memory, however long nobody needs them. A loop that never has more
/// coroutines than this at a time never looks, and they keep all they have.
const KEEP_WARM: usize = 64;

/// How long after the last look, or the peak, the loop looks what can go.
const PAUSE: Duration = Duration::from_secs(1);

/// So many stacks are trimmed at once, at about half a microsecond each; the loop has its other work in between.
const LIMIT_TRIMMED_AT_ONCE: usize = 256;

/// How long it waits in between.
const SHORT_PAUSE: Duration = Duration::from_millis(10);

/// Sets limits for the stacks of a loop, before it has any coroutine. Loop thread only.
///
/// # Errors
/// If it has had one. As [`Pool::with_settings`].
///
/// ```
/// use coracle_coro::{set_stacks, spawn};
/// use coracle_loop::Loop;
/// use coracle_stack::Settings;
///
/// let lp = Loop::new()?;
/// set_stacks(&lp, Settings { limit_stacks: 2, ..Settings::default() })?;
/// coracle_coro::run_on(&lp, || {
///     let second = spawn(coracle_coro::yield_now);
///     let third = spawn(|| ()); // finds no stack when it is to start
///     assert!(second.join().is_ok() && third.join().is_err());
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn set_stacks(lp: &Loop, settings: Settings) -> io::Result<()> {
    let pool = Pool::with_settings(settings)?;
    Scheduler::of(lp).set_pool(pool).map_err(|_| {
        let text = "a loop that has had coroutines has stacks: set their limits before";
        io::Error::new(io::ErrorKind::AlreadyExists, text)
    })
}

/// The stacks of this loop: how many are in use, and how many wait with their memory. Nothing outside a loop.
///
/// ```
/// coracle_coro::run(|| {
///     assert_eq!(coracle_coro::stack_stats().in_use, 1);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn stack_stats() -> Stats {
    let pool = Loop::current().and_then(|lp| Scheduler::of(&lp).pool().ok().cloned());
    pool.map(|pool| pool.stats()).unwrap_or_default()
}

/// When a loop gives memory of stacks back.
#[derive(Default)]
pub(crate) struct Trimming {
    /// The most coroutines since the last look.
    peak: Cell<usize>,
    /// One of them is over, so that its stack is free.
    freed: Cell<bool>,
    /// It will look.
    awake: Cell<bool>,
}

impl Trimming {
    /// A stack comes back, when there are so many coroutines. There were never more than at such a moment.
    #[inline]
    pub(crate) fn note_freed(&self, living: usize) {
        self.peak.set(self.peak.get().max(living));
        self.freed.set(true);
    }

    /// Nobody is ready: has the loop look later, if it may be worth it.
    #[inline]
    pub(crate) fn rest(&self, lp: &Loop) {
        if self.freed.get() && self.peak.get() > KEEP_WARM && !self.awake.replace(true) {
            look_after(lp, PAUSE);
        }
    }

    /// Trims some of them. Returns when to look again, if at all.
    fn look(&self, pool: &Pool, living: usize) -> Option<Duration> {
        let needed = self.peak.get().saturating_sub(living);
        let trimmed = pool.trim(needed.max(KEEP_WARM), LIMIT_TRIMMED_AT_ONCE);
        if trimmed == LIMIT_TRIMMED_AT_ONCE {
            return Some(SHORT_PAUSE); // it is the same look that goes on
        }
        self.peak.set(living);
        let freed = self.freed.replace(false);
        // If nobody is over, and none is kept because of a peak, there is nothing more to come.
        let next = (trimmed > 0 || freed || needed > KEEP_WARM).then_some(PAUSE);
        self.awake.set(next.is_some());
        next
    }
}

fn look_after(lp: &Loop, pause: Duration) {
    lp.after(pause, |lp| {
        let scheduler = Scheduler::of(lp);
        let Ok(pool) = scheduler.pool() else { return };
        scheduler.give_back_spare_stacks(); // to be trimmed like the others
        if let Some(pause) = scheduler.trimming().look(pool, scheduler.living()) {
            look_after(lp, pause);
        }
    });
}
