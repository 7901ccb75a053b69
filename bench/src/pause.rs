//! Stopping a server, so that a load can be prepared without its help, and letting it go on.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::threads;

/// A process stops within this time, or something is wrong.
const LIMIT_STOP: Duration = Duration::from_secs(10);

/// Stops the processes; returns when every thread of them stands still.
///
/// # Errors
/// When one of them is not there, or does not stop.
pub fn stop(pids: &[u32]) -> io::Result<()> {
    signal(pids, Signal::STOP)?;
    let start = Instant::now();
    for &pid in pids {
        while !threads::are_all(pid, 'T')? {
            if start.elapsed() > LIMIT_STOP {
                return Err(io::Error::other(format!("process {pid} does not stop")));
            }
            thread::yield_now();
        }
    }
    Ok(())
}

/// Lets them go on.
///
/// # Errors
/// When one of them is not there.
pub fn go_on(pids: &[u32]) -> io::Result<()> {
    signal(pids, Signal::CONT)
}

fn signal(pids: &[u32], signal: Signal) -> io::Result<()> {
    for &pid in pids {
        let pid = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidInput)?;
        kill_process(pid, signal)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    #[test]
    fn a_stopped_process_goes_on() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        super::stop(&[child.id()]).unwrap();
        assert!(crate::threads::are_all(child.id(), 'T').unwrap());
        super::go_on(&[child.id()]).unwrap();
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
