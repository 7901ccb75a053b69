//! Waiting for nothing but time.

use crate::deadline;
use crate::waiter::Waiter;
use crate::waits_for::WaitsFor;
use std::io;
use std::time::{Duration, Instant};

/// Waits for `duration`, by the monotonic clock. Never less.
///
/// A coroutine gives up its turn; a plain thread sleeps.
///
/// # Errors
/// `ECANCELED` if the coroutine is [cancelled](crate::JoinHandle::cancel), `TimedOut` if a
/// [`timeout`](crate::timeout) around it is over before. Unlike `std::thread::sleep`, it can fail: who
/// ignores that goes on too early.
///
/// # Panics
/// In a callback of a loop: see the [introduction](crate#where-one-can-wait).
///
/// ```
/// use std::time::Duration;
///
/// coracle_coro::run(|| coracle_coro::sleep(Duration::from_millis(2)))?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn sleep(duration: Duration) -> io::Result<()> {
    sleep_until(deadline::after(duration))
}

/// Waits until `deadline`, with nobody to wake it.
///
/// A coroutine gives up its turn, even if the deadline has passed; other coroutines of the loop run meanwhile.
///
/// # Errors
/// As [`sleep`].
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(2);
/// coracle_coro::sleep_until(deadline)?;
/// assert!(Instant::now() >= deadline);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn sleep_until(deadline: Instant) -> io::Result<()> {
    let outer = deadline::limit();
    deadline::ended(
        Waiter::new().waiting_for(WaitsFor::Time(deadline)).wait(Some(deadline)),
        Some(deadline),
        outer,
    )
}
