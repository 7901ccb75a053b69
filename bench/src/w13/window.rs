//! At most so many jobs of one producer are in flight.
//!
//! ```text
//!  in flight ▲ limit ─────╮ producer sleeps        enter: one more, sleep at the limit
//!            │      ╱╲    │╲                       leave: one less, wake the producer at one half
//!            │  half      │  ╲ wake
//!            └───────────────────► time
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// Jobs in flight of all producers together.
pub(super) const JOBS_IN_FLIGHT: usize = 1024;
/// How long the last jobs are waited for at a time.
const NAP: Duration = Duration::from_micros(20);

/// Counts the jobs of the producer that made it.
pub(super) struct Window {
    in_flight: AtomicUsize,
    limit: usize,
    producer: Thread,
}

impl Window {
    /// A window for the calling thread. It is leaked, some bytes per repetition: jobs then hold a plain
    /// reference, and no count of references is measured with them.
    pub(super) fn new(limit: usize) -> &'static Window {
        let producer = thread::current();
        Box::leak(Box::new(Window { in_flight: AtomicUsize::new(0), limit, producer }))
    }

    /// The producer is about to submit a job. Sleeps while too many are in flight.
    pub(super) fn enter(&self) {
        if self.in_flight.fetch_add(1, Ordering::Relaxed) + 1 >= self.limit {
            while self.in_flight.load(Ordering::Relaxed) > self.limit / 2 {
                thread::park();
            }
        }
    }

    /// A job has run. Any thread.
    pub(super) fn leave(&self) {
        // Only the producer adds, and it does not while it sleeps: one half is not passed unseen.
        if self.in_flight.fetch_sub(1, Ordering::Release) - 1 == self.limit / 2 {
            self.producer.unpark();
        }
    }

    /// The producer has submitted its last job.
    pub(super) fn wait_until_empty(&self) {
        while self.in_flight.load(Ordering::Acquire) > 0 {
            thread::sleep(NAP);
        }
    }
}
