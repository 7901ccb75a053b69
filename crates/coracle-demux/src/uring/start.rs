//! Starting operations: from an [`Operation`] to a request in the submission queue.

use super::{Extra, InFlight, POLL_FIRST, Slot, Stage, Uring, buffer_ring};
use crate::Demux;
use crate::attempt::{self, SendFile};
use crate::descriptor::{Kind, Source};
use crate::file::{self, Work};
use crate::lent::Lent;
use crate::memory::Payload;
use crate::operation::{
    Completion, Finished, Handle, Interest, Operation, Outcome, Submitted, Token,
};
use crate::retry;
use crate::{poll, socket};
use io_uring::types::Fd;
use io_uring::{opcode, squeue};
use rustix::event::PollFlags;
use rustix::fd::{AsFd, AsRawFd, IntoRawFd};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};
use slotmap::Key;
use std::ffi::CString;
use std::io;
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// How many connects the kernel is given at a time.
const CONNECTS_PER_ENTRY: u32 = 8;

impl Uring {
    /// Puts an operation on a descriptor into the table and hands it to the kernel.
    pub(super) fn start(&mut self, handle: Handle, operation: Operation) -> Submitted {
        match self.slot(handle) {
            Ok(slot) if !slot.source.allows(slot.kind, &operation) => operation.refuse(Errno::BADF),
            Ok(_) => match self.claim(handle, &operation) {
                Ok(()) => {
                    let behind = goes_behind_sends(&operation);
                    let token = self.enlist(handle, operation);
                    match &mut self.slots[handle] {
                        slot if behind && slot.is_carrying(&self.carrier) => {
                            slot.held.push(token);
                            if slot.is_loaded(&self.carrier) {
                                self.behind.push(handle);
                            }
                        }
                        _ => self.issue(token),
                    }
                    Submitted::Pending(token)
                }
                Err(error) => operation.refuse(error),
            },
            Err(error) => operation.refuse(error),
        }
    }

    /// Starts the most frequent of all operations that are started: one stretch, to a socket.
    #[inline]
    pub(super) fn start_send(&mut self, socket: Handle, payload: Payload) -> Submitted {
        let (Some(slot), Payload::One(memory)) = (self.slots.get_mut(socket), &payload) else {
            return self.start(socket, Operation::Send { socket, payload });
        };
        let carrying = slot.is_carrying(&self.carrier);
        let free = slot.writer.is_none() && slot.closer.is_none() && !carrying;
        if !free || slot.failed.is_some() || !slot.kind.is_socket() || slot.source.is_lent() {
            return self.start(socket, Operation::Send { socket, payload });
        }
        let entry = send_entry(Fd(slot.source.raw()), memory.as_slice(), SendFlags::empty());
        let token = self.operations.insert(InFlight {
            operation: Operation::Send { socket, payload },
            handle: socket,
            stage: Stage::Kernel,
            cancelled: false,
            extra: None,
        });
        slot.writer = Some(token);
        slot.in_flight += 1;
        self.with_kernel += 1;
        self.push(&entry.user_data(token.data().as_ffi()));
        Submitted::Pending(token)
    }

    /// Starts the sending or receiving of a message. By the call itself where that may come to something, as on
    /// epoll: a send without carried bytes before it, a receive after one that found something.
    pub(super) fn start_message(&mut self, socket: Handle, mut operation: Operation) -> Submitted {
        let try_first = match self.slot(socket) {
            Ok(slot) if matches!(slot.source, Source::Lent(_)) => false,
            Ok(slot) if operation.is_receiving() => !slot.drained,
            Ok(slot) => !slot.is_carrying(&self.carrier),
            Err(_) => false,
        };
        if !try_first {
            return self.start(socket, operation);
        }
        if let Err(error) = self.claim(socket, &operation) {
            return operation.refuse(error);
        }
        match self.slots[socket].attempt_message(&mut operation) {
            Some(result) => Submitted::Done(Finished { result, payload: operation.into_payload() }),
            None => {
                let token = self.enlist(socket, operation);
                self.await_turn(token);
                Submitted::Pending(token)
            }
        }
    }

    /// A connect over the loopback device is a handshake there and then: so many of them in one entry into the
    /// kernel that timers can still be in time.
    pub(super) fn start_connect(&mut self, socket: Handle, operation: Operation) -> Submitted {
        let submitted = self.start(socket, operation);
        self.connects += 1;
        if self.connects == CONNECTS_PER_ENTRY {
            self.connects = 0;
            self.flush();
        }
        submitted
    }

    /// Ends a direction at once, unless carried bytes have to go first.
    pub(super) fn start_shutdown(&mut self, socket: Handle, how: Shutdown) -> Submitted {
        let operation = Operation::Shutdown { socket, how };
        let free = match self.slot(socket) {
            Ok(slot) if matches!(slot.source, Source::Lent(_)) => false,
            Ok(slot) => how == Shutdown::Read || !slot.is_carrying(&self.carrier),
            Err(_) => false,
        };
        if !free {
            return self.start(socket, operation);
        }
        if let Err(error) = self.claim(socket, &operation) {
            return operation.refuse(error);
        }
        let result = self.shut_down(socket, how);
        Submitted::Done(Finished { result, payload: Payload::Nothing })
    }

    /// shutdown(2). It never waits; io_uring's own always takes a kernel thread.
    fn shut_down(&mut self, handle: Handle, how: Shutdown) -> io::Result<Outcome> {
        if self.slots[handle].writer.is_some() {
            self.hand_over(); // a send that is only queued was submitted first
        }
        socket::shutdown(&self.slots[handle].source, how).map(|()| Outcome::Nothing)
    }

    /// Whether `operation` may be in flight on `handle` beside what is there.
    pub(super) fn claim(&mut self, handle: Handle, operation: &Operation) -> io::Result<()> {
        let slot = &mut self.slots[handle];
        if goes_behind_sends(operation)
            && let Some(error) = slot.failed.take()
        {
            return Err(error.into()); // a carried send failed: the first to hear of it is told
        }
        match direction(operation) {
            Direction::Receiving if slot.reader.is_some() || slot.receive.is_some() => {
                Err(Errno::ALREADY.into())
            }
            Direction::Sending if slot.writer.is_some() => Err(Errno::ALREADY.into()),
            Direction::Neither if is_poll(operation) => slot.kind.check_pollable(),
            _ => Ok(()),
        }
    }

    #[inline]
    pub(super) fn enlist(&mut self, handle: Handle, operation: Operation) -> Token {
        let direction = direction(&operation);
        let token = self.operations.insert(InFlight {
            operation,
            handle,
            stage: Stage::Here,
            cancelled: false,
            extra: None,
        });
        if let Some(slot) = self.slots.get_mut(handle) {
            slot.in_flight += 1;
            match direction {
                Direction::Receiving => slot.reader = Some(token),
                Direction::Sending => slot.writer = Some(token),
                Direction::Neither => {}
            }
        }
        token
    }

    /// Hands an operation of the table to the kernel, or does its part that needs no kernel.
    pub(super) fn issue(&mut self, token: Token) {
        let in_flight = &mut self.operations[token];
        let slot = &self.slots[in_flight.handle];
        let fd = Fd(slot.source.raw());
        let socket = slot.kind.is_socket();
        let entry = match &mut in_flight.operation {
            Operation::ReceiveLent { .. } if socket && self.multishot => {
                opcode::RecvMulti::new(fd, buffer_ring::GROUP).build()
            }
            Operation::ReceiveLent { .. } if socket => {
                let size = self.lent.size() as u32;
                opcode::Recv::new(fd, std::ptr::null_mut(), size)
                    .buf_group(buffer_ring::GROUP)
                    .build()
                    .flags(squeue::Flags::BUFFER_SELECT)
            }
            Operation::Send { payload: Payload::One(memory), .. } if socket => {
                send_entry(fd, memory.as_slice(), SendFlags::empty())
            }
            Operation::Send { payload, .. } if socket => {
                let extra = Box::new(Extra::Vectored(Vectored::new(payload)));
                let Extra::Vectored(vectored) = &mut **in_flight.extra.insert(extra) else {
                    unreachable!("it was just put there")
                };
                let header = vectored.header();
                opcode::SendMsg::new(fd, header).flags(SendFlags::NOSIGNAL.bits()).build()
            }
            Operation::Receive { space, .. } if socket => match space.as_mut_slice() {
                Some(space) => opcode::Recv::new(fd, space.as_mut_ptr(), length(space.len()))
                    .ioprio(if slot.drained { POLL_FIRST } else { 0 })
                    .build(),
                None => return self.finish(token, Err(Errno::FAULT.into())),
            },
            Operation::Accept { .. } => {
                let flags = (SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).bits() as i32;
                let nowhere = std::ptr::null_mut();
                if self.multishot {
                    opcode::AcceptMulti::new(fd).flags(flags).build()
                } else {
                    opcode::Accept::new(fd, nowhere, nowhere.cast()).flags(flags).build()
                }
            }
            Operation::AcceptNumber { place, .. } => {
                let (address, len, flags) = place.parts();
                opcode::Accept::new(fd, address.cast(), len).flags(flags).build()
            }
            Operation::Connect { address, .. } => match socket::encode(address) {
                Ok((encoded, len)) => {
                    let extra = in_flight.extra.insert(Box::new(Extra::Address(encoded)));
                    let Extra::Address(encoded) = &**extra else {
                        unreachable!("it was just put there")
                    };
                    opcode::Connect::new(fd, encoded.as_ptr().cast(), len).build()
                }
                Err(error) => return self.finish(token, Err(error)),
            },
            Operation::Shutdown { how, .. } => {
                let (handle, how) = (in_flight.handle, *how);
                let result = self.shut_down(handle, how);
                return self.finish(token, result);
            }
            Operation::Poll { interest, .. } => {
                opcode::PollAdd::new(fd, poll::flags(*interest).bits().into()).build()
            }
            Operation::Stat { .. } => {
                // SAFETY: a statx is plain numbers, for which zeroes are valid.
                let statx: libc::statx = unsafe { std::mem::zeroed() };
                let extra = in_flight.extra.insert(Box::new(Extra::Statx(statx)));
                let Extra::Statx(statx) = &mut **extra else {
                    unreachable!("it was just put there")
                };
                let place = std::ptr::from_mut(statx).cast();
                opcode::Statx::new(fd, c"".as_ptr(), place)
                    .flags(AtFlags::EMPTY_PATH.bits() as i32)
                    .mask(StatxFlags::BASIC_STATS.bits())
                    .build()
            }
            Operation::Read { offset, space, .. } => match space.as_mut_slice() {
                Some(space) => opcode::Read::new(fd, space.as_mut_ptr(), length(space.len()))
                    .offset(*offset)
                    .build(),
                None => return self.finish(token, Err(Errno::FAULT.into())),
            },
            Operation::Write { offset, memory, .. } => {
                let bytes = memory.as_slice();
                opcode::Write::new(fd, bytes.as_ptr(), length(bytes.len())).offset(*offset).build()
            }
            _ => return self.issue_staged(token),
        };
        in_flight.stage = Stage::Kernel;
        self.with_kernel += 1;
        self.push(&entry.user_data(token.data().as_ffi()));
    }

    /// A staged operation: sends try first, receives wait first.
    pub(super) fn issue_staged(&mut self, token: Token) {
        if self.operations[token].operation.is_receiving() {
            self.await_readiness(token);
        } else {
            self.attempt_staged(token);
        }
    }

    /// Tries a staged operation; waits for readiness if it must.
    pub(super) fn attempt_staged(&mut self, token: Token) {
        let InFlight { operation, handle, .. } = &mut self.operations[token];
        let slot = &mut self.slots[*handle];
        let (fd, kind) = (slot.source.as_fd(), slot.kind);
        let result = match operation {
            Operation::ReceiveLent { .. } => return self.attempt_receive_lent(token),
            Operation::Receive { space, .. } => attempt::receive_into(fd, kind, space),
            Operation::SendMessage { .. } | Operation::ReceiveMessage { .. } => {
                slot.attempt_message(operation)
            }
            Operation::Send { payload, .. } => attempt::send(fd, kind, payload),
            Operation::SendFile { .. } => return self.attempt_send_file(token, false),
            Operation::ChildExit { .. } => attempt::child_exit(fd),
            other => unreachable!("{} is not staged", other.name()),
        };
        match result {
            Some(result) => self.finish(token, result),
            None => self.await_turn(token),
        }
    }

    /// Has a staged operation that found nothing to do tried again.
    fn await_turn(&mut self, token: Token) {
        if retry::is_unannounced(&self.operations[token].operation) {
            self.operations[token].stage = Stage::Here;
            self.retries.add(token);
        } else {
            self.await_readiness(token);
        }
    }

    /// A lent receive from a pipe: repeated here, one piece a turn.
    pub(super) fn attempt_receive_lent(&mut self, token: Token) {
        // The kernel's ring has all buffers; a pipe gets bytes of its own, lent from no pool.
        let slot = &self.slots[self.operations[token].handle];
        let mut bytes = vec![0; self.lent.size()];
        match attempt::receive(slot.source.as_fd(), slot.kind, &mut bytes) {
            Some(Ok(0)) => self.finish(token, Ok(Outcome::Lent(Lent::end()))),
            Some(Ok(count)) => {
                let result = Ok(Outcome::Lent(Lent::owned(&bytes[..count])));
                let payload = Payload::Nothing;
                self.finished.push_back(Completion { token, more: true, result, payload });
                self.await_readiness(token);
            }
            Some(Err(error)) => self.finish(token, Err(error)),
            None => self.await_readiness(token),
        }
    }

    pub(super) fn attempt_send_file(&mut self, token: Token, warmed: bool) {
        let InFlight { operation, handle, .. } = &self.operations[token];
        let Operation::SendFile { file, offset, count, .. } = *operation else {
            unreachable!("only send_file comes here");
        };
        let name = file;
        let file = match self.slot(name).map(|slot| &slot.source) {
            Ok(Source::File(file)) => Arc::clone(file),
            _ => return self.finish(token, Err(Errno::BADF.into())),
        };
        let (socket, fd) = (self.slots[*handle].source.as_fd(), file.as_fd());
        let sent = match warmed {
            true => attempt::send_file_now(socket, fd, offset, count),
            false => attempt::send_file(&mut self.resident, socket, (name, fd), offset, count),
        };
        match sent {
            SendFile::Done(result) => self.finish(token, result),
            SendFile::Wait => self.await_readiness(token),
            SendFile::Cold(count) => {
                let letterbox = self.reports.letterbox();
                let deliver = move |report| letterbox.deliver(token, report);
                self.operations[token].stage = Stage::Thread;
                let work = Work::Warm { file, offset, count };
                if file::give_to_thread(&self.threads, work, deliver).is_err() {
                    self.attempt_send_file(token, true); // no thread to be had: send it cold
                }
            }
        }
    }

    /// Has the kernel tell when a staged operation can go on.
    pub(super) fn await_readiness(&mut self, token: Token) {
        let in_flight = &mut self.operations[token];
        if in_flight.cancelled {
            return self.finish(token, Err(Errno::CANCELED.into()));
        }
        let interest =
            if in_flight.operation.is_receiving() { Interest::READ } else { Interest::WRITE };
        in_flight.stage = Stage::Readiness;
        let fd = Fd(self.slots[in_flight.handle].source.raw());
        let entry = opcode::PollAdd::new(fd, poll::flags(interest).bits().into()).build();
        self.with_kernel += 1;
        self.push(&entry.user_data(token.data().as_ffi()));
    }

    pub(super) fn start_open(&mut self, operation: Operation) -> Submitted {
        let Operation::Open { path, options } = &operation else {
            unreachable!("only open comes here");
        };
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
            return operation.refuse(Errno::INVAL);
        };
        let entry = opcode::OpenAt::new(Fd(rustix::fs::CWD.as_raw_fd()), path.as_ptr())
            .flags(file::flags(*options).bits() as i32)
            .mode(options.mode & 0o7777)
            .build();
        let token = self.enlist(Handle::null(), operation);
        let in_flight = &mut self.operations[token];
        // What it points to stays where it is.
        in_flight.extra = Some(Box::new(Extra::Path(path)));
        in_flight.stage = Stage::Kernel;
        self.with_kernel += 1;
        self.push(&entry.user_data(token.data().as_ffi()));
        Submitted::Pending(token)
    }

    pub(super) fn start_child_exit(&mut self, pid: u32, operation: Operation) -> Submitted {
        match attempt::child_descriptor(pid) {
            Ok(fd) => {
                let handle = self.insert(Source::Owned(fd), Kind::Bytes);
                self.start(handle, operation)
            }
            Err(error) => operation.refuse(error),
        }
    }

    pub(super) fn start_signal(&mut self, signal: i32, operation: Operation) -> Submitted {
        match self.signals.subscribe(signal) {
            Ok(()) => Submitted::Pending(self.enlist(Handle::null(), operation)),
            Err(error) => operation.refuse(error),
        }
    }

    pub(super) fn start_close(&mut self, handle: Handle, operation: Operation) -> Submitted {
        if let Err(error) = self.slot(handle) {
            return operation.refuse(error);
        }
        let closer = self.operations.insert(InFlight {
            operation,
            handle,
            stage: Stage::Here,
            cancelled: false,
            extra: None,
        });
        self.slots[handle].closer = Some(closer);
        if self.slots[handle].in_flight == 0 {
            self.close_now(handle);
        } else {
            self.cancel_all(handle);
        }
        Submitted::Pending(closer)
    }

    /// Asks for the end of everything in flight on a descriptor.
    pub(super) fn cancel_all(&mut self, handle: Handle) {
        let slot = &self.slots[handle];
        let (reader, writer, rest) = (slot.reader, slot.writer, slot.rest);
        let known = [reader.is_some(), slot.receive.is_some(), writer.is_some(), rest.is_some()];
        let all = slot.in_flight as usize == known.into_iter().filter(|&it| it).count();
        self.cancel_awaited(handle);
        if let Some(index) = rest {
            self.cancel_rest(index); // it has had its attempt: the peer does not read
        }
        if all {
            reader.into_iter().chain(writer).for_each(|token| self.cancel(token));
            return;
        }
        // Polls, file operations and shutdowns have no place in the slot: look for them.
        let tokens: Vec<Token> = (self.operations.iter())
            .filter(|(_, other)| other.handle == handle && !is_close(&other.operation))
            .map(|(token, _)| token)
            .collect();
        tokens.into_iter().for_each(|token| self.cancel(token));
    }

    /// Closes a descriptor on which nothing is in flight any more.
    pub(super) fn close_now(&mut self, handle: Handle) {
        let slot = self.slots.remove(handle).expect("a descriptor is closed once");
        let closer = slot.closer.expect("it is being closed");
        if closer.is_null() {
            return; // it was lent, and nobody waits for this
        }
        match slot.source {
            Source::Owned(fd) => {
                let entry = opcode::Close::new(Fd(fd.into_raw_fd())).build();
                self.operations[closer].stage = Stage::Kernel;
                self.with_kernel += 1;
                self.push(&entry.user_data(closer.data().as_ffi()));
            }
            Source::File(_) | Source::Lent(_) => self.finish(closer, Ok(Outcome::Nothing)),
        }
    }
}

impl Slot {
    /// Sends or receives one message, and notes whether there may be more.
    fn attempt_message(&mut self, operation: &mut Operation) -> Option<io::Result<Outcome>> {
        let fd = self.source.as_fd();
        match operation {
            Operation::SendMessage { message, .. } => attempt::send_message(fd, message),
            Operation::ReceiveMessage { space, limit_descriptors, .. } => {
                let result = attempt::receive_message(fd, space, *limit_descriptors);
                self.drained = result.is_none();
                result
            }
            other => unreachable!("{} is not about a message", other.name()),
        }
    }
}

/// Which of a descriptor's two places an operation takes.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    Receiving,
    Sending,
    Neither,
}

pub(super) fn direction(operation: &Operation) -> Direction {
    match operation {
        Operation::Send { .. }
        | Operation::SendMessage { .. }
        | Operation::SendFile { .. }
        | Operation::Connect { .. } => Direction::Sending,
        other if other.is_receiving() => Direction::Receiving,
        _ => Direction::Neither,
    }
}

/// Whether an operation has to wait until bytes that were taken over are sent.
pub(super) fn goes_behind_sends(operation: &Operation) -> bool {
    match operation {
        Operation::Shutdown { how, .. } => *how != Shutdown::Read,
        other => matches!(direction(other), Direction::Sending),
    }
}

pub(super) fn is_poll(operation: &Operation) -> bool {
    matches!(operation, Operation::Poll { .. })
}

pub(super) fn is_close(operation: &Operation) -> bool {
    matches!(operation, Operation::Close { .. })
}

#[inline]
pub(super) fn send_entry(fd: Fd, bytes: &[u8], flags: SendFlags) -> squeue::Entry {
    opcode::Send::new(fd, bytes.as_ptr(), length(bytes.len()))
        .flags((SendFlags::NOSIGNAL | flags).bits() as i32)
        .build()
}

pub(super) fn poll_in() -> u32 {
    PollFlags::IN.bits().into()
}

/// A length as io_uring takes it; more than 4 GiB at once becomes a short count.
pub(super) fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The header of a vectored send and the slices it points to.
pub(super) struct Vectored {
    header: libc::msghdr,
    slices: [libc::iovec; attempt::SEND_SLICES],
}

impl Vectored {
    pub(super) fn new(payload: &Payload) -> Vectored {
        let (slices, count) = attempt::slices(payload);
        let slices = slices.map(|slice| libc::iovec {
            iov_base: slice.as_ptr().cast_mut().cast(),
            iov_len: slice.len(),
        });
        // SAFETY: a msghdr is plain numbers and pointers, for which zeroes are valid.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iovlen = count;
        Vectored { header, slices }
    }

    /// The header, pointing to the slices where they are now.
    pub(super) fn header(&mut self) -> *const libc::msghdr {
        self.header.msg_iov = self.slices.as_mut_ptr();
        &raw const self.header
    }
}
