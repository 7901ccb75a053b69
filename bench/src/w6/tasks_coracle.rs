//! coracle's coroutines, on a loop of the default backend.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use coracle_coro::sync::{Mutex, channel};
use coracle_coro::{JoinHandle, current, park, run, spawn, yield_now};

use super::tasks::{Times, per, rounds};

pub(super) fn measure(number: usize) -> Times {
    let pairs = number.div_ceil(2);
    run(move || {
        Ok([yields(number), spawns(number), parks(pairs)?, channels(pairs), mutexes(pairs)])
    })
    .expect("a loop")
}

fn join(all: Vec<JoinHandle<()>>) {
    all.into_iter().for_each(|one| one.join().expect("it does not panic"));
}

/// Spawns `number` of `body`, and waits until all are over.
fn time(number: usize, body: impl Fn() + Clone + 'static) -> Duration {
    let begin = Instant::now();
    join((0..number).map(|_| spawn(body.clone())).collect());
    begin.elapsed()
}

fn yields(number: usize) -> f64 {
    let rounds = rounds(number);
    per(time(number, move || (0..rounds).for_each(|_| yield_now())), rounds * number)
}

fn spawns(number: usize) -> f64 {
    time(number, || ()); // makes the stacks
    let rounds = rounds(number);
    let begin = Instant::now();
    let mut all = Vec::with_capacity(number);
    for _ in 0..rounds {
        all.extend((0..number).map(|_| spawn(|| ())));
        all.drain(..).for_each(|one| one.join().expect("it does not panic"));
    }
    per(begin.elapsed(), rounds * number)
}

fn parks(pairs: usize) -> io::Result<f64> {
    let rounds = rounds(2 * pairs);
    let begin = Instant::now();
    let all = (0..pairs).map(|_| {
        spawn(move || {
            let here = current();
            let other = spawn(move || {
                for _ in 0..rounds {
                    park().expect("nobody cancels it");
                    here.unpark();
                }
            });
            for _ in 0..rounds {
                other.coroutine().unpark();
                park().expect("nobody cancels it");
            }
            other.join().expect("it does not panic");
        })
    });
    join(all.collect());
    Ok(per(begin.elapsed(), 2 * rounds * pairs))
}

fn channels(pairs: usize) -> f64 {
    let rounds = rounds(2 * pairs);
    let pair = move || {
        let (there, inbox) = channel(1);
        let (back, answers) = channel(1);
        let other = spawn(move || inbox.iter().for_each(|n: usize| back.send(n).unwrap()));
        for n in 0..rounds {
            there.send(n).unwrap();
            assert_eq!(answers.recv(), Ok(n));
        }
        drop(there);
        other.join().expect("it does not panic");
    };
    per(time(pairs, pair), 2 * rounds * pairs)
}

fn mutexes(pairs: usize) -> f64 {
    let rounds = rounds(2 * pairs);
    let pair = move || {
        let mutex = Rc::new(Mutex::new(Cell::new(0)));
        let turns = {
            let mutex = Rc::clone(&mutex);
            move || {
                for _ in 0..rounds {
                    let count = mutex.lock().expect("nobody cancels it");
                    yield_now();
                    count.set(count.get() + 1);
                }
            }
        };
        time(2, turns);
        assert_eq!(mutex.lock().unwrap().get(), 2 * rounds);
    };
    per(time(pairs, pair), 2 * rounds * pairs)
}
