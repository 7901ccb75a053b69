//! Wakes of a loop's coroutines that come from other threads: those that come together cost one posted job.
#![allow(unsafe_code)]

use crate::scheduler::Scheduler;
use crate::task::Key;
use coracle_loop::{Loop, LoopHandle, PostError};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Waits that are over, of which the loop is to be told. Whoever puts the first one in posts a job that takes all.
#[derive(Default)]
pub(crate) struct Inbox(Mutex<Vec<(Key, u64)>>);

impl Inbox {
    /// The wait with this ticket, of the task with this key, is over. Any thread.
    pub(crate) fn put(&self, handle: &LoopHandle, key: Key, ticket: u64) {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.push((key, ticket));
        let first = waits.len() == 1;
        drop(waits);
        if first {
            post(handle, |lp| Scheduler::of(lp).take_in());
        }
    }

    /// Takes all, and leaves `empty` for the next.
    pub(crate) fn take(&self, empty: Vec<(Key, u64)>) -> Vec<(Key, u64)> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), empty)
    }
}

/// From a sleeper to the inbox of its loop, when it has one. Keeps the inbox. A `OnceLock` in half the room.
#[derive(Default)]
pub(crate) struct Way(AtomicPtr<Inbox>);

impl Way {
    /// Does nothing if it leads to one already.
    #[inline]
    pub(crate) fn lead_to(&self, inbox: &Arc<Inbox>) {
        if self.0.load(Ordering::Relaxed).is_null() {
            let counted = Arc::into_raw(Arc::clone(inbox)).cast_mut();
            let order = (Ordering::Release, Ordering::Relaxed);
            if self.0.compare_exchange(null_mut(), counted, order.0, order.1).is_err() {
                // SAFETY: it came from an `Arc` two lines ago, and nobody has got it.
                drop(unsafe { Arc::from_raw(counted) });
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&Inbox> {
        // SAFETY: null, or one whose count is ours until we are dropped.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        let inbox = *self.0.get_mut();
        if !inbox.is_null() {
            // SAFETY: it came from an `Arc`, whose count is ours.
            drop(unsafe { Arc::from_raw(inbox) });
        }
    }
}

/// A wake-up must not be lost, so a loop that is behind with its posted jobs is waited for. One that is gone has
/// nobody left who waits.
pub(crate) fn post(handle: &LoopHandle, job: impl FnOnce(&Loop) + Clone + Send + 'static) {
    while handle.post(job.clone()) == Err(PostError::Full) {
        thread::yield_now();
    }
}
