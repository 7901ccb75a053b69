//! How long new connections are left alone when there is nothing to serve them with (EMFILE and its kind).

use coracle_loop::Loop;
use std::time::{Duration, Instant};

/// At first, and at most; in between, twice as long each time.
const PAUSE: Duration = Duration::from_millis(10);
const LIMIT_PAUSE: Duration = Duration::from_secs(1);

/// The pauses of one listening socket.
pub(crate) struct Pause {
    next: Duration,
    not_before: Option<Instant>,
}

impl Default for Pause {
    fn default() -> Pause {
        Pause { next: PAUSE, not_before: None }
    }
}

impl Pause {
    /// An accept has failed: the next one comes later.
    pub(crate) fn failed(&mut self, lp: &Loop) {
        self.not_before = Some(lp.deadline(self.next));
        self.next = (self.next * 2).min(LIMIT_PAUSE);
    }

    /// All is well.
    pub(crate) fn succeeded(&mut self) {
        self.next = PAUSE;
    }

    /// The end of a pause, for who is about to accept; once.
    pub(crate) fn take_end(&mut self) -> Option<Instant> {
        self.not_before.take()
    }
}
