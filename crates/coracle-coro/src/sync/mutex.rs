//! One at a time.
#![allow(unsafe_code)]

use crate::budget;
use crate::sync::deadline;
use crate::sync::permits::Permits;
use crate::sync::permits_future::Acquiring;
use crate::waits_for::WaitsFor;
use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

/// A value that one at a time may use: like [`std::sync::Mutex`], but only the coroutine waits.
///
/// A guard may be held while its coroutine waits for something else. The lock is handed to whoever has waited
/// longest. There is no poisoning: a panic unlocks it.
///
/// ```
/// use coracle_coro::sync::Mutex;
///
/// let total = Mutex::new(0);
/// std::thread::scope(|scope| {
///     for n in 1..=4 {
///         let total = &total;
///         scope.spawn(move || *total.lock().unwrap() += n);
///     }
/// });
/// assert_eq!(total.into_inner(), 10);
/// ```
///
/// Locking it and unlocking it costs two atomic operations while nobody else wants it. Who locks it a second
/// time, with the first guard still there, waits for ever.
pub struct Mutex<T: ?Sized> {
    permits: Permits,
    value: UnsafeCell<T>,
}

// SAFETY: whoever has the mutex can move the value out of it, so this needs what the value needs.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}

// SAFETY: a shared mutex gives the value to one at a time, whichever thread that is on: there is one permit, a
// guard is made by who has acquired it, and gives it back when it is dropped. It never shows the value to two
// at a time, so `T: Sync` is not needed.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    ///
    /// ```
    /// # use coracle_coro::sync::Mutex;
    /// static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    /// ```
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { permits: Permits::new(1), value: UnsafeCell::new(value) }
    }

    /// The value, without the mutex.
    ///
    /// ```
    /// # use coracle_coro::sync::Mutex;
    /// assert_eq!(Mutex::new(7).into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until it is unlocked and everybody who came before has had it, and locks it.
    ///
    /// ```
    /// # use coracle_coro::sync::Mutex;
    /// let mutex = Mutex::new(1);
    /// *mutex.lock()? += 1;
    /// assert_eq!(*mutex.lock()?, 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ECANCELED` if the coroutine is cancelled while it waits, `TimedOut` if a
    /// [`timeout`](crate::timeout) around it is over. Never if the mutex is free: clean-up can rely on it.
    #[inline]
    pub fn lock(&self) -> io::Result<MutexGuard<'_, T>> {
        self.lock_until(None)
    }

    /// Locks it if that can be done at once.
    ///
    /// ```
    /// # use coracle_coro::sync::Mutex;
    /// let mutex = Mutex::new(1);
    /// let guard = mutex.try_lock().unwrap();
    /// assert!(mutex.try_lock().is_none());
    /// ```
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // Not `then_some`, which would make a guard, and drop it, in any case.
        self.permits.try_acquire(1).then(|| MutexGuard::new(self))
    }

    /// Locks it, and waits no longer than `timeout` for that.
    ///
    /// ```
    /// # use coracle_coro::sync::Mutex;
    /// # use std::{io::ErrorKind, time::Duration};
    /// let mutex = Mutex::new(1);
    /// let guard = mutex.try_lock_for(Duration::from_secs(1))?;
    /// let error = mutex.try_lock_for(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TimedOut`, or as for [`lock`](Mutex::lock).
    pub fn try_lock_for(&self, timeout: Duration) -> io::Result<MutexGuard<'_, T>> {
        budget::share();
        match self.try_lock() {
            Some(guard) => Ok(guard),
            None => self.lock_until(deadline::after(timeout)),
        }
    }

    /// The value, for who has the mutex to himself.
    ///
    /// ```
    /// # use coracle_coro::sync::Mutex;
    /// let mut mutex = Mutex::new(1);
    /// *mutex.get_mut() = 2;
    /// ```
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[inline]
    fn lock_until(&self, deadline: Option<Instant>) -> io::Result<MutexGuard<'_, T>> {
        budget::share();
        self.permits.acquire(1, deadline, WaitsFor::Mutex)?;
        Ok(MutexGuard::new(self))
    }

    /// The permit, for a future.
    pub(super) fn acquiring(&self) -> Acquiring<'_> {
        Acquiring::new(&self.permits, 1)
    }

    /// How many wait for it.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.permits.waiting()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(guard) => write!(f, "Mutex({:?})", &*guard),
            None => f.write_str("Mutex(locked)"),
        }
    }
}

/// The right to use what is in a [`Mutex`]; it ends when this is dropped.
///
/// It can be given to another thread, which then unlocks the mutex. It shows the value, so it is shared between
/// threads only if the value may be:
///
/// ```compile_fail
/// fn is_sync<T: Sync>() {}
/// is_sync::<coracle_coro::sync::MutexGuard<'static, std::cell::Cell<u32>>>();
/// ```
#[must_use = "the mutex is unlocked when this is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// It is sent and shared as this is.
    value: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// For who has acquired the permit.
    #[inline]
    pub(super) fn new(mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        MutexGuard { mutex, value: PhantomData }
    }

    pub(super) fn mutex(guard: &MutexGuard<'a, T>) -> &'a Mutex<T> {
        guard.mutex
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard has the only permit until it is dropped, so nobody else has a reference, and a
        // mutable one of our own would borrow the guard.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably for as long as the reference lives.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.permits.release(1);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
