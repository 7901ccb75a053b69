//! A connection that is out, and whether it may be used again.

use super::Slot;
use crate::coroutine::CoroutineId;
use crate::current;
use crate::failures;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A connection of a [`ConnPool`](super::ConnPool). Dropping it gives it back, or closes it: see
/// [which are used again](super#which-connections-are-used-again).
///
/// ```
/// use coracle_coro::conn_pool::{ConnPool, ConnPoolSettings};
///
/// let pool = ConnPool::new(ConnPoolSettings::default(), || Ok(Vec::new()))?;
/// pool.get()?.push("kept");
/// assert_eq!(*pool.get()?, ["kept"]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "the connection goes back when this is dropped"]
pub struct PooledConn<T> {
    /// There until it is dropped. Before the slot: it is closed before another may be opened.
    connection: Option<T>,
    slot: Slot<T>,
    holder: CoroutineId,
    /// How many waits of the holder had failed when it got the connection.
    failures: u64,
    /// Somebody else has used it, or it was discarded.
    spoiled: AtomicBool,
}

impl<T> PooledConn<T> {
    pub(super) fn new(connection: T, slot: Slot<T>) -> PooledConn<T> {
        PooledConn {
            connection: Some(connection),
            slot,
            holder: caller(),
            failures: failures::count(),
            spoiled: AtomicBool::new(false),
        }
    }

    /// Closes the connection, instead of giving it back: after an error of the protocol, say.
    ///
    /// ```
    /// # use coracle_coro::conn_pool::{ConnPool, ConnPoolSettings};
    /// let pool = ConnPool::new(ConnPoolSettings::default(), || Ok(()))?;
    /// pool.get()?.discard();
    /// assert_eq!(pool.stats().idle, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn discard(self) {
        self.spoiled.store(true, Ordering::Relaxed);
    }

    /// Whether it could be used by the next.
    fn is_clean(&self) -> bool {
        let cancelled =
            current::with(|frame| frame.is_some_and(|frame| frame.sleeper.is_cancelled()));
        self.note_caller();
        !self.spoiled.load(Ordering::Relaxed)
            && !cancelled
            && !thread::panicking()
            && failures::count() == self.failures
    }

    /// What another coroutine goes through is not known here.
    fn note_caller(&self) {
        if caller() != self.holder {
            self.spoiled.store(true, Ordering::Relaxed);
        }
    }
}

fn caller() -> CoroutineId {
    let coroutine = current::with(|frame| frame.map(|frame| frame.sleeper.id));
    coroutine.unwrap_or_else(|| crate::current().id())
}

impl<T> Drop for PooledConn<T> {
    fn drop(&mut self) {
        let clean = self.is_clean();
        let Some(connection) = self.connection.take() else { return };
        let pool = &self.slot.pool;
        if clean {
            drop(pool.keep(connection)); // what is too many
        } else {
            pool.state.lock().stats.discarded += 1;
            drop(connection);
        }
        // Then the slot goes to the next.
    }
}

impl<T> Deref for PooledConn<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.note_caller();
        self.connection.as_ref().expect("it is there until the guard is dropped")
    }
}

impl<T> DerefMut for PooledConn<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.note_caller();
        self.connection.as_mut().expect("it is there until the guard is dropped")
    }
}

/// Of whatever it is a connection.
impl<T> fmt::Debug for PooledConn<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PooledConn")
    }
}
