//! Doing the work when a descriptor is ready, one completion at a time.

use super::{Adaptor, InFlight, Poller, READER, Slot, WRITER};
use crate::attempt::{self, SendFile};
use crate::descriptor::{Kind, Source};
use crate::file::Work;
use crate::landing::{self, Arrival, Awaited, CANCELLED, Landed};
use crate::lent::{Lent, LentPool, Spare};
use crate::memory::Payload;
use crate::operation::{Completion, Handle, Operation, Outcome, Readiness, Token};
use crate::poll;
use crate::retry;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;

impl<P: Poller> Adaptor<P> {
    /// Tries an operation once. `ready` says that the wait for it is over.
    pub(super) fn attempt(
        &mut self,
        handle: Handle,
        operation: &mut Operation,
        ready: bool,
    ) -> Attempt {
        let slot = &mut self.slots[handle];
        let fd = slot.source.as_fd();
        let kind = slot.kind;
        let result = match operation {
            Operation::Receive { space, .. } => {
                let result = attempt::receive_into(fd, kind, space);
                if let Some(Ok(Outcome::Count(count))) = result {
                    slot.used_up::<P>(count < space.len());
                }
                result
            }
            Operation::ReceiveMessage { space, limit_descriptors, .. } => {
                attempt::receive_message(fd, space, *limit_descriptors)
            }
            Operation::Connect { address, .. } if !ready => attempt::connect(fd, address),
            Operation::Connect { .. } => Some(attempt::connected(fd)),
            Operation::Send { payload, .. } => attempt::send(fd, kind, payload),
            Operation::SendMessage { message, .. } => attempt::send_message(fd, message),
            Operation::SendFile { file, offset, count, .. } => {
                let (file, offset, count) = (*file, *offset, *count);
                return self.attempt_send_file(handle, file, offset, count, false);
            }
            Operation::ChildExit { .. } => attempt::child_exit(fd),
            other => unreachable!("{} does not wait for a descriptor", other.name()),
        };
        match result {
            Some(result) => Attempt::Done(result),
            None => {
                slot.ready -= if operation.is_receiving() { READER } else { WRITER };
                Attempt::Wait
            }
        }
    }

    pub(super) fn attempt_send_file(
        &mut self,
        handle: Handle,
        file: Handle,
        offset: u64,
        count: usize,
        warmed: bool,
    ) -> Attempt {
        let name = file;
        let Ok(Source::File(file)) = self.slot(name).map(|slot| &slot.source) else {
            return Attempt::Done(Err(Errno::BADF.into()));
        };
        let file = Arc::clone(file);
        let slot = &mut self.slots[handle];
        let (socket, fd) = (slot.source.as_fd(), file.as_fd());
        let sent = match warmed {
            true => attempt::send_file_now(socket, fd, offset, count),
            false => attempt::send_file(&mut self.resident, socket, (name, fd), offset, count),
        };
        match sent {
            SendFile::Done(result) => Attempt::Done(result),
            SendFile::Cold(count) => Attempt::Cold(Box::new(Work::Warm { file, offset, count })),
            SendFile::Wait => {
                slot.ready -= WRITER;
                Attempt::Wait
            }
        }
    }

    /// Goes on with a send_file whose bytes a thread has read.
    pub(super) fn attempt_warmed(&mut self, token: Token) -> Attempt {
        let InFlight { handle, operation, .. } = &self.operations[token];
        let Operation::SendFile { file, offset, count, .. } = *operation else {
            unreachable!("only send_file is warmed");
        };
        self.attempt_send_file(*handle, file, offset, count, true)
    }

    /// Does what a descriptor is ready for: one completion at most, so that it is called again for more.
    #[inline]
    pub(super) fn run(&mut self, handle: Handle) -> Option<Arrival> {
        let slot = self.slots.get(handle)?;
        if slot.left.is_some() && slot.ready.intersects(WRITER) {
            self.send_rest(handle);
        }
        let slot = self.slots.get(handle)?;
        let reader = slot.reader.filter(|_| slot.ready.intersects(READER));
        let may_write = slot.ready.intersects(WRITER) && !slot.pausing && slot.left.is_none();
        let writer = slot.writer.filter(|_| may_write);
        let held = !slot.held.is_empty();
        let received = match reader {
            Some(token) if slot.lent => {
                self.run_receive_lent(handle, token).map(Arrival::Completion)
            }
            Some(token) => self.run_operation(handle, token).map(Arrival::Completion),
            None => self.run_receive_awaited(handle).map(Arrival::Landed),
        };
        if received.is_some() {
            if writer.is_some() || held {
                self.enqueue(handle);
            }
            return received;
        }
        let sent = writer.and_then(|token| self.run_operation(handle, token));
        if held {
            self.shut_down_held(handle);
        }
        sent.map(Arrival::Completion)
    }

    /// Receives for who awaits it.
    fn run_receive_awaited(&mut self, handle: Handle) -> Option<Awaited> {
        let slot = self.slots.get_mut(handle).filter(|slot| slot.ready.intersects(READER))?;
        let (awaited, landed) = slot.receive_awaited::<P>()?;
        self.awaited -= 1;
        awaited.land(landed);
        Some(awaited)
    }

    /// Receives into a lent buffer.
    pub(super) fn run_receive_lent(&mut self, handle: Handle, token: Token) -> Option<Completion> {
        let slot = &mut self.slots[handle];
        match slot.receive_lent::<P>(&self.lent) {
            Received::Bytes(spare, count) => {
                slot.note_large(count);
                if slot.ready.intersects(READER) {
                    self.run_again(handle);
                }
                Some(self.deliver(token, spare, count))
            }
            Received::Nothing => None,
            Received::End(result) => Some(self.complete(token, result)),
        }
    }

    /// Has a descriptor looked at in the next turn: it has had its share of this one.
    pub(super) fn run_again(&mut self, handle: Handle) {
        if !std::mem::replace(&mut self.slots[handle].queued, true) {
            self.again.push(handle);
        }
    }

    /// Has the send of a descriptor tried again after a pause, and not before: epoll tells that it is writable
    /// after each attempt, because of the attempt.
    pub(super) fn retry_later(&mut self, handle: Handle) {
        if !std::mem::replace(&mut self.slots[handle].pausing, true) {
            self.retries.add(handle);
        }
    }

    /// Has a descriptor looked at once more in this turn, behind the others.
    pub(super) fn enqueue(&mut self, handle: Handle) {
        if let Some(slot) = self.slots.get_mut(handle)
            && !std::mem::replace(&mut slot.queued, true)
        {
            self.runnable.push_back(handle);
        }
    }

    /// Tries an operation whose descriptor is ready, and completes it if it has come to something.
    pub(super) fn run_operation(&mut self, handle: Handle, token: Token) -> Option<Completion> {
        let in_flight = &mut self.operations[token];
        if in_flight.on_thread {
            return None; // a send_file whose bytes are being read
        }
        if let Operation::Accept { .. } = in_flight.operation {
            return self.run_accept(handle, token);
        }
        let mut operation = in_flight.take_operation(); // it leaves the table while it is worked on
        let attempt = self.attempt(handle, &mut operation, true);
        self.operations[token].operation = operation;
        match attempt {
            Attempt::Done(result) => Some(self.complete(token, result)),
            Attempt::Wait => {
                if retry::is_unannounced(&self.operations[token].operation) {
                    self.retry_later(handle);
                }
                None
            }
            Attempt::Cold(work) => {
                self.operations[token].on_thread = true;
                self.warm(token, *work);
                None
            }
        }
    }

    /// Accepts one connection. There may be more: how many of them one turn takes is the loop's budget.
    pub(super) fn run_accept(&mut self, handle: Handle, token: Token) -> Option<Completion> {
        let slot = &mut self.slots[handle];
        let kind = slot.kind;
        let accepted = match attempt::accept(slot.source.as_fd()) {
            None => {
                slot.ready -= READER;
                return None;
            }
            Some(accepted) => accepted,
        };
        match accepted.and_then(|fd| self.insert(Source::Owned(fd), kind, false)) {
            Ok(connection) => {
                self.enqueue(handle);
                let result = Ok(Outcome::Accepted(connection));
                Some(Completion { token, more: true, result, payload: Payload::Nothing })
            }
            Err(error) => Some(self.complete(token, Err(error))),
        }
    }

    /// Completes the polls that `ready` answers.
    pub(super) fn finish_polls(&mut self, handle: Handle, ready: Readiness) {
        let slot = &self.slots[handle];
        let mut answered = Vec::new();
        for token in slot.polls.iter() {
            let Operation::Poll { interest, .. } = self.operations[token].operation else {
                unreachable!("only polls are in the list of polls");
            };
            let ready =
                if P::COARSE { poll::ready_now(slot.source.as_fd(), interest) } else { ready };
            if let Some(ready) = ready.answer(interest) {
                answered.push((token, ready));
            }
        }
        for (token, ready) in answered {
            self.finish(token, Ok(Outcome::Ready(ready)));
        }
    }
}

/// What came of trying.
pub(super) enum Attempt {
    Done(io::Result<Outcome>),
    /// The descriptor is not ready.
    Wait,
    /// The bytes to send must be read from the disk first.
    Cold(Box<Work>),
}

/// What came of a lent receive.
pub(super) enum Received {
    /// So many bytes, in this buffer.
    Bytes(Spare, usize),
    /// There was nothing to receive.
    Nothing,
    /// The stream has ended, or failed.
    End(io::Result<Outcome>),
}

impl Slot {
    /// Whether nothing has to be done for a receive but to note it, and to put it in line if there is something.
    #[inline]
    pub(super) fn can_await<P: Poller>(&self) -> bool {
        P::EDGE
            && self.added
            && !self.is_reading()
            && self.closer.is_none()
            && (self.kind.is_socket() || !self.source.is_lent())
    }

    /// What is needed to send.
    #[inline]
    pub(super) fn parts(&self) -> (BorrowedFd<'_>, Kind) {
        (self.source.as_fd(), self.kind)
    }

    /// Whether its receiving place is taken.
    #[inline]
    pub(super) fn is_reading(&self) -> bool {
        self.reader.is_some() || self.receive.is_some()
    }

    /// Receives for who awaits it. If that comes to something, the receive is over; it is still to land.
    #[inline(always)]
    pub(super) fn receive_awaited<P: Poller>(&mut self) -> Option<(Awaited, Landed)> {
        let receive = self.receive.as_ref()?;
        if self.source.is_lent() && receive.is_lost() {
            return Some((self.receive.take()?.into_awaited(), CANCELLED));
        }
        let mut space = receive.take_space();
        let landed = match attempt::receive(self.source.as_fd(), self.kind, space.as_mut_slice()) {
            Some(Ok(count)) => {
                self.used_up::<P>(count < space.len());
                Landed::Count(count)
            }
            Some(Err(error)) => landing::failed(&error),
            None => {
                receive.put_back(space);
                self.ready -= READER;
                return None;
            }
        };
        Some((self.receive.take()?.into_awaited(), landed))
    }

    #[inline(always)]
    pub(super) fn receive_lent<P: Poller>(&mut self, pool: &LentPool) -> Received {
        let mut spare = pool.take_spare().expect("no more than half of them are kept");
        let (fd, kind) = (self.source.as_fd(), self.kind);
        match pool.fill(&mut spare, |space| attempt::receive(fd, kind, space)) {
            Some(Ok(count)) if count > 0 || is_datagram(self) => {
                self.used_up::<P>(count < pool.size());
                Received::Bytes(spare, count)
            }
            other => {
                pool.give_back(spare.id());
                match other {
                    Some(result) => Received::End(result.map(|_| Outcome::Lent(Lent::end()))),
                    None => {
                        self.ready -= READER;
                        Received::Nothing
                    }
                }
            }
        }
    }

    /// Notes how far a receive has emptied the descriptor.
    #[inline]
    pub(super) fn used_up<P: Poller>(&mut self, short: bool) {
        // A receive stops short of an urgent byte, and there may be more behind it: from the first one on,
        // `URGENT` stays, and only a receive that finds nothing has emptied the descriptor.
        let more =
            Readiness::READ_CLOSED | Readiness::CLOSED | Readiness::ERROR | Readiness::URGENT;
        if !P::EDGE {
            self.ready -= READER; // a level is reported again
        } else if short && self.kind == Kind::Tcp && !self.ready.intersects(more) {
            self.ready -= Readiness::READ;
        }
    }
}

/// Whether an empty receive is an empty message, and not the end of a stream.
#[cold]
fn is_datagram(slot: &Slot) -> bool {
    slot.kind == Kind::Socket
        && rustix::net::sockopt::socket_type(&slot.source)
            .is_ok_and(|kind| kind == rustix::net::SocketType::DGRAM)
}
