//! Those who wait, in the order they came.
//!
//! ```text
//!      first                                   last
//!   ┌──────────┐ ┌──────────┐ ┌──────────┐ ┌──────────┐
//!   │ ticket 3 │ │ ticket 4 │ │ ticket 6 │ │ ticket 7 │ ◄── join
//!   │ (gone)   │ │          │ │          │ │          │
//!   └────┬─────┘ └────┬─────┘ └──────────┘ └──────────┘
//!        │            └─► wake_first: the first whose wait this ends
//!        └─► leave: whoever was not woken takes himself off
//! ```
//!
//! A waiter whose time was up, or who was chosen in another line, keeps its place until it leaves. It may have
//! left something there that it wants back. One whose loop is gone will not leave, and is taken off when its turn
//! comes.
//!
//! Each knows who is ahead of it and who behind. Thousands may wait for one thing that never comes, and each
//! joins and leaves whenever something else has come: neither takes longer for the others.

use crate::waiter::Waker;
use std::mem;

/// A line of waiters, each with what it has brought. Its owner keeps it under a lock.
pub(crate) struct Line<T> {
    /// By index, in no order. A slot without an entry is free, and `behind` is the next free one.
    pub(super) slots: Vec<Slot<T>>,
    first: u32,
    last: u32,
    free: u32,
    next: u64,
}

/// In the place of an index.
const NOBODY: u32 = u32::MAX;

pub(super) struct Slot<T> {
    number: u64,
    ahead: u32,
    behind: u32,
    entry: Option<Entry<T>>,
}

pub(super) struct Entry<T> {
    waker: Waker,
    /// Somebody has tried to wake it in vain: it waits no more, and will leave.
    gone: bool,
    pub(super) item: T,
}

/// Names a place in a line. There is no second one of its number in the same line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    number: u64,
    /// Where it is. Others have been and will be there.
    slot: u32,
}

/// Somebody whose wait has ended, and who does not know it yet.
#[must_use = "it is told when this is dropped"]
pub(crate) struct Claimed(Waker);

impl Drop for Claimed {
    #[inline]
    fn drop(&mut self) {
        self.0.tell();
    }
}

/// Those whose waits have ended, to be told without the lock, in order. There is hardly ever more than one.
#[derive(Default)]
pub(crate) struct Told {
    first: Option<Claimed>,
    #[allow(clippy::box_collection)] // to drop none of them is to look at one pointer
    rest: Option<Box<Vec<Claimed>>>,
}

impl Told {
    #[inline]
    pub(crate) fn add(&mut self, claimed: Claimed) {
        match &self.first {
            None => self.first = Some(claimed),
            Some(_) => self.rest.get_or_insert_default().push(claimed),
        }
    }
}

impl<T> Line<T> {
    pub(crate) const fn new() -> Line<T> {
        Line { slots: Vec::new(), first: NOBODY, last: NOBODY, free: NOBODY, next: 0 }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NOBODY
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries().count()
    }

    #[inline]
    fn slot(&mut self, at: u32) -> &mut Slot<T> {
        &mut self.slots[at as usize]
    }

    /// All who are in it, in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry<T>> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let slot = self.slots.get(next as usize)?; // `NOBODY` is none
            next = slot.behind;
            slot.entry.as_ref()
        })
    }

    /// The last place.
    pub(crate) fn join(&mut self, waker: Waker, item: T) -> Ticket {
        let entry = Some(Entry { waker, gone: false, item });
        let slot = Slot { number: self.next, ahead: self.last, behind: NOBODY, entry };
        self.next += 1;
        let ticket = Ticket { number: slot.number, slot: self.put(slot) };
        match self.last {
            NOBODY => self.first = ticket.slot,
            last => self.slot(last).behind = ticket.slot,
        }
        self.last = ticket.slot;
        ticket
    }

    fn put(&mut self, slot: Slot<T>) -> u32 {
        if self.free == NOBODY {
            self.slots.push(slot);
            return (self.slots.len() - 1) as u32; // so many do not fit into memory
        }
        let at = self.free;
        self.free = mem::replace(self.slot(at), slot).behind;
        at
    }

    /// Takes whoever is in this slot out of the line, if anybody.
    fn take(&mut self, at: u32) -> Option<Entry<T>> {
        let entry = self.slots.get_mut(at as usize)?.entry.take()?;
        let free = mem::replace(&mut self.free, at);
        let slot = self.slot(at);
        let (ahead, behind) = (slot.ahead, mem::replace(&mut slot.behind, free));
        match ahead {
            NOBODY => self.first = behind,
            ahead => self.slot(ahead).behind = behind,
        }
        match behind {
            NOBODY => self.last = ahead,
            behind => self.slot(behind).ahead = ahead,
        }
        Some(entry)
    }

    /// Gives up a place and has its item back; `None` if somebody was quicker and has woken this waiter for it.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<T> {
        let is_there = self.slot(ticket.slot).number == ticket.number;
        if is_there { self.take(ticket.slot).map(|entry| entry.item) } else { None }
    }

    /// Whether there is somebody in it who may be worth waking.
    pub(crate) fn has(&self, mut worth: impl FnMut(&T) -> bool) -> bool {
        self.entries().any(|entry| !entry.gone && worth(&entry.item))
    }

    /// Wakes the first who still waits, and takes it off. It is told when the [`Claimed`] is dropped, which
    /// is best done without the lock: it will want the lock, too.
    #[inline]
    pub(crate) fn claim_first(&mut self) -> Option<(Ticket, T, Claimed)> {
        if self.is_empty() { None } else { self.claim_first_if(|_| true) }
    }

    /// The same, but if it is not to be served by now, nobody is: those behind it do not overtake.
    pub(crate) fn claim_first_if(
        &mut self,
        mut served: impl FnMut(&T) -> bool,
    ) -> Option<(Ticket, T, Claimed)> {
        let mut at = self.first;
        while let Some(slot) = self.slots.get_mut(at as usize) {
            let (number, behind) = (slot.number, slot.behind);
            let entry = slot.entry.as_mut()?;
            if entry.waker.is_lost() {
                self.forget(at);
            } else if !entry.gone {
                if !served(&entry.item) {
                    return None;
                }
                if entry.waker.claim() {
                    let Entry { waker, item, .. } = self.take(at)?;
                    return Some((Ticket { number, slot: at }, item, Claimed(waker)));
                }
                entry.gone = true;
            }
            at = behind;
        }
        None
    }

    /// Takes one off that never comes to leave, since its loop is gone. What it has brought is leaked, as all that
    /// it had: what dropping it would do is not ours, and this is under a lock.
    #[cold]
    fn forget(&mut self, at: u32) {
        if let Some(entry) = self.take(at) {
            mem::forget(entry.item);
        }
    }

    /// Wakes the first who still waits, and takes it off. Not in lines of futures: what their wakers do is not
    /// ours.
    pub(crate) fn wake_first(&mut self) -> Option<(Ticket, T)> {
        self.claim_first().map(|(ticket, item, _told)| (ticket, item))
    }

    /// Wakes all, and leaves them their places and items, for which they will come.
    pub(crate) fn call_all(&mut self, told: &mut Told) {
        let mut at = self.first;
        while let Some(slot) = self.slots.get_mut(at as usize) {
            at = slot.behind;
            let Some(entry) = &mut slot.entry else { return };
            if !entry.gone && entry.waker.claim() {
                told.add(Claimed(entry.waker.clone()));
            }
            entry.gone = true;
        }
    }
}

impl Line<()> {
    /// Wakes all, and takes them off.
    pub(crate) fn wake_all(&mut self) {
        while let Some(entry) = self.take(self.first) {
            entry.waker.wake();
        }
    }
}
