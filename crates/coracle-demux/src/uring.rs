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

mod awaited;
mod buffer_ring;
mod carrier;
mod end;
mod lend;
mod notice;
mod ring;
mod start;
mod wait;

use crate::address::Address;
use crate::attempt;
use crate::backend::{Backend, Features, Settings, Threads, os_seed};
use crate::descriptor::{Kind, Source};
use crate::due::Due;
use crate::few::Few;
use crate::file::Report;
use crate::fork::ForkGuard;
use crate::landing::{self, Arrival, Awaited, Receive};
use crate::lent::LentPool;
use crate::mailbox::Mailbox;
use crate::memory::{Memory, Space};
use crate::operation::{Completion, Handle, Operation, Submitted, Token};
use crate::quay;
use crate::resident::Resident;
use crate::retry::Retries;
use crate::signal::Inbox;
use crate::socket::{self, SocketKind, SocketOption};
use crate::tcp::{self, TcpInfo};
use crate::wakeup::{Waker, Wakeup};
use crate::{Demux, Descriptor};
use awaited::Asked;
use buffer_ring::BufferRing;
use carrier::{Carrier, RestIndex};
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use notice::Notice;
use ring::{explain_refusal, kernel_is_at_least, open_ring};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;
use slotmap::{Key, SlotMap};
use start::{Vectored, is_close, poll_in};
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wait::Clock;

/// `user_data` of the wake-up's poll, of requests whose completion says nothing, and of the alarm. No token has
/// them.
const WAKEUP: u64 = u64::MAX;
const SILENT: u64 = u64::MAX - 1;
const ALARM: u64 = u64::MAX - 2;

/// `user_data` below this is the carrier's: the upper half of a token is never zero.
const CARRIED: u64 = 1 << 32;

/// How long a drop waits for the kernel to let go of memory, before it leaks that memory.
const DROP_TIMEOUT: Duration = Duration::from_secs(2);

/// A receive that waits for readiness first, because the last one left the socket empty.
const POLL_FIRST: u16 = 1;

pub(crate) struct Uring {
    ring: IoUring,
    slots: SlotMap<Handle, Slot>,
    operations: SlotMap<Token, InFlight>,
    /// What the kernel has completed; from `taken` on, nobody has looked at it yet.
    arrived: Vec<cqueue::Entry>,
    taken: usize,
    /// Completions that needed no kernel.
    finished: VecDeque<Completion>,
    /// Lent receives that found no buffer.
    starved: Vec<Token>,
    /// Sends that are tried again after a pause.
    retries: Retries<Token>,
    /// Requests in the kernel's hands, those without a token not counted.
    with_kernel: usize,
    /// Awaited receives, which are in its hands, too, or will be.
    awaited: usize,
    /// The sockets whose receives are handed over at the end of the turn, unless they are over before that.
    asked: Asked,
    /// Connects that it was given since it was last entered.
    connects: u32,
    buffers: BufferRing,
    lent: Rc<LentPool>,
    resident: Resident,
    carrier: Carrier,
    due: Due,
    /// Carried sends that did not go through.
    failed: Vec<cqueue::Entry>,
    /// Descriptors on which something waits behind a carried send.
    behind: Vec<Handle>,
    /// Whether the kernel repeats receives and accepts by itself.
    multishot: bool,
    /// Whether the kernel tells how much of a send that may not wait went through (6.1).
    carrying: bool,
    clock: Clock,
    wakeup: Wakeup,
    signals: Inbox,
    threads: Threads,
    reports: Mailbox<Token, Report>,
    /// Made when somebody else wants to wait for this ring.
    notice: OnceCell<Notice>,
    fork: ForkGuard,
}

/// A descriptor.
struct Slot {
    source: Source,
    kind: Kind,
    /// The last receive left nothing behind.
    drained: bool,
    /// Something small was sent since a coroutine last received something. It may be answered soon.
    sent_since: bool,
    /// The receiving operation in flight, or the receive that is awaited; and the sending operation.
    reader: Option<Token>,
    receive: Option<Receive>,
    /// The kernel does not have that receive yet; its end was asked for.
    is_asked: bool,
    cancelled: bool,
    writer: Option<Token>,
    /// When bytes were last given to the carrier, and what the kernel did not take of them.
    loaded_on: u64,
    rest: Option<RestIndex>,
    /// What has to wait behind carried bytes.
    held: Few,
    /// How the last carried send failed; the next sender is told.
    failed: Option<Errno>,
    /// How many operations and rests are in flight on it.
    in_flight: u32,
    /// The close that waits for them. No token: it was lent, is taken back, and goes when they are over.
    closer: Option<Token>,
}

struct InFlight {
    operation: Operation,
    /// The descriptor it is about: the operation's, or one made for it (a child's).
    handle: Handle,
    stage: Stage,
    cancelled: bool,
    /// What the kernel reads or writes beside the payload, at an address that does not change. Most have none, and
    /// every connection has one that waits: so it is a single pointer.
    extra: Option<Box<Extra>>,
}

// Of ten thousand idle connections, each has one.
const _: () = assert!(size_of::<InFlight>() <= 88);

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
    /// Nobody any more: it has ended, and keeps its place until the completion is taken, because until then
    /// its token is in use.
    Ended,
}

#[expect(dead_code, reason = "most of it is read by the kernel only")]
#[expect(clippy::large_enum_variant, reason = "it is in a box")]
enum Extra {
    Address([u8; 128]),
    Path(CString),
    Statx(libc::statx),
    Vectored(Vectored),
}

impl Uring {
    pub(crate) fn open(settings: &Settings) -> io::Result<Uring> {
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
            arrived: Vec::new(),
            taken: 0,
            finished: VecDeque::new(),
            starved: Vec::new(),
            retries: Retries::new(),
            resident: Resident::default(),
            with_kernel: 0,
            awaited: 0,
            asked: Asked::new(),
            connects: 0,
            buffers,
            lent,
            carrier: Carrier::new(),
            due: Due::default(),
            failed: Vec::new(),
            behind: Vec::new(),
            multishot: settings.modern_uring && kernel_is_at_least(6, 0),
            carrying: settings.modern_uring && kernel_is_at_least(6, 1),
            signals: Inbox::new(waker.clone()),
            clock: Clock::default(),
            wakeup,
            threads: settings.threads.clone(),
            reports: Mailbox::new(waker),
            notice: OnceCell::new(),
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
            sent_since: false,
            reader: None,
            receive: None,
            is_asked: false,
            cancelled: false,
            writer: None,
            loaded_on: 0,
            rest: None,
            held: Few::default(),
            failed: None,
            in_flight: 0,
            closer: None,
        })
    }

    /// A descriptor, for calls that are not on the way of every message and so can afford to look whether this is
    /// still the process that opened it.
    fn own_slot(&self, handle: Handle) -> io::Result<&Slot> {
        self.fork.check()?;
        self.slot(handle)
    }

    fn slot(&self, handle: Handle) -> io::Result<&Slot> {
        match self.slots.get(handle) {
            Some(slot) if slot.closer.is_none() => Ok(slot),
            _ => Err(Errno::BADF.into()),
        }
    }

    // --- The two queues --------------------------------------------------------------------------------

    /// Queues a request; it is handed over by the next wait, or now if the queue is full.
    #[inline(always)]
    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: what the entry points to is owned by the operation's place in the table or by a rest of the
            // carrier, at addresses that stay, until the final completion; or it is the space of a coroutine that
            // is parked until then; or it lies on the quay, which is not used again before the kernel has taken
            // the entry and is done with it.
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
                Some(Errno::INTR | Errno::BUSY | Errno::AGAIN) => {}
                _ => panic!("io_uring does not take requests any more: {error}"),
            },
        }
        self.settle();
    }

    /// Takes what the kernel has completed out of its queue, so that there is room for more.
    #[inline]
    fn collect(&mut self) {
        if self.taken == self.arrived.len() {
            self.arrived.clear();
            self.taken = 0;
        }
        for entry in self.ring.completion() {
            if carrier::is_load(entry.user_data()) {
                self.failed.push(entry);
            } else {
                self.arrived.push(entry);
            }
        }
    }

    /// Asks the kernel to end a request. It ends with its own completion.
    fn cancel_request(&mut self, user_data: u64) {
        let cancel = opcode::AsyncCancel::new(user_data)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(SILENT);
        self.push(&cancel);
    }

    fn watch_wakeup(&mut self) {
        let poll = opcode::PollAdd::new(Fd(self.wakeup.as_fd().as_raw_fd()), poll_in())
            .multi(true)
            .build()
            .user_data(WAKEUP);
        self.push(&poll);
    }

    /// Makes room, and tries to send once more.
    #[cold]
    fn try_send_anew(&mut self, socket: Handle, bytes: &[u8]) -> io::Result<usize> {
        self.hand_over();
        if self.ring.submission().is_empty() {
            self.try_send(socket, bytes)
        } else {
            Ok(0) // the kernel is short of something
        }
    }
}

/// A descriptor that somebody tries to send to, if the last send has not failed.
#[inline(always)]
fn sending_slot(slots: &mut SlotMap<Handle, Slot>, socket: Handle) -> io::Result<&mut Slot> {
    let slot = match slots.get_mut(socket) {
        Some(slot) if slot.closer.is_none() => slot,
        _ => return Err(Errno::BADF.into()),
    };
    if slot.writer.is_some() {
        return Err(Errno::ALREADY.into());
    }
    match slot.failed.take() {
        Some(error) => Err(error.into()),
        None => Ok(slot),
    }
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
        self.fork.check()?;
        Ok(self.insert(Source::Owned(socket::open(kind)?), socket::kind_of(kind)))
    }

    fn socket_pair(&mut self) -> io::Result<(Handle, Handle)> {
        self.fork.check()?;
        let (a, b) = socket::pair()?;
        let a = self.insert(Source::Owned(a), Kind::Socket);
        Ok((a, self.insert(Source::Owned(b), Kind::Socket)))
    }

    fn bind(&mut self, socket: Handle, address: &Address) -> io::Result<()> {
        socket::bind(&self.own_slot(socket)?.source, address)
    }

    fn listen(&mut self, socket: Handle, backlog: i32) -> io::Result<()> {
        Ok(rustix::net::listen(&self.own_slot(socket)?.source, backlog)?)
    }

    fn set_option(&mut self, socket: Handle, option: SocketOption) -> io::Result<()> {
        socket::set_option(&self.own_slot(socket)?.source, option)
    }

    fn local_address(&self, socket: Handle) -> io::Result<Address> {
        socket::local_address(&self.own_slot(socket)?.source)
    }

    fn peer_address(&self, socket: Handle) -> io::Result<Address> {
        socket::peer_address(&self.own_slot(socket)?.source)
    }

    fn tcp_info(&self, socket: Handle) -> io::Result<TcpInfo> {
        tcp::info(&self.own_slot(socket)?.source)
    }

    fn unacknowledged_bytes(&self, socket: Handle) -> io::Result<usize> {
        let slot = self.own_slot(socket)?;
        let carried =
            if slot.is_carrying(&self.carrier) { self.carrier.bytes_of(socket) } else { 0 };
        Ok(tcp::unacknowledged_bytes(&slot.source)? + carried)
    }

    fn is_carrying(&self, socket: Handle) -> bool {
        let slot = self.slots.get(socket);
        slot.is_some_and(|slot| slot.is_carrying(&self.carrier) || slot.failed.is_some())
    }

    fn number(&self, handle: Handle) -> Option<i32> {
        self.slot(handle).ok().map(|slot| slot.source.raw())
    }

    fn adopt(&mut self, descriptor: Descriptor) -> io::Result<Handle> {
        self.fork.check()?;
        let fd = descriptor.into_os()?;
        let kind = Kind::adopt(fd.as_fd())?;
        let source =
            if kind == Kind::File { Source::File(Arc::new(fd)) } else { Source::Owned(fd) };
        Ok(self.insert(source, kind))
    }

    fn lend(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<Handle> {
        self.fork.check()?;
        let kind = Kind::of(descriptor)?;
        kind.check_pollable()?;
        Ok(self.insert(Source::Lent(descriptor.as_raw_fd()), kind))
    }

    fn confirm(&mut self, handle: Handle) -> io::Result<()> {
        self.own_slot(handle).map(|_| ()) // a number is looked up for each request
    }

    fn abandon(&mut self, handle: Handle) {
        self.due.cancel(handle);
        self.reclaim(handle);
    }

    fn reclaim(&mut self, handle: Handle) {
        self.end_lend(handle);
    }

    fn detach(&mut self, handle: Handle) -> io::Result<Descriptor> {
        if self.own_slot(handle)?.is_loaded(&self.carrier) {
            self.hand_over();
        }
        let slot = self.slot(handle)?;
        if slot.in_flight > 0 || slot.is_loaded(&self.carrier) || slot.source.is_shared() {
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

    fn await_receive(&mut self, socket: Handle, space: Space, awaited: Awaited) -> bool {
        !self.fork.is_forked() && self.start_awaited(socket, space, awaited)
    }

    fn await_send(&mut self, socket: Handle, bytes: Memory, awaited: Awaited) -> bool {
        let Some(slot) = self.slots.get_mut(socket).filter(|_| !self.fork.is_forked()) else {
            return false;
        };
        if !slot.source.sends_together(slot.kind) {
            return false;
        }
        slot.sent_since = true;
        self.due.push(socket, bytes, awaited);
        true
    }

    fn cancel_receive(&mut self, socket: Handle) {
        if !self.fork.is_forked() {
            self.cancel_awaited(socket);
        }
    }

    fn submit(&mut self, operation: Operation) -> Submitted {
        if let Err(error) = self.fork.check() {
            return operation.refuse(error);
        }
        if let Err(error) = operation.check() {
            return operation.refuse(error);
        }
        match operation {
            Operation::Send { socket, payload } => self.start_send(socket, payload),
            Operation::SendMessage { socket, .. } | Operation::ReceiveMessage { socket, .. } => {
                self.start_message(socket, operation)
            }
            Operation::Shutdown { socket, how } => self.start_shutdown(socket, how),
            Operation::Connect { socket, .. } => self.start_connect(socket, operation),
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

    fn try_send(&mut self, socket: Handle, bytes: &[u8]) -> io::Result<usize> {
        self.fork.check()?; // the queue is shared with the parent
        let slot = sending_slot(&mut self.slots, socket)?;
        let Source::Owned(fd) = &slot.source else { return Err(Errno::BADF.into()) };
        let fd = fd.as_raw_fd();
        slot.sent_since = true;
        if !self.carrying {
            return attempt::send_bytes(slot.source.as_fd(), slot.kind, bytes).unwrap_or(Ok(0));
        }
        let fits = !bytes.is_empty() && bytes.len() <= quay::LIMIT_BYTES;
        if slot.is_carrying(&self.carrier) || !fits || !slot.kind.is_socket() {
            return Ok(0);
        }
        let Some(entry) = self.carrier.load(socket, fd, bytes) else {
            return self.try_send_anew(socket, bytes);
        };
        // SAFETY: the bytes lie on the quay, which is not used again before the kernel is done with the entry.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.carrier.take_back(); // whatever is loaded has to be queued before the kernel is entered
            return self.try_send_anew(socket, bytes);
        }
        slot.note_load(&self.carrier);
        Ok(bytes.len())
    }

    /// The kernel has no request that sends a file: what goes before one takes the same way, past the queue.
    fn try_send_before_file(&mut self, socket: Handle, bytes: &[u8]) -> io::Result<usize> {
        self.fork.check()?;
        let slot = sending_slot(&mut self.slots, socket)?;
        match &slot.source {
            Source::Owned(_) if slot.is_carrying(&self.carrier) => Ok(0),
            Source::Owned(fd) => {
                attempt::send_bytes_before_more(fd.as_fd(), slot.kind, bytes).unwrap_or(Ok(0))
            }
            _ => Err(Errno::BADF.into()),
        }
    }

    fn cancel(&mut self, token: Token) {
        if self.fork.is_forked() {
            return; // the queue is shared with the parent
        }
        let Some(in_flight) = self.operations.get_mut(token) else { return };
        if is_close(&in_flight.operation) {
            return;
        }
        in_flight.cancelled = true;
        match in_flight.stage {
            Stage::Kernel | Stage::Readiness => self.cancel_request(token.data().as_ffi()),
            Stage::Thread | Stage::Here => {
                self.starved.retain(|&other| other != token);
                self.finish(token, Err(Errno::CANCELED.into()));
            }
            Stage::Ended => {}
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.wait_for(|_| timeout)
    }

    fn wait_until(&mut self, deadline: Instant) -> io::Result<()> {
        self.wait_for(|uring| uring.timeout_of(deadline))
    }

    fn next(&mut self) -> Option<Completion> {
        loop {
            if let Some(completion) = self.next_arrival()?.into_completion() {
                return Some(completion);
            }
        }
    }

    fn next_arrival(&mut self) -> Option<Arrival> {
        if !self.due.is_idle()
            && let Some(awaited) = self.tell_due()
        {
            return Some(Arrival::Landed(awaited));
        }
        while self.finished.is_empty() {
            let Some(entry) = self.arrived.get(self.taken) else {
                let awaited = if self.due.is_idle() { None } else { self.tell_due() };
                return awaited.map(Arrival::Landed);
            };
            let entry = entry.clone();
            self.taken += 1;
            if let Some(completion) = self.received_more(&entry) {
                return Some(Arrival::Completion(completion));
            }
            if let Some(awaited) = self.received_awaited(&entry) {
                return Some(Arrival::Landed(awaited));
            }
            if let Some(arrival) = self.take_in(&entry) {
                return Some(arrival);
            }
        }
        self.take_finished().map(Arrival::Completion)
    }

    fn flush(&mut self) {
        if self.fork.is_forked() {
            return;
        }
        self.send_due();
        self.queue_asked();
        // What is handed over may let others go that have waited behind it.
        while !self.ring.submission().is_empty() {
            self.hand_over();
        }
    }

    fn waker(&self) -> Waker {
        self.wakeup.waker()
    }

    fn in_flight(&self) -> usize {
        self.operations.len() + self.awaited + self.carrier.in_flight() + self.due.in_flight()
    }

    fn is_busy(&self) -> bool {
        !self.finished.is_empty()
            || !self.due.is_idle()
            || self.taken < self.arrived.len()
            || !self.failed.is_empty()
            || !self.starved.is_empty()
    }

    fn timeout(&self) -> Option<Duration> {
        self.retries.timeout()
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let in_flight = self.operations.iter().filter(|(_, it)| it.stage != Stage::Ended);
        for (token, in_flight) in in_flight {
            let fd = self.slots.get(in_flight.handle).map(|slot| slot.source.raw());
            in_flight.operation.describe(token, fd, out)?;
        }
        for slot in self.slots.values().filter(|slot| slot.receive.is_some()) {
            landing::describe("receive", slot.source.raw(), out)?;
        }
        for slot in self.due.sockets().filter_map(|socket| self.slots.get(socket)) {
            landing::describe("send", slot.source.raw(), out)?;
        }
        Ok(())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        if self.notice.get().is_none() {
            let notice = Notice::register(&self.ring, self.wakeup.as_fd()).ok()?;
            self.notice.set(notice).ok()?;
        }
        self.notice.get().map(AsFd::as_fd)
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
        self.cancel_all_awaited();
        self.due.forget();
        self.hand_over(); // what is carried has its attempt
        let rests: Vec<RestIndex> = self.slots.values().filter_map(|slot| slot.rest).collect();
        rests.into_iter().for_each(|index| self.cancel_rest(index));
        let deadline = Instant::now() + DROP_TIMEOUT;
        while self.with_kernel + self.awaited > 0 && Instant::now() < deadline {
            if self.wait(Some(DROP_TIMEOUT / 20)).is_err() {
                break;
            }
            while self.next().is_some() {}
        }
        if self.with_kernel + self.awaited > 0 {
            tracing::error!(
                "leaking the memory of {} operations that the kernel does not give back",
                self.with_kernel + self.awaited
            );
            std::mem::forget(std::mem::take(&mut self.operations));
            std::mem::forget(std::mem::replace(&mut self.carrier, Carrier::new()));
            std::mem::forget(Rc::clone(&self.lent));
        }
    }
}
