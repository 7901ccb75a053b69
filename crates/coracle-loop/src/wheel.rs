//! When is the next deadline, and what is due? A hierarchical timing wheel, and nothing else.
//!
//! No clock, no callbacks, no I/O: the loop tells the wheel what time it is and runs what the wheel
//! hands out. Adding, removing and re-arming a timer take the same short time whether ten timers
//! wait or a million, and after warm-up none of them allocates.
//!
//! A deadline is kept to the nanosecond, counted from the wheel's origin. Its upper 54 bits are its
//! *tick* of 1024 ns; a tick is nine groups of six bits, and each group belongs to a level of 64
//! slots:
//!
//! ```text
//!  63                                                             10 9          0
//! ┌──────┬──────┬──────┬──────┬──────┬──────┬──────┬──────┬──────┬────────────┐
//! │  8   │  7   │  6   │  5   │  4   │  3   │  2   │  1   │  0   │ within the │
//! │ 9.1 y│ 52 d │ 20 h │18 min│ 17 s │0.27 s│4.2 ms│ 66 µs│ 1 µs │    tick    │
//! └──────┴──────┴──────┴──────┴──────┴──────┴──────┴──────┴──────┴────────────┘
//!   the level's number, and how long one of its 64 slots lasts
//! ```
//!
//! The wheel stands at the tick `elapsed`. A timer lies at the level of the **highest group in
//! which its tick differs from `elapsed`**, in the slot that this group names. Two things follow,
//! and the rest leans on them: every timer at one level is before every timer at the next, and a
//! level's slots come in the order of their numbers. The earliest timer is therefore in the lowest
//! occupied slot of the lowest occupied level: two `trailing_zeros`, however far away it is.
//!
//! ```text
//!  insert ──► slot of level 8 ─┐  when its earliest timer is due, a slot is opened: `elapsed`
//!         ──► slot of level 7 ─┤  jumps to that timer's tick (never tick by tick, so a clock that
//!               …              │  leaps by years costs nothing), timers of that tick go to `due`,
//!         ──► slot of level 0 ─┤  the rest to lower levels: at most eight moves in a timer's life
//!                              ▼
//!         ──► due: tick <= elapsed, sorted by (deadline, order of insertion) ──► take_due
//! ```
//!
//! # The next deadline
//! Each slot knows the minimum of its deadlines, so [`next_deadline`](Wheel::next_deadline) does
//! not look at timers. Removing the minimum of a slot leaves a bound that may be too early. A small
//! slot is then searched anew; a large one keeps the bound, which costs the loop one early wake-up:
//! opening the slot computes the minima afresh, at lower levels.
//!
//! # What it costs
//! Insert and remove take 18 ns together, a random removal among a million timers 60 ns (W7). The
//! price is paid in one place: opening a slot moves all its timers at once. With 100,000 timers
//! spread over a minute that is a pause of half a millisecond every 17 s, with a million 17 ms.
//!
//! # The life of a timer
//! ```text
//!                     ┌──────────── put_back: next, or re-armed meanwhile ───────────┐
//!                     ▼                                                              │
//!  insert ──────► pending ────── take_due ──────► firing ── set_deadline ──► firing, re-armed
//!                  │   ▲                            │  │                             │
//!                  │   └─ set_deadline              │  └──── remove ────► removed ◄──┘ remove
//!                  ▼                                ▼                        │
//!                free ◄──── remove      free ◄── put_back(None)    free ◄────┘ put_back
//! ```

mod due;
#[cfg(test)]
mod tests;

use due::{Due, Entry};
use std::fmt;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// A tick is 2^10 ns: fine enough that few timers share one, coarse enough that nine levels span
/// u64.
const TICK_BITS: u32 = 10;
/// Six bits per level: 64 slots, whose occupancy is one machine word.
const GROUP_BITS: u32 = 6;
const SLOTS_PER_LEVEL: usize = 1 << GROUP_BITS;
/// Nine groups of six bits are the 54 bits of a tick: 584 years.
const LEVELS: usize = 9;
/// A slot with at most this many timers is searched for its minimum; a larger one keeps a bound.
/// Thirty-two cached nodes are about 50 ns, less than the system calls of an early wake-up.
const LIMIT_SEARCH: u32 = 32;
/// The end of a list of nodes.
const NONE: u32 = u32::MAX;

/// Timers by deadline: what is next, and what is due.
///
/// `T` is what a timer carries, for example its callback. Time only enters as an argument, so a
/// test or a simulation can use any clock.
///
/// Loop thread only (it is plain data: `Send` if `T` is, with no locks).
///
/// ```
/// use coracle_loop::wheel::Wheel;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let mut wheel = Wheel::new(start);
/// let second = wheel.insert(start + Duration::from_millis(20), "second");
/// let first = wheel.insert(start + Duration::from_millis(10), "first");
/// assert_eq!(wheel.next_deadline(), Some(start + Duration::from_millis(10)));
///
/// let now = start + Duration::from_millis(10);
/// assert_eq!(wheel.take_due(now), Some((first, "first")));
/// assert_eq!(wheel.take_due(now), None); // `second` is not due yet
/// wheel.put_back(first, "first", None); // one shot: nothing more to do
/// assert_eq!(wheel.remove(second), Some("second"));
/// assert!(wheel.is_empty());
/// ```
pub struct Wheel<T> {
    origin: Instant,
    /// Where the wheel stands: timers up to this tick are in `due`, later ones in `slots`.
    elapsed: u64,
    /// All levels, one after the other: level = number / 64.
    slots: Box<[Slot; LEVELS * SLOTS_PER_LEVEL]>,
    /// One bit per level that has an occupied slot.
    occupied_levels: u32,
    /// One bit per slot that holds a timer.
    occupied: [u64; LEVELS],
    /// One bit per slot whose `minimum` may be too early because its earliest timer left.
    inexact: [u64; LEVELS],
    due: Due,
    nodes: Vec<Node<T>>,
    /// Head of the list of free nodes.
    free: u32,
    len: usize,
    /// Counts insertions and re-armings: the order of timers with equal deadlines.
    sequence: u64,
}

/// Names one timer of one [`Wheel`].
///
/// Eight bytes, and so is `Option<TimerId>`. An id is never given out twice, so a stale one is
/// harmless: every method answers "no such timer".
///
/// ```
/// use coracle_loop::wheel::Wheel;
/// use std::time::Instant;
///
/// let mut wheel = Wheel::new(Instant::now());
/// let id = wheel.insert(Instant::now(), 'a');
/// assert_eq!(wheel.remove(id), Some('a'));
/// let other = wheel.insert(Instant::now(), 'b'); // uses the same memory, not the same id
/// assert_ne!(id, other);
/// assert_eq!(wheel.remove(id), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimerId {
    index: u32,
    generation: NonZeroU32,
}

impl fmt::Debug for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimerId({}.{})", self.index, self.generation)
    }
}

/// A timer's record: 32 bytes beside the value.
struct Node<T> {
    /// Nanoseconds since the origin.
    deadline: u64,
    sequence: u64,
    /// Neighbours in the slot's list; in a free node `next` continues the free list.
    next: u32,
    previous: u32,
    /// Which use of this node is the current one.
    generation: NonZeroU32,
    place: Place,
    /// Out of the wheel while firing, and when free.
    value: Option<T>,
}

/// Where a timer is. The names are those of the drawing above; `Slot` and `Due` are both *pending*.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Free,
    Slot(u16),
    Due,
    Firing,
    Rearmed,
    Removed,
}

#[derive(Clone, Copy)]
struct Slot {
    head: u32,
    count: u32,
    /// No timer of this slot is earlier. Exact unless its bit in `inexact` is set.
    minimum: u64,
}

const EMPTY: Slot = Slot { head: NONE, count: 0, minimum: u64::MAX };

impl<T> Wheel<T> {
    /// An empty wheel whose time begins at `origin`; nothing is allocated per timer until the
    /// first.
    ///
    /// Deadlines before the origin count as the origin, deadlines more than 584 years after it as
    /// exactly that: due at once, and for practical purposes never.
    ///
    /// ```
    /// use coracle_loop::wheel::Wheel;
    /// use std::time::Instant;
    ///
    /// let mut wheel: Wheel<()> = Wheel::new(Instant::now());
    /// assert_eq!(wheel.next_deadline(), None);
    /// ```
    pub fn new(origin: Instant) -> Wheel<T> {
        Wheel {
            origin,
            elapsed: 0,
            slots: Box::new([EMPTY; LEVELS * SLOTS_PER_LEVEL]),
            occupied_levels: 0,
            occupied: [0; LEVELS],
            inexact: [0; LEVELS],
            due: Due::default(),
            nodes: Vec::new(),
            free: NONE,
            len: 0,
            sequence: 0,
        }
    }

    /// Adds a timer. One whose deadline has passed is due at once.
    ///
    /// Memory is kept for reuse: a wheel never shrinks below its largest number of timers.
    ///
    /// # Panics
    /// With 2^32 − 1 timers in the wheel.
    ///
    /// ```
    /// use coracle_loop::wheel::Wheel;
    /// use std::time::{Duration, Instant};
    ///
    /// let start = Instant::now();
    /// let mut wheel = Wheel::new(start);
    /// let id = wheel.insert(start + Duration::from_secs(30), "idle");
    /// assert_eq!(wheel.deadline(id), Some(start + Duration::from_secs(30)));
    /// ```
    pub fn insert(&mut self, deadline: Instant, value: T) -> TimerId {
        let deadline = self.nanoseconds(deadline);
        let sequence = self.next_sequence();
        let index = self.free;
        if index == NONE {
            return self.insert_new(deadline, sequence, value);
        }
        let node = &mut self.nodes[index as usize];
        self.free = node.next;
        node.deadline = deadline;
        node.sequence = sequence;
        node.value = Some(value);
        let id = TimerId { index, generation: node.generation };
        self.len += 1;
        self.link(index);
        id
    }

    /// Takes a timer out of the wheel. It will not be handed out any more, not even when it is due
    /// and its turn would have come in the batch that is being taken.
    ///
    /// Gives the value back, or `None` when there is no such timer, or when the timer is firing:
    /// the value is then in the hands of who took it, and comes back from
    /// [`put_back`](Self::put_back).
    ///
    /// ```
    /// use coracle_loop::wheel::Wheel;
    /// use std::time::Instant;
    ///
    /// let now = Instant::now();
    /// let mut wheel = Wheel::new(now);
    /// let (a, b) = (wheel.insert(now, 'a'), wheel.insert(now, 'b'));
    /// assert_eq!(wheel.take_due(now), Some((a, 'a')));
    /// assert_eq!(wheel.remove(b), Some('b')); // a's callback removes b ...
    /// assert_eq!(wheel.remove(a), None); // ... and itself, although it is periodic
    /// assert_eq!(wheel.put_back(a, 'a', Some(now)), Some('a'));
    /// assert_eq!(wheel.take_due(now), None);
    /// ```
    pub fn remove(&mut self, id: TimerId) -> Option<T> {
        let node = self.node_mut(id)?;
        match node.place {
            Place::Firing | Place::Rearmed => {
                node.place = Place::Removed;
                self.len -= 1;
                None
            }
            _ => {
                self.unlink(id.index);
                self.len -= 1;
                self.release(id.index)
            }
        }
    }

    /// Gives a timer a new deadline, whether it is pending or firing; `false` when there is no such
    /// timer.
    ///
    /// Counts as an insertion: among equal deadlines the timer is now the last. While the timer is
    /// firing this decides when it fires next, whatever [`put_back`](Self::put_back) is told.
    ///
    /// ```
    /// use coracle_loop::wheel::Wheel;
    /// use std::time::{Duration, Instant};
    ///
    /// let start = Instant::now();
    /// let mut wheel = Wheel::new(start);
    /// let id = wheel.insert(start, ());
    /// assert!(wheel.set_deadline(id, start + Duration::from_secs(1)));
    /// assert_eq!(wheel.take_due(start), None);
    /// wheel.remove(id);
    /// assert!(!wheel.set_deadline(id, start));
    /// ```
    pub fn set_deadline(&mut self, id: TimerId, deadline: Instant) -> bool {
        let deadline = self.nanoseconds(deadline);
        let sequence = self.next_sequence();
        let Some(node) = self.node_mut(id) else { return false };
        match node.place {
            Place::Firing | Place::Rearmed => {
                node.place = Place::Rearmed;
                node.deadline = deadline;
                node.sequence = sequence;
            }
            Place::Slot(slot) => self.move_from_slot(id.index, slot.into(), deadline, sequence),
            _ => {
                self.unlink(id.index);
                self.relink(id.index, deadline, sequence);
            }
        }
        true
    }

    /// When the timer fires next. `None` when there is no such timer, or when it is firing and has
    /// not been re-armed.
    ///
    /// ```
    /// use coracle_loop::wheel::Wheel;
    /// use std::time::Instant;
    ///
    /// let now = Instant::now();
    /// let mut wheel = Wheel::new(now);
    /// let id = wheel.insert(now, ());
    /// assert_eq!(wheel.deadline(id), Some(now));
    /// wheel.take_due(now);
    /// assert_eq!(wheel.deadline(id), None);
    /// ```
    pub fn deadline(&self, id: TimerId) -> Option<Instant> {
        let node = self.node(id)?;
        (node.place != Place::Firing).then(|| self.instant(node.deadline))
    }

    /// The value of a pending timer. `None` when there is no such timer, or when it is firing.
    ///
    /// ```
    /// use coracle_loop::wheel::Wheel;
    /// use std::time::Instant;
    ///
    /// let mut wheel = Wheel::new(Instant::now());
    /// let id = wheel.insert(Instant::now(), 1);
    /// *wheel.get_mut(id).unwrap() += 1;
    /// assert_eq!(wheel.remove(id), Some(2));
    /// ```
    pub fn get_mut(&mut self, id: TimerId) -> Option<&mut T> {
        self.node_mut(id)?.value.as_mut()
    }

    /// The earliest deadline: how long the loop may sleep. `None` when no timer is pending.
    ///
    /// Exact as long as timers leave by [`take_due`](Self::take_due). After a
    /// [`remove`](Self::remove) or [`set_deadline`](Self::set_deadline) of the earliest timer it
    /// may be too early, never too late. That corrects itself: after `take_due(now)` gave `None`,
    /// this is later than `now`.
    ///
    /// ```
    /// use coracle_loop::wheel::Wheel;
    /// use std::time::{Duration, Instant};
    ///
    /// let start = Instant::now();
    /// let mut wheel = Wheel::new(start);
    /// wheel.insert(start + Duration::from_nanos(123_456_789), ());
    /// assert_eq!(wheel.next_deadline(), Some(start + Duration::from_nanos(123_456_789)));
    /// ```
    pub fn next_deadline(&mut self) -> Option<Instant> {
        if let Some(first) = self.first_due() {
            return Some(self.instant(first.deadline));
        }
        let slot = self.first_slot()?;
        self.refresh_minimum(slot);
        Some(self.instant(self.slots[slot].minimum))
    }

    /// Takes the earliest timer whose deadline is not after `now`: earliest deadline first, equal
    /// deadlines in the order of insertion.
    ///
    /// The value leaves the wheel, so that its callback may run while nothing is borrowed and use
    /// the wheel itself; the id stays alive and *firing* until [`put_back`](Self::put_back).
    ///
    /// A callback that keeps arming timers in the past keeps this busy for ever: bound the number
    /// of timers taken per turn.
    ///
    /// ```
    /// use coracle_loop::wheel::Wheel;
    /// use std::time::{Duration, Instant};
    ///
    /// let start = Instant::now();
    /// let mut wheel = Wheel::new(start);
    /// let period = Duration::from_millis(5);
    /// wheel.insert(start, 0); // a periodic timer that counts
    ///
    /// let now = start + Duration::from_millis(12);
    /// while let Some((id, count)) = wheel.take_due(now) {
    ///     let next = start + (count + 1) * period;
    ///     wheel.put_back(id, count + 1, Some(next));
    /// }
    /// assert_eq!(wheel.iter().next().unwrap().2, &3); // at 0, 5 and 10 ms
    /// ```
    pub fn take_due(&mut self, now: Instant) -> Option<(TimerId, T)> {
        let now = self.nanoseconds(now);
        loop {
            if let Some(first) = self.first_due() {
                return if first.deadline <= now { self.fire(first.index) } else { None };
            }
            let Some(slot) = self.first_slot() else {
                self.elapsed = self.elapsed.max(tick(now));
                return None;
            };
            if self.slots[slot].minimum > now {
                self.follow(now, slot);
                return None;
            }
            self.open(slot);
        }
    }

    /// Ends a firing: arms the timer again, or lets it go.
    ///
    /// In this order: a timer [removed](Self::remove) while firing is gone; one re-armed by
    /// [`set_deadline`](Self::set_deadline) while firing waits for that deadline; else it waits for
    /// `next`; without `next` it is over and its id is stale.
    ///
    /// Gives the value back when the timer is over, rather than dropping it, because what a
    /// callback owns may use the wheel in its `Drop`. An id that is not firing changes nothing and
    /// gives the value back, too.
    ///
    /// ```
    /// use coracle_loop::wheel::Wheel;
    /// use std::time::{Duration, Instant};
    ///
    /// let now = Instant::now();
    /// let mut wheel = Wheel::new(now);
    /// let id = wheel.insert(now, "tick");
    /// let (_, value) = wheel.take_due(now).unwrap();
    /// assert_eq!(wheel.put_back(id, value, Some(now + Duration::from_secs(1))), None);
    /// assert_eq!(wheel.len(), 1);
    /// ```
    pub fn put_back(&mut self, id: TimerId, value: T, next: Option<Instant>) -> Option<T> {
        let node = self.nodes.get_mut(id.index as usize).filter(|n| n.generation == id.generation);
        let Some(node) = node else { return Some(value) };
        match (node.place, next) {
            (Place::Rearmed, _) => {
                node.value = Some(value);
                self.link(id.index);
                None
            }
            (Place::Firing, Some(next)) => {
                node.value = Some(value);
                let (deadline, sequence) = (self.nanoseconds(next), self.next_sequence());
                self.relink(id.index, deadline, sequence);
                None
            }
            (Place::Firing, None) => {
                self.len -= 1;
                self.release(id.index);
                Some(value)
            }
            (Place::Removed, _) => {
                self.release(id.index);
                Some(value)
            }
            (Place::Free | Place::Slot(_) | Place::Due, _) => Some(value),
        }
    }

    /// How many timers there are, pending and firing.
    ///
    /// ```
    /// use coracle_loop::wheel::Wheel;
    /// use std::time::Instant;
    ///
    /// let mut wheel = Wheel::new(Instant::now());
    /// wheel.insert(Instant::now(), ());
    /// assert_eq!(wheel.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no timer, pending or firing.
    ///
    /// ```
    /// use coracle_loop::wheel::Wheel;
    /// use std::time::Instant;
    ///
    /// assert!(Wheel::<()>::new(Instant::now()).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All pending timers in no particular order, for dumps.
    ///
    /// ```
    /// use coracle_loop::wheel::Wheel;
    /// use std::time::Instant;
    ///
    /// let now = Instant::now();
    /// let mut wheel = Wheel::new(now);
    /// let id = wheel.insert(now, "idle");
    /// assert_eq!(wheel.iter().collect::<Vec<_>>(), [(id, now, &"idle")]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (TimerId, Instant, &T)> {
        (0u32..).zip(&self.nodes).filter_map(|(index, node)| {
            let value = node.value.as_ref()?;
            let id = TimerId { index, generation: node.generation };
            Some((id, self.instant(node.deadline), value))
        })
    }
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Time.
impl<T> Wheel<T> {
    fn nanoseconds(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.origin).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX)
    }

    /// Cannot overflow: `nanoseconds` came from an `Instant` at or after this one, or is zero.
    fn instant(&self, nanoseconds: u64) -> Instant {
        self.origin + Duration::from_nanos(nanoseconds)
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Opens a slot: its timers move to lower levels, those of its earliest tick to `due`.
    ///
    /// Only when `due` is empty and no other slot is earlier. `elapsed` may then jump to the slot's
    /// minimum, because nothing lies between.
    fn open(&mut self, slot: usize) {
        let Slot { head, minimum, .. } = std::mem::replace(&mut self.slots[slot], EMPTY);
        self.mark_empty(slot);
        self.elapsed = tick(minimum);
        let mut index = head;
        while index != NONE {
            let node = &mut self.nodes[index as usize];
            let next = node.next;
            if let Some(lower) = slot_for(node.deadline, self.elapsed) {
                self.push(lower, index);
            } else {
                node.place = Place::Due;
                self.due.push_unsorted(node.entry(index));
            }
            index = next;
        }
        self.due.sort();
    }

    /// Lets `elapsed` follow the clock while nothing is due, so that new timers find low levels,
    /// but not into an occupied slot: that would mean opening it, and its timers may yet be
    /// removed.
    fn follow(&mut self, now: u64, first_slot: usize) {
        let shift = GROUP_BITS * (first_slot / SLOTS_PER_LEVEL) as u32;
        let above = (self.elapsed >> shift >> GROUP_BITS) << GROUP_BITS << shift;
        let start = above | ((first_slot % SLOTS_PER_LEVEL) as u64) << shift;
        self.elapsed = self.elapsed.max(tick(now).min(start - 1));
    }

    /// The earliest living entry of `due`; entries of timers that left are dropped on the way.
    fn first_due(&mut self) -> Option<Entry> {
        let nodes = &self.nodes;
        self.due.first(|entry| nodes[entry.index as usize].is_awaiting(entry))
    }

    /// Hands out the first timer of `due`.
    fn fire(&mut self, index: u32) -> Option<(TimerId, T)> {
        self.due.pop();
        let node = &mut self.nodes[index as usize];
        node.place = Place::Firing;
        let id = TimerId { index, generation: node.generation };
        node.value.take().map(|value| (id, value))
    }
}

/// Slots and their lists.
impl<T> Wheel<T> {
    /// Puts a timer with deadline and sequence where it belongs.
    fn link(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        match slot_for(node.deadline, self.elapsed) {
            Some(slot) => self.push(slot, index),
            None => {
                node.place = Place::Due;
                self.due.insert(node.entry(index));
            }
        }
    }

    fn relink(&mut self, index: u32, deadline: u64, sequence: u64) {
        let node = &mut self.nodes[index as usize];
        node.deadline = deadline;
        node.sequence = sequence;
        self.link(index);
    }

    /// Takes a pending timer out of its list.
    fn unlink(&mut self, index: u32) {
        let Node { next, previous, deadline, place, .. } = self.nodes[index as usize];
        let Place::Slot(slot) = place else { return self.leave_due(index) };
        let slot = usize::from(slot);
        match previous {
            NONE => self.slots[slot].head = next,
            _ => self.nodes[previous as usize].next = next,
        }
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
        self.slots[slot].count -= 1;
        if self.slots[slot].count == 0 {
            self.slots[slot] = EMPTY;
            self.mark_empty(slot);
        } else if deadline == self.slots[slot].minimum {
            self.inexact[slot / SLOTS_PER_LEVEL] |= bit(slot);
        }
    }

    /// Leaves the timer's entry in `due` behind, as stale.
    fn leave_due(&mut self, index: u32) {
        self.nodes[index as usize].place = Place::Free;
        let nodes = &self.nodes;
        self.due.note_stale(|entry| nodes[entry.index as usize].is_awaiting(entry));
    }

    /// A re-arm that stays in its slot (an idle time-out pushed back a little, say) touches neither
    /// the list nor the neighbours, which are probably not in the cache.
    fn move_from_slot(&mut self, index: u32, slot: usize, deadline: u64, sequence: u64) {
        if slot_for(deadline, self.elapsed) != Some(slot) {
            self.unlink(index);
            return self.relink(index, deadline, sequence);
        }
        let node = &mut self.nodes[index as usize];
        if node.deadline == self.slots[slot].minimum {
            self.inexact[slot / SLOTS_PER_LEVEL] |= bit(slot);
        }
        node.deadline = deadline;
        node.sequence = sequence;
        self.lower_minimum(slot, deadline);
    }

    /// Adds a timer to a slot, in front: the order inside a slot means nothing, `due` sorts.
    fn push(&mut self, slot: usize, index: u32) {
        let head = std::mem::replace(&mut self.slots[slot].head, index);
        if head == NONE {
            self.occupied[slot / SLOTS_PER_LEVEL] |= bit(slot);
            self.occupied_levels |= 1 << (slot / SLOTS_PER_LEVEL);
        } else {
            self.nodes[head as usize].previous = index;
        }
        let node = &mut self.nodes[index as usize];
        node.next = head;
        node.previous = NONE;
        node.place = Place::Slot(slot as u16);
        let deadline = node.deadline;
        self.slots[slot].count += 1;
        self.lower_minimum(slot, deadline);
    }

    /// Takes a new deadline into account. If it is the minimum, the minimum is exact again; the
    /// first timer of a slot always is.
    fn lower_minimum(&mut self, slot: usize, deadline: u64) {
        if deadline <= self.slots[slot].minimum {
            self.slots[slot].minimum = deadline;
            self.inexact[slot / SLOTS_PER_LEVEL] &= !bit(slot);
        }
    }

    fn mark_empty(&mut self, slot: usize) {
        let level = slot / SLOTS_PER_LEVEL;
        self.occupied[level] &= !bit(slot);
        if self.occupied[level] == 0 {
            self.occupied_levels &= !(1 << level);
        }
    }

    /// The slot with the earliest timer outside `due`.
    fn first_slot(&self) -> Option<usize> {
        let level = self.occupied_levels.trailing_zeros() as usize;
        let occupied = self.occupied.get(level)?;
        Some(level * SLOTS_PER_LEVEL + occupied.trailing_zeros() as usize)
    }

    /// Makes the minimum of a small slot exact again.
    fn refresh_minimum(&mut self, slot: usize) {
        let inexact = &mut self.inexact[slot / SLOTS_PER_LEVEL];
        if *inexact & bit(slot) == 0 || self.slots[slot].count > LIMIT_SEARCH {
            return;
        }
        *inexact &= !bit(slot);
        let mut minimum = u64::MAX;
        let mut index = self.slots[slot].head;
        while index != NONE {
            let node = &self.nodes[index as usize];
            minimum = minimum.min(node.deadline);
            index = node.next;
        }
        self.slots[slot].minimum = minimum;
    }
}

/// Nodes.
impl<T> Wheel<T> {
    /// The node of a living timer.
    fn node(&self, id: TimerId) -> Option<&Node<T>> {
        self.nodes.get(id.index as usize).filter(|node| node.is_living(id))
    }

    fn node_mut(&mut self, id: TimerId) -> Option<&mut Node<T>> {
        self.nodes.get_mut(id.index as usize).filter(|node| node.is_living(id))
    }

    #[cold]
    fn insert_new(&mut self, deadline: u64, sequence: u64, value: T) -> TimerId {
        assert!(self.nodes.len() < NONE as usize, "a wheel holds at most 2^32 - 1 timers");
        let index = self.nodes.len() as u32;
        let generation = NonZeroU32::MIN;
        self.nodes.push(Node {
            deadline,
            sequence,
            next: NONE,
            previous: NONE,
            generation,
            place: Place::Free,
            value: Some(value),
        });
        self.len += 1;
        self.link(index);
        TimerId { index, generation }
    }

    /// Makes the node free for another timer and the ids of this one stale.
    fn release(&mut self, index: u32) -> Option<T> {
        let node = &mut self.nodes[index as usize];
        node.place = Place::Free;
        let value = node.value.take();
        // A node that has used up its generations is retired, for otherwise an id would come up a
        // second time. That costs one node in four thousand million timers.
        if let Some(generation) = node.generation.checked_add(1) {
            node.generation = generation;
            node.next = self.free;
            self.free = index;
        }
        value
    }
}

impl<T> Node<T> {
    fn is_living(&self, id: TimerId) -> bool {
        self.generation == id.generation && !matches!(self.place, Place::Free | Place::Removed)
    }

    fn entry(&self, index: u32) -> Entry {
        Entry { deadline: self.deadline, sequence: self.sequence, index }
    }

    /// Whether the entry is this timer's, rather than left behind by a removal or a re-arm.
    fn is_awaiting(&self, entry: &Entry) -> bool {
        self.place == Place::Due && self.sequence == entry.sequence
    }
}

fn tick(nanoseconds: u64) -> u64 {
    nanoseconds >> TICK_BITS
}

/// Where a timer with this deadline lies when the wheel stands at `elapsed`: in a slot, or in
/// `due`.
fn slot_for(deadline: u64, elapsed: u64) -> Option<usize> {
    let tick = tick(deadline);
    if tick <= elapsed {
        return None;
    }
    let level = (tick ^ elapsed).ilog2() / GROUP_BITS;
    let group = (tick >> (level * GROUP_BITS)) as usize % SLOTS_PER_LEVEL;
    Some(level as usize * SLOTS_PER_LEVEL + group)
}

/// The bit of a slot in the word of its level.
fn bit(slot: usize) -> u64 {
    1 << (slot % SLOTS_PER_LEVEL)
}
