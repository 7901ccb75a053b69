//! Blocking work on the worker pool, its result back on the loop, which goes on meanwhile.
//!
//! ```text
//! run:   cargo run -p coracle --example 04_offload
//! ```
//!
//! A ticker of 10 ms shares the loop with work that blocks for 100 ms. It ends by itself.

use coracle::{Loop, OffloadError};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

fn main() -> io::Result<()> {
    let lp = Loop::new()?;
    let ticks = Rc::new(Cell::new(0));
    let counter = Rc::clone(&ticks);
    let ticker = lp.every(Duration::from_millis(10), move |_| counter.set(counter.get() + 1));

    // `work` is `Send` and runs on a thread; `done` may hold `Rc`s, for it runs here.
    let work = || {
        thread::sleep(Duration::from_millis(100)); // a database, a disk, a hash of a password
        6 * 7
    };
    let offloaded = lp.offload(work, move |_, result| {
        println!("the answer is {}", result.expect("it does not panic"));
        println!("the loop ticked meanwhile: {}", if ticks.get() >= 3 { "yes" } else { "no" });
        ticker.cancel();
    });
    offloaded.map_err(io::Error::other)?; // the pool's queue was full: nothing was started

    // A panic stays on its thread and comes back as an error.
    let careless = || -> u32 { "forty-two".parse().expect("a number") };
    let offloaded = lp.offload(careless, |_, result| match result {
        Err(OffloadError::Panicked(message)) => println!("it panicked: {message}"),
        other => println!("unexpected: {other:?}"),
    });
    offloaded.map_err(io::Error::other)?;

    lp.run_until_idle() // until the timer is cancelled and both results are in
}
