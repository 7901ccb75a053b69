//! The PROXY protocol: for whom a connection is, said by the proxy that has opened it, before anything else.
//!
//! ```text
//!   v1   PROXY TCP4 192.0.2.1 198.51.100.2 4711 80 ␍␊                      a line, of 107 bytes at most
//!   v2   ␍␊␍␊␀␍␊QUIT␊ │ 0x21 │ 0x11 │ length │ addresses and ports │ more     12, 1, 1 and 2 bytes, and `length`
//! ```
//!
//! [`parse`] and [`write`] know no sockets. [`Announced`] is the protocol of a connection until it has said so.

use crate::Networks;
use crate::proxy::ProxyVersion;
use coracle_net::{Address, Buffer, Conn, Protocol, Reason};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// The longest line there is (version 1).
const LIMIT_LINE_BYTES: usize = 107;

/// The longest header that is taken of version 2: its addresses, and a few things more about the connection.
pub(crate) const LIMIT_BYTES: usize = 4096;

/// What was found at the beginning of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Parsed {
    Partial,
    /// How many bytes it has, and who has connected; nobody if the proxy speaks for itself, or does not say.
    Whole {
        len: usize,
        source: Option<SocketAddr>,
    },
}

/// Looks at the beginning of a connection.
///
/// # Errors
/// It is none of this protocol, and why.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, &'static str> {
    let begins_like = |begin: &[u8]| {
        let count = begin.len().min(bytes.len());
        bytes[..count] == begin[..count]
    };
    if begins_like(SIGNATURE) {
        parse_bytes(bytes)
    } else if begins_like(b"PROXY ") {
        parse_line(bytes)
    } else {
        Err("it does not begin with a PROXY header")
    }
}

fn parse_line(bytes: &[u8]) -> Result<Parsed, &'static str> {
    const WRONG: &str = "the PROXY line is not one";
    let within = &bytes[..bytes.len().min(LIMIT_LINE_BYTES)];
    let Some(end) = memchr::memchr(b'\n', within) else {
        let is_whole = within.len() == LIMIT_LINE_BYTES;
        return if is_whole { Err("the PROXY line is too long") } else { Ok(Parsed::Partial) };
    };
    let line = within[..end].strip_suffix(b"\r").ok_or(WRONG)?;
    let line = std::str::from_utf8(line).map_err(|_| WRONG)?;
    let len = end + 1;
    let mut parts = line.split(' ').skip(1);
    let kind = parts.next().unwrap_or_default();
    if kind == "UNKNOWN" {
        return Ok(Parsed::Whole { len, source: None }); // what follows is to be ignored
    }
    let mut part = || parts.next().ok_or(WRONG);
    let (source, target, from, to) = (part()?, part()?, part()?, part()?);
    if parts.next().is_some() {
        return Err(WRONG);
    }
    let address = |text: &str| -> Option<IpAddr> {
        match kind {
            "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    let port = |text: &str| {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit());
        let canonical = plain && (text == "0" || !text.starts_with('0'));
        text.parse::<u16>().ok().filter(|_| canonical)
    };
    address(target).and(port(to)).ok_or(WRONG)?;
    let source = SocketAddr::new(address(source).ok_or(WRONG)?, port(from).ok_or(WRONG)?);
    Ok(Parsed::Whole { len, source: Some(source) })
}

fn parse_bytes(bytes: &[u8]) -> Result<Parsed, &'static str> {
    let Some(&[command, family, high, low]) = bytes.get(12..16).and_then(|it| it.first_chunk())
    else {
        return Ok(Parsed::Partial);
    };
    if command != 0x20 && command != 0x21 {
        return Err("the PROXY header has another version or command");
    }
    let len = 16 + usize::from(u16::from_be_bytes([high, low]));
    if len > LIMIT_BYTES {
        return Err("the PROXY header is too long");
    }
    let needed = match family {
        0x11 | 0x12 => 12,
        0x21 | 0x22 => 36,
        0x31 | 0x32 => 216,
        0x00 => 0,
        _ => return Err("the PROXY header has another family"),
    };
    if command == 0x21 && len - 16 < needed {
        return Err("the PROXY header is too short for its addresses");
    }
    let Some(rest) = bytes.get(16..len) else { return Ok(Parsed::Partial) };
    let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
    let source = match (command, family) {
        (0x21, 0x11) => {
            let ip: [u8; 4] = *rest.first_chunk().expect("it is long enough");
            Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port(8)))
        }
        (0x21, 0x21) => {
            let ip: [u8; 16] = *rest.first_chunk().expect("it is long enough");
            Some(SocketAddr::new(Ipv6Addr::from(ip).into(), port(32)))
        }
        _ => None,
    };
    Ok(Parsed::Whole { len, source })
}

/// Writes for whom a connection is: from `source`, and meant for `target`. What is no address of one kind is not
/// said.
pub(crate) fn write(
    out: &mut Vec<u8>,
    version: ProxyVersion,
    source: Option<SocketAddr>,
    target: Option<SocketAddr>,
) {
    let both = source.zip(target).map(|(source, target)| same_kind(source, target));
    match version {
        ProxyVersion::V1 => {
            let line = match both {
                None => "PROXY UNKNOWN\r\n".to_owned(),
                Some((source, target)) => {
                    let kind = if source.is_ipv4() { "TCP4" } else { "TCP6" };
                    let (from, to) = (source.port(), target.port());
                    format!("PROXY {kind} {} {} {from} {to}\r\n", source.ip(), target.ip())
                }
            };
            out.extend_from_slice(line.as_bytes());
        }
        ProxyVersion::V2 => {
            out.extend_from_slice(SIGNATURE);
            let Some((source, target)) = both else {
                out.extend_from_slice(&[0x20, 0x00, 0, 0]);
                return;
            };
            let (family, len) = if source.is_ipv4() { (0x11, 12) } else { (0x21, 36) };
            out.extend_from_slice(&[0x21, family, 0, len]);
            for address in [source, target] {
                match address.ip() {
                    IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
                    IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
                }
            }
            out.extend_from_slice(&source.port().to_be_bytes());
            out.extend_from_slice(&target.port().to_be_bytes());
        }
    }
}

/// Both as IPv4 if they are, else both as IPv6.
fn same_kind(source: SocketAddr, target: SocketAddr) -> (SocketAddr, SocketAddr) {
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (source, target) = (plain(source), plain(target));
    if source.is_ipv4() == target.is_ipv4() {
        return (source, target);
    }
    let wide = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    };
    (wide(source), wide(target))
}

/// Whose word is taken for whom a connection is, and how long that may take.
///
/// ```
/// use coracle_http::{Networks, ProxyProtocol, Request, Server};
///
/// # fn main() -> std::io::Result<()> {
/// let trusted: Networks = "10.0.0.0/8".parse().unwrap();
/// let behind = ProxyProtocol::from(trusted);
/// let server = Server::bind("127.0.0.1:0")?.loops(1).proxy_protocol(behind);
/// # let running = server.start(|_: &Request<'_>| "ahoy\n")?;
/// # running.stop();
/// # running.join()
/// # }
/// ```
///
/// A connection from one of these addresses must begin with a header of version 1 or 2, or it is closed. One from
/// anywhere else is what it is: such a header on it is no request.
#[derive(Debug, Clone)]
pub struct ProxyProtocol {
    /// From where it is taken.
    pub trusted: Networks,
    /// How long it may take; 5 seconds by default.
    pub timeout: Duration,
}

impl From<Networks> for ProxyProtocol {
    fn from(trusted: Networks) -> ProxyProtocol {
        ProxyProtocol { trusted, timeout: Duration::from_secs(5) }
    }
}

/// What becomes of a connection when it is known for whom it is.
type Then = Box<dyn FnOnce(&mut Conn<'_>, &Address)>;

/// A connection that has to say for whom it is.
pub(crate) struct Announced {
    peer: Address,
    then: Option<Then>,
    /// None if it need not say anything.
    timeout: Option<Duration>,
    deadline: Option<Instant>,
}

impl Announced {
    /// `then` is called with the connection, which it [switches](Conn::switch), and who is at its other end.
    pub(crate) fn new(
        peer: Address,
        timeout: Duration,
        then: impl FnOnce(&mut Conn<'_>, &Address) + 'static,
    ) -> Announced {
        Announced { peer, then: Some(Box::new(then)), timeout: Some(timeout), deadline: None }
    }

    /// One whose word would not be taken: it is what it is.
    pub(crate) fn not(
        peer: Address,
        then: impl FnOnce(&mut Conn<'_>, &Address) + 'static,
    ) -> Announced {
        Announced { peer, then: Some(Box::new(then)), timeout: None, deadline: None }
    }

    fn begin(&mut self, conn: &mut Conn<'_>, peer: &Address) {
        if let Some(then) = self.then.take() {
            then(conn, peer);
        }
    }

    fn await_rest(&self, conn: &mut Conn<'_>) {
        let left = self.deadline.map(|at| at.saturating_duration_since(conn.lp().now()));
        conn.set_idle_timeout(left.map(|left| left.max(Duration::from_millis(1))));
    }
}

impl Protocol for Announced {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        match self.timeout {
            Some(timeout) => {
                self.deadline = Some(conn.lp().now() + timeout.min(crate::settings::LONGEST));
                self.await_rest(conn);
            }
            None => self.begin(conn, &self.peer.clone()),
        }
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        match parse(input.unread()) {
            Ok(Parsed::Partial) => self.await_rest(conn),
            Ok(Parsed::Whole { len, source }) => {
                input.consume(len);
                conn.set_idle_timeout(None);
                let source = source.map_or_else(|| self.peer.clone(), Address::Ip);
                self.begin(conn, &source);
            }
            Err(why) => {
                tracing::debug!(peer = %self.peer, why, "a connection is refused");
                conn.abort();
            }
        }
        Ok(())
    }

    fn on_idle(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        tracing::debug!(peer = %self.peer, "a connection has not said for whom it is");
        conn.abort();
        Ok(())
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        conn.abort();
        Ok(())
    }

    fn on_close(&mut self, _: &Reason) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Result<Option<(usize, Option<String>)>, &'static str> {
        parse(bytes).map(|parsed| match parsed {
            Parsed::Partial => None,
            Parsed::Whole { len, source } => Some((len, source.map(|source| source.to_string()))),
        })
    }

    #[test]
    fn j15_proxy_lines_are_read_strictly() {
        let text = b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 80\r\nGET /";
        assert_eq!(whole(text), Ok(Some((43, Some("192.0.2.1:4711".into())))));
        for end in 0..43 {
            assert_eq!(whole(&text[..end]), Ok(None), "{end}");
        }
        let text = b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n";
        assert_eq!(whole(text), Ok(Some((text.len(), Some("[2001:db8::1]:1".into())))));
        assert_eq!(whole(b"PROXY UNKNOWN what ever\r\n"), Ok(Some((25, None))));
        for wrong in [
            "GET / HTTP/1.1\r\n",
            "proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4  1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 \r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP4 01.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP6 1.2.3.4 ::1 1 2\r\n",
            "PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY \r\n",
        ] {
            assert!(whole(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        let long = format!("PROXY UNKNOWN {}", "x".repeat(93));
        assert!(whole(long.as_bytes()).is_err());
    }

    #[test]
    fn j15_what_is_written_is_read() {
        let cases = [
            ("192.0.2.1:1", "198.51.100.2:2", "192.0.2.1:1"),
            ("[2001:db8::1]:1", "[::1]:2", "[2001:db8::1]:1"),
            ("192.0.2.1:1", "[::1]:2", "[::ffff:192.0.2.1]:1"),
            ("[::ffff:192.0.2.1]:1", "127.0.0.1:2", "192.0.2.1:1"),
        ];
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            for (source, target, told) in cases {
                let mut out = Vec::new();
                write(&mut out, version, source.parse().ok(), target.parse().ok());
                assert_eq!(whole(&out), Ok(Some((out.len(), Some(told.to_owned())))));
                for end in 0..out.len() {
                    assert_eq!(whole(&out[..end]), Ok(None), "{end}");
                }
            }
            let mut out = Vec::new();
            write(&mut out, version, None, None);
            assert_eq!(whole(&out), Ok(Some((out.len(), None))));
        }
    }

    #[test]
    fn j15_proxy_headers_of_version_2_may_have_more_and_not_too_much() {
        let header = |command: u8, family: u8, rest: &[u8]| {
            let len = u16::try_from(rest.len()).unwrap().to_be_bytes();
            [&SIGNATURE[..], &[command, family], &len, rest].concat()
        };
        let v4 = [192, 0, 2, 1, 1, 2, 3, 4, 0x12, 0x67, 0, 80, 3, 0, 1, b'x'];
        assert_eq!(whole(&header(0x21, 0x11, &v4)), Ok(Some((32, Some("192.0.2.1:4711".into())))));
        assert_eq!(whole(&header(0x20, 0x11, &v4)), Ok(Some((32, None))), "for itself");
        assert_eq!(whole(&header(0x21, 0x31, &[0; 216])), Ok(Some((232, None))));
        assert_eq!(whole(&header(0x21, 0x00, b"")), Ok(Some((16, None))));
        for (command, family, rest) in [
            (0x11, 0x11, &v4[..]),
            (0x22, 0x11, &v4[..]),
            (0x21, 0x41, &v4[..]),
            (0x21, 0x11, &v4[..11]),
            (0x21, 0x21, &[0; 35][..]),
            (0x21, 0x11, &[0; 5000][..]),
        ] {
            assert!(whole(&header(command, family, rest)).is_err(), "{command:x} {family:x}");
        }
    }
}
