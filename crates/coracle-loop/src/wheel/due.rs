//! The timers whose tick the wheel has reached, in the order in which they will be taken.
//!
//! A slot that the wheel opens becomes the *run*, sorted once. A timer added afterwards goes to the
//! end of the run if it is the latest, as it usually is, and to the heap *late* if not. So the
//! common case costs what a queue costs, and the worst case what a heap costs.
//!
//! ```text
//!  open a slot ─► run   [ 17  17  19  23  24 ] ◄─ insert(24)
//!                         ▲
//!                         ├── first: the smaller of the two
//!                         ▼
//!                 late  [ 18  21 ]             ◄─ insert(18)
//! ```
//!
//! A timer that is removed or re-armed is not searched for: its entry stays behind, *stale*, and is
//! skipped when its turn comes. Stale entries never outnumber the living by more than a constant.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Stale entries that are tolerated, beyond half of all, before they are swept out.
const LIMIT_STALE: usize = 64;

#[derive(Default)]
pub(super) struct Due {
    run: VecDeque<Entry>,
    late: BinaryHeap<Reverse<Entry>>,
    stale: usize,
}

/// A timer's place in the order: deadline, then order of insertion (the fields, from the top).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    /// Nanoseconds since the wheel's origin.
    pub(super) deadline: u64,
    /// Unique in the wheel, so it also tells whether the entry is stale.
    pub(super) sequence: u64,
    /// The timer's node.
    pub(super) index: u32,
}

impl Due {
    /// Adds one entry, in order.
    pub(super) fn insert(&mut self, entry: Entry) {
        if self.run.back().is_none_or(|last| *last < entry) {
            self.run.push_back(entry);
        } else {
            self.late.push(Reverse(entry));
        }
    }

    /// Adds one entry of many; [`sort`](Self::sort) must follow.
    pub(super) fn push_unsorted(&mut self, entry: Entry) {
        self.run.push_back(entry);
    }

    pub(super) fn sort(&mut self) {
        self.run.make_contiguous().sort_unstable();
    }

    /// The earliest entry that is living, according to `is_living`; stale ones before it are
    /// dropped.
    pub(super) fn first(&mut self, is_living: impl Fn(&Entry) -> bool) -> Option<Entry> {
        loop {
            let first = self.peek()?;
            if is_living(&first) {
                return Some(first);
            }
            self.pop();
            self.stale -= 1;
        }
    }

    /// Drops the entry that [`first`](Self::first) gave.
    pub(super) fn pop(&mut self) {
        if self.late.is_empty() || self.peek() == self.run.front().copied() {
            self.run.pop_front();
        } else {
            self.late.pop();
        }
    }

    /// Says that one more entry is stale; sweeps when most are.
    pub(super) fn note_stale(&mut self, is_living: impl Fn(&Entry) -> bool) {
        self.stale += 1;
        if self.stale > LIMIT_STALE + self.len() / 2 {
            self.run.retain(&is_living);
            self.late.retain(|Reverse(entry)| is_living(entry));
            self.stale = 0;
        }
    }

    /// How many entries there are, stale ones included.
    pub(super) fn len(&self) -> usize {
        self.run.len() + self.late.len()
    }

    fn peek(&self) -> Option<Entry> {
        match (self.run.front(), self.late.peek()) {
            (run, None) => run.copied(),
            (None, Some(Reverse(late))) => Some(*late),
            (Some(run), Some(Reverse(late))) => Some(*run.min(late)),
        }
    }
}
