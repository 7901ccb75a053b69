//! One loop's share of a load: opens its connections, keeps time, and knows when it is over.
//!
//! ```text
//!   Opening ── all open, or refused ──► (begin) ──► Running ── time is up ──► Ending ── all answered ──► Ended
//!                                                      └────── no connection is left ──────────────────────▲
//! ```

use super::Event;
use super::client::{Client, Conversation};
use super::pattern::Pattern;
use super::tally::Tally;
use coracle::Loop;
use coracle::demux::{Address, Backend, Handle};
use coracle::net::{Connector, Settings, attach};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// How many connections are being opened at once. A server's queue for new ones has room for more than that.
const OPENING_AT_ONCE: usize = 256;

/// How long answers may take when nothing more is sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many messages of a connection may be under way with a rate: as many as these, and as fit into these bytes.
const LIMIT_WINDOW: usize = 64;
const LIMIT_WINDOW_BYTES: usize = 256 << 10;

/// What a worker is to do.
pub(super) struct Plan {
    pub(super) index: usize,
    pub(super) addresses: Vec<Address>,
    /// The number of its first connection.
    pub(super) first: usize,
    pub(super) connections: usize,
    pub(super) bytes: usize,
    /// How many connections all workers have together.
    pub(super) all_connections: usize,
    /// Messages per second, of all workers together.
    pub(super) rate: Option<u32>,
    pub(super) idle: bool,
    pub(super) length: Duration,
    pub(super) backend: Option<Backend>,
}

/// What other threads may see of a worker while it works.
#[derive(Default)]
pub(super) struct Counters {
    open: AtomicU64,
    messages: AtomicU64,
}

impl Counters {
    pub(super) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Opening,
    Running,
    Ending,
    Ended,
}

/// A worker. It is kept by its loop.
pub(super) struct Worker {
    pub(super) plan: Plan,
    pub(super) pattern: Pattern,
    pub(super) tally: RefCell<Tally>,
    counters: Arc<Counters>,
    events: Sender<Event>,
    clients: RefCell<Vec<Rc<Client>>>,
    phase: Cell<Phase>,
    /// Connections that were begun, and those of them that are neither open nor refused.
    begun: Cell<usize>,
    opening: Cell<usize>,
    open: Cell<usize>,
    /// Messages that were sent and have not come back.
    under_way: Cell<u64>,
    start: Cell<Instant>,
    /// The next message of the schedule.
    next: Cell<u64>,
}

impl Worker {
    pub(super) fn new(plan: Plan, counters: Arc<Counters>, events: Sender<Event>) -> Worker {
        Worker {
            plan,
            pattern: Pattern::new(),
            tally: RefCell::default(),
            counters,
            events,
            clients: RefCell::default(),
            phase: Cell::new(Phase::Opening),
            begun: Cell::new(0),
            opening: Cell::new(0),
            open: Cell::new(0),
            under_way: Cell::new(0),
            start: Cell::new(Instant::now()),
            next: Cell::new(0),
        }
    }

    // --- Opening ---------------------------------------------------------------------------------------

    /// Opens connections, as many at once as there may be.
    pub(super) fn open(self: &Rc<Self>, lp: &Loop) {
        let connector = Connector::to(self.plan.addresses.clone());
        while self.begun.get() < self.plan.connections && self.opening.get() < OPENING_AT_ONCE {
            let number = self.plan.first + self.begun.replace(self.begun.get() + 1);
            self.opening.set(self.opening.get() + 1);
            let worker = Rc::clone(self);
            connector.connect(lp, move |lp, connected| worker.connected(lp, number, connected));
        }
    }

    fn connected(self: &Rc<Self>, lp: &Loop, number: usize, connected: io::Result<Handle>) {
        if self.phase.get() != Phase::Opening {
            return; // it was ended meanwhile
        }
        self.opening.set(self.opening.get() - 1);
        match connected {
            Ok(socket) => {
                let local = lp.local_address(socket).ok();
                let index = self.clients.borrow().len();
                let client = Rc::new(Client::new(Rc::clone(self), number, index, local));
                self.clients.borrow_mut().push(Rc::clone(&client));
                self.tally.borrow_mut().opened += 1;
                self.count_open(self.open.get() + 1);
                let conversation = Conversation(Rc::clone(&client));
                let handle = attach(lp, socket, self.settings(), conversation);
                client.is_at(handle.expect("these settings make sense"));
            }
            Err(error) => self.tally.borrow_mut().refused(error.to_string()),
        }
        self.open(lp);
        if self.opening.get() == 0 {
            let _ = self.events.send(Event::Opened);
        }
    }

    /// All that may be under way fits under the high mark: a client that stopped reading while it writes would
    /// wait for a server that does the same.
    fn settings(&self) -> Settings {
        let high_mark_bytes = self.plan.bytes.max(LIMIT_WINDOW_BYTES);
        let limit_output_bytes = 2 * high_mark_bytes;
        Settings { high_mark_bytes, limit_output_bytes, ..Settings::default() }
    }

    // --- Running ---------------------------------------------------------------------------------------

    /// Everybody is connected who can be: the time counts from `start`.
    pub(super) fn begin(self: &Rc<Self>, lp: &Loop, start: Instant) {
        if self.phase.get() != Phase::Opening {
            return;
        }
        self.phase.set(Phase::Running);
        self.start.set(start);
        let worker = Rc::clone(self);
        lp.at(start + self.plan.length, move |lp| worker.finish(lp));
        if self.open.get() == 0 {
            return self.end_later(lp);
        }
        if self.plan.rate.is_some() {
            return self.send_due(lp);
        }
        if !self.plan.idle {
            let clients = self.clients.borrow().clone();
            clients.iter().for_each(|client| client.owe(lp));
        }
    }

    /// Has every message sent that is due, and comes back for the next.
    fn send_due(self: &Rc<Self>, lp: &Loop) {
        let end = self.start.get() + self.plan.length;
        let now = Instant::now();
        let count = self.clients.borrow().len() as u64;
        while self.phase.get() == Phase::Running {
            let next = self.next.get();
            let due = self.due(next);
            if due >= end {
                return;
            }
            if due > now {
                let worker = Rc::clone(self);
                lp.at(due, move |lp| worker.send_due(lp));
                return;
            }
            self.next.set(next + 1);
            let client = Rc::clone(&self.clients.borrow()[(next % count) as usize]);
            client.owe(lp);
        }
    }

    /// When a message of this worker's is due.
    ///
    /// There is one schedule for all workers: its messages go to all connections in turn, and this worker has
    /// those that would be its connections'.
    fn due(&self, message: u64) -> Instant {
        let &Plan { first, connections, all_connections, rate, .. } = &self.plan;
        let (round, place) = (message / connections as u64, message % connections as u64);
        let of_all = round * all_connections as u64 + first as u64 + place;
        let rate = u64::from(rate.unwrap_or(1));
        let rest = Duration::from_nanos(of_all % rate * 1_000_000_000 / rate);
        self.start.get() + Duration::from_secs(of_all / rate) + rest
    }

    /// When the client at `index` was to send its message number `count`: they take turns.
    pub(super) fn due_of(&self, index: usize, count: u64) -> Instant {
        self.due(count * self.clients.borrow().len() as u64 + index as u64)
    }

    pub(super) fn is_running(&self) -> bool {
        self.phase.get() == Phase::Running
    }

    /// Nothing is wrong any more with a connection that ends.
    pub(super) fn is_over(&self) -> bool {
        self.phase.get() == Phase::Ended
    }

    /// How many messages of one connection may be under way.
    pub(super) fn window(&self) -> u64 {
        match self.plan.rate {
            Some(_) => (LIMIT_WINDOW_BYTES / self.plan.bytes).clamp(1, LIMIT_WINDOW) as u64,
            None => 1,
        }
    }

    #[inline]
    pub(super) fn sent(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    /// Messages have come back, `now`.
    #[inline]
    pub(super) fn answered(self: &Rc<Self>, lp: &Loop, messages: u64, now: Instant) {
        let mut tally = self.tally.borrow_mut();
        tally.last = Some(now);
        self.counters.messages.store(tally.messages, Ordering::Relaxed);
        drop(tally);
        self.under_way.set(self.under_way.get() - messages);
        if self.phase.get() == Phase::Ending && self.under_way.get() == 0 {
            self.end_later(lp);
        }
    }

    /// A connection is gone, with messages that will not come back.
    pub(super) fn lost(self: &Rc<Self>, unanswered: u64) {
        self.under_way.set(self.under_way.get() - unanswered);
        self.count_open(self.open.get() - 1);
        let waits_for_nobody = match self.phase.get() {
            Phase::Opening | Phase::Ended => false,
            Phase::Running => self.open.get() == 0,
            Phase::Ending => self.under_way.get() == 0,
        };
        if waits_for_nobody && let Some(lp) = Loop::current() {
            self.end_later(&lp);
        }
    }

    fn count_open(&self, open: usize) {
        self.open.set(open);
        self.counters.open.store(open as u64, Ordering::Relaxed);
    }

    // --- Ending ----------------------------------------------------------------------------------------

    /// Sends no more, and waits for what is under way.
    pub(super) fn finish(self: &Rc<Self>, lp: &Loop) {
        match self.phase.get() {
            Phase::Opening => {}
            Phase::Running => self.count_unsent(),
            Phase::Ending | Phase::Ended => return,
        }
        self.phase.set(Phase::Ending);
        if self.under_way.get() == 0 {
            return self.end(lp);
        }
        let worker = Rc::clone(self);
        lp.after(PATIENCE, move |lp| worker.end(lp));
    }

    /// Counts messages that were due before time was up, and that nobody has got round to.
    fn count_unsent(&self) {
        let end = Instant::now().min(self.start.get() + self.plan.length);
        while self.plan.rate.is_some() && self.due(self.next.get()) < end {
            self.next.set(self.next.get() + 1);
            self.tally.borrow_mut().unsent += 1;
        }
    }

    /// Ends when no callback of a connection runs.
    fn end_later(self: &Rc<Self>, lp: &Loop) {
        let worker = Rc::clone(self);
        lp.defer(move |lp| worker.end(lp));
    }

    fn end(&self, lp: &Loop) {
        if self.phase.replace(Phase::Ended) == Phase::Ended {
            return;
        }
        for client in self.clients.take() {
            client.account();
        }
        let mut tally = self.tally.take();
        tally.open_at_end = self.open.get();
        let _ = self.events.send(Event::Ended(Box::new(tally)));
        lp.stop(); // and the connections go with the loop
    }
}
