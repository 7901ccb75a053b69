//! Small sends that the adaptor carries for callers who keep their bytes, and hands to the kernel together.
//!
//! ```text
//!   try_send ──copy──► quay ──► hand over: send, send, send … ──► gone
//!                                              └──► short, EAGAIN: the rest waits in its slot until there is room
//! ```
//!
//! Whoever sends something else, ends a direction or closes has the quay handed over first. Who sends waits
//! behind a rest, and who ends a direction behind that; a close gives the rest up. Why one after the other is
//! cheaper than each at its time: [`gather`](super::gather).

use super::{Adaptor, InFlight, Poller, Slot, WRITER};
use crate::attempt;
use crate::descriptor::{Kind, Source};
use crate::operation::{Handle, Operation, Outcome, Submitted, Token};
use crate::quay::{self, Quay};
use crate::socket;
use rustix::fd::AsFd;
use rustix::io::Errno;
use slotmap::SlotMap;
use std::io;

/// The sends that are handed over next, and how many rests of earlier ones there are.
pub(super) struct Carrier {
    pub(super) quay: Quay,
    rests: usize,
}

/// What is left of a carried send that did not go through.
pub(super) enum Left {
    /// These bytes.
    Rest(Vec<u8>),
    /// Nothing but an error, for the next who sends.
    Failure(io::Error),
}

impl Carrier {
    pub(super) fn new() -> Carrier {
        Carrier { quay: Quay::new(), rests: 0 }
    }

    /// How many sends are not over.
    pub(super) fn in_flight(&self) -> usize {
        self.quay.loads().len() + self.rests
    }
}

impl Slot {
    /// Whether bytes are on the quay, which the kernel has not seen.
    #[inline]
    fn is_loaded(&self, carrier: &Carrier) -> bool {
        self.loaded_on == carrier.quay.voyage()
    }

    /// Whether the kernel does not have everything, or has refused it and nobody was told.
    pub(super) fn is_carrying(&self, carrier: &Carrier) -> bool {
        self.is_loaded(carrier) || self.left.is_some()
    }

    /// How many bytes were left when there was no room.
    pub(super) fn rest_bytes(&self) -> usize {
        match self.left.as_deref() {
            Some(Left::Rest(bytes)) => bytes.len(),
            Some(Left::Failure(_)) | None => 0,
        }
    }
}

/// A descriptor that somebody tries to send to.
#[inline(always)]
fn sending_slot(slots: &mut SlotMap<Handle, Slot>, socket: Handle) -> io::Result<&mut Slot> {
    match slots.get_mut(socket) {
        Some(slot) if slot.closer.is_some() => Err(Errno::BADF.into()),
        Some(slot) if slot.writer.is_some() => Err(Errno::ALREADY.into()),
        Some(Slot { source: Source::Lent(_), .. }) | None => Err(Errno::BADF.into()), // its owner sends
        Some(slot) => Ok(slot),
    }
}

impl<P: Poller> Adaptor<P> {
    /// [`Demux::try_send`](crate::Demux::try_send): what is small is carried.
    #[inline]
    pub(super) fn carry(&mut self, socket: Handle, bytes: &[u8]) -> io::Result<usize> {
        self.fork.check()?;
        let small = (1..=quay::LIMIT_BYTES).contains(&bytes.len());
        if small && !self.carrier.quay.has_room(bytes.len()) {
            self.hand_over_early();
        }
        let slot = sending_slot(&mut self.slots, socket)?;
        if small
            && slot.kind == Kind::Tcp
            && slot.left.is_none()
            && !slot.is_loaded(&self.carrier)
            && self.carrier.quay.load(socket, bytes).is_some()
        {
            slot.loaded_on = self.carrier.quay.voyage();
            return Ok(bytes.len());
        }
        if !self.settle(socket)? {
            return Ok(0);
        }
        let slot = &self.slots[socket];
        attempt::send_bytes(slot.source.as_fd(), slot.kind, bytes).unwrap_or(Ok(0))
    }

    /// [`Demux::try_send_before_file`](crate::Demux::try_send_before_file): nothing of it is carried.
    pub(super) fn send_before_file(&mut self, socket: Handle, bytes: &[u8]) -> io::Result<usize> {
        self.fork.check()?;
        sending_slot(&mut self.slots, socket)?;
        if !self.settle(socket)? {
            return Ok(0);
        }
        let slot = &self.slots[socket];
        attempt::send_bytes_before_more(slot.source.as_fd(), slot.kind, bytes).unwrap_or(Ok(0))
    }

    /// Has go first what a socket was given. False if a rest of that has to wait for room.
    ///
    /// # Errors
    /// How it has failed, if it has, and nobody was told.
    #[inline]
    pub(super) fn settle(&mut self, socket: Handle) -> io::Result<bool> {
        if self.slots.get(socket).is_some_and(|slot| slot.is_loaded(&self.carrier)) {
            self.hand_over_early();
        }
        let Some(left) = self.slots.get_mut(socket).and_then(|slot| slot.left.take()) else {
            return Ok(true);
        };
        match *left {
            Left::Failure(error) => Err(error),
            Left::Rest(_) => {
                self.slots[socket].left = Some(left);
                Ok(false)
            }
        }
    }

    /// How many bytes of a socket the kernel has not taken.
    pub(super) fn carried_bytes(&self, socket: Handle) -> usize {
        let Some(slot) = self.slots.get(socket) else { return 0 };
        let loaded = slot.is_loaded(&self.carrier);
        slot.rest_bytes() + if loaded { self.carrier.quay.bytes_of(socket) } else { 0 }
    }

    /// Sends everything that is on the quay, before its time.
    #[inline(never)]
    pub(super) fn hand_over_early(&mut self) {
        self.hand_over();
    }

    /// Sends everything that is due or on the quay: one send after the other, and nothing in between.
    #[inline(always)]
    pub(super) fn hand_over(&mut self) {
        if !self.due.is_idle() {
            self.due.send_all(|socket| Some(self.slots.get(socket)?.parts()));
        }
        if self.carrier.quay.is_empty() {
            return;
        }
        let mut left = Vec::new();
        for load in self.carrier.quay.loads() {
            let Some(slot) = self.slots.get(load.socket) else { continue }; // never: a close is behind it
            let bytes = self.carrier.quay.bytes(load);
            match attempt::send_bytes(slot.source.as_fd(), slot.kind, bytes) {
                Some(Ok(sent)) if sent == bytes.len() => {}
                Some(Err(error)) => left.push((load.socket, Left::Failure(error))),
                Some(Ok(sent)) => left.push((load.socket, Left::Rest(bytes[sent..].to_vec()))),
                None => left.push((load.socket, Left::Rest(bytes.to_vec()))),
            }
        }
        self.carrier.quay.empty();
        if !left.is_empty() {
            self.keep(left);
        }
    }

    /// Keeps what did not go through.
    #[cold]
    fn keep(&mut self, left: Vec<(Handle, Left)>) {
        for (socket, left) in left {
            self.carrier.rests += usize::from(matches!(left, Left::Rest(_)));
            self.slots[socket].left = Some(Box::new(left));
            self.send_rest(socket);
        }
    }

    /// Sends a rest, as far as there is room; then what waits behind it may go on.
    #[cold]
    pub(super) fn send_rest(&mut self, socket: Handle) {
        let slot = &mut self.slots[socket];
        while let Some(Left::Rest(bytes)) = slot.left.as_deref_mut() {
            let failure = match attempt::send_bytes(slot.source.as_fd(), slot.kind, bytes) {
                Some(Ok(sent)) if sent < bytes.len() => {
                    bytes.drain(..sent);
                    continue;
                }
                Some(Ok(_)) => None,
                Some(Err(error)) => Some(error),
                None => {
                    slot.ready -= WRITER;
                    match self.await_writable(socket) {
                        Ok(()) => return,
                        Err(error) => Some(error),
                    }
                }
            };
            self.carrier.rests -= 1;
            self.slots[socket].left = None;
            if let Some(error) = failure {
                self.rest_failed(socket, error);
            }
            break;
        }
        if !P::EDGE {
            // Waiting for less cannot be refused.
            let _ = self.watch(socket, false);
        }
    }

    /// Tells those who wait behind a rest that it has failed; if there is none, the next who sends.
    fn rest_failed(&mut self, socket: Handle, error: io::Error) {
        let slot = &mut self.slots[socket];
        let behind: Vec<Token> = slot.writer.into_iter().chain(slot.held.iter()).collect();
        if behind.is_empty() {
            slot.left = Some(Box::new(Left::Failure(error)));
            return;
        }
        let code = error.raw_os_error().unwrap_or(libc::EIO);
        for token in behind {
            self.finish(token, Err(io::Error::from_raw_os_error(code)));
        }
    }

    /// Ends a direction behind a rest, and behind the attempt of who sends.
    pub(super) fn hold_shutdown(&mut self, socket: Handle, operation: Operation) -> Submitted {
        let in_flight = InFlight { operation, handle: socket, on_thread: false, ended: false };
        let token = self.operations.insert(in_flight);
        self.slots[socket].held.push(token);
        Submitted::Pending(token)
    }

    /// Does what was held, if the rest is gone.
    pub(super) fn shut_down_held(&mut self, socket: Handle) {
        let Some(slot) = self.slots.get(socket) else { return };
        if slot.held.is_empty() || slot.rest_bytes() > 0 {
            return;
        }
        for token in slot.held.iter().collect::<Vec<_>>() {
            let Operation::Shutdown { how, .. } = self.operations[token].operation else {
                unreachable!("only shutdowns are held");
            };
            let result = socket::shutdown(&self.slots[socket].source, how);
            self.finish(token, result.map(|()| Outcome::Nothing));
        }
    }

    /// Forgets what a socket has not sent: it has had its attempt, and the peer does not read.
    pub(super) fn give_up_rest(&mut self, socket: Handle) {
        let left = self.slots.get_mut(socket).and_then(|slot| slot.left.take());
        self.carrier.rests -= usize::from(matches!(left.as_deref(), Some(Left::Rest(_))));
    }
}
