//! Those who are ready, first come, first served: a list that runs through the tasks themselves.
//!
//! ```text
//!   first ──► task ──► task ──► task ──► ∅
//!                                ▲
//!   last ────────────────────────┘
//! ```

use crate::task::Listed;
use std::cell::Cell;

#[derive(Default)]
pub(crate) struct Ready {
    first: Cell<Option<Listed>>,
    /// None if there is no first.
    last: Cell<Option<Listed>>,
    count: Cell<usize>,
}

impl Ready {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.last.get().is_none()
    }

    #[inline]
    pub(crate) fn last(&self) -> Option<Listed> {
        self.last.get()
    }

    /// How many there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count.get()
    }

    /// Puts a task behind all others. It must not be in a list.
    #[inline]
    pub(crate) fn push(&self, task: Listed) {
        task.next.set(None);
        match self.last.replace(Some(task)) {
            Some(last) => last.next.set(Some(task)),
            None => self.first.set(Some(task)),
        }
        self.count.set(self.count.get() + 1);
    }

    /// Takes the first.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Listed> {
        let task = self.first.get()?;
        let next = task.next.get();
        match next {
            Some(next) => next.prefetch(),
            None => self.last.set(None),
        }
        self.first.set(next);
        self.count.set(self.count.get() - 1);
        Some(task)
    }
}
