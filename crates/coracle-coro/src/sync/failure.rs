//! Why a wait may end without what was waited for.

use crate::waiter::Woken;
use rustix::io::Errno;
use std::io;

/// What came first.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The deadline, its own or one [around it](crate::deadline()).
    TimedOut,
    /// The coroutine was cancelled.
    Cancelled,
}

impl Failure {
    /// None, if it was woken.
    pub(crate) fn of(woken: Woken) -> Option<Failure> {
        match woken {
            Woken::Woken => None,
            Woken::TimedOut => Some(Failure::TimedOut),
            Woken::Cancelled => Some(Failure::Cancelled),
        }
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> io::Error {
        match failure {
            Failure::TimedOut => Errno::TIMEDOUT.into(),
            Failure::Cancelled => Errno::CANCELED.into(),
        }
    }
}
