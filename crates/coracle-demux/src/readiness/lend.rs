//! Descriptors of somebody else's: what is done for them, and how that ends.

use super::{Adaptor, Poller};
use crate::Demux;
use crate::operation::{Handle, Readiness};
use rustix::fd::AsFd;
use rustix::io::Errno;
use slotmap::Key;
use std::io;

impl<P: Poller> Adaptor<P> {
    /// [`Demux::confirm`](crate::Demux::confirm).
    pub(super) fn confirm_lent(&mut self, handle: Handle) -> io::Result<()> {
        self.own_slot(handle)?;
        let slot = &mut self.slots[handle];
        if slot.added {
            slot.ready = Readiness::empty(); // what is true still is told again
            return self.watch(handle, true);
        }
        self.poller.add(slot.source.as_fd(), handle.data().as_ffi())?;
        slot.added = true;
        self.watch(handle, false)
    }

    /// [`Demux::reclaim`](crate::Demux::reclaim): it is still open.
    pub(super) fn end_lend(&mut self, handle: Handle) {
        let forked = self.fork.is_forked();
        if !self.due.is_idle()
            && !forked
            && let Some(slot) = self.slots.get(handle)
        {
            let (fd, kind) = slot.parts();
            self.due.send_last(handle, fd, kind);
        }
        self.cancel_lent(handle);
        if !forked {
            self.drop_slot(handle);
        }
    }

    /// [`Demux::abandon`](crate::Demux::abandon): its number is another's.
    pub(super) fn end_lend_of_stranger(&mut self, handle: Handle) {
        self.cancel_lent(handle);
        if let Some(slot) = self.slots.remove(handle)
            && slot.added
        {
            self.poller.remove(slot.source.as_fd(), handle.data().as_ffi(), true);
        }
    }

    /// Ends what is in flight on it.
    fn cancel_lent(&mut self, handle: Handle) {
        let Some(slot) = self.slots.get_mut(handle) else { return };
        for token in slot.polls.take().into_iter().chain(slot.reader) {
            self.finish(token, Err(Errno::CANCELED.into()));
        }
        self.cancel_receive(handle);
        self.due.cancel(handle);
    }
}
