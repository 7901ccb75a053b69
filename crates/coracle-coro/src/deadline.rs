//! A deadline over any blocking code: the waits inside it fail when it has passed.

use crate::current;
use crate::failures;
use crate::waiter::Woken;
use coracle_loop::Loop;
use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

thread_local! {
    /// Of a plain thread; a coroutine has its own.
    static THREAD: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Runs `f`, whose waits fail with `TimedOut` from `timeout` from now on.
///
/// It ends nothing by force: the error comes out of the wait, and `?` carries it on. What waits for nothing is not
/// interrupted. A deadline inside another can only be earlier.
///
/// ```
/// use std::io::ErrorKind;
/// use std::time::Duration;
///
/// coracle_coro::run(|| {
///     let late = coracle_coro::timeout(Duration::from_millis(1), || {
///         coracle_coro::sleep(Duration::from_secs(3600))
///     });
///     assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn timeout<T>(timeout: Duration, f: impl FnOnce() -> T) -> T {
    deadline(after(timeout), f)
}

/// As [`timeout`], until a point in time.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let soon = Instant::now() + Duration::from_millis(1);
/// let late = coracle_coro::deadline(soon, coracle_coro::park); // also in a plain thread
/// assert!(late.is_err());
/// ```
pub fn deadline<T>(deadline: Instant, f: impl FnOnce() -> T) -> T {
    let before = limit();
    let _restore = Restore(before);
    set_limit(Some(before.map_or(deadline, |before| before.min(deadline))));
    f()
}

/// Puts the deadline around back in force, also after a panic.
struct Restore(Option<Instant>);

impl Drop for Restore {
    fn drop(&mut self) {
        set_limit(self.0);
    }
}

/// The earliest deadline around the caller.
pub(crate) fn limit() -> Option<Instant> {
    current::with(|frame| match frame {
        Some(frame) => frame.deadline.get(),
        None => THREAD.get(),
    })
}

/// Puts another in force.
pub(crate) fn set_limit(limit: Option<Instant>) {
    current::with(|frame| match frame {
        Some(frame) => frame.deadline.set(limit),
        None => THREAD.set(limit),
    });
}

/// `timeout` from now, by the clock of whoever calls: in a coroutine that of its loop, which may be a
/// simulated one.
pub(crate) fn after(timeout: Duration) -> Instant {
    match Loop::current() {
        Some(lp) => lp.deadline(timeout),
        None => {
            let now = Instant::now();
            now.checked_add(timeout).unwrap_or_else(|| now + Duration::from_secs(1 << 32))
        }
    }
}

/// The time by that clock, which stands still while coroutines run.
pub(crate) fn now() -> Instant {
    Loop::current().map_or_else(Instant::now, |lp| lp.now())
}

/// What came of a wait whose own deadline is no error. `outer` is the earliest of those around it.
pub(crate) fn ended(woken: Woken, own: Option<Instant>, outer: Option<Instant>) -> io::Result<()> {
    let is_own = own.is_some_and(|own| outer.is_none_or(|outer| own <= outer));
    if woken == Woken::TimedOut && is_own {
        failures::forgive();
        return Ok(());
    }
    woken.result()
}
