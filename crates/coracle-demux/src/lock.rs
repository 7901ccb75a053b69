//! A lock for a few lines at a time, and a way to wait for what is under it: std's, but never poisoned.
//!
//! ThreadSanitizer does not see what std's lock does when it is contended: that is compiled into std, without the
//! sanitizer. So with the feature `thread-sanitizer`, whoever unlocks says so once more, where it can be seen.

use order::{Held, Order};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Guards a value. Nothing of ours panics half-way while it holds one: one that is poisoned is as good as another.
#[derive(Default)]
pub struct Lock<T> {
    order: Order,
    lock: Mutex<T>,
}

impl<T> Lock<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Lock<T> {
        Lock { order: Order::new(), lock: Mutex::new(value) }
    }

    /// Waits until nobody holds it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        Guard { held: self.order.take(), guard }
    }
}

/// It is locked.
pub struct Guard<'a, T> {
    /// Dropped before the other: unlocking is said before it is done.
    held: Held<'a>,
    guard: MutexGuard<'a, T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Where threads wait until something under a [`Lock`] has changed. They may be woken for no reason.
#[derive(Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Where nobody waits.
    pub const fn new() -> Condvar {
        Condvar(std::sync::Condvar::new())
    }

    /// Wakes one.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Unlocks, waits and locks again.
    pub fn wait<'a, T>(&self, guard: Guard<'a, T>) -> Guard<'a, T> {
        let Guard { held, guard } = guard;
        let order = held.give();
        let guard = self.0.wait(guard).unwrap_or_else(PoisonError::into_inner);
        Guard { held: order.take(), guard }
    }

    /// As [`wait`](Condvar::wait), but no longer than this.
    pub fn wait_timeout<'a, T>(&self, guard: Guard<'a, T>, timeout: Duration) -> Guard<'a, T> {
        let Guard { held, guard } = guard;
        let order = held.give();
        let waited = self.0.wait_timeout(guard, timeout);
        let (guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        Guard { held: order.take(), guard }
    }
}

#[cfg(feature = "thread-sanitizer")]
mod order {
    use std::sync::atomic::{AtomicU8, Ordering};

    /// Stored before the lock is unlocked, and loaded after it is locked.
    #[derive(Default)]
    pub(super) struct Order(AtomicU8);

    impl Order {
        pub(super) const fn new() -> Order {
            Order(AtomicU8::new(0))
        }

        pub(super) fn take(&self) -> Held<'_> {
            self.0.load(Ordering::Acquire);
            Held(self)
        }
    }

    pub(super) struct Held<'a>(&'a Order);

    impl<'a> Held<'a> {
        pub(super) fn give(self) -> &'a Order {
            self.0
        }
    }

    impl Drop for Held<'_> {
        fn drop(&mut self) {
            self.0.0.store(1, Ordering::Release);
        }
    }
}

/// Nothing, which costs nothing.
#[cfg(not(feature = "thread-sanitizer"))]
mod order {
    #[derive(Default)]
    pub(super) struct Order;

    impl Order {
        pub(super) const fn new() -> Order {
            Order
        }

        #[inline]
        pub(super) fn take(&self) -> Held<'_> {
            Held { _order: std::marker::PhantomData }
        }
    }

    pub(super) struct Held<'a> {
        _order: std::marker::PhantomData<&'a Order>,
    }

    impl<'a> Held<'a> {
        #[inline]
        pub(super) fn give(self) -> &'a Order {
            &Order
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn one_holds_it_at_a_time_and_changes_are_waited_for() {
        const THREADS: usize = 4;
        const ROUNDS: usize = 1000;
        let shared = Arc::new((Lock::new(0), Condvar::new()));
        let threads = [(); THREADS].map(|()| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                for _ in 0..ROUNDS {
                    *shared.0.lock() += 1;
                    shared.1.notify_one();
                }
            })
        });
        let mut count = shared.0.lock();
        while *count < THREADS * ROUNDS {
            count = shared.1.wait(count);
        }
        drop(count);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn panic_under_it_does_not_poison_it() {
        let lock = Arc::new(Lock::new(1));
        let held = Arc::clone(&lock);
        let panicking = std::thread::spawn(move || {
            let _guard = held.lock();
            panic!("under the lock");
        });
        panicking.join().unwrap_err();
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn wait_ends_in_time_and_holds_the_lock() {
        let (lock, changed) = (Lock::new(1), Condvar::new());
        let timeout = Duration::from_millis(10);
        let start = Instant::now();
        let mut guard = lock.lock();
        while start.elapsed() < timeout {
            guard = changed.wait_timeout(guard, timeout);
        }
        assert_eq!(*guard, 1);
        assert!(lock.lock.try_lock().is_err());
    }
}
