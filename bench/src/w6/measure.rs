//! How coroutines are measured.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::Coroutines;
use crate::inside::Operation;

/// The operations, in the order of [`Times`].
pub(super) const OPERATIONS: [Operation; 2] = [
    Operation {
        name: "switch",
        meaning: "A number goes into a coroutine and another comes out: two switches. All coroutines in turn.",
    },
    Operation {
        name: "create + run + drop",
        meaning: "All coroutines are created, then run to their end, then dropped.",
    },
];

/// Nanoseconds per operation.
pub(super) type Times = [f64; OPERATIONS.len()];

/// At least so many operations are timed.
const OPERATIONS_TIMED: usize = 1_000_000;

/// Measures `C` with `number` coroutines.
pub(super) fn measure<C: Coroutines>(number: usize) -> Times {
    [switch::<C>(number), create_run_drop::<C>(number)]
}

fn switch<C: Coroutines>(number: usize) -> f64 {
    let mut coroutines = C::new();
    let mut all: Vec<C::Endless> = (0..number).map(|_| coroutines.endless()).collect();
    all.iter_mut().for_each(|coroutine| assert_eq!(C::resume(coroutine, 1), 1));
    let rounds = OPERATIONS_TIMED.div_ceil(number);
    let start = Instant::now();
    for _ in 0..rounds {
        for coroutine in &mut all {
            black_box(C::resume(coroutine, black_box(1)));
        }
    }
    let time = start.elapsed();
    let sum = rounds as u64 + 2;
    all.iter_mut().for_each(|coroutine| assert_eq!(C::resume(coroutine, 1), sum));
    per_operation(time, rounds * number)
}

fn create_run_drop<C: Coroutines>(number: usize) -> f64 {
    let mut coroutines = C::new();
    let mut all = Vec::with_capacity(number);
    // The first round makes the stacks.
    batch(&mut coroutines, &mut all, number);
    let rounds = OPERATIONS_TIMED.div_ceil(number);
    let start = Instant::now();
    for _ in 0..rounds {
        batch(&mut coroutines, &mut all, number);
    }
    per_operation(start.elapsed(), rounds * number)
}

#[inline]
fn batch<C: Coroutines>(coroutines: &mut C, all: &mut Vec<C::Short>, number: usize) {
    for _ in 0..number {
        all.push(coroutines.create());
    }
    for coroutine in all.iter_mut() {
        assert_eq!(C::run(coroutine, black_box(6)), 7);
    }
    for coroutine in all.drain(..) {
        coroutines.give_back(coroutine);
    }
}

fn per_operation(time: Duration, operations: usize) -> f64 {
    time.as_nanos() as f64 / operations as f64
}
