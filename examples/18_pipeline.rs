//! A pipeline with back-pressure: three stages, each a loop of its own, with bounded channels between them.
//!
//! ```text
//! run:   cargo run -p coracle --example 18_pipeline
//! ```
//!
//! The last stage is the slow one. The channels hold four messages each, so the first stage is never far ahead: it
//! waits, and nothing grows. It ends by itself.

use coracle::sync::{Receiver, Sender, channel};
use coracle::{run, scope, sleep};
use std::cell::Cell;
use std::io;
use std::time::Duration;

const LIMIT: usize = 4;
const LINES: usize = 100;

fn main() -> io::Result<()> {
    run(|| {
        let (lines, to_parse) = channel(LIMIT);
        let (parsed, to_sum) = channel(LIMIT);
        let (begun, ended, ahead_max) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let mut total = 0;

        // If one stage fails, the others are cancelled, and the error is the scope's.
        scope(|scope| {
            let (begun, ended, ahead_max) = (&begun, &ended, &ahead_max);
            scope.spawn(move || {
                read(lines, |line| {
                    begun.set(line);
                    ahead_max.set(ahead_max.get().max(begun.get() - ended.get()));
                })
            });
            scope.spawn(move || parse(to_parse, parsed));
            scope.spawn(|| {
                for number in to_sum {
                    sleep(Duration::from_millis(1))?; // as if it went to a database
                    total += number;
                    ended.set(ended.get() + 1);
                }
                Ok(())
            });
            Ok(())
        })?;

        println!("the sum of {LINES} lines is {total}");
        // In the two channels, and one in the hands of each stage.
        let bounded = ahead_max.get() <= 2 * LIMIT + 3;
        println!("the first stage was never far ahead: {}", if bounded { "yes" } else { "no" });
        Ok(())
    })
}

/// Makes lines; `note` hears the number of each.
fn read(lines: Sender<String>, note: impl Fn(usize)) -> io::Result<()> {
    for number in 1..=LINES {
        note(number);
        // Waits while the channel is full.
        lines.send(format!(" {number} \n"))?;
    }
    Ok(())
}

/// Makes numbers of lines.
fn parse(lines: Receiver<String>, numbers: Sender<u64>) -> io::Result<()> {
    for line in lines {
        let number = line.trim().parse().map_err(io::Error::other)?;
        numbers.send(number)?;
    }
    Ok(())
}
