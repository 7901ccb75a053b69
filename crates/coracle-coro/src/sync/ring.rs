//! A buffer of a channel that needs no lock: many send, many receive.
//!
//! ```text
//!                head           tail
//!                 ▼              ▼
//!   ┌──────┬──────┬──────┬──────┬──────┬──────┐
//!   │ free │ free │ full │ full │ free │ free │   each with the position that it is free
//!   │ 2.0  │ 2.1  │ 1.2  │ 1.3  │ 1.4  │ 1.5  │   for, or full at: lap and index
//!   └──────┴──────┴──────┴──────┴──────┴──────┘
//! ```
//!
//! Who sends moves the tail past a slot that is free for it. So the slot is his, and he marks it as full when
//! the message is there. Who receives moves the head past a full one, takes the message, and marks the slot as
//! free for the next lap. The idea is Dmitry Vyukov's.
//!
//! What it costs between two cores is how often a line of their caches goes from one to the other. The mark is
//! beside the message, so both come together; and who looks for a message looks at the mark only, never at the
//! tail. So the tail stays with who sends, and the head with who receives, and one line goes there and back.
//! That is why it is not crossbeam's `ArrayQueue`, which was here before: whoever finds nothing there looks at the
//! other end as well, and takes that line away from its owner.
#![allow(unsafe_code)]

use crate::primitive::{AtomicUsize, Shared, yield_now};
use std::mem::MaybeUninit;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::Ordering;

/// Added to a position in a mark: the message is there. Positions are even.
const FULL: usize = 1;
const STEP: usize = 2;

/// So many bytes on either side of what two cores write belong to nobody else: processors fetch lines by pairs.
const APART: usize = 128;

pub(super) struct Ring<T> {
    /// Where the next message goes.
    tail: End,
    /// Where the next message is taken.
    head: End,
    /// With some at either end that are not used, so that what is beside them in memory is not disturbed.
    slots: Box<[Slot<T>]>,
    limit: usize,
    /// From a position to the same one of the next lap.
    lap: usize,
}

#[repr(align(128))] // `APART`
struct End(AtomicUsize);

struct Slot<T> {
    mark: AtomicUsize,
    message: Shared<MaybeUninit<T>>,
}

// SAFETY: a message is moved in by one thread and out by one other; no reference to it is ever given to anybody.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Ring<T> {}

// Nothing of a message's own runs while it is moved, so no panic leaves one half there.
impl<T> UnwindSafe for Ring<T> {}
impl<T> RefUnwindSafe for Ring<T> {}

impl<T> Ring<T> {
    /// For so many messages; at least one.
    pub(super) fn new(limit: usize) -> Ring<T> {
        assert!(limit > 0, "a ring has room for a message");
        let edge = Ring::<T>::edge();
        let slot = |nth: usize| Slot {
            mark: AtomicUsize::new(nth.wrapping_sub(edge).wrapping_mul(STEP)),
            message: Shared::new(MaybeUninit::uninit()),
        };
        Ring {
            tail: End(AtomicUsize::new(0)),
            head: End(AtomicUsize::new(0)),
            slots: (0..limit + 2 * edge).map(slot).collect(),
            limit,
            lap: limit.next_power_of_two() * STEP,
        }
    }

    /// How many slots are not used, at either end: none where a slot is large enough to be apart by itself.
    const fn edge() -> usize {
        if size_of::<Slot<T>>() < APART { APART.div_ceil(size_of::<Slot<T>>()) } else { 0 }
    }

    #[inline]
    fn index(&self, position: usize) -> usize {
        (position & (self.lap - 1)) / STEP
    }

    #[inline]
    fn slot(&self, position: usize) -> &Slot<T> {
        &self.slots[self.index(position) + Ring::<T>::edge()]
    }

    /// The position behind this one.
    #[inline]
    fn next(&self, position: usize) -> usize {
        if self.index(position) + 1 < self.limit {
            position.wrapping_add(STEP)
        } else {
            (position & !(self.lap - 1)).wrapping_add(self.lap)
        }
    }

    // --- If it can be seen at once -----------------------------------------------------------------------

    /// Sends, if the next slot is free. Else it may only look as if there was no room, while somebody is at it.
    #[inline]
    pub(super) fn push_now(&self, message: T) -> Result<(), T> {
        let mut tail = self.tail.0.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(tail);
            if slot.mark.load(Ordering::Acquire) != tail {
                match self.tail.0.load(Ordering::Relaxed) {
                    now if now == tail => return Err(message),
                    now => tail = now, // somebody was quicker
                }
                continue;
            }
            match self.move_on(&self.tail, tail) {
                Ok(()) => {
                    // SAFETY: whoever moves the tail past a free slot has it for himself, until he marks it.
                    slot.message.with_mut(|place| unsafe { (*place).write(message) });
                    slot.mark.store(tail | FULL, Ordering::Release);
                    return Ok(());
                }
                Err(now) => tail = now,
            }
        }
    }

    /// Whether it is worth while to try that.
    #[inline]
    pub(super) fn has_room_now(&self) -> bool {
        let tail = self.tail.0.load(Ordering::Relaxed);
        self.slot(tail).mark.load(Ordering::Relaxed) == tail
    }

    /// Receives, if the next slot is full. Else it may only look as if there was nothing, while somebody is at it.
    #[inline]
    pub(super) fn pop_now(&self) -> Option<T> {
        let mut head = self.head.0.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(head);
            if slot.mark.load(Ordering::Acquire) != head | FULL {
                match self.head.0.load(Ordering::Relaxed) {
                    now if now == head => return None,
                    now => head = now, // somebody was quicker
                }
                continue;
            }
            match self.move_on(&self.head, head) {
                Ok(()) => {
                    // SAFETY: whoever moves the head past a full slot has it for himself, until he marks it; the
                    // message is there, and is read once.
                    let message =
                        slot.message.with_mut(|place| unsafe { (*place).assume_init_read() });
                    slot.mark.store(head.wrapping_add(self.lap), Ordering::Release);
                    return Some(message);
                }
                Err(now) => head = now,
            }
        }
    }

    /// Moves an end by one; else where it is by now. All such steps and what is `SeqCst` elsewhere are in one
    /// order: see the flags in `channel_core.rs`.
    #[inline]
    fn move_on(&self, end: &End, from: usize) -> Result<(), usize> {
        let (order, failed) = (Ordering::SeqCst, Ordering::Relaxed);
        end.0.compare_exchange_weak(from, self.next(from), order, failed).map(drop)
    }

    // --- For certain -------------------------------------------------------------------------------------

    /// Sends, unless there is no room.
    pub(super) fn push(&self, mut message: T) -> Result<(), T> {
        loop {
            message = match self.push_now(message) {
                Ok(()) => return Ok(()),
                Err(message) if self.is_full() => return Err(message),
                Err(message) => message,
            };
            yield_now(); // somebody takes a message out
        }
    }

    /// Receives, unless there is nothing.
    pub(super) fn pop(&self) -> Option<T> {
        loop {
            let message = self.pop_now();
            if message.is_some() || self.is_empty() {
                return message;
            }
            yield_now(); // somebody puts a message in
        }
    }

    /// Whether there was nothing in it, not even half a message, at a moment of this call.
    pub(super) fn is_empty(&self) -> bool {
        // In this order: the head is never ahead of the tail, so it has not moved since.
        let head = self.head.0.load(Ordering::SeqCst);
        self.tail.0.load(Ordering::SeqCst) == head
    }

    /// Whether there was no room, at a moment of this call.
    pub(super) fn is_full(&self) -> bool {
        let tail = self.tail.0.load(Ordering::SeqCst);
        self.head.0.load(Ordering::SeqCst).wrapping_add(self.lap) == tail
    }

    pub(super) fn len(&self) -> usize {
        loop {
            let tail = self.tail.0.load(Ordering::SeqCst);
            let head = self.head.0.load(Ordering::SeqCst);
            if self.tail.0.load(Ordering::SeqCst) == tail {
                let laps = if (head ^ tail) & !(self.lap - 1) == 0 { 0 } else { self.limit };
                return self.index(tail) + laps - self.index(head);
            }
        }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        while let Some(message) = self.pop_now() {
            drop(message);
        }
    }
}
