//! Where to connect to, or to listen: an address, or a name that is looked up without holding up the loop.

use crate::net::socket::here;
use crate::waiter::Waiter;
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::rc::Rc;

/// What [`std::net::ToSocketAddrs`] is, for the same types; but a name is looked up on the worker pool, and only
/// the coroutine waits for it.
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

/// Looks up a name.
fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let lp = here()?;
    let waiter = Waiter::new();
    let (waker, place) = (waiter.waker(), Rc::new(RefCell::new(None)));
    let (answer, name) = (Rc::clone(&place), host.to_owned());
    let ask = move || {
        std::net::ToSocketAddrs::to_socket_addrs(&(&*name, port)).map(|found| found.collect())
    };
    let refused = lp.offload(ask, move |_, found| {
        answer.replace(Some(found));
        waker.wake();
    });
    refused.map_err(io::Error::other)?;
    waiter.wait(None).result()?;
    let found = match place.take() {
        Some(Ok(found)) => found,
        Some(Err(panicked)) => Err(io::Error::other(panicked)),
        None => unreachable!("it was woken for the answer"),
    };
    let found: Vec<SocketAddr> = found.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot look up {host:?}: {error}"))
    })?;
    if found.is_empty() {
        let text = format!("cannot look up {host:?}: the name has no address");
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    Ok(found)
}

impl ToSocketAddrs for str {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = self.parse() {
            return Ok(vec![address]);
        }
        let parts = self.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let (host, port): (&str, u16) = parts.ok_or_else(|| {
            let text =
                format!("cannot read {self:?} as an address: write HOST:PORT or [IPv6]:PORT");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        (host, port).to_socket_addrs()
    }
}

impl ToSocketAddrs for (&str, u16) {
    fn to_socket_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        let (host, port) = *self;
        match host.parse::<IpAddr>() {
            Ok(ip) => Ok(vec![SocketAddr::new(ip, port)]),
            Err(_) => look_up(host, port),
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
