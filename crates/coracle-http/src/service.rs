//! HTTP on one loop: what makes a connection of a socket.

use crate::connection::H1;
use crate::peer::Peer;
use crate::per_address::PerAddress;
use crate::site::{Budget, Site};
use crate::stats::Counters;
use crate::{App, OwnedRequest, Settings, Stats};
use coracle_net::{Address, Conn, Protocol};
#[cfg(feature = "tls")]
use coracle_tls::Session;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// An app and its settings, on one loop: for who has a loop of their own, such as one in the simulator.
/// [`Server`](crate::Server) makes one for each of its loops.
///
/// ```
/// use coracle_http::{Request, Service, Settings};
/// use coracle_loop::Loop;
/// use coracle_net::Listener;
///
/// # fn main() -> std::io::Result<()> {
/// let lp = Loop::new()?;
/// let service = Service::new(|_: &Request<'_>| "ahoy\n", Settings::default())?;
/// let (address, settings) = ("127.0.0.1:0".parse().unwrap(), service.connection_settings());
/// let listener = Listener::bind(&lp, &address, settings, move |peer| service.connection(peer))?;
/// # listener.close(&lp);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Service {
    site: Rc<Site>,
}

impl Service {
    /// An app with these settings.
    ///
    /// # Errors
    /// The settings make no sense.
    pub fn new(app: impl App, settings: Settings) -> io::Result<Service> {
        settings.check()?;
        let budget = Budget::new(settings.limit_bodies_bytes);
        Ok(Service::with(Rc::new(app), settings, budget, Arc::default()))
    }

    pub(crate) fn with(
        app: Rc<dyn App>,
        settings: Settings,
        budget: Arc<Budget>,
        counters: Arc<Counters>,
    ) -> Service {
        Service { site: Rc::new(Site::new(app, settings.bounded(), budget, counters)) }
    }

    /// The same app, with other settings for new connections.
    pub(crate) fn with_settings(&self, settings: Settings) -> Service {
        let (app, budget) = (Rc::clone(&self.site.app), Arc::clone(&self.site.budget));
        let service = Service::with(app, settings, budget, Arc::clone(&self.site.stats));
        self.site.addresses.get().inspect(|addresses| service.count_addresses(addresses));
        service
    }

    /// The protocol of a new connection.
    pub fn connection(&self, peer: &Address) -> impl Protocol + use<> {
        self.h1(Peer::new(peer))
    }

    /// The protocol of a new connection behind TLS, whose handshake is done: what
    /// [`Secure`](coracle_tls::Secure) is given.
    ///
    /// ```
    /// use coracle_http::{Request, Service, Settings, tls};
    /// use coracle_loop::Loop;
    /// use coracle_net::Listener;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let lp = Loop::new()?;
    /// let tls = tls::ServerTls::new(tls::Identity::self_signed(["localhost"])?)?;
    /// let service = Service::new(|_: &Request<'_>| "ahoy\n", Settings::default())?;
    /// let (address, settings) = ("127.0.0.1:0".parse().unwrap(), service.connection_settings());
    /// let listener = Listener::bind(&lp, &address, settings, move |peer| {
    ///     let (service, peer) = (service.clone(), peer.clone());
    ///     tls::Secure::new(tls.layer(), move |session| service.secure_connection(&peer, session))
    /// })?;
    /// # listener.close(&lp);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn secure_connection(
        &self,
        peer: &Address,
        session: Arc<Session>,
    ) -> impl Protocol + use<> {
        self.h1(Peer::secure(peer, session))
    }

    pub(crate) fn h1(&self, peer: Peer) -> H1 {
        H1::new(Rc::clone(&self.site), peer)
    }

    /// How its connections are to behave below HTTP.
    pub fn connection_settings(&self) -> coracle_net::Settings {
        self.site.settings.connections()
    }

    /// Notes a connection that the server of connections has turned away.
    pub(crate) fn note_turned_away(&self, conn: &Conn<'_>) {
        let peer = || conn.peer_address().unwrap_or_else(|_| OwnedRequest::blank().peer);
        self.site.note_turned_away(conn.lp().now(), peer);
    }

    /// The server is about to stop: no connection is kept.
    #[cfg(feature = "tls")]
    pub(crate) fn begin_to_stop(&self) {
        self.site.stopping.begin();
    }

    /// Has connections that become another protocol's counted on.
    pub(crate) fn count_addresses(&self, addresses: &Arc<PerAddress>) {
        let _ = self.site.addresses.set(Arc::clone(addresses));
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        self.site.stats.add_to(&mut sum);
        sum
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("settings", &self.site.settings).finish_non_exhaustive()
    }
}
