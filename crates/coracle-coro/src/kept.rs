//! Where a task keeps its coroutine while that does not run.

use coracle_stack::Seated;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// A coroutine or none; none while it is lent to somebody who runs it. A `RefCell` without a count, in half the
/// room.
#[derive(Default)]
pub(crate) struct Kept(Cell<Option<Seated<(), (), ()>>>);

impl Kept {
    /// Takes it out until the result is dropped. None if it is lent to somebody else.
    #[inline]
    pub(crate) fn borrow_mut(&self) -> Lent<'_> {
        Lent { kept: self, coroutine: ManuallyDrop::new(self.0.take()) }
    }

    /// Takes it out for good.
    pub(crate) fn take(&self) -> Option<Seated<(), (), ()>> {
        self.0.take()
    }
}

/// See [`Kept::borrow_mut`].
pub(crate) struct Lent<'a> {
    kept: &'a Kept,
    coroutine: ManuallyDrop<Option<Seated<(), (), ()>>>,
}

impl Deref for Lent<'_> {
    type Target = Option<Seated<(), (), ()>>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.coroutine
    }
}

impl DerefMut for Lent<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.coroutine
    }
}

impl Drop for Lent<'_> {
    #[inline]
    fn drop(&mut self) {
        // There is none meanwhile, so nothing is lost; to say so saves a switch some instructions. If this was
        // lent none, then who has it puts it back later.
        std::mem::forget(self.kept.0.replace(self.coroutine.take()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_stack::{Pool, StackSize, Yielder};

    #[test]
    fn it_is_lent_to_one_at_a_time_and_comes_back() {
        let kept = Kept::default();
        assert!(kept.borrow_mut().is_none());
        let stack = Pool::new().unwrap().take(StackSize::SMALL).unwrap();
        *kept.borrow_mut() = Some(Seated::new(stack, |_: &Yielder<(), ()>, ()| ()));
        let mut first = kept.borrow_mut();
        assert!(first.is_some() && kept.borrow_mut().is_none());
        assert!(first.as_mut().unwrap().resume(()).as_return().is_some());
        drop(first);
        assert!(kept.borrow_mut().as_ref().is_some_and(|coroutine| coroutine.is_done()));
        assert!(kept.take().is_some() && kept.borrow_mut().is_none());
    }
}
