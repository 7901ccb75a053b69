//! The side that is asked: its certificates, whom it lets in, and how both change while it runs.
//!
//! ```text
//!   replace ─► ServerTls ─► a new connection has what is there now, and keeps it
//!                  ▲
//!   SNI ───────────┴──► the first identity that is for the name, and whose key the client can check
//! ```

use crate::engine::Engine;
use crate::identity::wrong;
use crate::provider::{provider, ticketer};
use crate::strangers::Strangers;
use crate::{Identity, Roots, TlsLayer, TlsStream, TlsVersion};
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{Connection, HandshakeKind, ServerConfig};
use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What can be chosen about the TLS of a server.
///
/// ```
/// use coracle_tls::{Identity, ServerSettings};
///
/// # fn main() -> std::io::Result<()> {
/// let one = Identity::self_signed(["one.example"])?;
/// let two = Identity::self_signed(["two.example"])?;
/// let settings = ServerSettings { identities: vec![one, two], ..ServerSettings::default() };
/// assert!(settings.check().is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Who the server is. Of several, the one whose [names](Identity::names) are asked for; for other names, and
    /// for clients that ask for none, the first. Two may have the same names and keys of different kinds.
    pub identities: Vec<Identity>,
    /// Refuse clients that ask for a name that nobody here has, in the place of showing them the first identity.
    /// They are told so: `unrecognized_name`.
    pub refuse_unknown_names: bool,
    /// Whether clients have to say who they are.
    pub client_certificates: ClientCertificates,
    /// The protocols that are spoken above (ALPN), the best first: `h2`, `http/1.1`. A client that speaks of
    /// protocols, and of none of these, is refused. None: there is no talk of them.
    pub alpn: Vec<Vec<u8>>,
    /// The oldest TLS that is spoken.
    pub oldest_version: TlsVersion,
    /// How long a handshake may take, from when the connection is open: then it is cut.
    pub handshake_timeout: Duration,
    /// How many handshakes may be under way, on all loops; who begins one more is cut. Each holds some memory.
    pub limit_handshakes: usize,
    /// Whether clients that come back may go on with what was agreed upon before (tickets). The keys for that are
    /// in memory only, and new ones are made every six hours. Certificates of clients are looked at each time.
    pub resumption: bool,
}

/// Whether clients have to say who they are, by a certificate (mTLS).
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ClientCertificates {
    /// They are not asked.
    #[default]
    Ignore,
    /// They are asked, and may say nothing. Who shows one that was signed by somebody else is refused.
    Allow(Roots),
    /// Who does not show one that was signed by one of these is refused.
    Require(Roots),
}

impl Default for ServerSettings {
    fn default() -> ServerSettings {
        ServerSettings {
            identities: Vec::new(),
            refuse_unknown_names: false,
            client_certificates: ClientCertificates::Ignore,
            alpn: Vec::new(),
            oldest_version: TlsVersion::Tls12,
            handshake_timeout: Duration::from_secs(10),
            limit_handshakes: 4096,
            resumption: true,
        }
    }
}

impl From<Identity> for ServerSettings {
    /// With this one identity, and what is usual.
    fn from(identity: Identity) -> ServerSettings {
        ServerSettings { identities: vec![identity], ..ServerSettings::default() }
    }
}

impl ServerSettings {
    /// With these protocols above ([`alpn`](ServerSettings::alpn)), the best first.
    ///
    /// ```
    /// # use coracle_tls::ServerSettings;
    /// assert_eq!(ServerSettings::default().speaking(["http/1.1"]).alpn, [b"http/1.1"]);
    /// ```
    #[must_use]
    pub fn speaking<'n>(mut self, protocols: impl IntoIterator<Item = &'n str>) -> ServerSettings {
        self.alpn = protocols.into_iter().map(|name| name.as_bytes().to_vec()).collect();
        self
    }

    /// Whether these settings make sense together.
    ///
    /// # Errors
    /// `InvalidInput`, with the name of the setting and what is wrong with it.
    pub fn check(&self) -> io::Result<()> {
        let wrong = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.identities.is_empty() {
            return wrong("identities is empty: a server needs a certificate");
        }
        if self.handshake_timeout.is_zero() {
            return wrong("handshake_timeout is 0: nobody is that fast");
        }
        if self.limit_handshakes == 0 {
            return wrong("limit_handshakes is 0: nobody could connect");
        }
        if self.alpn.iter().any(|name| name.is_empty() || name.len() > 255) {
            return wrong("alpn has a name that is empty, or longer than 255 bytes");
        }
        Ok(())
    }
}

/// The TLS of a server. Clones are the same; any thread. What it consists of can be [replaced](ServerTls::replace)
/// while it is used.
///
/// ```
/// use coracle_tls::{Identity, ServerTls};
///
/// # fn main() -> std::io::Result<()> {
/// let tls = ServerTls::new(Identity::self_signed(["localhost"])?)?;
/// tls.replace(Identity::self_signed(["localhost"])?)?; // connections that are there keep the old one
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ServerTls(Arc<Inner>);

struct Inner {
    current: Mutex<Arc<Current>>,
    handshakes: AtomicUsize,
    strangers: Strangers,
}

/// What a new connection gets.
pub(crate) struct Current {
    pub(crate) config: Arc<ServerConfig>,
    /// Who looks at certificates of clients, if they are asked for them.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    pub(crate) names: Arc<Names>,
    pub(crate) settings: ServerSettings,
}

impl ServerTls {
    /// With these settings, or with an [`Identity`] and what is usual.
    ///
    /// # Errors
    /// They make no sense.
    pub fn new(settings: impl Into<ServerSettings>) -> io::Result<ServerTls> {
        let current = Arc::new(Current::new(settings.into(), None)?);
        Ok(ServerTls(Arc::new(Inner {
            current: Mutex::new(current),
            handshakes: AtomicUsize::new(0),
            strangers: Strangers::default(),
        })))
    }

    /// From now on new connections have these. Those that are there keep what they have; and who comes back may go
    /// on with its session, unless other clients are let in than before.
    ///
    /// # Errors
    /// They make no sense, and the old ones stay.
    pub fn replace(&self, settings: impl Into<ServerSettings>) -> io::Result<()> {
        let old = self.current();
        let new = Arc::new(Current::new(settings.into(), Some(&old))?);
        *self.lock() = new;
        Ok(())
    }

    /// What a new connection has.
    pub fn settings(&self) -> ServerSettings {
        self.current().settings.clone()
    }

    /// For a connection that begins now: [`Conn::push_layer`](coracle_net::Conn::push_layer) or
    /// [`Secure`](crate::Secure). Nothing is allocated before the client has said something.
    pub fn layer(&self) -> TlsLayer {
        TlsLayer::new(self.engine())
    }

    /// Shakes hands over a socket, or whatever else is read and written, and waits for that: in a coroutine, or in
    /// a thread of its own. Have it [end in time](https://docs.rs/coracle): `coracle::timeout`.
    ///
    /// ```
    /// use coracle_tls::{ClientSettings, ClientTls, Identity, Roots, ServerTls};
    /// use std::io::{Read, Write};
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let identity = Identity::self_signed(["localhost"])?;
    /// let client = ClientTls::new(ClientSettings::trusting(Roots::identity(&identity)?))?;
    /// let server = ServerTls::new(identity)?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let address = listener.local_addr()?;
    /// let serving = std::thread::spawn(move || {
    ///     let mut stream = server.accept(listener.accept()?.0)?;
    ///     stream.write_all(b"ahoy")?;
    ///     stream.close()
    /// });
    /// let mut stream = client.connect("localhost", TcpStream::connect(address)?)?;
    /// let mut text = String::new();
    /// stream.read_to_string(&mut text)?; // to the end, which the server has said
    /// assert_eq!(text, "ahoy");
    /// # serving.join().unwrap()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Of the socket; and `InvalidData` if the client does not speak TLS, or refuses.
    pub fn accept<S: Read + Write>(&self, socket: S) -> io::Result<TlsStream<S>> {
        TlsStream::new(self.engine(), socket)
    }

    fn engine(&self) -> Engine {
        Engine::server(self.clone(), self.current())
    }

    /// How many handshakes are under way.
    pub fn handshakes(&self) -> usize {
        self.0.handshakes.load(Ordering::Relaxed)
    }

    /// A place for one more handshake, if there is one.
    pub(crate) fn begin_handshake(&self, limit: usize) -> Option<Underway> {
        let more = |now: usize| (now < limit).then_some(now + 1);
        let counted = self.0.handshakes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.ok().map(|_| Underway(Arc::clone(&self.0)))
    }

    /// Who is not let in, for the log.
    pub(crate) fn strangers(&self) -> &Strangers {
        &self.0.strangers
    }

    fn current(&self) -> Arc<Current> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Current>> {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerTls").field(&self.current().settings).finish()
    }
}

/// A handshake that is under way: counted until it is dropped.
pub(crate) struct Underway(Arc<Inner>);

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.handshakes.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Current {
    fn new(settings: ServerSettings, before: Option<&Current>) -> io::Result<Current> {
        settings.check()?;
        let versions: &[_] = match settings.oldest_version {
            TlsVersion::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
            TlsVersion::Tls13 => &[&rustls::version::TLS13],
        };
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(versions).map_err(unusable)?;
        let verifier = |roots: &Roots| {
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots.0), provider())
        };
        let no_client = |error| wrong(format!("no client certificate can be checked: {error}"));
        let verifier = match &settings.client_certificates {
            ClientCertificates::Ignore => None,
            ClientCertificates::Allow(roots) => {
                Some(verifier(roots).allow_unauthenticated().build().map_err(no_client)?)
            }
            ClientCertificates::Require(roots) => Some(verifier(roots).build().map_err(no_client)?),
        };
        let builder = match &verifier {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
        };
        let names = Arc::new(Names::new(&settings));
        let resolver =
            Resolver { names: Arc::clone(&names), refuse: settings.refuse_unknown_names };
        let mut config = builder.with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols.clone_from(&settings.alpn);
        // Tickets hold everything: no table, which clients could fill.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if settings.resumption {
            config.ticketer = match before.and_then(|before| before.ticketer_for(&settings)) {
                Some(ticketer) => ticketer,
                None => ticketer().map_err(unusable)?,
            };
        } else {
            config.send_tls13_tickets = 0;
        }
        Ok(Current { config: Arc::new(config), verifier, names, settings })
    }

    /// Whether clients are asked who they are.
    pub(crate) fn asks_clients(&self) -> bool {
        self.verifier.is_some()
    }

    /// Whether a client that goes on with a session is let in: a ticket says who it was then, and what it has
    /// shown may have become too old.
    pub(crate) fn check_resumed(&self, connection: &Connection) -> Result<(), rustls::Error> {
        if connection.handshake_kind() == Some(HandshakeKind::Resumed)
            && let Some(verifier) = &self.verifier
            && let Some([certificate, others @ ..]) = connection.peer_certificates()
        {
            verifier.verify_client_cert(certificate, others, UnixTime::now())?;
        }
        Ok(())
    }

    /// Its keys for tickets, if who has one is let in by the new settings too: a ticket says who its client is.
    fn ticketer_for(&self, settings: &ServerSettings) -> Option<Arc<dyn ProducesTickets>> {
        let same = self.settings.resumption
            && self.settings.client_certificates == settings.client_certificates;
        same.then(|| Arc::clone(&self.config.ticketer))
    }
}

fn unusable(error: rustls::Error) -> io::Error {
    wrong(format!("TLS cannot be used like this: {error}"))
}

/// Which identities there are for a name.
pub(crate) struct Names {
    identities: Vec<Identity>,
    /// Exact names and, with their star, those of all below one.
    by_name: HashMap<String, Vec<usize>>,
}

impl Names {
    fn new(settings: &ServerSettings) -> Names {
        let mut by_name = HashMap::<String, Vec<usize>>::new();
        for (index, identity) in settings.identities.iter().enumerate() {
            for name in identity.names() {
                by_name.entry(name.clone()).or_default().push(index);
            }
        }
        Names { identities: settings.identities.clone(), by_name }
    }

    /// Those that are for a name, an exact one before one with a star.
    fn all(&self, name: &str) -> impl Iterator<Item = &Identity> {
        let name = name.to_ascii_lowercase();
        let exact = self.by_name.get(&name);
        let star =
            name.split_once('.').and_then(|(_, rest)| self.by_name.get(&format!("*.{rest}")));
        exact.into_iter().chain(star).flatten().map(|&index| &self.identities[index])
    }

    /// Whether somebody here has it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// The names of the identity that is shown to who asks for this one.
    pub(crate) fn chosen(&self, name: &str) -> &[String] {
        let found = self.all(name).next().or(self.identities.first());
        found.map_or(&[], |identity| identity.names())
    }
}

/// Chooses by the name that a client asks for.
struct Resolver {
    names: Arc<Names>,
    refuse: bool,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let fits = |identity: &&Identity| identity.key().key.choose_scheme(schemes).is_some();
        let key = |identity: &Identity| Arc::clone(identity.key());
        let asked = hello.server_name();
        if let Some(found) = asked.and_then(|name| self.names.all(name).find(fits)) {
            return Some(key(found));
        }
        if self.refuse && asked.is_some_and(|name| !self.names.has(name)) {
            return None;
        }
        // If none fits, it is the handshake that fails, and the client is told so.
        let identities = &self.names.identities;
        identities.iter().find(fits).or(identities.first()).map(key)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver")
            .field("identities", &self.names.identities)
            .finish_non_exhaustive()
    }
}
