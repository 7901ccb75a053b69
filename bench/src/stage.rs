//! Stages of a load: at the end of each it stops itself, for somebody to look at the server while nothing happens.

use std::io;

use rustix::process::{Signal, getpid, kill_process};

/// Ends a stage: stops this process (SIGSTOP) until it is let go on (SIGCONT). Whoever started it sees that by
/// waiting for it (`WUNTRACED`). For processes with one thread.
///
/// # Errors
/// The system's; there is no reason for one.
pub fn end() -> io::Result<()> {
    Ok(kill_process(getpid(), Signal::STOP)?)
}
