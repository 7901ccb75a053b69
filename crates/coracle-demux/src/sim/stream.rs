//! Stream connections: two ends, each with the bytes on their way to it.
//!
//! ```text
//!   client end                                server end
//!   incoming ◄──────────── bytes ──────────── send
//!   send ───────────────── bytes ────────────► incoming
//!                                             ▲
//!   connect ──► Listener { backlog } ──accept─┘
//! ```
//!
//! An end is in one of these states, told by `peer`, `read_closed` and `write_closed` of its socket:
//!
//! ```text
//!   open ──peer shuts down──► read closed ──we shut down──► both closed
//!     │ ──we shut down──► write closed ──────────────────────┘
//!     └──reset, either end──► both closed, ECONNRESET to be told once, unread data perhaps cut
//!   peer = None: the other end is gone; a TCP sender may not know it yet
//! ```

use super::descriptor::{Entry, Holder, Id, Object, Options, Role, Socket};
use super::faults::Fault;
use super::names::{self, as_seen_by, reachable};
use super::perform::{Arrived, Progress, Until};
use super::world::{DemuxId, Event, World};
use crate::address::Address;
use crate::operation::Outcome;
use crate::socket::SocketKind;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The longest queue of connections that wait to be accepted (`net.core.somaxconn`).
const LIMIT_BACKLOG: usize = 4096;

/// How often a connect to a full backlog is repeated before `ETIMEDOUT`, after 1, 2, 4 … seconds:
/// `net.ipv4.tcp_syn_retries`, 127 seconds in all.
const LIMIT_CONNECT_TRIES: u32 = 6;

/// How long an unanswered connect takes to fail: the sum of the tries above.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(127);

/// A socket that takes connections.
pub(super) struct Listener {
    pub(super) backlog: VecDeque<Id>,
    limit: usize,
}

/// One end of a connection.
pub(super) struct Stream {
    /// The other end, until it is gone.
    pub(super) peer: Option<Id>,
    pub(super) peer_address: Address,
    /// What the other end has sent and this one has not read.
    pub(super) incoming: Incoming,
}

/// Bytes in order, and the descriptors that travel with them.
#[derive(Default)]
pub(super) struct Incoming {
    chunks: VecDeque<Chunk>,
    len: usize,
}

/// What one send brought.
struct Chunk {
    bytes: Vec<u8>,
    taken: usize,
    descriptors: Vec<OwnedFd>,
}

impl Incoming {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn push(&mut self, bytes: Vec<u8>, descriptors: Vec<OwnedFd>) {
        if !bytes.is_empty() {
            self.len += bytes.len();
            self.chunks.push_back(Chunk { bytes, taken: 0, descriptors });
        }
    }

    /// Takes at most `limit` bytes, and not past those that carry descriptors of their own: unix(7).
    fn take(&mut self, limit: usize) -> (Vec<u8>, Vec<OwnedFd>) {
        let mut bytes = Vec::new();
        let mut descriptors = Vec::new();
        while let Some(chunk) = self.chunks.front_mut() {
            if bytes.len() == limit || (!bytes.is_empty() && !chunk.descriptors.is_empty()) {
                break;
            }
            descriptors.append(&mut chunk.descriptors);
            let end = chunk.bytes.len().min(chunk.taken + limit - bytes.len());
            bytes.extend_from_slice(&chunk.bytes[chunk.taken..end]);
            chunk.taken = end;
            if end == chunk.bytes.len() {
                self.chunks.pop_front();
            }
        }
        self.len -= bytes.len();
        (bytes, descriptors)
    }

    /// Loses everything but the first `keep` bytes.
    fn cut(&mut self, keep: usize) {
        let (bytes, descriptors) = self.take(keep);
        *self = Incoming::default();
        self.push(bytes, descriptors);
    }
}

impl World {
    // --- Becoming connected ----------------------------------------------------------------------------

    pub(super) fn listen(&mut self, id: Id, backlog: i32) -> Result<(), Errno> {
        let socket = self.socket(id)?;
        if socket.is_unix() && socket.local.is_none() {
            return Err(Errno::INVAL);
        }
        if matches!(socket.role, Role::Datagram(_)) {
            return Err(Errno::OPNOTSUPP);
        }
        self.bind_anywhere(id)?;
        let limit = usize::try_from(backlog).unwrap_or(0).clamp(1, LIMIT_BACKLOG);
        match &mut self.socket_mut(id)?.role {
            Role::Listener(listener) => listener.limit = limit,
            role @ Role::Fresh => {
                *role = Role::Listener(Listener { backlog: VecDeque::new(), limit });
            }
            Role::Stream(_) | Role::Datagram(_) => return Err(Errno::INVAL),
        }
        Ok(())
    }

    /// Tries to connect; `tries` counts how often the backlog was full.
    pub(super) fn connect(
        &mut self,
        id: Id,
        address: &Address,
        tries: &mut u32,
    ) -> Result<Progress, Errno> {
        let socket = self.socket(id)?;
        let kind = socket.kind;
        match socket.role {
            Role::Datagram(_) => return self.connect_datagram(id, address),
            Role::Listener(_) | Role::Stream(_) => return Err(Errno::ISCONN),
            Role::Fresh => {}
        }
        names::check_family(kind, address)?;
        let listening = self.listeners_at(kind, address);
        if listening.is_empty() {
            return Err(names::nobody_there(address));
        }
        if self.strike(Fault::RefuseConnect) {
            return Err(Errno::CONNREFUSED);
        }
        let with_room: Vec<Id> =
            listening.into_iter().filter(|&listener| self.has_room(listener)).collect();
        if with_room.is_empty() {
            return self.await_room(kind, tries);
        }
        // Whose turn it is among those who share the port is the kernel's business, hence the seed's.
        let listener = with_room[self.random.below(with_room.len())];
        self.establish(id, listener, address)?;
        Ok(Progress::End(Ok(Outcome::Nothing)))
    }

    fn listeners_at(&self, kind: SocketKind, address: &Address) -> Vec<Id> {
        let mut found = self.names.find(kind, address);
        found.retain(|&id| {
            self.socket(id).is_ok_and(|socket| matches!(socket.role, Role::Listener(_)))
        });
        found
    }

    fn has_room(&self, listener: Id) -> bool {
        self.socket(listener).is_ok_and(|socket| match &socket.role {
            Role::Listener(listener) => listener.backlog.len() < listener.limit,
            _ => false,
        })
    }

    /// TCP repeats its SYN; a Unix socket is told at once, as the other backends do.
    fn await_room(&self, kind: SocketKind, tries: &mut u32) -> Result<Progress, Errno> {
        if kind == SocketKind::UnixStream {
            return Err(Errno::CONNREFUSED);
        }
        if *tries == LIMIT_CONNECT_TRIES + 1 {
            return Err(Errno::TIMEDOUT);
        }
        let pause = Duration::from_secs(1 << *tries);
        *tries += 1;
        Ok(Progress::Blocked(Until::Later(pause)))
    }

    /// Makes the server's end, puts it into the backlog, and joins it to the client's.
    fn establish(&mut self, client: Id, listener: Id, address: &Address) -> Result<(), Errno> {
        let socket = self.socket(listener)?;
        let (server_kind, options) = (socket.kind, socket.options.clone());
        let client_kind = self.socket(client)?.kind;
        let mut client_address = self.local_address(client)?;
        let mut seen_by_server = client_address.clone();
        let (mut server_address, mut seen_by_client) = (address.clone(), address.clone());
        if let (Address::Ip(from), Address::Ip(to)) = (&mut client_address, address) {
            let to = reachable(*to);
            server_address = as_seen_by(server_kind, to);
            seen_by_client = as_seen_by(client_kind, to);
            // A host that has every address calls from the one it calls.
            if let (true, Address::Ip(own)) = (from.ip().is_unspecified(), &seen_by_client) {
                from.set_ip(own.ip());
            }
            if from.port() == 0 {
                from.set_port(self.names.free_port(client_kind));
            }
            seen_by_server = as_seen_by(server_kind, reachable(*from));
        }
        let server = self.enter_stream(server_kind, options, server_address, seen_by_server);
        let end = self.socket_mut(client)?;
        end.local = Some(client_address);
        end.role = Role::Stream(Stream {
            peer: Some(server),
            peer_address: seen_by_client,
            incoming: Incoming::default(),
        });
        self.join(client, server);
        if let Role::Listener(listener) = &mut self.socket_mut(listener)?.role {
            listener.backlog.push_back(server);
        }
        self.touch(client);
        self.touch(listener);
        Ok(())
    }

    /// Enters a connected end that nobody holds yet.
    fn enter_stream(
        &mut self,
        kind: SocketKind,
        options: Options,
        local: Address,
        peer_address: Address,
    ) -> Id {
        let stream = Stream { peer: None, peer_address, incoming: Incoming::default() };
        let role = Role::Stream(stream);
        let socket = Socket { local: Some(local), options, role, ..Socket::new(kind) };
        self.enter(Object::Socket(Box::new(socket)), Holder::Backlog)
    }

    fn join(&mut self, a: Id, b: Id) {
        for (end, peer) in [(a, b), (b, a)] {
            if let Some(stream) = self.stream_mut(end) {
                stream.peer = Some(peer);
            }
        }
    }

    /// Two connected Unix streams, held by a demultiplexer.
    pub(super) fn pair(&mut self, demux: DemuxId) -> Result<[Id; 2], Errno> {
        self.check_descriptors()?;
        if self.would_exceed(2) {
            return Err(Errno::MFILE);
        }
        let ends = [(); 2].map(|()| {
            let (local, peer) = (names::unnamed(), names::unnamed());
            self.enter_stream(SocketKind::UnixStream, Options::default(), local, peer)
        });
        self.join(ends[0], ends[1]);
        for end in ends {
            self.entries.get_mut(&end).expect("entered above").holder = Holder::Demux(demux);
        }
        Ok(ends)
    }

    pub(super) fn accept(&mut self, demux: DemuxId, id: Id) -> Result<Progress, Errno> {
        match &self.socket(id)?.role {
            Role::Listener(listener) if listener.backlog.is_empty() => {
                return Ok(Progress::Blocked(Until::Changed));
            }
            Role::Listener(_) => {}
            Role::Datagram(_) => return Err(Errno::OPNOTSUPP),
            Role::Fresh | Role::Stream(_) => return Err(Errno::INVAL),
        }
        self.check_descriptors()?; // before the connection leaves the backlog: it must not be lost
        let Role::Listener(listener) = &mut self.socket_mut(id)?.role else {
            unreachable!("looked at above");
        };
        let accepted = listener.backlog.pop_front().expect("looked at above");
        self.entries.get_mut(&accepted).expect("a backlog holds entries").holder =
            Holder::Demux(demux);
        let handle = self.demux(demux).handles.insert(accepted);
        Ok(Progress::More(Outcome::Accepted(handle)))
    }

    // --- Bytes -----------------------------------------------------------------------------------------

    fn stream_mut(&mut self, id: Id) -> Option<&mut Stream> {
        match self.entries.get_mut(&id) {
            Some(Entry { object: Object::Socket(socket), .. }) => match &mut socket.role {
                Role::Stream(stream) => Some(stream),
                _ => None,
            },
            _ => None,
        }
    }

    /// How many bytes `id` may still send to `peer` before it has to wait.
    pub(super) fn stream_room(&self, id: Id, peer: Id) -> usize {
        let buffer = self.send_buffer_bytes(id);
        let room = buffer.saturating_sub(self.unread(peer));
        if room < self.faults.least_room_bytes.min(buffer) { 0 } else { room }
    }

    fn unread(&self, id: Id) -> usize {
        match self.socket(id).map(|socket| &socket.role) {
            Ok(Role::Stream(stream)) => stream.incoming.len(),
            _ => 0,
        }
    }

    /// How many bytes that `id` has sent the other end has not read.
    pub(super) fn unread_by_peer(&self, id: Id) -> Result<usize, Errno> {
        match &self.socket(id)?.role {
            Role::Stream(stream) => Ok(stream.peer.map_or(0, |peer| self.unread(peer))),
            _ => Err(Errno::INVAL),
        }
    }

    /// How many unread bytes of a socket the network carries; with none, it could never send anything.
    pub(super) fn send_buffer_bytes(&self, id: Id) -> usize {
        let asked = self.socket(id).ok().and_then(|socket| socket.options.send_buffer_bytes);
        asked.unwrap_or(self.faults.limit_send_buffer_bytes).max(1)
    }

    /// Decides how many of `len` bytes a stream takes now; `None` when it would have to wait.
    pub(super) fn admit(&mut self, id: Id, len: usize) -> Result<Option<usize>, Errno> {
        self.maybe_reset(id);
        let socket = self.socket_mut(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let (is_tcp, is_write_closed) = (socket.is_tcp(), socket.write_closed);
        let peer = match &socket.role {
            Role::Stream(stream) => stream.peer,
            // As Linux answers for sockets that were never connected.
            _ if is_tcp => return Err(Errno::PIPE),
            _ => return Err(Errno::NOTCONN),
        };
        if is_write_closed {
            return Err(Errno::PIPE);
        }
        let Some(peer) = peer else {
            if !is_tcp || !self.strike(Fault::LostSend) {
                return Err(Errno::PIPE);
            }
            let delay = self.delay();
            self.schedule(delay, Event::Reset(id));
            return Ok(Some(len));
        };
        let room = self.stream_room(id, peer);
        if room == 0 && len > 0 {
            return Ok(None);
        }
        Ok(Some(self.maybe_short(Fault::ShortSend, len.min(room))))
    }

    /// Puts bytes on their way; what is sent to a peer that has gone is lost.
    pub(super) fn deliver(&mut self, id: Id, bytes: Vec<u8>, descriptors: Vec<OwnedFd>) {
        let Some(peer) = self.stream_mut(id).and_then(|stream| stream.peer) else { return };
        if let Some(stream) = self.stream_mut(peer) {
            stream.incoming.push(bytes, descriptors);
        }
        self.touch(peer);
    }

    /// Takes at most `limit` bytes from a stream; `None` when it would have to wait.
    pub(super) fn receive_stream(
        &mut self,
        id: Id,
        limit: usize,
    ) -> Result<Option<Arrived>, Errno> {
        self.maybe_reset(id);
        let Some(stream) = self.stream_mut(id) else { return Err(Errno::NOTCONN) };
        let available = stream.incoming.len();
        if available > 0 {
            // What arrived before a reset can be read after it, as on Linux.
            let count = self.maybe_short(Fault::ShortReceive, limit.min(available));
            let stream = self.stream_mut(id).expect("looked at above");
            let peer = stream.peer;
            let (bytes, descriptors) = stream.incoming.take(count);
            if let Some(peer) = peer {
                self.touch(peer);
            }
            return Ok(Some(Arrived { bytes, descriptors, ..Arrived::default() }));
        }
        let socket = self.socket_mut(id)?;
        // EPIPE is for senders: whoever had seen the end of the stream just sees it again.
        if let Some(error) = socket.error.take_if(|error| *error != Errno::PIPE) {
            return Err(error);
        }
        if socket.read_closed {
            return Ok(Some(Arrived { is_end: true, ..Arrived::default() }));
        }
        Ok(None)
    }

    // --- Ending ----------------------------------------------------------------------------------------

    pub(super) fn shutdown(&mut self, id: Id, how: Shutdown) -> Result<(), Errno> {
        let socket = self.socket_mut(id)?;
        let is_unix = socket.is_unix();
        let peer = match &socket.role {
            Role::Stream(Stream { peer, .. }) => *peer,
            Role::Datagram(datagram) if datagram.peer.is_some() => None,
            _ => return Err(Errno::NOTCONN),
        };
        let is_gone = matches!(socket.role, Role::Stream(_)) && peer.is_none();
        if is_gone && socket.write_closed {
            return Err(Errno::NOTCONN); // reset, or closed from both sides
        }
        let reading = matches!(how, Shutdown::Read | Shutdown::Both);
        let writing = matches!(how, Shutdown::Write | Shutdown::Both);
        socket.read_closed |= reading;
        socket.write_closed |= writing;
        self.touch(id);
        if let Some(peer) = peer {
            let socket = self.socket_mut(peer)?;
            socket.read_closed |= writing;
            // TCP has no way to say "I will not read"; a Unix socket does.
            socket.write_closed |= reading && is_unix;
            self.touch(peer);
        }
        Ok(())
    }

    /// The other end of `id` has closed in good order.
    pub(super) fn end_stream(&mut self, id: Id) {
        let Ok(socket) = self.socket_mut(id) else { return };
        socket.read_closed = true;
        socket.write_closed |= socket.is_unix();
        if let Some(stream) = self.stream_mut(id) {
            stream.peer = None;
        }
        self.touch(id);
    }

    /// `id` is told that its connection is no more.
    pub(super) fn reset(&mut self, id: Id) {
        let overtakes = self.strike(Fault::ResetOvertakes);
        let Some(stream) = self.stream_mut(id) else { return };
        stream.peer = None;
        if overtakes {
            let unread = stream.incoming.len();
            let keep = self.random.below(unread + 1);
            self.stream_mut(id).expect("looked at above").incoming.cut(keep);
        }
        let Ok(socket) = self.socket_mut(id) else { return };
        // tcp_reset(): EPIPE in CLOSE_WAIT, that is, for whoever had seen the end of the stream.
        let had_ended = socket.read_closed && !socket.write_closed;
        socket.error = Some(if had_ended { Errno::PIPE } else { Errno::CONNRESET });
        socket.read_closed = true;
        socket.write_closed = true;
        self.touch(id);
    }

    pub(super) fn reset_peer_of(&mut self, id: Id) {
        if let Some(peer) = self.stream_mut(id).and_then(|stream| stream.peer.take()) {
            self.reset(peer);
        }
    }

    /// Breaks the connection of `id` for both ends, if the seed has it so.
    fn maybe_reset(&mut self, id: Id) {
        let is_connected = self.stream_mut(id).is_some_and(|stream| stream.peer.is_some());
        if is_connected && self.strike(Fault::Reset) {
            self.reset_peer_of(id);
            self.reset(id);
        }
    }

    /// All of `count`, or less if the seed has it so.
    pub(super) fn maybe_short(&mut self, fault: Fault, count: usize) -> usize {
        if count > 1 && self.strike(fault) { 1 + self.random.below(count - 1) } else { count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn bytes_come_out_in_order_and_once() {
        let mut incoming = Incoming::default();
        incoming.push(b"abc".to_vec(), Vec::new());
        incoming.push(b"".to_vec(), Vec::new());
        incoming.push(b"defg".to_vec(), Vec::new());
        assert_eq!(incoming.len(), 7);
        assert_eq!(incoming.take(2).0, b"ab");
        assert_eq!(incoming.take(3).0, b"cde");
        assert_eq!(incoming.take(9).0, b"fg");
        assert_eq!(incoming.take(9).0, b"");
        assert!(incoming.is_empty());
    }

    #[test]
    fn a_read_stops_before_bytes_with_descriptors() {
        let mut incoming = Incoming::default();
        incoming.push(b"ab".to_vec(), Vec::new());
        incoming.push(b"cd".to_vec(), vec![descriptor()]);
        incoming.push(b"ef".to_vec(), Vec::new());
        let (bytes, descriptors) = incoming.take(9);
        assert_eq!((&bytes[..], descriptors.len()), (&b"ab"[..], 0));
        let (bytes, descriptors) = incoming.take(1);
        assert_eq!((&bytes[..], descriptors.len()), (&b"c"[..], 1));
        let (bytes, descriptors) = incoming.take(9);
        assert_eq!((&bytes[..], descriptors.len()), (&b"def"[..], 0));
    }

    #[test]
    fn a_cut_keeps_the_beginning() {
        let mut incoming = Incoming::default();
        incoming.push(b"abc".to_vec(), Vec::new());
        incoming.push(b"def".to_vec(), Vec::new());
        incoming.cut(4);
        assert_eq!(incoming.len(), 4);
        assert_eq!(incoming.take(9).0, b"abcd");
    }
}
