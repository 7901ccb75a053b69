//! What a descriptor of the simulated kernel leads to, who holds it, and how ready it is.
//!
//! ```text
//!  Handle (of one demultiplexer) ──► Id ──► Entry { object, holder, operations }
//!                                             │
//!                  Socket: Fresh ─listen──► Listener
//!                            └─connect, accept, pair──► Stream        File
//!                  Socket: Datagram
//! ```
//!
//! An [`Id`] plays the part of a descriptor number, but is never used twice.

use super::datagram::Datagram;
use super::faults::Fault;
use super::files::OpenFile;
use super::names;
use super::stream::{Listener, Stream};
use super::world::{DemuxId, World};
use crate::address::Address;
use crate::operation::{Handle, Readiness, Token};
use crate::socket::{SocketKind, SocketOption};
use rustix::io::Errno;

/// The number of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id(pub(super) u64);

/// An open descriptor.
pub(super) struct Entry {
    pub(super) object: Object,
    pub(super) holder: Holder,
    /// What its holder has in flight on it, its close excepted.
    pub(super) operations: Vec<Token>,
    /// The close that waits for `operations` to end.
    pub(super) closing: Option<Token>,
}

/// Who has to close a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    Demux(DemuxId),
    /// It was detached, and a [`SimDescriptor`](super::SimDescriptor) holds it.
    Detached,
    /// A connection that nobody has accepted yet: not a descriptor of anybody.
    Backlog,
}

pub(super) enum Object {
    Socket(Box<Socket>),
    File(OpenFile),
}

/// What all sockets have.
pub(super) struct Socket {
    pub(super) kind: SocketKind,
    pub(super) local: Option<Address>,
    pub(super) options: Options,
    /// Nothing will come any more: the peer's end of stream, or our own shutdown.
    pub(super) read_closed: bool,
    /// Nothing can be sent any more.
    pub(super) write_closed: bool,
    /// An error nobody has been told of yet.
    pub(super) error: Option<Errno>,
    pub(super) role: Role,
}

/// What a socket has become.
pub(super) enum Role {
    /// A stream socket, neither listening nor connected.
    Fresh,
    Listener(Listener),
    Stream(Stream),
    Datagram(Datagram),
}

/// The socket options that mean something here. The others are taken and have no effect: in this network
/// nothing is delayed to save packets, no old connection lingers, no peer dies in silence.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) reuse_port: bool,
    pub(super) only_v6: bool,
    pub(super) reset_on_close: bool,
    pub(super) send_buffer_bytes: Option<usize>,
}

impl Socket {
    pub(super) fn new(kind: SocketKind) -> Socket {
        let role = match kind {
            SocketKind::Udp4 | SocketKind::Udp6 | SocketKind::UnixDatagram => {
                Role::Datagram(Datagram::default())
            }
            _ => Role::Fresh,
        };
        Socket {
            kind,
            local: None,
            options: Options::default(),
            read_closed: false,
            write_closed: false,
            error: None,
            role,
        }
    }

    pub(super) fn is_tcp(&self) -> bool {
        matches!(self.kind, SocketKind::Tcp4 | SocketKind::Tcp6)
    }

    pub(super) fn is_udp(&self) -> bool {
        matches!(self.kind, SocketKind::Udp4 | SocketKind::Udp6)
    }

    pub(super) fn is_unix(&self) -> bool {
        matches!(self.kind, SocketKind::UnixStream | SocketKind::UnixDatagram)
    }
}

impl World {
    // --- Opening ---------------------------------------------------------------------------------------

    /// Enters an object into the table.
    pub(super) fn enter(&mut self, object: Object, holder: Holder) -> Id {
        self.last_id += 1;
        let id = Id(self.last_id);
        let entry = Entry { object, holder, operations: Vec::new(), closing: None };
        self.entries.insert(id, entry);
        id
    }

    /// Opens an object for a demultiplexer.
    pub(super) fn open(&mut self, demux: DemuxId, object: Object) -> Handle {
        let id = self.enter(object, Holder::Demux(demux));
        self.demux(demux).handles.insert(id)
    }

    /// `EMFILE` when one descriptor more is too many, or when the seed has it so.
    pub(super) fn check_descriptors(&mut self) -> Result<(), Errno> {
        let is_full = self.would_exceed(1);
        if self.strike(Fault::ExhaustDescriptors) || is_full { Err(Errno::MFILE) } else { Ok(()) }
    }

    /// Whether `more` descriptors are too many.
    pub(super) fn would_exceed(&self, more: usize) -> bool {
        let limit = self.faults.limit_descriptors;
        // Counting takes a walk, so it is done only when the answer is near.
        self.entries.len() + more > limit && self.open_descriptors() + more > limit
    }

    /// How many descriptors somebody has to close.
    pub(super) fn open_descriptors(&self) -> usize {
        self.entries.values().filter(|entry| entry.holder != Holder::Backlog).count()
    }

    // --- Finding ---------------------------------------------------------------------------------------

    /// The socket behind `id`.
    pub(super) fn socket(&self, id: Id) -> Result<&Socket, Errno> {
        match self.entries.get(&id).map(|entry| &entry.object) {
            Some(Object::Socket(socket)) => Ok(socket),
            Some(Object::File(_)) => Err(Errno::NOTSOCK),
            None => Err(Errno::BADF),
        }
    }

    /// The socket behind `id`, to be changed.
    pub(super) fn socket_mut(&mut self, id: Id) -> Result<&mut Socket, Errno> {
        match self.entries.get_mut(&id).map(|entry| &mut entry.object) {
            Some(Object::Socket(socket)) => Ok(socket),
            Some(Object::File(_)) => Err(Errno::NOTSOCK),
            None => Err(Errno::BADF),
        }
    }

    /// The file behind `id`.
    pub(super) fn file(&self, id: Id) -> Result<OpenFile, Errno> {
        match self.entries.get(&id).map(|entry| &entry.object) {
            Some(Object::File(file)) => Ok(*file),
            _ => Err(Errno::BADF),
        }
    }

    // --- Asking and setting --------------------------------------------------------------------------

    /// How ready a socket is; a file is refused, as epoll does.
    pub(super) fn readiness(&self, id: Id) -> Result<Readiness, Errno> {
        let socket = self.socket(id).map_err(|error| match error {
            Errno::NOTSOCK => Errno::PERM,
            other => other,
        })?;
        let mut ready = Readiness::empty();
        match &socket.role {
            // As tcp_poll says of a socket that is not connected.
            Role::Fresh => return Ok(Readiness::WRITE | Readiness::CLOSED),
            Role::Listener(listener) => {
                ready.set(Readiness::READ, !listener.backlog.is_empty());
                return Ok(ready);
            }
            Role::Stream(_) | Role::Datagram(_) => {}
        }
        ready.set(Readiness::READ, self.can_receive(id));
        ready.set(Readiness::WRITE, self.can_send(id));
        ready.set(Readiness::READ_CLOSED, socket.read_closed);
        ready.set(Readiness::CLOSED, socket.read_closed && socket.write_closed);
        ready.set(Readiness::ERROR, socket.error.is_some());
        Ok(ready)
    }

    /// Whether a receive would not wait, be it only because it fails.
    pub(super) fn can_receive(&self, id: Id) -> bool {
        let Ok(socket) = self.socket(id) else { return true };
        let has_something = match &socket.role {
            Role::Fresh | Role::Listener(_) => true,
            Role::Stream(stream) => !stream.incoming.is_empty(),
            Role::Datagram(datagram) => !datagram.queue.is_empty(),
        };
        has_something || socket.error.is_some() || socket.read_closed
    }

    /// Whether a send would not wait, be it only because it fails.
    pub(super) fn can_send(&self, id: Id) -> bool {
        let Ok(socket) = self.socket(id) else { return true };
        if socket.error.is_some() || socket.write_closed {
            return true;
        }
        match &socket.role {
            Role::Fresh | Role::Listener(_) => true,
            Role::Stream(stream) => stream.peer.is_none_or(|peer| self.stream_room(id, peer) > 0),
            Role::Datagram(datagram) => match &datagram.peer {
                Some(peer) => self.full_destination(id, peer, 1).is_none(),
                None => true,
            },
        }
    }

    pub(super) fn set_option(&mut self, id: Id, option: SocketOption) -> Result<(), Errno> {
        let options = &mut self.socket_mut(id)?.options;
        match option {
            SocketOption::ReusePort(on) => options.reuse_port = on,
            SocketOption::OnlyV6(on) => options.only_v6 = on,
            SocketOption::ResetOnClose(on) => options.reset_on_close = on,
            SocketOption::SendBuffer(bytes) => options.send_buffer_bytes = Some(bytes),
            SocketOption::ReuseAddress(_)
            | SocketOption::NoDelay(_)
            | SocketOption::KeepAlive(_)
            | SocketOption::DeferAccept(_)
            | SocketOption::FastOpen(_)
            | SocketOption::ReceiveBuffer(_) => {}
            SocketOption::JoinMulticast { .. }
            | SocketOption::LeaveMulticast { .. }
            | SocketOption::MulticastInterface(_)
            | SocketOption::MulticastLoop(_)
            | SocketOption::MulticastTtl(_) => return Err(Errno::OPNOTSUPP), // it has no interfaces
        }
        Ok(())
    }

    pub(super) fn bind(&mut self, id: Id, address: &Address) -> Result<(), Errno> {
        let socket = self.socket(id)?;
        if socket.local.is_some() {
            return Err(Errno::INVAL);
        }
        let (kind, options) = (socket.kind, socket.options.clone());
        let local = self.names.bind(id, kind, &options, address)?;
        self.socket_mut(id)?.local = Some(local);
        Ok(())
    }

    /// Gives a socket the address it gets when nobody asks for one.
    pub(super) fn bind_anywhere(&mut self, id: Id) -> Result<(), Errno> {
        let socket = self.socket(id)?;
        if socket.local.is_some() || socket.is_unix() {
            return Ok(());
        }
        let anywhere = names::unbound(socket.kind);
        self.bind(id, &anywhere)
    }

    pub(super) fn local_address(&self, id: Id) -> Result<Address, Errno> {
        let socket = self.socket(id)?;
        Ok(socket.local.clone().unwrap_or_else(|| names::unbound(socket.kind)))
    }

    pub(super) fn peer_address(&self, id: Id) -> Result<Address, Errno> {
        let socket = self.socket(id)?;
        let peer = match &socket.role {
            // Reset, or closed from both sides.
            Role::Stream(stream)
                if socket.is_tcp() && stream.peer.is_none() && socket.write_closed =>
            {
                None
            }
            Role::Stream(stream) => Some(&stream.peer_address),
            Role::Datagram(datagram) => datagram.peer.as_ref(),
            Role::Fresh | Role::Listener(_) => None,
        };
        peer.cloned().ok_or(Errno::NOTCONN)
    }

    // --- Closing ---------------------------------------------------------------------------------------

    /// Closes a descriptor on which nothing is in flight any more, and lets the other end know.
    pub(super) fn release(&mut self, id: Id) {
        let Some(entry) = self.entries.remove(&id) else { return };
        let Object::Socket(socket) = entry.object else { return };
        if let Some(local) = &socket.local {
            self.names.forget(id, socket.kind, local);
        }
        let is_reset = socket.options.reset_on_close && socket.is_tcp();
        match socket.role {
            Role::Fresh => {}
            Role::Listener(listener) => {
                // Whoever was not accepted has been talking to nobody.
                for unaccepted in listener.backlog {
                    self.reset_peer_of(unaccepted);
                    self.entries.remove(&unaccepted);
                }
            }
            Role::Stream(stream) => {
                let Some(peer) = stream.peer else { return };
                // RFC 1122, 4.2.2.13: closing with unread data tells the peer that data was lost.
                if is_reset || !stream.incoming.is_empty() {
                    self.reset(peer);
                } else {
                    self.end_stream(peer);
                }
            }
            Role::Datagram(datagram) => self.nudge_all(datagram.waiting),
        }
    }
}
