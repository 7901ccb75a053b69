//! How fast may a connection be, and a group of them? Token buckets with somebody waiting.
//!
//! ```text
//!   Conn::limit_rate ──► a gate for each direction, of the connection's own
//!   RateGroup        ──► a gate for each direction, shared
//!
//!   ask ──► so many bytes may pass now
//!      └──► none: wait ──► [ first │ second │ third ] ──timer──► called one after the other, each for its share
//! ```
//!
//! Nobody is called for a single byte: who waits is called when what it wants may pass, or what passes in
//! [a twentieth of a second](CALLS_PER_SECOND). What is saved up meanwhile is not lost as long as the burst is
//! more.

use crate::TokenBucket;
use crate::link::Link;
use coracle_loop::{Loop, Timer};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

/// How often who waits at a gate is called, about.
const CALLS_PER_SECOND: u64 = 20;

/// The least a connection is called for when it shares a gate with many.
const LEAST_SHARE_BYTES: u64 = 1024;

/// How fast bytes may pass, in each direction. As they are on the wire: a [layer](crate::Layer) is above it.
///
/// Over the rate, a connection is not read, and its peer has to wait; what it writes waits in its queue, and
/// counts for the [marks and limits](crate::Settings::high_mark_bytes) there. A connection that is closed has its
/// [`drain`](crate::Settings::drain) to send what waits: choose that long enough for the rate.
///
/// ```
/// use coracle_net::RateLimit;
///
/// let limit = RateLimit { send_bytes_per_second: Some(100_000), ..RateLimit::default() };
/// assert_eq!(limit.receive_bytes_per_second, None); // as fast as it comes
/// ```
#[derive(Debug, Clone)]
pub struct RateLimit {
    /// How many bytes are received in a second; `None`: any number.
    pub receive_bytes_per_second: Option<u64>,
    /// How many bytes are sent in a second; `None`: any number.
    pub send_bytes_per_second: Option<u64>,
    /// How many bytes may pass at once after a silence, in each direction. A tenth of a second's worth or more:
    /// with less, the loop cannot be on time often enough to keep up the rate.
    pub burst_bytes: u64,
}

impl Default for RateLimit {
    /// No limit, and a burst of 64 KiB should one be set.
    fn default() -> RateLimit {
        RateLimit {
            receive_bytes_per_second: None,
            send_bytes_per_second: None,
            burst_bytes: 64 << 10,
        }
    }
}

/// A rate that connections share, and by which all of them together go. Who waits is served in turn.
///
/// It is of one loop, and so are its connections: a server with many loops has a group on each, with a part of the
/// rate. Received bytes are counted when they are there, so that silent connections hold nothing: many that begin
/// to send at the same moment may exceed the burst once, and pay for it afterwards.
///
/// ```
/// use coracle_net::{RateGroup, RateLimit};
///
/// # let lp = coracle_loop::Loop::new().unwrap();
/// let downloads = RateGroup::new(&lp, &RateLimit {
///     send_bytes_per_second: Some(10_000_000),
///     burst_bytes: 1_000_000,
///     ..RateLimit::default()
/// });
/// // in a callback: conn.join_rate_group(&downloads);
/// ```
///
/// ```compile_fail
/// # let lp = coracle_loop::Loop::new().unwrap();
/// let group = coracle_net::RateGroup::new(&lp, &Default::default());
/// std::thread::spawn(move || drop(group)); // error: `Rc<…>` cannot be sent between threads safely
/// ```
#[derive(Clone)]
pub struct RateGroup {
    pub(crate) receive: Option<Rc<Gate>>,
    pub(crate) send: Option<Rc<Gate>>,
}

impl RateGroup {
    /// A group of `lp`, without connections yet. Loop thread only.
    ///
    /// # Panics
    /// When a rate or the burst is zero: nothing would ever pass.
    pub fn new(lp: &Loop, limit: &RateLimit) -> RateGroup {
        RateGroup {
            receive: Gate::new(lp, Direction::Receive, limit),
            send: Gate::new(lp, Direction::Send, limit),
        }
    }
}

impl std::fmt::Debug for RateGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RateGroup").finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Receive,
    Send,
}

/// A token bucket, and who waits for it.
pub(crate) struct Gate {
    direction: Direction,
    bucket: RefCell<TokenBucket>,
    /// What is worth a call.
    quantum: u64,
    waiting: RefCell<VecDeque<Waiting>>,
    timer: RefCell<Option<Timer>>,
    /// What the one that is just being called may have.
    share: Cell<Option<u64>>,
}

struct Waiting {
    link: Weak<Link>,
    wanted: u64,
}

impl Gate {
    /// The gate of one direction, if that is limited.
    pub(crate) fn new(lp: &Loop, direction: Direction, limit: &RateLimit) -> Option<Rc<Gate>> {
        let per_second = match direction {
            Direction::Receive => limit.receive_bytes_per_second,
            Direction::Send => limit.send_bytes_per_second,
        }?;
        let burst = limit.burst_bytes;
        Some(Rc::new(Gate {
            direction,
            bucket: RefCell::new(TokenBucket::new(per_second, burst, lp.now())),
            // Half the burst: who is called late must not have lost anything meanwhile.
            quantum: (per_second / CALLS_PER_SECOND).min(burst / 2).max(1),
            waiting: RefCell::default(),
            timer: RefCell::default(),
            share: Cell::new(None),
        }))
    }

    /// How many of `wanted` bytes may pass now; `None`: too few, or it is somebody else's turn.
    pub(crate) fn ask(&self, lp: &Loop, wanted: usize) -> Option<usize> {
        let wanted = wanted as u64;
        let available = self.bucket.borrow_mut().available(lp.now());
        let (most, least) = match self.share.take() {
            Some(share) => (share, 1),
            None if self.waiting.borrow().is_empty() => (u64::MAX, self.quantum),
            None => return None,
        };
        (available >= wanted.min(least)).then(|| available.min(wanted).min(most) as usize)
    }

    /// Notes that so many bytes pass.
    pub(crate) fn charge(&self, count: usize) {
        self.bucket.borrow_mut().charge(count as u64);
    }

    /// Notes that so many bytes have not passed after all.
    pub(crate) fn give_back(&self, count: usize) {
        self.bucket.borrow_mut().give_back(count as u64);
    }

    /// Has `link` called when some of `wanted` bytes may pass.
    pub(crate) fn wait(self: &Rc<Self>, lp: &Loop, link: &Rc<Link>, wanted: usize) {
        let wanted = wanted as u64;
        self.waiting.borrow_mut().push_back(Waiting { link: Rc::downgrade(link), wanted });
        self.set_timer(lp);
    }

    fn set_timer(self: &Rc<Self>, lp: &Loop) {
        let mut timer = self.timer.borrow_mut();
        let waiting = self.waiting.borrow();
        if let (None, Some(first)) = (&*timer, waiting.front()) {
            let ready = self.bucket.borrow().ready_at(first.wanted.min(self.quantum));
            let gate = Rc::downgrade(self);
            *timer = Some(lp.at(ready, move |lp| {
                if let Some(gate) = gate.upgrade() {
                    gate.timer.take();
                    gate.call(lp);
                }
            }));
        }
    }

    /// Calls those who wait now, as long as something may pass.
    fn call(self: &Rc<Self>, lp: &Loop) {
        let count = self.waiting.borrow().len();
        for left in (1..=count as u64).rev() {
            let available = self.bucket.borrow_mut().available(lp.now());
            let Some(next) = self.waiting.borrow_mut().pop_front() else { break };
            let Some(link) = next.link.upgrade().filter(|link| link.waits_at_gates()) else {
                continue;
            };
            if available < next.wanted.min(self.quantum).min(LEAST_SHARE_BYTES) {
                self.waiting.borrow_mut().push_front(next);
                break;
            }
            let share = (available / left).max(LEAST_SHARE_BYTES).min(available);
            self.share.set(Some(share));
            link.may_pass(lp, self.direction);
            self.share.set(None);
        }
        self.set_timer(lp);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            timer.cancel();
        }
    }
}
