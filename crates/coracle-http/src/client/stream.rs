//! What carries the bytes of a connection to a server.

use coracle_coro::net::{TcpStream, UnixStream};
use coracle_coro::select;
use coracle_net::Conn;
use std::fmt;
use std::io::{self, Read, Write};
use std::rc::Rc;

/// A connection that passes through something, such as TLS. Both directions may be used at once, by two
/// coroutines.
pub trait Duplex {
    /// Waits for some bytes; none at the end of the stream.
    ///
    /// # Errors
    /// Those of the connection. An end without a proper end of what it passes through is one.
    fn read(&self, space: &mut [u8]) -> io::Result<usize>;

    /// Sends all of them.
    ///
    /// # Errors
    /// Those of the connection.
    fn write_all(&self, bytes: &[u8]) -> io::Result<()>;

    /// Ends it: whoever waits for it is told an error.
    fn close(&self);

    /// Whether nothing has come that is for its reader: neither bytes, nor the end of the stream. Does not wait.
    fn is_quiet(&self) -> bool;

    /// Gives it up for a connection of the same loop, on which another protocol is spoken.
    ///
    /// # Errors
    /// It has other owners; or, unless it says otherwise, `Unsupported`.
    fn into_parts(self: Rc<Self>) -> io::Result<Parts> {
        let text = "what secures this connection cannot be put on another";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }
}

/// What becomes of a [`Duplex`] that is given up.
pub struct Parts {
    /// What is below.
    pub socket: TcpStream,
    /// Puts what it passed through on a connection on that socket, as [`Conn::push_layer`] does.
    pub secure: Box<dyn FnOnce(&mut Conn<'_>)>,
    /// What came and was not read.
    pub unread: Vec<u8>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Makes connections secure: TLS, for URLs that begin with `https`.
pub trait Secure: Send + Sync + 'static {
    /// Agrees on a secret with a server, which proves that it is `host`. It may wait.
    ///
    /// # Errors
    /// Those of the connection; that the server is somebody else.
    fn secure(&self, stream: TcpStream, host: &str) -> io::Result<Rc<dyn Duplex>>;
}

/// An open connection.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Secured(Rc<dyn Duplex>),
}

impl Stream {
    /// Another owner of the same connection.
    pub(crate) fn share(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
            Stream::Secured(stream) => Stream::Secured(Rc::clone(stream)),
        })
    }

    #[inline]
    pub(crate) fn read(&self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => { stream }.read(space),
            Stream::Unix(stream) => { stream }.read(space),
            Stream::Secured(stream) => stream.read(space),
        }
    }

    #[inline]
    pub(crate) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => { stream }.write_all(bytes),
            Stream::Unix(stream) => { stream }.write_all(bytes),
            Stream::Secured(stream) => stream.write_all(bytes),
        }
    }

    /// Whether nothing has come: neither the end of the stream, nor something that nobody has asked for.
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            Stream::Tcp(stream) => is_quiet(stream),
            Stream::Secured(stream) => stream.is_quiet(),
            Stream::Unix(stream) => select! {
                _ = stream.readable() => false,
                default => true,
            },
        }
    }

    /// Ends it for all its owners: whoever waits for it is told an error.
    pub(crate) fn close(&self) {
        let _ = match self {
            Stream::Tcp(stream) => stream.close(),
            Stream::Unix(stream) => stream.close(),
            Stream::Secured(stream) => {
                stream.close();
                Ok(())
            }
        };
    }
}

/// Whether a read of it would wait.
pub(super) fn is_quiet(stream: &TcpStream) -> bool {
    select! {
        _ = stream.readable() => false,
        default => true,
    }
}
