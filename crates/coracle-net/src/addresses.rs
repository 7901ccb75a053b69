//! What a program may name a place to listen by: text, a port, a path, an address.
//!
//! ```text
//!   127.0.0.1:7000   [::1]:7000        that address
//!   :7000            *:7000            every interface, IPv6 and IPv4
//!   localhost:7000                     whatever the system's resolver says, one or more
//!   unix:/run/a.sock /run/a.sock       a socket in the file system
//!   unix:@name                         an abstract name: Linux, no file
//! ```
//!
//! One text may stand for several addresses: `localhost` is 127.0.0.1 and ::1 on most machines. A client
//! tries them in turn; a server wants them all.

use coracle_loop::demux::Address;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::{Path, PathBuf};

/// What the kernel's address has room for, less the zero at its end (unix(7): `sun_path`).
const PATH_BYTES: usize = 107;

const FORMS: &str = "write IP:PORT, [IPv6]:PORT, NAME:PORT, :PORT for every interface, \
                     unix:PATH, /PATH or unix:@NAME";

/// Something that names one address or more.
///
/// ```
/// use coracle_net::ToAddresses;
/// use std::path::Path;
///
/// let text = |place: &dyn ToAddresses| -> String {
///     place.to_addresses().unwrap().iter().map(|address| address.to_string()).collect()
/// };
/// assert_eq!(text(&"127.0.0.1:7000"), "127.0.0.1:7000");
/// assert_eq!(text(&":7000"), "[::]:7000");
/// assert_eq!(text(&7000_u16), "[::]:7000"); // every interface, IPv6 and IPv4
/// assert_eq!(text(&("127.0.0.1", 7000)), "127.0.0.1:7000");
/// assert_eq!(text(&"/run/coracle.sock"), "unix:/run/coracle.sock");
/// assert_eq!(text(&Path::new("/run/coracle.sock")), "unix:/run/coracle.sock");
/// assert_eq!(text(&"unix:@coracle"), "unix:@coracle");
///
/// let error = "7000".to_addresses().unwrap_err();
/// assert!(error.to_string().contains(":PORT for every interface"));
/// ```
///
/// # Threads
/// A name is resolved by the system, which may ask another machine and take seconds: call this before a loop runs.
pub trait ToAddresses {
    /// The addresses, without duplicates, in the order of preference; never none.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) when this is not the name of an address, with the forms there
    /// are; the resolver's error when a name is not known.
    fn to_addresses(&self) -> io::Result<Vec<Address>>;
}

impl<T: ToAddresses + ?Sized> ToAddresses for &T {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        (**self).to_addresses()
    }
}

impl ToAddresses for str {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        if let Some(name) = self.strip_prefix("unix:@") {
            return abstract_name(name);
        }
        if let Some(path) = self.strip_prefix("unix:") {
            return Path::new(path).to_addresses();
        }
        if self.starts_with('/') {
            return Path::new(self).to_addresses();
        }
        if let Ok(address) = self.parse::<SocketAddr>() {
            return address.to_addresses();
        }
        let unreadable = |cause: &str| {
            let text = format!("cannot read {self:?} as an address: {cause}; {FORMS}");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        let (host, port) = self.rsplit_once(':').ok_or_else(|| match self.parse::<u16>() {
            Ok(port) => unreadable(&format!(
                "a port alone has a colon before it: :{port} is on every interface, \
                 127.0.0.1:{port} on this machine only"
            )),
            Err(_) => unreadable("it has no port"),
        })?;
        // `parse` alone would take a sign: `localhost:+80`.
        let port = Some(port).filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
        let port = port.and_then(|port| port.parse::<u16>().ok());
        let port = port.ok_or_else(|| unreadable("the port is not a number from 0 to 65535"))?;
        // In brackets only IPv6: what the standard library cannot read there has a zone by name, [fe80::1%eth0].
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        match bracketed {
            Some(host) if host.contains('%') => (host, port).to_addresses(),
            Some(_) => Err(unreadable("what is in the brackets is not an IPv6 address")),
            None if host.contains(['/', '@', '[', ']']) || host.contains(char::is_whitespace) => {
                Err(unreadable("what is before the port is neither an IP address nor a name"))
            }
            None if host.contains(':') => Err(unreadable("an IPv6 address goes in brackets")),
            None => (host, port).to_addresses(),
        }
    }
}

impl ToAddresses for String {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        self.as_str().to_addresses()
    }
}

/// Several places, one after the other.
impl<T: ToAddresses> ToAddresses for [T] {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        if self.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "there is no address in the list",
            ));
        }
        let each: io::Result<Vec<Vec<Address>>> = self.iter().map(T::to_addresses).collect();
        Ok(each?.concat())
    }
}

/// A port on every interface, IPv6 and IPv4.
impl<T: ToAddresses, const N: usize> ToAddresses for [T; N] {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        self.as_slice().to_addresses()
    }
}

impl<T: ToAddresses> ToAddresses for Vec<T> {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        self.as_slice().to_addresses()
    }
}

impl ToAddresses for u16 {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        (Ipv6Addr::UNSPECIFIED, *self).to_addresses()
    }
}

/// A name or an IP address, and a port. The name `*` is every interface, and so is the empty one.
impl ToAddresses for (&str, u16) {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        let (host, port) = *self;
        if host.is_empty() || host == "*" {
            return port.to_addresses();
        }
        let found = (host, port).to_socket_addrs().map_err(|error| {
            io::Error::new(error.kind(), format!("cannot resolve {host:?}: {error}"))
        })?;
        let mut addresses = Vec::new();
        for address in found.map(Address::Ip) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            let text = format!("cannot resolve {host:?}: the name has no address");
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        Ok(addresses)
    }
}

impl ToAddresses for (IpAddr, u16) {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        SocketAddr::from(*self).to_addresses()
    }
}

impl ToAddresses for (Ipv4Addr, u16) {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        SocketAddr::from(*self).to_addresses()
    }
}

impl ToAddresses for (Ipv6Addr, u16) {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        SocketAddr::from(*self).to_addresses()
    }
}

impl ToAddresses for SocketAddr {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        Ok(vec![Address::Ip(*self)])
    }
}

impl ToAddresses for Address {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        Ok(vec![self.clone()])
    }
}

/// The path of a Unix socket.
impl ToAddresses for Path {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        let cause = match self.as_os_str().as_bytes() {
            [] => "the path is empty".to_owned(),
            bytes if bytes.contains(&0) => "a path has no zero byte".to_owned(),
            bytes if bytes.len() > PATH_BYTES => {
                format!(
                    "{} bytes are too long for a socket's path, which has at most {PATH_BYTES}",
                    bytes.len()
                )
            }
            _ => return Ok(vec![Address::from(UnixAddr::from_pathname(self)?)]),
        };
        let text = format!("cannot use {self:?} as an address: {cause}");
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }
}

impl ToAddresses for PathBuf {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        self.as_path().to_addresses()
    }
}

fn abstract_name(name: &str) -> io::Result<Vec<Address>> {
    let cause = match name.len() {
        0 => "the name is empty".to_owned(),
        1..=PATH_BYTES => return Ok(vec![format!("unix:@{name}").parse()?]),
        bytes => format!(
            "{bytes} bytes are too long for an abstract name, which has at most {PATH_BYTES}"
        ),
    };
    let text = format!("cannot use \"unix:@{name}\" as an address: {cause}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Address {
        let mut addresses = text.to_addresses().unwrap();
        assert_eq!(addresses.len(), 1, "{text}: {addresses:?}");
        addresses.remove(0)
    }

    fn refusal(place: &(impl ToAddresses + ?Sized)) -> String {
        let error = place.to_addresses().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        error.to_string()
    }

    #[test]
    fn empty_list_is_refused() {
        let nowhere: [&str; 0] = [];
        assert_eq!(refusal(&nowhere[..]), "there is no address in the list");
    }

    #[test]
    fn every_form_of_text_is_read() {
        for (text, meant) in [
            ("127.0.0.1:7000", "127.0.0.1:7000"),
            ("[::1]:7000", "[::1]:7000"),
            ("0.0.0.0:7000", "0.0.0.0:7000"),
            (":7000", "[::]:7000"),
            ("*:7000", "[::]:7000"),
            ("*:0", "[::]:0"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("/run/a:b.sock", "unix:/run/a:b.sock"),
            ("unix:a.sock", "unix:a.sock"),
            ("unix:@name", "unix:@name"),
        ] {
            assert_eq!(one(text).to_string(), meant, "{text}");
        }
    }

    #[test]
    fn names_are_resolved_and_keep_the_port() {
        let addresses = "localhost:7000".to_addresses().unwrap();
        assert!(!addresses.is_empty());
        for (index, address) in addresses.iter().enumerate() {
            let ip = address.ip().unwrap();
            assert!(ip.ip().is_loopback() && ip.port() == 7000, "{address}");
            assert!(!addresses[..index].contains(address), "{address} is there twice");
        }
    }

    #[test]
    fn zone_may_be_a_name() {
        let Some(SocketAddr::V6(address)) = one("[fe80::1%lo]:7000").ip() else {
            panic!("not IPv6")
        };
        assert_eq!(address.port(), 7000);
        let index = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        assert_eq!(address.scope_id().to_string(), index.trim());
    }

    #[test]
    fn anything_else_is_refused_with_the_forms_there_are() {
        for (text, cause) in [
            ("", "it has no port"),
            ("7000", ":7000 is on every interface, 127.0.0.1:7000 on this machine only"),
            ("70000", "it has no port"),
            ("localhost", "it has no port"),
            ("localhost:", "not a number from 0 to 65535"),
            ("localhost:http", "not a number from 0 to 65535"),
            ("localhost:+80", "not a number from 0 to 65535"),
            ("127.0.0.1:65536", "not a number from 0 to 65535"),
            ("::1:7000", "an IPv6 address goes in brackets"),
            ("[localhost]:7000", "not an IPv6 address"),
            ("[127.0.0.1]:7000", "not an IPv6 address"),
            ("@name:7000", "neither an IP address nor a name"),
            ("http://localhost:7000", "neither an IP address nor a name"),
            ("two words:7000", "neither an IP address nor a name"),
        ] {
            let refusal = refusal(text);
            assert!(refusal.contains(cause), "{text}: {refusal}");
            assert!(refusal.contains("unix:PATH"), "{text}: {refusal}");
        }
    }

    #[test]
    fn paths_and_names_that_do_not_fit_are_refused() {
        let long = "n".repeat(PATH_BYTES + 1);
        assert!(refusal("unix:").contains("empty"));
        assert!(refusal("unix:@").contains("empty"));
        assert!(refusal("/run/\0").contains("zero byte"));
        assert!(refusal(Path::new(&long)).contains("at most 107"));
        assert!(refusal(&format!("unix:@{long}")).contains("at most 107"));
        let fits = &long[1..];
        assert_eq!(one(&format!("unix:{fits}")).path(), Some(Path::new(fits)));
        assert_eq!(one(&format!("unix:@{fits}")).to_string(), format!("unix:@{fits}"));
    }

    #[test]
    fn everything_that_is_not_text() {
        let address: SocketAddr = "127.0.0.1:7000".parse().unwrap();
        let expected = [Address::Ip(address)];
        assert_eq!(address.to_addresses().unwrap(), expected);
        assert_eq!(expected[0].to_addresses().unwrap(), expected);
        assert_eq!((address.ip(), 7000).to_addresses().unwrap(), expected);
        assert_eq!((Ipv4Addr::LOCALHOST, 7000).to_addresses().unwrap(), expected);
        assert_eq!(("127.0.0.1", 7000).to_addresses().unwrap(), expected);
        assert_eq!("127.0.0.1:7000".to_owned().to_addresses().unwrap(), expected);
        assert_eq!(("*", 7000).to_addresses().unwrap(), 7000u16.to_addresses().unwrap());
        assert_eq!(PathBuf::from("/run/a").to_addresses().unwrap(), [one("unix:/run/a")]);
    }

    #[test]
    fn unknown_name_says_which() {
        // RFC 6761 reserves .invalid: no resolver knows it.
        let error = "nowhere.invalid:7000".to_addresses().unwrap_err();
        assert!(error.to_string().starts_with("cannot resolve \"nowhere.invalid\": "), "{error}");
    }
}
