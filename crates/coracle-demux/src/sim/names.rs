//! Who is bound where: the address book of the simulated network.
//!
//! ```text
//!  (TCP, 80)  ──► 127.0.0.1 → #3      connect 127.0.0.1:80 ──► #3
//!             └─► 0.0.0.0   → #5 #6   connect 10.1.2.3:80  ──► #5 or #6 (both with ReusePort)
//!  unix path or abstract name ──► #7
//! ```
//!
//! The whole network is one host to which every IP address belongs. A Unix path exists from bind to
//! close: there is no socket file left over, because nothing in the simulation could remove it.

use super::descriptor::{Id, Options};
use crate::address::Address;
use crate::socket::SocketKind;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::PathBuf;

/// The ports given to those who do not care (RFC 6335, section 6: dynamic ports).
const EPHEMERAL_PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// The address book.
pub(super) struct Names {
    ports: BTreeMap<(Transport, u16), Vec<Binding>>,
    unix: BTreeMap<UnixName, Id>,
    next_port: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Transport {
    Tcp,
    Udp,
}

struct Binding {
    ip: IpAddr,
    only_v6: bool,
    reuse_port: bool,
    socket: Id,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum UnixName {
    Path(PathBuf),
    Abstract(Vec<u8>),
}

impl Names {
    pub(super) fn new() -> Names {
        Names { ports: BTreeMap::new(), unix: BTreeMap::new(), next_port: *EPHEMERAL_PORTS.start() }
    }

    /// Binds a socket, and gives the address it now has: port 0 has become a real one.
    pub(super) fn bind(
        &mut self,
        socket: Id,
        kind: SocketKind,
        options: &Options,
        address: &Address,
    ) -> Result<Address, Errno> {
        check_family(kind, address)?;
        let mut ip = match address {
            Address::Unix(unix) => {
                let name = unix_name(unix).ok_or(Errno::INVAL)?;
                if self.unix.contains_key(&name) {
                    return Err(Errno::ADDRINUSE);
                }
                self.unix.insert(name, socket);
                return Ok(address.clone());
            }
            Address::Ip(ip) => *ip,
        };
        let transport = transport(kind);
        if ip.port() == 0 {
            ip.set_port(self.free_port(kind));
        }
        let binding = Binding {
            ip: canonical(ip).ip(),
            only_v6: options.only_v6,
            reuse_port: options.reuse_port,
            socket,
        };
        let others = self.ports.entry((transport, ip.port())).or_default();
        if others.iter().any(|other| conflict(other, &binding)) {
            return Err(Errno::ADDRINUSE);
        }
        others.push(binding);
        Ok(Address::Ip(ip))
    }

    /// A port nobody is bound to.
    pub(super) fn free_port(&mut self, kind: SocketKind) -> u16 {
        let transport = transport(kind);
        for _ in EPHEMERAL_PORTS {
            let port = self.next_port;
            self.next_port = port.checked_add(1).unwrap_or(*EPHEMERAL_PORTS.start());
            if self.ports.get(&(transport, port)).is_none_or(Vec::is_empty) {
                return port;
            }
        }
        // All are bound: the next one conflicts, unless it may be shared.
        self.next_port
    }

    /// Who is bound where `address` leads: several when they share a port.
    pub(super) fn find(&self, kind: SocketKind, address: &Address) -> Vec<Id> {
        let ip = match address {
            Address::Unix(unix) => {
                let found = unix_name(unix).and_then(|name| self.unix.get(&name));
                return found.copied().into_iter().collect();
            }
            Address::Ip(ip) => reachable(*ip),
        };
        let Some(bindings) = self.ports.get(&(transport(kind), ip.port())) else {
            return Vec::new();
        };
        // The closest match wins: the address itself, its family's wildcard, a dual-stack wildcard.
        let closest = |is_match: &dyn Fn(&Binding) -> bool| -> Vec<Id> {
            bindings.iter().filter(|binding| is_match(binding)).map(|b| b.socket).collect()
        };
        let mut found = closest(&|binding| binding.ip == ip.ip());
        if found.is_empty() {
            let same_family = |binding: &Binding| binding.ip.is_ipv4() == ip.is_ipv4();
            found = closest(&|binding| binding.ip.is_unspecified() && same_family(binding));
        }
        if found.is_empty() && ip.is_ipv4() {
            found = closest(&|binding| takes_both_families(binding));
        }
        found
    }

    /// Forgets a socket that was bound to `address`. An accepted connection has its listener's address
    /// but is not bound to it, so the socket decides, not the address.
    pub(super) fn forget(&mut self, socket: Id, kind: SocketKind, address: &Address) {
        match address {
            Address::Ip(ip) => {
                let key = (transport(kind), ip.port());
                if let Some(bindings) = self.ports.get_mut(&key) {
                    bindings.retain(|binding| binding.socket != socket);
                    if bindings.is_empty() {
                        self.ports.remove(&key);
                    }
                }
            }
            Address::Unix(unix) => {
                if let Some(name) = unix_name(unix)
                    && self.unix.get(&name) == Some(&socket)
                {
                    self.unix.remove(&name);
                }
            }
        }
    }
}

/// `EAFNOSUPPORT` unless a socket of this kind can have or reach such an address.
pub(super) fn check_family(kind: SocketKind, address: &Address) -> Result<(), Errno> {
    let fits = match (kind, address) {
        (SocketKind::Tcp4 | SocketKind::Udp4, Address::Ip(ip)) => ip.is_ipv4(),
        (SocketKind::Tcp6 | SocketKind::Udp6, Address::Ip(ip)) => ip.is_ipv6(),
        (SocketKind::UnixStream | SocketKind::UnixDatagram, Address::Unix(_)) => true,
        _ => false,
    };
    if fits { Ok(()) } else { Err(Errno::AFNOSUPPORT) }
}

/// What connecting to nobody is answered with.
pub(super) fn nobody_there(address: &Address) -> Errno {
    match address {
        Address::Unix(unix) if unix.as_pathname().is_some() => Errno::NOENT,
        _ => Errno::CONNREFUSED,
    }
}

/// Where a packet to `address` goes: "any address" means this host.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let mut address = canonical(address);
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

/// An address as a socket of this kind is told it: an IPv6 socket sees IPv4 peers as `::ffff:a.b.c.d`.
pub(super) fn as_seen_by(kind: SocketKind, address: SocketAddr) -> Address {
    Address::Ip(match (kind, address) {
        (SocketKind::Tcp6 | SocketKind::Udp6, SocketAddr::V4(v4)) => {
            SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
        }
        _ => address,
    })
}

/// The address of a socket that has none yet.
pub(super) fn unbound(kind: SocketKind) -> Address {
    match kind {
        SocketKind::Tcp4 | SocketKind::Udp4 => Address::Ip((Ipv4Addr::UNSPECIFIED, 0).into()),
        SocketKind::Tcp6 | SocketKind::Udp6 => Address::Ip((Ipv6Addr::UNSPECIFIED, 0).into()),
        SocketKind::UnixStream | SocketKind::UnixDatagram => unnamed(),
    }
}

/// The address of a Unix socket nobody has given a name.
pub(super) fn unnamed() -> Address {
    Address::from(UnixAddr::from_pathname("").expect("an empty path is the unnamed address"))
}

fn transport(kind: SocketKind) -> Transport {
    match kind {
        SocketKind::Udp4 | SocketKind::Udp6 => Transport::Udp,
        _ => Transport::Tcp,
    }
}

/// The address without what does not tell hosts apart: IPv4 in disguise, flow label and scope.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn conflict(a: &Binding, b: &Binding) -> bool {
    let overlap = a.ip == b.ip
        || (a.ip.is_ipv4() == b.ip.is_ipv4() && (a.ip.is_unspecified() || b.ip.is_unspecified()))
        || (takes_both_families(a) && b.ip.is_ipv4())
        || (takes_both_families(b) && a.ip.is_ipv4());
    overlap && !(a.reuse_port && b.reuse_port)
}

fn takes_both_families(binding: &Binding) -> bool {
    binding.ip == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && !binding.only_v6
}

fn unix_name(address: &UnixAddr) -> Option<UnixName> {
    match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => Some(UnixName::Path(path.to_owned())),
        (_, Some(name)) => Some(UnixName::Abstract(name.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: SocketKind = SocketKind::Tcp4;

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    fn bind(names: &mut Names, id: u64, kind: SocketKind, at: &str) -> Result<Address, Errno> {
        names.bind(Id(id), kind, &Options::default(), &address(at))
    }

    #[test]
    fn port_zero_becomes_a_free_port() {
        let mut names = Names::new();
        let first = bind(&mut names, 1, TCP, "127.0.0.1:0").unwrap().ip().unwrap();
        let second = bind(&mut names, 2, TCP, "127.0.0.1:0").unwrap().ip().unwrap();
        assert!(first.port() != 0 && second.port() != 0 && first != second);
    }

    #[test]
    fn an_address_in_use_is_refused_until_forgotten() {
        let mut names = Names::new();
        bind(&mut names, 1, TCP, "0.0.0.0:80").unwrap();
        assert_eq!(bind(&mut names, 2, TCP, "127.0.0.1:80").unwrap_err(), Errno::ADDRINUSE);
        assert_eq!(bind(&mut names, 2, SocketKind::Tcp6, "[::]:80").unwrap_err(), Errno::ADDRINUSE);
        bind(&mut names, 2, SocketKind::Udp4, "127.0.0.1:80").unwrap();
        names.forget(Id(1), TCP, &address("0.0.0.0:80"));
        bind(&mut names, 3, TCP, "127.0.0.1:80").unwrap();
    }

    #[test]
    fn the_closest_binding_is_found() {
        let mut names = Names::new();
        let shared = Options { reuse_port: true, ..Options::default() };
        names.bind(Id(1), TCP, &shared, &address("127.0.0.1:80")).unwrap();
        names.bind(Id(2), TCP, &shared, &address("0.0.0.0:80")).unwrap();
        names.bind(Id(3), SocketKind::Tcp6, &shared, &address("[::]:80")).unwrap();
        names.bind(Id(4), SocketKind::Tcp6, &shared, &address("[::]:80")).unwrap();
        assert_eq!(names.find(TCP, &address("127.0.0.1:80")), [Id(1)]);
        assert_eq!(names.find(TCP, &address("10.0.0.1:80")), [Id(2)]);
        assert_eq!(names.find(SocketKind::Tcp6, &address("[::1]:80")), [Id(3), Id(4)]);
        assert_eq!(names.find(SocketKind::Tcp6, &address("[::ffff:10.0.0.1]:80")), [Id(2)]);
        assert_eq!(names.find(TCP, &address("10.0.0.1:81")), []);
    }

    #[test]
    fn ipv4_reaches_a_dual_stack_listener_only() {
        let mut names = Names::new();
        let only_v6 = Options { only_v6: true, ..Options::default() };
        bind(&mut names, 1, SocketKind::Tcp6, "[::]:80").unwrap();
        names.bind(Id(2), SocketKind::Tcp6, &only_v6, &address("[::]:81")).unwrap();
        assert_eq!(names.find(TCP, &address("127.0.0.1:80")), [Id(1)]);
        assert_eq!(names.find(TCP, &address("127.0.0.1:81")), []);
    }

    #[test]
    fn families_are_told_apart() {
        let mut names = Names::new();
        assert_eq!(bind(&mut names, 1, TCP, "[::1]:80").unwrap_err(), Errno::AFNOSUPPORT);
        assert_eq!(bind(&mut names, 1, TCP, "unix:/a").unwrap_err(), Errno::AFNOSUPPORT);
        bind(&mut names, 1, SocketKind::UnixStream, "unix:/a").unwrap();
        bind(&mut names, 2, SocketKind::UnixStream, "unix:@a").unwrap();
        assert_eq!(
            bind(&mut names, 3, SocketKind::UnixDatagram, "unix:/a").unwrap_err(),
            Errno::ADDRINUSE
        );
        assert_eq!(names.find(SocketKind::UnixStream, &address("unix:@a")), [Id(2)]);
    }
}
