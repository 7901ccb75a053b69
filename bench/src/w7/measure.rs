//! How timers are measured.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::{HORIZON, Timers};
use crate::inside::Operation;

/// The operations, in the order of [`Times`].
pub(super) const OPERATIONS: [Operation; 6] = [
    Operation { name: "add", meaning: "Into a set that grows from empty to the number pending." },
    Operation {
        name: "add + cancel",
        meaning: "A timer is added and cancelled at once: a call that finished before its deadline.",
    },
    Operation { name: "random cancel", meaning: "Any of the pending timers is cancelled." },
    Operation {
        name: "re-arm",
        meaning: "Any of the pending timers gets another random deadline.",
    },
    Operation {
        name: "touch",
        meaning: "One of 64 busy connections moves its idle time-out a little later, again and again.",
    },
    Operation {
        name: "expire",
        meaning: "All pending timers become due, in a hundred steps of time.",
    },
];

/// Nanoseconds per operation.
pub(super) type Times = [f64; OPERATIONS.len()];

/// At least so many operations are timed, so that the clock's own cost vanishes.
const OPERATIONS_TIMED: usize = 200_000;
/// Timers that `touch` moves in turn.
const TOUCHED: usize = 64;
/// Steps of time in which `expire` goes through the horizon.
const EXPIRE_STEPS: u32 = 100;

/// Measures `T` with `pending` timers.
pub(super) fn measure<T: Timers>(pending: usize) -> Times {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let now = Instant::now();
    let deadlines: Vec<Instant> = (0..pending).map(|_| now + random.within(HORIZON)).collect();
    [
        add::<T>(now, &deadlines),
        add_and_cancel::<T>(now, &deadlines, &mut random),
        random_cancel::<T>(now, &deadlines, &mut random),
        rearm::<T>(now, &deadlines, &mut random),
        touch::<T>(now, &deadlines),
        expire::<T>(now, &deadlines),
    ]
}

fn add<T: Timers>(now: Instant, deadlines: &[Instant]) -> f64 {
    let rounds = OPERATIONS_TIMED.div_ceil(deadlines.len());
    let mut time = Duration::ZERO;
    for _ in 0..rounds {
        let mut timers = T::new(now);
        let start = Instant::now();
        for (value, &deadline) in deadlines.iter().enumerate() {
            black_box(timers.add(deadline, value as u64));
        }
        time += start.elapsed();
    }
    per_operation(time, rounds * deadlines.len())
}

fn add_and_cancel<T: Timers>(now: Instant, deadlines: &[Instant], random: &mut Random) -> f64 {
    let (mut timers, _ids) = filled::<T>(now, deadlines);
    let others: Vec<Instant> =
        (0..OPERATIONS_TIMED).map(|_| now + random.within(HORIZON)).collect();
    let start = Instant::now();
    for &deadline in &others {
        let id = timers.add(deadline, 0);
        black_box(timers.cancel(id));
    }
    per_operation(start.elapsed(), others.len())
}

/// Half of the timers are cancelled, in random order; then they are added again, untimed.
fn random_cancel<T: Timers>(now: Instant, deadlines: &[Instant], random: &mut Random) -> f64 {
    let (mut timers, mut ids) = filled::<T>(now, deadlines);
    let half = deadlines.len() / 2;
    let rounds = OPERATIONS_TIMED.div_ceil(half);
    let mut time = Duration::ZERO;
    for _ in 0..rounds {
        random.shuffle(&mut ids);
        let victims = ids.split_off(ids.len() - half);
        let start = Instant::now();
        for id in victims {
            black_box(timers.cancel(id));
        }
        time += start.elapsed();
        for _ in 0..half {
            ids.push(timers.add(now + random.within(HORIZON), 0));
        }
    }
    per_operation(time, rounds * half)
}

fn rearm<T: Timers>(now: Instant, deadlines: &[Instant], random: &mut Random) -> f64 {
    let (mut timers, mut ids) = filled::<T>(now, deadlines);
    let moves: Vec<(usize, Instant)> = (0..OPERATIONS_TIMED)
        .map(|_| (random.below(ids.len()), now + random.within(HORIZON)))
        .collect();
    let start = Instant::now();
    for &(which, deadline) in &moves {
        timers.rearm(&mut ids[which], deadline);
    }
    per_operation(start.elapsed(), moves.len())
}

fn touch<T: Timers>(now: Instant, deadlines: &[Instant]) -> f64 {
    let (mut timers, _others) = filled::<T>(now, deadlines);
    let mut idle: Vec<T::Idle> = (0..TOUCHED).map(|_| timers.add_idle(now + HORIZON)).collect();
    let start = Instant::now();
    for turn in 0..OPERATIONS_TIMED {
        let later = now + HORIZON + Duration::from_nanos(turn as u64);
        timers.touch(&mut idle[turn % TOUCHED], black_box(later));
    }
    per_operation(start.elapsed(), OPERATIONS_TIMED)
}

fn expire<T: Timers>(now: Instant, deadlines: &[Instant]) -> f64 {
    let rounds = OPERATIONS_TIMED.div_ceil(deadlines.len());
    let mut time = Duration::ZERO;
    for _ in 0..rounds {
        let (mut timers, _ids) = filled::<T>(now, deadlines);
        let mut expired = 0;
        let start = Instant::now();
        // One step more than the horizon is long: DelayQueue rounds deadlines up to milliseconds.
        for step in 1..=EXPIRE_STEPS + 1 {
            expired += timers.expire(now + HORIZON / EXPIRE_STEPS * step);
        }
        time += start.elapsed();
        assert_eq!(expired, deadlines.len(), "every timer expires once");
    }
    per_operation(time, rounds * deadlines.len())
}

fn filled<T: Timers>(now: Instant, deadlines: &[Instant]) -> (T, Vec<T::Id>) {
    let mut timers = T::new(now);
    let ids = deadlines.iter().enumerate();
    let ids = ids.map(|(value, &deadline)| timers.add(deadline, value as u64)).collect();
    (timers, ids)
}

fn per_operation(time: Duration, operations: usize) -> f64 {
    time.as_nanos() as f64 / operations as f64
}

/// xorshift64*: the same numbers for every candidate.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    fn within(&mut self, time: Duration) -> Duration {
        Duration::from_nanos(self.below(time.as_nanos() as usize) as u64)
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
