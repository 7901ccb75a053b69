//! From names to addresses: on threads of their own, once for all who ask, and remembered for a while.
//!
//! ```text
//!   lookup_host("db:5432") ─┬─ an address already? ────────────────────► the answer
//!                           ├─ remembered, and still fresh? ───────────► the answer
//!                           ├─ somebody asks for it right now? ─┐
//!                           └─ else: a thread asks the system ──┴─ wait ► the answer, for all of them
//! ```
//!
//! The system's look-up (`getaddrinfo`: the hosts file, DNS, whatever `nsswitch.conf` says) blocks, up to half a
//! minute if a name server does not answer. So it has a small pool of threads of its own: a name that takes long
//! holds up other names at worst, and no other [offloaded](crate::offload()) work.
//!
//! ```
//! use coracle_coro::lookup_host;
//! use std::time::Duration;
//!
//! coracle_coro::run(|| {
//!     let addresses = coracle_coro::timeout(Duration::from_secs(5), || lookup_host("127.0.0.1:80"))?;
//!     assert_eq!(addresses, ["127.0.0.1:80".parse().unwrap()]);
//!     Ok(())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! In a test, or where names come from elsewhere, a [`Resolver`] has a function of yours in the system's place.

mod table;

use crate::budget;
use crate::deadline;
use crate::offload::refuse_if_over;
use crate::waiter::{Waiter, refuse_callbacks};
use crate::waits_for::WaitsFor;
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use coracle_loop::pool::{Pool, PoolSettings};
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use table::{Answer, Asked, Table};

/// Longer than any name: DNS has 253 bytes, and an IPv6 address may have a zone.
const LIMIT_NAME_BYTES: usize = 255;

/// The addresses of `host`, which is `name:port`, in the order of the system's preference.
///
/// A literal address, `127.0.0.1:80` or `[::1]:80`, costs nothing. A name is looked up by the resolver of
/// this loop, if [it has one](Resolver::install), or else by that of the process.
///
/// # Errors
/// - `InvalidInput` if it is no `name:port`.
/// - What the system says if it does not know the name, with the name in front.
/// - `ECANCELED`, `TimedOut`: this one waits no longer. The others who ask for the same name do.
/// - `QuotaExceeded` if too many names are being looked up.
///
/// # Panics
/// In a callback of a loop.
///
/// ```
/// coracle_coro::run(|| {
///     let addresses = coracle_coro::lookup_host("localhost:8080")?;
///     assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 8080));
///     assert!(coracle_coro::lookup_host("localhost").is_err()); // no port
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn lookup_host(host: &str) -> io::Result<Vec<SocketAddr>> {
    match installed() {
        Some(resolver) => resolver.lookup_host(host),
        None => of_process()?.lookup_host(host),
    }
}

/// How a [`Resolver`] is made.
///
/// ```
/// use coracle_coro::names::{Resolver, ResolverSettings};
/// use std::time::Duration;
///
/// let forgetful = ResolverSettings { time_to_live: Duration::ZERO, ..ResolverSettings::default() };
/// let resolver = Resolver::new(forgetful)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolverSettings {
    /// How many names can be looked up at the same time, each on a thread; 4 by default. They are started when
    /// needed.
    pub threads: usize,
    /// How many names may wait for a thread; 256 by default. Beyond it, a look-up is refused.
    pub limit_lookups: usize,
    /// How long an answer is good; 30 s by default, zero to remember none. The system does not say how long a
    /// record lives.
    pub time_to_live: Duration,
    /// The same for "there is no such name"; 1 s by default.
    pub time_to_live_failures: Duration,
    /// How many answers are remembered; 1,024 by default. Beyond it, the oldest is forgotten.
    pub limit_names: usize,
}

impl Default for ResolverSettings {
    fn default() -> ResolverSettings {
        ResolverSettings {
            threads: 4,
            limit_lookups: 256,
            time_to_live: Duration::from_secs(30),
            time_to_live_failures: Duration::from_secs(1),
            limit_names: 1024,
        }
    }
}

/// What a [`Resolver`] has done so far.
///
/// ```
/// # use coracle_coro::names::{Resolver, ResolverSettings};
/// assert_eq!(Resolver::new(ResolverSettings::default())?.stats().asked, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ResolverStats {
    /// Look-ups of names; literal addresses do not count.
    pub asked: u64,
    /// Those that were answered from memory.
    pub remembered: u64,
    /// Those that shared the look-up of another.
    pub shared: u64,
    /// Those that found too many others waiting.
    pub refused: u64,
    /// How many answers are remembered now.
    pub names: usize,
}

/// Turns names into addresses. A handle: clones are cheap and mean the same. Any thread.
///
/// ```
/// use coracle_coro::names::{Resolver, ResolverSettings};
/// use std::net::IpAddr;
///
/// // Names of a test, which needs no network.
/// let resolver = Resolver::with(ResolverSettings::default(), |name| match name {
///     "db" => Ok(vec![IpAddr::from([10, 0, 0, 7])]),
///     _ => Err(std::io::Error::other("no such name")),
/// })?;
/// assert_eq!(resolver.lookup_host("db:5432")?, ["10.0.0.7:5432".parse().unwrap()]);
/// assert_eq!(resolver.lookup_host("x:1").unwrap_err().to_string(), "cannot look up \"x\": no such name");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Resolver(Arc<Inner>);

struct Inner {
    find: Box<Find>,
    table: Arc<Table>,
    pool: Pool,
}

/// Looks up a name. The ports of the addresses mean nothing.
type Find = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

impl Resolver {
    /// One that asks the system.
    ///
    /// # Errors
    /// `InvalidInput` if a setting is out of its range.
    ///
    /// ```
    /// # use coracle_coro::names::{Resolver, ResolverSettings};
    /// let resolver = Resolver::new(ResolverSettings::default())?;
    /// assert!(resolver.lookup_host("localhost:1")?.iter().all(|address| address.ip().is_loopback()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(settings: ResolverSettings) -> io::Result<Resolver> {
        Resolver::build(settings, Box::new(|name| Ok((name, 0).to_socket_addrs()?.collect())))
    }

    /// One that asks `find`, on its threads; in the simulator, on that of the loop.
    ///
    /// # Errors
    /// As [`new`](Resolver::new).
    pub fn with(
        settings: ResolverSettings,
        find: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> io::Result<Resolver> {
        let with_port = |address| SocketAddr::new(address, 0);
        let find = move |name: &str| Ok(find(name)?.into_iter().map(with_port).collect());
        Resolver::build(settings, Box::new(find))
    }

    fn build(settings: ResolverSettings, find: Box<Find>) -> io::Result<Resolver> {
        let pool = Pool::new(PoolSettings {
            threads: settings.threads,
            limit_queue: settings.limit_lookups,
            name: "names".to_owned(),
            ..PoolSettings::default()
        })?;
        Ok(Resolver(Arc::new(Inner { find, table: Arc::new(Table::new(settings)), pool })))
    }

    /// The addresses of `host`, which is `name:port`: see [`lookup_host`](fn@lookup_host).
    ///
    /// # Errors
    /// As [`lookup_host`](fn@lookup_host).
    ///
    /// ```
    /// # use coracle_coro::names::{Resolver, ResolverSettings};
    /// # let resolver = Resolver::new(ResolverSettings::default())?;
    /// assert_eq!(resolver.lookup_host("[::1]:80")?, ["[::1]:80".parse().unwrap()]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        if let Ok(literal) = host.parse() {
            return Ok(vec![literal]);
        }
        let (name, port) = split(host)?;
        let mut addresses = self.addresses(name)?;
        addresses.iter_mut().for_each(|address| address.set_port(port));
        Ok(addresses)
    }

    /// The addresses of a name.
    ///
    /// # Errors
    /// As [`lookup_host`](fn@lookup_host).
    ///
    /// ```
    /// # use coracle_coro::names::{Resolver, ResolverSettings};
    /// # let resolver = Resolver::new(ResolverSettings::default())?;
    /// assert_eq!(resolver.resolve("127.0.0.1")?, [std::net::IpAddr::from([127, 0, 0, 1])]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        match name.parse() {
            Ok(literal) => Ok(vec![literal]),
            Err(_) => Ok(self.addresses(name)?.iter().map(SocketAddr::ip).collect()),
        }
    }

    /// Has [`lookup_host`](fn@lookup_host) ask this one, on this loop. Loop thread only.
    ///
    /// ```
    /// use coracle_coro::names::{Resolver, ResolverSettings};
    /// use coracle_loop::Loop;
    ///
    /// let lp = Loop::new()?;
    /// Resolver::with(ResolverSettings::default(), |_| Ok(vec![[10, 0, 0, 7].into()]))?.install(&lp);
    /// let found = coracle_coro::run_on(&lp, || coracle_coro::lookup_host("anything:80"))?;
    /// assert_eq!(found, ["10.0.0.7:80".parse().unwrap()]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn install(&self, lp: &Loop) {
        lp.extension(Installed::default).0.replace(Some(self.clone()));
    }

    /// Forgets all answers: the next who asks has a look-up made.
    ///
    /// ```
    /// # use coracle_coro::names::{Resolver, ResolverSettings};
    /// # let resolver = Resolver::new(ResolverSettings::default())?;
    /// resolver.forget();
    /// assert_eq!(resolver.stats().names, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn forget(&self) {
        self.0.table.forget();
    }

    /// What it has done so far.
    pub fn stats(&self) -> ResolverStats {
        self.0.table.stats()
    }

    fn addresses(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let name = checked(name)?;
        refuse_callbacks();
        let now = deadline::after(Duration::ZERO);
        if let Some(answer) = self.0.table.remembered(&name, now) {
            budget::share();
            return answer.result();
        }
        refuse_if_over()?;
        // Made before the table is locked, because it may panic.
        let waiter = Waiter::new().waiting_for(WaitsFor::Name);
        let flight = match self.0.table.ask(&name, now, waiter.waker()) {
            Asked::Answered(answer) => return answer.result(),
            Asked::Joined(flight) => flight,
            Asked::First(flight) => {
                self.start(name, flight.landing())?;
                flight
            }
        };
        let woken = waiter.wait(None);
        match flight.answer() {
            Some(answer) => answer.result(),
            None => {
                woken.result()?;
                Err(io::Error::other("a look-up was lost: this is a bug in coracle"))
            }
        }
    }

    /// Has the name looked up, elsewhere.
    fn start(&self, name: Arc<str>, landing: table::Landing) -> io::Result<()> {
        let inner = Arc::clone(&self.0);
        let job = move || {
            // If it panics, nobody is told more than that it was given up.
            if let Ok(found) = catch_unwind(AssertUnwindSafe(|| (inner.find)(&name))) {
                landing.land(Answer::new(&name, found));
            }
        };
        // One thread, so that a replay is a replay.
        if let Some(lp) = Loop::current().filter(|lp| lp.backend() == Backend::Sim) {
            lp.defer(move |_| job());
            return Ok(());
        }
        if self.0.pool.try_run(job).is_err() {
            // The job is dropped, and those who have joined meanwhile are told.
            self.0.table.note_refusal();
            return Err(table::refused());
        }
        Ok(())
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resolver({:?})", self.stats())
    }
}

/// The resolver of a loop.
#[derive(Default)]
struct Installed(RefCell<Option<Resolver>>);

fn installed() -> Option<Resolver> {
    Loop::current()?.extension(Installed::default).0.borrow().clone()
}

/// The one that all loops share unless they were given another.
fn of_process() -> io::Result<&'static Resolver> {
    static RESOLVER: OnceLock<Resolver> = OnceLock::new();
    if let Some(resolver) = RESOLVER.get() {
        return Ok(resolver);
    }
    let resolver = Resolver::new(ResolverSettings::default())?;
    Ok(RESOLVER.get_or_init(|| resolver))
}

/// `name:port`, as std has it.
fn split(host: &str) -> io::Result<(&str, u16)> {
    let parts = host.rsplit_once(':');
    let parts = parts.and_then(|(name, port)| Some((name, port.parse().ok()?)));
    parts.ok_or_else(|| {
        invalid(format!("cannot look up {host:?}: use name:port, such as localhost:80"))
    })
}

/// The name as it is looked up: upper and lower case are the same.
fn checked(name: &str) -> io::Result<Arc<str>> {
    if name.is_empty() || name.len() > LIMIT_NAME_BYTES || name.contains('\0') {
        let begin: String = name.chars().take(40).collect();
        return Err(invalid(format!(
            "cannot look up {begin:?}: a name has 1 to {LIMIT_NAME_BYTES} bytes, none of them zero"
        )));
    }
    Ok(name.to_ascii_lowercase().into())
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
