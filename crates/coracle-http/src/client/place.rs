//! Where a server is, and connecting to it.

use super::link::Link;
use super::stream::{Secure, Stream};
use coracle_coro::net::{TcpStream, UnixStream};
use coracle_net::Address;
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
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
    /// What the last of its addresses said, in a sentence; `InvalidData` if it is somebody else; `Unsupported` if
    /// it is to be secure and nobody can.
    pub(crate) fn connect(
        &self,
        timeout: Duration,
        secure: Option<&Arc<dyn Secure>>,
        announce: Option<&Announce<'_>>,
    ) -> io::Result<Link> {
        let connected = coracle_coro::timeout(timeout, || self.open(secure, announce));
        connected.map(Link::new).map_err(|error| {
            if coracle_coro::is_cancelled(&error) || error.kind() == io::ErrorKind::Unsupported {
                return error;
            }
            io::Error::new(error.kind(), format!("cannot connect to {self}: {}", cause(&error)))
        })
    }

    fn open(
        &self,
        secure: Option<&Arc<dyn Secure>>,
        announce: Option<&Announce<'_>>,
    ) -> io::Result<Stream> {
        if self.secure.is_some() && matches!(self.at, At::Address(Address::Unix(_))) {
            let text = format!("cannot connect to {self}: TLS is not spoken on Unix sockets");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let stream = match &self.at {
            At::Name(name) => TcpStream::connect(name.as_str())?,
            At::Address(Address::Ip(address)) => TcpStream::connect(address)?,
            At::Address(Address::Unix(address)) => {
                let stream = UnixStream::connect_addr(address)?;
                if let Some(announce) = announce {
                    { &stream }.write_all(&announce(None))?;
                }
                return Ok(Stream::Unix(stream));
            }
        };
        let _ = stream.set_nodelay(true); // it is as good without
        if let Some(announce) = announce {
            { &stream }.write_all(&announce(stream.peer_addr().ok()))?;
        }
        let Some(host) = &self.secure else { return Ok(Stream::Tcp(stream)) };
        let secured = match secure {
            Some(secure) => secure.secure(stream, host),
            None => usual(host)?.secure(stream, host),
        };
        secured.map(Stream::Secured)
    }
}

/// What a connection begins with, by whom it leads to.
pub(crate) type Announce<'a> = dyn Fn(Option<SocketAddr>) -> Vec<u8> + 'a;

/// Who secures connections if nobody was chosen.
#[cfg(feature = "tls")]
fn usual(_host: &str) -> io::Result<Arc<dyn Secure>> {
    super::tls::usual()
}

#[cfg(not(feature = "tls"))]
fn usual(host: &str) -> io::Result<Arc<dyn Secure>> {
    let text = format!(
        "cannot connect to https://{host}: https needs the feature `tls`, or Settings::secure"
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// An error as part of a sentence: without its number, and without a capital letter.
pub(crate) fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}
