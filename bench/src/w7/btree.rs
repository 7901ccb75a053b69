//! `BTreeMap` by deadline and number: the textbook's timers.

use std::collections::BTreeMap;
use std::time::Instant;

use super::Timers;

pub(super) struct BTree {
    timers: BTreeMap<(Instant, u64), u64>,
    /// Tells timers with the same deadline apart.
    next: u64,
}

impl Timers for BTree {
    type Id = (Instant, u64);
    type Idle = (Instant, u64);

    fn new(_now: Instant) -> BTree {
        BTree { timers: BTreeMap::new(), next: 0 }
    }

    fn add(&mut self, deadline: Instant, value: u64) -> (Instant, u64) {
        let id = (deadline, self.next);
        self.next += 1;
        self.timers.insert(id, value);
        id
    }

    fn cancel(&mut self, id: (Instant, u64)) -> Option<u64> {
        self.timers.remove(&id)
    }

    fn rearm(&mut self, id: &mut (Instant, u64), deadline: Instant) {
        if let Some(value) = self.timers.remove(id) {
            id.0 = deadline;
            self.timers.insert(*id, value);
        }
    }

    fn add_idle(&mut self, deadline: Instant) -> (Instant, u64) {
        self.add(deadline, 0)
    }

    fn touch(&mut self, idle: &mut (Instant, u64), deadline: Instant) {
        self.rearm(idle, deadline);
    }

    fn expire(&mut self, now: Instant) -> usize {
        let mut expired = 0;
        while let Some(first) = self.timers.first_entry() {
            if first.key().0 > now {
                break;
            }
            std::hint::black_box(first.remove());
            expired += 1;
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn timers_expire_once_and_in_time() {
        super::super::check::<super::BTree>();
    }
}
