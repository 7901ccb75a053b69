//! Noticing that nothing can happen any more: every coroutine waits, and nobody is left who could wake one.

use crate::future::FutureInfo;
use crate::seeing::{self, CoroutineInfo};
use coracle_loop::Loop;
use std::fmt::{self, Write};
use std::io;
use std::os::unix::fs::MetadataExt;

/// Whether nobody but a coroutine could make a coroutine of this loop ready: there is no timer, no operation
/// in flight, no posted job; it listens for no signals; and the process has no other thread, but for
/// [watchdogs](seeing::Watchdog).
pub(crate) fn is_certain(lp: &Loop) -> bool {
    lp.is_idle() && !lp.is_listening() && is_single_threaded()
}

/// Asked only when the loop is idle, which may be often if it is other threads that wake its coroutines: then the
/// answer is no, at one system call. Where it cannot be known, the answer is no.
fn is_single_threaded() -> bool {
    // Those who only watch wake nobody.
    let expected = 1 + seeing::threads();
    !has_more_threads(expected)
        && std::fs::read_dir(THREADS).is_ok_and(|threads| threads.count() == expected)
}

/// Where Linux lists the threads of this process.
const THREADS: &str = "/proc/self/task";

/// Whether there are more threads than this, as the number of links says: one for each, and two as every directory
/// has. A no is to be looked into: not every system that has the directory counts so.
fn has_more_threads(expected: usize) -> bool {
    std::fs::metadata(THREADS).is_ok_and(|threads| threads.nlink() > 2 + expected as u64)
}

/// Who waits, one in a line. Without times: this is found at once, and by a clock that stands still.
pub(crate) fn describe(waiting: &[CoroutineInfo], futures: &[FutureInfo]) -> io::Error {
    let mut text = "deadlock: every coroutine waits, and nobody is left to wake one".to_owned();
    for info in waiting {
        write!(text, "\n  {info:#}").expect("a String takes everything");
    }
    for info in futures {
        write!(text, "\n  {info:#}").expect("a String takes everything");
    }
    io::Error::new(io::ErrorKind::Deadlock, Deadlock(text))
}

/// What is told. A `main` that returns an error has it written by `Debug`, where a line is to be a line as well.
struct Deadlock(String);

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Deadlock {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn another_thread_is_noticed_by_the_first_look() {
        let count = || std::fs::read_dir(THREADS).unwrap().count();
        // Other tests start and end threads meanwhile: these three are there all the time, and this one.
        let threads: Vec<_> = (0..3).map(|_| thread::spawn(thread::park)).collect();
        assert!(has_more_threads(1) && has_more_threads(3) && count() > 3);
        assert!(!is_single_threaded());
        assert!(!has_more_threads(1 << 20));
        for thread in threads {
            thread.thread().unpark();
            thread.join().unwrap();
        }
    }
}
