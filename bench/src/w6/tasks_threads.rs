//! OS threads, all on one core, with crossbeam's channel. What they have no fair lock for is not measured.

use std::thread::{JoinHandle, current, park, spawn, yield_now};
use std::time::Instant;

use crossbeam_channel::bounded;

use super::tasks::{SLOW_OPERATIONS_TIMED, Times, per};

/// More threads than this would only take longer.
const THREADS: usize = 100;

pub(super) fn measure(number: usize) -> Times {
    if number > THREADS {
        return [f64::NAN; 5];
    }
    let pairs = number.div_ceil(2);
    [yields(number), spawns(number), parks(pairs), channels(pairs), f64::NAN]
}

fn rounds(number: usize) -> usize {
    SLOW_OPERATIONS_TIMED.div_ceil(number)
}

fn time(number: usize, operations: usize, body: impl Fn() + Clone + Send + 'static) -> f64 {
    let begin = Instant::now();
    let all: Vec<_> = (0..number).map(|_| spawn(body.clone())).collect();
    all.into_iter().for_each(join);
    per(begin.elapsed(), operations)
}

fn join(thread: JoinHandle<()>) {
    thread.join().expect("it does not panic");
}

fn yields(number: usize) -> f64 {
    let rounds = rounds(number);
    time(number, rounds * number, move || (0..rounds).for_each(|_| yield_now()))
}

fn spawns(number: usize) -> f64 {
    let rounds = rounds(10 * number);
    let begin = Instant::now();
    for _ in 0..rounds {
        let all: Vec<_> = (0..number).map(|_| spawn(|| ())).collect();
        all.into_iter().for_each(join);
    }
    per(begin.elapsed(), rounds * number)
}

fn parks(pairs: usize) -> f64 {
    let rounds = rounds(2 * pairs);
    let pair = move || {
        let here = current();
        let (told, tell) = bounded(1);
        let other = spawn(move || {
            for turn in 0..rounds {
                park();
                told.send(turn).unwrap(); // std's park may return by itself
                here.unpark();
            }
        });
        for turn in 0..rounds {
            other.thread().unpark();
            while tell.try_recv() != Ok(turn) {
                park();
            }
        }
        join(other);
    };
    time(pairs, 2 * rounds * pairs, pair)
}

fn channels(pairs: usize) -> f64 {
    let rounds = rounds(2 * pairs);
    let pair = move || {
        let (there, inbox) = bounded(1);
        let (back, answers) = bounded(1);
        let other = spawn(move || inbox.iter().for_each(|n: usize| back.send(n).unwrap()));
        for n in 0..rounds {
            there.send(n).unwrap();
            assert_eq!(answers.recv(), Ok(n));
        }
        drop(there);
        join(other);
    };
    time(pairs, 2 * rounds * pairs, pair)
}
