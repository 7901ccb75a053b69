//! The way from a sleeper to the inbox of its loop.
#![allow(unsafe_code)]

use crate::inbox::Inbox;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

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
