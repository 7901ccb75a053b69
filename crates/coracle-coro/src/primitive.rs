//! What std has for threads that share something. Nobody holds a lock of this kind while he waits.
//!
//! It stands here so that the models in `tests` can put loom's in its place; and, for the same reason, loops as
//! those see them who post to them.

pub(crate) use coracle_loop::demux::lock::Lock;
pub(crate) use coracle_loop::{Loop, LoopHandle, PostError};
use std::cell::UnsafeCell;
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, fence};
pub(crate) use std::thread::yield_now;

/// Something that one at a time touches, for a reason that the compiler does not know.
pub(crate) struct Shared<T>(UnsafeCell<T>);

impl<T> Shared<T> {
    pub(crate) const fn new(value: T) -> Shared<T> {
        Shared(UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, touch: impl FnOnce(*mut T) -> R) -> R {
        touch(self.0.get())
    }
}
