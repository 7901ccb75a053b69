//! Counters that one loop writes and anybody reads.

use crate::Reason;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only goes up. One thread adds, so no bus lock is needed; any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Loop thread only.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one loop has counted for one service.
#[derive(Debug, Default)]
pub(crate) struct ServiceStats {
    /// Connections that were given to the loop by the one that accepts; which is who counts them.
    pub(crate) given: Counter,
    /// Those of them that were closed without ever having been open.
    pub(crate) unopened: Counter,
    pub(crate) opened: Counter,
    pub(crate) closed: Counter,
    pub(crate) turned_away: Counter,
    pub(crate) panics: Counter,
    pub(crate) out_of_memory: Counter,
    input_limit: Counter,
    slow_reader: Counter,
    deadline: Counter,
    pub(crate) received: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
}

/// Counts of a server, of one loop's share of it, or of one service. [`add`](Stats::add) them up as you like.
///
/// A snapshot: the numbers were read one after the other while the loops went on.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Connections there have been.
    pub opened: u64,
    /// Connections that are over.
    pub closed: u64,
    /// Connections that were accepted and closed at once: over capacity, out of descriptors or of memory.
    pub turned_away: u64,
    /// Connections that ended by a panic of their protocol.
    pub panics: u64,
    /// Connections that ended because all of them together had too much waiting
    /// ([`MemoryLimit`](crate::MemoryLimit)).
    pub out_of_memory: u64,
    /// Connections that ended by [`Reason::InputLimit`].
    pub input_limit: u64,
    /// Connections that ended by [`Reason::SlowReader`].
    pub slow_reader: u64,
    /// Connections that ended by [`Reason::Deadline`].
    pub deadline: u64,
    /// How often bytes were received.
    pub received: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes given to the kernel to send.
    pub sent_bytes: u64,
}

impl Stats {
    /// Connections that are there.
    pub fn open(&self) -> u64 {
        self.opened.saturating_sub(self.closed)
    }

    /// Adds what another loop, or another service, has counted.
    pub fn add(&mut self, other: &Stats) {
        self.opened += other.opened;
        self.closed += other.closed;
        self.turned_away += other.turned_away;
        self.panics += other.panics;
        self.out_of_memory += other.out_of_memory;
        self.input_limit += other.input_limit;
        self.slow_reader += other.slow_reader;
        self.deadline += other.deadline;
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
    }
}

impl ServiceStats {
    /// Counts a connection that met a limit.
    pub(crate) fn ended_by(&self, reason: &Reason) {
        match reason {
            Reason::InputLimit => self.input_limit.add(1),
            Reason::SlowReader => self.slow_reader.add(1),
            Reason::Deadline => self.deadline.add(1),
            _ => {}
        }
    }

    pub(crate) fn read(&self) -> Stats {
        Stats {
            opened: self.opened.get(),
            closed: self.closed.get(),
            turned_away: self.turned_away.get(),
            panics: self.panics.get(),
            out_of_memory: self.out_of_memory.get(),
            input_limit: self.input_limit.get(),
            slow_reader: self.slow_reader.get(),
            deadline: self.deadline.get(),
            received: self.received.get(),
            received_bytes: self.received_bytes.get(),
            sent_bytes: self.sent_bytes.get(),
        }
    }
}
