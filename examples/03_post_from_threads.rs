//! Work for a loop from other threads: `post` and nothing else.
//!
//! ```text
//! run:   cargo run -p coracle --example 03_post_from_threads
//! ```
//!
//! Four threads post ten thousand jobs each and then one that says goodbye; the loop stops after the
//! fourth. A posted job is `Send`, so it cannot carry the loop's own `Rc`s; what it changes here is in a
//! thread-local of the loop's thread, which needs no lock.

use coracle::{Loop, PostError};
use std::cell::Cell;
use std::io;
use std::thread;

const THREADS: usize = 4;
const JOBS: u64 = 10_000;

thread_local! {
    static SUM: Cell<u64> = const { Cell::new(0) };
    static LEFT: Cell<usize> = const { Cell::new(THREADS) };
}

fn main() -> io::Result<()> {
    let lp = Loop::new()?;
    let mut threads = Vec::new();
    for number in 1..=THREADS {
        let handle = lp.handle(); // the only part of a loop that other threads may hold
        threads.push(thread::spawn(move || -> Result<(), PostError> {
            for n in 1..=JOBS {
                // A sleeping loop is woken by one system call; a busy one by none.
                handle.post(move |_| SUM.set(SUM.get() + n))?;
            }
            handle.post(move |lp| goodbye(lp, number))
        }));
    }
    lp.run()?;

    for thread in threads {
        thread.join().expect("posting does not panic").expect("the loop was there and had room");
    }
    let sum = SUM.get();
    assert_eq!(sum, THREADS as u64 * JOBS * (JOBS + 1) / 2);
    println!("{} jobs ran, their sum is {sum}", THREADS as u64 * JOBS);
    Ok(())
}

/// Runs on the loop's thread, after everything its thread had posted before.
fn goodbye(lp: &Loop, number: usize) {
    println!("thread {number} is done");
    LEFT.set(LEFT.get() - 1);
    if LEFT.get() == 0 {
        lp.stop();
    }
}
