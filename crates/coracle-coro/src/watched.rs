//! The lock of `primitive.rs` for ThreadSanitizer, which does not see what std's own does when it is contended:
//! that is compiled into std, without the sanitizer. So whoever unlocks says so once more, where it can be seen.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// As the other one.
pub(crate) struct Lock<T> {
    lock: Mutex<T>,
    /// Stored before it is unlocked, and loaded after it is locked: that is all that orders anything here.
    order: AtomicU8,
}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock { lock: Mutex::new(value), order: AtomicU8::new(0) }
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.order.load(Ordering::Acquire);
        Guard { order: &self.order, guard }
    }
}

/// It is locked.
pub(crate) struct Guard<'a, T> {
    order: &'a AtomicU8,
    guard: MutexGuard<'a, T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Before it is unlocked.
impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.order.store(1, Ordering::Release);
    }
}
