//! Datagrams on one loop: UDP over IPv4 and IPv6, and Unix datagrams.
//!
//! ```text
//!   kernel ──receive, at most so many a turn──► callback(datagram)
//!   kernel ◄──────────── send ◄───────────────── send_to
//!               full: ▲      └─► queue ─ full ─► dropped, and counted
//!                     └────────────┘
//! ```
//!
//! A datagram may be lost anywhere on its way. Here that is never done silently: one that finds no room in the
//! queue is [counted](Udp::dropped), one that the kernel refuses is [counted](Udp::failed) and
//! [told](Udp::on_error).
//!
//! The kernel does one receive and one send of a socket at a time. The receive is repeated as long as it finds
//! something at once, up to a budget; then the other sockets of the loop have their turn.

use crate::connector::cause;
use crate::guard::guard;
use crate::operations;
use coracle_loop::demux::{
    Address, Completion, Finished, Handle, Message, Operation, Outcome, Outgoing, Payload,
    SocketKind, SocketOption, Submitted,
};
use coracle_loop::{Complete, Loop, Timer};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

/// So many receives in a row may fail before the socket is left alone for a while: one that is broken for good
/// must not keep its loop busy.
const LIMIT_FAILURES: u32 = 16;

/// How long it is left alone.
const PAUSE: Duration = Duration::from_millis(100);

const RECEIVED: u32 = 0;
const SENT: u32 = 1;
const CONNECTED: u32 = 2;

/// The limits of a [`Udp`].
///
/// ```
/// use coracle_net::UdpSettings;
///
/// let settings = UdpSettings { limit_datagram_bytes: 1500, ..UdpSettings::default() };
/// # drop(settings);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpSettings {
    /// How much of a datagram is received; the rest of a longer one is lost, and it says so
    /// ([`Datagram::truncated`]). 64 KiB: none is longer.
    pub limit_datagram_bytes: usize,
    /// How many datagrams may wait to be sent.
    pub limit_output_datagrams: usize,
    /// How many bytes they may have.
    pub limit_output_bytes: usize,
    /// How many datagrams are received, or sent from the queue, before others have their turn.
    pub budget: usize,
    /// Lets several sockets have one address, so that each loop of a server has its own.
    pub reuse_port: bool,
    /// Size of the kernel's receive buffer, where the default will not do.
    pub receive_buffer_bytes: Option<usize>,
    /// Size of the kernel's send buffer, where the default will not do.
    pub send_buffer_bytes: Option<usize>,
}

impl Default for UdpSettings {
    fn default() -> UdpSettings {
        UdpSettings {
            limit_datagram_bytes: 64 << 10,
            limit_output_datagrams: 1024,
            limit_output_bytes: 1 << 20,
            budget: 64,
            reuse_port: false,
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
        }
    }
}

/// A datagram that has come.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    /// What it says. May be empty.
    pub bytes: &'a [u8],
    /// Who has sent it. `None` only for a Unix socket that has no name.
    pub from: Option<&'a Address>,
    /// It was longer than [`UdpSettings::limit_datagram_bytes`], and the rest is gone.
    pub truncated: bool,
}

/// A datagram socket of one loop. Loop thread only. Clones are the same socket; dropping them changes nothing,
/// [`close`](Udp::close) ends it.
///
/// A callback is given the socket it belongs to, and need not keep one. If it panics, the panic is logged, its
/// datagram is lost, and the next one comes as if nothing had happened.
///
/// A Unix socket that is not connected should not send to receivers that do not read: Linux does not tell when
/// they have room again, so the loop asks, every two milliseconds.
///
/// ```
/// use coracle_loop::Loop;
/// use coracle_net::Udp;
///
/// # fn main() -> std::io::Result<()> {
/// let lp = Loop::new()?;
/// let any = "127.0.0.1:0".parse()?;
/// let server = Udp::bind(&lp, &any, |lp, udp, datagram| {
///     if let Some(from) = datagram.from {
///         udp.send_to(lp, datagram.bytes, from); // an echo
///     }
/// })?;
/// let client = Udp::connect(&lp, &server.local_address(&lp)?, |lp, _, datagram| {
///     assert_eq!(datagram.bytes, b"ahoy");
///     lp.stop();
/// })?;
/// client.send(&lp, b"ahoy");
/// lp.run()
/// # }
/// ```
#[derive(Clone)]
pub struct Udp {
    inner: Rc<Inner>,
}

impl Udp {
    /// A socket with an address, which hears everybody. `callback` is called with each datagram, never from inside
    /// this call.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// # let lp = coracle_loop::Loop::new()?;
    /// let udp = coracle_net::Udp::bind(&lp, &"127.0.0.1:0".parse()?, |lp, _udp, datagram| {
    ///     println!("{} bytes from {:?}", datagram.bytes.len(), datagram.from);
    ///     lp.stop();
    /// })?;
    /// udp.send_to(&lp, b"to myself", &udp.local_address(&lp)?);
    /// lp.run()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Names the address and the reason: in use, not of this machine, or not permitted.
    pub fn bind(
        lp: &Loop,
        address: &Address,
        callback: impl FnMut(&Loop, &Udp, Datagram<'_>) + 'static,
    ) -> io::Result<Udp> {
        Udp::bind_with(lp, address, UdpSettings::default(), callback)
    }

    /// [`bind`](Udp::bind), with limits of its own.
    ///
    /// ```
    /// use coracle_net::{Udp, UdpSettings};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let lp = coracle_loop::Loop::new()?;
    /// let settings = UdpSettings { limit_datagram_bytes: 512, ..UdpSettings::default() };
    /// let udp = Udp::bind_with(&lp, &"127.0.0.1:0".parse()?, settings, |_, _, datagram| {
    ///     if datagram.truncated {
    ///         println!("a resolver asks for more than {} bytes", datagram.bytes.len());
    ///     }
    /// })?;
    /// udp.close(&lp);
    /// # Ok(())
    /// # }
    /// ```
    pub fn bind_with(
        lp: &Loop,
        address: &Address,
        settings: UdpSettings,
        callback: impl FnMut(&Loop, &Udp, Datagram<'_>) + 'static,
    ) -> io::Result<Udp> {
        let socket = open(lp, address, &settings, |socket| lp.bind(socket, address))
            .map_err(|error| because(&format!("cannot bind {address}"), &error))?;
        let inner = Inner::new(socket, None, settings, Box::new(callback));
        inner.receive_later(lp);
        Ok(Udp { inner })
    }

    /// A socket that talks to one peer: it hears nobody else, and is told when the peer's machine says that nobody
    /// is there ([`on_error`](Udp::on_error)). The kernel chooses its own address.
    ///
    /// # Errors
    /// When there is no descriptor for it. That the peer cannot be reached is told by [`on_error`](Udp::on_error).
    pub fn connect(
        lp: &Loop,
        peer: &Address,
        callback: impl FnMut(&Loop, &Udp, Datagram<'_>) + 'static,
    ) -> io::Result<Udp> {
        Udp::connect_with(lp, peer, UdpSettings::default(), callback)
    }

    /// [`connect`](Udp::connect), with limits of its own.
    pub fn connect_with(
        lp: &Loop,
        peer: &Address,
        settings: UdpSettings,
        callback: impl FnMut(&Loop, &Udp, Datagram<'_>) + 'static,
    ) -> io::Result<Udp> {
        let socket = open(lp, peer, &settings, |_| Ok(()))
            .map_err(|error| because(&format!("cannot connect to {peer}"), &error))?;
        let inner = Inner::new(socket, Some(peer.clone()), settings, Box::new(callback));
        inner.connect(lp, peer);
        Ok(Udp { inner })
    }

    /// Calls `callback` when something has gone wrong: a datagram was refused by the kernel, or a peer's machine
    /// says that nobody is there. The socket goes on. Replaces the callback there was; without one, errors are
    /// logged. Of errors that come faster than they can be told, the last is.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// # let lp = coracle_loop::Loop::new()?;
    /// # let nobody = "127.0.0.1:1".parse()?;
    /// let udp = coracle_net::Udp::connect(&lp, &nobody, |_, _, _| ())?;
    /// udp.on_error(|lp, _udp, error| {
    ///     assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    ///     lp.stop();
    /// });
    /// udp.send(&lp, b"is anybody there?");
    /// lp.run()
    /// # }
    /// ```
    pub fn on_error(&self, callback: impl FnMut(&Loop, &Udp, io::Error) + 'static) {
        if !self.inner.state.borrow().closed {
            let old = self.inner.on_error.replace(Some(Box::new(callback)));
            drop(old);
        }
    }

    /// Sends a datagram to the peer of a [connected](Udp::connect) socket. As [`send_to`](Udp::send_to).
    pub fn send(&self, lp: &Loop, bytes: &[u8]) {
        let payload = self.inner.copy(bytes);
        self.inner.send(lp, payload, None);
    }

    /// Sends a datagram: at once if the kernel takes it, and when it does otherwise. Never fails and never waits;
    /// what cannot be queued is [dropped](Udp::dropped), what the kernel refuses is told by
    /// [`on_error`](Udp::on_error). Datagrams leave in the order in which they were given.
    pub fn send_to(&self, lp: &Loop, bytes: &[u8], to: &Address) {
        let payload = self.inner.copy(bytes);
        self.inner.send(lp, payload, Some(to.clone()));
    }

    /// Sends a datagram that need not be copied: owned or shared bytes, in one stretch or several. To the peer of
    /// a connected socket if `to` is `None`.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// # let lp = coracle_loop::Loop::new()?;
    /// # let listener = coracle_net::Udp::bind(&lp, &"127.0.0.1:0".parse()?, |lp, _, _| lp.stop())?;
    /// # let listeners = [listener.local_address(&lp)?];
    /// let udp = coracle_net::Udp::bind(&lp, &"127.0.0.1:0".parse()?, |_, _, _| ())?;
    /// let news = bytes::Bytes::from_static(b"the same for everybody");
    /// for listener in &listeners {
    ///     udp.send_payload(&lp, news.clone(), Some(listener));
    /// }
    /// # lp.run()
    /// # }
    /// ```
    pub fn send_payload(&self, lp: &Loop, payload: impl Into<Payload>, to: Option<&Address>) {
        self.inner.send(lp, payload.into(), to.cloned());
    }

    /// Hears what is sent to `group`, on the interface with this index (if_nametoindex(3)); 0 leaves that to the
    /// system. Membership ends with the socket.
    ///
    /// A socket bound to every address of the machine hears all groups that anybody on the machine has joined, if
    /// they come to its port; one bound to the group's address hears that alone. Several sockets may have one
    /// group and port, and each hears everything: [`UdpSettings::reuse_port`].
    ///
    /// ```
    /// use coracle_net::{SocketOption, Udp};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let lp = coracle_loop::Loop::new()?;
    /// const LOOPBACK: u32 = 1; // the index of an interface
    /// let group = [239, 255, 77, 1].into();
    /// let listener = Udp::bind(&lp, &"0.0.0.0:0".parse()?, |lp, _, datagram| {
    ///     assert_eq!(datagram.bytes, b"ahoy");
    ///     lp.stop();
    /// })?;
    /// listener.join_multicast(&lp, group, LOOPBACK)?;
    ///
    /// let speaker = Udp::bind(&lp, &"0.0.0.0:0".parse()?, |_, _, _| ())?;
    /// speaker.set_option(&lp, SocketOption::MulticastInterface(LOOPBACK))?;
    /// let port = listener.local_address(&lp)?.ip().unwrap().port();
    /// speaker.send_to(&lp, b"ahoy", &std::net::SocketAddr::new(group, port).into());
    /// lp.run()
    /// # }
    /// ```
    ///
    /// # Errors
    /// It is no group of the socket's family, it is joined already, there is no such interface; or the network is
    /// simulated, which has none.
    pub fn join_multicast(&self, lp: &Loop, group: IpAddr, interface: u32) -> io::Result<()> {
        let tried = format!("cannot join {group} on interface {interface}");
        let option = SocketOption::JoinMulticast { group, interface };
        self.set_option(lp, option).map_err(|error| because(&tried, &error))
    }

    /// Ends what [`join_multicast`](Udp::join_multicast) with the same arguments has begun.
    ///
    /// # Errors
    /// It was not joined.
    pub fn leave_multicast(&self, lp: &Loop, group: IpAddr, interface: u32) -> io::Result<()> {
        let tried = format!("cannot leave {group} on interface {interface}");
        let option = SocketOption::LeaveMulticast { group, interface };
        self.set_option(lp, option).map_err(|error| because(&tried, &error))
    }

    /// Sets an option of the socket: how what is sent to groups travels, say.
    ///
    /// # Errors
    /// The system's: the socket has no such option, or not that value.
    pub fn set_option(&self, lp: &Loop, option: SocketOption) -> io::Result<()> {
        lp.set_option(self.inner.socket, option)
    }

    /// How many datagrams wait to be sent.
    pub fn queued(&self) -> usize {
        self.inner.state.borrow().output.len()
    }

    /// How many datagrams were thrown away because the queue was full or the socket was closed.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// # let lp = coracle_loop::Loop::new()?;
    /// let udp = coracle_net::Udp::bind(&lp, &"127.0.0.1:0".parse()?, |_, _, _| ())?;
    /// let address = udp.local_address(&lp)?;
    /// udp.close(&lp);
    /// udp.send_to(&lp, b"too late", &address);
    /// assert_eq!(udp.dropped(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn dropped(&self) -> u64 {
        self.inner.state.borrow().dropped
    }

    /// How many datagrams the kernel refused to send.
    pub fn failed(&self) -> u64 {
        self.inner.state.borrow().failed
    }

    /// Its own address: with the port that was chosen, when zero was asked for.
    ///
    /// # Errors
    /// When it is closed.
    pub fn local_address(&self, lp: &Loop) -> io::Result<Address> {
        lp.local_address(self.inner.socket)
    }

    /// Closes the socket. Its callbacks are never called again; what waits to be sent is dropped, and counted. The
    /// file of a Unix socket stays.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// # let lp = coracle_loop::Loop::new()?;
    /// let udp = coracle_net::Udp::bind(&lp, &"127.0.0.1:0".parse()?, |_, _, _| ())?;
    /// udp.close(&lp);
    /// lp.run_until_idle() // nothing is left of it
    /// # }
    /// ```
    pub fn close(&self, lp: &Loop) {
        self.inner.close(lp);
    }
}

impl fmt::Debug for Udp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.state.borrow();
        f.debug_struct("Udp")
            .field("peer", &self.inner.peer)
            .field("queued", &state.output.len())
            .field("dropped", &state.dropped)
            .field("failed", &state.failed)
            .field("closed", &state.closed)
            .finish_non_exhaustive()
    }
}

type OnDatagram = Box<dyn FnMut(&Loop, &Udp, Datagram<'_>)>;
type OnError = Box<dyn FnMut(&Loop, &Udp, io::Error)>;

/// What the loop keeps. While a callback runs nothing of it is borrowed.
struct Inner {
    socket: Handle,
    peer: Option<Address>,
    settings: UdpSettings,
    on_datagram: RefCell<Option<OnDatagram>>,
    on_error: RefCell<Option<OnError>>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Space for the next datagram; empty while a receive has it.
    space: Vec<u8>,
    /// An allocation for the next datagram to be copied.
    spare: Vec<u8>,
    output: VecDeque<Waiting>,
    output_bytes: usize,
    /// What the kernel is sending. While it connects, a datagram that is none.
    sending: Option<Sending>,
    /// The queue will be looked at by itself.
    flushing: bool,
    /// An error that has not been told yet.
    untold: Option<io::Error>,
    /// How many receives have failed since the last that did not.
    failures: u32,
    pause: Option<Timer>,
    dropped: u64,
    failed: u64,
    closed: bool,
}

/// A datagram that waits to be sent.
struct Waiting {
    payload: Payload,
    to: Option<Address>,
    /// It was refused once, for the sake of an earlier one.
    retried: bool,
}

/// What is remembered of a datagram while the kernel has it.
struct Sending {
    to: Option<Address>,
    retried: bool,
}

impl Inner {
    fn new(
        socket: Handle,
        peer: Option<Address>,
        settings: UdpSettings,
        on_datagram: OnDatagram,
    ) -> Rc<Inner> {
        Rc::new(Inner {
            socket,
            peer,
            settings,
            on_datagram: RefCell::new(Some(on_datagram)),
            on_error: RefCell::default(),
            state: RefCell::default(),
        })
    }

    fn connect(self: &Rc<Self>, lp: &Loop, peer: &Address) {
        let connect = Operation::Connect { socket: self.socket, address: peer.clone() };
        match lp.submit(connect, self, CONNECTED) {
            Submitted::Done(finished) => {
                self.connected(lp, finished.result);
            }
            Submitted::Pending(_) => {
                // What is sent meanwhile waits in the queue.
                self.state.borrow_mut().sending = Some(Sending { to: None, retried: true });
            }
        }
    }

    fn connected(self: &Rc<Self>, lp: &Loop, result: io::Result<Outcome>) {
        let mut state = self.state.borrow_mut();
        state.sending = None;
        if state.closed {
            return;
        }
        drop(state);
        if let (Err(error), Some(peer)) = (result, &self.peer) {
            self.note(lp, because(&format!("cannot connect to {peer}"), &error));
        }
        self.receive_later(lp);
        self.flush(lp);
    }

    // --- Receiving -------------------------------------------------------------------------------------

    /// Goes on receiving when the others have had their turn.
    fn receive_later(self: &Rc<Self>, lp: &Loop) {
        let udp = Rc::clone(self);
        lp.defer(move |lp| udp.receive(lp));
    }

    /// Receives what is there, up to the budget; then waits for more. No receive is in flight.
    fn receive(self: &Rc<Self>, lp: &Loop) {
        for _ in 0..self.settings.budget.max(1) {
            let mut state = self.state.borrow_mut();
            if state.closed || state.pause.is_some() {
                return;
            }
            let mut space = std::mem::take(&mut state.space);
            drop(state);
            space.resize(self.settings.limit_datagram_bytes.max(1), 0);
            let receive = Operation::ReceiveMessage {
                socket: self.socket,
                space: space.into(),
                limit_descriptors: 0,
            };
            match lp.submit(receive, self, RECEIVED) {
                Submitted::Done(finished) => self.received(lp, finished),
                Submitted::Pending(_) => return,
            }
        }
        self.receive_later(lp);
    }

    fn received(self: &Rc<Self>, lp: &Loop, finished: Finished) {
        let mut state = self.state.borrow_mut();
        if state.closed {
            return;
        }
        let space = finished.payload.into_vec();
        match finished.result {
            Ok(Outcome::Message(message)) => {
                state.failures = 0;
                drop(state);
                self.deliver(lp, &message, &space);
                self.state.borrow_mut().space = space;
            }
            Ok(other) => unreachable!("a receive of a message does not give {other:?}"),
            Err(error) => {
                state.space = space;
                state.failures += u32::from(!is_of_the_network(error.kind()));
                if state.failures >= LIMIT_FAILURES {
                    let udp = Rc::clone(self);
                    state.pause = Some(lp.after(PAUSE, move |lp| {
                        udp.state.borrow_mut().pause = None;
                        udp.receive(lp);
                    }));
                }
                drop(state);
                self.note(lp, because("cannot receive", &error));
            }
        }
    }

    fn deliver(self: &Rc<Self>, lp: &Loop, message: &Message, space: &[u8]) {
        let datagram = Datagram {
            bytes: &space[..message.count],
            from: message.from.as_ref(),
            truncated: message.truncated,
        };
        self.call(&self.on_datagram, |callback, udp| callback(lp, udp, datagram));
    }

    // --- Sending ---------------------------------------------------------------------------------------

    /// A payload of its own for borrowed bytes.
    fn copy(&self, bytes: &[u8]) -> Payload {
        let mut copy = std::mem::take(&mut self.state.borrow_mut().spare);
        copy.clear();
        copy.extend_from_slice(bytes);
        copy.into()
    }

    fn send(self: &Rc<Self>, lp: &Loop, payload: Payload, to: Option<Address>) {
        let mut state = self.state.borrow_mut();
        let waiting = Waiting { payload, to, retried: false };
        if state.closed {
            state.dropped += 1;
        } else if state.sending.is_none() && state.output.is_empty() {
            drop(state);
            self.submit(lp, waiting);
            self.flush(lp); // it may have come back
        } else if state.has_room(&self.settings, waiting.payload.len()) {
            state.output_bytes += waiting.payload.len();
            state.output.push_back(waiting);
        } else {
            state.dropped += 1;
        }
    }

    /// Sends what waits, as far as the kernel takes it and the budget allows.
    fn flush(self: &Rc<Self>, lp: &Loop) {
        for _ in 0..self.settings.budget.max(1) {
            let mut state = self.state.borrow_mut();
            if state.sending.is_some() || state.flushing {
                return;
            }
            let Some(waiting) = state.output.pop_front() else { return };
            state.output_bytes -= waiting.payload.len();
            drop(state);
            self.submit(lp, waiting);
        }
        self.state.borrow_mut().flushing = true;
        let udp = Rc::clone(self);
        lp.defer(move |lp| {
            udp.state.borrow_mut().flushing = false;
            udp.flush(lp);
        });
    }

    fn submit(self: &Rc<Self>, lp: &Loop, waiting: Waiting) {
        let Waiting { payload, to, retried } = waiting;
        let sending = Sending { to: to.clone(), retried };
        let message = Box::new(Outgoing { payload, to, descriptors: Vec::new() });
        match lp.submit(Operation::SendMessage { socket: self.socket, message }, self, SENT) {
            Submitted::Done(finished) => self.sent(lp, sending, finished),
            Submitted::Pending(_) => self.state.borrow_mut().sending = Some(sending),
        }
    }

    fn sent(self: &Rc<Self>, lp: &Loop, sending: Sending, finished: Finished) {
        let mut state = self.state.borrow_mut();
        let Sending { to, retried } = sending;
        let error = match finished.result {
            Ok(_) => {
                state.spare = finished.payload.into_vec();
                return;
            }
            Err(_) if state.closed => {
                state.dropped += 1; // it was on its way when the socket was closed
                return;
            }
            Err(error) => error,
        };
        // A connected socket tells of an earlier datagram that nobody was there for; this one was not even tried.
        let is_of_another = error.kind() == io::ErrorKind::ConnectionRefused
            && matches!(self.peer, Some(Address::Ip(_)));
        let whom = match to.as_ref().or(self.peer.as_ref()) {
            Some(to) => format!(" to {to}"),
            None => String::new(),
        };
        let count = finished.payload.len();
        if is_of_another && !retried {
            state.output_bytes += count;
            state.output.push_front(Waiting { payload: finished.payload, to, retried: true });
        } else {
            state.failed += 1;
        }
        drop(state);
        self.note(lp, because(&format!("cannot send {count} bytes{whom}"), &error));
    }

    // --- Errors, callbacks, the end --------------------------------------------------------------------

    /// Has an error told soon. Never at once: whoever sends may be a callback.
    fn note(self: &Rc<Self>, lp: &Loop, error: io::Error) {
        if self.state.borrow_mut().untold.replace(error).is_some() {
            return; // a job is on its way that tells of this one instead
        }
        let udp = Rc::clone(self);
        lp.defer(move |lp| {
            let Some(error) = udp.state.borrow_mut().untold.take() else { return };
            if udp.on_error.borrow().is_none() {
                tracing::debug!("{error}");
            }
            udp.call(&udp.on_error, |callback, udp| callback(lp, udp, error));
        });
    }

    /// Calls back, if there is somebody to be called.
    fn call<F: ?Sized>(
        self: &Rc<Self>,
        place: &RefCell<Option<Box<F>>>,
        call: impl FnOnce(&mut F, &Udp),
    ) {
        let Some(mut callback) = place.take() else { return };
        let udp = Udp { inner: Rc::clone(self) };
        // What it was changing is its own; nothing of ours is half done while it runs.
        if guard(|| call(&mut *callback, &udp)).is_none() {
            tracing::error!("a callback of a datagram socket panicked; the socket goes on");
        }
        // It stays, unless it has closed the socket or put another in its place.
        if !self.state.borrow().closed && place.borrow().is_none() {
            *place.borrow_mut() = Some(callback);
        }
    }

    fn close(self: &Rc<Self>, lp: &Loop) {
        let mut state = self.state.borrow_mut();
        if std::mem::replace(&mut state.closed, true) {
            return;
        }
        state.dropped += state.output.len() as u64;
        state.output_bytes = 0;
        let pause = state.pause.take();
        let output = std::mem::take(&mut state.output);
        drop(state);
        if let Some(pause) = pause {
            pause.cancel();
        }
        operations::close(lp, self.socket);
        // Dropped when nothing is borrowed: what callbacks own may use the socket as it goes.
        drop((output, self.on_datagram.take(), self.on_error.take()));
    }
}

impl State {
    fn has_room(&self, settings: &UdpSettings, bytes: usize) -> bool {
        self.output.len() < settings.limit_output_datagrams
            && self.output_bytes.saturating_add(bytes) <= settings.limit_output_bytes
    }
}

impl Complete for Inner {
    fn complete(self: Rc<Self>, lp: &Loop, tag: u32, completion: Completion) {
        let Completion { result, payload, .. } = completion;
        match tag {
            RECEIVED => {
                self.received(lp, Finished { result, payload });
                self.receive(lp);
            }
            SENT => {
                let sending = self.state.borrow_mut().sending.take();
                let sending = sending.expect("a send that is in flight is remembered");
                self.sent(lp, sending, Finished { result, payload });
                self.flush(lp);
            }
            CONNECTED => self.connected(lp, result),
            _ => unreachable!("no operation has this tag"),
        }
    }
}

/// A datagram socket of the address's family, prepared by `prepare`.
fn open(
    lp: &Loop,
    address: &Address,
    settings: &UdpSettings,
    prepare: impl FnOnce(Handle) -> io::Result<()>,
) -> io::Result<Handle> {
    let socket = lp.socket(match address {
        Address::Ip(ip) if ip.is_ipv4() => SocketKind::Udp4,
        Address::Ip(_) => SocketKind::Udp6,
        Address::Unix(_) => SocketKind::UnixDatagram,
    })?;
    let options = [
        settings.reuse_port.then_some(SocketOption::ReusePort(true)),
        settings.receive_buffer_bytes.map(SocketOption::ReceiveBuffer),
        settings.send_buffer_bytes.map(SocketOption::SendBuffer),
    ];
    let set = options.into_iter().flatten().try_for_each(|option| lp.set_option(socket, option));
    match set.and_then(|()| prepare(socket)) {
        Ok(()) => Ok(socket),
        Err(error) => {
            operations::close(lp, socket);
            Err(error)
        }
    }
}

/// Whether an error tells of a datagram that was sent before. The kernel tells it once; the socket is well.
fn is_of_the_network(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(kind, ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

/// An error with what was tried.
fn because(tried: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{tried}: {}", cause(error)))
}
