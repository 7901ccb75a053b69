//! Code that must not be interrupted by other coroutines of its thread.

use crate::current;

/// Runs `f`, in which every wait is a panic.
///
/// For code that relies on nobody else running on this thread meanwhile: a closure that keeps a borrowed
/// pointer in a thread-local, a `RefCell` that is borrowed, a `std::sync::Mutex` that is held. Outside a
/// coroutine it does nothing.
///
/// ```
/// use coracle_coro::{no_park, spawn, yield_now};
///
/// coracle_coro::run(|| {
///     assert_eq!(no_park(|| 1 + 2), 3);
///     let careless = spawn(|| no_park(yield_now));
///     assert!(careless.join().is_err());
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn no_park<R>(f: impl FnOnce() -> R) -> R {
    count(1);
    let _leave = Leave;
    f()
}

/// Also after a panic.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        count(-1);
    }
}

fn count(by: i32) {
    current::with(|frame| {
        if let Some(frame) = frame {
            frame.no_park.set(frame.no_park.get().saturating_add_signed(by));
        }
    });
}
