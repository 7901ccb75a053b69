//! For how long the number of a descriptor that is lent is what it was.
//!
//! Somebody else may close it in another thread, and have another under the same number, before the loop that
//! works with it hears of that. What is done by number looks first.

use std::sync::atomic::{AtomicU32, Ordering};

/// Whether a number is still what it was when it was lent: a counter that changes before the number is closed, in
/// whatever thread.
///
/// ```
/// use coracle_demux::Lease;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// static CLOSES: AtomicU32 = AtomicU32::new(0);
/// let lease = Lease::new(&CLOSES);
/// assert!(!lease.is_over());
/// CLOSES.fetch_add(1, Ordering::Relaxed);
/// assert!(lease.is_over());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    counter: &'static AtomicU32,
    value: u32,
}

impl Lease {
    /// One that lasts as long as the counter stays as it is now.
    #[inline]
    pub fn new(counter: &'static AtomicU32) -> Lease {
        Lease { counter, value: counter.load(Ordering::Relaxed) }
    }

    /// Whether the counter has changed.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.counter.load(Ordering::Relaxed) != self.value
    }
}
