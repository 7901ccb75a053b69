//! Noticing that nothing can happen any more: every coroutine waits, and nobody is left who could wake one.

use crate::future::FutureInfo;
use crate::seeing::{self, CoroutineInfo};
use coracle_loop::Loop;
use std::fmt::{self, Write};
use std::io;

/// Whether nobody but a coroutine could make a coroutine of this loop ready: there is no timer, no operation
/// in flight, no posted job; it listens for no signals; and the process has no other thread, but for
/// [watchdogs](seeing::Watchdog).
pub(crate) fn is_certain(lp: &Loop) -> bool {
    lp.is_idle() && !lp.is_listening() && is_single_threaded()
}

/// Asked only when the loop is idle. Where it cannot be known, the answer is no.
fn is_single_threaded() -> bool {
    // Those who only watch wake nobody.
    let harmless = seeing::threads();
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1 + harmless)
}

/// Who waits, one in a line.
pub(crate) fn describe(waiting: &[CoroutineInfo], futures: &[FutureInfo]) -> io::Error {
    let mut text = "deadlock: every coroutine waits, and nobody is left to wake one".to_owned();
    for info in waiting {
        write!(text, "\n  {info}").expect("a String takes everything");
    }
    for info in futures {
        write!(text, "\n  {info}").expect("a String takes everything");
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
