//! Descriptors of others, by number, one poll at a time: what the hooks wait by. [`Loop::watch`] is the
//! comfortable form.
//!
//! A number that was waited for stays known to the backend, so that the next wait costs less. It is forgotten
//! when it is about to be closed, and when the loop itself takes the descriptor over.

use crate::Loop;
use coracle_demux::{Handle, Submitted, identity};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

/// What is lent to a loop.
#[derive(Default)]
struct Lent {
    /// By number.
    numbers: RefCell<Vec<Option<Known>>>,
    /// Those whose number was closed by others, or by the seam itself, which is busy then. Whatever has the number
    /// now is left alone.
    stale: RefCell<Vec<Handle>>,
}

/// A number that is lent.
#[derive(Clone, Copy)]
struct Known {
    handle: Handle,
    /// That of the number, when it was lent.
    generation: u32,
    /// What the number was then, as far as the system can tell things apart.
    identity: (u64, u64),
}

impl Lent {
    fn find(&self, number: i32) -> Option<Known> {
        self.numbers.borrow().get(usize::try_from(number).ok()?).copied().flatten()
    }

    fn take(&self, number: i32) -> Option<Handle> {
        let numbers = &mut *self.numbers.borrow_mut();
        numbers.get_mut(usize::try_from(number).ok()?)?.take().map(|known| known.handle)
    }

    fn keep(&self, number: i32, known: Known) {
        let mut numbers = self.numbers.borrow_mut();
        let index = number as usize;
        if index >= numbers.len() {
            numbers.resize(index + 1, None);
        }
        numbers[index] = Some(known);
    }
}

/// Who remembers things about numbers.
static RECORDS: OnceLock<fn(i32)> = OnceLock::new();

/// Has `forget` called with every number that a loop takes over or gives up, so that nothing is remembered of what
/// loops close by themselves. The first call counts.
#[doc(hidden)]
pub fn on_change_of_owner(forget: fn(i32)) {
    let _ = RECORDS.set(forget);
}

/// A loop takes over this number, or gives it up.
pub(crate) fn changes_owner(number: i32) {
    if let Some(forget) = RECORDS.get() {
        forget(number);
    }
}

/// Whether a generation came before another. They are numbers of 31 bits, and begin anew after the last.
#[doc(hidden)]
pub fn is_older(generation: u32, than: u32) -> bool {
    (than.wrapping_sub(generation) << 1) as i32 > 0
}

impl Loop {
    /// Starts something with a descriptor that stays somebody else's: `act` is given a handle that is good for
    /// [`Operation::Poll`](coracle_demux::Operation::Poll). If it is refused, because the number has become
    /// another descriptor, it is tried anew. Loop thread only.
    ///
    /// `generation` counts how often the number was closed, in whatever thread: one that has been closed since it
    /// was last here is another descriptor, and may even be one of this loop's own.
    ///
    /// # Errors
    /// As [`watch`](Loop::watch).
    #[doc(hidden)]
    pub fn poll_number(
        &self,
        descriptor: BorrowedFd<'_>,
        generation: u32,
        mut act: impl FnMut(Handle) -> Submitted,
    ) -> io::Result<Submitted> {
        let number = descriptor.as_raw_fd();
        let submitted = act(self.lend_number(descriptor, generation)?);
        let Submitted::Done(finished) = &submitted else { return Ok(submitted) };
        if finished.result.is_ok() {
            return Ok(submitted);
        }
        self.reclaim_number(number);
        let submitted = act(self.lend_number(descriptor, generation)?);
        if let Submitted::Done(finished) = &submitted
            && finished.result.is_err()
        {
            self.reclaim_number(number);
        }
        Ok(submitted)
    }

    /// The handle that a number has here, which is lent to the backend if it was not. It is good until the number
    /// is [forgotten](Loop::reclaim_number). Loop thread only.
    ///
    /// # Errors
    /// As [`watch`](Loop::watch).
    #[doc(hidden)]
    pub fn lend_number(&self, descriptor: BorrowedFd<'_>, generation: u32) -> io::Result<Handle> {
        let (lent, number) = (self.extension(Lent::default), descriptor.as_raw_fd());
        match lent.find(number) {
            Some(known) if known.generation == generation => return Ok(known.handle),
            Some(_) => lent.stale.borrow_mut().extend(lent.take(number)),
            None => {}
        }
        self.abandon_stale();
        let identity = identity(descriptor)?;
        let handle = self.inner.demux.borrow_mut().lend(descriptor)?;
        lent.keep(number, Known { handle, generation, identity });
        Ok(handle)
    }

    /// Has the kernel look whether a number that is lent is still the same descriptor, and tell anew what it is
    /// ready for. Loop thread only.
    ///
    /// # Errors
    /// It is not.
    #[doc(hidden)]
    #[inline]
    pub fn confirm_number(&self, handle: Handle) -> io::Result<()> {
        self.inner.demux.borrow_mut().confirm(handle)
    }

    /// Looks whether a number is still the descriptor that was lent. If not, it was closed past libc, and is
    /// forgotten. Loop thread only.
    #[doc(hidden)]
    pub fn check_number(&self, descriptor: BorrowedFd<'_>) {
        let (lent, number) = (self.extension(Lent::default), descriptor.as_raw_fd());
        if lent.find(number).is_some_and(|known| identity(descriptor).ok() != Some(known.identity))
        {
            let handle = lent.take(number);
            handle.into_iter().for_each(|handle| self.inner.demux.borrow_mut().abandon(handle));
        }
    }

    /// As [`reclaim_number`](Loop::reclaim_number) for a number that was closed by another thread, which has it in
    /// this `generation` now: only what was lent before is forgotten. Loop thread only.
    #[doc(hidden)]
    pub fn reclaim_older(&self, number: i32, generation: u32) {
        let lent = self.extension(Lent::default);
        if lent.find(number).is_some_and(|known| is_older(known.generation, generation)) {
            let handle = lent.take(number);
            handle.into_iter().for_each(|handle| self.inner.demux.borrow_mut().abandon(handle));
        }
    }

    /// Whether there are completions that nobody was told of yet. Where the kernel only tells who is ready,
    /// what nobody has looked at does not count. Loop thread only.
    #[doc(hidden)]
    #[inline]
    pub fn has_more_completions(&self) -> bool {
        self.inner.demux.borrow().is_busy()
    }

    /// Forgets a number that was lent, if it was: it is about to be closed. What is in flight ends with
    /// `ECANCELED`. Loop thread only; also from inside the seam.
    #[doc(hidden)]
    pub fn reclaim_number(&self, number: i32) {
        let lent = self.extension(Lent::default);
        if let Some(handle) = lent.take(number) {
            match self.inner.demux.try_borrow_mut() {
                Ok(mut demux) => demux.reclaim(handle),
                Err(_) => {
                    lent.stale.borrow_mut().push(handle);
                    self.defer(Loop::abandon_stale); // somebody may wait on it
                }
            }
        }
    }

    fn abandon_stale(&self) {
        for handle in self.extension(Lent::default).stale.take() {
            self.inner.demux.borrow_mut().abandon(handle);
        }
    }
}
