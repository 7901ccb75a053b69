//! Running and dropping what users wrote: a panic of theirs ends here.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `f`. `None` if it panicked.
#[inline(always)] // on the way of every message
pub(crate) fn guard<T>(f: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => Some(result),
        Err(panic) => {
            forget_panic(panic);
            None
        }
    }
}

/// Drops `value`. False if that panicked.
///
/// Drop the parts of a collection one by one: two that panic while one unwinds would end the process.
pub(crate) fn discard<T>(value: T) -> bool {
    guard(|| drop(value)).is_some()
}

/// Calls something of the user's that belongs to no connection. A panic of its is told to people, and ends here.
pub(crate) fn call(what: &str, f: impl FnOnce()) {
    if guard(f).is_none() {
        tracing::error!("{what} panicked");
    }
}

/// A value that is [discarded](discard) when it is dropped: for one beside another of the user's.
pub(crate) struct Guarded<T>(Option<T>);

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Guarded<T> {
        Guarded(Some(value))
    }

    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().expect("it is taken once")
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        discard(self.0.take());
    }
}

/// Drops what a panic has carried, which is a value of the user's too.
#[cold]
fn forget_panic(panic: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another); // enough
    }
}
