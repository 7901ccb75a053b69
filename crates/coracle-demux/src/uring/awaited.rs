//! Receives that a parked coroutine waits for: they are in the slot of their descriptor, and nowhere else.
//!
//! Nothing is as frequent in a server of coroutines. The `user_data` of such a request is the descriptor's own
//! name with a mark, so that its completion is found without a table, and its result lands at the coroutine.
//!
//! ```text
//!   a turn:         send a, receive a, send b, receive b, …
//!   to the kernel:  send a, send b, …, receive a, receive b, …
//! ```
//!
//! A receive is handed over behind all that its turn has sent. Where that is a row, the answer to the first has
//! mostly come when its receive is looked at, and then nobody has to be told of it later: that costs several
//! times as much as to look in vain.

use super::{POLL_FIRST, Slot, Uring};
use crate::descriptor::Kind;
use crate::landing::{Awaited, Landed, Receive};
use crate::memory::Space;
use crate::operation::Handle;
use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};
use rustix::fd::RawFd;
use rustix::io::Errno;
use slotmap::{Key, KeyData};

use super::end::decode;
use super::start::length;

/// Marks the `user_data` of an awaited receive. No index of a descriptor, of a token or of the carrier is as
/// large; those of the wake-up and of silent requests have it, but name no descriptor without it.
pub(super) const AWAITED: u64 = 1 << 30;

/// The descriptor that the completion of an awaited receive is about.
#[inline]
fn handle(user_data: u64) -> Handle {
    Handle::from(KeyData::from_ffi(user_data & !AWAITED))
}

/// Of so many receives of a turn, the first may find answers to what that turn has sent.
const ROW: usize = 16;

/// So many receives wait to be handed over. With more, they go early.
const LIMIT_ASKED: usize = 1024;

/// The sockets whose receives are handed over next. There is room for all of them from the beginning, so that to
/// ask for one is no more than a few stores.
pub(super) struct Asked {
    sockets: Box<[Handle; LIMIT_ASKED]>,
    count: usize,
}

impl Asked {
    pub(super) fn new() -> Asked {
        Asked { sockets: Box::new([Handle::null(); LIMIT_ASKED]), count: 0 }
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.count >= LIMIT_ASKED
    }

    /// # Panics
    /// If it is full.
    #[inline(always)]
    fn push(&mut self, socket: Handle) {
        self.sockets[self.count] = socket;
        self.count += 1;
    }
}

impl Uring {
    /// Queues the receives of this turn, behind all that it has sent.
    #[inline]
    pub(super) fn queue_asked(&mut self) {
        let count = self.asked.count;
        for index in 0..count {
            self.queue_receive(self.asked.sockets[index], count >= ROW);
        }
        debug_assert_eq!(self.asked.count, count, "nobody asks for another meanwhile");
        self.asked.count = 0;
    }

    #[inline(always)]
    fn queue_receive(&mut self, socket: Handle, row: bool) {
        let Some(slot) = self.slots.get_mut(socket).filter(|slot| slot.is_asked) else { return };
        let Some(receive) = &slot.receive else { return };
        if slot.source.is_lent() && receive.is_lost() {
            return self.withdraw(socket);
        }
        slot.is_asked = false;
        let soon = slot.sent_since && row;
        let entry = receive_entry(slot.source.raw(), receive.parts(), slot.drained && !soon);
        self.push(&entry.user_data(socket.data().as_ffi() | AWAITED));
    }

    /// Ends one that the kernel never had.
    #[cold]
    fn withdraw(&mut self, socket: Handle) {
        let slot = &mut self.slots[socket];
        if let Some(receive) = slot.receive.take() {
            slot.is_asked = false;
            slot.in_flight -= 1;
            self.awaited -= 1;
            self.due.end(receive.into_awaited());
        }
        self.close_if_idle(socket);
    }

    /// Starts one, unless something stands against it.
    #[inline(always)]
    pub(super) fn start_awaited(&mut self, socket: Handle, space: Space, awaited: Awaited) -> bool {
        if self.asked.is_full() {
            return self.start_awaited_later(socket, space, awaited);
        }
        let Some(slot) = self.slots.get_mut(socket) else { return false };
        let taken = slot.receive.is_some() || slot.reader.is_some();
        if taken || slot.closer.is_some() || !slot.kind.is_socket() {
            return false;
        }
        slot.receive = Some(Receive::new(space, awaited));
        slot.cancelled = false;
        slot.is_asked = true;
        slot.in_flight += 1;
        self.awaited += 1;
        self.asked.push(socket);
        true
    }

    /// The same when others have to be handed over before.
    #[cold]
    #[inline(never)]
    fn start_awaited_later(&mut self, socket: Handle, space: Space, awaited: Awaited) -> bool {
        self.queue_asked();
        self.hand_over();
        self.start_awaited(socket, space, awaited)
    }

    /// Takes in the completion of one that has received something, or the end of the stream.
    #[inline(always)]
    pub(super) fn received_awaited(&mut self, entry: &cqueue::Entry) -> Option<Awaited> {
        let user_data = entry.user_data();
        if user_data & AWAITED == 0 {
            return None;
        }
        let count = u32::try_from(entry.result()).ok()?;
        let slot = self.slots.get_mut(handle(user_data))?;
        let receive = slot.receive.take()?;
        let short = (count as usize) < receive.take_space().len();
        slot.sent_since = false;
        slot.drained =
            short && count > 0 && slot.kind == Kind::Tcp && !cqueue::sock_nonempty(entry.flags());
        slot.in_flight -= 1;
        self.awaited -= 1;
        let awaited = receive.into_awaited();
        awaited.land(Landed::Count(count as usize));
        if slot.closer.is_some() {
            self.close_if_idle(handle(user_data));
        }
        Some(awaited)
    }

    /// The same if it has failed.
    #[cold]
    pub(super) fn failed_awaited(&mut self, entry: &cqueue::Entry) -> Option<Awaited> {
        let user_data = entry.user_data();
        let Err(error) = decode(entry.result()) else {
            debug_assert!(false, "the kernel completed an operation twice");
            return None;
        };
        let slot = self.slots.get_mut(handle(user_data))?;
        slot.receive.as_ref()?;
        let interrupted = matches!(error, Errno::AGAIN | Errno::INTR);
        if interrupted && !slot.cancelled {
            slot.is_asked = true;
            if self.asked.is_full() {
                self.queue_asked();
            }
            self.asked.push(handle(user_data));
            return None;
        }
        let error = if interrupted { Errno::CANCELED } else { error };
        let awaited = slot.receive.take()?.into_awaited();
        slot.in_flight -= 1;
        self.awaited -= 1;
        awaited.land(Landed::Failed(error.raw_os_error()));
        self.close_if_idle(handle(user_data));
        Some(awaited)
    }

    /// Asks for the end of one, if there is one.
    pub(super) fn cancel_awaited(&mut self, socket: Handle) {
        let slot = self.slots.get_mut(socket).filter(|slot| slot.receive.is_some());
        let Some(slot) = slot else { return };
        if slot.is_asked {
            return self.withdraw(socket);
        }
        slot.cancelled = true;
        self.cancel_request(socket.data().as_ffi() | AWAITED);
    }

    /// Asks for the end of all of them.
    pub(super) fn cancel_all_awaited(&mut self) {
        let is_awaited = |(handle, slot): (Handle, &Slot)| slot.receive.as_ref().map(|_| handle);
        let sockets: Vec<Handle> = self.slots.iter().filter_map(is_awaited).collect();
        sockets.into_iter().for_each(|socket| self.cancel_awaited(socket));
    }
}

/// A request to receive into the `room` of a [`Space`].
#[inline(always)]
fn receive_entry(fd: RawFd, room: (*mut u8, usize), wait_first: bool) -> squeue::Entry {
    opcode::Recv::new(Fd(fd), room.0, length(room.1))
        .ioprio(if wait_first { POLL_FIRST } else { 0 })
        .build()
}
