//! A server: where it listens, who answers, and on how many loops.

use crate::live_settings::{Follow, LiveSettings};
use crate::peer::Peer;
use crate::per_address::{PerAddress, Seated};
use crate::proxy_protocol::Announced;
#[cfg(feature = "tls")]
use crate::secure;
use crate::service::Service;
use crate::site::Budget;
use crate::stats::Counters;
use crate::{App, ProxyProtocol, Settings, Stats};
use coracle_loop::Loop;
use coracle_net::{Address, Conn, ListenOptions, Protocol, ServerHandle, ToAddresses, TurnedAway};
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Has a server of connections begin them: by what a proxy says of them, by a handshake, or with HTTP.
macro_rules! open {
    ($server:ident, $start:ident, $door:ident) => {{
        #[cfg(feature = "tls")]
        let tls = $door.secure.tls();
        #[cfg(not(feature = "tls"))]
        let tls: Option<std::convert::Infallible> = None;
        match ($door.behind.is_some(), tls) {
            (true, _) => $server.$start(move |peer| announced(&$door, peer, begin)),
            #[cfg(feature = "tls")]
            (false, Some(tls)) => {
                $server.$start(move |peer| secure::connection(&$door, &tls, peer))
            }
            _ => $server.$start(move |peer| connection(&$door, peer)),
        }
    }};
}
/// Serves `app` on `addresses`, with a loop for each core, until the process is asked to end (`SIGINT`,
/// `SIGTERM`); then requests that are under way are finished.
///
/// ```no_run
/// use coracle_http::{self as http, Html, IntoResponse, Method::*, Request, Response, Status};
///
/// fn main() -> std::io::Result<()> {
///     http::serve("127.0.0.1:8080", app)
/// }
///
/// fn app(req: &Request) -> Response {
///     match (req.method(), req.segments()) {
///         (Get, []) => Html("<h1>coracle</h1>").into_response(),
///         (Get, ["hello", name]) => format!("hello, {name}\n").into_response(),
///         (Post, ["echo"]) => (Status::CREATED, req.body().to_vec()).into_response(),
///         _ => Status::NOT_FOUND.into_response(),
///     }
/// }
/// ```
///
/// # Errors
/// An address cannot be listened on, or a loop cannot be opened or ends with an error.
pub fn serve(addresses: impl ToAddresses, app: impl App + Send + Sync) -> io::Result<()> {
    Server::bind(addresses)?.serve(app)
}

/// Serves an app of its own on each loop: it needs no locks, and may hold an `Rc`.
///
/// ```no_run
/// use coracle_http::{self as http, Request};
/// use std::cell::Cell;
///
/// # fn main() -> std::io::Result<()> {
/// http::serve_each("127.0.0.1:8080", || {
///     let count = Cell::new(0);
///     Ok(move |_: &Request<'_>| {
///         count.set(count.get() + 1);
///         format!("request {} of this loop\n", count.get())
///     })
/// })
/// # }
/// ```
///
/// # Errors
/// As [`serve`]; also what `make` returns.
pub fn serve_each<A: App>(
    addresses: impl ToAddresses,
    make: impl Fn() -> io::Result<A> + Send + Sync + 'static,
) -> io::Result<()> {
    Server::bind(addresses)?.serve_each(make)
}

/// An HTTP server, with everything that can be chosen about it.
///
/// ```
/// use coracle_http::{Request, Server, Settings};
///
/// # fn main() -> std::io::Result<()> {
/// let settings = Settings { limit_body_bytes: 64 << 20, ..Settings::default() };
/// let server = Server::bind("127.0.0.1:0")?.settings(settings).loops(1);
/// let running = server.start(|_: &Request<'_>| "ahoy\n")?;
/// println!("listening on {:?}", running.local_addresses());
/// running.stop();
/// running.join()
/// # }
/// ```
pub struct Server {
    pub(crate) inner: coracle_net::Server,
    settings: LiveSettings,
    init: Option<Box<Init>>,
    proxy_protocol: Option<ProxyProtocol>,
    #[cfg(feature = "tls")]
    pub(crate) secure: crate::secure::Doors,
}

/// Something to be called before anybody is served.
type Init = dyn FnOnce(&ServerHandle);

impl Server {
    /// A server that listens there.
    ///
    /// # Errors
    /// The address cannot be listened on; the text says which, why, and what to do.
    pub fn bind(addresses: impl ToAddresses) -> io::Result<Server> {
        Server::bind_with(addresses, &ListenOptions::new())
    }

    /// [`bind`](Server::bind), with options of its own.
    ///
    /// # Errors
    /// As [`bind`](Server::bind); also when the system does not take an option.
    pub fn bind_with(addresses: impl ToAddresses, options: &ListenOptions) -> io::Result<Server> {
        Ok(Server::over(coracle_net::Server::bind_with(addresses, options)?))
    }

    /// HTTP on a server of connections, whose settings for them it takes over: for whatever can be chosen there
    /// and not here.
    pub fn over(inner: coracle_net::Server) -> Server {
        let settings = LiveSettings::unchecked(Settings::default());
        Server {
            inner,
            settings,
            init: None,
            proxy_protocol: None,
            #[cfg(feature = "tls")]
            secure: Default::default(),
        }
    }

    /// Limits and time-outs.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Server {
        self.settings = LiveSettings::unchecked(settings);
        self
    }

    /// Limits and time-outs that can be changed while it runs.
    #[must_use]
    pub fn live_settings(mut self, settings: &LiveSettings) -> Server {
        self.settings = settings.clone();
        self
    }

    /// Has connections from some addresses say for whom they are, by the PROXY protocol: behind a proxy that
    /// forwards connections.
    #[must_use]
    pub fn proxy_protocol(mut self, behind: ProxyProtocol) -> Server {
        self.proxy_protocol = Some(behind);
        self
    }

    /// How many loops share the work. Without this, one per core.
    #[must_use]
    pub fn loops(mut self, loops: usize) -> Server {
        self.inner = self.inner.loops(loops);
        self
    }

    /// The backend of all loops. Without this, the best there is.
    #[must_use]
    pub fn backend(mut self, backend: coracle_loop::demux::Backend) -> Server {
        self.inner = self.inner.backend(backend);
        self
    }

    /// How long requests may take to finish when the server is stopped. Without this, ten seconds.
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Server {
        self.inner = self.inner.drain(drain);
        self
    }

    /// Calls `callback` when all loops are there and before anybody is served. If there are several, in the order
    /// in which they were given.
    #[must_use]
    pub fn on_init(mut self, callback: impl FnOnce(&ServerHandle) + 'static) -> Server {
        self.init = Some(match self.init.take() {
            None => Box::new(callback),
            Some(before) => Box::new(move |handle| {
                before(handle);
                callback(handle);
            }),
        });
        self
    }

    /// Calls `callback` on each loop's thread before it serves anybody, with the loop and its number: the place
    /// for timers, signals and thread-local things. If there are several, in the order in which they were given.
    ///
    /// ```
    /// use coracle_http::{Request, Server};
    /// use std::time::Duration;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let server = Server::bind("127.0.0.1:0")?.loops(1).on_thread_start(|lp, _| {
    ///     lp.every(Duration::from_secs(60), |_| println!("a minute has passed"));
    /// });
    /// # let running = server.start(|_: &Request<'_>| "ahoy\n")?;
    /// # running.stop();
    /// # running.join()
    /// # }
    /// ```
    #[must_use]
    pub fn on_thread_start(
        mut self,
        callback: impl Fn(&Loop, usize) + Send + Sync + 'static,
    ) -> Server {
        self.inner = self.inner.on_thread_start(callback);
        self
    }

    /// Opens the listening sockets of all loops now, not when it starts: for who has given up its privileges by
    /// then. Call it after [`loops`](Server::loops), with all addresses there.
    ///
    /// ```
    /// # use coracle_http::{Request, Server};
    /// # fn become_nobody() -> std::io::Result<()> { Ok(()) }
    /// # fn main() -> std::io::Result<()> {
    /// let server = Server::bind("127.0.0.1:0")?.loops(2).listen()?;
    /// become_nobody()?;
    /// let running = server.start(|_: &Request<'_>| "ahoy\n")?;
    /// # running.stop();
    /// # running.join()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`bind`](Server::bind).
    pub fn listen(mut self) -> io::Result<Server> {
        self.inner = self.inner.listen()?;
        Ok(self)
    }

    /// Where it listens.
    pub fn local_addresses(&self) -> Vec<Address> {
        self.inner.local_addresses()
    }

    /// Serves until the process is asked to end, then stops gracefully. All loops share the app.
    ///
    /// # Errors
    /// The settings make no sense, a loop cannot be opened, or one ends with an error.
    pub fn serve(self, app: impl App + Send + Sync) -> io::Result<()> {
        let app = Arc::new(app);
        self.serve_each(move || Ok(Arc::clone(&app)))
    }

    /// As [`serve`](Server::serve), with an app for each loop.
    ///
    /// # Errors
    /// As [`serve`](Server::serve); also what `make` returns.
    pub fn serve_each<A: App>(
        self,
        make: impl Fn() -> io::Result<A> + Send + Sync + 'static,
    ) -> io::Result<()> {
        let (server, shared) = self.prepare(make)?;
        let door = Arc::clone(&shared);
        let served = open!(server, serve, door);
        match shared.take_failure() {
            Some(error) => Err(error),
            None => served,
        }
    }

    /// Serves on threads of its own, and returns at once.
    ///
    /// # Errors
    /// The settings make no sense, or a loop cannot be opened: then none runs.
    pub fn start(self, app: impl App + Send + Sync) -> io::Result<Running> {
        let app = Arc::new(app);
        self.start_each(move || Ok(Arc::clone(&app)))
    }

    /// As [`start`](Server::start), with an app for each loop.
    ///
    /// # Errors
    /// As [`start`](Server::start); also what `make` returns.
    pub fn start_each<A: App>(
        self,
        make: impl Fn() -> io::Result<A> + Send + Sync + 'static,
    ) -> io::Result<Running> {
        let (server, shared) = self.prepare(make)?;
        let door = Arc::clone(&shared);
        let running = open!(server, start, door)?;
        if let Some(error) = shared.take_failure() {
            running.handle().stop();
            running.join()?;
            return Err(error);
        }
        Ok(Running { inner: running, shared })
    }

    /// A server of connections whose loops make their apps when they begin. One that cannot stops all.
    fn prepare<A: App>(
        self,
        make: impl Fn() -> io::Result<A> + Send + Sync + 'static,
    ) -> io::Result<(coracle_net::Server, Arc<Shared>)> {
        #[cfg(feature = "tls")]
        let secure = self.secure;
        let Server { inner, settings: live, init, proxy_protocol: behind, .. } = self;
        let (number, settings) = live.numbered();
        settings.check()?;
        let shared = Arc::new(Shared {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            live,
            budget: Budget::new(settings.limit_bodies_bytes),
            addresses: PerAddress::new(settings.limit_connections_per_address),
            counters: Mutex::default(),
            failure: Mutex::default(),
            server: OnceLock::new(),
            behind,
            #[cfg(feature = "tls")]
            secure,
        });
        #[cfg(feature = "tls")]
        shared.secure.open(&shared);
        let connections = shared.connections(&settings);
        let starting = Arc::clone(&shared);
        let mut inner = inner.settings(connections).on_thread_start(move |lp, _| match make() {
            Ok(app) => {
                let counters = Arc::<Counters>::default();
                lock(&starting.counters).push(Arc::clone(&counters));
                let (app, budget) = (Rc::new(app), Arc::clone(&starting.budget));
                let service = Service::with(app, settings.clone(), budget, counters);
                service.count_addresses(&starting.addresses);
                Services::of(lp).add(Numbered { id: starting.id, number, service });
            }
            Err(error) => {
                lock(&starting.failure).get_or_insert(error);
                lp.stop();
            }
        });
        let starting = Arc::clone(&shared);
        inner = inner.on_init(move |handle| {
            let _ = starting.server.set(handle.clone());
            if let Err(error) = starting.live.tell(&starting) {
                tracing::error!("{error}"); // other settings came already, and make no sense here
            }
            if let Some(init) = init.filter(|_| lock(&starting.failure).is_none()) {
                init(handle);
            }
        });
        Ok((inner, shared))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("server", &self.inner).finish_non_exhaustive()
    }
}

/// A server that runs on threads of its own. Dropping it leaves it running.
pub struct Running {
    inner: coracle_net::Running,
    shared: Arc<Shared>,
}

impl Running {
    /// What stops it, counts connections and reaches them, from any thread.
    pub fn handle(&self) -> ServerHandle {
        self.inner.handle()
    }

    /// Where it listens.
    pub fn local_addresses(&self) -> &[Address] {
        self.inner.local_addresses()
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        lock(&self.shared.counters).iter().for_each(|counters| counters.add_to(&mut sum));
        sum
    }

    /// Has it stop: requests that are under way are finished.
    pub fn stop(&self) {
        self.inner.handle().stop();
    }

    /// Waits until it has stopped.
    ///
    /// # Errors
    /// What a loop ended with.
    pub fn join(self) -> io::Result<()> {
        self.inner.join()
    }

    /// Waits until the process is asked to end (`SIGINT`, `SIGTERM`) or somebody stops the server, and then until
    /// it has stopped.
    ///
    /// # Errors
    /// What a loop ended with.
    pub fn serve_until_terminated(self) -> io::Result<()> {
        self.inner.serve_until_terminated()
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("server", &self.inner).finish_non_exhaustive()
    }
}

/// What the loops of a server have in common.
pub(crate) struct Shared {
    id: u64,
    live: LiveSettings,
    budget: Arc<Budget>,
    pub(crate) addresses: Arc<PerAddress>,
    counters: Mutex<Vec<Arc<Counters>>>,
    failure: Mutex<Option<io::Error>>,
    server: OnceLock<ServerHandle>,
    /// Who says for whom a connection is, if anybody does.
    behind: Option<ProxyProtocol>,
    #[cfg(feature = "tls")]
    secure: secure::Doors,
}

impl Follow for Shared {
    fn follow(&self, settings: &Settings) -> io::Result<()> {
        if let Some(server) = self.server.get() {
            server.set_settings(self.connections(settings))?;
        }
        self.addresses.set_limit(settings.limit_connections_per_address);
        Ok(())
    }
}

impl Shared {
    /// How connections behave below HTTP.
    fn connections(&self, settings: &Settings) -> coracle_net::Settings {
        let id = self.id;
        let note = move |conn: &Conn<'_>| {
            if let Some(service) = Services::of(conn.lp()).get(id) {
                service.note_turned_away(conn);
            }
        };
        let on_turned_away = Some(TurnedAway::new(note));
        let connections = coracle_net::Settings { on_turned_away, ..settings.connections() };
        // Who has come to shake hands would not understand it.
        #[cfg(feature = "tls")]
        if self.secure.tls().is_some() {
            return coracle_net::Settings { busy_message: Default::default(), ..connections };
        }
        connections
    }

    /// The service of the loop that runs, with the settings of this moment.
    pub(crate) fn service(&self) -> Service {
        let lp = Loop::current().expect("connections are made in turns of their loop");
        Services::of(&lp).current(self).expect("a loop that serves has its app")
    }

    /// Why one of the loops has no app.
    fn take_failure(&self) -> Option<io::Error> {
        lock(&self.failure).take()
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The services of a loop, by the servers they belong to.
#[derive(Default)]
struct Services(RefCell<Vec<Numbered>>);

/// The service of a server, and which of its settings it has.
struct Numbered {
    id: u64,
    number: u64,
    service: Service,
}

impl Services {
    fn of(lp: &Loop) -> Rc<Services> {
        lp.extension(Services::default)
    }

    fn add(&self, service: Numbered) {
        self.0.borrow_mut().push(service);
    }

    fn get(&self, id: u64) -> Option<Service> {
        let services = self.0.borrow();
        services.iter().find(|each| each.id == id).map(|each| each.service.clone())
    }

    /// That of a server, with the settings of this moment.
    fn current(&self, shared: &Shared) -> Option<Service> {
        let mut services = self.0.borrow_mut();
        let found = services.iter_mut().find(|each| each.id == shared.id)?;
        if found.number != shared.live.number() {
            let (number, settings) = shared.live.numbered();
            found.service = found.service.with_settings(settings);
            found.number = number;
        }
        Some(found.service.clone())
    }
}

/// A connection of a server, on the loop that runs.
fn connection(shared: &Shared, peer: &Address) -> impl Protocol + use<> {
    Seated::new(shared.service().h1(Peer::new(peer)), shared.addresses.admit(peer))
}

/// A connection that says for whom it is, if it is from where that is taken; then `begin` has it begin.
pub(crate) fn announced(
    shared: &Arc<Shared>,
    peer: &Address,
    begin: fn(&Shared, &mut Conn<'_>, &Address),
) -> impl Protocol + use<> {
    let behind = shared.behind.as_ref().filter(|behind| behind.trusted.contains(peer));
    let timeout = behind.map(|behind| behind.timeout);
    let shared = Arc::clone(shared);
    let begin = move |conn: &mut Conn<'_>, peer: &Address| begin(&shared, conn, peer);
    match timeout {
        Some(timeout) => Announced::new(peer.clone(), timeout, begin),
        None => Announced::not(peer.clone(), begin),
    }
}

/// By a handshake, if it is behind TLS.
fn begin(shared: &Shared, conn: &mut Conn<'_>, peer: &Address) {
    #[cfg(feature = "tls")]
    if let Some(tls) = shared.secure.tls() {
        return conn.switch(secure::connection(shared, &tls, peer));
    }
    begin_plain(shared, conn, peer);
}

pub(crate) fn begin_plain(shared: &Shared, conn: &mut Conn<'_>, peer: &Address) {
    conn.switch(connection(shared, peer));
}
