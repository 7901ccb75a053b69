//! Unix sockets, with the names of `std::os::unix::net`.

use crate::net::accept::{Accepting, Acceptor};
use crate::net::arms::{Readable, Writable};
use crate::net::datagram::{self, datagram_methods};
use crate::net::halves::{self, ReadHalf, WriteHalf};
use crate::net::read_ahead::ReadAhead;
use crate::net::socket::{Socket, here};
use crate::net::stream::{self, check_timeout, read_and_write, stream_methods};
use crate::net::tcp::{debug, os};
use coracle_loop::Loop;
use coracle_loop::demux::{Address, Descriptor, Handle, SocketKind};
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// A Unix stream: what `std::os::unix::net::UnixStream` is, for a coroutine.
///
/// ```
/// use coracle_coro::net::UnixStream;
/// use std::io::{Read, Write};
///
/// coracle_coro::run(|| {
///     let (mut here, mut there) = UnixStream::pair()?;
///     here.write_all(b"ahoy")?;
///     drop(here);
///     let mut heard = String::new();
///     there.read_to_string(&mut heard)?;
///     assert_eq!(heard, "ahoy");
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixStream {
    pub(super) socket: Rc<Socket>,
}

impl UnixStream {
    /// Connects to the socket with this path.
    ///
    /// # Errors
    /// `ENOENT`, `ECONNREFUSED`, and whatever else the kernel says; or as for all waits.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        UnixStream::connect_addr(&SocketAddr::from_pathname(path)?)
    }

    /// Connects to a path or an abstract name.
    ///
    /// # Errors
    /// As [`connect`](UnixStream::connect).
    pub fn connect_addr(address: &SocketAddr) -> io::Result<UnixStream> {
        let socket = Socket::make(SocketKind::UnixStream)?;
        socket.connect(Address::from(address.clone()), None)?;
        Ok(UnixStream { socket })
    }

    /// Two streams that are connected to each other.
    ///
    /// # Errors
    /// There are no descriptors.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let lp = here()?;
        let (one, other) = lp.socket_pair()?;
        let stream = |handle| UnixStream { socket: Socket::new(&lp, handle) };
        Ok((stream(one), stream(other)))
    }

    fn accepted(lp: &Loop, handle: Handle) -> io::Result<(UnixStream, SocketAddr)> {
        let stream = UnixStream { socket: Socket::new(lp, handle) };
        let peer = unix(lp.peer_address(handle)?)?;
        Ok((stream, peer))
    }

    /// The same, of a peer that is known.
    fn accepted_from(
        lp: &Loop,
        handle: Handle,
        peer: Address,
    ) -> io::Result<(UnixStream, SocketAddr)> {
        let stream = UnixStream { socket: Socket::new(lp, handle) };
        Ok((stream, unix(peer)?))
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// `ENOTCONN` if it is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        unix(self.socket.peer_address()?)
    }

    /// The address of this end.
    ///
    /// # Errors
    /// It is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        unix(self.socket.local_address()?)
    }

    stream_methods!(UnixStream);

    /// Takes over a socket of std's.
    ///
    /// # Errors
    /// There is no loop, or it refuses the descriptor.
    pub fn from_std(stream: std::os::unix::net::UnixStream) -> io::Result<UnixStream> {
        UnixStream::from_descriptor(stream)
    }

    /// Makes a socket of std's of it, which blocks.
    ///
    /// # Errors
    /// As [`into_descriptor`](UnixStream::into_descriptor). One of a simulated kernel is known to nobody else.
    pub fn into_std(self) -> io::Result<std::os::unix::net::UnixStream> {
        let stream = std::os::unix::net::UnixStream::from(os(self.into_descriptor()?)?);
        stream.set_nonblocking(false)?;
        Ok(stream)
    }
}

read_and_write!(UnixStream);

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(f, "UnixStream", &self.socket)
    }
}

/// A Unix socket that listens: what `std::os::unix::net::UnixListener` is, for a coroutine.
///
/// As in std, the file is there until somebody removes it, and a file that is there is not removed.
///
/// ```
/// use coracle_coro::net::{UnixListener, UnixStream};
/// use std::os::linux::net::SocketAddrExt;
/// use std::os::unix::net::SocketAddr;
///
/// coracle_coro::run(|| {
///     let name = format!("coracle example {}", std::process::id());
///     let address = SocketAddr::from_abstract_name(name)?;
///     let listener = UnixListener::bind_addr(&address)?;
///     let _client = UnixStream::connect_addr(&address)?;
///     listener.accept().map(|_| ())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixListener {
    acceptor: Acceptor,
}

impl UnixListener {
    /// Listens at `path`.
    ///
    /// # Errors
    /// Names the path and the reason: something is there, or may not be.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixListener> {
        UnixListener::bind_addr(&SocketAddr::from_pathname(path)?)
    }

    /// Listens at a path or an abstract name.
    ///
    /// # Errors
    /// As [`bind`](UnixListener::bind).
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixListener> {
        let socket = Socket::listen(&Address::from(address.clone()), false)?;
        Ok(UnixListener { acceptor: Acceptor::new(socket) })
    }

    /// Waits for the next connection. Of several who wait, each has one in its turn.
    ///
    /// # Errors
    /// As [`TcpListener::accept`](crate::net::TcpListener::accept).
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let handle = self.acceptor.accept()?;
        UnixStream::accepted(&here()?, handle)
    }

    /// An arm of [`select!`](crate::select!) that accepts a connection, if it is chosen.
    pub fn accepting(&self) -> Accepting<'_, (UnixStream, SocketAddr)> {
        self.acceptor.accepting(UnixStream::accepted_from)
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// It is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        unix(self.acceptor.socket.local_address()?)
    }

    /// Closes it: whoever waits in [`accept`](UnixListener::accept) is told `EBADF`.
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
    pub fn from_std(listener: std::os::unix::net::UnixListener) -> io::Result<UnixListener> {
        Ok(UnixListener { acceptor: Acceptor::new(Socket::adopt(listener.into())?) })
    }
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(f, "UnixListener", &self.acceptor.socket)
    }
}

/// A Unix datagram socket: what `std::os::unix::net::UnixDatagram` is, for a coroutine.
///
/// ```
/// use coracle_coro::net::UnixDatagram;
/// use std::os::linux::net::SocketAddrExt;
/// use std::os::unix::net::SocketAddr;
///
/// coracle_coro::run(|| {
///     let address = SocketAddr::from_abstract_name(format!("coracle dgram {}", std::process::id()))?;
///     let (here, there) = (UnixDatagram::unbound()?, UnixDatagram::bind_addr(&address)?);
///     here.send_to_addr(b"ahoy", &address)?;
///     let mut space = [0; 16];
///     let count = there.recv(&mut space)?;
///     assert_eq!(&space[..count], b"ahoy");
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixDatagram {
    socket: Rc<Socket>,
}

impl UnixDatagram {
    /// A socket at `path`.
    ///
    /// # Errors
    /// Something is there, or may not be.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixDatagram> {
        UnixDatagram::bind_addr(&SocketAddr::from_pathname(path)?)
    }

    /// A socket at a path or an abstract name.
    ///
    /// # Errors
    /// As [`bind`](UnixDatagram::bind).
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixDatagram> {
        let socket = Socket::make(SocketKind::UnixDatagram)?;
        let address = Address::from(address.clone());
        here()?.bind(socket.handle, &address).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot use {address}: {error}"))
        })?;
        Ok(UnixDatagram { socket })
    }

    /// A socket without a name, to which nobody can send.
    ///
    /// # Errors
    /// There are no descriptors.
    pub fn unbound() -> io::Result<UnixDatagram> {
        Ok(UnixDatagram { socket: Socket::make(SocketKind::UnixDatagram)? })
    }

    /// Sends to that path only, and hears only from there.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.connect_addr(&SocketAddr::from_pathname(path)?)
    }

    /// The same for a path or an abstract name.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        self.socket.connect(Address::from(address.clone()), None)
    }

    /// Sends one message to `path`.
    ///
    /// # Errors
    /// As for all waits, and what the kernel says.
    pub fn send_to(&self, message: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.send_to_addr(message, &SocketAddr::from_pathname(path)?)
    }

    /// The same for a path or an abstract name.
    ///
    /// # Errors
    /// As for all waits, and what the kernel says.
    pub fn send_to_addr(&self, message: &[u8], address: &SocketAddr) -> io::Result<usize> {
        datagram::send(&self.socket, message, Some(Address::from(address.clone())))
    }

    /// Receives one message, and says from whom. What does not fit into `space` is lost.
    ///
    /// # Errors
    /// As for all waits, and what the kernel says.
    pub fn recv_from(&self, space: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let message = datagram::receive_from(&self.socket, space)?;
        let from = match message.from {
            Some(from) => unix(from)?,
            None => SocketAddr::from_pathname("")?, // one without a name
        };
        Ok((message.count, from))
    }

    datagram_methods!(UnixDatagram);

    /// The address of this socket.
    ///
    /// # Errors
    /// It is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        unix(self.socket.local_address()?)
    }

    /// Takes over a socket of std's.
    ///
    /// # Errors
    /// There is no loop, or it refuses the descriptor.
    pub fn from_std(socket: std::os::unix::net::UnixDatagram) -> io::Result<UnixDatagram> {
        Ok(UnixDatagram { socket: Socket::adopt(socket.into())? })
    }
}

impl fmt::Debug for UnixDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(f, "UnixDatagram", &self.socket)
    }
}

/// The address of a Unix socket.
fn unix(address: Address) -> io::Result<SocketAddr> {
    match address {
        Address::Unix(address) => Ok(*address),
        Address::Ip(address) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{address} is an IP address, and no Unix socket"),
        )),
    }
}
