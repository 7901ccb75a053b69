//! Where threads put results for the loop that asked for them.

use crate::lock::Lock;
use crate::wakeup::Waker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The loop's end. Looking into an empty one is a single load.
pub(crate) struct Mailbox<K, V> {
    shared: Arc<Shared<K, V>>,
}

struct Shared<K, V> {
    full: AtomicBool,
    letters: Lock<Vec<(K, V)>>,
    waker: Waker,
}

/// A thread's end.
pub(crate) struct Letterbox<K, V> {
    shared: Arc<Shared<K, V>>,
}

impl<K, V> Mailbox<K, V> {
    pub(crate) fn new(waker: Waker) -> Mailbox<K, V> {
        let letters = Lock::new(Vec::new());
        Mailbox { shared: Arc::new(Shared { full: AtomicBool::new(false), letters, waker }) }
    }

    pub(crate) fn letterbox(&self) -> Letterbox<K, V> {
        Letterbox { shared: Arc::clone(&self.shared) }
    }

    /// Takes everything that has arrived.
    #[inline]
    pub(crate) fn take(&self) -> Vec<(K, V)> {
        if !self.shared.full.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut letters = self.shared.letters.lock();
        self.shared.full.store(false, Ordering::Release);
        std::mem::take(&mut letters)
    }
}

impl<K, V> Letterbox<K, V> {
    /// Delivers one result, and wakes the loop if it is the first since it last looked.
    pub(crate) fn deliver(&self, key: K, value: V) {
        let mut letters = self.shared.letters.lock();
        letters.push((key, value));
        let was_full = self.shared.full.swap(true, Ordering::AcqRel);
        drop(letters);
        if !was_full {
            self.shared.waker.wake();
        }
    }
}
