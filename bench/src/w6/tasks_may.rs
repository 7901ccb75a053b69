//! may's coroutines, on one worker thread.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

use may::coroutine::{JoinHandle, current, park, yield_now};
use may::sync::{Mutex, mpsc};

use super::tasks::{Times, per, rounds};

/// The stack of a coroutine, in words: of 64 KiB, as the others'.
const STACK_WORDS: usize = super::STACK_BYTES / size_of::<usize>();

pub(super) fn measure(number: usize) -> Times {
    let pairs = number.div_ceil(2);
    // One worker, which is started by this, on the core of who calls.
    may::config().set_workers(1).set_stack_size(STACK_WORDS).set_pool_capacity(20_000);
    let all = spawn(move || {
        [yields(number), spawns(number), parks(pairs), channels(pairs), mutexes(pairs)]
    });
    all.join().expect("it does not panic")
}

fn spawn<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    // SAFETY: what is spawned here uses no thread-local state and stays well inside its stack.
    unsafe { may::coroutine::spawn(f) }
}

fn time(number: usize, operations: usize, body: impl Fn() + Clone + Send + 'static) -> f64 {
    let begin = Instant::now();
    let all: Vec<_> = (0..number).map(|_| spawn(body.clone())).collect();
    all.into_iter().for_each(|one| one.join().expect("it does not panic"));
    per(begin.elapsed(), operations)
}

fn yields(number: usize) -> f64 {
    let rounds = rounds(number);
    time(number, rounds * number, move || (0..rounds).for_each(|_| yield_now()))
}

fn spawns(number: usize) -> f64 {
    time(number, number, || ()); // makes the stacks
    let rounds = rounds(number);
    let begin = Instant::now();
    let mut all = Vec::with_capacity(number);
    for _ in 0..rounds {
        all.extend((0..number).map(|_| spawn(|| ())));
        all.drain(..).for_each(|one| one.join().expect("it does not panic"));
    }
    per(begin.elapsed(), rounds * number)
}

fn parks(pairs: usize) -> f64 {
    let rounds = rounds(2 * pairs);
    let pair = move || {
        let here = current();
        let other = spawn(move || {
            for _ in 0..rounds {
                park();
                here.unpark();
            }
        });
        for _ in 0..rounds {
            other.coroutine().unpark();
            park();
        }
        other.join().expect("it does not panic");
    };
    time(pairs, 2 * rounds * pairs, pair)
}

fn channels(pairs: usize) -> f64 {
    let rounds = rounds(2 * pairs);
    let pair = move || {
        let (there, inbox) = mpsc::channel();
        let (back, answers) = mpsc::channel();
        let other = spawn(move || inbox.iter().for_each(|n: usize| back.send(n).unwrap()));
        for n in 0..rounds {
            there.send(n).unwrap();
            assert_eq!(answers.recv(), Ok(n));
        }
        drop(there);
        other.join().expect("it does not panic");
    };
    time(pairs, 2 * rounds * pairs, pair)
}

fn mutexes(pairs: usize) -> f64 {
    let rounds = rounds(2 * pairs);
    let pair = move || {
        let mutex = Arc::new(Mutex::new(0));
        let turns = || {
            let mutex = Arc::clone(&mutex);
            spawn(move || {
                for _ in 0..rounds {
                    let mut count = mutex.lock().unwrap();
                    yield_now();
                    *count += 1;
                }
            })
        };
        [turns(), turns()].into_iter().for_each(|one| one.join().expect("it does not panic"));
        assert_eq!(*mutex.lock().unwrap(), 2 * rounds);
    };
    time(pairs, 2 * rounds * pairs, pair)
}
