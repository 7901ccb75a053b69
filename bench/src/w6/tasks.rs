//! Coroutines with a scheduler: what is measured of them, and how it is told.

use std::time::Duration;

use crate::inside::{Candidate, Operation, Work};

/// The operations, in the order of [`Times`].
pub(super) const OPERATIONS: [Operation; 5] = [
    Operation {
        name: "yield_now",
        meaning: "All coroutines give up their turn again and again: out of one, and into the next.",
    },
    Operation {
        name: "spawn + run + join",
        meaning: "A coroutine spawns all of them, then joins all of them. They do nothing.",
    },
    Operation {
        name: "park + unpark",
        meaning: "In pairs: one unparks the other and parks (tokio: Notify).",
    },
    Operation {
        name: "channel",
        meaning: "In pairs: a message goes to the other, which waits for it, and another comes back. Per message.",
    },
    Operation {
        name: "mutex",
        meaning: "In pairs: one holds the lock while it yields, so that the other has to wait, and is handed the \
                  lock when it comes back. Per lock.",
    },
];

/// Nanoseconds per operation; not a number, where a candidate has no such thing.
pub(super) type Times = [f64; OPERATIONS.len()];

/// At least so many operations are timed.
pub(super) const OPERATIONS_TIMED: usize = 500_000;

/// The same for who needs microseconds for each.
pub(super) const SLOW_OPERATIONS_TIMED: usize = 20_000;

/// How often each of `number` does it.
pub(super) fn rounds(number: usize) -> usize {
    OPERATIONS_TIMED.div_ceil(number)
}

/// Nanoseconds for each of so many.
pub(super) fn per(time: Duration, operations: usize) -> f64 {
    time.as_nanos() as f64 / operations as f64
}

/// What is compared.
pub(super) fn work(
    candidates: &'static [Candidate<{ OPERATIONS.len() }>],
) -> Work<'static, { OPERATIONS.len() }> {
    Work {
        name: "w6-tasks",
        title: "W6: coroutines with a scheduler",
        introduction: "Nanoseconds per operation, minimum / median of the repetitions, by the number of \
                       coroutines. One thread with a scheduler on one core; of OS threads, as many threads on \
                       one core.",
        sizes_of: "coroutines",
        unit: "ns",
        decimals: 1,
        operations: &OPERATIONS,
        candidates,
    }
}
