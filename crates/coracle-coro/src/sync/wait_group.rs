//! Until all are done.

use crate::budget;
use crate::primitive::Lock;
use crate::sync::deadline;
use crate::sync::failure::Failure;
use crate::sync::line::Line;
use crate::waiter::Waiter;
use crate::waits_for::WaitsFor;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counts those who are still at work, and waits until nobody is.
///
/// ```
/// use coracle_coro::sync::WaitGroup;
///
/// let group = WaitGroup::new();
/// for _ in 0..3 {
///     let member = group.add();
///     std::thread::spawn(move || {
///         // … work …
///         member.done(); // or when it is dropped, by a panic say
///     });
/// }
/// group.wait()?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A clone is the same group. It can be used again when all are done.
#[derive(Clone)]
pub struct WaitGroup {
    shared: Arc<Lock<State>>,
}

struct State {
    members: usize,
    line: Line<()>,
}

impl WaitGroup {
    /// A group without members.
    ///
    /// ```
    /// # use coracle_coro::sync::WaitGroup;
    /// WaitGroup::new().wait()?; // nobody is at work
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> WaitGroup {
        let state = State { members: 0, line: Line::new() };
        WaitGroup { shared: Arc::new(Lock::new(state)) }
    }

    /// One more who is at work, until what this returns is dropped. Any thread.
    ///
    /// ```
    /// # use coracle_coro::sync::WaitGroup;
    /// let group = WaitGroup::new();
    /// let member = group.add();
    /// assert_eq!(group.members(), 1);
    /// member.done();
    /// assert_eq!(group.members(), 0);
    /// ```
    pub fn add(&self) -> Member {
        self.shared.lock().members += 1;
        Member { group: self.clone() }
    }

    /// How many are at work, at one moment. Any thread.
    ///
    /// ```
    /// # use coracle_coro::sync::WaitGroup;
    /// assert_eq!(WaitGroup::new().members(), 0);
    /// ```
    pub fn members(&self) -> usize {
        self.shared.lock().members
    }

    /// Waits until nobody is at work.
    ///
    /// ```
    /// # use coracle_coro::sync::WaitGroup;
    /// let group = WaitGroup::new();
    /// let member = group.add();
    /// std::thread::spawn(move || drop(member));
    /// group.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ECANCELED` if the coroutine is cancelled first, `TimedOut` if a [`timeout`](crate::timeout)
    /// around it is over.
    pub fn wait(&self) -> io::Result<()> {
        self.wait_until(None)
    }

    /// The same, but no longer than `timeout`.
    ///
    /// ```
    /// # use coracle_coro::sync::WaitGroup;
    /// # use std::{io::ErrorKind, time::Duration};
    /// let group = WaitGroup::new();
    /// let member = group.add();
    /// let error = group.wait_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// ```
    ///
    /// # Errors
    /// `TimedOut`, or as for [`wait`](WaitGroup::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.wait_until(deadline::after(timeout))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> io::Result<()> {
        budget::begin()?;
        if self.members() == 0 {
            return Ok(());
        }
        // It may refuse, or take its time: not under the lock.
        let waiter = Waiter::new().waiting_for(WaitsFor::WaitGroup);
        let ticket = {
            let mut state = self.shared.lock();
            if state.members == 0 {
                return Ok(());
            }
            state.line.join(waiter.waker(), ())
        };
        let Some(failure) = Failure::of(waiter.wait(deadline)) else { return Ok(()) };
        self.shared.lock().line.leave(ticket);
        Err(failure.into())
    }

    /// How many wait for it.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.shared.lock().line.len()
    }
}

impl Default for WaitGroup {
    fn default() -> WaitGroup {
        WaitGroup::new()
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitGroup({} members)", self.members())
    }
}

/// One who is at work for a [`WaitGroup`], until this is dropped.
#[must_use = "who is dropped at once has done nothing"]
#[derive(Debug)]
pub struct Member {
    group: WaitGroup,
}

impl Member {
    /// The work is done. Dropping it means the same.
    ///
    /// ```
    /// # use coracle_coro::sync::WaitGroup;
    /// let group = WaitGroup::new();
    /// group.add().done();
    /// assert_eq!(group.members(), 0);
    /// ```
    pub fn done(self) {}
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.group.shared.lock();
        state.members -= 1;
        if state.members == 0 {
            state.line.wake_all();
        }
    }
}
