//! Datagram sockets: messages with boundaries and senders, in a queue at their destination.
//!
//! ```text
//!  send message ──► destination's queue ──► receive message { count, truncated, from }
//!                       │ full: the sender waits; UDP loses or reorders only if the faults say so
//! ```

use super::descriptor::{Entry, Id, Object, Role};
use super::faults::Fault;
use super::names::{self, as_seen_by, reachable};
use super::perform::{Arrived, Progress, Until};
use super::world::{OperationId, World};
use crate::address::Address;
use crate::operation::Outcome;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// The longest UDP payload: 65,535 bytes less the IPv4 and UDP headers.
const LIMIT_DATAGRAM_BYTES: usize = 65_507;

/// What a datagram socket has beside its address.
#[derive(Default)]
pub(super) struct Datagram {
    /// The only one it talks to, once connected.
    pub(super) peer: Option<Address>,
    pub(super) queue: VecDeque<Parcel>,
    queued_bytes: usize,
    /// Operations elsewhere that wait for room here.
    pub(super) waiting: Vec<OperationId>,
}

/// A message on its way.
pub(super) struct Parcel {
    bytes: Vec<u8>,
    from: Option<Address>,
    descriptors: Vec<OwnedFd>,
}

impl Parcel {
    fn cost(&self) -> usize {
        cost(self.bytes.len())
    }
}

/// What a message takes of its sender's buffer. An empty one is not free: a queue has a bound.
fn cost(len: usize) -> usize {
    len.max(1)
}

impl World {
    fn datagram_mut(&mut self, id: Id) -> Option<&mut Datagram> {
        match self.entries.get_mut(&id) {
            Some(Entry { object: Object::Socket(socket), .. }) => match &mut socket.role {
                Role::Datagram(datagram) => Some(datagram),
                _ => None,
            },
            _ => None,
        }
    }

    /// Sets whom a datagram socket talks to.
    pub(super) fn connect_datagram(
        &mut self,
        id: Id,
        address: &Address,
    ) -> Result<Progress, Errno> {
        let socket = self.socket(id)?;
        names::check_family(socket.kind, address)?;
        if socket.is_unix() && self.destination(id, address).is_none() {
            return Err(names::nobody_there(address));
        }
        self.bind_anywhere(id)?;
        if let Some(datagram) = self.datagram_mut(id) {
            datagram.peer = Some(address.clone());
        }
        self.touch(id);
        Ok(Progress::End(Ok(Outcome::Nothing)))
    }

    /// Sends one message, whole or not at all. `descriptors` are taken once it is on its way.
    pub(super) fn send_datagram(
        &mut self,
        id: Id,
        bytes: Vec<u8>,
        to: Option<&Address>,
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<Progress, Errno> {
        let socket = self.socket_mut(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        if socket.write_closed {
            return Err(Errno::PIPE);
        }
        let (kind, is_udp) = (socket.kind, socket.is_udp());
        let Role::Datagram(datagram) = &socket.role else { return Err(Errno::NOTSOCK) };
        let is_connected = to.is_none();
        let unaddressed = if is_udp { Errno::DESTADDRREQ } else { Errno::NOTCONN };
        let to = to.or(datagram.peer.as_ref()).ok_or(unaddressed)?.clone();
        names::check_family(kind, &to)?;
        if bytes.len() > LIMIT_DATAGRAM_BYTES {
            return Err(Errno::MSGSIZE);
        }
        if let Some(full) = self.full_destination(id, &to, bytes.len()) {
            return Ok(Progress::Blocked(Until::Room(full)));
        }
        self.bind_anywhere(id)?;
        let count = bytes.len();
        let sent = Ok(Progress::End(Ok(Outcome::Count(count))));
        let Some(destination) = self.destination(id, &to) else {
            if !is_udp {
                return Err(names::nobody_there(&to));
            }
            if is_connected {
                // The ICMP message "port unreachable" is told to the next call.
                self.socket_mut(id)?.error = Some(Errno::CONNREFUSED);
                self.touch(id);
            }
            return sent;
        };
        if is_udp && self.strike(Fault::DropDatagram) {
            return sent;
        }
        let from = self.sender_address(id, destination, &to)?;
        let mut passengers = std::mem::take(descriptors);
        if is_udp {
            passengers.clear(); // only Unix sockets carry descriptors
        }
        let parcel = Parcel { bytes, from, descriptors: passengers };
        self.enqueue(destination, parcel, is_udp);
        sent
    }

    fn enqueue(&mut self, destination: Id, parcel: Parcel, is_udp: bool) {
        let overtakes = is_udp && self.strike(Fault::ReorderDatagram);
        let queued = self.datagram_mut(destination).map_or(0, |datagram| datagram.queue.len());
        let at = if overtakes { self.random.below(queued + 1) } else { queued };
        if let Some(datagram) = self.datagram_mut(destination) {
            datagram.queued_bytes += parcel.cost();
            datagram.queue.insert(at, parcel);
        }
        self.touch(destination);
    }

    /// Takes one message, cut to `limit` bytes; `None` when it would have to wait.
    pub(super) fn receive_datagram(
        &mut self,
        id: Id,
        limit: usize,
    ) -> Result<Option<Arrived>, Errno> {
        let socket = self.socket_mut(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let is_closed = socket.read_closed;
        let Some(datagram) = self.datagram_mut(id) else { return Err(Errno::NOTSOCK) };
        let Some(mut parcel) = datagram.queue.pop_front() else {
            return Ok(is_closed.then(|| Arrived { is_end: true, ..Arrived::default() }));
        };
        datagram.queued_bytes -= parcel.cost();
        let waiting = std::mem::take(&mut datagram.waiting);
        self.nudge_all(waiting);
        let is_truncated = parcel.bytes.len() > limit;
        parcel.bytes.truncate(limit);
        Ok(Some(Arrived {
            bytes: parcel.bytes,
            is_truncated,
            from: parcel.from,
            descriptors: parcel.descriptors,
            is_end: false,
        }))
    }

    /// Who receives what `id` sends to `address`. A connected receiver hears only its peer.
    fn destination(&self, id: Id, address: &Address) -> Option<Id> {
        let kind = self.socket(id).ok()?.kind;
        names::check_family(kind, address).ok()?;
        self.names.find(kind, address).into_iter().find(|&found| {
            let Ok(socket) = self.socket(found) else { return false };
            let Role::Datagram(datagram) = &socket.role else { return false };
            match &datagram.peer {
                None => true,
                Some(peer) => {
                    self.sender_address(id, found, address).is_ok_and(|from| match (from, peer) {
                        (Some(Address::Ip(from)), Address::Ip(peer)) => {
                            reachable(from) == reachable(*peer)
                        }
                        (from, peer) => from.as_ref() == Some(peer),
                    })
                }
            }
        })
    }

    /// The destination of a message of `len` bytes if it has no room for it. A message that cannot be
    /// sent at all has nothing to wait for.
    pub(super) fn full_destination(&self, id: Id, address: &Address, len: usize) -> Option<Id> {
        if len > LIMIT_DATAGRAM_BYTES {
            return None;
        }
        let destination = self.destination(id, address)?;
        let Ok(Role::Datagram(datagram)) = self.socket(destination).map(|socket| &socket.role)
        else {
            return None;
        };
        // An empty queue takes any message, so that none is too long for ever.
        let is_full = !datagram.queue.is_empty()
            && datagram.queued_bytes + cost(len) > self.send_buffer_bytes(id);
        is_full.then_some(destination)
    }

    /// Notes that `operation` waits for room in the queue of `destination`.
    pub(super) fn await_datagram_room(&mut self, destination: Id, operation: OperationId) {
        if let Some(datagram) = self.datagram_mut(destination) {
            datagram.waiting.push(operation);
        }
    }

    /// The address of `id` as `receiver` sees it; nameless Unix sockets have none.
    fn sender_address(&self, id: Id, receiver: Id, to: &Address) -> Result<Option<Address>, Errno> {
        let Some(local) = &self.socket(id)?.local else { return Ok(None) };
        Ok(Some(match (local, to) {
            (Address::Ip(from), Address::Ip(to)) => {
                let mut from = *from;
                if from.ip().is_unspecified() {
                    from.set_ip(reachable(*to).ip());
                }
                as_seen_by(self.socket(receiver)?.kind, reachable(from))
            }
            _ => local.clone(),
        }))
    }
}
