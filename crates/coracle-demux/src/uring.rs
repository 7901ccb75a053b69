//! io_uring: the kernel does the work and tells when it is done.
//!
//! ```text
//!   submit ──► submission queue ─┐            ┌─► completion queue ──► arrived ──► next()
//!                                └── enter ───┘
//!              (one system call a turn: hands over, waits, runs what became ready)
//! ```
//!
//! Every operation in flight has an entry in a table, and its token is the entry's `user_data`. The entry
//! owns the memory the kernel works on; it is removed by the final completion and by nothing else.
//!
//! The frequent operations are the kernel's own. The rare ones (messages with addresses or descriptors,
//! pipes, send_file, children) are *staged*: the kernel only waits for readiness, and [`attempt`] does the
//! work, as on epoll. A send_file could be a splice, but that takes a kernel thread every time.
//!
//! Needs Linux 5.19 (rings of provided buffers). What is newer is used when it is there: multishot
//! receive (6.0), deferred task work (6.1).
#![allow(unsafe_code)]

mod buffer_ring;

use crate::address::Address;
use crate::attempt::{self, SendFile};
use crate::backend::{Backend, Features, Settings, Threads};
use crate::descriptor::{Kind, Source};
use crate::file::{self, Fact, Report, Work};
use crate::fork::ForkGuard;
use crate::lent::{Lent, LentPool};
use crate::mailbox::Mailbox;
use crate::memory::Payload;
use crate::operation::{
    Completion, FileKind, Handle, Interest, Metadata, Operation, Outcome, Readiness, Submitted,
    Token,
};
use crate::readiness::{
    answer, child_descriptor, describe_operation, give_to_thread, is_receiving, os_seed,
};
use crate::signal::{self, Inbox};
use crate::socket::{self, SocketKind, SocketOption};
use crate::wakeup::{Waker, Wakeup};
use crate::{Demux, Descriptor, poll};
use buffer_ring::BufferRing;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::event::PollFlags;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};
use slotmap::{Key, KeyData, SlotMap};
use std::collections::VecDeque;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// `user_data` of the wake-up's poll, and of requests whose completion says nothing. No token has them.
const WAKEUP: u64 = u64::MAX;
const SILENT: u64 = u64::MAX - 1;

/// How long a drop waits for the kernel to let go of memory, before it leaks that memory.
const DROP_TIMEOUT: Duration = Duration::from_secs(2);

/// A receive that waits for readiness first, because the last one left the socket empty.
const POLL_FIRST: u16 = 1;

pub(crate) struct Uring {
    ring: IoUring,
    slots: SlotMap<Handle, Slot>,
    operations: SlotMap<Token, InFlight>,
    /// What the kernel has completed and nobody has taken yet.
    arrived: VecDeque<cqueue::Entry>,
    /// Completions that needed no kernel.
    finished: VecDeque<Completion>,
    /// Lent receives that found no buffer.
    starved: Vec<Token>,
    /// Requests in the kernel's hands, those without a token not counted.
    with_kernel: usize,
    buffers: BufferRing,
    lent: Rc<LentPool>,
    /// Whether the kernel repeats receives and accepts by itself.
    multishot: bool,
    wakeup: Wakeup,
    signals: Inbox,
    threads: Threads,
    reports: Mailbox<Token, Report>,
    fork: ForkGuard,
}

/// A descriptor.
struct Slot {
    source: Source,
    kind: Kind,
    /// The last receive left nothing behind.
    drained: bool,
    reader: Option<Token>,
    writer: Option<Token>,
    /// How many operations are in flight on it.
    in_flight: usize,
    /// The close that waits for them.
    closer: Option<Token>,
}

struct InFlight {
    operation: Operation,
    /// The descriptor it is about: the operation's, or one made for it (a child's).
    handle: Handle,
    stage: Stage,
    cancelled: bool,
    /// What the kernel reads or writes beside the payload, at an address that does not change.
    extra: Extra,
}

/// Who has an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The kernel, which will complete it.
    Kernel,
    /// The kernel, which will tell when the descriptor is ready for it.
    Readiness,
    /// A thread, which reads from a disk for it.
    Thread,
    /// Nobody: it waits for a buffer, a signal, or other operations.
    Here,
}

#[expect(dead_code, reason = "most of it is read by the kernel only")]
enum Extra {
    Nothing,
    Address(Box<([u8; 128], u32)>),
    Path(CString),
    Statx(Box<libc::statx>),
    Vectored(Box<Vectored>),
}

/// The header of a vectored send and the slices it points to.
struct Vectored {
    header: libc::msghdr,
    slices: [libc::iovec; attempt::SEND_SLICES],
}

impl Uring {
    pub(crate) fn open(settings: &Settings) -> io::Result<Uring> {
        for (name, count) in [
            ("limit_lent_buffers", u32::from(settings.limit_lent_buffers)),
            ("limit_submissions", settings.limit_submissions),
        ] {
            if !count.is_power_of_two() || count > 32768 {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{name} must be a power of two up to 32768, not {count}"),
                ));
            }
        }
        let ring = open_ring(settings).map_err(explain_refusal)?;
        let wakeup = Wakeup::open(settings.wakeup)?;
        let waker = wakeup.waker();
        let lent = LentPool::new(settings.limit_lent_buffers, settings.lent_buffer_bytes);
        let buffers =
            BufferRing::register(&ring.submitter(), Rc::clone(&lent), settings.limit_lent_buffers)
                .map_err(|error| match error.raw_os_error() {
                    Some(code) if Errno::from_raw_os_error(code) == Errno::INVAL => io::Error::new(
                        io::ErrorKind::Unsupported,
                        "the kernel has no rings of provided buffers (needs Linux 5.19)",
                    ),
                    _ => error,
                })?;
        let mut uring = Uring {
            ring,
            slots: SlotMap::with_key(),
            operations: SlotMap::with_key(),
            arrived: VecDeque::new(),
            finished: VecDeque::new(),
            starved: Vec::new(),
            with_kernel: 0,
            buffers,
            lent,
            multishot: settings.modern_uring && kernel_is_at_least(6, 0),
            signals: Inbox::new(waker.clone()),
            wakeup,
            threads: settings.threads.clone(),
            reports: Mailbox::new(waker),
            fork: ForkGuard::new(),
        };
        uring.watch_wakeup();
        Ok(uring)
    }

    fn insert(&mut self, source: Source, kind: Kind) -> Handle {
        self.slots.insert(Slot {
            source,
            kind,
            drained: true,
            reader: None,
            writer: None,
            in_flight: 0,
            closer: None,
        })
    }

    fn slot(&self, handle: Handle) -> io::Result<&Slot> {
        match self.slots.get(handle) {
            Some(slot) if slot.closer.is_none() => Ok(slot),
            _ => Err(Errno::BADF.into()),
        }
    }

    // --- The two queues --------------------------------------------------------------------------------

    /// Queues a request; it is handed over by the next wait, or now if the queue is full.
    #[inline]
    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: what the entry points to is owned by the operation's place in the table, at
            // addresses that stay, until the final completion.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            self.hand_over();
        }
    }

    /// Gives the kernel what is queued, without waiting.
    fn hand_over(&mut self) {
        match self.ring.submit() {
            Ok(_) => {}
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                // EBUSY, EAGAIN: the completion queue is full or memory is short. Make room and come again.
                Some(Errno::INTR | Errno::BUSY | Errno::AGAIN) => self.collect(),
                _ => panic!("io_uring does not take requests any more: {error}"),
            },
        }
    }

    /// Takes what the kernel has completed out of its queue, so that there is room for more.
    #[inline]
    fn collect(&mut self) {
        self.arrived.extend(self.ring.completion());
    }

    fn watch_wakeup(&mut self) {
        let poll = opcode::PollAdd::new(Fd(self.wakeup.as_fd().as_raw_fd()), poll_in())
            .multi(true)
            .build()
            .user_data(WAKEUP);
        self.push(&poll);
    }

    // --- Starting --------------------------------------------------------------------------------------

    /// Puts an operation on a descriptor into the table and hands it to the kernel.
    fn start(&mut self, handle: Handle, operation: Operation) -> Submitted {
        match self.slot(handle) {
            Ok(slot) if matches!(slot.source, Source::Lent(_)) && !is_poll(&operation) => {
                operation.refuse(Errno::BADF) // lent for polls only
            }
            Ok(_) => match self.claim(handle, &operation) {
                Ok(()) => {
                    let token = self.enlist(handle, operation);
                    self.issue(token);
                    Submitted::Pending(token)
                }
                Err(error) => operation.refuse(error),
            },
            Err(error) => operation.refuse(error),
        }
    }

    /// Whether `operation` may be in flight on `handle` beside what is there.
    fn claim(&self, handle: Handle, operation: &Operation) -> io::Result<()> {
        let slot = &self.slots[handle];
        match direction(operation) {
            Direction::Receiving if slot.reader.is_some() => Err(Errno::ALREADY.into()),
            Direction::Sending if slot.writer.is_some() => Err(Errno::ALREADY.into()),
            Direction::Neither if is_poll(operation) => slot.kind.check_pollable(),
            _ => Ok(()),
        }
    }

    #[inline]
    fn enlist(&mut self, handle: Handle, operation: Operation) -> Token {
        let direction = direction(&operation);
        let token = self.operations.insert(InFlight {
            operation,
            handle,
            stage: Stage::Here,
            cancelled: false,
            extra: Extra::Nothing,
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
    fn issue(&mut self, token: Token) {
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
                let bytes = memory.as_slice();
                opcode::Send::new(fd, bytes.as_ptr(), length(bytes.len()))
                    .flags(SendFlags::NOSIGNAL.bits() as i32)
                    .build()
            }
            Operation::Send { payload, .. } if socket => {
                let mut vectored = Box::new(Vectored::new(payload));
                let header = vectored.header();
                in_flight.extra = Extra::Vectored(vectored);
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
            Operation::Connect { address, .. } => match socket::encode(address) {
                Ok(encoded) => {
                    let encoded = Box::new(encoded);
                    let (address, len) = (encoded.0.as_ptr().cast(), encoded.1);
                    in_flight.extra = Extra::Address(encoded);
                    opcode::Connect::new(fd, address, len).build()
                }
                Err(error) => return self.finish(token, Err(error)),
            },
            Operation::Shutdown { how, .. } => opcode::Shutdown::new(
                fd,
                match how {
                    Shutdown::Read => 0,
                    Shutdown::Write => 1,
                    Shutdown::Both => 2,
                },
            )
            .build(),
            Operation::Poll { interest, .. } => {
                opcode::PollAdd::new(fd, poll::flags(*interest).bits().into()).build()
            }
            Operation::Stat { .. } => {
                // SAFETY: a statx is plain numbers, for which zeroes are valid.
                let mut statx: Box<libc::statx> = Box::new(unsafe { std::mem::zeroed() });
                let place = std::ptr::from_mut(&mut *statx).cast();
                in_flight.extra = Extra::Statx(statx);
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
    fn issue_staged(&mut self, token: Token) {
        if is_receiving(&self.operations[token].operation) {
            self.await_readiness(token);
        } else {
            self.attempt_staged(token);
        }
    }

    /// Tries a staged operation; waits for readiness if it must.
    fn attempt_staged(&mut self, token: Token) {
        let InFlight { operation, handle, .. } = &mut self.operations[token];
        let slot = &self.slots[*handle];
        let (fd, kind) = (slot.source.as_fd(), slot.kind);
        let result = match operation {
            Operation::ReceiveLent { .. } => return self.attempt_receive_lent(token),
            Operation::Receive { space, .. } => attempt::receive_into(fd, kind, space),
            Operation::ReceiveMessage { space, limit_descriptors, .. } => {
                attempt::receive_message(fd, space, *limit_descriptors)
            }
            Operation::Send { payload, .. } => attempt::send(fd, kind, payload),
            Operation::SendMessage { message, .. } => attempt::send_message(fd, message),
            Operation::SendFile { .. } => return self.attempt_send_file(token, false),
            Operation::ChildExit { .. } => attempt::child_exit(fd),
            other => unreachable!("{} is not staged", other.name()),
        };
        match result {
            Some(result) => self.finish(token, result),
            None => self.await_readiness(token),
        }
    }

    /// A lent receive from a pipe: repeated here, one piece a turn.
    fn attempt_receive_lent(&mut self, token: Token) {
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

    fn attempt_send_file(&mut self, token: Token, warmed: bool) {
        let InFlight { operation, handle, .. } = &self.operations[token];
        let Operation::SendFile { file, offset, count, .. } = *operation else {
            unreachable!("only send_file comes here");
        };
        let file = match self.slot(file).map(|slot| &slot.source) {
            Ok(Source::File(file)) => Arc::clone(file),
            _ => return self.finish(token, Err(Errno::BADF.into())),
        };
        let send = if warmed { attempt::send_file_now } else { attempt::send_file };
        match send(self.slots[*handle].source.as_fd(), file.as_fd(), offset, count) {
            SendFile::Done(result) => self.finish(token, result),
            SendFile::Wait => self.await_readiness(token),
            SendFile::Cold(count) => {
                let letterbox = self.reports.letterbox();
                let deliver = move |report| letterbox.deliver(token, report);
                self.operations[token].stage = Stage::Thread;
                let work = Work::Warm { file, offset, count };
                if give_to_thread(&self.threads, work, deliver).is_err() {
                    self.attempt_send_file(token, true); // no thread to be had: send it cold
                }
            }
        }
    }

    /// Has the kernel tell when a staged operation can go on.
    fn await_readiness(&mut self, token: Token) {
        let in_flight = &mut self.operations[token];
        if in_flight.cancelled {
            return self.finish(token, Err(Errno::CANCELED.into()));
        }
        let interest =
            if is_receiving(&in_flight.operation) { Interest::READ } else { Interest::WRITE };
        in_flight.stage = Stage::Readiness;
        let fd = Fd(self.slots[in_flight.handle].source.raw());
        let entry = opcode::PollAdd::new(fd, poll::flags(interest).bits().into()).build();
        self.with_kernel += 1;
        self.push(&entry.user_data(token.data().as_ffi()));
    }

    fn start_open(&mut self, operation: Operation) -> Submitted {
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
        in_flight.extra = Extra::Path(path);
        in_flight.stage = Stage::Kernel;
        self.with_kernel += 1;
        self.push(&entry.user_data(token.data().as_ffi()));
        Submitted::Pending(token)
    }

    fn start_child_exit(&mut self, pid: u32, operation: Operation) -> Submitted {
        match child_descriptor(pid) {
            Ok(fd) => {
                let handle = self.insert(Source::Owned(fd), Kind::Bytes);
                self.start(handle, operation)
            }
            Err(error) => operation.refuse(error),
        }
    }

    fn start_signal(&mut self, signal: i32, operation: Operation) -> Submitted {
        match self.signals.subscribe(signal) {
            Ok(()) => Submitted::Pending(self.enlist(Handle::null(), operation)),
            Err(error) => operation.refuse(error),
        }
    }

    fn start_close(&mut self, handle: Handle, operation: Operation) -> Submitted {
        if let Err(error) = self.slot(handle) {
            return operation.refuse(error);
        }
        let closer = self.operations.insert(InFlight {
            operation,
            handle,
            stage: Stage::Here,
            cancelled: false,
            extra: Extra::Nothing,
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
    fn cancel_all(&mut self, handle: Handle) {
        let slot = &self.slots[handle];
        let known = usize::from(slot.reader.is_some()) + usize::from(slot.writer.is_some());
        if slot.in_flight == known {
            let (reader, writer) = (slot.reader, slot.writer);
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
    fn close_now(&mut self, handle: Handle) {
        let slot = self.slots.remove(handle).expect("a descriptor is closed once");
        let closer = slot.closer.expect("it is being closed");
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

    // --- Ending ----------------------------------------------------------------------------------------

    /// Takes in one completion of the kernel's, and says what it means for the loop.
    #[inline]
    fn take_in(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        let user_data = entry.user_data();
        if user_data >= SILENT {
            if user_data == WAKEUP {
                self.woken(entry.flags());
            }
            return None;
        }
        let token = Token::from(KeyData::from_ffi(user_data));
        let more = cqueue::more(entry.flags());
        let Some(in_flight) = self.operations.get_mut(token) else {
            debug_assert!(false, "the kernel completed an operation twice");
            return None;
        };
        if !more {
            self.with_kernel -= 1;
        }
        if in_flight.stage == Stage::Readiness {
            self.staged_ready(token, decode(entry.result()));
            return None;
        }
        let result = decode(entry.result());
        match in_flight.operation {
            Operation::ReceiveLent { .. } => self.received_lent(token, result, entry.flags(), more),
            Operation::Accept { .. } => self.accepted(token, result, more),
            _ => {
                let result = self.outcome(token, result, entry.flags());
                Some(self.complete(token, result))
            }
        }
    }

    fn woken(&mut self, flags: u32) {
        if !self.wakeup.needs_no_drain() {
            self.wakeup.drain();
        }
        if !cqueue::more(flags) {
            self.watch_wakeup();
        }
    }

    fn received_lent(
        &mut self,
        token: Token,
        result: Result<u32, Errno>,
        flags: u32,
        more: bool,
    ) -> Option<Completion> {
        let lent = match result {
            Ok(0) => {
                if let Some(id) = cqueue::buffer_select(flags) {
                    self.lent.give_back(id);
                }
                return Some(self.complete(token, Ok(Outcome::Lent(Lent::end()))));
            }
            Ok(count) => {
                let id = cqueue::buffer_select(flags).expect("a lent receive took a buffer");
                self.lent.lend(id, count as usize)
            }
            Err(Errno::NOBUFS) if !more => {
                // More arrived in one turn than there are buffers. They are back at the end of it.
                return self.again(token, |uring| uring.starved.push(token));
            }
            Err(Errno::INTR | Errno::AGAIN) => {
                return self.again(token, |uring| uring.issue(token));
            }
            Err(error) => return Some(self.complete(token, Err(error.into()))),
        };
        let result = Ok(Outcome::Lent(lent));
        if more {
            return Some(Completion { token, more, result, payload: Payload::Nothing });
        }
        if self.multishot || self.operations[token].cancelled {
            return Some(self.complete(token, result)); // the kernel has had enough: submit again
        }
        self.issue(token);
        Some(Completion { token, more: true, result, payload: Payload::Nothing })
    }

    fn accepted(
        &mut self,
        token: Token,
        result: Result<u32, Errno>,
        more: bool,
    ) -> Option<Completion> {
        let in_flight = &self.operations[token];
        let result = match result {
            Ok(fd) => {
                // A listener's kind is its connections' kind.
                let kind = self.slots[in_flight.handle].kind;
                // SAFETY: accept has just made this descriptor, and nobody else knows it.
                let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
                Ok(Outcome::Accepted(self.insert(Source::Owned(fd), kind)))
            }
            Err(error)
                if attempt::is_of_the_connection(error)
                    || matches!(error, Errno::INTR | Errno::AGAIN) =>
            {
                return if more { None } else { self.again(token, |uring| uring.issue(token)) };
            }
            Err(error) => Err(error.into()),
        };
        if more {
            return Some(Completion { token, more, result, payload: Payload::Nothing });
        }
        let ended = self.multishot || self.operations[token].cancelled || result.is_err();
        if ended {
            return Some(self.complete(token, result));
        }
        self.issue(token);
        Some(Completion { token, more: true, result, payload: Payload::Nothing })
    }

    /// Goes on with an operation that the kernel has ended early, unless it was cancelled meanwhile.
    fn again(&mut self, token: Token, go_on: impl FnOnce(&mut Uring)) -> Option<Completion> {
        if self.operations[token].cancelled {
            return Some(self.complete(token, Err(Errno::CANCELED.into())));
        }
        self.operations[token].stage = Stage::Here;
        go_on(self);
        None
    }

    /// What the kernel's number means for this operation.
    fn outcome(
        &mut self,
        token: Token,
        result: Result<u32, Errno>,
        flags: u32,
    ) -> io::Result<Outcome> {
        let in_flight = &mut self.operations[token];
        match (&in_flight.operation, result) {
            (Operation::Connect { .. }, Err(Errno::AGAIN)) => {
                Err(Errno::CONNREFUSED.into()) // the backlog of a Unix socket is full
            }
            (_, Err(error)) => Err(error.into()),
            (Operation::Receive { space, .. }, Ok(count)) => {
                let slot = &mut self.slots[in_flight.handle];
                let short = (count as usize) < space.len();
                slot.drained =
                    short && count > 0 && slot.kind == Kind::Tcp && !cqueue::sock_nonempty(flags);
                Ok(Outcome::Count(count as usize))
            }
            (
                Operation::Send { .. } | Operation::Read { .. } | Operation::Write { .. },
                Ok(count),
            ) => Ok(Outcome::Count(count as usize)),
            (Operation::Poll { interest, .. }, Ok(flags)) => {
                let ready = poll::readiness(PollFlags::from_bits_truncate(flags as u16));
                Ok(Outcome::Ready(answer(ready, *interest).unwrap_or(Readiness::empty())))
            }
            (Operation::Open { .. }, Ok(fd)) => {
                // SAFETY: open has just made this descriptor, and nobody else knows it.
                let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
                let kind = Kind::of(fd.as_fd())?;
                Ok(Outcome::Opened(self.insert(Source::File(Arc::new(fd)), kind)))
            }
            (Operation::Stat { .. }, Ok(_)) => match &in_flight.extra {
                Extra::Statx(statx) => Ok(Outcome::Metadata(Box::new(metadata(statx)))),
                _ => unreachable!("a stat has a place for its answer"),
            },
            (_, Ok(_)) => Ok(Outcome::Nothing),
        }
    }

    /// The descriptor of a staged operation is ready, or the wait for it has failed.
    fn staged_ready(&mut self, token: Token, result: Result<u32, Errno>) {
        match result {
            Ok(_) => self.attempt_staged(token),
            Err(Errno::INTR | Errno::AGAIN) => self.await_readiness(token),
            Err(error) => self.finish(token, Err(error.into())),
        }
    }

    /// The final completion of an operation, to be taken later.
    fn finish(&mut self, token: Token, result: io::Result<Outcome>) {
        let handle = self.operations[token].handle;
        let completion = self.retire(token, result);
        self.finished.push_back(completion);
        self.close_if_idle(handle);
    }

    /// The final completion of an operation, to be taken now.
    #[inline]
    fn complete(&mut self, token: Token, result: io::Result<Outcome>) -> Completion {
        let handle = self.operations[token].handle;
        let completion = self.retire(token, result);
        self.close_if_idle(handle);
        completion
    }

    /// Goes on with a close that has waited for the last operation in flight.
    #[inline]
    fn close_if_idle(&mut self, handle: Handle) {
        if let Some(slot) = self.slots.get(handle)
            && slot.in_flight == 0
            && slot.closer.is_some()
        {
            self.close_now(handle);
        }
    }

    /// Takes an operation out of the tables.
    #[inline]
    fn retire(&mut self, token: Token, result: io::Result<Outcome>) -> Completion {
        let in_flight = self.operations.remove(token).expect("an operation ends once");
        let handle = in_flight.handle;
        if let Some(slot) = self.slots.get_mut(handle) {
            slot.in_flight -= 1;
            if slot.reader == Some(token) {
                slot.reader = None;
            } else if slot.writer == Some(token) {
                slot.writer = None;
            }
        }
        match in_flight.operation {
            Operation::ChildExit { .. } => drop(self.slots.remove(handle)),
            Operation::Signal { signal } => self.signals.unsubscribe(signal),
            _ => {}
        }
        let payload = in_flight.operation.into_payload();
        Completion { token, more: false, result, payload }
    }

    // --- Waiting ---------------------------------------------------------------------------------------

    /// Hands over what is queued, and waits for a completion if `timeout` allows it.
    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let entered = match timeout {
            Some(Duration::ZERO) => {
                let queue = self.ring.submission();
                // Completions that need our thread are announced by a flag: no flag, no call.
                if queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
                    return Ok(());
                }
                drop(queue);
                self.ring.submit()
            }
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                let arguments = SubmitArgs::new().timespec(&timeout);
                self.ring.submitter().submit_with_args(1, &arguments)
            }
            None => self.ring.submit_and_wait(1),
        };
        match entered.map_err(|error| error.raw_os_error().map(Errno::from_raw_os_error)) {
            // ETIME: the time-out. EBUSY, EAGAIN: the completion queue must be emptied first.
            Ok(_) | Err(Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN)) => Ok(()),
            Err(Some(error)) => Err(error.into()),
            Err(None) => Err(io::Error::other("io_uring_enter failed without saying why")),
        }
    }

    fn note_signals(&mut self) {
        let arrived = self.signals.take();
        if arrived == 0 {
            return;
        }
        for (token, in_flight) in &self.operations {
            if let Operation::Signal { signal } = in_flight.operation
                && arrived & signal::bit(signal) != 0
            {
                let result = Ok(Outcome::Signal);
                let payload = Payload::Nothing;
                self.finished.push_back(Completion { token, more: true, result, payload });
            }
        }
    }

    fn note_reports(&mut self) {
        for (token, report) in self.reports.take() {
            let stage = self.operations.get(token).map(|in_flight| in_flight.stage);
            if stage == Some(Stage::Thread) {
                debug_assert!(matches!(report.result, Ok(Fact::Warm)), "threads only warm files");
                self.attempt_send_file(token, true);
            }
        }
    }
}

/// The kernel's number: a count or a descriptor, or an error below zero.
#[inline]
fn decode(result: i32) -> Result<u32, Errno> {
    if result >= 0 { Ok(result as u32) } else { Err(Errno::from_raw_os_error(-result)) }
}

/// Which of a descriptor's two places an operation takes.
#[derive(Clone, Copy)]
enum Direction {
    Receiving,
    Sending,
    Neither,
}

fn direction(operation: &Operation) -> Direction {
    match operation {
        Operation::Send { .. }
        | Operation::SendMessage { .. }
        | Operation::SendFile { .. }
        | Operation::Connect { .. } => Direction::Sending,
        other if is_receiving(other) => Direction::Receiving,
        _ => Direction::Neither,
    }
}

fn is_poll(operation: &Operation) -> bool {
    matches!(operation, Operation::Poll { .. })
}

fn is_close(operation: &Operation) -> bool {
    matches!(operation, Operation::Close { .. })
}

fn poll_in() -> u32 {
    PollFlags::IN.bits().into()
}

/// A length as io_uring takes it; more than 4 GiB at once becomes a short count.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn metadata(statx: &libc::statx) -> Metadata {
    Metadata {
        len: statx.stx_size,
        modified: file::time(statx.stx_mtime.tv_sec, statx.stx_mtime.tv_nsec),
        kind: match FileType::from_raw_mode(statx.stx_mode.into()) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            _ => FileKind::Other,
        },
        mode: u32::from(statx.stx_mode) & 0o7777,
        inode: statx.stx_ino,
        device: rustix::fs::makedev(statx.stx_dev_major, statx.stx_dev_minor),
    }
}

impl Vectored {
    fn new(payload: &Payload) -> Vectored {
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
    fn header(&mut self) -> *const libc::msghdr {
        self.header.msg_iov = self.slices.as_mut_ptr();
        &raw const self.header
    }
}

/// The best ring this kernel gives: each rung of the ladder asks for less.
fn open_ring(settings: &Settings) -> io::Result<IoUring> {
    let entries = settings.limit_submissions;
    let base = || {
        let mut builder = IoUring::builder();
        // Multishot operations complete more often than they are submitted.
        builder.setup_cqsize(entries * 4);
        builder
    };
    if settings.modern_uring {
        // Linux 6.1: completions run when this thread asks for them, and at no other time.
        let modern = base()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .build(entries);
        match modern {
            Err(error) if is_invalid(&error) => {}
            result => return check_features(result?),
        }
    }
    // Linux 5.19: without interrupts to this thread.
    match base().setup_coop_taskrun().setup_taskrun_flag().setup_submit_all().build(entries) {
        Err(error) if is_invalid(&error) => check_features(base().build(entries)?),
        result => check_features(result?),
    }
}

/// Compares the running kernel's release, `6.18.44-…`, with a version.
fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

fn is_invalid(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

fn check_features(ring: IoUring) -> io::Result<IoUring> {
    if ring.params().is_feature_ext_arg() && ring.params().is_feature_nodrop() {
        return Ok(ring);
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel is too old (needs Linux 5.19)"))
}

/// Says why the kernel refuses io_uring, and what would help.
fn explain_refusal(error: io::Error) -> io::Error {
    let reason = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM) => match std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled") {
            Ok(value) if value.trim() != "0" => format!(
                "disabled by sysctl kernel.io_uring_disabled={} (0 allows it)",
                value.trim()
            ),
            _ => "forbidden by a seccomp filter (containers: allow io_uring_setup, \
                  io_uring_enter, io_uring_register)"
                .to_owned(),
        },
        Some(Errno::NOSYS) => "the kernel has no io_uring, or a seccomp filter hides it".to_owned(),
        Some(Errno::NOMEM) => {
            "not enough locked memory (raise RLIMIT_MEMLOCK: ulimit -l)".to_owned()
        }
        _ => return error,
    };
    io::Error::new(error.kind(), reason)
}

impl Demux for Uring {
    fn backend(&self) -> Backend {
        Backend::Uring
    }

    fn features(&self) -> Features {
        Features {
            completions: true,
            constant_cost: true,
            any_descriptor: true,
            early_close: true,
            files: true,
        }
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn seed(&mut self) -> u64 {
        os_seed()
    }

    fn socket(&mut self, kind: SocketKind) -> io::Result<Handle> {
        Ok(self.insert(Source::Owned(socket::open(kind)?), socket::kind_of(kind)))
    }

    fn socket_pair(&mut self) -> io::Result<(Handle, Handle)> {
        let (a, b) = socket::pair()?;
        let a = self.insert(Source::Owned(a), Kind::Socket);
        Ok((a, self.insert(Source::Owned(b), Kind::Socket)))
    }

    fn bind(&mut self, socket: Handle, address: &Address) -> io::Result<()> {
        socket::bind(&self.slot(socket)?.source, address)
    }

    fn listen(&mut self, socket: Handle, backlog: i32) -> io::Result<()> {
        Ok(rustix::net::listen(&self.slot(socket)?.source, backlog)?)
    }

    fn set_option(&mut self, socket: Handle, option: SocketOption) -> io::Result<()> {
        socket::set_option(&self.slot(socket)?.source, option)
    }

    fn local_address(&self, socket: Handle) -> io::Result<Address> {
        socket::local_address(&self.slot(socket)?.source)
    }

    fn peer_address(&self, socket: Handle) -> io::Result<Address> {
        socket::peer_address(&self.slot(socket)?.source)
    }

    fn adopt(&mut self, descriptor: Descriptor) -> io::Result<Handle> {
        let fd = descriptor.into_os()?;
        let kind = Kind::adopt(fd.as_fd())?;
        let source =
            if kind == Kind::File { Source::File(Arc::new(fd)) } else { Source::Owned(fd) };
        Ok(self.insert(source, kind))
    }

    fn lend(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<Handle> {
        let kind = Kind::of(descriptor)?;
        kind.check_pollable()?;
        Ok(self.insert(Source::Lent(descriptor.as_raw_fd()), kind))
    }

    fn reclaim(&mut self, handle: Handle) {
        let Ok(slot) = self.slot(handle) else { return };
        if slot.in_flight > 0 {
            self.cancel_all(handle);
            if !self.fork.is_forked() {
                // The descriptor may be closed as soon as this returns: requests that are only queued
                // would then look up its number again. Handed over, they hold the file itself.
                self.hand_over();
            }
        }
        // What is in flight no longer finds its slot, which is as well: there is nothing to close.
        self.slots.remove(handle);
    }

    fn detach(&mut self, handle: Handle) -> io::Result<Descriptor> {
        let slot = self.slot(handle)?;
        if slot.in_flight > 0 {
            return Err(Errno::BUSY.into());
        }
        if let Source::Lent(_) = slot.source {
            return Err(Errno::BADF.into());
        }
        match self.slots.remove(handle).map(|slot| slot.source) {
            Some(Source::Owned(fd)) => Ok(Descriptor::Os(fd)),
            Some(Source::File(fd)) => {
                Arc::try_unwrap(fd).map(Descriptor::Os).map_err(|_| Errno::BUSY.into())
            }
            Some(Source::Lent(_)) | None => Err(Errno::BADF.into()),
        }
    }

    fn submit(&mut self, operation: Operation) -> Submitted {
        if let Err(error) = self.fork.check() {
            return operation.refuse(error);
        }
        match operation {
            Operation::Close { handle } => self.start_close(handle, operation),
            Operation::Open { .. } => self.start_open(operation),
            Operation::ChildExit { pid } => self.start_child_exit(pid, operation),
            Operation::Signal { signal } => self.start_signal(signal, operation),
            _ => {
                let handle = operation.handle().expect("all others are about a descriptor");
                self.start(handle, operation)
            }
        }
    }

    fn try_send(&mut self, socket: Handle, _bytes: &[u8]) -> io::Result<usize> {
        let slot = self.slot(socket)?;
        if slot.writer.is_some() { Err(Errno::ALREADY.into()) } else { Ok(0) }
    }

    fn cancel(&mut self, token: Token) {
        let Some(in_flight) = self.operations.get_mut(token) else { return };
        if is_close(&in_flight.operation) {
            return;
        }
        in_flight.cancelled = true;
        match in_flight.stage {
            Stage::Kernel | Stage::Readiness => {
                let cancel = opcode::AsyncCancel::new(token.data().as_ffi())
                    .build()
                    .flags(squeue::Flags::SKIP_SUCCESS)
                    .user_data(SILENT);
                self.push(&cancel);
            }
            Stage::Thread | Stage::Here => {
                self.starved.retain(|&other| other != token);
                self.finish(token, Err(Errno::CANCELED.into()));
            }
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.fork.check()?;
        if self.buffers.refill() && !self.starved.is_empty() {
            for token in std::mem::take(&mut self.starved) {
                self.issue(token);
            }
        }
        self.collect();
        let busy = !self.finished.is_empty() || !self.arrived.is_empty();
        self.enter(if busy { Some(Duration::ZERO) } else { timeout })?;
        self.collect();
        self.note_signals();
        self.note_reports();
        Ok(())
    }

    fn next(&mut self) -> Option<Completion> {
        loop {
            if let Some(completion) = self.finished.pop_front() {
                return Some(completion);
            }
            let entry = self.arrived.pop_front()?;
            if let Some(completion) = self.take_in(&entry) {
                return Some(completion);
            }
        }
    }

    fn waker(&self) -> Waker {
        self.wakeup.waker()
    }

    fn in_flight(&self) -> usize {
        self.operations.len()
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        for (token, in_flight) in &self.operations {
            let fd = self.slots.get(in_flight.handle).map(|slot| slot.source.raw());
            describe_operation(out, token, &in_flight.operation, fd)?;
        }
        Ok(())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the ring is open as long as `self` is.
        Some(unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) })
    }
}

impl Drop for Uring {
    /// Gets back everything the kernel may still write to before it is freed.
    fn drop(&mut self) {
        if self.fork.is_forked() {
            // The ring is the parent's, and so is what is in flight in it: ask the kernel nothing.
            std::mem::forget(std::mem::take(&mut self.operations));
            return;
        }
        let tokens: Vec<Token> = self.operations.keys().collect();
        tokens.into_iter().for_each(|token| self.cancel(token));
        let deadline = Instant::now() + DROP_TIMEOUT;
        while self.with_kernel > 0 && Instant::now() < deadline {
            if self.wait(Some(DROP_TIMEOUT / 20)).is_err() {
                break;
            }
            while self.next().is_some() {}
        }
        if self.with_kernel > 0 {
            tracing::error!(
                "leaking the memory of {} operations that the kernel does not give back",
                self.with_kernel
            );
            std::mem::forget(std::mem::take(&mut self.operations));
            std::mem::forget(Rc::clone(&self.lent));
        }
    }
}
