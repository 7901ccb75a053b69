//! Datagrams, for futures.

use super::wire::{any_loop, close, current};
use crate::budget;
use coracle_loop::demux::{
    Address, Completion, Finished, Handle, Operation, Outcome, Outgoing, Payload, SocketKind,
    Submitted,
};
use coracle_loop::{Complete, Loop, LoopHandle};
use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

/// No datagram is longer.
const LIMIT_DATAGRAM_BYTES: usize = 64 * 1024;

/// What a completion is about.
const RECEIVED: u32 = 0;
const SENT: u32 = 1;

/// A UDP socket, for futures. It belongs to the loop it was made on. Several futures may receive and send.
///
/// A datagram that was received for a future that is dropped is kept for the next. It takes 64 KiB from the first
/// receive on.
///
/// ```
/// use coracle_coro::future::{block_on, net::UdpSocket};
///
/// coracle_coro::run(|| {
///     block_on(async {
///         let one = UdpSocket::bind("127.0.0.1:0".parse().unwrap())?;
///         let other = UdpSocket::bind("127.0.0.1:0".parse().unwrap())?;
///         one.send_to(b"ahoy", other.local_addr()?).await?;
///         let mut space = [0; 16];
///         let (count, from) = other.recv_from(&mut space).await?;
///         assert_eq!((&space[..count], from), (&b"ahoy"[..], one.local_addr()?));
///         Ok(())
///     })?
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UdpSocket(Rc<Post>);

/// What operations tell, and futures look into.
struct Post {
    home: LoopHandle,
    socket: Handle,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    receiving: bool,
    /// What has come and nobody has taken.
    received: Option<io::Result<Datagram>>,
    /// For the next datagram.
    spare: Vec<u8>,
    readers: Vec<Waker>,
    /// The send in flight.
    sending: Option<Rc<Sending>>,
    writers: Vec<Waker>,
}

struct Datagram {
    bytes: Vec<u8>,
    count: usize,
    from: SocketAddr,
}

/// What came of a send, for the one who sent.
#[derive(Default)]
struct Sending(RefCell<Option<io::Result<usize>>>);

impl UdpSocket {
    /// Makes a socket at an address; with port 0, at any free port.
    ///
    /// # Errors
    /// The address is in use, not of this machine, or not permitted.
    ///
    /// # Panics
    /// Outside a loop.
    pub fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
        let lp = any_loop();
        let kind = if address.is_ipv4() { SocketKind::Udp4 } else { SocketKind::Udp6 };
        let socket = lp.socket(kind)?;
        let post = Post { home: lp.handle(), socket, state: RefCell::default() };
        let bound = UdpSocket(Rc::new(post)); // which closes it, if the next fails
        lp.bind(socket, &Address::from(address))?;
        Ok(bound)
    }

    /// Receives one datagram: how long it is, and from whom. What does not fit into `space` is lost, as with
    /// recvfrom(2).
    ///
    /// # Errors
    /// As recvfrom(2): `ECONNREFUSED`, if an earlier one came to nobody, …
    pub async fn recv_from(&self, space: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let Datagram { bytes, count, from } = poll_fn(|cx| self.0.poll_receive(cx)).await?;
        let count = count.min(space.len());
        space[..count].copy_from_slice(&bytes[..count]);
        self.0.state.borrow_mut().spare = bytes;
        Ok((count, from))
    }

    /// Sends one datagram. Dropped half-way, it may be sent or not.
    ///
    /// # Errors
    /// As sendto(2): `EMSGSIZE`, `ENETUNREACH`, …
    pub async fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        // One at a time. Between these two nobody else has a turn.
        poll_fn(|cx| self.0.poll_vacant(cx)).await;
        let sending = self.0.send(bytes, to);
        poll_fn(|cx| self.0.poll_sent(cx, &sending)).await
    }

    /// The address it is at.
    ///
    /// # Errors
    /// As getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = current(&self.0.home).local_address(self.0.socket)?;
        address
            .ip()
            .ok_or_else(|| io::Error::other("a socket that is not of UDP has no IP address"))
    }
}

impl Post {
    fn poll_receive(self: &Rc<Self>, cx: &Context<'_>) -> Poll<io::Result<Datagram>> {
        ready!(budget::poll(cx));
        let lp = current(&self.home);
        let mut state = self.state.borrow_mut();
        if state.received.is_none() && !state.receiving {
            let mut space = std::mem::take(&mut state.spare);
            space.resize(LIMIT_DATAGRAM_BYTES, 0);
            drop(state);
            let receive = Operation::ReceiveMessage {
                socket: self.socket,
                space: space.into(),
                limit_descriptors: 0,
            };
            let submitted = lp.submit(receive, self, RECEIVED);
            state = self.state.borrow_mut();
            match submitted {
                Submitted::Pending(_) => state.receiving = true,
                Submitted::Done(finished) => state.received = Some(datagram(finished)),
            }
        }
        if let Some(received) = state.received.take() {
            return Poll::Ready(received);
        }
        note(&mut state.readers, cx);
        Poll::Pending
    }

    fn poll_vacant(&self, cx: &Context<'_>) -> Poll<()> {
        ready!(budget::poll(cx));
        let mut state = self.state.borrow_mut();
        if state.sending.is_none() {
            return Poll::Ready(());
        }
        note(&mut state.writers, cx);
        Poll::Pending
    }

    fn send(self: &Rc<Self>, bytes: &[u8], to: SocketAddr) -> Rc<Sending> {
        let message = Outgoing {
            payload: Payload::from(bytes.to_vec()),
            to: Some(Address::from(to)),
            descriptors: Vec::new(),
        };
        let send = Operation::SendMessage { socket: self.socket, message: Box::new(message) };
        let sending = Rc::<Sending>::default();
        match current(&self.home).submit(send, self, SENT) {
            Submitted::Pending(_) => self.state.borrow_mut().sending = Some(Rc::clone(&sending)),
            Submitted::Done(finished) => _ = sending.0.replace(Some(sent(finished.result))),
        }
        sending
    }

    fn poll_sent(&self, cx: &Context<'_>, sending: &Sending) -> Poll<io::Result<usize>> {
        if let Some(result) = sending.0.take() {
            return Poll::Ready(result);
        }
        note(&mut self.state.borrow_mut().writers, cx);
        Poll::Pending
    }
}

/// All who wait are woken when something has happened: there are few of them.
fn note(waiting: &mut Vec<Waker>, cx: &Context<'_>) {
    if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
        waiting.push(cx.waker().clone());
    }
}

fn datagram(finished: Finished) -> io::Result<Datagram> {
    match finished.result? {
        Outcome::Message(message) => {
            let from = message.from.and_then(|from| from.ip());
            let from = from.ok_or_else(|| io::Error::other("a datagram without a sender"))?;
            Ok(Datagram { bytes: finished.payload.into_vec(), count: message.count, from })
        }
        other => unreachable!("receiving a message does not give {other:?}"),
    }
}

fn sent(result: io::Result<Outcome>) -> io::Result<usize> {
    match result? {
        Outcome::Count(count) => Ok(count),
        other => unreachable!("a send does not give {other:?}"),
    }
}

impl Complete for Post {
    fn complete(self: Rc<Self>, _lp: &Loop, tag: u32, completion: Completion) {
        let Completion { result, payload, .. } = completion;
        let mut state = self.state.borrow_mut();
        let waiting = if tag == RECEIVED {
            state.receiving = false;
            state.received = Some(datagram(Finished { result, payload }));
            std::mem::take(&mut state.readers)
        } else {
            if let Some(sending) = state.sending.take() {
                sending.0.replace(Some(sent(result)));
            }
            std::mem::take(&mut state.writers)
        };
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        let socket = self.0.socket;
        match Loop::current().filter(|lp| self.0.home.is_of(lp)) {
            Some(lp) => close(&lp, socket),
            // If the loop is gone, so are its sockets.
            None => _ = self.0.home.post(move |lp| close(lp, socket)),
        }
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UdpSocket({:?})", self.0.socket)
    }
}
