//! W7: timers. Add, cancel, re-arm, touch and expire, with 1,000 to 1,000,000 pending.
//!
//! Deadlines lie at random within the next minute. Pure data structures on one core: nothing waits for
//! the clock, `expire` is told what time it is.

mod btree;
#[cfg(feature = "coracle")]
mod coracle;
mod delay_queue;
mod heap;
mod measure;

use std::io;
use std::time::{Duration, Instant};

use clap::Args;

use crate::inside::{Candidate, Work};
use crate::options::Options;
use measure::{OPERATIONS, measure};

/// All deadlines lie within this time.
pub const HORIZON: Duration = Duration::from_secs(60);

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W7 {
    /// Numbers of pending timers.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000,1000000")]
    pending: Vec<usize>,
}

/// A set of timers.
trait Timers {
    /// Names a pending timer.
    type Id;
    /// Names an idle time-out: the same, unless there is a cheaper kind.
    type Idle;

    /// An empty set.
    fn new(now: Instant) -> Self;

    /// Adds a timer.
    fn add(&mut self, deadline: Instant, value: u64) -> Self::Id;

    /// Removes a pending timer; returns its value.
    fn cancel(&mut self, id: Self::Id) -> Option<u64>;

    /// Moves a pending timer to another deadline. The name may change.
    fn rearm(&mut self, id: &mut Self::Id, deadline: Instant);

    /// Adds an idle time-out, which is put off often and rarely expires.
    fn add_idle(&mut self, deadline: Instant) -> Self::Idle;

    /// Puts an idle time-out off.
    fn touch(&mut self, idle: &mut Self::Idle, deadline: Instant);

    /// Takes all timers that are due at `now`, in order of their deadlines; returns how many.
    fn expire(&mut self, now: Instant) -> usize;
}

const CANDIDATES: &[Candidate<{ OPERATIONS.len() }>] = &[
    #[cfg(feature = "coracle")]
    Candidate { name: "coracle wheel", measure: measure::<coracle::Wheel> },
    Candidate { name: "BinaryHeap (lazy)", measure: measure::<heap::Heap> },
    Candidate { name: "BTreeMap", measure: measure::<btree::BTree> },
    Candidate { name: "DelayQueue", measure: measure::<delay_queue::Delays> },
];

/// Measures all candidates and writes the report.
///
/// # Errors
/// When the core does not exist or the report cannot be written.
pub fn run(options: &Options, w7: &W7) -> io::Result<()> {
    let work = Work {
        name: "w7",
        title: "W7: timers",
        introduction: "Nanoseconds per operation, minimum / median of the repetitions, by the number of pending \
                       timers. Deadlines lie at random within a minute.",
        sizes_of: "pending timers",
        unit: "ns",
        decimals: 1,
        operations: &OPERATIONS,
        candidates: CANDIDATES,
    };
    work.run(options, &w7.pending)
}

/// What every set of timers has to get right; a benchmark of a wrong answer is worth nothing.
#[cfg(test)]
fn check<T: Timers>() {
    let start = Instant::now();
    let second = Duration::from_secs(1);
    let mut timers = T::new(start);
    let one = timers.add(start + second, 1);
    let mut two = timers.add(start + 2 * second, 2);
    let _three = timers.add(start + 3 * second, 3);
    assert_eq!(timers.cancel(one), Some(1));
    timers.rearm(&mut two, start + 10 * second);
    assert_eq!(timers.expire(start + 5 * second), 1);
    timers.rearm(&mut two, start + 6 * second);
    assert_eq!(timers.expire(start + 7 * second), 1);
    assert_eq!(timers.expire(start + 60 * second), 0);
}
