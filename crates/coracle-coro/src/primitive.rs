//! What std has for threads that share something. Nobody holds a lock of this kind while he waits.
//!
//! It stands here so that `tests/hand_over_model.rs` can put loom's in its place.

pub(crate) use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock for a few lines at a time, in which nothing runs that is not ours.
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock(Mutex::new(value))
    }

    /// None of our own code panics half-way, so a lock that is poisoned is as good as another.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
