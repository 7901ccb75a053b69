//! Sending and receiving messages, the same for UDP and Unix datagrams.

use crate::net::socket::Socket;
use coracle_loop::demux::{Address, Message};
use std::io;
use std::rc::Rc;

/// One message; what does not fit into `space` is lost.
pub(super) fn receive(socket: &Rc<Socket>, space: &mut [u8]) -> io::Result<usize> {
    if space.is_empty() {
        return Ok(receive_from(socket, space)?.count);
    }
    socket.receive(space)
}

pub(super) fn receive_from(socket: &Rc<Socket>, space: &mut [u8]) -> io::Result<Message> {
    socket.receive_message(socket.read_timeout.get(), space)
}

pub(super) fn send(socket: &Rc<Socket>, message: &[u8], to: Option<Address>) -> io::Result<usize> {
    socket.send_message(socket.write_timeout.get(), message, to)
}

/// What both can.
macro_rules! datagram_methods {
    ($socket:ident) => {
        /// Receives one message. What does not fit into `space` is lost.
        ///
        /// # Errors
        /// As for all waits, and what the kernel says: `ECONNREFUSED`, if a peer has refused an earlier message.
        pub fn recv(&self, space: &mut [u8]) -> io::Result<usize> {
            datagram::receive(&self.socket, space)
        }

        /// Sends one message to where the socket is connected to.
        ///
        /// # Errors
        /// As for all waits, and what the kernel says.
        pub fn send(&self, message: &[u8]) -> io::Result<usize> {
            datagram::send(&self.socket, message, None)
        }

        /// Another owner of the same socket.
        ///
        /// # Errors
        /// Never; it is as in std.
        pub fn try_clone(&self) -> io::Result<$socket> {
            Ok($socket { socket: Rc::clone(&self.socket) })
        }

        /// How long a receive may wait; `None`, as at first, for ever.
        ///
        /// # Errors
        /// A time-out of zero is refused, as by std.
        pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
            self.socket.read_timeout.set(check_timeout(timeout)?);
            Ok(())
        }

        /// How long a send may wait.
        ///
        /// # Errors
        /// A time-out of zero is refused, as by std.
        pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
            self.socket.write_timeout.set(check_timeout(timeout)?);
            Ok(())
        }

        /// An arm of [`select!`](crate::select!) that waits until there is a message.
        pub fn readable(&self) -> Readable<'_> {
            Readable::new(&self.socket)
        }

        /// An arm of [`select!`](crate::select!) that waits until there is room for a message.
        pub fn writable(&self) -> Writable<'_> {
            Writable::new(&self.socket)
        }

        /// Closes the socket for all its owners: who waits on it, and who uses it later, is told `EBADF`.
        ///
        /// # Errors
        /// `EBADF` if it was closed before.
        pub fn close(&self) -> io::Result<()> {
            self.socket.close()
        }
    };
}

pub(super) use datagram_methods;
