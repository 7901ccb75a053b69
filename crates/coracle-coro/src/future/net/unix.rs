//! Unix stream sockets, for futures.

use super::door::{BACKLOG, Listener};
use super::stream::{ReadHalf, Stream, WriteHalf, delegate};
use super::wire::any_loop;
use coracle_loop::demux::{Address, SocketKind};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;

/// A Unix connection, for futures: all that is said of [`TcpStream`](super::TcpStream) holds.
///
/// ```
/// use coracle_coro::future::{block_on, net::UnixStream};
/// use futures::{AsyncReadExt, AsyncWriteExt};
///
/// coracle_coro::run(|| {
///     block_on(async {
///         let (mut one, mut other) = UnixStream::pair()?;
///         one.write_all(b"ahoy").await?;
///         drop(one); // which sends it
///         let mut heard = String::new();
///         other.read_to_string(&mut heard).await?;
///         assert_eq!(heard, "ahoy");
///         Ok(())
///     })?
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixStream {
    stream: Stream,
}

impl UnixStream {
    /// Connects to a socket in the file system.
    ///
    /// # Errors
    /// `ENOENT`, `ECONNREFUSED`, …: as connect(2).
    ///
    /// # Panics
    /// Outside a loop.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        let address = SocketAddr::from_pathname(path)?;
        UnixStream::connect_addr(address).await
    }

    /// Connects to an address, which may be an abstract name.
    ///
    /// # Errors
    /// As [`connect`](UnixStream::connect).
    pub async fn connect_addr(address: SocketAddr) -> io::Result<UnixStream> {
        let lp = any_loop();
        let socket = lp.socket(SocketKind::UnixStream)?;
        let stream = Stream::new(&lp, socket, Vec::new());
        stream.connect(Address::from(address)).await?;
        Ok(UnixStream { stream })
    }

    /// Two that are connected with each other.
    ///
    /// # Errors
    /// There are no more descriptors.
    ///
    /// # Panics
    /// Outside a loop.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let lp = any_loop();
        let (one, other) = lp.socket_pair()?;
        let stream = |socket| UnixStream { stream: Stream::new(&lp, socket, Vec::new()) };
        Ok((stream(one), stream(other)))
    }

    /// One half to read and one to write, for two futures.
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        self.stream.split()
    }
}

delegate!(UnixStream);

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnixStream({:?})", self.stream.wire().socket())
    }
}

/// A Unix socket that connections come to, for futures. See [`TcpListener`](super::TcpListener).
///
/// Its file is not removed.
pub struct UnixListener {
    listener: Listener,
}

impl UnixListener {
    /// Listens on a path, where nothing may be.
    ///
    /// # Errors
    /// `EADDRINUSE`, …: as bind(2).
    ///
    /// # Panics
    /// Outside a loop.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixListener> {
        UnixListener::bind_addr(SocketAddr::from_pathname(path)?)
    }

    /// Listens on an address, which may be an abstract name.
    ///
    /// # Errors
    /// As [`bind`](UnixListener::bind).
    pub fn bind_addr(address: SocketAddr) -> io::Result<UnixListener> {
        let lp = any_loop();
        let socket = lp.listen(&Address::from(address), BACKLOG)?;
        Ok(UnixListener { listener: Listener::new(&lp, socket) })
    }

    /// Takes over a listening socket of std's.
    ///
    /// # Errors
    /// The loop refuses it: select, when its number is 1024 or above.
    ///
    /// # Panics
    /// Outside a loop.
    pub fn from_std(listener: std::os::unix::net::UnixListener) -> io::Result<UnixListener> {
        let lp = any_loop();
        let socket = lp.adopt(listener)?;
        Ok(UnixListener { listener: Listener::new(&lp, socket) })
    }

    /// The next connection. Several futures may wait. Dropping this loses no connection.
    ///
    /// # Errors
    /// `EMFILE` and its kind; the connection stays in the backlog.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        let socket = poll_fn(|cx| self.listener.poll_accept(cx)).await?;
        Ok(UnixStream { stream: Stream::new(&self.listener.lp(), socket, Vec::new()) })
    }
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnixListener({:?})", self.listener.socket())
    }
}
