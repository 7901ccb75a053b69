//! UDP, with the names of `std::net`.

use crate::net::addresses::{ToSocketAddrs, first};
use crate::net::arms::{Readable, Writable};
use crate::net::datagram::{self, datagram_methods};
use crate::net::socket::{Socket, here};
use crate::net::stream::check_timeout;
use crate::net::tcp::{debug, ip, os};
use coracle_loop::demux::{Address, SocketKind, SocketOption};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// A UDP socket: what `std::net::UdpSocket` is, for a coroutine.
///
/// ```
/// use coracle_coro::net::UdpSocket;
///
/// coracle_coro::run(|| {
///     let (here, there) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
///     here.send_to(b"ahoy", there.local_addr()?)?;
///     let mut space = [0; 16];
///     let (count, from) = there.recv_from(&mut space)?;
///     assert_eq!((&space[..count], from), (&b"ahoy"[..], here.local_addr()?));
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UdpSocket {
    socket: Rc<Socket>,
}

impl UdpSocket {
    /// A socket with the first of the addresses that it can have. Port 0 is any free one.
    ///
    /// # Errors
    /// Names the address and the reason.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        first(address, |address| {
            let kind = if address.is_ipv4() { SocketKind::Udp4 } else { SocketKind::Udp6 };
            let socket = Socket::make(kind)?;
            here()?.bind(socket.handle, &Address::Ip(address)).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot use {address}: {error}"))
            })?;
            Ok(UdpSocket { socket })
        })
    }

    /// Sends to that address only, and hears only from there.
    ///
    /// # Errors
    /// What the kernel says to the last of the addresses.
    pub fn connect(&self, address: impl ToSocketAddrs) -> io::Result<()> {
        first(address, |address| self.socket.connect(Address::Ip(address), None))
    }

    /// Sends one message to `address`.
    ///
    /// # Errors
    /// `EMSGSIZE` if it is too long, and whatever else the kernel says; or as for all waits.
    pub fn send_to(&self, message: &[u8], address: impl ToSocketAddrs) -> io::Result<usize> {
        let none = || io::Error::new(io::ErrorKind::InvalidInput, "there is no address to send to");
        let address = address.to_socket_addrs()?.first().copied().ok_or_else(none)?;
        datagram::send(&self.socket, message, Some(Address::Ip(address)))
    }

    /// Receives one message, and says from whom. What does not fit into `space` is lost.
    ///
    /// # Errors
    /// As for all waits, and what the kernel says.
    pub fn recv_from(&self, space: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let message = datagram::receive_from(&self.socket, space)?;
        let from = message.from.ok_or_else(|| io::Error::other("a message without a sender"))?;
        Ok((message.count, ip(from)?))
    }

    datagram_methods!(UdpSocket);

    /// The address of this socket.
    ///
    /// # Errors
    /// It is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        ip(self.socket.local_address()?)
    }

    /// Where it is connected to.
    ///
    /// # Errors
    /// `ENOTCONN`: nowhere.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        ip(self.socket.peer_address()?)
    }

    /// Sets any option of the socket: groups, buffers.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_option(&self, option: SocketOption) -> io::Result<()> {
        self.socket.set_option(option)
    }

    /// Takes over a socket of std's.
    ///
    /// # Errors
    /// There is no loop, or it refuses the descriptor.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<UdpSocket> {
        Ok(UdpSocket { socket: Socket::adopt(socket.into())? })
    }

    /// Makes a socket of std's of it, which blocks.
    ///
    /// # Errors
    /// It has other owners, or others wait on it; or it is simulated.
    pub fn into_std(self) -> io::Result<std::net::UdpSocket> {
        let socket = std::net::UdpSocket::from(os(self.socket.detach()?)?);
        socket.set_nonblocking(false)?;
        Ok(socket)
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(f, "UdpSocket", &self.socket)
    }
}
