//! Timers: once, every so often, so many times; cancelled and put off from inside callbacks.
//!
//! ```text
//! run:   cargo run -p coracle --example 02_timers
//! ```
//!
//! It ends by itself after about a quarter of a second.

use coracle::Loop;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

fn main() -> io::Result<()> {
    let lp = Loop::new()?;
    let start = Instant::now();
    let say = move |text: &str| println!("{:>4} ms  {text}", start.elapsed().as_millis());

    // Once. The returned `Timer` cancels or re-arms it; dropping it changes nothing.
    lp.after(Duration::from_millis(10), move |_| say("once"));
    let never = lp.after(Duration::from_millis(15), move |_| say("this is not printed"));
    lp.after(Duration::from_millis(5), move |_| {
        assert!(never.cancel(), "it had not fired");
        say("cancelled the timer of 15 ms");
    });

    // So many times, and a last word.
    let finish = move |_: &Loop| say("that was the third");
    lp.repeat(Duration::from_millis(20), 3, move |_| say("three times, every 20 ms"), finish);

    // Until cancelled: the calls keep to a grid of 50 ms and do not drift.
    let ticks = lp.every(Duration::from_millis(50), move |_| say("every 50 ms"));
    let remote = ticks.remote(); // what another thread may hold of it
    lp.after(Duration::from_millis(125), move |_| {
        let remote = remote.clone();
        let cancelled = std::thread::spawn(move || remote.cancel()).join();
        assert!(cancelled.expect("cancelling does not panic"));
        say("another thread cancelled the ticks");
    });

    // A time-out that is put off by each touch. Dropping an `IdleTimer` does cancel it.
    let idle = Rc::new(lp.idle_timer(Duration::from_millis(100), move |lp| {
        say("idle for 100 ms: stop");
        lp.stop();
    }));
    let touched = Rc::clone(&idle);
    let touch = lp.every(Duration::from_millis(30), move |_| touched.touch());
    lp.after(Duration::from_millis(140), move |_| {
        touch.cancel();
        say("nobody touches the idle timer any more");
    });

    lp.run()
}
