//! TCP, for futures.

use super::door::{BACKLOG, Listener};
use super::stream::{ReadHalf, Stream, WriteHalf, delegate};
use super::wire::any_loop;
use coracle_loop::Loop;
use coracle_loop::demux::{Address, Handle, SocketKind, SocketOption};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;

/// A TCP connection, for futures: `AsyncRead` and `AsyncWrite` of the crate `futures-io`.
///
/// It belongs to the loop it was made on, and is used in turns of that loop: in a spawned future, or by
/// `block_on` in a coroutine. The futures it gives can be dropped at any time: bytes that have come stay for
/// the next read.
///
/// **Back-pressure.** Up to 64 KiB are received before somebody reads them; then receiving pauses. Up to 64 KiB
/// are written before they are sent; then writing waits. `flush` waits until all of it is sent.
///
/// **The end.** `close` flushes, and ends our side of the connection; reading goes on. When the stream is
/// dropped, what was written is sent first, for ten seconds at most, and then the connection is closed.
///
/// ```
/// use coracle_coro::future::net::{TcpListener, TcpStream};
/// use coracle_coro::future::{block_on, spawn_future};
/// use futures::{AsyncReadExt, AsyncWriteExt};
///
/// coracle_coro::run(|| {
///     block_on(async {
///         let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap())?;
///         let mut client = TcpStream::connect(listener.local_addr()?).await?;
///         let (stream, _peer) = listener.accept().await?;
///         spawn_future(async move {
///             let (reader, mut writer) = stream.split();
///             futures::io::copy(reader, &mut writer).await
///         });
///         client.write_all(b"ahoy").await?;
///         client.close().await?;
///         let mut answer = String::new();
///         client.read_to_string(&mut answer).await?;
///         assert_eq!(answer, "ahoy");
///         Ok(())
///     })?
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// It stays on its thread:
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<coracle_coro::future::net::TcpStream>();
/// ```
pub struct TcpStream {
    stream: Stream,
}

impl TcpStream {
    /// Connects to an address. For a name, look it up first.
    ///
    /// # Errors
    /// `ECONNREFUSED`, `TimedOut`, …: as connect(2).
    ///
    /// # Panics
    /// Outside a loop.
    pub async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
        let lp = any_loop();
        let address = Address::from(address);
        let socket = lp.socket(SocketKind::stream_for(&address))?;
        let stream = Stream::new(&lp, socket, Vec::new());
        stream.connect(address).await?;
        Ok(TcpStream { stream })
    }

    /// Takes over a connected socket of this loop, with bytes that were received and not read: what
    /// `Conn::hijack` of `coracle-net` gives. Loop thread only.
    ///
    /// ```
    /// use coracle_coro::future::{block_on, net::TcpStream};
    /// use coracle_loop::Loop;
    /// use futures::AsyncReadExt;
    ///
    /// coracle_coro::run(|| {
    ///     let lp = Loop::current().unwrap();
    ///     let (socket, _other) = lp.socket_pair()?;
    ///     let mut stream = TcpStream::from_socket(&lp, socket, b"ahoy".to_vec());
    ///     let mut bytes = [0; 4];
    ///     block_on(stream.read_exact(&mut bytes))??;
    ///     assert_eq!(&bytes, b"ahoy");
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn from_socket(lp: &Loop, socket: Handle, unread: Vec<u8>) -> TcpStream {
        TcpStream { stream: Stream::new(lp, socket, unread) }
    }

    /// Takes over a connection of std's.
    ///
    /// # Errors
    /// The loop refuses it: select, when its number is 1024 or above.
    ///
    /// # Panics
    /// Outside a loop.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<TcpStream> {
        let lp = any_loop();
        let socket = lp.adopt(stream)?;
        Ok(TcpStream::from_socket(&lp, socket, Vec::new()))
    }

    /// One half to read and one to write, for two futures.
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        self.stream.split()
    }

    /// The address of this end.
    ///
    /// # Errors
    /// As getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let wire = self.stream.wire();
        ip(wire.lp().local_address(wire.socket())?)
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// `ENOTCONN`, if it is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let wire = self.stream.wire();
        ip(wire.lp().peer_address(wire.socket())?)
    }

    /// Whether small messages are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        let wire = self.stream.wire();
        wire.lp().set_option(wire.socket(), SocketOption::NoDelay(nodelay))
    }
}

delegate!(TcpStream);

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpStream({:?})", self.stream.wire().socket())
    }
}

/// A TCP socket that connections come to, for futures. See [`TcpStream`].
///
/// Once somebody has waited for a connection, up to 64 are accepted ahead of `accept`. They are closed with
/// the listener.
pub struct TcpListener {
    listener: Listener,
}

impl TcpListener {
    /// Listens on an address; with port 0, on any free port.
    ///
    /// # Errors
    /// The address is in use, not of this machine, or not permitted.
    ///
    /// # Panics
    /// Outside a loop.
    pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
        let lp = any_loop();
        let socket = lp.listen(&Address::from(address), BACKLOG)?;
        Ok(TcpListener { listener: Listener::new(&lp, socket) })
    }

    /// Takes over a listening socket of std's.
    ///
    /// ```
    /// use coracle_coro::future::net::{TcpListener, TcpStream};
    /// use coracle_coro::future::block_on;
    ///
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// coracle_coro::run(|| {
    ///     let listener = TcpListener::from_std(listener)?;
    ///     block_on(async {
    ///         let client = TcpStream::connect(listener.local_addr()?).await?;
    ///         let (_stream, peer) = listener.accept().await?;
    ///         assert_eq!(peer, client.local_addr()?);
    ///         Ok(())
    ///     })?
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The loop refuses it: select, when its number is 1024 or above.
    ///
    /// # Panics
    /// Outside a loop.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<TcpListener> {
        let lp = any_loop();
        let socket = lp.adopt(listener)?;
        Ok(TcpListener { listener: Listener::new(&lp, socket) })
    }

    /// The next connection, and who that is. Several futures may wait. Dropping this loses no connection.
    ///
    /// # Errors
    /// `EMFILE` and its kind; the connection stays in the backlog.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let socket = poll_fn(|cx| self.listener.poll_accept(cx)).await?;
            let stream = TcpStream::from_socket(&self.listener.lp(), socket, Vec::new());
            // One that is gone already has none, and is nobody's business.
            if let Ok(peer) = stream.peer_addr() {
                return Ok((stream, peer));
            }
        }
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// As getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        ip(self.listener.lp().local_address(self.listener.socket())?)
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpListener({:?})", self.listener.socket())
    }
}

fn ip(address: Address) -> io::Result<SocketAddr> {
    address.ip().ok_or_else(|| io::Error::other("a socket that is not of TCP has no IP address"))
}
