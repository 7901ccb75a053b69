//! The request that short and idle connections make, and what a right answer to it is.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use crate::candidate::Candidate;
use clap::ValueEnum;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

/// Echo servers get it too, so that as many bytes go there as to a web server.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n";
/// What web servers are set up to say.
pub const BODY: &str = "hello, world\n";
/// What `coracle hello` says.
pub const OUR_BODY: &str = "Hello, World!";
/// How many loopback addresses clients use.
const SOURCES: u32 = 200;

/// What kind of server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// It sends back what it gets.
    Echo,
    /// It answers with a page, and keeps the connection.
    Http,
}

impl Kind {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Echo => "echo",
            Kind::Http => "http",
        }
    }

    /// What it is sent.
    pub fn request(self) -> &'static [u8] {
        REQUEST
    }

    /// Whether `bytes` are the whole answer, or only its beginning.
    ///
    /// # Errors
    /// When they are the beginning of something else.
    pub fn is_answer(self, bytes: &[u8]) -> io::Result<bool> {
        let (start, whole) = match self {
            Kind::Echo => (REQUEST, bytes == REQUEST),
            Kind::Http => {
                let whole =
                    bytes.ends_with(BODY.as_bytes()) || bytes.ends_with(OUR_BODY.as_bytes());
                (&b"HTTP/1.1 200 OK\r\n"[..], whole)
            }
        };
        let common = start.len().min(bytes.len());
        match bytes[..common] == start[..common] && (self == Kind::Http || common == bytes.len()) {
            true => Ok(whole),
            false => Err(io::Error::other(format!("wrong answer: {}", bytes.escape_ascii()))),
        }
    }
}

/// What kind of server a candidate is: echo servers are told by their first argument.
pub fn kind_of(candidate: &Candidate) -> Kind {
    let echoes = candidate.arguments.first().is_some_and(|argument| argument == "echo");
    if echoes || candidate.kind == crate::candidate::Kind::Limit { Kind::Echo } else { Kind::Http }
}

/// The `n`th loopback address that clients use; they come round again.
pub fn source(n: u32) -> Ipv4Addr {
    Ipv4Addr::new(127, 1, 0, (n % SOURCES) as u8 + 1)
}

/// Connects from `source`, and from any of its ports.
///
/// # Errors
/// When no port is left, or nobody listens.
pub fn connect_from(source: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    net::bind(&socket, &SocketAddr::from((source, 0)))?;
    net::connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::{BODY, Kind, REQUEST};

    #[test]
    fn a_wrong_answer_is_noticed() {
        assert!(!Kind::Echo.is_answer(&REQUEST[..5]).unwrap());
        assert!(Kind::Echo.is_answer(REQUEST).unwrap());
        assert!(Kind::Echo.is_answer(b"PUT").is_err());
        assert!(Kind::Echo.is_answer(&[REQUEST, b"more"].concat()).is_err());
        let page = format!("HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{BODY}");
        assert!(Kind::Http.is_answer(page.as_bytes()).unwrap());
        assert!(!Kind::Http.is_answer(&page.as_bytes()[..20]).unwrap());
        assert!(Kind::Http.is_answer(b"HTTP/1.1 404").is_err());
    }
}
