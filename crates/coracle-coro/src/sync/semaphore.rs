//! So many at a time.

use crate::budget;
use crate::sync::deadline;
use crate::sync::permits::{LIMIT_PERMITS, Permits};
use crate::sync::permits_future::Acquiring;
use crate::waits_for::WaitsFor;
use std::fmt;
use std::io;
use std::time::Duration;

/// A number of permits. Who wants more of them than there are waits until others give theirs back.
///
/// Whoever came first is served first: one that needs many is not overtaken by others that need few.
///
/// ```
/// use coracle_coro::sync::Semaphore;
///
/// static DOWNLOADS: Semaphore = Semaphore::new(4);
///
/// let permit = DOWNLOADS.acquire(1)?; // the fifth would wait here
/// assert_eq!(DOWNLOADS.available_permits(), 3);
/// drop(permit);
/// assert_eq!(DOWNLOADS.available_permits(), 4);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Semaphore {
    permits: Permits,
}

impl Semaphore {
    /// A semaphore with so many permits.
    ///
    /// ```
    /// # use coracle_coro::sync::Semaphore;
    /// assert_eq!(Semaphore::new(3).available_permits(), 3);
    /// ```
    ///
    /// # Panics
    /// With more than an eighth of `usize::MAX`.
    pub const fn new(permits: usize) -> Semaphore {
        Semaphore { permits: Permits::new(permits) }
    }

    /// Takes `count` permits, and waits for them if need be. They come back when what it returns is dropped.
    ///
    /// ```
    /// # use coracle_coro::sync::Semaphore;
    /// let semaphore = Semaphore::new(3);
    /// let two = semaphore.acquire(2)?;
    /// assert_eq!(semaphore.available_permits(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ECANCELED` if the coroutine is cancelled while it waits, `TimedOut` if a [`timeout`](crate::timeout)
    /// around it is over.
    pub fn acquire(&self, count: usize) -> io::Result<Permit<'_>> {
        self.acquire_for(count, WaitsFor::Permits(count))
    }

    /// The same for who uses it for something else.
    pub(crate) fn acquire_for(&self, count: usize, what: WaitsFor) -> io::Result<Permit<'_>> {
        budget::begin()?;
        self.permits.acquire(count, None, what)?;
        Ok(Permit { semaphore: self, count })
    }

    /// Takes `count` permits if they are there and nobody waits.
    ///
    /// ```
    /// # use coracle_coro::sync::Semaphore;
    /// assert!(Semaphore::new(1).try_acquire(2).is_none());
    /// ```
    pub fn try_acquire(&self, count: usize) -> Option<Permit<'_>> {
        self.permits.try_acquire(count).then(|| Permit { semaphore: self, count })
    }

    /// As [`acquire`](Semaphore::acquire), but waits no longer than `timeout`.
    ///
    /// ```
    /// # use coracle_coro::sync::Semaphore;
    /// # use std::{io::ErrorKind, time::Duration};
    /// let semaphore = Semaphore::new(1);
    /// let error = semaphore.acquire_timeout(2, Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// ```
    ///
    /// # Errors
    /// `TimedOut`, or as for [`acquire`](Semaphore::acquire).
    pub fn acquire_timeout(&self, count: usize, timeout: Duration) -> io::Result<Permit<'_>> {
        budget::begin()?;
        self.permits.acquire(count, deadline::after(timeout), WaitsFor::Permits(count))?;
        Ok(Permit { semaphore: self, count })
    }

    /// Adds `count` permits to those there are. Never waits. Any thread, and callbacks, too.
    ///
    /// ```
    /// # use coracle_coro::sync::Semaphore;
    /// let arrived = Semaphore::new(0);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| arrived.add_permits(2));
    ///     arrived.acquire(2).unwrap().forget();
    /// });
    /// assert_eq!(arrived.available_permits(), 0);
    /// ```
    ///
    /// # Panics
    /// If there would be more than an eighth of `usize::MAX`.
    pub fn add_permits(&self, count: usize) {
        let room = LIMIT_PERMITS.saturating_sub(self.available_permits());
        assert!(count <= room, "cannot add {count} permits: more than can be counted");
        self.permits.release(count);
    }

    /// How many permits are there for the taking, at one moment. Any thread.
    ///
    /// ```
    /// # use coracle_coro::sync::Semaphore;
    /// assert_eq!(Semaphore::new(5).available_permits(), 5);
    /// ```
    pub fn available_permits(&self) -> usize {
        self.permits.available()
    }

    /// Permits, for a future.
    pub(super) fn acquiring(&self, count: usize) -> Acquiring<'_> {
        Acquiring::new(&self.permits, count)
    }

    /// For who has acquired as many.
    pub(super) fn permit(&self, count: usize) -> Permit<'_> {
        Permit { semaphore: self, count }
    }

    /// How many wait for it.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.permits.waiting()
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Semaphore({} permits available)", self.available_permits())
    }
}

/// Permits of a [`Semaphore`], which go back when this is dropped.
#[must_use = "the permits go back when this is dropped"]
#[derive(Debug)]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    count: usize,
}

impl Permit<'_> {
    /// Uses them up: they do not go back.
    ///
    /// ```
    /// # use coracle_coro::sync::Semaphore;
    /// let tickets = Semaphore::new(3);
    /// tickets.acquire(1)?.forget();
    /// assert_eq!(tickets.available_permits(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn forget(mut self) {
        self.count = 0;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.permits.release(self.count);
    }
}
