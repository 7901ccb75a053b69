//! Descriptors of others, by number, one poll at a time: what the hooks wait by. [`Loop::watch`] is the
//! comfortable form.
//!
//! A number that was waited for stays known to the backend, so that the next wait costs less. It is forgotten
//! when it is about to be closed, and when the loop itself takes the descriptor over.

use crate::Loop;
use coracle_demux::{Handle, Submitted};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

/// What is lent to a loop.
#[derive(Default)]
struct Lent {
    /// By number, with the generation that the number had.
    handles: RefCell<Vec<Option<(Handle, u32)>>>,
    /// Those whose number was closed by others, or by the seam itself, which is busy then. Whatever has the number
    /// now is left alone.
    stale: RefCell<Vec<Handle>>,
}

impl Lent {
    fn find(&self, number: i32) -> Option<(Handle, u32)> {
        self.handles.borrow().get(usize::try_from(number).ok()?).copied().flatten()
    }

    fn take(&self, number: i32) -> Option<Handle> {
        let handles = &mut *self.handles.borrow_mut();
        handles.get_mut(usize::try_from(number).ok()?)?.take().map(|(handle, _)| handle)
    }

    fn keep(&self, number: i32, handle: Handle, generation: u32) {
        let mut handles = self.handles.borrow_mut();
        let index = number as usize;
        if index >= handles.len() {
            handles.resize(index + 1, None);
        }
        handles[index] = Some((handle, generation));
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
        let (lent, number) = (self.extension(Lent::default), descriptor.as_raw_fd());
        match lent.find(number) {
            Some((handle, known)) if known == generation => match act(handle) {
                Submitted::Done(finished) if finished.result.is_err() => {
                    self.reclaim_number(number);
                }
                submitted => return Ok(submitted),
            },
            Some(_) => lent.stale.borrow_mut().extend(lent.take(number)),
            None => {}
        }
        for handle in lent.stale.take() {
            self.inner.demux.borrow_mut().abandon(handle);
        }
        let handle = self.inner.demux.borrow_mut().lend(descriptor)?;
        lent.keep(number, handle, generation);
        match act(handle) {
            Submitted::Done(finished) if finished.result.is_err() => {
                self.reclaim_number(number);
                Ok(Submitted::Done(finished))
            }
            submitted => Ok(submitted),
        }
    }

    /// Forgets a number that was lent, if it was: it is about to be closed. Polls in flight end with
    /// `ECANCELED`. Loop thread only; also from inside the seam.
    #[doc(hidden)]
    pub fn reclaim_number(&self, number: i32) {
        let lent = self.extension(Lent::default);
        if let Some(handle) = lent.take(number) {
            match self.inner.demux.try_borrow_mut() {
                Ok(mut demux) => demux.reclaim(handle),
                Err(_) => lent.stale.borrow_mut().push(handle),
            }
        }
    }
}
