//! Why a wait may end without what was waited for.

use rustix::io::Errno;
use std::io;

/// What came first.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The deadline.
    TimedOut,
    /// The coroutine was cancelled.
    Cancelled,
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> io::Error {
        match failure {
            Failure::TimedOut => Errno::TIMEDOUT.into(),
            Failure::Cancelled => Errno::CANCELED.into(),
        }
    }
}
