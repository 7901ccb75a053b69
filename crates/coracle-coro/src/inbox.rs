//! Wakes of a loop's coroutines that come from other threads: those that come together cost one posted job.

use crate::primitive::{Lock, Loop, LoopHandle, PostError};
use crate::scheduler::Scheduler;
use crate::task::Key;
use std::thread;

/// Waits that are over, of which the loop is to be told. Whoever puts the first one in posts a job that takes all.
pub(crate) struct Inbox(Lock<Vec<(Key, u64)>>);

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox(Lock::new(Vec::new()))
    }
}

impl Inbox {
    /// The wait with this ticket, of the task with this key, is over. Any thread.
    pub(crate) fn put(&self, handle: &LoopHandle, key: Key, ticket: u64) {
        let mut waits = self.0.lock();
        waits.push((key, ticket));
        let first = waits.len() == 1;
        drop(waits);
        if first {
            post(handle, |lp| Scheduler::of(lp).take_in());
        }
    }

    /// Takes all, and leaves `empty` for the next.
    pub(crate) fn take(&self, empty: Vec<(Key, u64)>) -> Vec<(Key, u64)> {
        std::mem::replace(&mut *self.0.lock(), empty)
    }
}

/// Has a loop do something, however many jobs wait there. One that is gone has nobody left who waits.
///
/// A loop that is behind with its posted jobs is waited for, since nothing may be lost. Not by another loop, which
/// might be the one that it waits for: that one tries again when it has done some of its own.
pub(crate) fn post(handle: &LoopHandle, job: impl FnOnce(&Loop) + Clone + Send + 'static) {
    while handle.post(job.clone()) == Err(PostError::Full) {
        if let Some(lp) = Loop::current() {
            let later = Later { handle: handle.clone(), job: Some(job) };
            lp.defer(move |_| drop(later));
            return;
        }
        thread::yield_now();
    }
}

/// A job that is posted when this is dropped: later, or with the loop that wanted it done.
struct Later<J: FnOnce(&Loop) + Clone + Send + 'static> {
    handle: LoopHandle,
    job: Option<J>,
}

impl<J: FnOnce(&Loop) + Clone + Send + 'static> Drop for Later<J> {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            post(&self.handle, job);
        }
    }
}
