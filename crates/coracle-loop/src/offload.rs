//! Blocking or heavy work on a thread of the pool, its result back on the loop.
//!
//! ```text
//!   loop: offload(work, done) ──► pool queue ──► thread: work() ──► result ──post──► loop: done(result)
//! ```

use crate::pool::Pool;
use crate::{Deferred, Loop, LoopHandle};
use coracle_demux::Backend;
use coracle_demux::lock::Lock;
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What waits for work that is elsewhere.
#[derive(Default)]
pub(crate) struct Offloads {
    waiting: HashMap<u64, Deferred>,
    count: u64,
}

impl Offloads {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

/// Why offloaded work has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum OffloadError {
    /// It panicked; this is what it said.
    Panicked(String),
    /// It was dropped before it began: the pool was overloaded or shut down.
    Dropped,
}

impl fmt::Display for OffloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OffloadError::Panicked(message) => write!(f, "offloaded work panicked: {message}"),
            OffloadError::Dropped => f.write_str("offloaded work was dropped before it began"),
        }
    }
}

impl std::error::Error for OffloadError {}

/// The pool's queue is full; nothing was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overloaded;

impl fmt::Display for Overloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot offload: the worker pool's queue is full (limit_queue)")
    }
}

impl std::error::Error for Overloaded {}

impl From<Overloaded> for std::io::Error {
    fn from(overloaded: Overloaded) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::QuotaExceeded, overloaded)
    }
}

/// Where the result of offloaded work is put.
type Slot<T> = Arc<Lock<Parcel<T>>>;

#[derive(Default)]
enum Parcel<T> {
    /// The work is not over. If it is dropped, that is its end.
    #[default]
    Expected,
    Arrived(Result<T, OffloadError>),
    /// The work was refused: nobody waits.
    Unwanted,
}

impl Loop {
    /// Runs `work` on a thread of the pool, then `done` with its result in a turn of this loop. Loop thread
    /// only.
    ///
    /// ```
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// lp.offload(|| std::fs::read_to_string("/proc/version"), |lp, text| {
    ///     assert!(text.unwrap().unwrap().contains("Linux"));
    ///     lp.stop();
    /// }).unwrap();
    /// lp.run().unwrap();
    /// ```
    ///
    /// # Errors
    /// The pool's queue is full and its policy is to refuse. Neither closure is called then.
    pub fn offload<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&Loop, Result<T, OffloadError>) + 'static,
    ) -> Result<(), Overloaded> {
        let slot: Slot<T> = Arc::default();
        let id = self.expect_result(Arc::clone(&slot), done);
        let letter = Letter { id, slot: Arc::clone(&slot), handle: self.handle() };
        let job = move || letter.deliver(run(work));
        if self.inner.backend == Backend::Sim {
            // One thread, so that a replay is a replay: the work is done in a later turn.
            self.defer(move |_| job());
            return Ok(());
        }
        match self.inner.pool.submit(Box::new(job)) {
            Ok(()) => Ok(()),
            Err(refused) => {
                *slot.lock() = Parcel::Unwanted;
                let done = self.inner.offloads.borrow_mut().waiting.remove(&id);
                drop((refused, done)); // when nothing is borrowed: they may use the loop as they go
                Err(Overloaded)
            }
        }
    }

    /// The worker pool this loop offloads to.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    fn expect_result<T: 'static>(
        &self,
        slot: Slot<T>,
        done: impl FnOnce(&Loop, Result<T, OffloadError>) + 'static,
    ) -> u64 {
        let mut offloads = self.inner.offloads.borrow_mut();
        offloads.count += 1;
        let id = offloads.count;
        offloads.waiting.insert(
            id,
            Box::new(move |lp| {
                let parcel = std::mem::take(&mut *slot.lock());
                match parcel {
                    Parcel::Arrived(result) => done(lp, result),
                    Parcel::Expected | Parcel::Unwanted => done(lp, Err(OffloadError::Dropped)),
                }
            }),
        );
        id
    }
}

/// Carries a result back; if it is dropped on the way, carries that.
struct Letter<T: Send + 'static> {
    id: u64,
    slot: Slot<T>,
    handle: LoopHandle,
}

impl<T: Send> Letter<T> {
    fn deliver(self, result: Result<T, OffloadError>) {
        *self.slot.lock() = Parcel::Arrived(result);
        // Sent by the drop.
    }
}

impl<T: Send> Drop for Letter<T> {
    fn drop(&mut self) {
        if let Parcel::Unwanted = *self.slot.lock() {
            return;
        }
        let id = self.id;
        let deliver = move |lp: &Loop| {
            let done = lp.inner.offloads.borrow_mut().waiting.remove(&id);
            if let Some(done) = done {
                done(lp);
            }
        };
        // On the loop's own thread (the simulator; a job dropped by a full pool) there is a shorter way.
        if let Some(lp) = Loop::current().filter(|lp| self.handle.is_of(lp)) {
            return lp.defer(deliver);
        }
        // A loop that is gone waits for nothing. A loop whose queue of posts is full cannot be told, and a
        // result must not be lost: that is the one case in which a worker waits.
        while let Err(crate::PostError::Full) = self.handle.post(deliver) {
            std::thread::yield_now();
        }
    }
}

fn run<T>(work: impl FnOnce() -> T) -> Result<T, OffloadError> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|panic| OffloadError::Panicked(message(&*panic).to_owned()))
}

/// What a panic said.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}
