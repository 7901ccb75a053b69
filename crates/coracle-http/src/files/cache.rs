//! Files that were sent before, on one loop: small ones in memory, large ones open.
//!
//! ```text
//!   hand ─┐
//!         ▼
//!   ┌─────────┬─────────┬─────────┬─────────┐     new ones go where the hand finds one that nobody has
//!   │ used    │ not used│ used    │ free    │     used since it came by last
//!   └─────────┴─────────┴─────────┴─────────┘
//! ```
//!
//! Bounded three times: in files, in bytes, in descriptors. A bound is met by letting go of others, and what is
//! larger than all of the room is not kept. Only what is there is kept: whoever asks for a thousand names that
//! do not exist throws nothing out.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// The bounds of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) entries: usize,
    pub(super) bytes: usize,
    pub(super) open_files: usize,
}

/// What an entry costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cost {
    pub(super) bytes: usize,
    pub(super) open_files: usize,
}

/// The entries of one loop, by path.
#[derive(Debug)]
pub(super) struct Cache<V> {
    bounds: Bounds,
    places: HashMap<Box<str>, usize>,
    slots: Vec<Option<Slot<V>>>,
    free: Vec<usize>,
    hand: usize,
    held: Cost,
    evicted: u64,
}

#[derive(Debug)]
struct Slot<V> {
    key: Box<str>,
    value: Rc<V>,
    cost: Cost,
    used: Cell<bool>,
}

impl<V> Cache<V> {
    pub(super) fn new(bounds: Bounds) -> Cache<V> {
        Cache {
            bounds,
            places: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            hand: 0,
            held: Cost::default(),
            evicted: 0,
        }
    }

    /// How many were let go of to make room.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// What is kept for this path.
    pub(super) fn get(&self, key: &str) -> Option<Rc<V>> {
        let slot = self.slots[*self.places.get(key)?].as_ref()?;
        slot.used.set(true);
        Some(Rc::clone(&slot.value))
    }

    /// Keeps something, in the place of what was there for this path; others go if there is no room.
    pub(super) fn insert(&mut self, key: &str, value: Rc<V>, cost: Cost) {
        self.remove(key);
        let fits = cost.bytes <= self.bounds.bytes
            && cost.open_files <= self.bounds.open_files
            && self.bounds.entries > 0;
        if !fits {
            return;
        }
        while self.is_full_with(cost) {
            self.evict();
        }
        self.held.bytes += cost.bytes;
        self.held.open_files += cost.open_files;
        let slot = Slot { key: key.into(), value, cost, used: Cell::new(false) };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = Some(slot);
                at
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() - 1
            }
        };
        self.places.insert(key.into(), at);
    }

    /// Lets go of what is kept for this path.
    pub(super) fn remove(&mut self, key: &str) {
        if let Some(at) = self.places.get(key) {
            self.empty(*at);
        }
    }

    fn is_full_with(&self, cost: Cost) -> bool {
        self.places.len() >= self.bounds.entries
            || self.held.bytes + cost.bytes > self.bounds.bytes
            || self.held.open_files + cost.open_files > self.bounds.open_files
    }

    /// Lets go of the first that was not used since the hand came by. There is one: it takes the mark from all
    /// others.
    fn evict(&mut self) {
        loop {
            self.hand = (self.hand + 1) % self.slots.len();
            match &self.slots[self.hand] {
                Some(slot) if !slot.used.replace(false) => break,
                _ => {}
            }
        }
        self.evicted += 1;
        self.empty(self.hand);
    }

    fn empty(&mut self, at: usize) {
        let Some(slot) = self.slots[at].take() else { return };
        self.places.remove(&slot.key);
        self.free.push(at);
        self.held.bytes -= slot.cost.bytes;
        self.held.open_files -= slot.cost.open_files;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds { entries: 4, bytes: 100, open_files: 2 };

    fn bytes(bytes: usize) -> Cost {
        Cost { bytes, open_files: 0 }
    }

    fn keys(cache: &Cache<&str>) -> Vec<&'static str> {
        let names = ["a", "b", "c", "d", "e", "f"];
        names.into_iter().filter(|name| cache.places.contains_key(*name)).collect()
    }

    #[test]
    fn n7_what_is_used_stays_and_what_is_not_goes() {
        let mut cache = Cache::new(BOUNDS);
        for name in ["a", "b", "c", "d"] {
            cache.insert(name, Rc::new(name), bytes(10));
        }
        for name in ["a", "b", "d"] {
            assert_eq!(*cache.get(name).unwrap(), name);
        }
        cache.insert("e", Rc::new("e"), bytes(10));
        assert_eq!(keys(&cache), ["a", "b", "d", "e"]);
        assert_eq!((cache.get("c"), cache.evicted()), (None, 1));
    }

    #[test]
    fn n7_bytes_and_descriptors_are_bounded() {
        let mut cache = Cache::new(BOUNDS);
        cache.insert("a", Rc::new("a"), bytes(60));
        cache.insert("b", Rc::new("b"), bytes(60));
        assert_eq!(keys(&cache), ["b"]);
        cache.insert("c", Rc::new("c"), bytes(101));
        assert_eq!(keys(&cache), ["b"], "what is larger than all of the room throws nothing out");
        cache.insert("d", Rc::new("d"), Cost { bytes: 0, open_files: 1 });
        cache.insert("e", Rc::new("e"), Cost { bytes: 0, open_files: 2 });
        assert!(cache.get("d").is_none() && cache.get("e").is_some());
    }

    #[test]
    fn n7_one_that_changed_takes_the_place_of_the_old_one() {
        let mut cache = Cache::new(BOUNDS);
        cache.insert("a", Rc::new("old"), bytes(90));
        cache.insert("a", Rc::new("new"), bytes(90));
        assert_eq!((*cache.get("a").unwrap(), cache.held.bytes), ("new", 90));
        cache.insert("a", Rc::new("too large"), bytes(900));
        assert_eq!((cache.get("a"), cache.held), (None, Cost::default()));
        cache.remove("a");
        assert_eq!(cache.evicted(), 0);
    }

    #[test]
    fn n7_cache_without_room_keeps_nothing() {
        let mut cache = Cache::new(Bounds { entries: 0, ..BOUNDS });
        cache.insert("a", Rc::new("a"), bytes(0));
        assert_eq!(cache.get("a"), None);
    }

    proptest! {
        #[test]
        fn n7_bounds_hold_whatever_is_done(
            steps in prop::collection::vec((0..8u8, 0..3u8, 0usize..70, 0usize..3), 1..60),
        ) {
            let mut cache = Cache::new(BOUNDS);
            for (key, step, bytes, open_files) in steps {
                let key = key.to_string();
                match step {
                    0 => { cache.get(&key); }
                    1 => cache.remove(&key),
                    _ => {
                        let cost = Cost { bytes, open_files };
                        cache.insert(&key, Rc::new(cost), cost);
                        let kept = cache.get(&key).is_some();
                        prop_assert_eq!(kept, open_files <= BOUNDS.open_files, "the newest is always there");
                    }
                }
                let held: Vec<Cost> = cache.slots.iter().flatten().map(|slot| *slot.value).collect();
                prop_assert!(held.len() <= BOUNDS.entries && held.len() == cache.places.len());
                let bytes = held.iter().map(|it| it.bytes).sum();
                let files = held.iter().map(|it| it.open_files).sum();
                prop_assert_eq!(cache.held, Cost { bytes, open_files: files });
                prop_assert!(bytes <= BOUNDS.bytes && files <= BOUNDS.open_files);
                prop_assert!(cache.slots.len() <= BOUNDS.entries, "slots are used again");
            }
        }
    }
}
