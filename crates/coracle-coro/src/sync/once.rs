//! Something that is done once.

use crate::primitive::Lock;
use crate::sync::deadline;
use crate::sync::failure::Failure;
use crate::sync::line::Line;
use crate::sync::permits::Permits;
use crate::waiter::Waiter;
use crate::waits_for::WaitsFor;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// A value that is set once: like [`std::sync::OnceLock`], but only the coroutine waits.
///
/// What makes the value may wait for something itself, a connection say. Others that want it at the same time
/// wait for it; on a loop with std's they would hold up the very thread it is made on.
///
/// ```
/// use coracle_coro::sync::OnceLock;
///
/// static CONFIG: OnceLock<String> = OnceLock::new();
///
/// let config = CONFIG.get_or_init(|| "as read from a file".to_owned())?;
/// assert_eq!(config, CONFIG.get().unwrap());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// `OnceLock<()>` is a flag that is raised once, and can be [waited](OnceLock::wait) for.
pub struct OnceLock<T> {
    /// Never waited for: it is only ever looked at, or set.
    value: std::sync::OnceLock<T>,
    /// The right to make the value.
    turn: Permits,
    /// Those who wait for it and will not make it.
    line: Lock<Line<()>>,
}

impl<T> OnceLock<T> {
    /// Without a value.
    ///
    /// ```
    /// # use coracle_coro::sync::OnceLock;
    /// static STOPPED: OnceLock<()> = OnceLock::new();
    /// ```
    pub const fn new() -> OnceLock<T> {
        OnceLock {
            value: std::sync::OnceLock::new(),
            turn: Permits::new(1),
            line: Lock::new(Line::new()),
        }
    }

    /// The value, if it is set. Never waits.
    ///
    /// ```
    /// # use coracle_coro::sync::OnceLock;
    /// assert_eq!(OnceLock::<u32>::new().get(), None);
    /// ```
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Sets the value, if there is none. Never waits: if another is making one meanwhile, this one counts.
    ///
    /// ```
    /// # use coracle_coro::sync::OnceLock;
    /// let once = OnceLock::new();
    /// assert_eq!(once.set(1), Ok(()));
    /// assert_eq!(once.set(2), Err(2));
    /// assert_eq!(once.get(), Some(&1));
    /// ```
    ///
    /// # Errors
    /// There is a value. The new one is given back.
    pub fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.line.lock().wake_all();
        Ok(())
    }

    /// The value. If there is none, `init` makes it; if another is making it, waits for that.
    ///
    /// ```
    /// # use coracle_coro::sync::OnceLock;
    /// let once = OnceLock::new();
    /// assert_eq!(*once.get_or_init(|| 1)?, 1);
    /// assert_eq!(*once.get_or_init(|| 2)?, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// If `init` panics there is no value, and the next in the line makes it. If `init` wants the value itself,
    /// it waits for ever.
    ///
    /// # Errors
    /// `ECANCELED` if the coroutine is cancelled while another makes the value, `TimedOut` if a
    /// [`timeout`](crate::timeout) around it is over.
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> io::Result<&T> {
        self.get_or_try_init(|| Ok(init()))
    }

    /// The same, for what can fail. Then there is no value, and the next in the line makes it.
    ///
    /// ```
    /// # use coracle_coro::sync::OnceLock;
    /// # use std::io;
    /// let once = OnceLock::new();
    /// let error = once.get_or_try_init(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
    /// assert!(error.is_err());
    /// assert_eq!(*once.get_or_try_init(|| Ok(1))?, 1);
    /// # Ok::<(), io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `init`, and as above.
    pub fn get_or_try_init(&self, init: impl FnOnce() -> io::Result<T>) -> io::Result<&T> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        self.turn.acquire(1, None, WaitsFor::Once)?;
        let _turn = Turn(&self.turn);
        if self.get().is_none() {
            // Somebody may have set one meanwhile. Ours is dropped then.
            let _ = self.set(init()?);
        }
        Ok(self.get().expect("it is set"))
    }

    /// Waits until somebody has set the value.
    ///
    /// ```
    /// # use coracle_coro::sync::OnceLock;
    /// let stopped = OnceLock::new();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| stopped.set(()));
    ///     stopped.wait().unwrap();
    /// });
    /// ```
    ///
    /// # Errors
    /// `ECANCELED` if the coroutine is cancelled first, `TimedOut` if a
    /// [`timeout`](crate::timeout) around it is over.
    pub fn wait(&self) -> io::Result<&T> {
        self.wait_until(None)
    }

    /// The same, but no longer than `timeout`.
    ///
    /// ```
    /// # use coracle_coro::sync::OnceLock;
    /// # use std::{io::ErrorKind, time::Duration};
    /// let stopped = OnceLock::<()>::new();
    /// assert_eq!(stopped.wait_timeout(Duration::ZERO).unwrap_err().kind(), ErrorKind::TimedOut);
    /// ```
    ///
    /// # Errors
    /// `TimedOut`, or as for [`wait`](OnceLock::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> io::Result<&T> {
        self.wait_until(deadline::after(timeout))
    }

    /// The value, without what is around it.
    ///
    /// ```
    /// # use coracle_coro::sync::OnceLock;
    /// assert_eq!(OnceLock::<u32>::new().into_inner(), None);
    /// ```
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }

    fn wait_until(&self, deadline: Option<Instant>) -> io::Result<&T> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        // It may refuse, or take its time: not under the lock.
        let waiter = Waiter::new().waiting_for(WaitsFor::Once);
        let ticket = {
            let mut line = self.line.lock();
            // Who sets it comes for the lock after that, so he has been here already, or will be.
            if let Some(value) = self.get() {
                return Ok(value);
            }
            line.join(waiter.waker(), ())
        };
        let Some(failure) = Failure::of(waiter.wait(deadline)) else {
            return Ok(self.get().expect("it is set"));
        };
        self.line.lock().leave(ticket);
        self.get().ok_or(failure.into())
    }

    /// How many wait for it.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.turn.waiting() + self.line.lock().len()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(value) => write!(f, "OnceLock({value:?})"),
            None => f.write_str("OnceLock(unset)"),
        }
    }
}

/// Gives the right to make the value to the next, also when the making of it panics.
struct Turn<'a>(&'a Permits);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.release(1);
    }
}

/// Something that is done once: like [`std::sync::Once`], but only the coroutine waits.
///
/// ```
/// use coracle_coro::sync::Once;
///
/// static START: Once = Once::new();
///
/// START.call_once(|| println!("this is printed once"))?;
/// START.call_once(|| unreachable!())?;
/// assert!(START.is_completed());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Once(OnceLock<()>);

impl Once {
    /// Not done yet.
    ///
    /// ```
    /// # use coracle_coro::sync::Once;
    /// assert!(!Once::new().is_completed());
    /// ```
    pub const fn new() -> Once {
        Once(OnceLock::new())
    }

    /// Calls `f` if nobody has done so; waits for it if another is doing it. After a panic of `f`, it is the
    /// next one's turn.
    ///
    /// ```
    /// # use coracle_coro::sync::Once;
    /// let (once, mut count) = (Once::new(), 0);
    /// once.call_once(|| count += 1)?;
    /// once.call_once(|| count += 1)?;
    /// assert_eq!(count, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ECANCELED` if the coroutine is cancelled while another does it, `TimedOut` if a
    /// [`timeout`](crate::timeout) around it is over.
    pub fn call_once(&self, f: impl FnOnce()) -> io::Result<()> {
        self.0.get_or_init(f).copied()
    }

    /// Whether it is done. Never waits.
    ///
    /// ```
    /// # use coracle_coro::sync::Once;
    /// let once = Once::new();
    /// once.call_once(|| {})?;
    /// assert!(once.is_completed());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_completed(&self) -> bool {
        self.0.get().is_some()
    }
}
