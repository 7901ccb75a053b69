//! Making sockets and setting their options: the calls that never wait.
#![allow(unsafe_code)]

use crate::address::Address;
use crate::descriptor::Kind;
use crate::tcp::{self, KeepAlive};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::time::Duration;

/// What kind of socket to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SocketKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6 (dual stack unless [`SocketOption::OnlyV6`] says otherwise).
    Tcp6,
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6.
    Udp6,
    /// A Unix stream socket.
    UnixStream,
    /// A Unix datagram socket.
    UnixDatagram,
}

impl SocketKind {
    /// The stream socket for an address: TCP over its IP version, or a Unix stream.
    pub fn stream_for(address: &Address) -> SocketKind {
        match address {
            Address::Ip(ip) if ip.is_ipv4() => SocketKind::Tcp4,
            Address::Ip(_) => SocketKind::Tcp6,
            Address::Unix(_) => SocketKind::UnixStream,
        }
    }
}

/// A socket option, by what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketOption {
    /// Bind although old connections of the same address linger (SO_REUSEADDR).
    ReuseAddress(bool),
    /// Let several sockets share an address, the kernel spreading connections (SO_REUSEPORT).
    ReusePort(bool),
    /// Send small packets at once (TCP_NODELAY).
    NoDelay(bool),
    /// Probe an idle peer (SO_KEEPALIVE).
    KeepAlive(Option<KeepAlive>),
    /// A listening socket gives connections out once their first bytes are there, or this much time is over
    /// (TCP_DEFER_ACCEPT).
    DeferAccept(Option<Duration>),
    /// A listening socket takes bytes with the first packet of a peer it knows; at most so many such connections
    /// wait (TCP_FASTOPEN, RFC 7413). 0 turns it off.
    FastOpen(u32),
    /// An IPv6 socket does not take IPv4 connections (IPV6_V6ONLY).
    OnlyV6(bool),
    /// Size of the kernel's receive buffer in bytes (SO_RCVBUF; the kernel doubles it).
    ReceiveBuffer(usize),
    /// Size of the kernel's send buffer in bytes (SO_SNDBUF; the kernel doubles it).
    SendBuffer(usize),
    /// Hear a group (IP_ADD_MEMBERSHIP, IPV6_ADD_MEMBERSHIP) on the interface with this index; 0 leaves that to
    /// the system.
    JoinMulticast {
        /// 224.0.0.0/4 or ff00::/8.
        group: IpAddr,
        /// As if_nametoindex(3) gives it.
        interface: u32,
    },
    /// Hear it no more.
    LeaveMulticast {
        /// As it was joined.
        group: IpAddr,
        /// As it was joined.
        interface: u32,
    },
    /// Send to groups through the interface with this index; 0 leaves that to the system.
    MulticastInterface(u32),
    /// Whether this machine hears what it sends to a group. On, unless it is set; always on the loopback
    /// interface.
    MulticastLoop(bool),
    /// How many routers may pass on what is sent to a group, and one more; 0 does not leave the machine. 1, unless
    /// it is set.
    MulticastTtl(u8),
    /// Close by reset, dropping unsent data (SO_LINGER with time zero).
    ResetOnClose(bool),
}

pub(crate) fn open(kind: SocketKind) -> io::Result<OwnedFd> {
    let (family, kind) = match kind {
        SocketKind::Tcp4 => (AddressFamily::INET, SocketType::STREAM),
        SocketKind::Tcp6 => (AddressFamily::INET6, SocketType::STREAM),
        SocketKind::Udp4 => (AddressFamily::INET, SocketType::DGRAM),
        SocketKind::Udp6 => (AddressFamily::INET6, SocketType::DGRAM),
        SocketKind::UnixStream => (AddressFamily::UNIX, SocketType::STREAM),
        SocketKind::UnixDatagram => (AddressFamily::UNIX, SocketType::DGRAM),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(family, kind, flags, None)?)
}

/// How the seam treats a socket of this kind.
pub(crate) fn kind_of(kind: SocketKind) -> Kind {
    match kind {
        SocketKind::Tcp4 | SocketKind::Tcp6 => Kind::Tcp,
        _ => Kind::Socket,
    }
}

pub(crate) fn shutdown(fd: impl AsFd, how: Shutdown) -> io::Result<()> {
    let how = match how {
        Shutdown::Read => net::Shutdown::Read,
        Shutdown::Write => net::Shutdown::Write,
        Shutdown::Both => net::Shutdown::Both,
    };
    Ok(net::shutdown(fd, how)?)
}

pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

pub(crate) fn bind(fd: impl AsFd, address: &Address) -> io::Result<()> {
    match address {
        Address::Ip(ip) => net::bind(fd, ip)?,
        Address::Unix(unix) => net::bind(fd, &unix_to_kernel(unix)?)?,
    }
    Ok(())
}

pub(crate) fn connect(fd: impl AsFd, address: &Address) -> rustix::io::Result<()> {
    match address {
        Address::Ip(ip) => net::connect(fd, ip),
        Address::Unix(unix) => {
            let unix = unix_to_kernel(unix).map_err(|_| rustix::io::Errno::INVAL)?;
            net::connect(fd, &unix)
        }
    }
}

/// An address as bytes and their number, for requests that outlive a call.
pub(crate) fn encode(address: &Address) -> io::Result<([u8; 128], u32)> {
    let any: net::SocketAddrAny = match address {
        Address::Ip(ip) => (*ip).into(),
        Address::Unix(unix) => unix_to_kernel(unix)?.into(),
    };
    let mut bytes = [0; 128];
    let len = any.addr_len() as usize;
    // SAFETY: `as_ptr` is valid for `addr_len` bytes, which are initialised.
    let encoded = unsafe { std::slice::from_raw_parts(any.as_ptr().cast::<u8>(), len) };
    bytes[..len].copy_from_slice(encoded);
    Ok((bytes, len as u32))
}

/// Sets an option of a socket that no loop has yet.
///
/// ```
/// use coracle_demux::{SocketOption, set_option};
///
/// let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
/// set_option(&socket, SocketOption::FastOpen(16)).unwrap();
/// ```
///
/// # Errors
/// The system's: the socket has no such option, or not that value.
pub fn set_option(fd: impl AsFd, option: SocketOption) -> io::Result<()> {
    match option {
        SocketOption::ReuseAddress(on) => sockopt::set_socket_reuseaddr(fd, on)?,
        SocketOption::ReusePort(on) => sockopt::set_socket_reuseport(fd, on)?,
        SocketOption::NoDelay(on) => sockopt::set_tcp_nodelay(fd, on)?,
        SocketOption::KeepAlive(probes) => tcp::set_keep_alive(fd.as_fd(), probes)?,
        SocketOption::DeferAccept(patience) => tcp::set_defer_accept(fd.as_fd(), patience)?,
        SocketOption::FastOpen(waiting) => tcp::set_fast_open(fd.as_fd(), waiting)?,
        SocketOption::OnlyV6(on) => sockopt::set_ipv6_v6only(fd, on)?,
        SocketOption::ReceiveBuffer(bytes) => sockopt::set_socket_recv_buffer_size(fd, bytes)?,
        SocketOption::SendBuffer(bytes) => sockopt::set_socket_send_buffer_size(fd, bytes)?,
        SocketOption::JoinMulticast { group: IpAddr::V4(group), interface } => {
            sockopt::set_ip_add_membership_with_ifindex(fd, &group, &ANY, interface)?;
        }
        SocketOption::JoinMulticast { group: IpAddr::V6(group), interface } => {
            sockopt::set_ipv6_add_membership(fd, &group, interface)?;
        }
        SocketOption::LeaveMulticast { group: IpAddr::V4(group), interface } => {
            sockopt::set_ip_drop_membership_with_ifindex(fd, &group, &ANY, interface)?;
        }
        SocketOption::LeaveMulticast { group: IpAddr::V6(group), interface } => {
            sockopt::set_ipv6_drop_membership(fd, &group, interface)?;
        }
        SocketOption::MulticastInterface(index) if is_v6(&fd)? => {
            sockopt::set_ipv6_multicast_if(fd, index)?;
        }
        SocketOption::MulticastInterface(index) => {
            sockopt::set_ip_multicast_if_with_ifindex(fd, &ANY, &ANY, index)?;
        }
        SocketOption::MulticastLoop(on) if is_v6(&fd)? => sockopt::set_ipv6_multicast_loop(fd, on)?,
        SocketOption::MulticastLoop(on) => sockopt::set_ip_multicast_loop(fd, on)?,
        SocketOption::MulticastTtl(ttl) if is_v6(&fd)? => {
            sockopt::set_ipv6_multicast_hops(fd, ttl.into())?;
        }
        SocketOption::MulticastTtl(ttl) => sockopt::set_ip_multicast_ttl(fd, ttl.into())?,
        SocketOption::ResetOnClose(on) => {
            sockopt::set_socket_linger(fd, on.then_some(Duration::ZERO))?;
        }
    }
    Ok(())
}

/// Left to the system, or said by the index of an interface.
const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

fn is_v6(fd: impl AsFd) -> io::Result<bool> {
    Ok(sockopt::socket_domain(fd)? == AddressFamily::INET6)
}

pub(crate) fn local_address(fd: impl AsFd) -> io::Result<Address> {
    from_kernel(net::getsockname(fd)?)
}

pub(crate) fn peer_address(fd: impl AsFd) -> io::Result<Address> {
    match net::getpeername(fd)? {
        Some(address) => from_kernel(address),
        None => unnamed(),
    }
}

/// A path or name as the kernel takes it.
pub(crate) fn unix_to_kernel(address: &UnixAddr) -> io::Result<net::SocketAddrUnix> {
    if let Some(path) = address.as_pathname() {
        Ok(net::SocketAddrUnix::new(path)?)
    } else if let Some(name) = address.as_abstract_name() {
        Ok(net::SocketAddrUnix::new_abstract_name(name)?)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "an unnamed Unix address cannot be used"))
    }
}

/// An address as the kernel gave it.
pub(crate) fn from_kernel(address: net::SocketAddrAny) -> io::Result<Address> {
    if let Ok(ip) = std::net::SocketAddr::try_from(address.clone()) {
        return Ok(Address::Ip(ip));
    }
    let unix = net::SocketAddrUnix::try_from(address)?;
    if let Some(name) = unix.abstract_name() {
        Ok(Address::from(UnixAddr::from_abstract_name(name)?))
    } else if let Some(path) = unix.path_bytes() {
        let path = std::ffi::OsStr::from_bytes(path);
        Ok(Address::from(UnixAddr::from_pathname(path)?))
    } else {
        unnamed()
    }
}

fn unnamed() -> io::Result<Address> {
    Ok(Address::from(UnixAddr::from_pathname("")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn f4_multicast_options_are_set_in_both_families() {
        let four = UdpSocket::bind("127.0.0.1:0").unwrap();
        let six = UdpSocket::bind("[::1]:0").unwrap();
        for socket in [&four, &six] {
            set_option(socket, SocketOption::MulticastTtl(7)).unwrap();
            set_option(socket, SocketOption::MulticastLoop(false)).unwrap();
            set_option(socket, SocketOption::MulticastInterface(1)).unwrap();
        }
        assert_eq!(sockopt::ip_multicast_ttl(&four).unwrap(), 7);
        assert!(!sockopt::ip_multicast_loop(&four).unwrap());
        assert_eq!(sockopt::ipv6_multicast_hops(&six).unwrap(), 7);
        assert!(!sockopt::ipv6_multicast_loop(&six).unwrap());
        assert_eq!(sockopt::ipv6_multicast_if(&six).unwrap(), 1);
    }

    #[test]
    fn f4_group_that_is_none_is_refused() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let group = IpAddr::from([192, 0, 2, 1]);
        let error = set_option(&socket, SocketOption::JoinMulticast { group, interface: 1 });
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
