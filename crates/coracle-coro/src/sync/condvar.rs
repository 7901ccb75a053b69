//! Waiting until something has become true.

use crate::primitive::Lock;
use crate::sync::deadline;
use crate::sync::failure::Failure;
use crate::sync::line::Line;
use crate::sync::mutex::MutexGuard;
use crate::waiter::Waiter;
use crate::waits_for::WaitsFor;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// Waits until somebody says that something has changed: like [`std::sync::Condvar`], but only the coroutine
/// waits.
///
/// ```
/// use coracle_coro::sync::{Condvar, Mutex};
///
/// let (ready, changed) = (Mutex::new(false), Condvar::new());
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         *ready.lock().unwrap() = true;
///         changed.notify_one();
///     });
///     let ready = changed.wait_while(ready.lock()?, |ready| !*ready)?;
///     assert!(*ready);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A wait may end although nobody has notified, so look whether it is true, as `wait_while` does. Whoever waits
/// longest is notified first.
///
/// # Errors
/// All its waits fail with `ECANCELED` if the coroutine is cancelled, and with `TimedOut` if a
/// [`timeout`](crate::timeout) around them is over. The mutex is **not locked** then, and the guard is gone: there
/// is nothing to do but to walk out. If that one had been notified, another is in its place.
pub struct Condvar {
    line: Lock<Line<()>>,
}

impl Condvar {
    /// One that nobody waits for.
    ///
    /// ```
    /// # use coracle_coro::sync::Condvar;
    /// static CHANGED: Condvar = Condvar::new();
    /// ```
    pub const fn new() -> Condvar {
        Condvar { line: Lock::new(Line::new()) }
    }

    /// Unlocks the mutex, waits for a notification, and locks the mutex again.
    ///
    /// ```
    /// # use coracle_coro::sync::{Condvar, Mutex};
    /// # let (count, changed) = (Mutex::new(0), Condvar::new());
    /// # std::thread::scope(|scope| {
    /// # scope.spawn(|| { *count.lock().unwrap() = 3; changed.notify_all(); });
    /// let mut guard = count.lock()?;
    /// while *guard < 3 {
    ///     guard = changed.wait(guard)?;
    /// }
    /// # Ok::<(), std::io::Error>(()) })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [above](Condvar#errors).
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> io::Result<MutexGuard<'a, T>> {
        self.wait_until(guard, None).map(|(guard, _)| guard)
    }

    /// Waits while `condition` is true.
    ///
    /// ```
    /// # use coracle_coro::sync::{Condvar, Mutex};
    /// let (jobs, changed) = (Mutex::new(vec!["wash"]), Condvar::new());
    /// let mut jobs = changed.wait_while(jobs.lock()?, |jobs| jobs.is_empty())?;
    /// assert_eq!(jobs.pop(), Some("wash"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [above](Condvar#errors).
    pub fn wait_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> io::Result<MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// As [`wait`](Condvar::wait), but no longer than `timeout`; says whether it was that long.
    ///
    /// ```
    /// # use coracle_coro::sync::{Condvar, Mutex};
    /// # use std::time::Duration;
    /// let (mutex, changed) = (Mutex::new(()), Condvar::new());
    /// let (_guard, result) = changed.wait_timeout(mutex.lock()?, Duration::from_millis(1))?;
    /// assert!(result.timed_out());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// Locking the mutex again may take longer.
    ///
    /// # Errors
    /// See [above](Condvar#errors).
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> io::Result<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        self.wait_until(guard, deadline::after(timeout))
    }

    /// As [`wait_while`](Condvar::wait_while), but no longer than `timeout`; says whether it was that long and
    /// `condition` still true.
    ///
    /// ```
    /// # use coracle_coro::sync::{Condvar, Mutex};
    /// # use std::time::Duration;
    /// let (jobs, changed) = (Mutex::new(Vec::<u32>::new()), Condvar::new());
    /// let (jobs, result) =
    ///     changed.wait_timeout_while(jobs.lock()?, Duration::from_millis(1), |jobs| jobs.is_empty())?;
    /// assert!(result.timed_out() && jobs.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [above](Condvar#errors).
    pub fn wait_timeout_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> io::Result<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let deadline = deadline::after(timeout);
        let mut timed_out = false;
        while condition(&mut guard) {
            if timed_out {
                return Ok((guard, WaitTimeoutResult { timed_out }));
            }
            let result;
            (guard, result) = self.wait_until(guard, deadline)?;
            timed_out = result.timed_out;
        }
        Ok((guard, WaitTimeoutResult { timed_out: false }))
    }

    /// Ends the wait of whoever has waited longest, if anybody waits. Any thread, with or without the mutex.
    ///
    /// ```
    /// # use coracle_coro::sync::Condvar;
    /// Condvar::new().notify_one(); // nobody waits: nothing happens, and nothing is remembered
    /// ```
    pub fn notify_one(&self) {
        self.line.lock().wake_first();
    }

    /// Ends the waits of all who wait. Any thread, with or without the mutex.
    ///
    /// ```
    /// # use coracle_coro::sync::Condvar;
    /// Condvar::new().notify_all();
    /// ```
    pub fn notify_all(&self) {
        self.line.lock().wake_all();
    }

    fn wait_until<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> io::Result<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let (mutex, outer) = (MutexGuard::mutex(&guard), deadline::limit());
        let waiter = Waiter::new().waiting_for(WaitsFor::Condvar);
        // Before the mutex is unlocked: whoever changes something after that finds us here.
        let ticket = self.line.lock().join(waiter.waker(), ());
        drop(guard);
        let failure = Failure::of(waiter.wait(deadline));
        if failure.is_some() {
            self.line.lock().leave(ticket);
        }
        let timed_out = match failure {
            None => false,
            Some(Failure::TimedOut) if deadline::is_first(deadline, outer) => true,
            Some(failure) => return Err(failure.into()),
        };
        let locked = mutex.lock();
        if locked.is_err() && !timed_out {
            self.notify_one(); // we were told, and cannot see to it
        }
        Ok((locked?, WaitTimeoutResult { timed_out }))
    }

    /// How many wait for it.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.line.lock().len()
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}

/// Whether a wait ended because its time was up.
///
/// ```
/// # use coracle_coro::sync::{Condvar, Mutex};
/// # let mutex = Mutex::new(());
/// let (_, result) = Condvar::new().wait_timeout(mutex.lock()?, std::time::Duration::ZERO)?;
/// assert!(result.timed_out());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult {
    timed_out: bool,
}

impl WaitTimeoutResult {
    /// Whether it did. If not, somebody has notified.
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }
}
