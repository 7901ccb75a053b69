//! Where a socket is, or whom it talks to.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::Path;

/// The address of a socket: IP and port, or a Unix path or abstract name.
///
/// ```
/// use coracle_demux::Address;
///
/// let address: Address = "127.0.0.1:7000".parse().unwrap();
/// assert_eq!(address.to_string(), "127.0.0.1:7000");
/// let address: Address = "unix:/run/coracle.sock".parse().unwrap();
/// assert_eq!(address.to_string(), "unix:/run/coracle.sock");
/// let address: Address = "unix:@abstract".parse().unwrap();
/// assert_eq!(address.to_string(), "unix:@abstract");
/// ```
#[derive(Debug, Clone)]
pub enum Address {
    /// An IPv4 or IPv6 address with a port.
    Ip(SocketAddr),
    /// A Unix path, abstract name, or unnamed. Boxed because it is large and rare.
    Unix(Box<UnixAddr>),
}

impl Address {
    /// The IP address and port, or `None` for a Unix address.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Address::Ip(address) => Some(*address),
            Address::Unix(_) => None,
        }
    }

    /// The path of a Unix address that has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Address::Ip(_) => None,
            Address::Unix(address) => address.as_pathname(),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Ip(address)
    }
}

impl From<UnixAddr> for Address {
    fn from(address: UnixAddr) -> Address {
        Address::Unix(Box::new(address))
    }
}

impl std::str::FromStr for Address {
    type Err = io::Error;

    /// Reads `IP:PORT`, `unix:PATH` or `unix:@NAME`.
    fn from_str(text: &str) -> io::Result<Address> {
        if let Some(name) = text.strip_prefix("unix:@") {
            return UnixAddr::from_abstract_name(name).map(Address::from);
        }
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return UnixAddr::from_pathname(path).map(Address::from);
        }
        text.parse().map(Address::Ip).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("cannot read {text:?} as an address: write IP:PORT, [IPv6]:PORT, unix:PATH or unix:@NAME"),
            )
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(address) => address.fmt(f),
            Address::Unix(address) => {
                if let Some(path) = address.as_pathname() {
                    write!(f, "unix:{}", path.display())
                } else if let Some(name) = address.as_abstract_name() {
                    write!(f, "unix:@{}", name.escape_ascii())
                } else {
                    f.write_str("unix:(unnamed)")
                }
            }
        }
    }
}

impl PartialEq for Address {
    fn eq(&self, other: &Address) -> bool {
        match (self, other) {
            (Address::Ip(a), Address::Ip(b)) => a == b,
            (Address::Unix(a), Address::Unix(b)) => {
                a.as_pathname() == b.as_pathname() && a.as_abstract_name() == b.as_abstract_name()
            }
            _ => false,
        }
    }
}

impl Eq for Address {}
