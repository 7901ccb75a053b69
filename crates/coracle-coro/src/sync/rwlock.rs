//! Many who read, or one who writes.
#![allow(unsafe_code)]

use crate::budget;
use crate::sync::deadline;
use crate::sync::permits::Permits;
use crate::waits_for::WaitsFor;
use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

/// So many may read at a time. A reader has one permit, a writer all of them.
const LIMIT_READERS: usize = 1 << 28;

/// A value that many may look at together, or one may change: like [`std::sync::RwLock`], but only the
/// coroutine waits.
///
/// Readers and writers form one line. A reader that comes while a writer waits is served after it, so writers
/// do not starve, and neither do readers. For the same reason, who reads already and reads once more may wait
/// for ever, if a writer came in between. There is no poisoning.
///
/// ```
/// use coracle_coro::sync::RwLock;
///
/// let motd = RwLock::new(String::from("hello"));
/// {
///     let (one, other) = (motd.read()?, motd.read()?);
///     assert_eq!(*one, *other);
/// }
/// motd.write()?.push_str(", world");
/// assert_eq!(motd.into_inner(), "hello, world");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct RwLock<T: ?Sized> {
    permits: Permits,
    value: UnsafeCell<T>,
}

// SAFETY: whoever has the lock can move the value out of it, so this needs what the value needs.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}

// SAFETY: a shared lock gives the value to one writer, on whichever thread (`T: Send`), who has all permits; or
// shows it to many readers on different threads at a time (`T: Sync`), who have one each.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    /// An unlocked one.
    ///
    /// ```
    /// # use coracle_coro::sync::RwLock;
    /// static ROUTES: RwLock<Vec<String>> = RwLock::new(Vec::new());
    /// ```
    pub const fn new(value: T) -> RwLock<T> {
        RwLock { permits: Permits::new(LIMIT_READERS), value: UnsafeCell::new(value) }
    }

    /// The value, without the lock.
    ///
    /// ```
    /// # use coracle_coro::sync::RwLock;
    /// assert_eq!(RwLock::new(7).into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until nobody writes and everybody who came before has had it, and locks it for reading.
    ///
    /// ```
    /// # use coracle_coro::sync::RwLock;
    /// assert_eq!(*RwLock::new(7).read()?, 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ECANCELED` if the coroutine is cancelled while it waits, `TimedOut` if a [`timeout`](crate::timeout)
    /// around it is over.
    pub fn read(&self) -> io::Result<RwLockReadGuard<'_, T>> {
        self.read_until(None)
    }

    /// Locks it for reading if that can be done at once.
    ///
    /// ```
    /// # use coracle_coro::sync::RwLock;
    /// let lock = RwLock::new(7);
    /// let guard = lock.write()?;
    /// assert!(lock.try_read().is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.permits.try_acquire(1).then(|| RwLockReadGuard { lock: self })
    }

    /// Locks it for reading, and waits no longer than `timeout` for that.
    ///
    /// ```
    /// # use coracle_coro::sync::RwLock;
    /// # use std::time::Duration;
    /// let lock = RwLock::new(7);
    /// assert_eq!(*lock.try_read_for(Duration::from_secs(1))?, 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TimedOut`, or as for [`read`](RwLock::read).
    pub fn try_read_for(&self, timeout: Duration) -> io::Result<RwLockReadGuard<'_, T>> {
        self.read_until(deadline::after(timeout))
    }

    /// Waits until nobody reads or writes and everybody who came before has had it, and locks it for writing.
    ///
    /// ```
    /// # use coracle_coro::sync::RwLock;
    /// let lock = RwLock::new(7);
    /// *lock.write()? += 1;
    /// assert_eq!(lock.into_inner(), 8);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ECANCELED` if the coroutine is cancelled while it waits, `TimedOut` if a [`timeout`](crate::timeout)
    /// around it is over.
    pub fn write(&self) -> io::Result<RwLockWriteGuard<'_, T>> {
        self.write_until(None)
    }

    /// Locks it for writing if that can be done at once.
    ///
    /// ```
    /// # use coracle_coro::sync::RwLock;
    /// let lock = RwLock::new(7);
    /// let guard = lock.read()?;
    /// assert!(lock.try_write().is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.permits.try_acquire(LIMIT_READERS).then(|| RwLockWriteGuard::new(self))
    }

    /// Locks it for writing, and waits no longer than `timeout` for that.
    ///
    /// ```
    /// # use coracle_coro::sync::RwLock;
    /// # use std::{io::ErrorKind, time::Duration};
    /// let lock = RwLock::new(7);
    /// let guard = lock.read()?;
    /// let error = lock.try_write_for(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TimedOut`, or as for [`write`](RwLock::write).
    pub fn try_write_for(&self, timeout: Duration) -> io::Result<RwLockWriteGuard<'_, T>> {
        self.write_until(deadline::after(timeout))
    }

    /// The value, for who has the lock to himself.
    ///
    /// ```
    /// # use coracle_coro::sync::RwLock;
    /// let mut lock = RwLock::new(1);
    /// *lock.get_mut() = 2;
    /// ```
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    fn read_until(&self, deadline: Option<Instant>) -> io::Result<RwLockReadGuard<'_, T>> {
        budget::share();
        self.permits.acquire(1, deadline, WaitsFor::ReadLock)?;
        Ok(RwLockReadGuard { lock: self })
    }

    fn write_until(&self, deadline: Option<Instant>) -> io::Result<RwLockWriteGuard<'_, T>> {
        budget::share();
        self.permits.acquire(LIMIT_READERS, deadline, WaitsFor::WriteLock)?;
        Ok(RwLockWriteGuard::new(self))
    }

    /// How many wait for it.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.permits.waiting()
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> RwLock<T> {
        RwLock::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_read() {
            Some(guard) => write!(f, "RwLock({:?})", &*guard),
            None => f.write_str("RwLock(locked)"),
        }
    }
}

/// The right to look at what is in a [`RwLock`]; it ends when this is dropped.
#[must_use = "the lock is unlocked when this is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard has a permit until it is dropped, so nobody has all of them, which changing the
        // value takes.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.permits.release(1);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The right to change what is in a [`RwLock`]; it ends when this is dropped.
#[must_use = "the lock is unlocked when this is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// It is sent and shared as this is.
    value: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// For who has acquired all permits.
    fn new(lock: &'a RwLock<T>) -> RwLockWriteGuard<'a, T> {
        RwLockWriteGuard { lock, value: PhantomData }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard has all permits until it is dropped, so nobody else has a reference, and a mutable
        // one of our own would borrow the guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably for as long as the reference lives.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.permits.release(LIMIT_READERS);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
