//! Why a wait may end without what was waited for.

use crate::waiter::Woken;
use rustix::io::Errno;
use std::fmt;
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

impl From<Failure> for Woken {
    fn from(failure: Failure) -> Woken {
        match failure {
            Failure::TimedOut => Woken::TimedOut,
            Failure::Cancelled => Woken::Cancelled,
        }
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> io::Error {
        match failure {
            Failure::TimedOut => late(),
            Failure::Cancelled => Errno::CANCELED.into(),
        }
    }
}

/// The error of a wait whose time is over: of the kind `TimedOut`, but not what the system says of a connection.
#[cold]
pub(crate) fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, Late)
}

/// What is told.
struct Late;

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the time for this wait is over (its own, or of a `timeout` or `deadline` around it)",
        )
    }
}

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Late {}
