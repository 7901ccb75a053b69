//! What a load has counted: messages, their latencies, and what went wrong.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The longest latency that is told apart from longer ones: an hour, in nanoseconds.
const LIMIT_NANOSECONDS: u64 = 3_600_000_000_000;

/// Counts of one worker, or of all.
pub(super) struct Tally {
    /// In nanoseconds, to three digits.
    pub(super) latency: Histogram<u64>,
    /// Messages that came back, right.
    pub(super) messages: u64,
    /// When the last one did.
    pub(super) last: Option<Instant>,
    pub(super) opened: usize,
    pub(super) open_at_end: usize,
    /// Answers that were not what was sent.
    pub(super) wrong: u64,
    /// Messages that were sent and did not come back.
    pub(super) missing: u64,
    /// Connections that ended before they should.
    pub(super) lost: u64,
    /// Messages that were due, and could not be sent because those before them had not come back.
    pub(super) unsent: u64,
    /// What went wrong, by its kind: how often, and one case of it.
    pub(super) errors: BTreeMap<String, Trouble>,
    /// Why connections could not be opened, and how often.
    pub(super) refusals: BTreeMap<String, u64>,
}

/// A kind of error.
pub(super) struct Trouble {
    pub(super) count: u64,
    /// The first case, with the connection's name.
    pub(super) example: String,
}

impl Default for Tally {
    fn default() -> Tally {
        let latency = Histogram::new_with_bounds(1, LIMIT_NANOSECONDS, 3);
        Tally {
            latency: latency.expect("these bounds make sense"),
            messages: 0,
            last: None,
            opened: 0,
            open_at_end: 0,
            wrong: 0,
            missing: 0,
            lost: 0,
            unsent: 0,
            errors: BTreeMap::new(),
            refusals: BTreeMap::new(),
        }
    }
}

impl Tally {
    /// A message has come back.
    #[inline]
    pub(super) fn answered(&mut self, latency: Duration) {
        self.messages += 1;
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latency.saturating_record(nanoseconds.max(1));
    }

    /// Something went wrong, so many times.
    pub(super) fn error(&mut self, kind: &str, count: u64, example: impl FnOnce() -> String) {
        match self.errors.get_mut(kind) {
            Some(trouble) => trouble.count += count,
            None => {
                let trouble = Trouble { count, example: example() };
                self.errors.insert(kind.to_owned(), trouble);
            }
        }
    }

    /// A connection could not be opened.
    pub(super) fn refused(&mut self, reason: String) {
        *self.refusals.entry(reason).or_default() += 1;
    }

    /// Takes in what another worker has counted.
    pub(super) fn add(&mut self, other: Tally) {
        self.latency.add(&other.latency).expect("all have the same bounds");
        self.messages += other.messages;
        self.last = self.last.max(other.last);
        self.opened += other.opened;
        self.open_at_end += other.open_at_end;
        self.wrong += other.wrong;
        self.missing += other.missing;
        self.lost += other.lost;
        self.unsent += other.unsent;
        for (kind, Trouble { count, example }) in other.errors {
            self.error(&kind, count, || example);
        }
        for (reason, count) in other.refusals {
            *self.refusals.entry(reason).or_default() += count;
        }
    }
}
