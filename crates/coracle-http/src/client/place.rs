//! Where a server is, and connecting to it.

use super::link::Link;
use super::stream::{Secure, Stream};
use coracle_coro::net::{TcpStream, UnixStream};
use coracle_net::Address;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Where a server is.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) at: At,
    /// The name it has to prove, if connections to it are to be secure.
    pub(crate) secure: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum At {
    /// `host:port`, to be looked up.
    Name(String),
    Address(Address),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            At::Name(name) => f.write_str(name),
            At::Address(address) => address.fmt(f),
        }
    }
}

impl Place {
    /// Connects to it, in a coroutine.
    ///
    /// # Errors
    /// What the last of its addresses said, in a sentence; `Unsupported` if it is to be secure and nobody can.
    pub(crate) fn connect(
        &self,
        timeout: Duration,
        secure: Option<&Arc<dyn Secure>>,
    ) -> io::Result<Link> {
        let connected = coracle_coro::timeout(timeout, || self.open(secure));
        connected.map(Link::new).map_err(|error| {
            if coracle_coro::is_cancelled(&error) || error.kind() == io::ErrorKind::Unsupported {
                return error;
            }
            io::Error::new(error.kind(), format!("cannot connect to {self}: {}", cause(&error)))
        })
    }

    fn open(&self, secure: Option<&Arc<dyn Secure>>) -> io::Result<Stream> {
        let stream = match &self.at {
            At::Name(name) => TcpStream::connect(name.as_str())?,
            At::Address(Address::Ip(address)) => TcpStream::connect(address)?,
            At::Address(Address::Unix(address)) => {
                return UnixStream::connect_addr(address).map(Stream::Unix);
            }
        };
        let _ = stream.set_nodelay(true); // it is as good without
        let Some(host) = &self.secure else { return Ok(Stream::Tcp(stream)) };
        let Some(secure) = secure else {
            let text = format!(
                "cannot connect to https://{host}: https needs feature tls, or Settings::secure"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        };
        secure.secure(stream, host).map(Stream::Secured)
    }
}

/// An error as part of a sentence: without its number, and without a capital letter.
pub(crate) fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}
