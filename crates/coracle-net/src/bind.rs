//! Sockets that listen, opened before any loop runs.
//!
//! A server binds first and starts after: that a port is taken is said at once, to whoever started it, and
//! privileges can be given up before the first byte of a stranger is read. The socket then goes to a loop, or
//! a clone to each.
//!
//! ```text
//!   "localhost:7000" ──ToAddresses──► 127.0.0.1:7000 ──bind──► ListenSocket ──into_fd──► a loop
//!                                     [::1]:7000     ──bind──► ListenSocket ──into_fd──► a loop
//! ```
//!
//! Each address gets a socket of its own family, and each failure is told as the failure of that address: a
//! port in use is never reported as a family that is not supported.

use crate::addresses::ToAddresses;
use crate::listen_options::ListenOptions;
use crate::socket_file::{self, SocketFile};
use coracle_loop::demux::Address;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, FdFlags};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::ffi::OsStr;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr as UnixAddr;

/// How often to look for a port that is free in both families, when one is asked for.
const FREE_PORT_ATTEMPTS: usize = 8;

/// The first port that everybody may listen on, where the system does not say.
const FIRST_FREE_PORT: u16 = 1024;

/// A stream socket that listens: TCP or Unix. It never blocks and is closed on `exec`.
///
/// ```
/// use coracle_net::{ListenOptions, ListenSocket};
///
/// let socket = ListenSocket::bind(&"127.0.0.1:0".parse().unwrap(), &ListenOptions::new()).unwrap();
/// let address = socket.local_address().ip().unwrap();
/// assert_ne!(address.port(), 0);
/// std::net::TcpStream::connect(address).unwrap();
/// ```
///
/// The file of a Unix socket is removed when the last clone of the socket, or of its [`SocketFile`], is
/// dropped, if it still is the file that was made.
///
/// # Threads
/// Any.
#[derive(Debug)]
pub struct ListenSocket {
    // The file goes first: nobody shall find a socket on which nobody listens.
    file: Option<SocketFile>,
    socket: OwnedFd,
    address: Address,
}

impl ListenSocket {
    /// Listens on one address.
    ///
    /// `[::]` takes IPv4 connections too, unless told [otherwise](ListenOptions::only_v6); on a system
    /// without IPv6 it is 0.0.0.0. A Unix path may hold a socket that nobody listens on: it is replaced.
    ///
    /// ```
    /// use coracle_net::{ListenOptions, ListenSocket};
    ///
    /// let first = ListenSocket::bind(&"127.0.0.1:0".parse().unwrap(), &ListenOptions::new()).unwrap();
    /// let address = first.local_address();
    /// let error = ListenSocket::bind(address, &ListenOptions::new()).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    /// assert_eq!(
    ///     error.to_string(),
    ///     format!("cannot listen on {address}: address already in use (another program listens there)"),
    /// );
    /// ```
    ///
    /// # Errors
    /// The system's [kind](io::ErrorKind), with a text that names the address, the cause and, where one is known,
    /// the cure. A family that the system does not have is [`Unsupported`](io::ErrorKind::Unsupported).
    pub fn bind(address: &Address, options: &ListenOptions) -> io::Result<ListenSocket> {
        let bound = match address {
            Address::Ip(ip) => bind_ip(*ip, options),
            Address::Unix(unix) => bind_unix(unix, options),
        };
        bound.map_err(|error| refuse(address, options, &error))
    }

    /// Listens on every address that a name stands for: `localhost:7000` is two sockets on most machines.
    ///
    /// An address that this machine does not have (the resolver knows ::1, the machine has no IPv6) is passed
    /// over as long as there is another. With port 0 all of them get the same one.
    ///
    /// ```
    /// use coracle_net::{ListenOptions, ListenSocket};
    ///
    /// let sockets = ListenSocket::bind_all("localhost:0", &ListenOptions::new()).unwrap();
    /// let port = sockets[0].local_address().ip().unwrap().port();
    /// std::net::TcpStream::connect(("localhost", port)).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`bind`](ListenSocket::bind) and [`to_addresses`](ToAddresses::to_addresses) say. Then nothing listens.
    pub fn bind_all(
        place: impl ToAddresses,
        options: &ListenOptions,
    ) -> io::Result<Vec<ListenSocket>> {
        bind_each(&place.to_addresses()?, options)
    }

    /// Takes over a socket that listens already: from a parent, a supervisor, a predecessor.
    ///
    /// It is made non-blocking, in whatever other process has it too. The file of a Unix socket is left to whoever
    /// made it.
    ///
    /// ```
    /// use coracle_net::ListenSocket;
    ///
    /// let inherited = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    /// let address = inherited.local_addr().unwrap();
    /// let socket = ListenSocket::from_fd(inherited.into()).unwrap();
    /// assert_eq!(socket.local_address().ip(), Some(address));
    ///
    /// let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    /// let error = ListenSocket::from_fd(datagrams.into()).unwrap_err();
    /// assert!(error.to_string().ends_with("it is not a stream socket"));
    /// ```
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) when the descriptor is no stream socket that listens, and why
    /// not. The descriptor is then closed.
    pub fn from_fd(socket: OwnedFd) -> io::Result<ListenSocket> {
        let number = socket.as_raw_fd();
        let refuse = |cause: &str| {
            let text = format!("cannot listen on descriptor {number}: {cause}");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        let kind = match sockopt::socket_type(&socket) {
            Err(Errno::NOTSOCK) => return Err(refuse("it is not a socket")),
            kind => kind?,
        };
        if kind != SocketType::STREAM {
            return Err(refuse("it is not a stream socket"));
        }
        let family = sockopt::socket_domain(&socket)?;
        if ![AddressFamily::INET, AddressFamily::INET6, AddressFamily::UNIX].contains(&family) {
            return Err(refuse("it is neither a TCP nor a Unix socket"));
        }
        if !sockopt::socket_acceptconn(&socket)? {
            return Err(refuse("it does not listen"));
        }
        rustix::io::ioctl_fionbio(&socket, true)?;
        rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
        ListenSocket::new(socket, None)
    }

    /// Where it listens, with the port the kernel chose if that was left to it.
    ///
    /// ```
    /// # use coracle_net::{ListenOptions, ListenSocket};
    /// let address = "unix:@coracle-doc-local-address".parse().unwrap();
    /// let socket = ListenSocket::bind(&address, &ListenOptions::new()).unwrap();
    /// assert_eq!(*socket.local_address(), address);
    /// ```
    pub fn local_address(&self) -> &Address {
        &self.address
    }

    /// The file of a Unix socket that was bound here to a path.
    ///
    /// ```
    /// # use coracle_net::{ListenOptions, ListenSocket};
    /// let socket = ListenSocket::bind(&"127.0.0.1:0".parse().unwrap(), &ListenOptions::new()).unwrap();
    /// assert!(socket.file().is_none());
    /// ```
    pub fn file(&self) -> Option<SocketFile> {
        self.file.clone()
    }

    /// Another descriptor of the same socket: for another loop, which takes from the same queue of connections.
    ///
    /// ```
    /// # use coracle_net::{ListenOptions, ListenSocket};
    /// let socket = ListenSocket::bind(&"127.0.0.1:0".parse().unwrap(), &ListenOptions::new()).unwrap();
    /// let clone = socket.try_clone().unwrap();
    /// drop(socket);
    /// std::net::TcpStream::connect(clone.local_address().ip().unwrap()).unwrap();
    /// ```
    ///
    /// # Errors
    /// When the process has as many descriptors as it may.
    pub fn try_clone(&self) -> io::Result<ListenSocket> {
        let socket = self.socket.try_clone()?;
        Ok(ListenSocket { file: self.file.clone(), socket, address: self.address.clone() })
    }

    /// Gives up the descriptor. What it was the last to share of a Unix socket's [file](ListenSocket::file) stays.
    ///
    /// ```
    /// # use coracle_net::{ListenOptions, ListenSocket};
    /// let socket = ListenSocket::bind(&"127.0.0.1:0".parse().unwrap(), &ListenOptions::new()).unwrap();
    /// let lp = coracle_loop::Loop::new().unwrap();
    /// let listener = lp.adopt(socket.into_fd()).unwrap();
    /// # assert!(lp.local_address(listener).is_ok());
    /// ```
    pub fn into_fd(self) -> OwnedFd {
        let ListenSocket { file, socket, .. } = self;
        if let Some(file) = file {
            file.leave();
        }
        socket
    }

    fn new(socket: OwnedFd, file: Option<SocketFile>) -> io::Result<ListenSocket> {
        let address = address_of(&socket)?;
        Ok(ListenSocket { file, socket, address })
    }
}

impl AsFd for ListenSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn bind_ip(ip: SocketAddr, options: &ListenOptions) -> io::Result<ListenSocket> {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = match open(family) {
        // Every interface that there is.
        Err(Errno::AFNOSUPPORT) if ip.ip() == Ipv6Addr::UNSPECIFIED && !options.only_v6 => {
            return bind_ip((Ipv4Addr::UNSPECIFIED, ip.port()).into(), options);
        }
        socket => socket?,
    };
    options.apply(socket.as_fd(), family)?;
    net::bind(&socket, &ip)?;
    net::listen(&socket, options.backlog)?;
    ListenSocket::new(socket, None)
}

fn bind_unix(unix: &UnixAddr, options: &ListenOptions) -> io::Result<ListenSocket> {
    let socket = open(AddressFamily::UNIX)?;
    if let Some(path) = unix.as_pathname() {
        let lock = socket_file::lock_directory(path);
        let file = SocketFile::bind(socket.as_fd(), path, options.unix_mode)?;
        net::listen(&socket, options.backlog)?;
        drop(lock);
        ListenSocket::new(socket, Some(file))
    } else if let Some(name) = unix.as_abstract_name() {
        net::bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        net::listen(&socket, options.backlog)?;
        ListenSocket::new(socket, None)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "an unnamed socket cannot be found by anybody",
        ))
    }
}

fn open(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(family, SocketType::STREAM, flags, None)
}

/// A socket for each address, or for none.
fn bind_each(addresses: &[Address], options: &ListenOptions) -> io::Result<Vec<ListenSocket>> {
    let any_port = |address: &Address| address.ip().is_some_and(|ip| ip.port() == 0);
    let mut attempts = 1..FREE_PORT_ATTEMPTS;
    loop {
        match bind_each_once(addresses, options) {
            // A port that was free for the first address is taken for another: let the kernel choose again.
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && addresses.iter().any(any_port)
                    && attempts.next().is_some() => {}
            result => return result,
        }
    }
}

fn bind_each_once(addresses: &[Address], options: &ListenOptions) -> io::Result<Vec<ListenSocket>> {
    let mut sockets = Vec::with_capacity(addresses.len());
    let mut missing = None;
    let mut chosen_port = 0;
    for address in addresses {
        let mut address = address.clone();
        let any_port = match &mut address {
            Address::Ip(ip) if ip.port() == 0 => {
                ip.set_port(chosen_port);
                true
            }
            _ => false,
        };
        match ListenSocket::bind(&address, options) {
            Ok(socket) => {
                if let Some(ip) = socket.address.ip().filter(|_| any_port) {
                    chosen_port = ip.port();
                }
                sockets.push(socket);
            }
            Err(error) if is_missing(&error) => missing = missing.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    match missing {
        Some(error) if sockets.is_empty() => Err(error),
        Some(error) => {
            tracing::debug!("passed over: {error}");
            Ok(sockets)
        }
        None => Ok(sockets),
    }
}

/// Whether the machine does not have the address at all.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
}

/// The address a socket is bound to.
fn address_of(socket: &OwnedFd) -> io::Result<Address> {
    let address = net::getsockname(socket)?;
    if let Ok(ip) = SocketAddr::try_from(address.clone()) {
        return Ok(Address::Ip(ip));
    }
    let unix = SocketAddrUnix::try_from(address)?;
    let unix = match (unix.abstract_name(), unix.path_bytes()) {
        (Some(name), _) => UnixAddr::from_abstract_name(name)?,
        (None, path) => UnixAddr::from_pathname(OsStr::from_bytes(path.unwrap_or_default()))?,
    };
    Ok(Address::from(unix))
}

/// The error as people want to read it: what was tried on what, the cause, the cure.
fn refuse(address: &Address, options: &ListenOptions, error: &io::Error) -> io::Error {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let cause = match (errno, address) {
        (Some(errno), Address::Ip(ip)) => explain_ip(errno, *ip, options, first_free_port()),
        (Some(errno), Address::Unix(unix)) => explain_unix(errno, unix),
        (None, _) => None,
    };
    let kind = match errno {
        Some(Errno::AFNOSUPPORT) => io::ErrorKind::Unsupported, // std has no stable name for this kind
        _ => error.kind(),
    };
    let cause = cause.unwrap_or_else(|| error.to_string());
    io::Error::new(kind, format!("cannot listen on {address}: {cause}"))
}

fn explain_ip(
    errno: Errno,
    ip: SocketAddr,
    options: &ListenOptions,
    first_free_port: u16,
) -> Option<String> {
    let cause = match errno {
        Errno::ADDRINUSE if options.reuse_port => {
            "address already in use (another program listens there without sharing the port, or as another user)"
        }
        Errno::ADDRINUSE => "address already in use (another program listens there)",
        Errno::ADDRNOTAVAIL => "address not available (no interface of this machine has it)",
        Errno::AFNOSUPPORT if ip.is_ipv6() => {
            "address family not supported (this system has no IPv6)"
        }
        Errno::AFNOSUPPORT => "address family not supported (this system has no IPv4)",
        Errno::ACCESS | Errno::PERM if ip.port() != 0 && ip.port() < first_free_port => {
            return Some(format!(
                "permission denied (ports below {first_free_port} need CAP_NET_BIND_SERVICE)"
            ));
        }
        Errno::ACCESS | Errno::PERM => "permission denied (a policy of this system forbids it)",
        Errno::INVAL if needs_zone(ip) => {
            "a link-local address needs its interface, as in [fe80::1%eth0]:7000"
        }
        Errno::MFILE | Errno::NFILE => TOO_MANY_FILES,
        _ => return None,
    };
    Some(cause.to_owned())
}

fn explain_unix(errno: Errno, unix: &UnixAddr) -> Option<String> {
    let directory = unix.as_pathname().map(|path| socket_file::directory_of(path).display());
    Some(match (errno, directory) {
        (Errno::ADDRINUSE, None) => "address already in use (another program listens there)".into(),
        (Errno::ADDRINUSE, Some(_)) => {
            "address already in use (others keep making that file)".into()
        }
        (Errno::NOENT, Some(directory)) => format!("no such directory (make {directory} first)"),
        (Errno::ACCESS | Errno::PERM, Some(directory)) => {
            format!("permission denied (no right to make a file in {directory})")
        }
        (Errno::MFILE | Errno::NFILE, _) => TOO_MANY_FILES.into(),
        _ => return None,
    })
}

const TOO_MANY_FILES: &str = "too many open files (raise the limit: ulimit -n)";

fn needs_zone(ip: SocketAddr) -> bool {
    matches!(ip, SocketAddr::V6(ip) if ip.ip().is_unicast_link_local() && ip.scope_id() == 0)
}

fn first_free_port() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(FIRST_FREE_PORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    fn explained(text: &str, errno: Errno, options: &ListenOptions) -> String {
        refuse(&address(text), options, &errno.into()).to_string()
    }

    #[test]
    fn errors_name_the_address_the_cause_and_the_cure() {
        let options = ListenOptions::new();
        for (text, errno, cause) in [
            ("127.0.0.1:7000", Errno::ADDRINUSE, "address already in use (another program"),
            ("[::1]:7000", Errno::ADDRINUSE, "address already in use (another program"),
            ("192.0.2.1:7000", Errno::ADDRNOTAVAIL, "address not available (no interface"),
            (
                "[::1]:7000",
                Errno::AFNOSUPPORT,
                "address family not supported (this system has no IPv6",
            ),
            ("127.0.0.1:0", Errno::ACCESS, "permission denied (a policy"),
            ("[fe80::1]:7000", Errno::INVAL, "a link-local address needs its interface"),
            ("127.0.0.1:7000", Errno::MFILE, "too many open files (raise"),
            ("unix:/no/a.sock", Errno::NOENT, "no such directory (make /no first"),
            (
                "unix:/root/a.sock",
                Errno::ACCESS,
                "permission denied (no right to make a file in /root",
            ),
            ("unix:@name", Errno::ADDRINUSE, "address already in use (another program"),
            ("127.0.0.1:7000", Errno::NOMEM, "Cannot allocate memory"),
        ] {
            let error = explained(text, errno, &options);
            assert!(error.starts_with(&format!("cannot listen on {text}: {cause}")), "{error}");
        }
        let error = explained("127.0.0.1:7000", Errno::ADDRINUSE, &options.reuse_port(true));
        assert!(error.contains("without sharing the port"), "{error}");
    }

    #[test]
    fn low_port_needs_a_capability() {
        let ip = |text: &str| text.parse::<SocketAddr>().unwrap();
        let explain =
            |text: &str| explain_ip(Errno::ACCESS, ip(text), &ListenOptions::new(), 1024).unwrap();
        let cause = "permission denied (ports below 1024 need CAP_NET_BIND_SERVICE)";
        assert_eq!(explain("127.0.0.1:80"), cause);
        assert_eq!(explain("[::1]:1023"), cause);
        assert_ne!(explain("127.0.0.1:1024"), cause);
    }

    #[test]
    fn kinds_are_kept() {
        for (errno, kind) in [
            (Errno::ADDRINUSE, io::ErrorKind::AddrInUse),
            (Errno::ADDRNOTAVAIL, io::ErrorKind::AddrNotAvailable),
            (Errno::ACCESS, io::ErrorKind::PermissionDenied),
            (Errno::AFNOSUPPORT, io::ErrorKind::Unsupported),
        ] {
            let error = refuse(&address("[::1]:80"), &ListenOptions::new(), &errno.into());
            assert_eq!(error.kind(), kind, "{error}");
        }
    }

    #[test]
    fn addresses_of_one_name_share_a_chosen_port() {
        let addresses = [address("127.0.0.1:0"), address("[::1]:0")];
        let sockets = bind_each(&addresses, &ListenOptions::new()).unwrap();
        let ports: Vec<u16> =
            sockets.iter().map(|socket| socket.address.ip().unwrap().port()).collect();
        assert_eq!(ports.len(), 2);
        assert_eq!(ports[0], ports[1]);
    }

    #[test]
    fn address_that_is_missing_is_passed_over_if_another_is_there() {
        // RFC 5737 reserves 192.0.2.0/24 for texts like this one: no interface has it.
        let missing = address("192.0.2.1:0");
        let sockets = bind_each(&[missing.clone(), address("127.0.0.1:0")], &ListenOptions::new());
        assert_eq!(sockets.unwrap().len(), 1);
        let error = bind_each(&[missing], &ListenOptions::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn port_in_use_on_one_of_several_is_the_error() {
        let taken = ListenSocket::bind(&address("127.0.0.1:0"), &ListenOptions::new()).unwrap();
        let addresses = [address("192.0.2.1:0"), taken.address.clone()];
        let error = bind_each(&addresses[..], &ListenOptions::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
    }

    #[test]
    fn unnamed_is_refused() {
        let unnamed = Address::from(UnixAddr::from_pathname("").unwrap());
        let error = ListenSocket::bind(&unnamed, &ListenOptions::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
