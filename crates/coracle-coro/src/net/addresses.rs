//! Where to connect to, or to listen: an address, or a name that is looked up without holding up the loop.

use crate::names::lookup_host;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// What [`std::net::ToSocketAddrs`] is, for the same types; but for a name only the coroutine waits, and it is
/// [remembered](crate::names) for a while.
///
/// ```
/// use coracle_coro::net::ToSocketAddrs;
///
/// coracle_coro::run(|| {
///     assert_eq!("127.0.0.1:80".to_socket_addrs()?, ["127.0.0.1:80".parse().unwrap()]);
///     assert!(("localhost", 80).to_socket_addrs()?.iter().all(|address| address.ip().is_loopback()));
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait ToSocketAddrs {
    /// The addresses it stands for.
    ///
    /// # Errors
    /// The name cannot be looked up, or has no port; or as for all waits.
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>>;
}

impl ToSocketAddrs for str {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        lookup_host(self)
    }
}

impl ToSocketAddrs for (&str, u16) {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        let (host, port) = *self;
        match host.parse::<IpAddr>() {
            Ok(ip) => Ok(vec![SocketAddr::new(ip, port)]),
            Err(_) => lookup_host(&format!("{host}:{port}")),
        }
    }
}

impl ToSocketAddrs for String {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        (**self).to_socket_addrs()
    }
}

impl ToSocketAddrs for (String, u16) {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        (&*self.0, self.1).to_socket_addrs()
    }
}

impl ToSocketAddrs for [SocketAddr] {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(self.to_vec())
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        (**self).to_socket_addrs()
    }
}

macro_rules! one_address {
    ($($kind:ty),*) => {
        $(impl ToSocketAddrs for $kind {
            fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
                Ok(vec![SocketAddr::from(*self)])
            }
        })*
    };
}

one_address!(
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6,
    (IpAddr, u16),
    (Ipv4Addr, u16),
    (Ipv6Addr, u16)
);

/// The first of several addresses with which `act` succeeds; else the last failure.
pub(super) fn first<T>(
    addresses: impl ToSocketAddrs,
    mut act: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut failure = None;
    for address in addresses.to_socket_addrs()? {
        match act(address) {
            Ok(done) => return Ok(done),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "there is no address in the list")
    }))
}
