//! Small sends that the seam carries for callers who keep their bytes.
//!
//! `try_send` copies the bytes to the [quay](Quay) and queues a request; the caller goes on at once, as after
//! send(2), and is never told. The request must not wait and must not report success, so when the kernel has been
//! entered every one of them is over: those that said nothing went through, and the quay is empty again. That
//! costs no completion and no bookkeeping for the usual case, in which a small send fits.
//!
//! ```text
//!   try_send ──copy──► quay ──► enter ──► silence: sent
//!                                    └──► "3 bytes", EAGAIN: the rest is copied and sent in the ordinary way
//! ```
//!
//! Whoever must know waits for a `Shutdown` or a `Send`: they queue behind what is carried, and behind a rest.

use super::start::send_entry;
use super::{CARRIED, Slot, Stage, Uring};
use crate::operation::Handle;
use crate::quay::{Load, Quay};
use io_uring::types::Fd;
use io_uring::{cqueue, squeue};
use rustix::fd::RawFd;
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::num::NonZeroU32;

/// Marks the `user_data` of a rest; without it, below [`CARRIED`], it is the index of a load.
const REST: u64 = 1 << 31;

/// Names the rest of a carried send, in four bytes even where there is none.
#[derive(Clone, Copy)]
pub(super) struct RestIndex(NonZeroU32);

impl RestIndex {
    fn new(index: u32) -> RestIndex {
        RestIndex(NonZeroU32::MIN.saturating_add(index))
    }

    fn get(self) -> u32 {
        self.0.get() - 1
    }
}

/// The sends that the next entry into the kernel hands over, and the rests of earlier ones.
pub(super) struct Carrier {
    quay: Quay,
    rests: Vec<Rest>,
    free: Vec<u32>,
}

/// What the kernel did not take at once.
struct Rest {
    socket: Handle,
    sent: usize,
    bytes: Vec<u8>,
}

impl Carrier {
    pub(super) fn new() -> Carrier {
        Carrier { quay: Quay::new(), rests: Vec::new(), free: Vec::new() }
    }

    /// How many sends are not over.
    pub(super) fn in_flight(&self) -> usize {
        self.quay.loads().len() + self.rests.len() - self.free.len()
    }

    /// How many bytes of a socket the kernel has not taken.
    pub(super) fn bytes_of(&self, socket: Handle) -> usize {
        let rests =
            self.rests.iter().filter(|rest| rest.socket == socket && !rest.bytes.is_empty());
        self.quay.bytes_of(socket) + rests.map(|rest| rest.bytes.len() - rest.sent).sum::<usize>()
    }

    /// Copies `bytes` and makes the request that sends them, if there is room.
    #[inline(always)]
    pub(super) fn load(
        &mut self,
        socket: Handle,
        fd: RawFd,
        bytes: &[u8],
    ) -> Option<squeue::Entry> {
        let index = self.quay.loads().len();
        let copy = self.quay.load(socket, bytes)?;
        // WAITALL makes a short send a failure, DONTWAIT keeps the kernel from waiting for room: together, only
        // what went through whole is silent.
        let flags = SendFlags::DONTWAIT | SendFlags::from_bits_retain(MSG_WAITALL);
        let entry = send_entry(Fd(fd), copy, flags).flags(squeue::Flags::SKIP_SUCCESS);
        Some(entry.user_data(index as u64))
    }

    /// Undoes the last [`load`](Carrier::load), whose request was not queued.
    pub(super) fn take_back(&mut self) {
        self.quay.take_back();
    }

    /// Keeps what is left of a load after `sent` bytes, at an address that stays.
    fn keep_rest(&mut self, load: Load, sent: usize) -> u32 {
        let bytes = self.quay.bytes(&load)[sent..].to_vec();
        let rest = Rest { socket: load.socket, sent: 0, bytes };
        match self.free.pop() {
            Some(index) => {
                self.rests[index as usize] = rest;
                index
            }
            None => {
                self.rests.push(rest);
                self.rests.len() as u32 - 1
            }
        }
    }
}

/// msg(2): all or nothing. rustix has it for receiving only.
const MSG_WAITALL: u32 = 0x100;

impl Slot {
    /// Whether bytes are on the quay, or a rest is under way.
    #[inline]
    pub(super) fn is_carrying(&self, carrier: &Carrier) -> bool {
        self.is_loaded(carrier) || self.rest.is_some()
    }

    /// Whether bytes are on the quay, which the kernel has not seen.
    #[inline]
    pub(super) fn is_loaded(&self, carrier: &Carrier) -> bool {
        self.loaded_on == carrier.quay.voyage()
    }

    #[inline]
    pub(super) fn note_load(&mut self, carrier: &Carrier) {
        self.loaded_on = carrier.quay.voyage();
    }
}

impl Uring {
    /// Looks what became of the carried sends, after the kernel was entered.
    pub(super) fn settle(&mut self) {
        self.collect();
        if self.carrier.quay.is_empty() || !self.ring.submission().is_empty() {
            return; // nothing was carried, or the kernel did not take all of it yet
        }
        while self.ring.submission().cq_overflow() {
            // A failure may be among what found no room in the queue.
            if self.ring.submit().is_err() {
                return;
            }
            self.collect();
        }
        if self.failed.is_empty() && self.behind.is_empty() {
            self.carrier.quay.empty();
        } else {
            self.settle_failed();
        }
    }

    /// The same when not everything went through, or something has waited for that.
    #[cold]
    fn settle_failed(&mut self) {
        let mut rests = Vec::new();
        for entry in std::mem::take(&mut self.failed) {
            rests.extend(self.load_failed(&entry));
        }
        self.carrier.quay.empty();
        rests.into_iter().for_each(|index| self.send_rest(index));
        for socket in std::mem::take(&mut self.behind) {
            self.release(socket);
        }
    }

    /// A carried send did not go through: keeps its rest, unless there is no hope.
    fn load_failed(&mut self, entry: &cqueue::Entry) -> Option<u32> {
        let load = self.carrier.quay.loads()[entry.user_data() as usize];
        let slot = self.slots.get_mut(load.socket)?;
        let sent = match super::end::decode(entry.result()) {
            Ok(count) => count as usize,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => {
                slot.failed = Some(error);
                return None;
            }
        };
        if slot.closer.is_some() || sent >= load.len() {
            return None; // it is being closed, and the peer does not read
        }
        let index = self.carrier.keep_rest(load, sent);
        slot.rest = Some(RestIndex::new(index));
        slot.in_flight += 1;
        Some(index)
    }

    fn send_rest(&mut self, index: u32) {
        let rest = &self.carrier.rests[index as usize];
        let fd = self.slots[rest.socket].source.raw(); // open: its close waits for this
        let entry = send_entry(Fd(fd), &rest.bytes[rest.sent..], SendFlags::empty());
        self.with_kernel += 1;
        self.push(&entry.user_data(REST | u64::from(index)));
    }

    /// The kernel has done something about a rest.
    #[cold]
    pub(super) fn rest_sent(&mut self, user_data: u64, result: Result<u32, Errno>) {
        self.with_kernel -= 1;
        let index = (user_data & !REST) as u32;
        let rest = &mut self.carrier.rests[index as usize];
        let socket = rest.socket;
        let slot = &mut self.slots[socket];
        let again = match result {
            Ok(count) => {
                rest.sent += count as usize;
                rest.sent < rest.bytes.len()
            }
            Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
        };
        if again && slot.closer.is_none() {
            return self.send_rest(index);
        }
        rest.bytes = Vec::new();
        self.carrier.free.push(index);
        slot.failed = result.err();
        slot.rest = None;
        slot.in_flight -= 1;
        self.release(socket);
    }

    /// Gives up a rest that the peer has no room for.
    pub(super) fn cancel_rest(&mut self, index: RestIndex) {
        self.cancel_request(REST | u64::from(index.get()));
    }

    /// Goes on with what has waited behind carried bytes, unless a rest of them is under way.
    fn release(&mut self, handle: Handle) {
        let Some(slot) = self.slots.get_mut(handle).filter(|slot| slot.rest.is_none()) else {
            return;
        };
        let failed = if slot.held.is_empty() { None } else { slot.failed.take() };
        for token in slot.held.take() {
            if self.operations.get(token).is_some_and(|held| held.stage == Stage::Here) {
                match failed {
                    Some(error) => self.finish(token, Err(error.into())),
                    None => self.issue(token),
                }
            }
        }
        self.close_if_idle(handle);
    }
}

/// Whether a completion is the failure of a load.
#[inline]
pub(super) fn is_load(user_data: u64) -> bool {
    user_data < REST
}

const _: () = assert!(REST < CARRIED);
