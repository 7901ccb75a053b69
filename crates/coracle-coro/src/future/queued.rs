//! Whether something is in a queue: so that it is there once, however many put it there.
//!
//! ```text
//!   who wakes:   does something ──► enter ── true ──► puts it into the queue
//!                                     └───── false: it is there, and was not looked at yet
//!   who polls:   takes it off ──► leave ──► looks at what was done
//! ```
//!
//! What was done before `enter` is seen after the next `leave`: both are one step that reads and writes, so
//! each is before or after the other. (`tests/wake_model.rs` checks every interleaving of it.)

use crate::primitive::AtomicBool;
use std::sync::atomic::Ordering;

pub(crate) struct Queued(AtomicBool);

impl Queued {
    pub(crate) fn new() -> Queued {
        Queued(AtomicBool::new(false))
    }

    /// True if it was not in the queue, and is to be put there by the one who asks. Any thread.
    pub(crate) fn enter(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// It was taken off the queue. To be called before anything else is looked at.
    pub(crate) fn leave(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }

    /// At one moment.
    pub(crate) fn is_in(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
