//! Trying one operation once: what it comes to, or what it has to wait for.
//!
//! ```text
//!  perform ──► End      it is over, well or badly
//!          ├─► More     a multishot operation has something and goes on
//!          └─► Blocked  until the descriptor changes, a buffer is back, there is room, a child ends, later
//! ```
//!
//! [`could_finish`](World::could_finish) foretells, without side effects, whether [`perform`](World::perform)
//! would come to something. It may be wrong in saying yes, never in saying no: a no is not asked about again
//! until something has changed.

use super::descriptor::{Id, Object, Role};
use super::faults::Fault;
use super::world::{DemuxId, World};
use crate::address::Address;
use crate::lent::Lent;
use crate::memory::{Memory, Payload};
use crate::operation::{Interest, Message, OpenOptions, Operation, Outcome, Outgoing, Readiness};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// A number no descriptor has: they are counted from 1.
const NOWHERE: Id = Id(0);

/// An operation and what the kernel knows of it.
pub(super) struct Task {
    pub(super) operation: Operation,
    /// The descriptor it is about; always there when the operation has a handle.
    pub(super) id: Option<Id>,
    /// The file of a send_file.
    pub(super) file: Option<Id>,
    pub(super) is_cancelled: bool,
    /// It is to fail with this, whatever happens.
    pub(super) failure: Option<Errno>,
    /// A poll that is to complete although nothing is ready.
    pub(super) is_spurious: bool,
    /// A signal has arrived.
    pub(super) has_arrived: bool,
    /// How often a connect has found the backlog full.
    pub(super) tries: u32,
}

/// What came of trying.
pub(super) enum Progress {
    End(io::Result<Outcome>),
    More(Outcome),
    Blocked(Until),
}

/// What an operation waits for.
pub(super) enum Until {
    /// Its own descriptor, or its signal.
    Changed,
    /// A lent buffer of its demultiplexer.
    Buffer,
    /// Room in the queue of a datagram socket.
    Room(Id),
    /// The end of a child.
    Exit(u32),
    /// Nothing; it tries again by itself.
    Later(Duration),
}

/// What a receive has got.
#[derive(Default)]
pub(super) struct Arrived {
    pub(super) bytes: Vec<u8>,
    /// The stream has ended: there are no bytes and there never will be.
    pub(super) is_end: bool,
    /// The message was longer than the space.
    pub(super) is_truncated: bool,
    pub(super) from: Option<Address>,
    pub(super) descriptors: Vec<OwnedFd>,
}

impl Task {
    pub(super) fn new(operation: Operation, id: Option<Id>, file: Option<Id>) -> Task {
        Task {
            operation,
            id,
            file,
            is_cancelled: false,
            failure: None,
            is_spurious: false,
            has_arrived: false,
            tries: 0,
        }
    }

    pub(super) fn is_multishot(&self) -> bool {
        matches!(
            self.operation,
            Operation::Accept { .. } | Operation::ReceiveLent { .. } | Operation::Signal { .. }
        )
    }

    fn id(&self) -> Id {
        self.id.expect("an operation with a handle has its descriptor looked up at submit")
    }
}

impl World {
    /// Whether trying would come to something.
    pub(super) fn could_finish(&self, task: &Task) -> bool {
        if task.failure.is_some() || task.is_cancelled || task.is_spurious {
            return true;
        }
        match &task.operation {
            Operation::Accept { .. } => match self.socket(task.id()).map(|socket| &socket.role) {
                Ok(Role::Listener(listener)) => !listener.backlog.is_empty(),
                _ => true,
            },
            // A lent receive that lacks a buffer learns so by trying, and is then told when one is back.
            Operation::ReceiveLent { .. }
            | Operation::Receive { .. }
            | Operation::ReceiveMessage { .. } => self.can_receive(task.id()),
            Operation::Send { payload, .. } => self.can_send_now(task.id(), payload, None),
            Operation::SendMessage { message, .. } => {
                self.can_send_now(task.id(), &message.payload, message.to.as_ref())
            }
            Operation::SendFile { offset, count, .. } => {
                self.can_send(task.id()) || self.has_nothing_to_send(task, *offset, *count)
            }
            Operation::Poll { interest, .. } => match self.readiness(task.id()) {
                Ok(ready) => ready.answer(*interest).is_some(),
                Err(_) => true,
            },
            Operation::ChildExit { pid } => {
                self.children.get(pid).is_none_or(|child| child.has_ended)
            }
            Operation::Signal { .. } => task.has_arrived,
            Operation::Connect { .. }
            | Operation::Shutdown { .. }
            | Operation::Close { .. }
            | Operation::Open { .. }
            | Operation::Stat { .. }
            | Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::AcceptNumber { .. } => true,
        }
    }

    fn can_send_now(&self, id: Id, payload: &Payload, to: Option<&Address>) -> bool {
        let Ok(socket) = self.socket(id) else { return true };
        let Role::Datagram(datagram) = &socket.role else {
            return payload.is_empty() || self.can_send(id);
        };
        let Some(to) = to.or(datagram.peer.as_ref()) else { return true };
        let must_fail = socket.error.is_some() || socket.write_closed;
        must_fail || self.full_destination(id, to, payload.len()).is_none()
    }

    /// Whether a send_file is past the end of its file, or must fail.
    fn has_nothing_to_send(&self, task: &Task, offset: u64, count: usize) -> bool {
        if let Ok(Role::Datagram(_)) = self.socket(task.id()).map(|socket| &socket.role) {
            return true;
        }
        let Some(Ok(file)) = task.file.map(|file| self.file(file)) else { return true };
        !self.files.read(file, offset, count).is_ok_and(|bytes| !bytes.is_empty())
    }

    /// Whether a lent receive has something to take and no buffer to take it in.
    pub(super) fn lacks_buffer(&self, demux: DemuxId, task: &Task) -> bool {
        matches!(task.operation, Operation::ReceiveLent { .. })
            && self.has_data(task.id())
            && self.demuxes[&demux].free_buffers.is_empty()
    }

    fn has_data(&self, id: Id) -> bool {
        match self.socket(id).map(|socket| &socket.role) {
            Ok(Role::Stream(stream)) => !stream.incoming.is_empty(),
            Ok(Role::Datagram(datagram)) => !datagram.queue.is_empty(),
            _ => false,
        }
    }

    /// Tries an operation once.
    pub(super) fn perform(&mut self, demux: DemuxId, task: &mut Task) -> Progress {
        if let Some(error) = task.failure.take() {
            if let Operation::Close { .. } = task.operation {
                self.release(task.id()); // as close(2): whatever it says, the descriptor is gone
            }
            return Progress::End(Err(error.into()));
        }
        self.try_to_perform(demux, task).unwrap_or_else(|error| Progress::End(Err(error.into())))
    }

    fn try_to_perform(&mut self, demux: DemuxId, task: &mut Task) -> Result<Progress, Errno> {
        let is_spurious = std::mem::take(&mut task.is_spurious);
        let lacks_buffer = self.lacks_buffer(demux, task);
        let file = task.file;
        // Looked up before the operation is borrowed; those without a descriptor never use it.
        let id = task.id.unwrap_or(NOWHERE);
        match &mut task.operation {
            Operation::Accept { .. } => self.accept(demux, id),
            Operation::AcceptNumber { .. } => Err(Errno::OPNOTSUPP),
            Operation::Connect { address, .. } => self.connect(id, address, &mut task.tries),
            Operation::ReceiveLent { .. } if lacks_buffer => {
                self.injected.note(Fault::PauseLent);
                Ok(Progress::Blocked(Until::Buffer))
            }
            Operation::ReceiveLent { .. } => self.receive_lent(demux, id),
            Operation::Receive { space, .. } => self.receive_into(id, space),
            Operation::ReceiveMessage { space, limit_descriptors, .. } => {
                self.receive_message(id, space, *limit_descriptors)
            }
            Operation::Send { payload, .. } => self.send(id, payload, None, &mut Vec::new()),
            Operation::SendMessage { message, .. } => {
                let Outgoing { payload, to, descriptors } = &mut **message;
                self.send(id, payload, to.as_ref(), descriptors)
            }
            Operation::SendFile { offset, count, .. } => {
                self.send_file(id, file.unwrap_or(NOWHERE), *offset, *count)
            }
            Operation::Shutdown { how, .. } => self.shutdown(id, *how).map(|()| nothing()),
            Operation::Close { .. } => {
                self.release(id);
                Ok(nothing())
            }
            Operation::Poll { interest, .. } => self.poll(id, *interest, is_spurious),
            Operation::Open { path, options } => self.open_file(demux, path, *options),
            Operation::Stat { .. } => {
                let metadata = self.files.metadata(self.file(id)?);
                Ok(Progress::End(Ok(Outcome::Metadata(Box::new(metadata)))))
            }
            Operation::Read { offset, space, .. } => self.read(id, *offset, space),
            Operation::Write { offset, memory, .. } => self.write(id, *offset, memory),
            Operation::ChildExit { pid } => self.child_exit(*pid),
            Operation::Signal { .. } => {
                if std::mem::take(&mut task.has_arrived) {
                    Ok(Progress::More(Outcome::Signal))
                } else {
                    Ok(Progress::Blocked(Until::Changed))
                }
            }
        }
    }

    // --- Receiving -----------------------------------------------------------------------------------

    /// Takes what there is from a stream or a datagram socket.
    fn receive(&mut self, id: Id, limit: usize) -> Result<Option<Arrived>, Errno> {
        match self.socket(id)?.role {
            Role::Datagram(_) => self.receive_datagram(id, limit),
            _ => self.receive_stream(id, limit),
        }
    }

    fn receive_into(&mut self, id: Id, space: &mut Memory) -> Result<Progress, Errno> {
        let Some(space) = space.as_mut_slice() else { return self.fault(id) };
        let Some(arrived) = self.receive(id, space.len())? else {
            return Ok(Progress::Blocked(Until::Changed));
        };
        space[..arrived.bytes.len()].copy_from_slice(&arrived.bytes);
        Ok(count(arrived.bytes.len()))
    }

    /// A receive into memory that is only for sending: what the kernel says of a page it cannot write,
    /// once there is something to be written.
    fn fault(&self, id: Id) -> Result<Progress, Errno> {
        if self.can_receive(id) {
            return Err(Errno::FAULT);
        }
        Ok(Progress::Blocked(Until::Changed))
    }

    fn receive_message(
        &mut self,
        id: Id,
        space: &mut Memory,
        limit_descriptors: usize,
    ) -> Result<Progress, Errno> {
        let Some(space) = space.as_mut_slice() else { return self.fault(id) };
        let Some(mut arrived) = self.receive(id, space.len())? else {
            return Ok(Progress::Blocked(Until::Changed));
        };
        space[..arrived.bytes.len()].copy_from_slice(&arrived.bytes);
        arrived.descriptors.truncate(limit_descriptors);
        Ok(Progress::End(Ok(Outcome::Message(Box::new(Message {
            count: arrived.bytes.len(),
            truncated: arrived.is_truncated,
            from: arrived.from,
            descriptors: arrived.descriptors,
        })))))
    }

    fn receive_lent(&mut self, demux: DemuxId, id: Id) -> Result<Progress, Errno> {
        let pool = Rc::clone(&self.demux(demux).lent);
        let Some(arrived) = self.receive(id, pool.size())? else {
            return Ok(Progress::Blocked(Until::Changed));
        };
        if arrived.is_end {
            return Ok(Progress::End(Ok(Outcome::Lent(Lent::end()))));
        }
        let buffer = self.demux(demux).free_buffers.pop().expect("asked for before");
        let mut spare = pool.spare(buffer);
        let count = arrived.bytes.len();
        pool.fill(&mut spare, |space| space[..count].copy_from_slice(&arrived.bytes));
        Ok(Progress::More(Outcome::Lent(pool.lend(spare, count))))
    }

    // --- Sending -------------------------------------------------------------------------------------

    fn send(
        &mut self,
        id: Id,
        payload: &Payload,
        to: Option<&Address>,
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<Progress, Errno> {
        let socket = self.socket(id)?;
        if let Role::Datagram(_) = socket.role {
            return self.send_datagram(id, gather(payload, usize::MAX), to, descriptors);
        }
        let is_unix = socket.is_unix();
        let Some(admitted) = self.admit(id, payload.len())? else {
            return Ok(Progress::Blocked(Until::Changed));
        };
        // Only Unix sockets carry descriptors; others ignore them, as Linux does.
        let passengers = std::mem::take(descriptors);
        let passengers = if is_unix { passengers } else { Vec::new() };
        self.deliver(id, gather(payload, admitted), passengers);
        Ok(count(admitted))
    }

    fn send_file(
        &mut self,
        id: Id,
        file: Id,
        offset: u64,
        limit: usize,
    ) -> Result<Progress, Errno> {
        let file = self.file(file)?;
        if let Role::Datagram(_) = self.socket(id)?.role {
            return Err(Errno::INVAL);
        }
        let available = self.files.read(file, offset, limit)?.len();
        let Some(admitted) = self.admit(id, available)? else {
            return Ok(Progress::Blocked(Until::Changed));
        };
        let bytes = self.files.read(file, offset, admitted)?.to_vec();
        self.deliver(id, bytes, Vec::new());
        Ok(count(admitted))
    }

    // --- The rest ------------------------------------------------------------------------------------

    fn poll(&mut self, id: Id, interest: Interest, is_spurious: bool) -> Result<Progress, Errno> {
        let ready = match self.readiness(id)?.answer(interest) {
            Some(ready) => ready,
            None if is_spurious => {
                self.injected.note(Fault::SpuriousPoll);
                Readiness::empty()
            }
            None => return Ok(Progress::Blocked(Until::Changed)),
        };
        Ok(Progress::End(Ok(Outcome::Ready(ready))))
    }

    fn open_file(
        &mut self,
        demux: DemuxId,
        path: &Path,
        options: OpenOptions,
    ) -> Result<Progress, Errno> {
        self.check_descriptors()?;
        let file = self.files.open(path, options, self.elapsed)?;
        let handle = self.open(demux, Object::File(file));
        Ok(Progress::End(Ok(Outcome::Opened(handle))))
    }

    fn read(&mut self, id: Id, offset: u64, space: &mut Memory) -> Result<Progress, Errno> {
        let file = self.file(id)?;
        let space = space.as_mut_slice().ok_or(Errno::FAULT)?;
        let available = self.files.read(file, offset, space.len())?.len();
        let taken = self.maybe_short(Fault::ShortReceive, available);
        space[..taken].copy_from_slice(self.files.read(file, offset, taken)?);
        Ok(count(taken))
    }

    fn write(&mut self, id: Id, offset: u64, memory: &Memory) -> Result<Progress, Errno> {
        let file = self.file(id)?;
        let taken = self.maybe_short(Fault::ShortSend, memory.len());
        self.files.write(file, offset, &memory.as_slice()[..taken], self.elapsed)?;
        Ok(count(taken))
    }

    fn child_exit(&mut self, pid: u32) -> Result<Progress, Errno> {
        match self.children.get(&pid) {
            None => Err(Errno::SRCH),
            Some(child) if !child.has_ended => Ok(Progress::Blocked(Until::Exit(pid))),
            Some(_) => {
                let child = self.children.remove(&pid).expect("looked at above");
                Ok(Progress::End(Ok(Outcome::Exited(child.status))))
            }
        }
    }
}

fn nothing() -> Progress {
    Progress::End(Ok(Outcome::Nothing))
}

fn count(bytes: usize) -> Progress {
    Progress::End(Ok(Outcome::Count(bytes)))
}

/// The first `limit` bytes of a payload, in one piece.
fn gather(payload: &Payload, limit: usize) -> Vec<u8> {
    let stretches = match payload {
        Payload::Nothing => &[],
        Payload::One(memory) => std::slice::from_ref(memory),
        Payload::Many(list) => &list[..],
    };
    let mut bytes = Vec::with_capacity(limit.min(payload.len()));
    for memory in stretches {
        let take = memory.len().min(limit - bytes.len());
        bytes.extend_from_slice(&memory.as_slice()[..take]);
    }
    bytes
}
