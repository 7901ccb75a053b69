//! Reading and writing, the same for every stream of bytes.

use crate::net::socket::Socket;
use std::io::{self, IoSlice};
use std::rc::Rc;

/// So many bytes in several stretches are sent as one. More are worth the list that the kernel wants for them.
const GATHERED_BYTES: usize = 1024;

#[inline]
pub(super) fn read(socket: &Rc<Socket>, space: &mut [u8]) -> io::Result<usize> {
    if space.is_empty() {
        return Ok(0);
    }
    socket.receive(space)
}

#[inline]
pub(super) fn write(socket: &Rc<Socket>, bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        return Ok(0);
    }
    socket.send(bytes)
}

pub(super) fn write_vectored(socket: &Rc<Socket>, stretches: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut gathered = [0; GATHERED_BYTES];
    let mut used = 0;
    for stretch in stretches {
        match gathered.get_mut(used..used + stretch.len()) {
            Some(room) => room.copy_from_slice(stretch),
            None => return socket.send_vectored(socket.write_timeout.get(), stretches),
        }
        used += stretch.len();
    }
    write(socket, &gathered[..used])
}

/// `Read` and `Write` for a stream and for references to it, as std has them.
macro_rules! read_and_write {
    ($stream:ident) => {
        impl io::Read for &$stream {
            #[inline]
            fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
                stream::read(&self.socket, space)
            }
        }

        impl io::Read for $stream {
            #[inline]
            fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
                stream::read(&self.socket, space)
            }
        }

        /// A call sends all of its bytes, as a blocking socket does. When it ends before, because of a deadline, a
        /// cancel or the peer, it tells what was sent, and the next call fails.
        impl io::Write for &$stream {
            #[inline]
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                stream::write(&self.socket, bytes)
            }

            fn write_vectored(&mut self, stretches: &[io::IoSlice<'_>]) -> io::Result<usize> {
                stream::write_vectored(&self.socket, stretches)
            }

            /// Nothing is kept back: does nothing.
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl io::Write for $stream {
            #[inline]
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                stream::write(&self.socket, bytes)
            }

            fn write_vectored(&mut self, stretches: &[io::IoSlice<'_>]) -> io::Result<usize> {
                stream::write_vectored(&self.socket, stretches)
            }

            /// Nothing is kept back: does nothing.
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}

/// What every stream can: be shared, limited, ended.
macro_rules! stream_methods {
    ($stream:ident) => {
        /// Another owner of the same socket: both read and write the same bytes. Costs nothing.
        ///
        /// # Errors
        /// Never; it is as in std.
        pub fn try_clone(&self) -> io::Result<$stream> {
            Ok($stream { socket: Rc::clone(&self.socket) })
        }

        /// Two halves with one owner each. Dropping the half that writes ends that direction.
        pub fn into_split(self) -> (ReadHalf<$stream>, WriteHalf<$stream>) {
            halves::split(self)
        }

        /// Reads it ahead: the loop receives whatever comes, and keeps it until somebody reads. The cheapest way
        /// to read many small messages, and lines.
        pub fn read_ahead(self) -> ReadAhead<$stream> {
            let socket = Rc::clone(&self.socket);
            ReadAhead::new(self, socket)
        }

        /// Ends one direction or both. What was written before is sent first, and waited for. Whoever waits in a
        /// read of this end is told the end of the stream.
        ///
        /// # Errors
        /// `ENOTCONN` if the peer is gone; or as for all waits.
        pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
            self.socket.shutdown(how)
        }

        /// Closes the socket for all its owners, and does not wait: who waits on it, and who uses it later, is
        /// told `EBADF`. What was written is still sent.
        ///
        /// # Errors
        /// `EBADF` if it was closed before.
        pub fn close(&self) -> io::Result<()> {
            self.socket.close()
        }

        /// How long a read may wait; `None`, as at first, for ever. It is that of the socket, for all its owners.
        /// Beyond that it fails with `TimedOut`.
        ///
        /// # Errors
        /// A time-out of zero is refused, as by std.
        pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
            self.socket.read_timeout.set(check_timeout(timeout)?);
            Ok(())
        }

        /// How long a write may wait.
        ///
        /// # Errors
        /// As [`set_read_timeout`](Self::set_read_timeout).
        pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
            self.socket.write_timeout.set(check_timeout(timeout)?);
            Ok(())
        }

        /// What [`set_read_timeout`](Self::set_read_timeout) has set.
        ///
        /// # Errors
        /// Never; it is as in std.
        pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
            Ok(self.socket.read_timeout.get())
        }

        /// What [`set_write_timeout`](Self::set_write_timeout) has set.
        ///
        /// # Errors
        /// Never; it is as in std.
        pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
            Ok(self.socket.write_timeout.get())
        }

        /// An arm of [`select!`](crate::select!) that waits until a read would not wait: there are bytes, or the
        /// end of the stream, or an error.
        pub fn readable(&self) -> Readable<'_> {
            Readable::new(&self.socket)
        }

        /// An arm of [`select!`](crate::select!) that waits until a write would not wait.
        pub fn writable(&self) -> Writable<'_> {
            Writable::new(&self.socket)
        }

        /// Gives the descriptor away, to another loop ([`from_descriptor`](Self::from_descriptor)) or a thread.
        /// What was written is with the kernel then; that is waited for.
        ///
        /// # Errors
        /// It has other owners, or others wait on it. It is closed then, when the last of them is gone.
        pub fn into_descriptor(self) -> io::Result<Descriptor> {
            self.socket.detach()
        }

        /// Takes over a descriptor, which must be of this kind of socket.
        ///
        /// # Errors
        /// There is no loop, or it refuses the descriptor.
        pub fn from_descriptor(descriptor: impl Into<Descriptor>) -> io::Result<$stream> {
            Ok($stream { socket: Socket::adopt(descriptor.into())? })
        }
    };
}

pub(super) use {read_and_write, stream_methods};

/// As in std: a time-out of zero would be none.
pub(super) fn check_timeout(
    timeout: Option<std::time::Duration>,
) -> io::Result<Option<std::time::Duration>> {
    match timeout {
        Some(timeout) if timeout.is_zero() => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "a time-out of zero would never wait"))
        }
        timeout => Ok(timeout),
    }
}
