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

/// What is lent to a loop.
#[derive(Default)]
struct Lent {
    /// By number.
    handles: RefCell<Vec<Option<Handle>>>,
    /// Those that could not be taken back at once, because the seam was busy: it was closing them itself.
    stale: RefCell<Vec<Handle>>,
}

impl Lent {
    fn find(&self, number: i32) -> Option<Handle> {
        self.handles.borrow().get(usize::try_from(number).ok()?).copied().flatten()
    }

    fn take(&self, number: i32) -> Option<Handle> {
        self.handles.borrow_mut().get_mut(usize::try_from(number).ok()?)?.take()
    }

    fn keep(&self, number: i32, handle: Handle) {
        let mut handles = self.handles.borrow_mut();
        let index = number as usize;
        if index >= handles.len() {
            handles.resize(index + 1, None);
        }
        handles[index] = Some(handle);
    }
}

impl Loop {
    /// Starts something with a descriptor that stays somebody else's: `act` is given a handle that is good for
    /// [`Operation::Poll`](coracle_demux::Operation::Poll). If it is refused, because the number has become
    /// another descriptor, it is tried anew. Loop thread only.
    ///
    /// # Errors
    /// As [`watch`](Loop::watch).
    #[doc(hidden)]
    pub fn poll_number(
        &self,
        descriptor: BorrowedFd<'_>,
        mut act: impl FnMut(Handle) -> Submitted,
    ) -> io::Result<Submitted> {
        let (lent, number) = (self.extension(Lent::default), descriptor.as_raw_fd());
        if let Some(handle) = lent.find(number) {
            match act(handle) {
                Submitted::Done(finished) if finished.result.is_err() => {
                    self.reclaim_number(number)
                }
                submitted => return Ok(submitted),
            }
        }
        for handle in lent.stale.take() {
            self.inner.demux.borrow_mut().reclaim(handle);
        }
        let handle = self.inner.demux.borrow_mut().lend(descriptor)?;
        lent.keep(number, handle);
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
