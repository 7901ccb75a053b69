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

use crate::waiter::Waker;
use std::collections::VecDeque;

/// A line of waiters, each with what it has brought. Its owner keeps it under a lock.
pub(crate) struct Line<T> {
    /// By ticket.
    entries: VecDeque<Entry<T>>,
    next: u64,
}

struct Entry<T> {
    ticket: Ticket,
    waker: Waker,
    /// Somebody has tried to wake it in vain: it waits no more, and will leave.
    gone: bool,
    item: T,
}

/// Names a place in a line. There is no second one of its number in the same line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

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
        Line { entries: VecDeque::new(), next: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The last place.
    pub(crate) fn join(&mut self, waker: Waker, item: T) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.entries.push_back(Entry { ticket, waker, gone: false, item });
        ticket
    }

    /// Gives up a place and has its item back; `None` if somebody was quicker and has woken this waiter for it.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<T> {
        let at = self.entries.binary_search_by_key(&ticket, |entry| entry.ticket).ok()?;
        self.entries.remove(at).map(|entry| entry.item)
    }

    /// Whether there is somebody in it who may be worth waking.
    pub(crate) fn has(&self, mut worth: impl FnMut(&T) -> bool) -> bool {
        self.entries.iter().any(|entry| !entry.gone && worth(&entry.item))
    }

    /// Wakes the first who still waits, and takes it off. It is told when the [`Claimed`] is dropped, which
    /// is best done without the lock: it will want the lock, too.
    #[inline]
    pub(crate) fn claim_first(&mut self) -> Option<(Ticket, T, Claimed)> {
        if self.entries.is_empty() { None } else { self.claim_first_if(|_| true) }
    }

    /// The same, but if it is not to be served by now, nobody is: those behind it do not overtake.
    pub(crate) fn claim_first_if(
        &mut self,
        mut served: impl FnMut(&T) -> bool,
    ) -> Option<(Ticket, T, Claimed)> {
        let mut at = 0;
        while let Some(entry) = self.entries.get_mut(at) {
            if entry.waker.is_lost() {
                self.forget(at);
                continue;
            }
            if entry.gone {
                at += 1;
                continue;
            }
            if !served(&entry.item) {
                return None;
            }
            if entry.waker.claim() {
                let entry =
                    if at == 0 { self.entries.pop_front()? } else { self.entries.remove(at)? };
                return Some((entry.ticket, entry.item, Claimed(entry.waker)));
            }
            entry.gone = true;
        }
        None
    }

    /// Takes one off that never comes to leave, since its loop is gone. What it has brought is leaked, as all that
    /// it had: what dropping it would do is not ours, and this is under a lock.
    #[cold]
    fn forget(&mut self, at: usize) {
        if let Some(entry) = self.entries.remove(at) {
            std::mem::forget(entry.item);
        }
    }

    /// Wakes the first who still waits, and takes it off. Not in lines of futures: what their wakers do is not
    /// ours.
    pub(crate) fn wake_first(&mut self) -> Option<(Ticket, T)> {
        self.claim_first().map(|(ticket, item, _told)| (ticket, item))
    }

    /// Wakes all, and leaves them their places and items, for which they will come.
    pub(crate) fn call_all(&mut self, told: &mut Told) {
        for entry in &mut self.entries {
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
        for entry in self.entries.drain(..) {
            entry.waker.wake();
        }
    }
}
