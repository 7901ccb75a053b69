//! The one adaptor that turns readiness into completions, for epoll, poll and select.
//!
//! The kernel only says that a descriptor is ready; the adaptor then does the work (`attempt.rs`) and
//! reports it done. A backend is a [`Poller`], five small functions.
//!
//! ```text
//!   submit ──► try first? ──yes──► attempt ──► Done
//!                 │no                 │would wait
//!                 ▼                   ▼
//!              waiting: reader / writer / polls of the descriptor
//!                 │
//!   wait ──► events ──► gather ──► next() ──► attempt ──► Completion
//! ```
//!
//! Small receives are done [some dozens at a time](gather), and small sends are [carried](carrier) to the end of
//! the turn. Everything else is done in `next`, one completion at a time, never when the batch of events is read:
//! so an operation that an earlier callback of the batch cancelled or whose descriptor it closed is simply not
//! there any more.
//!
//! With edges (epoll) the kernel says a thing once, so the adaptor remembers in [`Slot::ready`] what has
//! not been used up: a receive that filled its space leaves `READ` there, one that came back short has
//! emptied a TCP socket and clears it, unless the peer's end of stream is still to be read. With levels
//! (poll, select) there is nothing to remember: what is still true is said again.

mod carrier;
mod gather;
mod lend;
mod start;
mod wait;
mod work;

use self::carrier::{Carrier, Left};
use self::gather::Gathered;
use self::work::Attempt;
use crate::address::Address;
use crate::backend::{Backend, Features, Settings, Threads, os_seed};
use crate::descriptor::{Kind, Source};
use crate::due::Due;
use crate::few::Few;
use crate::file::{Fact, Report};
use crate::fork::ForkGuard;
use crate::landing::{self, Arrival, Awaited, Landed, Receive};
use crate::lent::{LentPool, Spare};
use crate::mailbox::Mailbox;
use crate::memory::{Memory, Payload, Space};
use crate::operation::{
    Completion, Handle, Interest, Operation, Outcome, Readiness, Submitted, Token,
};
use crate::resident::Resident;
use crate::retry::Retries;
use crate::signal::Inbox;
use crate::socket::{self, SocketKind, SocketOption};
use crate::tcp::{self, TcpInfo};
use crate::wakeup::{Waker, Wakeup};
use crate::{Demux, Descriptor};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;
use slotmap::{Key, SlotMap};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Buffers for lent receives. One is in use at a time, unless a callback keeps one.
const LENT_BUFFERS: u16 = 4;

/// Size of a lent buffer: what one receive takes at most from one descriptor per turn.
const LENT_BYTES: u32 = 64 << 10;

/// The key of the wake-up. No handle has it: slotmap leaves index 0 unused.
const WAKEUP: u64 = 0;

/// What a readiness backend must do. `key` names the descriptor; its low half is a small index.
pub(crate) trait Poller {
    const BACKEND: Backend;
    const FEATURES: Features;
    /// Whether a state of readiness is reported once (edges) or while it lasts (levels).
    const EDGE: bool;
    /// Whether it tells no more than readable and writable, so that a poll has to ask for the rest.
    const COARSE: bool = false;

    /// Whether `fd` can be waited for at all.
    fn check(&self, _fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Makes `fd` known. With edges, everything is reported from here on, beginning with the present.
    fn add(&mut self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()>;

    /// With levels: reports just `interest` from here on. With edges: if `ask_again`, reports the present
    /// state once more.
    fn watch(
        &mut self,
        fd: BorrowedFd<'_>,
        key: u64,
        interest: Interest,
        ask_again: bool,
    ) -> io::Result<()>;

    /// Forgets `fd`, which is then open still. `closing`: its last reference is about to be closed.
    fn remove(&mut self, fd: BorrowedFd<'_>, key: u64, closing: bool);

    /// The time-out of a wait that must end at `deadline`; none if something else ends it by then. All events have
    /// been taken.
    #[inline]
    fn timeout(&mut self, deadline: Instant) -> Option<Duration> {
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// Collects events, waiting at most `timeout` for the first. An interruption is an early return.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// The next collected event.
    fn next_event(&mut self) -> Option<(u64, Readiness)>;

    /// A descriptor that is readable while there are events.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// A demultiplexer over a [`Poller`].
pub(crate) struct Adaptor<P: Poller> {
    poller: P,
    slots: SlotMap<Handle, Slot>,
    operations: SlotMap<Token, InFlight>,
    /// Completions that are ready to be taken.
    finished: VecDeque<Arrival>,
    /// One of them was taken last: the next in line is looked at before another is.
    took_finished: bool,
    /// How many awaited receives are in flight.
    awaited: usize,
    /// Descriptors that may be ready and have not been looked at.
    runnable: VecDeque<Handle>,
    /// Descriptors that have had their share of this turn; runnable in the next.
    again: Vec<Handle>,
    /// Descriptors whose send is tried again after a pause.
    retries: Retries<Handle>,
    lent: Rc<LentPool>,
    gathered: Gathered,
    carrier: Carrier,
    due: Due,
    resident: Resident,
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
    /// Somebody else may hold the same open file, so that closing ours does not end its registration.
    shared: bool,
    added: bool,
    /// It is in `runnable` or `again`.
    queued: bool,
    /// What was reported and not used up.
    ready: Readiness,
    /// The receiving and the sending operation in flight.
    reader: Option<Token>,
    writer: Option<Token>,
    /// What it sends has found no room, and is tried again when a pause is over.
    pausing: bool,
    /// The reader is a lent receive, the most frequent of all, which needs no look into the table.
    lent: bool,
    /// It has filled a small buffer, and is given large ones, until it has not needed so many.
    bulky: u8,
    /// The receive that is awaited, instead of a reader.
    receive: Option<Receive>,
    polls: Few,
    /// When bytes were last given to the carrier, and what the kernel did not take of them.
    loaded_on: u64,
    left: Option<Box<Left>>,
    /// The shutdowns that wait behind that.
    held: Few,
    /// How many operations of threads are in flight on this file.
    jobs: usize,
    /// The close that waits for them.
    closer: Option<Token>,
}

struct InFlight {
    operation: Operation,
    /// The descriptor it waits for: the operation's, or one made for it (a child's).
    handle: Handle,
    /// A thread works on it.
    on_thread: bool,
    /// It has ended, and keeps its place until the completion is taken: until then its token is in use.
    ended: bool,
}

impl InFlight {
    /// Takes the operation out of its place in the table; something without effect is left there.
    fn take_operation(&mut self) -> Operation {
        std::mem::replace(&mut self.operation, Operation::Close { handle: Handle::null() })
    }
}

/// What a reader can be ready by, and what a writer can.
const READER: Readiness =
    Readiness::READ.union(Readiness::READ_CLOSED).union(Readiness::CLOSED).union(Readiness::ERROR);
const WRITER: Readiness = Readiness::WRITE.union(Readiness::CLOSED).union(Readiness::ERROR);

impl<P: Poller> Adaptor<P> {
    pub(crate) fn open(mut poller: P, settings: &Settings) -> io::Result<Adaptor<P>> {
        let wakeup = Wakeup::open(settings.wakeup)?;
        poller.check(wakeup.as_fd())?;
        poller.add(wakeup.as_fd(), WAKEUP)?;
        poller.watch(wakeup.as_fd(), WAKEUP, Interest::READ, false)?;
        let waker = wakeup.waker();
        let lent = LentPool::new(LENT_BUFFERS, LENT_BYTES);
        (0..LENT_BUFFERS).for_each(|id| lent.give_back(id));
        Ok(Adaptor {
            poller,
            slots: SlotMap::with_key(),
            operations: SlotMap::with_key(),
            finished: VecDeque::new(),
            took_finished: false,
            awaited: 0,
            runnable: VecDeque::new(),
            again: Vec::new(),
            retries: Retries::new(),
            resident: Resident::default(),
            gathered: Gathered::new(),
            carrier: Carrier::new(),
            due: Due::default(),
            lent,
            signals: Inbox::new(waker.clone()),
            wakeup,
            threads: settings.threads.clone(),
            reports: Mailbox::new(waker),
            fork: ForkGuard::new(),
        })
    }

    fn insert(&mut self, source: Source, kind: Kind, shared: bool) -> io::Result<Handle> {
        self.poller.check(source.as_fd())?;
        Ok(self.slots.insert(Slot {
            source,
            kind,
            shared,
            added: false,
            queued: false,
            ready: Readiness::empty(),
            reader: None,
            writer: None,
            lent: false,
            bulky: 0,
            receive: None,
            pausing: false,
            polls: Few::default(),
            loaded_on: 0,
            left: None,
            held: Few::default(),
            jobs: 0,
            closer: None,
        }))
    }

    /// A descriptor, for calls that are not on the way of every message and so can afford to look whether this is
    /// still the process that opened it.
    fn own_slot(&self, handle: Handle) -> io::Result<&Slot> {
        self.fork.check()?;
        self.slot(handle)
    }

    #[inline]
    fn slot(&self, handle: Handle) -> io::Result<&Slot> {
        match self.slots.get(handle) {
            Some(slot) if slot.closer.is_none() => Ok(slot),
            _ => Err(Errno::BADF.into()),
        }
    }

    // --- Ending ------------------------------------------------------------------------------------

    /// Takes an operation away from its descriptor.
    pub(crate) fn detach_operation(&mut self, token: Token) {
        let handle = self.operations[token].handle;
        let Some(slot) = self.slots.get_mut(handle) else { return };
        if slot.reader == Some(token) {
            slot.reader = None;
        } else if slot.writer == Some(token) {
            slot.writer = None;
        } else {
            slot.polls.remove(token);
            slot.held.remove(token);
        }
        if !P::EDGE {
            // Waiting for less cannot be refused.
            let _ = self.watch(handle, false);
        }
    }

    /// The end of an operation that has left its descriptor.
    fn wind_up(&mut self, handle: Handle, operation: Operation) -> Payload {
        match operation {
            Operation::ChildExit { .. } => drop(self.drop_slot(handle)),
            Operation::Signal { signal } => self.signals.unsubscribe(signal),
            _ => {}
        }
        operation.into_payload()
    }

    /// The final completion of an operation, to be taken now.
    fn complete(&mut self, token: Token, result: io::Result<Outcome>) -> Completion {
        self.detach_operation(token);
        let ended = self.operations.remove(token).expect("an operation ends once");
        let payload = self.wind_up(ended.handle, ended.operation);
        Completion { token, more: false, result, payload }
    }

    /// The final completion of an operation, to be taken later.
    fn finish(&mut self, token: Token, result: io::Result<Outcome>) {
        self.detach_operation(token);
        let in_flight = &mut self.operations[token];
        in_flight.ended = true;
        let (handle, operation) = (in_flight.handle, in_flight.take_operation());
        let payload = self.wind_up(handle, operation);
        let completion = Completion { token, more: false, result, payload };
        self.finished.push_back(Arrival::Completion(completion));
    }

    /// Takes in what a thread has done.
    fn finish_job(&mut self, token: Token, report: Report) {
        let Some(in_flight) = self.operations.get_mut(token).filter(|it| !it.ended) else {
            return; // a send_file that was cancelled while its bytes were read
        };
        let handle = in_flight.handle;
        in_flight.on_thread = false;
        let result = match report.result {
            Ok(Fact::Warm) => match self.attempt_warmed(token) {
                Attempt::Done(result) => result,
                _ => {
                    // The socket is full: wait until it is not.
                    if let Err(error) = self.await_writable(handle) { Err(error) } else { return }
                }
            },
            Ok(Fact::Opened(fd)) => Kind::of(fd.as_fd())
                .and_then(|kind| self.insert(Source::File(Arc::new(fd)), kind, true))
                .map(Outcome::Opened),
            Ok(Fact::Metadata(metadata)) => Ok(Outcome::Metadata(Box::new(metadata))),
            Ok(Fact::Count(count)) => Ok(Outcome::Count(count)),
            Err(error) => Err(error),
        };
        if let Some(memory) = report.memory {
            self.operations[token].operation.put_memory(memory);
        }
        self.finish(token, result);
        if let Some(slot) = self.slots.get_mut(handle)
            && slot.jobs > 0
        {
            slot.jobs -= 1;
            if let Some(closer) = slot.closer.filter(|_| slot.jobs == 0) {
                self.drop_slot(handle);
                self.finish(closer, Ok(Outcome::Nothing));
            }
        }
    }

    fn await_writable(&mut self, handle: Handle) -> io::Result<()> {
        let slot = &mut self.slots[handle];
        if !slot.added {
            self.poller.add(slot.source.as_fd(), handle.data().as_ffi())?;
            slot.added = true;
        }
        self.watch(handle, false)
    }

    /// Looks at the next in line.
    #[inline]
    fn run_next(&mut self) -> Option<Arrival> {
        let handle = self.runnable.pop_front()?;
        if let Some(slot) = self.slots.get_mut(handle) {
            slot.queued = false;
        }
        self.run(handle)
    }

    /// What was ready to be taken. Those in line have their turn in between: as many polls as are taken in a turn
    /// may be finished before the next.
    #[cold]
    fn take_finished(&mut self) -> Option<Arrival> {
        if std::mem::take(&mut self.took_finished)
            && let Some(arrival) = self.run_next()
        {
            return Some(arrival);
        }
        self.took_finished = true;
        let arrival = self.finished.pop_front()?;
        match &arrival {
            Arrival::Completion(completion) if completion.more => {}
            Arrival::Completion(completion) => _ = self.operations.remove(completion.token),
            Arrival::Landed(awaited) => {
                self.awaited -= 1;
                awaited.land(Landed::Failed(Errno::CANCELED.raw_os_error())); // no other waits here
            }
        }
        Some(arrival)
    }

    /// The next of all but those who await a send.
    fn next_other(&mut self) -> Option<Arrival> {
        if let Some(arrival) = self.tell_gathered() {
            return Some(arrival);
        }
        if self.finished.is_empty() { self.run_next() } else { self.take_finished() }
    }

    /// What was received for a lent receive: a copy, while somebody keeps too many buffers.
    #[cold]
    fn deliver(&self, token: Token, spare: Spare, count: usize) -> Completion {
        let result = Ok(Outcome::Lent(self.lent.lend(spare, count).or_copy()));
        Completion { token, more: true, result, payload: Payload::Nothing }
    }
}

impl<P: Poller> Demux for Adaptor<P> {
    fn backend(&self) -> Backend {
        P::BACKEND
    }

    fn features(&self) -> Features {
        P::FEATURES
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn seed(&mut self) -> u64 {
        os_seed()
    }

    fn socket(&mut self, kind: SocketKind) -> io::Result<Handle> {
        self.fork.check()?;
        let fd = socket::open(kind)?;
        self.insert(Source::Owned(fd), socket::kind_of(kind), false)
    }

    fn socket_pair(&mut self) -> io::Result<(Handle, Handle)> {
        self.fork.check()?;
        let (a, b) = socket::pair()?;
        let a = self.insert(Source::Owned(a), Kind::Socket, false)?;
        match self.insert(Source::Owned(b), Kind::Socket, false) {
            Ok(b) => Ok((a, b)),
            Err(error) => {
                self.drop_slot(a);
                Err(error)
            }
        }
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
        let unacknowledged = tcp::unacknowledged_bytes(&self.own_slot(socket)?.source)?;
        Ok(unacknowledged + self.carried_bytes(socket))
    }

    fn is_carrying(&self, socket: Handle) -> bool {
        self.slots.get(socket).is_some_and(|slot| slot.is_carrying(&self.carrier))
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
        self.insert(source, kind, true)
    }

    fn lend(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<Handle> {
        self.fork.check()?;
        let kind = Kind::of(descriptor)?;
        kind.check_pollable()?;
        self.insert(Source::Lent(descriptor.as_raw_fd()), kind, true)
    }

    fn reclaim(&mut self, handle: Handle) {
        self.end_lend(handle);
    }

    fn confirm(&mut self, handle: Handle) -> io::Result<()> {
        self.confirm_lent(handle)
    }

    fn abandon(&mut self, handle: Handle) {
        self.end_lend_of_stranger(handle);
    }

    fn detach(&mut self, handle: Handle) -> io::Result<Descriptor> {
        let slot = self.own_slot(handle)?;
        let idle = !slot.is_reading()
            && slot.writer.is_none()
            && slot.polls.is_empty()
            && slot.jobs == 0
            && !slot.source.is_shared();
        if !idle || self.gathered.is_landing(handle) {
            return Err(Errno::BUSY.into());
        }
        if let Source::Lent(_) = slot.source {
            return Err(Errno::BADF.into());
        }
        if let Ok(false) = self.settle(handle) {
            return Err(Errno::BUSY.into());
        }
        self.slots[handle].shared = true; // it stays open, so it must be taken out of the set
        match self.drop_slot(handle) {
            Some(Source::Owned(fd)) => Ok(Descriptor::Os(fd)),
            Some(Source::File(fd)) => {
                Arc::try_unwrap(fd).map(Descriptor::Os).map_err(|_| Errno::BUSY.into())
            }
            Some(Source::Lent(_)) | None => Err(Errno::BADF.into()),
        }
    }

    fn try_send(&mut self, socket: Handle, bytes: &[u8]) -> io::Result<usize> {
        self.carry(socket, bytes)
    }

    fn try_send_before_file(&mut self, socket: Handle, bytes: &[u8]) -> io::Result<usize> {
        self.send_before_file(socket, bytes)
    }

    fn await_receive(&mut self, socket: Handle, space: Space, awaited: Awaited) -> bool {
        if self.fork.is_forked() {
            return false;
        }
        let Some(slot) = self.slots.get_mut(socket).filter(|slot| slot.can_await::<P>()) else {
            return false;
        };
        slot.receive = Some(Receive::new(space, awaited));
        self.awaited += 1;
        if slot.ready.intersects(READER) && !std::mem::replace(&mut slot.queued, true) {
            self.runnable.push_back(socket); // there is something: it is received in a row with others
        }
        true
    }

    #[inline]
    fn await_send(&mut self, socket: Handle, bytes: Memory, awaited: Awaited) -> bool {
        let together = |slot: &Slot| slot.source.sends_together(slot.kind);
        let possible = !self.fork.is_forked() && self.slots.get(socket).is_some_and(together);
        if possible {
            self.due.push(socket, bytes, awaited);
        }
        possible
    }

    fn cancel_receive(&mut self, socket: Handle) {
        // It lands when it is taken: who waits may not see it, and go, while it is still in the queue.
        if let Some(receive) = self.slots.get_mut(socket).and_then(|slot| slot.receive.take()) {
            self.finished.push_back(Arrival::Landed(receive.into_awaited()));
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
            Operation::Accept { listener: handle }
            | Operation::Connect { socket: handle, .. }
            | Operation::ReceiveLent { socket: handle }
            | Operation::Receive { socket: handle, .. }
            | Operation::ReceiveMessage { socket: handle, .. }
            | Operation::Send { socket: handle, .. }
            | Operation::SendMessage { socket: handle, .. }
            | Operation::SendFile { socket: handle, .. } => self.start_transfer(handle, operation),
            Operation::AcceptNumber { .. } => operation.refuse(Errno::OPNOTSUPP),
            Operation::Poll { handle, .. } => self.start_poll(handle, operation),
            Operation::Close { handle } => self.start_close(handle, operation),
            Operation::Shutdown { socket, how } => self.start_shutdown(socket, how),
            Operation::Open { .. }
            | Operation::Stat { .. }
            | Operation::Read { .. }
            | Operation::Write { .. } => self.start_file(operation),
            Operation::ChildExit { pid } => self.start_child_exit(pid, operation),
            Operation::Signal { signal } => self.start_signal(signal, operation),
        }
    }

    fn cancel(&mut self, token: Token) {
        let Some(in_flight) = self.operations.get(token).filter(|it| !it.ended) else { return };
        let is_send_file = matches!(in_flight.operation, Operation::SendFile { .. });
        if in_flight.on_thread && !is_send_file {
            return; // a thread cannot be stopped; its result will come
        }
        self.finish(token, Err(Errno::CANCELED.into()));
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.wait_for(|_| timeout)
    }

    fn wait_until(&mut self, deadline: Instant) -> io::Result<()> {
        self.wait_for(|poller| poller.timeout(deadline))
    }

    fn next(&mut self) -> Option<Completion> {
        loop {
            if let Some(completion) = self.next_arrival()?.into_completion() {
                return Some(completion);
            }
        }
    }

    fn next_arrival(&mut self) -> Option<Arrival> {
        if self.fork.is_forked() {
            return None; // what waits here is the parent's, to be told and to be sent
        }
        loop {
            if self.due.is_others_turn() {
                if self.gathered.is_empty() && self.finished.is_empty() {
                    self.gather();
                }
                let other = self.next_other();
                self.due.note_other(other.is_some());
                if other.is_some() {
                    return other;
                }
            }
            if let Some(awaited) = self.due.tell() {
                return Some(Arrival::Landed(awaited));
            }
            if let Some(arrival) = self.tell_gathered() {
                return Some(arrival);
            }
            if !self.finished.is_empty() {
                return self.take_finished();
            }
            self.gather();
            if !self.gathered.is_empty() || !self.finished.is_empty() || !self.due.is_idle() {
                continue;
            }
            // Now those who want something else, or have more to do.
            if self.runnable.is_empty() {
                return None;
            }
            if let Some(arrival) = self.run_next() {
                return Some(arrival);
            }
        }
    }

    fn flush(&mut self) {
        if !self.fork.is_forked() {
            self.hand_over_early();
        }
    }

    fn waker(&self) -> Waker {
        self.wakeup.waker()
    }

    fn in_flight(&self) -> usize {
        self.operations.len() + self.awaited + self.carrier.in_flight() + self.due.in_flight()
    }

    fn is_busy(&self) -> bool {
        let known = !self.gathered.is_empty() || !self.finished.is_empty();
        known || !self.due.is_idle() || !self.runnable.is_empty() || !self.again.is_empty()
    }

    fn timeout(&self) -> Option<Duration> {
        self.retries.timeout()
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        for (token, in_flight) in self.operations.iter().filter(|(_, it)| !it.ended) {
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
        self.poller.as_fd()
    }
}

impl<P: Poller> Drop for Adaptor<P> {
    /// What is carried has its attempt. Who awaits a send is told no more, and may be gone.
    fn drop(&mut self) {
        self.due.forget();
        self.flush();
    }
}
