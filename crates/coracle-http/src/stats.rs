//! Counters of a server: one loop writes, anybody reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// What an HTTP server has done so far, on all loops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests that reached the app.
    pub requests: u64,
    /// Requests that were refused before that, by a status of their own.
    pub refused: u64,
    /// Handlers that panicked: their clients got a 500.
    pub panics: u64,
    /// Answers that nobody got: the client was gone.
    pub dropped: u64,
    /// Connections that were closed because a client was too slow.
    pub timed_out: u64,
    /// Connections that were answered with a 503 because there were too many, in all or of their address.
    pub turned_away: u64,
}

/// The same, of one loop.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    requests: AtomicU64,
    refused: AtomicU64,
    panics: AtomicU64,
    dropped: AtomicU64,
    timed_out: AtomicU64,
    turned_away: AtomicU64,
}

impl Counters {
    #[inline]
    pub(crate) fn count_request(&self) {
        count(&self.requests);
    }

    pub(crate) fn count_refused(&self) {
        count(&self.refused);
    }

    pub(crate) fn count_panic(&self) {
        count(&self.panics);
    }

    pub(crate) fn count_dropped(&self) {
        count(&self.dropped);
    }

    pub(crate) fn count_timed_out(&self) {
        count(&self.timed_out);
    }

    pub(crate) fn count_turned_away(&self) {
        count(&self.turned_away);
    }

    /// Adds them to a sum.
    pub(crate) fn add_to(&self, sum: &mut Stats) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        sum.requests += read(&self.requests);
        sum.refused += read(&self.refused);
        sum.panics += read(&self.panics);
        sum.dropped += read(&self.dropped);
        sum.timed_out += read(&self.timed_out);
        sum.turned_away += read(&self.turned_away);
    }
}

/// Only one loop writes.
#[inline]
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
