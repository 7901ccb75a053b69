//! Who looks things up, and what each loop keeps of it.
//!
//! A path is looked up once for all who ask for it at the same time, and only so many at once, so that the
//! worker pool is not flooded by one site. What is kept is looked at again when somebody asks and a second has
//! passed: that one waits, and others get what is kept meanwhile.

use super::cache::{Bounds, Cache, Cost};
use super::open::OpenError;
use super::path::SitePath;
use super::site::{Found, Site};
use coracle_coro::sync::{OnceLock, Semaphore};
use coracle_loop::Loop;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The largest file that is kept in memory. Measured with 64 connections over loopback: with 16 KiB, a write
/// from memory costs less processor time than sendfile(2), with 32 KiB as much, with 64 KiB more.
pub(super) const MEMORY_FILE_BYTES: u64 = 32 << 10;

/// How many names a listing has at most.
pub(super) const LIMIT_LISTED_NAMES: usize = 10_000;

/// What a loop keeps, unless set.
const BOUNDS: Bounds = Bounds { entries: 1024, bytes: 16 << 20, open_files: 64 };

/// How long what was found is taken to be so.
const PAUSE: Duration = Duration::from_secs(1);

/// How many paths a loop looks up at the same time; others wait in line.
const LIMIT_LOOKUPS: usize = 64;

/// How a site is kept, and the counters of all loops.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) bounds: Bounds,
    pub(super) pause: Duration,
    counters: Mutex<Vec<Arc<Counters>>>,
}

impl Default for Keeper {
    fn default() -> Keeper {
        Keeper { bounds: BOUNDS, pause: PAUSE, counters: Mutex::default() }
    }
}

/// What is kept of one site on one loop.
struct Shelf {
    cache: RefCell<Cache<Kept>>,
    flights: RefCell<HashMap<String, Rc<Flight>>>,
    permits: Semaphore,
    counters: Arc<Counters>,
}

/// Something that was found, and when it was last known to be so.
struct Kept {
    found: Rc<Found>,
    seen: Cell<Instant>,
}

/// A look-up that is under way, for all who wait for it.
type Flight = OnceLock<Result<Rc<Found>, Rc<OpenError>>>;

/// The shelves of one loop.
#[derive(Default)]
struct Shelves(RefCell<Vec<(Weak<Keeper>, Rc<Shelf>)>>);

impl Keeper {
    /// One with the same settings, that has kept nothing.
    pub(super) fn like(&self) -> Keeper {
        Keeper { bounds: self.bounds, pause: self.pause, counters: Mutex::default() }
    }

    /// What is at a path: kept, or looked up elsewhere while the coroutine waits. In a plain thread, looked up
    /// here.
    ///
    /// # Errors
    /// Those of opening, shared by all who asked at the same time; and `Busy` if the worker pool is full, or
    /// who asked was cancelled.
    pub(super) fn find(
        self: &Arc<Self>,
        site: &Arc<Site>,
        path: &SitePath<'_>,
    ) -> Result<Rc<Found>, Rc<OpenError>> {
        let Some(lp) = Loop::current() else {
            return site.find(path).map(Rc::new).map_err(Rc::new);
        };
        let shelf = self.shelf(&lp);
        match shelf.kept(site, path.key(), self.pause, &lp) {
            Some(found) => Ok(found),
            None => shelf.look_up(site, path.key(), &lp),
        }
    }

    fn shelf(self: &Arc<Self>, lp: &Loop) -> Rc<Shelf> {
        let shelves = lp.extension(Shelves::default);
        let mut shelves = shelves.0.borrow_mut();
        let ours = |(owner, _): &&(Weak<Keeper>, Rc<Shelf>)| {
            std::ptr::eq(owner.as_ptr(), Arc::as_ptr(self))
        };
        if let Some((_, shelf)) = shelves.iter().find(ours) {
            return Rc::clone(shelf);
        }
        shelves.retain(|(owner, _)| owner.strong_count() > 0);
        let counters = Arc::new(Counters::default());
        let mut all = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&counters));
        let shelf = Rc::new(Shelf {
            cache: RefCell::new(Cache::new(self.bounds)),
            flights: RefCell::default(),
            permits: Semaphore::new(LIMIT_LOOKUPS),
            counters,
        });
        shelves.push((Arc::downgrade(self), Rc::clone(&shelf)));
        shelf
    }

    pub(super) fn stats(&self) -> FilesStats {
        let mut stats = FilesStats::default();
        for counters in self.counters.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            stats.kept += counters.kept.load(Ordering::Relaxed);
            stats.looked_up += counters.looked_up.load(Ordering::Relaxed);
            stats.revalidated += counters.revalidated.load(Ordering::Relaxed);
            stats.evicted += counters.evicted.load(Ordering::Relaxed);
        }
        stats
    }
}

impl Shelf {
    /// What is kept, if it is known to be so still.
    fn kept(&self, site: &Arc<Site>, key: &str, pause: Duration, lp: &Loop) -> Option<Rc<Found>> {
        let kept = self.cache.borrow().get(key)?;
        if lp.now().saturating_duration_since(kept.seen.get()) < pause {
            add(&self.counters.kept);
            return Some(Rc::clone(&kept.found));
        }
        // Others who ask meanwhile get what is kept, and do not look, too.
        kept.seen.set(lp.now());
        add(&self.counters.revalidated);
        if self.is_still_so(site, key, &kept.found) {
            return Some(Rc::clone(&kept.found));
        }
        // Unless somebody has put something newer there.
        let mut cache = self.cache.borrow_mut();
        if cache.get(key).is_some_and(|now| Rc::ptr_eq(&now, &kept)) {
            cache.remove(key);
        }
        None
    }

    /// Whether a path still leads to what was found there. If it cannot be looked at now, that is taken to be so.
    fn is_still_so(&self, site: &Arc<Site>, key: &str, found: &Found) -> bool {
        let Found::Entry(entry) = found else { return false };
        let (site, key) = (Arc::clone(site), key.to_owned());
        let looked = self.permits.acquire(1).and_then(|_permit| {
            coracle_coro::offload(move || site.resolve(&SitePath::of_key(&key)))
        });
        match looked {
            Ok(target) => target.is_ok_and(|target| target == entry.target),
            Err(_) => true,
        }
    }

    /// Looks it up, or waits for who does already.
    fn look_up(&self, site: &Arc<Site>, key: &str, lp: &Loop) -> Result<Rc<Found>, Rc<OpenError>> {
        let flight = Rc::clone(self.flights.borrow_mut().entry(key.to_owned()).or_default());
        let mut began = None;
        let result = flight.get_or_try_init(|| {
            let _permit = self.permits.acquire(1)?;
            began = Some(lp.now());
            add(&self.counters.looked_up);
            let (site, key) = (Arc::clone(site), key.to_owned());
            let found = coracle_coro::offload(move || site.find(&SitePath::of_key(&key)))?;
            Ok(found.map(Rc::new).map_err(Rc::new))
        });
        let mut flights = self.flights.borrow_mut();
        if flights.get(key).is_some_and(|now| Rc::ptr_eq(now, &flight)) {
            flights.remove(key);
        }
        drop(flights);
        match result {
            Err(error) => Err(Rc::new(OpenError::Busy(error))),
            Ok(Err(error)) => Err(Rc::clone(error)),
            Ok(Ok(found)) => {
                if let Some(began) = began {
                    self.keep(key, found, began);
                }
                Ok(Rc::clone(found))
            }
        }
    }

    fn keep(&self, key: &str, found: &Rc<Found>, seen: Instant) {
        let Found::Entry(entry) = &**found else { return };
        let cost = Cost { bytes: entry.memory_bytes(), open_files: entry.open_files() };
        let kept = Rc::new(Kept { found: Rc::clone(found), seen: Cell::new(seen) });
        let mut cache = self.cache.borrow_mut();
        cache.insert(key, kept, cost);
        self.counters.evicted.store(cache.evicted(), Ordering::Relaxed);
    }
}

/// What was found in memory and what was not, since the start, on all loops.
///
/// ```
/// let files = coracle_http::files::Files::new("/usr/share")?;
/// assert_eq!(files.stats().kept, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FilesStats {
    /// Answered with what was kept, without a look.
    pub kept: u64,
    /// Looked up: opened, and read if small.
    pub looked_up: u64,
    /// Looked at again, because what was kept was old.
    pub revalidated: u64,
    /// Let go of to make room for others.
    pub evicted: u64,
}

/// Those of one loop: one writes, anybody reads.
#[derive(Debug, Default)]
struct Counters {
    kept: AtomicU64,
    looked_up: AtomicU64,
    revalidated: AtomicU64,
    evicted: AtomicU64,
}

/// Without a lock: nobody else writes it.
fn add(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
