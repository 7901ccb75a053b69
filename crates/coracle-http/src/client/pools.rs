//! The connections that a loop keeps, by where they lead.

use super::link::Link;
use super::place::{Announce, At, Place};
use super::stream::Secure;
use coracle_coro::conn_pool::{ConnPool, ConnPoolSettings, PooledConn};
use coracle_loop::Loop;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How many servers are remembered; those that are not in use are forgotten first.
const LIMIT_PLACES: usize = 256;

/// Nobody is looked at more often than this.
const LEAST_PAUSE: Duration = Duration::from_millis(100);

/// A connection that is out: at its end it goes back, or is closed.
pub(crate) type Pooled = PooledConn<Link>;

/// The pools of one loop.
#[derive(Default)]
struct Pools(RefCell<Vec<Rc<Pool>>>);

struct Pool {
    owner: u64,
    /// Gone when the owner is.
    life: Weak<()>,
    place: Place,
    connections: ConnPool<Link>,
    idle_timeout: Duration,
    /// Whether somebody will look who has been idle for too long.
    is_watched: Cell<bool>,
}

/// How connections of one owner are made and kept. The same on all loops; the connections are not.
#[derive(Clone)]
pub(crate) struct Keeping {
    owner: u64,
    /// None in what a pool itself keeps.
    life: Option<Arc<()>>,
    pub(crate) pool: ConnPoolSettings,
    pub(crate) connect_timeout: Duration,
    pub(crate) secure: Option<Arc<dyn Secure>>,
}

impl Keeping {
    pub(crate) fn new(
        pool: ConnPoolSettings,
        connect_timeout: Duration,
        secure: Option<Arc<dyn Secure>>,
    ) -> Keeping {
        static NEXT_OWNER: AtomicU64 = AtomicU64::new(0);
        let owner = NEXT_OWNER.fetch_add(1, Ordering::Relaxed);
        Keeping { owner, life: Some(Arc::new(())), pool, connect_timeout, secure }
    }

    /// A connection to a place: one that is idle and still there, as far as that can be known, or a new one. Who
    /// is `careful` looks at each, because what it asks cannot be asked twice.
    ///
    /// # Errors
    /// Those of connecting and of [waiting](ConnPool::get) for a connection; there is no loop here.
    pub(crate) fn get(&self, place: &Place, careful: bool) -> io::Result<Pooled> {
        let connections = self.connections(place)?;
        loop {
            let conn = connections.get()?;
            if !conn.used || conn.is_alive(careful) {
                return Ok(conn);
            }
            conn.discard();
        }
    }

    /// A connection that nobody else has used, and nobody else will.
    pub(crate) fn connect(&self, place: &Place) -> io::Result<Link> {
        place.connect(self.connect_timeout, self.secure.as_ref(), None)
    }

    /// The same, and it begins with what `announce` says.
    pub(crate) fn connect_with(&self, place: &Place, announce: &Announce<'_>) -> io::Result<Link> {
        place.connect(self.connect_timeout, self.secure.as_ref(), Some(announce))
    }

    fn connections(&self, place: &Place) -> io::Result<ConnPool<Link>> {
        let Some(lp) = Loop::current() else {
            return Err(io::Error::other("connections need a loop: use them in a coroutine"));
        };
        let pools = lp.extension(Pools::default);
        let is_it = |pool: &&Rc<Pool>| pool.owner == self.owner && pool.place.is_same(place);
        let found = pools.0.borrow().iter().find(is_it).cloned();
        let pool = found.map_or_else(|| self.add(&pools, place), Ok)?;
        if !pool.is_watched.replace(true) {
            Pool::watch(&pool, &lp);
        }
        Ok(pool.connections.clone())
    }

    #[cold]
    fn add(&self, pools: &Pools, place: &Place) -> io::Result<Rc<Pool>> {
        let (keeping, to) = (Keeping { life: None, ..self.clone() }, place.clone());
        let connections = ConnPool::new(self.pool.clone(), move || keeping.connect(&to))?;
        let mut list = pools.0.borrow_mut();
        let is_full = list.len() >= LIMIT_PLACES;
        let is_needed = |pool: &Rc<Pool>| {
            let is_owned = pool.life.strong_count() > 0;
            (is_owned && !is_full) || pool.connections.stats().in_use > 0
        };
        let (kept, forgotten) = std::mem::take(&mut *list).into_iter().partition(is_needed);
        let forgotten: Vec<Rc<Pool>> = forgotten;
        *list = kept;
        let pool = Rc::new(Pool {
            owner: self.owner,
            life: self.life.as_ref().map_or_else(Weak::new, Arc::downgrade),
            place: place.clone(),
            connections,
            idle_timeout: self.pool.idle_timeout,
            is_watched: Cell::new(false),
        });
        list.push(Rc::clone(&pool));
        drop(list);
        drop(forgotten); // their connections are closed when nothing is borrowed
        Ok(pool)
    }
}

impl Pool {
    /// Closes what nobody needs, when that is due, as long as there is something. Nothing ticks while there is
    /// not.
    fn watch(pool: &Rc<Pool>, lp: &Loop) {
        let weak = Rc::downgrade(pool);
        lp.after(pool.idle_timeout.max(LEAST_PAUSE), move |lp| {
            let Some(pool) = weak.upgrade() else { return };
            pool.connections.close_idle();
            let stats = pool.connections.stats();
            match stats.idle + stats.in_use > 0 {
                true => Pool::watch(&pool, lp),
                false => pool.is_watched.set(false),
            }
        });
    }
}

impl Place {
    fn is_same(&self, other: &Place) -> bool {
        let same = match (&self.at, &other.at) {
            (At::Name(one), At::Name(other)) => one == other,
            (At::Address(one), At::Address(other)) => one == other,
            _ => false,
        };
        same && self.secure == other.secure
    }
}
