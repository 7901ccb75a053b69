//! A worker pool: so many coroutines that take jobs from one channel, and no more at work at a time.
//!
//! ```text
//! run:   cargo run -p coracle --example 17_worker_pool
//! ```
//!
//! The heavy part of each job goes to a thread; the workers themselves, and who gives them work, share one. It
//! ends by itself.

use coracle::sync::channel;
use coracle::{offload, run, scope};
use std::cell::Cell;
use std::io;

const WORKERS: usize = 3;
const JOBS: u64 = 12;

fn main() -> io::Result<()> {
    run(|| {
        let (jobs, todo) = channel(4); // whoever fills it faster than they work waits
        let (done, results) = channel(4);
        let (busy, busy_max) = (Cell::new(0), Cell::new(0)); // no lock: all of it is on one thread
        let mut primes = 0;

        scope(|scope| {
            for _ in 0..WORKERS {
                let (todo, done) = (todo.clone(), done.clone());
                let (busy, busy_max) = (&busy, &busy_max);
                scope.spawn(move || {
                    // Until the channel is closed, which is when the last sender is gone.
                    for range in todo {
                        busy.set(busy.get() + 1);
                        busy_max.set(busy_max.get().max(busy.get()));
                        let count = offload(move || count_primes(range))?;
                        busy.set(busy.get() - 1);
                        done.send(count)?;
                    }
                    Ok(())
                });
            }
            drop((todo, done)); // the workers have theirs

            scope.spawn(move || {
                for job in 0..JOBS {
                    jobs.send(job * 10_000..(job + 1) * 10_000)?;
                }
                Ok(()) // and with it the sender
            });

            primes = results.into_iter().sum::<usize>();
            Ok(())
        })?;
        println!("{primes} primes below {}", JOBS * 10_000);
        println!("{} workers at a time", busy_max.get());
        Ok(())
    })
}

fn count_primes(range: std::ops::Range<u64>) -> usize {
    let is_prime = |n: u64| n > 1 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
    range.filter(|n| is_prime(*n)).count()
}
