//! How many waits of a coroutine were cut short, by a cancel or by time.
//!
//! Whoever lends out something that must not be half used, as a [connection](crate::conn_pool) is, counts before
//! and after: if a wait has failed in between, a request may have been sent whose answer is still to come.

use crate::current;
use std::cell::Cell;

thread_local! {
    /// Of a plain thread; a coroutine has its own.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// How many there were until now, of whoever calls.
pub(crate) fn count() -> u64 {
    with(Cell::get)
}

/// A wait of whoever calls was cut short.
#[cold]
pub(crate) fn note() {
    with(|count| count.set(count.get().wrapping_add(1)));
}

/// The last one had come to the end that was asked for: it was a `sleep`, or a `park_timeout`.
pub(crate) fn forgive() {
    with(|count| count.set(count.get().wrapping_sub(1)));
}

fn with<R>(look: impl FnOnce(&Cell<u64>) -> R) -> R {
    current::with(|frame| match frame {
        Some(frame) => look(&frame.failed_waits),
        None => THREAD.with(look),
    })
}
