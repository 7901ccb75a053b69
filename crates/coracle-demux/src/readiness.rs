//! The one adaptor that turns readiness into completions, for epoll, poll and select.
//!
//! The kernel only says that a descriptor is ready; the adaptor then does the work ([`attempt`]) and
//! reports it done. A backend is a [`Poller`], five small functions.
//!
//! ```text
//!   submit ──► try first? ──yes──► attempt ──► Done
//!                 │no                 │would wait
//!                 ▼                   ▼
//!              waiting: reader / writer / polls of the descriptor
//!                 │
//!   wait ──► events ──► next() ──► attempt ──► Completion
//! ```
//!
//! Work is done in `next`, one completion at a time, never when the batch is read: so an operation that an
//! earlier callback of the batch cancelled or whose descriptor it closed is simply not there any more.
//!
//! With edges (epoll) the kernel says a thing once, so the adaptor remembers in [`Slot::ready`] what has
//! not been used up: a receive that filled its space leaves `READ` there, one that came back short has
//! emptied a TCP socket and clears it, unless the peer's end of stream is still to be read. With levels
//! (poll, select) there is nothing to remember: what is still true is said again.

use crate::address::Address;
use crate::attempt::{self, SendFile};
use crate::backend::{Backend, Features, Settings, Threads};
use crate::descriptor::{Kind, Source};
use crate::file::{Fact, Report, Work};
use crate::fork::ForkGuard;
use crate::lent::{Lent, LentPool};
use crate::mailbox::Mailbox;
use crate::memory::{Memory, Payload};
use crate::operation::{
    Completion, Finished, Handle, Interest, Operation, Outcome, Readiness, Submitted, Token,
};
use crate::signal::{self, Inbox};
use crate::socket::{self, SocketKind, SocketOption};
use crate::wakeup::{Waker, Wakeup};
use crate::{Demux, Descriptor, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use slotmap::{Key, KeyData, SlotMap};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
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
    finished: VecDeque<Completion>,
    /// Descriptors that may be ready and have not been looked at.
    runnable: VecDeque<Handle>,
    /// Descriptors that have had their share of this turn; runnable in the next.
    again: Vec<Handle>,
    /// Descriptors that wait for a lent buffer to come back.
    starved: Vec<Handle>,
    lent: Rc<LentPool>,
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
    /// It is in `runnable`, `again` or `starved`.
    queued: bool,
    /// What was reported and not used up.
    ready: Readiness,
    /// The receiving and the sending operation in flight.
    reader: Option<Token>,
    writer: Option<Token>,
    /// The reader is a lent receive, the most frequent of all, which needs no look into the table.
    lent: bool,
    polls: Vec<Token>,
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
            runnable: VecDeque::new(),
            again: Vec::new(),
            starved: Vec::new(),
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
            polls: Vec::new(),
            jobs: 0,
            closer: None,
        }))
    }

    #[inline]
    fn slot(&self, handle: Handle) -> io::Result<&Slot> {
        match self.slots.get(handle) {
            Some(slot) if slot.closer.is_none() => Ok(slot),
            _ => Err(Errno::BADF.into()),
        }
    }

    // --- Starting ----------------------------------------------------------------------------------

    /// Receives and sends, in all their forms.
    fn start_transfer(&mut self, handle: Handle, mut operation: Operation) -> Submitted {
        let slot = match self.slot(handle) {
            Ok(slot) if matches!(slot.source, Source::Lent(_)) => {
                return operation.refuse(Errno::BADF); // lent for polls only
            }
            Ok(slot) => slot,
            Err(error) => return operation.refuse(error),
        };
        let reading = is_receiving(&operation);
        let multishot =
            matches!(operation, Operation::Accept { .. } | Operation::ReceiveLent { .. });
        if if reading { slot.reader } else { slot.writer }.is_some() {
            return operation.refuse(Errno::ALREADY);
        }
        let try_first = !reading || (!multishot && slot.ready.intersects(READER));
        if try_first {
            match self.attempt(handle, &mut operation, false) {
                Attempt::Done(result) => {
                    let payload = operation.into_payload();
                    return Submitted::Done(Finished { result, payload });
                }
                Attempt::Wait => {}
                Attempt::Cold(work) => return self.start_warming(handle, operation, *work),
            }
        }
        self.enlist(handle, operation)
    }

    /// Lets an operation wait for its descriptor.
    fn enlist(&mut self, handle: Handle, operation: Operation) -> Submitted {
        let slot = &mut self.slots[handle];
        let fresh = !slot.added;
        if fresh {
            if let Err(error) = self.poller.add(slot.source.as_fd(), handle.data().as_ffi()) {
                return operation.refuse(error);
            }
            slot.added = true;
        }
        let is_poll = matches!(operation, Operation::Poll { .. });
        let lent = matches!(operation, Operation::ReceiveLent { .. });
        let reading = is_receiving(&operation);
        let token = self.operations.insert(InFlight { operation, handle, on_thread: false });
        if is_poll {
            slot.polls.push(token);
        } else if reading {
            slot.reader = Some(token);
            slot.lent = lent;
            if slot.ready.intersects(READER) {
                self.run_again(handle);
            }
        } else {
            slot.writer = Some(token);
        }
        if let Err(error) = self.watch(handle, is_poll && !fresh) {
            let in_flight = self.forget(token);
            return in_flight.operation.refuse(error);
        }
        Submitted::Pending(token)
    }

    /// Tells the poller what is waited for on a descriptor.
    fn watch(&mut self, handle: Handle, ask_again: bool) -> io::Result<()> {
        let slot = &self.slots[handle];
        if !slot.added || (P::EDGE && !ask_again) {
            return Ok(());
        }
        let mut interest = Interest::empty();
        interest.set(Interest::READ, slot.reader.is_some());
        interest.set(Interest::WRITE, slot.writer.is_some());
        for &token in &slot.polls {
            if let Operation::Poll { interest: wanted, .. } = self.operations[token].operation {
                interest |= wanted;
            }
        }
        self.poller.watch(slot.source.as_fd(), handle.data().as_ffi(), interest, ask_again)
    }

    fn start_poll(&mut self, handle: Handle, operation: Operation) -> Submitted {
        match self.slot(handle).and_then(|slot| slot.kind.check_pollable()) {
            Ok(()) => self.enlist(handle, operation),
            Err(error) => operation.refuse(error),
        }
    }

    fn start_file(&mut self, operation: Operation) -> Submitted {
        let file = operation.handle();
        let shared = match file.map(|file| self.slot(file)) {
            None => None,
            Some(Err(error)) => return operation.refuse(error),
            Some(Ok(slot)) => match &slot.source {
                Source::File(fd) => Some(Arc::clone(fd)),
                Source::Owned(_) | Source::Lent(_) => return operation.refuse(Errno::BADF),
            },
        };
        let mut operation = operation;
        let work = match (&mut operation, shared) {
            (Operation::Open { path, options }, _) => {
                Work::Open { path: std::mem::take(path), options: *options }
            }
            (Operation::Stat { .. }, Some(file)) => Work::Stat { file },
            (Operation::Read { offset, space, .. }, Some(file)) => {
                Work::Read { file, offset: *offset, space: std::mem::take(space) }
            }
            (Operation::Write { offset, memory, .. }, Some(file)) => {
                Work::Write { file, offset: *offset, memory: std::mem::take(memory) }
            }
            _ => unreachable!("only file operations come here, and all but open have a file"),
        };
        let handle = file.unwrap_or_default();
        let token = self.operations.insert(InFlight { operation, handle, on_thread: true });
        match self.give_to_thread(token, work) {
            Ok(()) => {
                if let Some(slot) = self.slots.get_mut(handle) {
                    slot.jobs += 1;
                }
                Submitted::Pending(token)
            }
            Err(memory) => {
                self.operations.remove(token);
                let payload = memory.map(Payload::One).unwrap_or_default();
                Submitted::Done(Finished { result: Err(Errno::AGAIN.into()), payload })
            }
        }
    }

    /// A send_file whose bytes are on the disk: reads them on a thread, then goes on.
    fn start_warming(&mut self, handle: Handle, operation: Operation, work: Work) -> Submitted {
        let token = self.operations.insert(InFlight { operation, handle, on_thread: true });
        self.slots[handle].writer = Some(token);
        self.warm(token, work);
        Submitted::Pending(token)
    }

    /// Has a thread read what `token` is about to send; without one, sends it cold.
    fn warm(&mut self, token: Token, work: Work) {
        if self.give_to_thread(token, work).is_err() {
            self.operations[token].on_thread = false;
            let handle = self.operations[token].handle;
            if let Attempt::Done(result) = self.attempt_warmed(token) {
                let completion = self.complete(token, result);
                self.finished.push_back(completion);
            } else if let Err(error) = self.await_writable(handle) {
                let completion = self.complete(token, Err(error));
                self.finished.push_back(completion);
            }
        }
    }

    /// Gives `work` to a thread, or back the memory it carries.
    fn give_to_thread(&mut self, token: Token, work: Work) -> Result<(), Option<Memory>> {
        let letterbox = self.reports.letterbox();
        give_to_thread(&self.threads, work, move |report| letterbox.deliver(token, report))
    }

    fn start_child_exit(&mut self, pid: u32, operation: Operation) -> Submitted {
        let opened =
            child_descriptor(pid).and_then(|fd| self.insert(Source::Owned(fd), Kind::Bytes, false));
        let handle = match opened {
            Ok(handle) => handle,
            Err(error) => return operation.refuse(error),
        };
        let submitted = self.enlist(handle, operation);
        if let Submitted::Done(_) = submitted {
            self.drop_slot(handle);
        }
        submitted
    }

    fn start_signal(&mut self, signal: i32, operation: Operation) -> Submitted {
        match self.signals.subscribe(signal) {
            Ok(()) => Submitted::Pending(self.operations.insert(InFlight {
                operation,
                handle: Handle::null(),
                on_thread: false,
            })),
            Err(error) => operation.refuse(error),
        }
    }

    fn start_close(&mut self, handle: Handle, operation: Operation) -> Submitted {
        if let Err(error) = self.slot(handle) {
            return operation.refuse(error);
        }
        let slot = &mut self.slots[handle];
        let waiting: Vec<Token> = (slot.reader.take().into_iter())
            .chain(slot.writer.take())
            .chain(std::mem::take(&mut slot.polls))
            .collect();
        let jobs = slot.jobs;
        for &token in &waiting {
            let completion = self.complete(token, Err(Errno::CANCELED.into()));
            self.finished.push_back(completion);
        }
        if jobs > 0 {
            let token = self.operations.insert(InFlight { operation, handle, on_thread: true });
            self.slots[handle].closer = Some(token);
            return Submitted::Pending(token);
        }
        self.drop_slot(handle);
        if waiting.is_empty() {
            let payload = Payload::Nothing;
            return Submitted::Done(Finished { result: Ok(Outcome::Nothing), payload });
        }
        // Its own completion is the last one, so it queues behind the others.
        let token = self.operations.insert(InFlight { operation, handle, on_thread: false });
        let completion = self.complete(token, Ok(Outcome::Nothing));
        self.finished.push_back(completion);
        Submitted::Pending(token)
    }

    /// Forgets a descriptor on which nothing waits, and closes it if it is ours.
    fn drop_slot(&mut self, handle: Handle) -> Option<Source> {
        let slot = self.slots.remove(handle)?;
        if slot.added {
            let closing = !slot.shared && matches!(slot.source, Source::Owned(_));
            self.poller.remove(slot.source.as_fd(), handle.data().as_ffi(), closing);
        }
        Some(slot.source)
    }

    // --- Working -----------------------------------------------------------------------------------

    /// Tries an operation once. `ready` says that the wait for it is over.
    fn attempt(&mut self, handle: Handle, operation: &mut Operation, ready: bool) -> Attempt {
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
                slot.ready -= if is_receiving(operation) { READER } else { WRITER };
                Attempt::Wait
            }
        }
    }

    fn attempt_send_file(
        &mut self,
        handle: Handle,
        file: Handle,
        offset: u64,
        count: usize,
        warmed: bool,
    ) -> Attempt {
        let Ok(Source::File(file)) = self.slot(file).map(|slot| &slot.source) else {
            return Attempt::Done(Err(Errno::BADF.into()));
        };
        let file = Arc::clone(file);
        let slot = &mut self.slots[handle];
        let send = if warmed { attempt::send_file_now } else { attempt::send_file };
        match send(slot.source.as_fd(), file.as_fd(), offset, count) {
            SendFile::Done(result) => Attempt::Done(result),
            SendFile::Cold(count) => Attempt::Cold(Box::new(Work::Warm { file, offset, count })),
            SendFile::Wait => {
                slot.ready -= WRITER;
                Attempt::Wait
            }
        }
    }

    /// Goes on with a send_file whose bytes a thread has read.
    fn attempt_warmed(&mut self, token: Token) -> Attempt {
        let InFlight { handle, operation, .. } = &self.operations[token];
        let Operation::SendFile { file, offset, count, .. } = *operation else {
            unreachable!("only send_file is warmed");
        };
        self.attempt_send_file(*handle, file, offset, count, true)
    }

    /// Does what a descriptor is ready for: one completion at most, so that it is called again for more.
    #[inline]
    fn run(&mut self, handle: Handle) -> Option<Completion> {
        let slot = self.slots.get(handle)?;
        let reader = slot.reader.filter(|_| slot.ready.intersects(READER));
        let writer = slot.writer.filter(|_| slot.ready.intersects(WRITER));
        if let Some(token) = reader {
            let completion = if slot.lent {
                self.run_receive_lent(handle, token)
            } else {
                self.run_operation(handle, token)
            };
            if completion.is_some() {
                if writer.is_some() {
                    self.enqueue(handle);
                }
                return completion;
            }
        }
        writer.and_then(|token| self.run_operation(handle, token))
    }

    /// Receives into a lent buffer.
    fn run_receive_lent(&mut self, handle: Handle, token: Token) -> Option<Completion> {
        let slot = &mut self.slots[handle];
        match slot.receive_lent::<P>(&self.lent) {
            Received::Bytes { id, count } => {
                if slot.ready.intersects(READER) {
                    self.run_again(handle);
                }
                let result = Ok(Outcome::Lent(self.lent.lend(id, count)));
                Some(Completion { token, more: true, result, payload: Payload::Nothing })
            }
            Received::Nothing => None,
            Received::NoBuffer => {
                self.run_when_returned(handle);
                None
            }
            Received::End(result) => Some(self.complete(token, result)),
        }
    }

    /// Has a descriptor looked at in the next turn: it has had its share of this one.
    fn run_again(&mut self, handle: Handle) {
        if !std::mem::replace(&mut self.slots[handle].queued, true) {
            self.again.push(handle);
        }
    }

    /// Has a descriptor looked at when a lent buffer is there for it.
    fn run_when_returned(&mut self, handle: Handle) {
        if !std::mem::replace(&mut self.slots[handle].queued, true) {
            self.starved.push(handle);
        }
    }

    /// Has a descriptor looked at once more in this turn, behind the others.
    fn enqueue(&mut self, handle: Handle) {
        if let Some(slot) = self.slots.get_mut(handle)
            && !std::mem::replace(&mut slot.queued, true)
        {
            self.runnable.push_back(handle);
        }
    }

    /// Tries an operation whose descriptor is ready, and completes it if it has come to something.
    fn run_operation(&mut self, handle: Handle, token: Token) -> Option<Completion> {
        let in_flight = &mut self.operations[token];
        if in_flight.on_thread {
            return None; // a send_file whose bytes are being read
        }
        if let Operation::Accept { .. } = in_flight.operation {
            return self.run_accept(handle, token);
        }
        // The operation leaves the table while it is worked on; a `Signal` takes its place for nothing.
        let placeholder = Operation::Signal { signal: 0 };
        let mut operation = std::mem::replace(&mut in_flight.operation, placeholder);
        let attempt = self.attempt(handle, &mut operation, true);
        self.operations[token].operation = operation;
        match attempt {
            Attempt::Done(result) => Some(self.complete(token, result)),
            Attempt::Wait => None,
            Attempt::Cold(work) => {
                self.operations[token].on_thread = true;
                self.warm(token, *work);
                None
            }
        }
    }

    /// Accepts one connection. There may be more: how many of them one turn takes is the loop's budget.
    fn run_accept(&mut self, handle: Handle, token: Token) -> Option<Completion> {
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
    fn finish_polls(&mut self, handle: Handle, ready: Readiness) {
        let slot = &self.slots[handle];
        let mut answered = Vec::new();
        for &token in &slot.polls {
            let Operation::Poll { interest, .. } = self.operations[token].operation else {
                unreachable!("only polls are in the list of polls");
            };
            let ready =
                if P::COARSE { poll::ready_now(slot.source.as_fd(), interest) } else { ready };
            if let Some(ready) = answer(ready, interest) {
                answered.push((token, ready));
            }
        }
        for (token, ready) in answered {
            let completion = self.complete(token, Ok(Outcome::Ready(ready)));
            self.finished.push_back(completion);
        }
    }

    // --- Ending ------------------------------------------------------------------------------------

    /// Takes an operation out of the tables.
    fn forget(&mut self, token: Token) -> InFlight {
        let in_flight = self.operations.remove(token).expect("an operation ends once");
        if let Some(slot) = self.slots.get_mut(in_flight.handle) {
            if slot.reader == Some(token) {
                slot.reader = None;
            } else if slot.writer == Some(token) {
                slot.writer = None;
            } else {
                slot.polls.retain(|&other| other != token);
            }
            if !P::EDGE {
                let _ = self.watch(in_flight.handle, false);
            }
        }
        in_flight
    }

    /// The final completion of an operation.
    fn complete(&mut self, token: Token, result: io::Result<Outcome>) -> Completion {
        let in_flight = self.forget(token);
        match in_flight.operation {
            Operation::ChildExit { .. } => drop(self.drop_slot(in_flight.handle)),
            Operation::Signal { signal } => self.signals.unsubscribe(signal),
            _ => {}
        }
        let payload = in_flight.operation.into_payload();
        Completion { token, more: false, result, payload }
    }

    /// Takes in what a thread has done.
    fn finish_job(&mut self, token: Token, report: Report) {
        let Some(in_flight) = self.operations.get_mut(token) else {
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
        let mut completion = self.complete(token, result);
        if let Some(memory) = report.memory {
            completion.payload = Payload::One(memory);
        }
        self.finished.push_back(completion);
        if let Some(slot) = self.slots.get_mut(handle)
            && slot.jobs > 0
        {
            slot.jobs -= 1;
            if let Some(closer) = slot.closer.filter(|_| slot.jobs == 0) {
                self.drop_slot(handle);
                let completion = self.complete(closer, Ok(Outcome::Nothing));
                self.finished.push_back(completion);
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

    // --- Waiting -----------------------------------------------------------------------------------

    /// Takes in an event that is not simply a lent receive's: gives the descriptor to be looked at.
    fn note(&mut self, key: u64, ready: Readiness) -> Option<Handle> {
        let handle = Handle::from(KeyData::from_ffi(key));
        match self.slots.get_mut(handle) {
            Some(slot) => {
                slot.ready |= ready;
                self.finish_polls(handle, ready);
                return Some(handle);
            }
            None if key == WAKEUP => self.note_wakeup(),
            None => {} // an event for a descriptor that is gone
        }
        None
    }

    fn note_wakeup(&self) {
        // With edges, each write to an eventfd is a new one; anything else fills up.
        if !(P::EDGE && self.wakeup.needs_no_drain()) {
            self.wakeup.drain();
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
}

/// What came of trying.
enum Attempt {
    Done(io::Result<Outcome>),
    /// The descriptor is not ready.
    Wait,
    /// The bytes to send must be read from the disk first.
    Cold(Box<Work>),
}

/// What came of a lent receive.
enum Received {
    /// So many bytes, in this buffer.
    Bytes { id: u16, count: usize },
    /// There was nothing to receive.
    Nothing,
    /// All buffers are lent.
    NoBuffer,
    /// The stream has ended, or failed.
    End(io::Result<Outcome>),
}

impl Slot {
    /// The lent receive in flight, if nothing else waits for this descriptor: the most frequent state of all.
    #[inline]
    fn lent_receive_alone(&self) -> Option<Token> {
        let alone = self.lent && self.writer.is_none() && self.polls.is_empty();
        self.reader.filter(|_| alone)
    }

    #[inline(always)]
    fn receive_lent<P: Poller>(&mut self, pool: &LentPool) -> Received {
        let Some(id) = pool.take_returned() else { return Received::NoBuffer };
        let (fd, kind) = (self.source.as_fd(), self.kind);
        match pool.fill(id, |space| attempt::receive(fd, kind, space)) {
            Some(Ok(count)) if count > 0 || is_datagram(self) => {
                self.used_up::<P>(count < pool.size());
                Received::Bytes { id, count }
            }
            other => {
                pool.give_back(id);
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
    fn used_up<P: Poller>(&mut self, short: bool) {
        let ending = Readiness::READ_CLOSED | Readiness::CLOSED | Readiness::ERROR;
        if !P::EDGE {
            self.ready -= READER; // a level is reported again
        } else if short && self.kind == Kind::Tcp && !self.ready.intersects(ending) {
            self.ready -= Readiness::READ;
        }
    }
}

/// Whether an operation takes the receiving place of its descriptor, and not the sending one.
pub(crate) fn is_receiving(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Accept { .. }
            | Operation::ReceiveLent { .. }
            | Operation::Receive { .. }
            | Operation::ReceiveMessage { .. }
            | Operation::ChildExit { .. }
    )
}

/// Whether an empty receive is an empty message, and not the end of a stream.
#[cold]
fn is_datagram(slot: &Slot) -> bool {
    slot.kind == Kind::Socket
        && rustix::net::sockopt::socket_type(&slot.source)
            .is_ok_and(|kind| kind == rustix::net::SocketType::DGRAM)
}

/// What of `ready` answers a poll for `interest`, if anything does.
pub(crate) fn answer(ready: Readiness, interest: Interest) -> Option<Readiness> {
    let mut wanted = Readiness::CLOSED | Readiness::ERROR;
    wanted.set(Readiness::READ | Readiness::READ_CLOSED, interest.contains(Interest::READ));
    wanted.set(Readiness::WRITE, interest.contains(Interest::WRITE));
    ready.intersects(wanted).then_some(ready & (wanted | Readiness::READ_CLOSED))
}

/// A descriptor that becomes readable when the child ends.
pub(crate) fn child_descriptor(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    Ok(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}

/// Gives `work` to a thread, or back the memory it carries.
pub(crate) fn give_to_thread(
    threads: &Threads,
    work: Work,
    deliver: impl FnOnce(Report) + Send + 'static,
) -> Result<(), Option<Memory>> {
    // The work waits where both ends can reach it: a refused job is dropped, what it was to do is not.
    let work = Arc::new(Mutex::new(Some(work)));
    let taken = Arc::clone(&work);
    let job = move || {
        let work = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(work) = work {
            deliver(work.perform());
        }
    };
    threads.run(Box::new(job)).map_err(|_refused| {
        match work.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(Work::Read { space, .. }) => Some(space),
            Some(Work::Write { memory, .. }) => Some(memory),
            _ => None,
        }
    })
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
        let fd = socket::open(kind)?;
        self.insert(Source::Owned(fd), socket::kind_of(kind), false)
    }

    fn socket_pair(&mut self) -> io::Result<(Handle, Handle)> {
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
        self.insert(source, kind, true)
    }

    fn lend(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<Handle> {
        let kind = Kind::of(descriptor)?;
        kind.check_pollable()?;
        self.insert(Source::Lent(descriptor.as_raw_fd()), kind, true)
    }

    fn reclaim(&mut self, handle: Handle) {
        let Some(slot) = self.slots.get_mut(handle) else { return };
        for token in std::mem::take(&mut slot.polls) {
            let completion = self.complete(token, Err(Errno::CANCELED.into()));
            self.finished.push_back(completion);
        }
        if !self.fork.is_forked() {
            self.drop_slot(handle);
        }
    }

    fn detach(&mut self, handle: Handle) -> io::Result<Descriptor> {
        let slot = self.slot(handle)?;
        let idle = slot.reader.is_none()
            && slot.writer.is_none()
            && slot.polls.is_empty()
            && slot.jobs == 0;
        if !idle {
            return Err(Errno::BUSY.into());
        }
        if let Source::Lent(_) = slot.source {
            return Err(Errno::BADF.into());
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
        let slot = self.slot(socket)?;
        if slot.writer.is_some() {
            return Err(Errno::ALREADY.into());
        }
        if let Source::Lent(_) = slot.source {
            return Err(Errno::BADF.into()); // lent for polls only
        }
        attempt::send_bytes(slot.source.as_fd(), slot.kind, bytes).unwrap_or(Ok(0))
    }

    fn submit(&mut self, operation: Operation) -> Submitted {
        if let Err(error) = self.fork.check() {
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
            Operation::Poll { handle, .. } => self.start_poll(handle, operation),
            Operation::Close { handle } => self.start_close(handle, operation),
            Operation::Shutdown { socket, how } => {
                let result = self.slot(socket).and_then(|slot| socket::shutdown(&slot.source, how));
                let result = result.map(|()| Outcome::Nothing);
                Submitted::Done(Finished { result, payload: Payload::Nothing })
            }
            Operation::Open { .. }
            | Operation::Stat { .. }
            | Operation::Read { .. }
            | Operation::Write { .. } => self.start_file(operation),
            Operation::ChildExit { pid } => self.start_child_exit(pid, operation),
            Operation::Signal { signal } => self.start_signal(signal, operation),
        }
    }

    fn cancel(&mut self, token: Token) {
        let Some(in_flight) = self.operations.get(token) else { return };
        let is_send_file = matches!(in_flight.operation, Operation::SendFile { .. });
        if in_flight.on_thread && !is_send_file {
            return; // a thread cannot be stopped; its result will come
        }
        let completion = self.complete(token, Err(Errno::CANCELED.into()));
        self.finished.push_back(completion);
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.fork.check()?;
        while let Some((key, ready)) = self.poller.next_event() {
            if let Some(handle) = self.note(key, ready) {
                self.enqueue(handle);
            }
        }
        if self.lent.has_returned() {
            self.runnable.extend(self.starved.drain(..));
        }
        self.runnable.extend(self.again.drain(..));
        let busy = !self.finished.is_empty() || !self.runnable.is_empty();
        self.poller.wait(if busy { Some(Duration::ZERO) } else { timeout })?;
        self.note_signals();
        for (token, report) in self.reports.take() {
            self.finish_job(token, report);
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Completion> {
        while self.finished.is_empty() {
            let Some((key, ready)) = self.poller.next_event() else {
                // The events of this turn are used up; now those who have more to do.
                let handle = self.runnable.pop_front()?;
                if let Some(slot) = self.slots.get_mut(handle) {
                    slot.queued = false;
                }
                match self.run(handle) {
                    None => continue,
                    completion => return completion,
                }
            };
            let handle = Handle::from(KeyData::from_ffi(key));
            if let Some(slot) = self.slots.get_mut(handle)
                && let Some(token) = slot.lent_receive_alone()
                && ready.intersects(READER)
            {
                slot.ready |= ready;
                match slot.receive_lent::<P>(&self.lent) {
                    Received::Bytes { id, count } => {
                        if slot.ready.intersects(READER) {
                            self.run_again(handle);
                        }
                        let result = Ok(Outcome::Lent(self.lent.lend(id, count)));
                        let payload = Payload::Nothing;
                        return Some(Completion { token, more: true, result, payload });
                    }
                    Received::Nothing => {}
                    Received::NoBuffer => self.run_when_returned(handle),
                    Received::End(result) => return Some(self.complete(token, result)),
                }
            } else if let Some(handle) = self.note(key, ready)
                && let Some(completion) = self.run(handle)
            {
                return Some(completion);
            }
        }
        self.finished.pop_front()
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
        self.poller.as_fd()
    }
}

/// One line of [`Demux::describe`].
pub(crate) fn describe_operation(
    out: &mut dyn fmt::Write,
    token: Token,
    operation: &Operation,
    fd: Option<i32>,
) -> fmt::Result {
    write!(out, "operation {}: {}", token.index(), operation.name())?;
    match operation {
        Operation::Poll { interest, .. } => write!(out, " for {interest:?}")?,
        Operation::Signal { signal } => write!(out, " {signal}")?,
        Operation::ChildExit { pid } => write!(out, " of process {pid}")?,
        Operation::Connect { address, .. } => write!(out, " to {address}")?,
        Operation::Open { path, .. } => write!(out, " {}", path.display())?,
        _ => {}
    }
    match fd {
        Some(fd) => writeln!(out, " on descriptor {fd}"),
        None => writeln!(out),
    }
}

/// A random number from the operating system.
pub(crate) fn os_seed() -> u64 {
    let mut bytes = [0u8; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // std asks the same system call and has its own ways around a refusal.
        _ => std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0u64),
    }
}
