//! A wait of a future, in the same lines in which coroutines and threads wait.
//!
//! ```text
//!   poll: begin ──► its waker joins a line ──► Pending … woken, and polled again ──► is_over
//!                                                 │
//!                                                 └─ dropped: it leaves the line, and gives on what it was given
//! ```
//!
//! Whoever serves a line does not see the difference: its wake counts, or it was too late.

use crate::sleeper::Sleeper;
use crate::waiter::Waker;
use std::sync::Arc;
use std::task::{self, Context};

/// The wait a future is in. Made anew for every wait.
pub(crate) struct FutureWait {
    sleeper: Arc<Sleeper>,
    ticket: u64,
}

impl FutureWait {
    /// A wait that ends by its [`waker`](FutureWait::waker).
    pub(crate) fn begin() -> FutureWait {
        FutureWait::told(None)
    }

    /// As [`begin`](FutureWait::begin), for who asks nobody whether it is over: this waker is woken then.
    pub(crate) fn told(waker: Option<task::Waker>) -> FutureWait {
        let sleeper = Arc::new(Sleeper::of_future(waker));
        let ticket = sleeper.begin();
        FutureWait { sleeper, ticket }
    }

    /// What ends it, for a line.
    pub(crate) fn waker(&self) -> Waker {
        Waker { sleeper: Arc::clone(&self.sleeper), ticket: self.ticket }
    }

    /// What tells it from everybody else who waits at the same time.
    pub(crate) fn name(&self) -> usize {
        Arc::as_ptr(&self.sleeper).addr()
    }

    /// Whether it has ended. If not, whoever polls is woken when it does.
    pub(crate) fn is_over(&self, cx: &Context<'_>) -> bool {
        if self.sleeper.outcome(self.ticket).is_some() {
            return true;
        }
        self.sleeper.set_waker(cx.waker());
        self.sleeper.outcome(self.ticket).is_some()
    }
}
