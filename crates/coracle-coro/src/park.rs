//! Giving up one's turn: until unparked, or only until the others had theirs.

use crate::current;
use crate::deadline;
use crate::waiter::{Waiter, refuse_callbacks};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Lets all that are ready now have their turn first.
///
/// It is no wait: it cannot fail, and a [cancel](crate::JoinHandle::cancel) does not strike it. A long
/// calculation calls it now and then, so that the loop can do its other work. In a plain thread it is
/// `std::thread::yield_now`.
///
/// # Panics
/// In a callback of a loop.
///
/// ```
/// use std::{cell::Cell, rc::Rc};
///
/// coracle_coro::run(|| {
///     let seen = Rc::new(Cell::new(false));
///     let shared = Rc::clone(&seen);
///     coracle_coro::spawn(move || shared.set(true));
///     coracle_coro::yield_now();
///     assert!(seen.get());
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn yield_now() {
    current::with(|frame| match frame {
        Some(frame) => {
            frame.assert_may_park();
            if !thread::panicking() {
                frame.give_way();
            }
        }
        None => yield_thread(),
    });
}

#[cold]
fn yield_thread() {
    refuse_callbacks();
    thread::yield_now();
}

/// Waits until somebody calls [`unpark`](crate::Coroutine::unpark) on its handle, as `std::thread::park` does.
///
/// An `unpark` that came before is not lost: there is one permit, which `unpark` leaves and `park` takes.
/// In a plain thread, too.
///
/// # Errors
/// `ECANCELED` if the coroutine is [cancelled](crate::JoinHandle::cancel), `TimedOut` if a
/// [`timeout`](crate::timeout) around it is over.
///
/// # Panics
/// In a callback of a loop.
///
/// ```
/// coracle_coro::run(|| {
///     let parked = coracle_coro::spawn(coracle_coro::park);
///     parked.coroutine().unpark();
///     parked.join().unwrap()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn park() -> io::Result<()> {
    Waiter::park(None).result()
}

/// As [`park`], for `timeout` at most. That it was over is no error; nor is it told.
///
/// # Errors
/// As [`park`].
///
/// ```
/// use std::time::Duration;
///
/// coracle_coro::run(|| coracle_coro::park_timeout(Duration::from_millis(1)))?; // nobody unparks it
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn park_timeout(timeout: Duration) -> io::Result<()> {
    park_until(deadline::after(timeout))
}

fn park_until(own: Instant) -> io::Result<()> {
    let outer = deadline::limit();
    deadline::ended(Waiter::park(Some(own)), Some(own), outer)
}
