//! Tasks that are over and wait for another coroutine to be made of them: the last is taken first. A list that
//! runs through the tasks themselves.

use crate::task::Listed;
use std::cell::Cell;

#[derive(Default)]
pub(crate) struct Spare {
    first: Cell<Option<Listed>>,
    count: Cell<usize>,
}

impl Spare {
    /// How many there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count.get()
    }

    /// Puts a task before all others. It must not be in a list.
    #[inline]
    pub(crate) fn push(&self, task: Listed) {
        task.next.set(self.first.replace(Some(task)));
        self.count.set(self.count.get() + 1);
    }

    /// Takes the first.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Listed> {
        let task = self.first.get()?;
        self.first.set(task.next.get());
        self.count.set(self.count.get() - 1);
        Some(task)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Listed> {
        std::iter::successors(self.first.get(), |task| task.next.get())
    }
}
