//! Connections that are kept for the next who needs one. Who has to wait parks, first come, first served.
//!
//! ```text
//!                 a permit        an idle one, healthy        the guard
//!   get ──► line ────────► ┬──────────────────────────────┬──────────► used … dropped ─┬─► idle
//!          (limit_waiters) └─ none: connect ──────────────┘                            └─► closed
//! ```
//!
//! A permit is the right to have a connection out; there are `limit_connections` of them. One is opened only by
//! who has a permit and finds none idle, so there are never more than that, idle ones included.
//!
//! ```
//! use coracle_coro::conn_pool::{ConnPool, ConnPoolSettings};
//! use coracle_coro::net::TcpStream;
//! use std::io::{Read, Write};
//!
//! # use coracle_coro::net::TcpListener;
//! coracle_coro::run(|| {
//! #   let listener = TcpListener::bind("127.0.0.1:0")?;
//! #   let address = listener.local_addr()?;
//! #   let server = coracle_coro::spawn(move || -> std::io::Result<()> {
//! #       let (mut stream, _) = listener.accept()?; // one connection for both
//! #       for _ in 0..2 {
//! #           stream.read_exact(&mut [0; 4])?;
//! #           stream.write_all(b"PONG")?;
//! #       }
//! #       Ok(())
//! #   });
//!     let pool = ConnPool::new(ConnPoolSettings::default(), move || TcpStream::connect(address))?;
//!     for _ in 0..2 {
//!         let mut connection = pool.get()?; // at its end it goes back
//!         connection.write_all(b"PING")?;
//!         let mut answer = [0; 4];
//!         connection.read_exact(&mut answer)?;
//!         assert_eq!(&answer, b"PONG");
//!     }
//!     assert_eq!(pool.stats().opened, 1);
//! #   server.join().unwrap()?;
//!     Ok(())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Sockets of [`net`](crate::net) belong to a loop, and so does a pool of them. One of things that are `Send` may
//! serve all loops; that is why what `connect` captures must be `Send` and `Sync`, in either case.
//!
//! # Which connections are used again
//! A request whose answer was not waited for leaves that answer on the connection, for the next one to take for
//! its own. So a connection goes back only if this holds, and else is closed:
//!
//! - while it was out, no wait *of the coroutine that got it* was cut short: by a cancel, by a
//!   [`timeout`](crate::timeout) around it, or by a time-out of its own, whatever it waited for. (The ends of
//!   a [`sleep`](crate::sleep()) and of a [`park_timeout`](crate::park_timeout) are no such thing.)
//! - that coroutine is not cancelled, and the guard was not dropped by a panic;
//! - nobody else has used the guard, or dropped it. What another coroutine went through is not known here;
//! - [`PooledConn::discard`] was not called.
//!
//! That is on the safe side: now and then a good connection is opened anew. What it cannot see is an error of
//! the protocol, a half-read answer, or another coroutine to which you gave not the guard but a `&mut` of what
//! is in it: there, call `discard`.

mod guard;

use crate::budget;
use crate::deadline;
use crate::offload::refuse_if_over;
use crate::primitive::Lock;
use crate::sync::Semaphore;
use crate::waiter::refuse_callbacks;
use crate::waits_for::WaitsFor;
pub use guard::PooledConn;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// More permits than anybody waits for.
const GATE: usize = usize::MAX >> 4;

/// How a [`ConnPool`] is made.
///
/// ```
/// use coracle_coro::conn_pool::ConnPoolSettings;
///
/// let settings = ConnPoolSettings { limit_connections: 4, ..ConnPoolSettings::default() };
/// assert_eq!(settings.limit_waiters, 1024);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnPoolSettings {
    /// How many connections there may be, idle ones included; 16 by default.
    pub limit_connections: usize,
    /// How many of them are kept while nobody needs them; 16 by default.
    pub limit_idle: usize,
    /// How many may wait for one; 1,024 by default. Beyond it, [`get`](ConnPool::get) is refused.
    pub limit_waiters: usize,
    /// How long one is kept that nobody needs; 60 s by default, less than most servers wait before they hang up.
    /// Nothing ticks for it: it is closed when the pool is next used, or by [`ConnPool::close_idle`].
    pub idle_timeout: Duration,
}

impl Default for ConnPoolSettings {
    fn default() -> ConnPoolSettings {
        ConnPoolSettings {
            limit_connections: 16,
            limit_idle: 16,
            limit_waiters: 1024,
            idle_timeout: Duration::from_secs(60),
        }
    }
}

/// What a [`ConnPool`] has done so far, and has now.
///
/// ```
/// # use coracle_coro::conn_pool::{ConnPool, ConnPoolSettings};
/// let pool = ConnPool::new(ConnPoolSettings::default(), || Ok(()))?;
/// let held = pool.get()?;
/// assert_eq!((pool.stats().in_use, pool.stats().idle), (1, 0));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ConnPoolStats {
    /// How many are out now, or being opened.
    pub in_use: usize,
    /// How many wait to be used again.
    pub idle: usize,
    /// How many wait for one.
    pub waiting: usize,
    /// How many were opened.
    pub opened: u64,
    /// How many times one was used again.
    pub reused: u64,
    /// How many were closed when they came back, because they might be half used.
    pub discarded: u64,
    /// How many were closed because they failed the check.
    pub unhealthy: u64,
    /// How many were closed because nobody needed them.
    pub expired: u64,
    /// How many calls of `get` found too many waiting.
    pub refused: u64,
}

/// Connections of one kind, to one place. A handle: clones are cheap and mean the same pool.
///
/// If the connections are `Send`, coroutines of all loops and plain threads may share it.
pub struct ConnPool<T>(Arc<Inner<T>>);

type Connect<T> = Box<dyn Fn() -> io::Result<T> + Send + Sync>;
type Check<T> = Box<dyn Fn(&mut T) -> bool + Send + Sync>;

struct Inner<T> {
    settings: ConnPoolSettings,
    connect: Connect<T>,
    check: Option<Check<T>>,
    permits: Semaphore,
    state: Lock<State<T>>,
}

struct State<T> {
    /// Since when, the longest first.
    idle: VecDeque<(Instant, T)>,
    closed: bool,
    stats: ConnPoolStats,
}

impl<T> ConnPool<T> {
    /// A pool without a connection yet; `connect` makes them, in the coroutine that needs one.
    ///
    /// What `connect` captures must be `Send` and `Sync`, also for a pool that stays on one loop: the pool itself
    /// can be sent wherever its connections can, and its type does not say whether that is meant. So it takes an
    /// address, a name or an `Arc` along, rather than an `Rc`.
    ///
    /// # Errors
    /// `InvalidInput` if it could never have a connection.
    ///
    /// ```
    /// use coracle_coro::conn_pool::{ConnPool, ConnPoolSettings};
    /// use coracle_coro::net::TcpStream;
    ///
    /// let pool = ConnPool::new(ConnPoolSettings::default(), || TcpStream::connect("127.0.0.1:6379"))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(
        settings: ConnPoolSettings,
        connect: impl Fn() -> io::Result<T> + Send + Sync + 'static,
    ) -> io::Result<ConnPool<T>> {
        ConnPool::build(settings, Box::new(connect), None)
    }

    /// The same with a health check: a connection that was idle is handed out only if `check` says true, and else
    /// closed. It may wait: for the answer to a ping, with a [`timeout`](crate::timeout).
    ///
    /// # Errors
    /// As [`new`](ConnPool::new).
    ///
    /// ```
    /// use coracle_coro::conn_pool::{ConnPool, ConnPoolSettings};
    /// use coracle_coro::net::TcpStream;
    /// use coracle_coro::select;
    ///
    /// // Has the server hung up, or said something that nobody asked for?
    /// let is_quiet = |stream: &mut TcpStream| {
    ///     select! {
    ///         _ = stream.readable() => false,
    ///         default => true,
    ///     }
    /// };
    /// let connect = || TcpStream::connect("127.0.0.1:6379");
    /// let pool = ConnPool::with_check(ConnPoolSettings::default(), connect, is_quiet)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn with_check(
        settings: ConnPoolSettings,
        connect: impl Fn() -> io::Result<T> + Send + Sync + 'static,
        check: impl Fn(&mut T) -> bool + Send + Sync + 'static,
    ) -> io::Result<ConnPool<T>> {
        ConnPool::build(settings, Box::new(connect), Some(Box::new(check)))
    }

    fn build(
        settings: ConnPoolSettings,
        connect: Connect<T>,
        check: Option<Check<T>>,
    ) -> io::Result<ConnPool<T>> {
        let limit = settings.limit_connections;
        if limit == 0 || limit > GATE {
            let text = format!(
                "cannot make a connection pool with limit_connections {limit}: use 1 or more"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let state = State { idle: VecDeque::new(), closed: false, stats: ConnPoolStats::default() };
        let permits = Semaphore::new(limit);
        let state = Lock::new(state);
        Ok(ConnPool(Arc::new(Inner { settings, connect, check, permits, state })))
    }

    /// A connection: one that is idle, or a new one; if there are as many as there may be, it waits for its turn.
    ///
    /// # Errors
    /// - What `connect` says.
    /// - `ECANCELED`, `TimedOut`, as for every wait.
    /// - `QuotaExceeded` if `limit_waiters` wait already.
    /// - `BrokenPipe` if the pool is [closed](ConnPool::close).
    ///
    /// # Panics
    /// If `connect` or the check does; that costs the pool nothing. In a callback of a loop.
    ///
    /// ```
    /// use coracle_coro::conn_pool::{ConnPool, ConnPoolSettings};
    /// use std::time::Duration;
    ///
    /// let settings = ConnPoolSettings { limit_connections: 1, ..ConnPoolSettings::default() };
    /// let pool = ConnPool::new(settings, || Ok("a connection"))?;
    /// let held = pool.get()?;
    /// let late = coracle_coro::timeout(Duration::from_millis(1), || pool.get());
    /// assert_eq!(late.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn get(&self) -> io::Result<PooledConn<T>> {
        refuse_callbacks();
        let slot = self.slot()?;
        while let Some(mut connection) = slot.pool.take_idle()? {
            let healthy = slot.pool.check.as_ref().is_none_or(|check| check(&mut connection));
            if healthy {
                slot.pool.state.lock().stats.reused += 1;
                return Ok(PooledConn::new(connection, slot));
            }
            drop(connection);
            slot.pool.state.lock().stats.unhealthy += 1;
            refuse_if_over()?; // or each of them would be found unhealthy
        }
        let connection = (slot.pool.connect)()?;
        slot.pool.state.lock().stats.opened += 1;
        Ok(PooledConn::new(connection, slot))
    }

    /// Closes those that nobody has needed for `idle_timeout`. Returns how many. Never waits, unless closing one
    /// does.
    ///
    /// ```
    /// # use coracle_coro::conn_pool::{ConnPool, ConnPoolSettings};
    /// # use std::time::Duration;
    /// let settings = ConnPoolSettings { idle_timeout: Duration::ZERO, ..ConnPoolSettings::default() };
    /// let pool = ConnPool::new(settings, || Ok(()))?;
    /// drop(pool.get()?);
    /// assert_eq!(pool.close_idle(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn close_idle(&self) -> usize {
        let expired = self.0.take_expired(&mut self.0.state.lock());
        expired.len() // they are closed when the lock is free
    }

    /// Closes the pool: those that are idle at once, those that are out when they come back. Whoever waits, or
    /// comes later, is told `BrokenPipe`.
    ///
    /// ```
    /// # use coracle_coro::conn_pool::{ConnPool, ConnPoolSettings};
    /// let pool = ConnPool::new(ConnPoolSettings::default(), || Ok(()))?;
    /// pool.close();
    /// assert_eq!(pool.get().unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn close(&self) {
        let mut state = self.0.state.lock();
        let first = !std::mem::replace(&mut state.closed, true);
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        drop(idle);
        if first {
            // As many permits as there can be waiters: each of them comes through, and finds it closed.
            self.0.permits.add_permits(GATE);
        }
    }

    /// What it has done so far, and has now.
    pub fn stats(&self) -> ConnPoolStats {
        let state = self.0.state.lock();
        ConnPoolStats { idle: state.idle.len(), ..state.stats }
    }

    /// The right to have one out, when it is our turn.
    fn slot(&self) -> io::Result<Slot<T>> {
        let pool = &self.0;
        budget::begin()?;
        let permit = match pool.permits.try_acquire(1) {
            Some(permit) => permit,
            None => {
                let _waiting = Waiting::new(pool)?;
                pool.permits.acquire_for(1, WaitsFor::Pooled)?
            }
        };
        permit.forget(); // it comes back with the slot
        pool.state.lock().stats.in_use += 1;
        Ok(Slot { pool: Arc::clone(pool) })
    }
}

impl<T> Inner<T> {
    /// The one that was used last, so that those that are too many grow old.
    fn take_idle(&self) -> io::Result<Option<T>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(closed());
        }
        let expired = self.take_expired(&mut state);
        let taken = state.idle.pop_back();
        drop(state);
        drop(expired);
        Ok(taken.map(|(_, connection)| connection))
    }

    fn take_expired(&self, state: &mut State<T>) -> Vec<T> {
        let now = deadline::after(Duration::ZERO);
        let fresh =
            |since: &Instant| now.saturating_duration_since(*since) < self.settings.idle_timeout;
        let mut expired = Vec::new();
        while state.idle.front().is_some_and(|(since, _)| !fresh(since)) {
            expired.extend(state.idle.pop_front().map(|(_, connection)| connection));
        }
        state.stats.expired += expired.len() as u64;
        expired
    }

    /// Keeps a connection for the next, or gives back what cannot be kept.
    fn keep(&self, connection: T) -> Vec<T> {
        let mut state = self.state.lock();
        let mut surplus = self.take_expired(&mut state);
        if state.closed || state.idle.len() >= self.settings.limit_idle {
            surplus.push(connection);
        } else {
            state.idle.push_back((deadline::after(Duration::ZERO), connection));
        }
        surplus
    }
}

/// The right to have a connection out; it goes to the next in the line when this is dropped.
struct Slot<T> {
    pool: Arc<Inner<T>>,
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        self.pool.state.lock().stats.in_use -= 1;
        self.pool.permits.add_permits(1);
    }
}

/// Somebody in the line.
struct Waiting<'a, T>(&'a Inner<T>);

impl<'a, T> Waiting<'a, T> {
    fn new(pool: &'a Inner<T>) -> io::Result<Waiting<'a, T>> {
        let mut state = pool.state.lock();
        if state.closed {
            return Err(closed());
        }
        if state.stats.waiting >= pool.settings.limit_waiters {
            state.stats.refused += 1;
            let text = format!(
                "cannot get a connection: {} wait for one already (limit_waiters)",
                state.stats.waiting
            );
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        state.stats.waiting += 1;
        Ok(Waiting(pool))
    }
}

impl<T> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        self.0.state.lock().stats.waiting -= 1;
    }
}

impl<T> Clone for ConnPool<T> {
    fn clone(&self) -> ConnPool<T> {
        ConnPool(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for ConnPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnPool({:?})", self.stats())
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "cannot get a connection: the pool is closed")
}
