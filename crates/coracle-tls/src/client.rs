//! The side that asks: whom it trusts, and who it says it is.

use crate::engine::Engine;
use crate::identity::wrong;
use crate::provider::provider;
use crate::{Identity, Roots, TlsLayer, TlsStream, TlsVersion};
use rustls::pki_types::ServerName;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection};
use std::fmt;
use std::io::{self, Read, Write};
use std::sync::{Arc, OnceLock};

/// What can be chosen about the TLS of a client.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// Who may say that a server is who it is.
    pub roots: Roots,
    /// What is shown to servers that ask who is there.
    pub identity: Option<Identity>,
    /// The protocols that are spoken above (ALPN), the best first.
    pub alpn: Vec<Vec<u8>>,
    /// The oldest TLS that is spoken.
    pub oldest_version: TlsVersion,
}

impl ClientSettings {
    /// With what is usual, and trust in these.
    pub fn trusting(roots: Roots) -> ClientSettings {
        ClientSettings {
            roots,
            identity: None,
            alpn: Vec::new(),
            oldest_version: TlsVersion::Tls12,
        }
    }

    /// And this is who one is, for servers that ask.
    ///
    /// ```
    /// use coracle_tls::{ClientSettings, ClientTls, Identity, Roots};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let (server, crew) = (Identity::self_signed(["localhost"])?, Identity::self_signed(["ahab"])?);
    /// let settings = ClientSettings::trusting(Roots::identity(&server)?).showing(crew);
    /// let tls = ClientTls::new(settings)?;
    /// # let _ = tls;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn showing(mut self, identity: Identity) -> ClientSettings {
        self.identity = Some(identity);
        self
    }
}

/// The TLS of clients: one is enough for all connections, which can go on with each other's sessions. Clones are
/// the same; any thread.
///
/// ```no_run
/// use coracle_tls::ClientTls;
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
///
/// # fn main() -> std::io::Result<()> {
/// let tls = ClientTls::system()?;
/// let mut stream = tls.connect("example.org", TcpStream::connect("example.org:443")?)?;
/// stream.write_all(b"GET / HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n")?;
/// stream.read_to_end(&mut Vec::new())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// The one that trusts whom the system trusts. The system is asked once: all who call this have the same.
    ///
    /// # Errors
    /// As [`Roots::system`].
    pub fn system() -> io::Result<ClientTls> {
        static SYSTEM: OnceLock<ClientTls> = OnceLock::new();
        if let Some(system) = SYSTEM.get() {
            return Ok(system.clone());
        }
        let system = ClientTls::new(ClientSettings::trusting(Roots::system()?))?;
        Ok(SYSTEM.get_or_init(|| system).clone())
    }

    /// One with these settings.
    ///
    /// # Errors
    /// They make no sense.
    pub fn new(settings: ClientSettings) -> io::Result<ClientTls> {
        let unusable =
            |error: rustls::Error| wrong(format!("TLS cannot be used like this: {error}"));
        let versions: &[_] = match settings.oldest_version {
            TlsVersion::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
            TlsVersion::Tls13 => &[&rustls::version::TLS13],
        };
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(versions).map_err(unusable)?;
        let builder = builder.with_root_certificates(settings.roots.0);
        let mut config = match settings.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let key = SingleCertAndKey::from(CertifiedKey::clone(identity.key()));
                builder.with_client_cert_resolver(Arc::new(key))
            }
        };
        config.alpn_protocols = settings.alpn;
        Ok(ClientTls(Arc::new(config)))
    }

    /// The same, with these protocols above ([`alpn`](ClientSettings::alpn)), the best first. Sessions are gone on
    /// with by both.
    ///
    /// ```
    /// use coracle_tls::{ClientSettings, ClientTls, Identity, Roots};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let development = Identity::self_signed(["localhost"])?;
    /// let tls = ClientTls::new(ClientSettings::trusting(Roots::identity(&development)?))?;
    /// let http = tls.speaking(["http/1.1"]);
    /// # let _ = http;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn speaking<'n>(&self, protocols: impl IntoIterator<Item = &'n str>) -> ClientTls {
        let mut config = ClientConfig::clone(&self.0);
        config.alpn_protocols =
            protocols.into_iter().map(|name| name.as_bytes().to_vec()).collect();
        ClientTls(Arc::new(config))
    }

    /// For a connection to the host of this name, which begins now. It may also be an address.
    ///
    /// # Errors
    /// `InvalidInput`: there can be no such name.
    pub fn layer(&self, host: &str) -> io::Result<TlsLayer> {
        Ok(TlsLayer::new(self.engine(host)?))
    }

    fn engine(&self, host: &str) -> io::Result<Engine> {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(bare.to_owned()).map_err(|_| {
            let text = format!("{host:?} is no name of a host, for which a certificate could be");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let connection = ClientConnection::new(Arc::clone(&self.0), name);
        let connection = connection.map_err(|error| wrong(format!("TLS cannot begin: {error}")))?;
        Ok(Engine::client(connection))
    }

    /// Shakes hands over a socket to the host of this name, and waits for that: in a coroutine, or in a thread of
    /// its own.
    ///
    /// # Errors
    /// Of the socket; and `InvalidData` if the server is not who it should be.
    pub fn connect<S: Read + Write>(&self, host: &str, socket: S) -> io::Result<TlsStream<S>> {
        TlsStream::new(self.engine(host)?, socket)
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m1_system_is_asked_once_whom_it_trusts() {
        match (ClientTls::system(), ClientTls::system()) {
            (Ok(one), Ok(other)) => assert!(Arc::ptr_eq(&one.0, &other.0)),
            (one, other) => assert!(one.is_err() && other.is_err(), "this system trusts nobody"),
        }
    }
}
