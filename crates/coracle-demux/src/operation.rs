//! What the loop can ask for ([`Operation`]) and what it is told ([`Completion`]).

use crate::address::Address;
use crate::lent::Lent;
use crate::memory::{AcceptPlace, Memory, Payload};
use rustix::io::Errno;
use slotmap::{Key, new_key_type};
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::SystemTime;

new_key_type! {
    /// Names a descriptor the seam owns. Generation-checked: a stale one never reaches the next owner
    /// of the same number, it is answered with `EBADF`.
    pub struct Handle;

    /// Names an operation in flight. Never reused for another operation.
    pub struct Token;
}

impl Token {
    /// A small number, unique among the operations in flight: callers may index a table with it.
    pub fn index(self) -> usize {
        (self.data().as_ffi() & 0xffff_ffff) as usize
    }
}

/// A request to the kernel. Handles name descriptors; memory is owned until the final completion.
#[derive(Debug)]
#[non_exhaustive]
pub enum Operation {
    /// Accept connections until cancelled: many [`Outcome::Accepted`]. Multishot.
    Accept {
        /// A listening socket.
        listener: Handle,
    },
    /// Accept one connection as accept4(2) does, and have it: [`Outcome::Taken`]. The address of the peer is
    /// written where accept4(2) would write it. Only where [completions](crate::Features::completions) are the
    /// kernel's; elsewhere it is refused with `EOPNOTSUPP`, and polled for.
    AcceptNumber {
        /// A listening socket.
        listener: Handle,
        /// Where the address goes, and how the new socket is to be.
        place: AcceptPlace,
    },
    /// Connect a socket: [`Outcome::Nothing`].
    Connect {
        /// A socket of the address's family.
        socket: Handle,
        /// Where to.
        address: Address,
    },
    /// Receive into buffers of the seam's until the stream ends: many [`Outcome::Lent`], the last
    /// one empty. Multishot. To pause it, cancel it and take its last completion; to go on, submit it again.
    ReceiveLent {
        /// A connected socket or a pipe.
        socket: Handle,
    },
    /// Receive once into the caller's memory: [`Outcome::Count`], 0 at the end of the stream. The space is as
    /// long as the vector (`vec![0; 4096]`); without any it is refused with `EINVAL`.
    Receive {
        /// A connected socket or a pipe.
        socket: Handle,
        /// Space to be filled.
        space: Memory,
    },
    /// Receive one message with its sender's address and passed descriptors: [`Outcome::Message`].
    ReceiveMessage {
        /// A socket.
        socket: Handle,
        /// Space to be filled.
        space: Memory,
        /// How many passed descriptors to accept; the kernel closes the rest.
        limit_descriptors: usize,
    },
    /// Send: [`Outcome::Count`], which may be short. One at a time per socket: a second one is refused with
    /// `EALREADY` until the first has completed.
    Send {
        /// A connected socket or a pipe.
        socket: Handle,
        /// What to send.
        payload: Payload,
    },
    /// Send one message, to an address or with descriptors attached: [`Outcome::Count`].
    SendMessage {
        /// A socket.
        socket: Handle,
        /// What to send, and where to.
        message: Box<Outgoing>,
    },
    /// Send a stretch of a file without copying it through user space: [`Outcome::Count`], which may
    /// be short and is 0 past the end of the file.
    SendFile {
        /// A connected stream socket.
        socket: Handle,
        /// An open file.
        file: Handle,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        count: usize,
    },
    /// End one or both directions of a connection: [`Outcome::Nothing`].
    Shutdown {
        /// A connected socket.
        socket: Handle,
        /// Which direction.
        how: Shutdown,
    },
    /// Cancel everything in flight on a descriptor, await it, then close: [`Outcome::Nothing`].
    Close {
        /// Any handle; stale from here on.
        handle: Handle,
    },
    /// Wait once until a descriptor is ready: [`Outcome::Ready`].
    Poll {
        /// A pollable descriptor; a regular file is refused with `EPERM` on every backend.
        handle: Handle,
        /// Ready for what.
        interest: Interest,
    },
    /// Open a file: [`Outcome::Opened`].
    Open {
        /// Which file.
        path: PathBuf,
        /// For what.
        options: OpenOptions,
    },
    /// Read a file's metadata: [`Outcome::Metadata`].
    Stat {
        /// An open file.
        file: Handle,
    },
    /// Read from a file at an offset: [`Outcome::Count`], 0 at its end.
    Read {
        /// An open file.
        file: Handle,
        /// First byte.
        offset: u64,
        /// Space to be filled.
        space: Memory,
    },
    /// Write to a file at an offset: [`Outcome::Count`], which may be short.
    Write {
        /// An open file.
        file: Handle,
        /// First byte.
        offset: u64,
        /// What to write.
        memory: Memory,
    },
    /// Wait until a child process has ended, and reap it: [`Outcome::Exited`].
    ChildExit {
        /// Its process id.
        pid: u32,
    },
    /// Be told each time a signal arrives: many [`Outcome::Signal`]. Multishot.
    Signal {
        /// Its number (`SIGHUP` is 1, `SIGINT` 2, `SIGTERM` 15, …).
        signal: i32,
    },
}

impl Operation {
    /// The descriptor this operation is about, if it is about one.
    pub fn handle(&self) -> Option<Handle> {
        match *self {
            Operation::Accept { listener } | Operation::AcceptNumber { listener, .. } => {
                Some(listener)
            }
            Operation::Connect { socket, .. }
            | Operation::ReceiveLent { socket }
            | Operation::Receive { socket, .. }
            | Operation::ReceiveMessage { socket, .. }
            | Operation::Send { socket, .. }
            | Operation::SendMessage { socket, .. }
            | Operation::SendFile { socket, .. }
            | Operation::Shutdown { socket, .. } => Some(socket),
            Operation::Close { handle } | Operation::Poll { handle, .. } => Some(handle),
            Operation::Stat { file }
            | Operation::Read { file, .. }
            | Operation::Write { file, .. } => Some(file),
            Operation::Open { .. } | Operation::ChildExit { .. } | Operation::Signal { .. } => None,
        }
    }

    /// Its name in dumps and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Accept { .. } => "accept",
            Operation::AcceptNumber { .. } => "accept one",
            Operation::Connect { .. } => "connect",
            Operation::ReceiveLent { .. } => "receive lent",
            Operation::Receive { .. } => "receive",
            Operation::ReceiveMessage { .. } => "receive message",
            Operation::Send { .. } => "send",
            Operation::SendMessage { .. } => "send message",
            Operation::SendFile { .. } => "send file",
            Operation::Shutdown { .. } => "shutdown",
            Operation::Close { .. } => "close",
            Operation::Poll { .. } => "poll",
            Operation::Open { .. } => "open",
            Operation::Stat { .. } => "stat",
            Operation::Read { .. } => "read",
            Operation::Write { .. } => "write",
            Operation::ChildExit { .. } => "child exit",
            Operation::Signal { .. } => "signal",
        }
    }

    /// Whether an operation takes the receiving place of its descriptor, and not the sending one.
    pub(crate) fn is_receiving(&self) -> bool {
        matches!(
            self,
            Operation::Accept { .. }
                | Operation::AcceptNumber { .. }
                | Operation::ReceiveLent { .. }
                | Operation::Receive { .. }
                | Operation::ReceiveMessage { .. }
                | Operation::ChildExit { .. }
        )
    }

    /// One line of [`Demux::describe`](crate::Demux::describe).
    pub(crate) fn describe(
        &self,
        token: Token,
        fd: Option<i32>,
        out: &mut dyn fmt::Write,
    ) -> fmt::Result {
        write!(out, "operation {}: {}", token.index(), self.name())?;
        match self {
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

    /// The memory it carries, to be given back.
    pub(crate) fn into_payload(self) -> Payload {
        match self {
            Operation::Receive { space, .. }
            | Operation::ReceiveMessage { space, .. }
            | Operation::Read { space, .. } => Payload::One(space),
            Operation::Write { memory, .. } => Payload::One(memory),
            Operation::Send { payload, .. } => payload,
            Operation::SendMessage { message, .. } => message.payload,
            _ => Payload::Nothing,
        }
    }

    /// Puts memory back that was taken out of it.
    pub(crate) fn put_memory(&mut self, returned: Memory) {
        match self {
            Operation::Receive { space, .. }
            | Operation::ReceiveMessage { space, .. }
            | Operation::Read { space, .. } => *space = returned,
            Operation::Write { memory, .. } => *memory = returned,
            _ => {}
        }
    }

    /// Whether it makes sense at all. A receive without space would look like the end of the stream.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        match self {
            Operation::Receive { space, .. } if space.is_empty() => Err(Errno::INVAL),
            Operation::Receive { space, .. }
            | Operation::ReceiveMessage { space, .. }
            | Operation::Read { space, .. }
                if !space.is_writable() =>
            {
                Err(Errno::FAULT)
            }
            _ => Ok(()),
        }
    }

    /// Ends it before it began.
    pub(crate) fn refuse(self, error: impl Into<io::Error>) -> Submitted {
        Submitted::Done(Finished { result: Err(error.into()), payload: self.into_payload() })
    }
}

/// A message to be sent: what, where to, and what goes with it.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// What to send.
    pub payload: Payload,
    /// Where to, for an unconnected datagram socket.
    pub to: Option<Address>,
    /// Descriptors to pass (Unix sockets); the sender's copies are closed once it is over.
    pub descriptors: Vec<OwnedFd>,
}

/// The answer to `submit`.
#[derive(Debug)]
#[must_use = "an operation that is refused is `Done`, and nobody else hears of it"]
pub enum Submitted {
    /// Finished at once; there will be no completion.
    Done(Finished),
    /// In flight: completions with this token follow, exactly one of them final.
    Pending(Token),
}

/// The end of an operation: its result, and the memory it carried.
#[derive(Debug)]
pub struct Finished {
    /// What came of it.
    pub result: io::Result<Outcome>,
    /// The memory the operation carried, given back whatever the result.
    pub payload: Payload,
}

/// What the kernel has done about one operation.
#[derive(Debug)]
pub struct Completion {
    /// Which operation.
    pub token: Token,
    /// Whether more completions with this token will follow. When false, this is the final one.
    pub more: bool,
    /// What came of it.
    pub result: io::Result<Outcome>,
    /// The memory the operation carried; [`Payload::Nothing`] before the final completion.
    pub payload: Payload,
}

/// The result of a successful operation.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// It is done; there is nothing to say about it.
    Nothing,
    /// This many bytes were sent, received, read or written.
    Count(usize),
    /// Bytes were received into a lent buffer; empty at the end of the stream.
    Lent(Lent),
    /// A connection was accepted; the seam owns it.
    Accepted(Handle),
    /// A connection was accepted; whoever is told owns it.
    Taken(OwnedFd),
    /// A file was opened; the seam owns it.
    Opened(Handle),
    /// The descriptor is ready.
    Ready(Readiness),
    /// A message was received.
    Message(Box<Message>),
    /// A file's metadata.
    Metadata(Box<Metadata>),
    /// A child process has ended and was reaped.
    Exited(ExitStatus),
    /// The signal arrived at least once.
    Signal,
}

/// A received message: how much, from whom, and what was attached.
#[derive(Debug)]
pub struct Message {
    /// Bytes put into the caller's space.
    pub count: usize,
    /// Whether the message was longer than the space; the rest is gone.
    pub truncated: bool,
    /// Who sent it, where the socket's family has addresses.
    pub from: Option<Address>,
    /// Descriptors that were passed, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
}

/// What is known of a file without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// Size in bytes.
    pub len: u64,
    /// Time of the last change of its contents.
    pub modified: SystemTime,
    /// What kind of file it is.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Inode number; with `device` it identifies the file.
    pub inode: u64,
    /// Device number.
    pub device: u64,
}

/// What kind of file a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A FIFO, socket or device.
    Other,
}

/// For what a file is opened, as in [`std::fs::OpenOptions`]. Always close-on-exec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Create it when it does not exist.
    pub create: bool,
    /// Empty it first.
    pub truncate: bool,
    /// Permission bits of a created file, before the umask.
    pub mode: u32,
}

bitflags::bitflags! {
    /// What to wait for on a descriptor.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Interest: u8 {
        /// Until a read would not wait.
        const READ = 1;
        /// Until a write would not wait.
        const WRITE = 2;
    }

    /// What a descriptor is ready for. The last two are reported without being asked for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Readiness: u8 {
        /// A read would not wait.
        const READ = 0x01;
        /// A write would not wait.
        const WRITE = 0x04;
        /// The peer will send no more (RDHUP). Unread data may still be there, and writing may go on.
        /// Reported to who waits to read, and beside anything else.
        const READ_CLOSED = 0x20;
        /// Both directions are closed (HUP).
        const CLOSED = 0x10;
        /// An error is pending (ERR).
        const ERROR = 0x08;
    }
}

impl Readiness {
    /// There are urgent bytes (PRI). Nobody is told of them: it is for those who read around them.
    pub(crate) const URGENT: Readiness = Readiness::from_bits_retain(0x02);

    /// What epoll(7) and poll(2) say: all of our bits are theirs, but for RDHUP, which is moved.
    #[inline]
    pub(crate) fn from_kernel(flags: u32) -> Readiness {
        const RDHUP: u32 = 0x2000;
        let same = flags & 0x1f;
        let moved = (flags & RDHUP) >> 8;
        Readiness::from_bits_retain((same | moved) as u8)
    }

    /// What of it answers a poll for `interest`, if anything does.
    pub(crate) fn answer(self, interest: Interest) -> Option<Readiness> {
        let mut wanted = Readiness::CLOSED | Readiness::ERROR;
        wanted.set(Readiness::READ | Readiness::READ_CLOSED, interest.contains(Interest::READ));
        wanted.set(Readiness::WRITE, interest.contains(Interest::WRITE));
        self.intersects(wanted).then_some(self & (wanted | Readiness::READ_CLOSED))
    }
}
