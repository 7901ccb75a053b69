//! The two directions of a stream, with an owner each.

use crate::net::read_ahead::ReadAhead;
use crate::net::socket::Socket;
use crate::net::tcp::TcpStream;
use crate::net::unix::UnixStream;
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::rc::Rc;

/// The half of a stream that reads. See [`TcpStream::into_split`].
///
/// ```
/// use coracle_coro::net::UnixStream;
/// use std::io::{Read, Write};
///
/// coracle_coro::run(|| {
///     let (here, mut there) = UnixStream::pair()?;
///     let (mut reading, mut writing) = here.into_split();
///     let writer = coracle_coro::spawn(move || writing.write_all(b"ahoy")); // and ends that direction
///     let mut heard = String::new();
///     there.read_to_string(&mut heard)?;
///     assert_eq!(heard, "ahoy");
///     there.write_all(b"!")?;
///     reading.read_exact(&mut [0])?;
///     writer.join().unwrap()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ReadHalf<S> {
    stream: S,
}

/// The half of a stream that writes. When it is dropped, the peer is told the end of the stream.
#[derive(Debug)]
pub struct WriteHalf<S: Stream> {
    stream: S,
}

/// A stream that can be split. Not for others: it may change.
#[doc(hidden)]
pub trait Stream: Read + Write + Sized {
    #[doc(hidden)]
    fn __shutdown_later(&self, how: Shutdown);

    #[doc(hidden)]
    fn __share(&self) -> Self;
}

macro_rules! stream {
    ($stream:ident) => {
        impl ReadHalf<$stream> {
            /// Reads it ahead: see [`ReadAhead`].
            pub fn read_ahead(self) -> ReadAhead<ReadHalf<$stream>> {
                let socket = Rc::clone(&self.stream.socket);
                ReadAhead::new(self, socket)
            }
        }

        impl Stream for $stream {
            fn __shutdown_later(&self, how: Shutdown) {
                Socket::shutdown_later(&self.socket, how);
            }

            fn __share(&self) -> $stream {
                $stream { socket: Rc::clone(&self.socket) }
            }
        }
    };
}

stream!(TcpStream);
stream!(UnixStream);

pub(super) fn split<S: Stream>(stream: S) -> (ReadHalf<S>, WriteHalf<S>) {
    (ReadHalf { stream: stream.__share() }, WriteHalf { stream })
}

impl<S> ReadHalf<S> {
    /// The stream, for everything else.
    pub fn stream(&self) -> &S {
        &self.stream
    }
}

impl<S: Stream> WriteHalf<S> {
    /// The stream, for everything else.
    pub fn stream(&self) -> &S {
        &self.stream
    }
}

impl<S: Stream> Read for ReadHalf<S> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.stream.read(space)
    }
}

impl<S: Stream> Write for WriteHalf<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn write_vectored(&mut self, stretches: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(stretches)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl<S: Stream> Drop for WriteHalf<S> {
    fn drop(&mut self) {
        self.stream.__shutdown_later(Shutdown::Write);
    }
}
