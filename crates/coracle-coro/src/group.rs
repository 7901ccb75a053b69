//! Several loops that are one run: how many coroutines each has, and when all of them are over.
//!
//! ```text
//!   loop 0            loop 1            loop 2
//!   ┌───────┐         ┌───────┐         ┌───────┐
//!   │ 2     │         │ 0     │         │ 0     │     how many are not over, how many there ever were
//!   └───────┘         └───────┘         └───────┘
//!       │ the last of all is over: 0, 0, 0?
//!       ├─ post ────────► ├─ post ────────► │         whoever was sent to a loop before that
//!       ▼                 ▼                 ▼         is counted before this job runs there
//!       └───────── the counts are still the same: that is the end
//! ```
//!
//! One that is on its way from loop to loop is nowhere. So that all are empty does not mean much by itself; that
//! they are still when every loop has done what was posted to it, and no coroutine has come meanwhile, does.

use crate::inbox::post;
use crate::leak;
use crate::primitive::{self, AtomicBool, AtomicU64, AtomicUsize, Lock, LoopHandle};
use crate::scheduler::Scheduler;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One that was entered: in the upper half of a count how many there ever were, in the lower those not over.
const ENTERED: u64 = 1 << 32 | 1;
const LIVING: u64 = u32::MAX as u64;

/// The loops of one run.
pub(crate) struct Group {
    places: Vec<Place>,
    /// All coroutines are over, and the loops are stopping.
    done: AtomicBool,
}

struct Place {
    handle: LoopHandle,
    count: AtomicU64,
    /// How many are on their way to it, of those that are placed by their number.
    coming: AtomicUsize,
    /// The names of those that are parked for good.
    leaked: Lock<Vec<String>>,
}

impl Place {
    fn new(handle: LoopHandle) -> Place {
        Place {
            handle,
            count: AtomicU64::new(0),
            coming: AtomicUsize::new(0),
            leaked: Lock::new(Vec::new()),
        }
    }
}

impl Group {
    pub(crate) fn new(handles: Vec<LoopHandle>) -> Arc<Group> {
        let places = handles.into_iter().map(Place::new).collect();
        Arc::new(Group { places, done: AtomicBool::new(false) })
    }

    pub(crate) fn handles(&self) -> Vec<LoopHandle> {
        self.places.iter().map(|place| place.handle.clone()).collect()
    }

    /// Whether all coroutines are over, and the loops are to end.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }

    /// Cancels all coroutines of all loops.
    pub(crate) fn cancel_all(&self) {
        for place in &self.places {
            post(&place.handle, |lp| Scheduler::of(lp).cancel_all());
        }
    }

    // --- The end ---------------------------------------------------------------------------------------

    /// If none is left that could ever go on, makes sure of it.
    fn look(self: &Arc<Self>) {
        // Of two loops whose last coroutines end at the same time, one sees the count of the other.
        primitive::fence(Ordering::SeqCst);
        let counts = self.counts();
        if !self.is_quiet(&counts) {
            return;
        }
        let question = primitive::Arc::new(Question { group: Arc::clone(self), counts });
        for place in &self.places {
            let question = primitive::Arc::clone(&question);
            post(&place.handle, move |_| drop(question)); // a loop that is gone drops it, too
        }
    }

    /// Every loop has done what it had to do when the counts were these.
    fn conclude(&self, before: &[u64]) {
        if self.counts() != before {
            return; // the last of those who came will look again
        }
        let leaked: Vec<_> =
            self.places.iter().flat_map(|place| place.leaked.lock().clone()).collect();
        if !leaked.is_empty() {
            leak::exit(&leaked);
        }
        self.done.store(true, Ordering::SeqCst);
        self.places.iter().for_each(|place| place.handle.stop());
    }

    fn counts(&self) -> Vec<u64> {
        self.places.iter().map(|place| place.count.load(Ordering::SeqCst)).collect()
    }

    fn is_quiet(&self, counts: &[u64]) -> bool {
        let only_leaked = |(place, count): (&Place, &u64)| {
            let living = count & LIVING;
            living == 0 || living == place.leaked.lock().len() as u64
        };
        self.places.iter().zip(counts).all(only_leaked)
    }
}

/// Whether all is over. Every loop has one until it has come to it; the last concludes.
struct Question {
    group: Arc<Group>,
    counts: Vec<u64>,
}

impl Drop for Question {
    fn drop(&mut self) {
        self.group.conclude(&self.counts);
    }
}

/// One of the loops of a run, on its own thread.
pub(crate) struct Member {
    pub(crate) group: Arc<Group>,
    pub(crate) index: usize,
}

impl Member {
    fn place(&self) -> &Place {
        &self.group.places[self.index]
    }

    /// One more coroutine.
    pub(crate) fn entered(&self) {
        self.place().count.fetch_add(ENTERED, Ordering::SeqCst);
    }

    /// One is over. So many of this loop never will be.
    pub(crate) fn left(&self, leaked: usize) {
        let before = self.place().count.fetch_sub(1, Ordering::SeqCst);
        if before & LIVING != leaked as u64 + 1 {
            return; // most often
        }
        if self.group.is_done() {
            self.place().handle.stop(); // it came when all was over
        } else {
            self.group.look();
        }
    }

    /// One will never be.
    pub(crate) fn leaked(&self, name: String) {
        self.place().leaked.lock().push(name);
        self.group.look();
    }

    /// The loop is gone, and its coroutines with it.
    pub(crate) fn abandon(&self) {
        self.place().count.fetch_and(!LIVING, Ordering::SeqCst);
        self.place().leaked.lock().clear();
        self.group.cancel_all();
        self.group.look();
    }

    /// The loop with the fewest coroutines, if it is another than this one.
    pub(crate) fn least_loaded(&self) -> Option<Coming> {
        let load = |place: &Place| {
            let living = place.count.load(Ordering::Relaxed) & LIVING;
            living as usize + place.coming.load(Ordering::Relaxed)
        };
        let places = self.group.places.iter().enumerate();
        let (index, place) = places.min_by_key(|(_, place)| load(place))?;
        if load(place) >= load(self.place()) {
            return None;
        }
        place.coming.fetch_add(1, Ordering::Relaxed);
        Some(Coming { group: Arc::clone(&self.group), index })
    }
}

/// One that is on its way to a loop, until this is dropped.
pub(crate) struct Coming {
    group: Arc<Group>,
    index: usize,
}

impl Coming {
    pub(crate) fn handle(&self) -> LoopHandle {
        self.group.places[self.index].handle.clone()
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.group.places[self.index].coming.fetch_sub(1, Ordering::Relaxed);
    }
}
