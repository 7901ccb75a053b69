//! Sockets of somebody else's: sends that go with others, and how a lend ends.

use super::Uring;
use crate::Demux;
use crate::landing::Awaited;
use crate::operation::{Handle, Token};
use rustix::fd::AsFd;
use slotmap::Key;

impl Uring {
    /// The next who awaits a send and can be told. They are sent by send(2), in a row: that takes less time than a
    /// request and its completion.
    #[inline(never)]
    pub(super) fn tell_due(&mut self) -> Option<Awaited> {
        if self.fork.is_forked() {
            return None;
        }
        if let Some(ended) = self.due.tell_ended() {
            return Some(ended); // its descriptor may be closed by now, and that is told later
        }
        let others = self.taken < self.arrived.len() || !self.finished.is_empty();
        if self.due.is_others_turn() {
            self.due.note_other(others);
            if others {
                return None;
            }
        }
        if !self.due.has_landed() {
            if others && !self.due.is_row() {
                return None;
            }
            self.send_due();
        }
        self.due.tell()
    }

    #[inline]
    pub(super) fn send_due(&mut self) {
        if self.due.is_idle() {
            return;
        }
        let find = |socket| self.slots.get(socket).map(|slot| (slot.source.as_fd(), slot.kind));
        self.due.send_all(find);
    }

    /// What is due of a socket that is taken back, and still open.
    fn send_last(&mut self, socket: Handle) {
        if !self.due.is_idle()
            && !self.fork.is_forked()
            && let Some(slot) = self.slots.get(socket).filter(|slot| slot.closer.is_none())
        {
            let (fd, kind) = (slot.source.as_fd(), slot.kind);
            self.due.send_last(socket, fd, kind);
        }
    }

    /// [`Demux::reclaim`](crate::Demux::reclaim): it is still open.
    pub(super) fn end_lend(&mut self, handle: Handle) {
        self.send_last(handle);
        let Ok(slot) = self.slot(handle) else { return };
        if slot.in_flight > 0 && !self.fork.is_forked() {
            self.cancel_all(handle);
            if self.slots[handle].in_flight > 0 {
                // The descriptor may be closed as soon as this returns: requests that are only queued
                // would then look up its number again. Handed over, they hold the file itself.
                self.flush();
            }
            let slot = &mut self.slots[handle];
            if slot.receive.is_some() {
                slot.closer = Some(Token::null()); // who awaits it is known nowhere else
                return;
            }
        }
        // What is in flight no longer finds its slot, which is as well: there is nothing to close.
        self.slots.remove(handle);
    }
}
