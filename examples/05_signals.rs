//! Signals as events: SIGHUP reloads, Ctrl-C stops in peace, a second Ctrl-C at once.
//!
//! ```text
//! run:   cargo run -p coracle --example 05_signals
//! type:  kill -HUP PID            in another terminal (it prints its PID), then Ctrl-C, once or twice
//! ```
//!
//! Callbacks run in a turn of the loop, never in the signal handler: they may allocate, print and use the
//! loop like any other.

use coracle::Loop;
use std::io;
use std::process;
use std::time::Duration;

const SIGHUP: i32 = 1;

fn main() -> io::Result<()> {
    let lp = Loop::new()?;
    let mut loads = 1;
    lp.on_signal(SIGHUP, move |_| {
        loads += 1;
        println!("configuration loaded for the {loads}. time");
    })?;
    lp.on_terminate(|lp| {
        println!("finishing: half a second (again to force)");
        lp.stop_after(Duration::from_millis(500));
    })?;
    println!("process {}: kill -HUP {}, or Ctrl-C", process::id(), process::id());
    lp.run()?;
    println!("finished");
    Ok(())
}
