//! Those who are ready, first come, first served: a list that runs through the tasks themselves.
//!
//! ```text
//!   first ──► task ──► task ──► task ──► ∅
//!                                ▲
//!   last ────────────────────────┘
//! ```
#![allow(unsafe_code)]

use crate::task::Task;
use std::cell::Cell;
use std::ptr::null;
use std::rc::Rc;

pub(crate) struct Ready {
    first: Cell<Option<Rc<Task>>>,
    /// In the list; null if it is empty.
    last: Cell<*const Task>,
    count: Cell<usize>,
}

impl Ready {
    pub(crate) fn new() -> Ready {
        Ready { first: Cell::new(None), last: Cell::new(null()), count: Cell::new(0) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.last.get().is_null()
    }

    /// The last, to be compared and not followed; null if there is none.
    #[inline]
    pub(crate) fn last(&self) -> *const Task {
        self.last.get()
    }

    /// How many there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count.get()
    }

    /// Puts a task behind all others. It must not be in the list.
    #[inline]
    pub(crate) fn push(&self, task: Rc<Task>) {
        let last = self.last.replace(Rc::as_ptr(&task));
        // SAFETY: it is in the list, which owns what is in it; or null.
        let place = unsafe { last.as_ref() }.map_or(&self.first, |last| &last.next);
        place.set(Some(task));
        self.count.set(self.count.get() + 1);
    }

    /// Takes the first.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Rc<Task>> {
        let task = self.first.take()?;
        let next = task.next.take();
        if next.is_none() {
            self.last.set(null());
        }
        self.first.set(next);
        self.count.set(self.count.get() - 1);
        Some(task)
    }
}

/// One after the other: a long list would need as many frames if each dropped the next.
impl Drop for Ready {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
