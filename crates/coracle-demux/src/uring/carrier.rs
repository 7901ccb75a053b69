//! Small sends that the seam carries for callers who keep their bytes.
//!
//! `try_send` copies the bytes here and queues the request; the caller goes on at once, as after send(2), and
//! is never told. Whoever must know waits for a `Shutdown` or a `Send`, which queue behind.
//!
//! ```text
//!   try_send ──copy──► entry 3 ──► kernel ──► all sent: entry 3 is free again
//!                                        └──► short: the rest of entry 3, once more
//! ```

use super::Uring;
use super::start::send_entry;
use crate::operation::Handle;
use io_uring::types::Fd;
use rustix::fd::RawFd;
use rustix::io::Errno;

/// How much one entry carries. Larger sends are worth an operation of their own.
pub(super) const BYTES: usize = 4096;

/// How many sends are carried at once. When all are under way, callers have to wait in the ordinary way.
const LIMIT_ENTRIES: usize = 1024;

/// The sends under way, each with bytes at an address that stays.
#[derive(Default)]
pub(super) struct Carrier {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

struct Entry {
    socket: Handle,
    sent: usize,
    len: usize,
    bytes: Box<[u8; BYTES]>,
}

impl Carrier {
    /// Copies `bytes`, at most [`BYTES`] of them, into a free entry; `None` when all are under way.
    #[inline]
    pub(super) fn load(&mut self, socket: Handle, bytes: &[u8]) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.add()?,
        };
        let entry = &mut self.entries[index as usize];
        entry.bytes[..bytes.len()].copy_from_slice(bytes);
        (entry.socket, entry.sent, entry.len) = (socket, 0, bytes.len());
        Some(index)
    }

    fn add(&mut self) -> Option<u32> {
        if self.entries.len() == LIMIT_ENTRIES {
            return None;
        }
        let bytes = vec![0; BYTES].into_boxed_slice().try_into().expect("it is BYTES long");
        self.entries.push(Entry { socket: Handle::default(), sent: 0, len: 0, bytes });
        Some(self.entries.len() as u32 - 1)
    }

    /// What is left to be sent.
    #[inline]
    pub(super) fn rest(&self, index: u32) -> &[u8] {
        let entry = &self.entries[index as usize];
        &entry.bytes[entry.sent..entry.len]
    }

    /// Whose entry it is.
    pub(super) fn socket(&self, index: u32) -> Handle {
        self.entries[index as usize].socket
    }

    /// Notes that `count` more bytes were sent. True when that was all.
    #[inline]
    pub(super) fn advance(&mut self, index: u32, count: usize) -> bool {
        let entry = &mut self.entries[index as usize];
        entry.sent += count;
        entry.sent >= entry.len
    }

    /// Frees an entry, and says whose it was.
    #[inline]
    pub(super) fn unload(&mut self, index: u32) -> Handle {
        self.free.push(index);
        self.entries[index as usize].socket
    }
}

impl Uring {
    /// Queues what is left of a carried send.
    #[inline]
    pub(super) fn carry(&mut self, index: u32, fd: RawFd) {
        let entry = send_entry(Fd(fd), self.carrier.rest(index));
        self.with_kernel += 1;
        self.push(&entry.user_data(index.into()));
    }

    /// The kernel has done something about a carried send.
    #[inline]
    pub(super) fn carried(&mut self, index: u32, result: Result<u32, Errno>) {
        self.with_kernel -= 1;
        if let Ok(count) = result
            && !self.carrier.advance(index, count as usize)
        {
            let socket = self.carrier.socket(index);
            let fd = self.slots[socket].source.raw(); // open: its close waits for this
            return self.carry(index, fd);
        }
        let socket = self.carrier.unload(index);
        let Some(slot) = self.slots.get_mut(socket) else { return };
        slot.failed = result.err();
        slot.carrying = None;
        slot.in_flight -= 1;
        if slot.closer.is_some() || !slot.held.is_empty() {
            self.release(socket);
        }
    }

    /// Cancels the carried sends of descriptors that are being closed. They were attempted by now: if they are
    /// not over, the peer does not read.
    pub(super) fn give_up_carried(&mut self) {
        for socket in std::mem::take(&mut self.doomed) {
            if let Some(index) = self.slots.get(socket).and_then(|slot| slot.carrying) {
                self.cancel_request(index.into());
            }
        }
    }

    /// Goes on with what has waited for the end of a carried send.
    pub(super) fn release(&mut self, handle: Handle) {
        for token in std::mem::take(&mut self.slots[handle].held) {
            if self.operations.contains_key(token) {
                match self.slots[handle].failed {
                    Some(error) => self.finish(token, Err(error.into())),
                    None => self.issue(token),
                }
            }
        }
        self.close_if_idle(handle);
    }
}
