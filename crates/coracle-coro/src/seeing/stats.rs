//! Counting what the coroutines of a loop do, for next to nothing.
//!
//! A switch costs one addition. What all together have waited is not measured wait by wait: the loop's time stands
//! still while coroutines run, so it is how many wait when the loop goes to its own wait, times how long that is.

use crate::scheduler::Scheduler;
use coracle_loop::Loop;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// What the coroutines of a loop have done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// How many were spawned.
    pub created: u64,
    /// How many of them are over.
    pub finished: u64,
    /// How often one was given the processor.
    pub switches: u64,
    /// How many wait for their turn now.
    pub ready: usize,
    /// How many wait for something else now.
    pub waiting: usize,
    /// How many are [parked for good](crate::State::Leaked).
    pub leaked: usize,
    /// How long all together have waited for something else: two that wait for a second are two seconds.
    pub parked: Duration,
}

/// What the coroutines of this loop have done so far. All zero outside a loop.
///
/// ```
/// use coracle_coro::seeing::stats;
/// use coracle_coro::{sleep, spawn};
/// use std::time::Duration;
///
/// coracle_coro::run(|| {
///     spawn(|| sleep(Duration::from_millis(5)));
///     sleep(Duration::from_millis(5))?;
///     let stats = stats();
///     assert_eq!(stats.created, 2); // this one is the other
///     assert!(stats.switches >= 3 && stats.parked >= Duration::from_millis(9));
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn stats() -> Stats {
    match Loop::current() {
        Some(lp) => of(&lp, &Scheduler::of(&lp)),
        None => Stats::default(),
    }
}

/// Those of one loop.
pub(super) fn of(lp: &Loop, scheduler: &Scheduler) -> Stats {
    let counters = scheduler.counters();
    let living = scheduler.living() as u64;
    Stats {
        created: counters.created.get(),
        finished: counters.created.get() - living,
        switches: counters.switches.get(),
        ready: scheduler.ready(),
        waiting: scheduler.waiting().saturating_sub(scheduler.running()),
        leaked: scheduler.leaked(),
        parked: counters.parked(lp.now()),
    }
}

/// The counters of a scheduler.
pub(crate) struct Counters {
    created: Cell<u64>,
    switches: Cell<u64>,
    /// Nanoseconds that were waited, of all together, up to `since`.
    parked: Cell<u128>,
    /// The loop's time when coroutines last ran, and how many waited from then on.
    since: Cell<Instant>,
    waiting: Cell<usize>,
}

impl Counters {
    pub(crate) fn new(now: Instant) -> Counters {
        Counters {
            created: Cell::new(0),
            switches: Cell::new(0),
            parked: Cell::new(0),
            since: Cell::new(now),
            waiting: Cell::new(0),
        }
    }

    /// One more was spawned.
    #[inline]
    pub(crate) fn count_spawn(&self) {
        self.created.set(self.created.get() + 1);
    }

    /// One is about to be resumed.
    #[inline]
    pub(crate) fn count_switch(&self) {
        self.switches.set(self.switches.get() + 1);
    }

    /// The loop has come to its coroutines; perhaps again, in the same turn.
    #[inline]
    pub(crate) fn begin_turn(&self, now: Instant) {
        if now != self.since.get() {
            self.parked.set(self.parked_nanos(now));
            self.since.set(now);
        }
    }

    /// It leaves them; so many wait.
    pub(crate) fn end_turn(&self, waiting: usize) {
        self.waiting.set(waiting);
    }

    fn parked_nanos(&self, now: Instant) -> u128 {
        let elapsed = now.saturating_duration_since(self.since.get()).as_nanos();
        self.parked.get() + elapsed * self.waiting.get() as u128
    }

    fn parked(&self, now: Instant) -> Duration {
        let nanos = self.parked_nanos(now);
        let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        Duration::new(u64::try_from(seconds).unwrap_or(u64::MAX), rest as u32)
    }
}
