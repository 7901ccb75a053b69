//! The smallest program with a loop: it ticks for a second.
//!
//! ```text
//! run:   cargo run -p coracle --example 00_tick
//! ```

use coracle::Loop;
use std::io;
use std::time::Duration;

fn main() -> io::Result<()> {
    let lp = Loop::new()?;
    println!("a loop on {}", lp.backend());
    lp.every(Duration::from_millis(240), |_| println!("tick"));
    lp.stop_after(Duration::from_secs(1));
    lp.run()
}
