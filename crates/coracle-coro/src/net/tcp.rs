//! TCP, with the names of `std::net`.

use crate::net::accept::{Accepting, Acceptor};
use crate::net::addresses::{ToSocketAddrs, first};
use crate::net::arms::{Readable, Writable};
use crate::net::halves::{self, ReadHalf, WriteHalf};
use crate::net::read_ahead::ReadAhead;
use crate::net::socket::{Socket, here};
use crate::net::stream::{self, check_timeout, read_and_write, stream_methods};
use coracle_loop::Loop;
use coracle_loop::demux::{Address, Descriptor, Handle, SocketKind, SocketOption};
use std::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

/// A TCP connection: what `std::net::TcpStream` is, for a coroutine.
///
/// It is read and written through `Read` and `Write`, which are there for `&TcpStream`, too.
///
/// ```
/// use coracle_coro::net::{TcpListener, TcpStream};
/// use std::io::{Read, Write};
///
/// coracle_coro::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let mut client = TcpStream::connect(listener.local_addr()?)?;
///     let (mut server, peer) = listener.accept()?;
///     assert_eq!(peer, client.local_addr()?);
///     client.write_all(b"ahoy")?;
///     let mut space = [0; 16];
///     let count = server.read(&mut space)?;
///     assert_eq!(&space[..count], b"ahoy");
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// It stays on its loop:
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<coracle_coro::net::TcpStream>();
/// ```
pub struct TcpStream {
    pub(super) socket: Rc<Socket>,
}

impl TcpStream {
    /// Connects to the first of the addresses that answers.
    ///
    /// # Errors
    /// What the last address said; or as for all waits.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        first(address, |address| TcpStream::open(address, None))
    }

    /// Connects, and waits for `timeout` at most.
    ///
    /// ```
    /// use coracle_coro::net::TcpStream;
    /// use std::io::ErrorKind;
    /// use std::time::Duration;
    ///
    /// coracle_coro::run(|| {
    ///     let nobody = "127.0.0.1:1".parse().unwrap();
    ///     let refused = TcpStream::connect_timeout(&nobody, Duration::from_secs(1)).unwrap_err();
    ///     assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TimedOut`; or as [`connect`](TcpStream::connect).
    pub fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        TcpStream::open(*address, check_timeout(Some(timeout))?)
    }

    fn open(address: SocketAddr, timeout: Option<Duration>) -> io::Result<TcpStream> {
        let address = Address::Ip(address);
        let socket = Socket::make(SocketKind::stream_for(&address))?;
        socket.connect(address, timeout)?;
        Ok(TcpStream { socket })
    }

    fn accepted(lp: &Loop, handle: Handle) -> io::Result<(TcpStream, SocketAddr)> {
        let stream = TcpStream { socket: Socket::new(lp, handle) };
        let peer = ip(lp.peer_address(handle)?)?;
        Ok((stream, peer))
    }

    /// The same, of a peer that is known.
    fn accepted_from(
        lp: &Loop,
        handle: Handle,
        peer: Address,
    ) -> io::Result<(TcpStream, SocketAddr)> {
        let stream = TcpStream { socket: Socket::new(lp, handle) };
        Ok((stream, ip(peer)?))
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// `ENOTCONN` if it is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        ip(self.socket.peer_address()?)
    }

    /// The address of this end.
    ///
    /// # Errors
    /// It is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        ip(self.socket.local_address()?)
    }

    /// Whether small writes are sent at once (TCP_NODELAY), and do not wait for others to go with.
    ///
    /// # Errors
    /// It is closed.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.set_option(SocketOption::NoDelay(nodelay))
    }

    /// Sets any option of the socket.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_option(&self, option: SocketOption) -> io::Result<()> {
        self.socket.set_option(option)
    }

    stream_methods!(TcpStream);

    /// Takes over a socket of std's. It must be connected.
    ///
    /// ```
    /// use coracle_coro::net::{TcpListener, TcpStream};
    /// use std::io::{Read, Write};
    ///
    /// coracle_coro::run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let stream = TcpStream::connect(listener.local_addr()?)?;
    ///     let (mut other, _) = listener.accept()?;
    ///     // It may go anywhere now: to a thread, to a coroutine of another loop.
    ///     let stream: std::net::TcpStream = stream.into_std()?;
    ///     let mut stream = TcpStream::from_std(stream)?;
    ///     stream.write_all(b"!")?;
    ///     other.read_exact(&mut [0])
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// There is no loop, or it refuses the descriptor.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<TcpStream> {
        TcpStream::from_descriptor(stream)
    }

    /// Makes a socket of std's of it, which blocks.
    ///
    /// # Errors
    /// As [`into_descriptor`](TcpStream::into_descriptor). One of a simulated kernel is known to nobody else.
    pub fn into_std(self) -> io::Result<std::net::TcpStream> {
        let stream = std::net::TcpStream::from(os(self.into_descriptor()?)?);
        stream.set_nonblocking(false)?;
        Ok(stream)
    }
}

read_and_write!(TcpStream);

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(f, "TcpStream", &self.socket)
    }
}

/// A socket that listens: what `std::net::TcpListener` is, for a coroutine.
///
/// ```
/// use coracle_coro::net::{TcpListener, TcpStream};
///
/// coracle_coro::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let address = listener.local_addr()?;
///     let client = coracle_coro::spawn(move || TcpStream::connect(address));
///     let (_stream, peer) = listener.accept()?;
///     assert!(peer.ip().is_loopback());
///     client.join().unwrap().map(|_| ())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpListener {
    acceptor: Acceptor,
}

impl TcpListener {
    /// Listens on the first of the addresses on which that is possible. Port 0 is any free one.
    ///
    /// # Errors
    /// Names the address and the reason: in use, not of this machine, or not permitted.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<TcpListener> {
        TcpListener::listen(address, false)
    }

    /// As [`bind`](TcpListener::bind), beside others who do the same on the same address (SO_REUSEPORT): the
    /// kernel gives each of them its share of the connections. For a listener on each of several loops.
    ///
    /// # Errors
    /// As [`bind`](TcpListener::bind).
    pub fn bind_shared(address: impl ToSocketAddrs) -> io::Result<TcpListener> {
        TcpListener::listen(address, true)
    }

    fn listen(address: impl ToSocketAddrs, shared: bool) -> io::Result<TcpListener> {
        let socket = first(address, |address| Socket::listen(&Address::Ip(address), shared))?;
        Ok(TcpListener { acceptor: Acceptor::new(socket) })
    }

    /// Waits for the next connection. Of several who wait, each has one in its turn.
    ///
    /// # Errors
    /// `EMFILE` and its kind, if there is nothing to serve a connection with. Who tries again is made to wait: 10
    /// ms, and twice as long each time, up to a second. `EBADF`, if it is closed. Or as for all waits.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let handle = self.acceptor.accept()?;
            match TcpStream::accepted(&here()?, handle) {
                // It was reset before we had it, and is nobody's any more.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
                accepted => return accepted,
            }
        }
    }

    /// The connections, one after the other, without end.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// An arm of [`select!`](crate::select!) that accepts a connection, if it is chosen. The pattern gets what
    /// [`accept`](TcpListener::accept) returns.
    ///
    /// ```
    /// use coracle_coro::net::{TcpListener, TcpStream};
    /// use coracle_coro::select;
    /// use coracle_coro::sync::after;
    /// use std::time::Duration;
    ///
    /// coracle_coro::run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     select! {
    ///         _ = listener.accepting() => unreachable!("nobody connects"),
    ///         () = after(Duration::from_millis(1)) => {}
    ///     }
    ///     let _client = TcpStream::connect(listener.local_addr()?)?;
    ///     select! {
    ///         accepted = listener.accepting() => assert!(accepted.is_ok()),
    ///         () = after(Duration::from_secs(3600)) => unreachable!(),
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn accepting(&self) -> Accepting<'_, (TcpStream, SocketAddr)> {
        self.acceptor.accepting(TcpStream::accepted_from)
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// It is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        ip(self.acceptor.socket.local_address()?)
    }

    /// Closes it: whoever waits in [`accept`](TcpListener::accept) is told `EBADF`.
    ///
    /// # Errors
    /// `EBADF` if it was closed before.
    pub fn close(&self) -> io::Result<()> {
        self.acceptor.close()
    }

    /// Takes over a listening socket of std's.
    ///
    /// # Errors
    /// There is no loop, or it refuses the descriptor.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<TcpListener> {
        Ok(TcpListener { acceptor: Acceptor::new(Socket::adopt(listener.into())?) })
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(f, "TcpListener", &self.acceptor.socket)
    }
}

/// The connections of a [`TcpListener`]. See [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

/// The address of an IP socket.
pub(super) fn ip(address: Address) -> io::Result<SocketAddr> {
    address.ip().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "it is a Unix socket, and has no IP address")
    })
}

/// The operating system's descriptor.
pub(super) fn os(descriptor: Descriptor) -> io::Result<OwnedFd> {
    match descriptor {
        Descriptor::Os(fd) => Ok(fd),
        Descriptor::Sim(_) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "a socket of a simulated kernel is known to that kernel only",
        )),
    }
}

/// `TcpStream { local: 127.0.0.1:7000, peer: 127.0.0.1:4242 }`, as far as it is known.
pub(super) fn debug(f: &mut fmt::Formatter<'_>, name: &str, socket: &Socket) -> fmt::Result {
    let mut out = f.debug_struct(name);
    if let Ok(address) = socket.local_address() {
        out.field("local", &format_args!("{address}"));
    }
    if let Ok(address) = socket.peer_address() {
        out.field("peer", &format_args!("{address}"));
    }
    out.finish()
}
