//! `BinaryHeap` with lazy cancel, as good as it gets.
//!
//! A table of slots holds the truth, the heap only hints. Cancelling frees the slot and leaves its hint
//! behind; a later deadline only changes the slot, and the hint is put back when it comes up too early.
//! When more than half of the hints are stale the heap is swept.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use super::Timers;

/// A heap smaller than this is not worth sweeping.
const LIMIT_UNSWEPT: usize = 64;

pub(super) struct Heap {
    hints: BinaryHeap<Reverse<Hint>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Hints that lead nowhere.
    stale: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Hint {
    deadline: Instant,
    id: HeapId,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HeapId {
    slot: u32,
    /// Changes whenever the slot's hint is out of date for good.
    generation: u32,
}

struct Slot {
    generation: u32,
    deadline: Instant,
    value: u64,
}

impl Timers for Heap {
    type Id = HeapId;
    type Idle = HeapId;

    fn new(_now: Instant) -> Heap {
        Heap { hints: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), stale: 0 }
    }

    fn add(&mut self, deadline: Instant, value: u64) -> HeapId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, deadline, value });
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        (entry.deadline, entry.value) = (deadline, value);
        let id = HeapId { slot, generation: entry.generation };
        self.hints.push(Reverse(Hint { deadline, id }));
        id
    }

    fn cancel(&mut self, id: HeapId) -> Option<u64> {
        let entry = &mut self.slots[id.slot as usize];
        if entry.generation != id.generation {
            return None;
        }
        let value = entry.value;
        self.release(id.slot);
        self.leave_stale();
        Some(value)
    }

    fn rearm(&mut self, id: &mut HeapId, deadline: Instant) {
        let entry = &mut self.slots[id.slot as usize];
        if entry.generation != id.generation {
            return;
        }
        let later = deadline >= entry.deadline;
        entry.deadline = deadline;
        if later {
            return;
        }
        entry.generation = entry.generation.wrapping_add(1);
        id.generation = entry.generation;
        self.hints.push(Reverse(Hint { deadline, id: *id }));
        self.leave_stale();
    }

    fn add_idle(&mut self, deadline: Instant) -> HeapId {
        self.add(deadline, 0)
    }

    fn touch(&mut self, idle: &mut HeapId, deadline: Instant) {
        self.rearm(idle, deadline);
    }

    fn expire(&mut self, now: Instant) -> usize {
        let mut expired = 0;
        while let Some(Reverse(hint)) = self.hints.peek().copied() {
            if hint.deadline > now {
                break;
            }
            self.hints.pop();
            let entry = &self.slots[hint.id.slot as usize];
            if entry.generation != hint.id.generation {
                self.stale -= 1;
            } else if entry.deadline > now {
                self.hints.push(Reverse(Hint { deadline: entry.deadline, ..hint }));
            } else {
                std::hint::black_box(entry.value);
                self.release(hint.id.slot);
                expired += 1;
            }
        }
        expired
    }
}

impl Heap {
    fn release(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot);
    }

    fn leave_stale(&mut self) {
        self.stale += 1;
        if self.stale * 2 > self.hints.len() && self.hints.len() > LIMIT_UNSWEPT {
            let slots = &self.slots;
            self.hints.retain(|Reverse(hint)| {
                slots[hint.id.slot as usize].generation == hint.id.generation
            });
            self.stale = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn timers_expire_once_and_in_time() {
        super::super::check::<super::Heap>();
    }
}
