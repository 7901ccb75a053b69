//! What the HTTP connections of one loop share: the app, the settings, and memory that is used again.

use crate::connection::Desk;
use crate::content_length::Lengths;
use crate::date::Date;
use crate::exchange::Exchange;
use crate::h1::lead::Leads;
use crate::idle::Idle;
use crate::per_address::PerAddress;
use crate::stats::Counters;
use crate::stopping::Stopping;
use crate::turned_away::TurnedAway;
use crate::{App, IntoResponse, OwnedRequest, Plan, Refusal, Response, Settings, h2};
use coracle_coro::Spawner;
use coracle_loop::Loop;
use std::cell::{Cell, OnceCell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How many exchanges are kept for the next requests.
const LIMIT_SPARE_EXCHANGES: usize = 64;

pub(crate) struct Site {
    pub(crate) app: Rc<dyn App>,
    /// That of all requests, if the app has one.
    pub(crate) plan: Option<Plan>,
    pub(crate) settings: Settings,
    pub(crate) date: Date,
    pub(crate) lengths: Lengths,
    pub(crate) leads: Leads,
    /// Memory for HTTP/2.
    pub(crate) memory: h2::Memory,
    pub(crate) budget: Arc<Budget>,
    pub(crate) stats: Arc<Counters>,
    pub(crate) turned_away: TurnedAway,
    /// How many connections each address has, if somebody counts.
    pub(crate) addresses: OnceCell<Arc<PerAddress>>,
    /// Who waits for its next request.
    pub(crate) idle: Idle,
    /// Whether the server is about to stop: answers say that the connection ends.
    pub(crate) stopping: Stopping,
    /// Who starts handlers, on the loop that the connections are of.
    spawner: OnceCell<Spawner>,
    /// From when on time is counted.
    epoch: OnceCell<Instant>,
    /// The moment that was last asked for: mostly that of the turn, for all who are answered in it.
    latest: Cell<(Option<Instant>, u64)>,
    /// What the callback that runs has left to a coroutine.
    pub(crate) desk: Cell<Option<Box<Desk>>>,
    /// The exchange that was given back last, mostly for the next request.
    latest_exchange: Cell<Option<Box<Exchange>>>,
    /// The others. In boxes, so that they need not be moved.
    #[allow(clippy::vec_box)]
    spare: RefCell<Vec<Box<Exchange>>>,
}

impl Site {
    pub(crate) fn new(
        app: Rc<dyn App>,
        settings: Settings,
        budget: Arc<Budget>,
        stats: Arc<Counters>,
    ) -> Site {
        Site {
            plan: app.plan_of_all(),
            app,
            settings,
            date: Date::new(),
            lengths: Lengths::default(),
            leads: Leads::default(),
            memory: h2::Memory::default(),
            budget,
            stats,
            turned_away: TurnedAway::default(),
            addresses: OnceCell::new(),
            idle: Idle::default(),
            stopping: Stopping::default(),
            spawner: OnceCell::new(),
            epoch: OnceCell::new(),
            latest: Cell::new((None, 0)),
            desk: Cell::default(),
            latest_exchange: Cell::default(),
            spare: RefCell::default(),
        }
    }

    #[inline]
    pub(crate) fn spawner(&self, lp: &Loop) -> &Spawner {
        self.spawner.get_or_init(|| Spawner::of(lp))
    }

    /// A moment, in nanoseconds of this site: half of what an `Instant` is.
    #[inline]
    pub(crate) fn moment(&self, now: Instant) -> u64 {
        match self.latest.get() {
            (Some(latest), moment) if latest == now => moment,
            _ => self.count_moment(now),
        }
    }

    fn count_moment(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(*self.epoch.get_or_init(|| now));
        let moment = since.as_nanos() as u64;
        self.latest.set((Some(now), moment));
        moment
    }

    /// The same as a time of the clock.
    pub(crate) fn instant(&self, moment: u64) -> Instant {
        let epoch = self.epoch.get().copied();
        epoch.map_or_else(Instant::now, |epoch| epoch + Duration::from_nanos(moment))
    }

    /// What a client is told whose request is refused: the app has the last word.
    #[cold]
    pub(crate) fn refuse(&self, owned: &OwnedRequest, refusal: Refusal) -> Response {
        let request = owned.request();
        let told = catch_unwind(AssertUnwindSafe(|| self.app.refuse(&request, &refusal)));
        let why = match told {
            Ok(told) if told.status().is_informational() => "is no answer",
            Ok(told) if told.body().as_bytes().is_none() => "is not in memory",
            Ok(told) => return told,
            Err(_) => {
                self.stats.count_panic();
                "is a panic"
            }
        };
        tracing::error!("what the app says to a refused request {why}: it is told without it");
        refusal.into_response()
    }

    #[inline]
    pub(crate) fn take_exchange(&self) -> Box<Exchange> {
        self.latest_exchange.take().unwrap_or_else(|| self.take_spare())
    }

    #[inline(never)]
    fn take_spare(&self) -> Box<Exchange> {
        self.spare.borrow_mut().pop().unwrap_or_else(|| Box::new(Exchange::new()))
    }

    #[inline]
    pub(crate) fn give_back(&self, mut exchange: Box<Exchange>) {
        exchange.recycle();
        if let Some(former) = self.latest_exchange.replace(Some(exchange)) {
            self.give_back_spare(former);
        }
    }

    #[inline(never)]
    fn give_back_spare(&self, exchange: Box<Exchange>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < LIMIT_SPARE_EXCHANGES {
            spare.push(exchange);
        }
    }
}

/// How many bytes of bodies may be in memory, on all loops.
pub(crate) struct Budget {
    left: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Arc<Budget> {
        Arc::new(Budget { left: AtomicUsize::new(bytes) })
    }

    /// Whether there was room for so many more.
    fn take(&self, bytes: usize) -> bool {
        let take = |left: usize| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// What one body has of the budget: given back when it is dropped, whoever drops it.
#[derive(Default)]
pub(crate) struct Share(Option<(Arc<Budget>, usize)>);

impl Share {
    /// Takes so many more bytes of `budget`, if there are.
    pub(crate) fn grow(&mut self, budget: &Arc<Budget>, bytes: usize) -> bool {
        if !budget.take(bytes) {
            return false;
        }
        self.0.get_or_insert_with(|| (Arc::clone(budget), 0)).1 += bytes;
        true
    }
}

impl Drop for Share {
    #[inline]
    fn drop(&mut self) {
        if let Some((budget, bytes)) = self.0.take() {
            budget.left.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}
