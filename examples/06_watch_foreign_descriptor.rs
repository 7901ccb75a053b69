//! A descriptor that belongs to somebody else, watched by the loop: the output of a child process.
//!
//! ```text
//! run:   cargo run -p coracle --example 06_watch_foreign_descriptor
//! ```
//!
//! The pipe is std's, reading it is std's; the loop only says when. The same way serves a timerfd, an
//! inotify, a terminal, or the socket of a C library. It ends when the child does.

use coracle::demux::{Interest, Operation, Outcome};
use coracle::{Loop, Trigger};
use std::io::{self, Read};
use std::process::Command;

fn main() -> io::Result<()> {
    let lp = Loop::new()?;
    let script = "for n in 1 2 3; do echo line $n; sleep 0.05; done; exit 3";
    let (output, input) = io::pipe()?;
    let child = Command::new("sh").args(["-c", script]).stdout(input).spawn()?;

    // Level: called once a turn as long as there is something to read, or the end.
    let watch = lp.watch(output, Interest::READ, Trigger::Level, |watched, _ready| {
        let mut bytes = [0; 256];
        match watched.with(|mut output| output.read(&mut bytes)) {
            Ok(count) if count > 0 => print!("{}", String::from_utf8_lossy(&bytes[..count])),
            _ => watched.lp().stop(),
        }
    })?;
    lp.run()?;
    drop(watch); // the loop lets go of the pipe, then the pipe is closed

    // The end of the child is an operation like any other; it is reaped by it.
    lp.operate(Operation::ChildExit { pid: child.id() }, |_, finished| match finished.result {
        Ok(Outcome::Exited(status)) => println!("the child has ended: {status}"),
        other => println!("unexpected: {other:?}"),
    });
    lp.run_until_idle()
}
