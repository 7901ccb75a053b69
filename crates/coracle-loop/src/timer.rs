//! Timers: once, every so often, so many times; and the lazy one for idle connections.
//!
//! The [`Wheel`] knows when; this file knows what. A timer's callback is taken out of the wheel
//! while it runs, so it may cancel or re-arm any timer, itself included, and a timer cancelled by an earlier
//! callback of the same batch is simply not there any more.

use crate::wheel::{TimerId, Wheel};
use crate::{Deferred, Loop, LoopHandle, WeakLoop};
use std::cell::Cell;
use std::fmt::{self, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// The timers of a loop.
pub(crate) struct Timers {
    wheel: Wheel<Entry>,
}

struct Entry {
    action: Action,
    /// Set when another thread may cancel it.
    remote: Option<Arc<Remote>>,
}

enum Action {
    Once(Callback),
    Every(Box<Every>),
}

struct Every {
    /// When it is, or was, due: the grid its calls keep to.
    due: Instant,
    period: Duration,
    /// How many times more; `None` for ever.
    left: Option<u32>,
    callback: Callback,
    finish: Option<Deferred>,
}

type Callback = Box<dyn FnMut(&Loop)>;

impl Timers {
    pub(crate) fn new(now: Instant) -> Timers {
        Timers { wheel: Wheel::new(now) }
    }

    #[inline]
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        if self.wheel.is_empty() { None } else { self.wheel.next_deadline() }
    }

    /// Has a timer fire at another time. False if it is over.
    fn set_deadline(&mut self, id: TimerId, deadline: Instant) -> bool {
        let known = self.wheel.set_deadline(id, deadline);
        self.note_due(id);
        known
    }

    /// Begins the grid of a periodic timer anew where it is due now.
    fn note_due(&mut self, id: TimerId) {
        if let Some(deadline) = self.wheel.deadline(id)
            && let Some(Entry { action: Action::Every(every), .. }) = self.wheel.get_mut(id)
        {
            every.due = deadline;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.wheel.len()
    }

    pub(crate) fn describe(&self, now: Instant, out: &mut String) -> fmt::Result {
        for (id, deadline, entry) in self.wheel.iter() {
            let left = deadline.saturating_duration_since(now);
            write!(out, "timer {id:?} in {left:?}")?;
            match &entry.action {
                Action::Once(_) => writeln!(out)?,
                Action::Every(every) => writeln!(out, ", then every {:?}", every.period)?,
            }
        }
        Ok(())
    }
}

impl Loop {
    /// Calls `callback` once, after `timeout`. Loop thread only.
    ///
    /// Timers go by the monotonic clock with nanosecond deadlines: never early, and late only by what the
    /// kernel and the callbacks before it take. Setting the wall clock changes nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// let timer = lp.after(Duration::from_secs(3600), |_| println!("never printed"));
    /// assert!(timer.cancel());
    /// lp.run_until_idle().unwrap();
    /// ```
    pub fn after(&self, timeout: Duration, callback: impl FnMut(&Loop) + 'static) -> Timer {
        self.at(self.deadline(timeout), callback)
    }

    /// Calls `callback` once, at `deadline`. Loop thread only.
    pub fn at(&self, deadline: Instant, callback: impl FnMut(&Loop) + 'static) -> Timer {
        self.insert(deadline, Action::Once(Box::new(callback)))
    }

    /// Calls `callback` every `period`, first after one period, until cancelled. Loop thread only.
    ///
    /// The calls keep to the grid of the first one and do not drift. After a long stop (`SIGSTOP`, a callback
    /// that took long) the calls that were missed are left out, not made up for.
    pub fn every(&self, period: Duration, callback: impl FnMut(&Loop) + 'static) -> Timer {
        self.insert_every(period, None, Box::new(callback), None)
    }

    /// Calls `callback` `times` times, every `period`, and `finish` after the last. Loop thread only.
    ///
    /// ```
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// let count = Rc::new(Cell::new(0));
    /// let counter = Rc::clone(&count);
    /// lp.repeat(Duration::from_millis(1), 3, move |_| counter.set(counter.get() + 1), |lp| lp.stop());
    /// lp.run().unwrap();
    /// assert_eq!(count.get(), 3);
    /// ```
    pub fn repeat(
        &self,
        period: Duration,
        times: u32,
        callback: impl FnMut(&Loop) + 'static,
        finish: impl FnOnce(&Loop) + 'static,
    ) -> Timer {
        self.insert_every(period, Some(times), Box::new(callback), Some(Box::new(finish)))
    }

    fn insert_every(
        &self,
        period: Duration,
        left: Option<u32>,
        callback: Callback,
        finish: Option<Deferred>,
    ) -> Timer {
        // A period of nothing would be due again at once, and the turn would never end.
        let period = period.max(Duration::from_nanos(1));
        // No repetition at all: only the end is left to be told, and that at once.
        let first = if left == Some(0) { Duration::ZERO } else { period };
        let due = self.deadline(first);
        let every = Every { due, period, left, callback, finish };
        self.insert(due, Action::Every(Box::new(every)))
    }

    fn insert(&self, deadline: Instant, action: Action) -> Timer {
        let entry = Entry { action, remote: None };
        let id = self.inner.timers.borrow_mut().wheel.insert(deadline, entry);
        Timer { lp: self.downgrade(), id }
    }

    /// `timeout` from now, by the clock of the loop's timers, which may be a simulated one. Loop thread only.
    ///
    /// Not from the beginning of the turn, as [`now`](Loop::now) is: a callback that took 5 ms must not make
    /// its timer 5 ms early.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// let deadline = lp.deadline(Duration::from_millis(1));
    /// lp.at(deadline, |lp| lp.stop());
    /// lp.run().unwrap();
    /// assert!(lp.now() >= deadline);
    /// ```
    pub fn deadline(&self, timeout: Duration) -> Instant {
        let now = self.inner.demux.borrow().now();
        // Beyond what the clock can tell is as good as never.
        now.checked_add(timeout).unwrap_or_else(|| now + Duration::from_secs(1 << 32))
    }

    /// True if there were any.
    #[inline]
    pub(crate) fn run_due_timers(&self) -> bool {
        !self.inner.timers.borrow().is_empty() && self.fire_due_timers()
    }

    #[inline(never)]
    fn fire_due_timers(&self) -> bool {
        let now = self.now();
        for count in 0..self.inner.budget {
            let Some((id, entry)) = self.inner.timers.borrow_mut().wheel.take_due(now) else {
                return count > 0;
            };
            self.fire(id, entry, now);
        }
        self.inner.overrun.set(true);
        true
    }

    fn fire(&self, id: TimerId, entry: Entry, now: Instant) {
        let mut firing = Firing { lp: self, id, entry: Some(entry), next: None };
        let entry = firing.entry.as_mut().expect("it was put there");
        if entry.remote.as_ref().is_none_or(|remote| remote.begin()) {
            firing.next = match &mut entry.action {
                Action::Once(callback) => {
                    callback(self);
                    Some(None)
                }
                Action::Every(every) => Some(every.fire(self, now)),
            };
        }
    }
}

/// A timer that is being fired. Puts it back afterwards if it goes on; after a panic it does not.
struct Firing<'a> {
    lp: &'a Loop,
    id: TimerId,
    entry: Option<Entry>,
    /// Whether it goes on if its callback has re-armed it, and when it is due otherwise.
    next: Option<Option<Instant>>,
}

impl Drop for Firing<'_> {
    fn drop(&mut self) {
        let entry = self.entry.take().expect("it is dropped once");
        let remote = entry.remote.clone();
        let mut timers = self.lp.inner.timers.borrow_mut();
        if self.next.is_none() {
            timers.wheel.remove(self.id);
        }
        let mut over = timers.wheel.put_back(self.id, entry, self.next.flatten());
        timers.note_due(self.id);
        // Only now is it known whether it goes on; until here, other threads saw it firing.
        if let Some(remote) = remote {
            if over.is_some() {
                remote.0.store(OVER, Ordering::SeqCst);
            } else if !remote.end() {
                over = timers.wheel.remove(self.id); // cancelled while it fired
            }
        }
        drop(timers);
        drop(over); // when nothing is borrowed: what it owns may use the loop as it goes
    }
}

impl Every {
    /// Calls back, and says when to do it again.
    fn fire(&mut self, lp: &Loop, now: Instant) -> Option<Instant> {
        if self.left != Some(0) {
            (self.callback)(lp);
        }
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                if let Some(finish) = self.finish.take() {
                    finish(lp);
                }
                return None;
            }
        }
        Some(next_on_grid(self.due, self.period, now))
    }
}

/// The first point of the grid `due + n * period` that lies after `now`.
fn next_on_grid(due: Instant, period: Duration, now: Instant) -> Instant {
    let next = due + period;
    if next > now {
        return next;
    }
    let missed = now.duration_since(due).as_nanos() / period.as_nanos();
    let offset = period.as_nanos().saturating_mul(missed + 1);
    due + Duration::from_nanos(u64::try_from(offset).unwrap_or(u64::MAX >> 1))
}

/// A timer of a loop. Dropping it changes nothing: the timer goes on.
#[derive(Debug, Clone)]
pub struct Timer {
    lp: WeakLoop,
    id: TimerId,
}

impl Timer {
    /// Ends the timer: it never fires again, not even if it was due in this very turn. False if it was over
    /// already.
    pub fn cancel(&self) -> bool {
        let Some(lp) = self.lp.upgrade() else { return false };
        let mut timers = lp.inner.timers.borrow_mut();
        let before = timers.wheel.len();
        let removed = timers.wheel.remove(self.id); // nothing, while it fires
        let known = timers.wheel.len() < before;
        drop(timers);
        drop(removed); // outside the borrow: what it owns may use the loop as it goes
        known
    }

    /// Has it fire `timeout` from now instead, also from inside its own callback. False if it was over
    /// already.
    pub fn rearm(&self, timeout: Duration) -> bool {
        let Some(lp) = self.lp.upgrade() else { return false };
        let deadline = lp.deadline(timeout);
        lp.inner.timers.borrow_mut().set_deadline(self.id, deadline)
    }

    /// When it fires next; `None` if it is over.
    pub fn deadline(&self) -> Option<Instant> {
        self.lp.upgrade()?.inner.timers.borrow().wheel.deadline(self.id)
    }

    /// What other threads may hold of this timer.
    ///
    /// ```
    /// use std::time::Duration;
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// let timer = lp.after(Duration::from_secs(60), |_| unreachable!());
    /// let remote = timer.remote();
    /// assert!(std::thread::spawn(move || remote.cancel()).join().unwrap());
    /// ```
    ///
    /// # Panics
    /// When the loop is gone.
    pub fn remote(&self) -> RemoteTimer {
        let lp = self.lp.upgrade().expect("the loop of this timer is gone");
        let mut timers = lp.inner.timers.borrow_mut();
        let remote = match timers.wheel.get_mut(self.id) {
            Some(entry) => Arc::clone(entry.remote.get_or_insert_default()),
            None => Arc::new(Remote(AtomicU8::new(OVER))),
        };
        RemoteTimer { remote, handle: lp.handle(), id: self.id }
    }
}

/// A timer of a loop, for other threads. Any thread.
#[derive(Debug, Clone)]
pub struct RemoteTimer {
    remote: Arc<Remote>,
    handle: LoopHandle,
    id: TimerId,
}

impl RemoteTimer {
    /// Ends the timer: after this it does not begin to fire. True if it was waiting; false if it was over, or is
    /// firing at this moment.
    pub fn cancel(&self) -> bool {
        let id = self.id;
        let cancelled = self.remote.cancel();
        if cancelled {
            // It will not fire whatever becomes of this; the post only gives the memory back early.
            let _ = self.handle.post(move |lp| {
                let removed = lp.inner.timers.borrow_mut().wheel.remove(id);
                drop(removed);
            });
        }
        cancelled
    }

    /// Has it fire `timeout` from now instead. True if the loop was told; if the timer is over by the time
    /// the loop hears of it, nothing happens.
    pub fn rearm(&self, timeout: Duration) -> bool {
        if self.remote.0.load(Ordering::SeqCst) == OVER {
            return false;
        }
        let id = self.id;
        let asked = Instant::now();
        let rearm = move |lp: &Loop| {
            let timeout = timeout.saturating_sub(asked.elapsed());
            let deadline = lp.deadline(timeout);
            lp.inner.timers.borrow_mut().set_deadline(id, deadline);
        };
        self.handle.post(rearm).is_ok()
    }
}

const ARMED: u8 = 0;
const FIRING: u8 = 1;
/// Cancelled, or fired for the last time.
const OVER: u8 = 2;

/// The state a timer shares with other threads: `ARMED ⇄ FIRING`, and from either to `OVER`.
#[derive(Debug, Default)]
struct Remote(AtomicU8);

impl Remote {
    /// The loop is about to fire. False if it was cancelled.
    fn begin(&self) -> bool {
        self.0.compare_exchange(ARMED, FIRING, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The loop has fired. False if it was cancelled meanwhile.
    fn end(&self) -> bool {
        self.0.compare_exchange(FIRING, ARMED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn cancel(&self) -> bool {
        self.0.swap(OVER, Ordering::SeqCst) == ARMED
    }
}

/// A time-out that is put off often and fires rarely: for idle connections.
///
/// [`touch`](IdleTimer::touch) only notes the time. When the timer fires and finds that it was touched since,
/// it sleeps for the rest. So a busy connection costs one timer per time-out, not one per message.
///
/// ```
/// use std::time::Duration;
/// # let lp = coracle_loop::Loop::new().unwrap();
/// let idle = lp.idle_timer(Duration::from_millis(2), |lp| lp.stop());
/// idle.touch();
/// lp.run().unwrap(); // stops 2 ms after the last touch
/// ```
#[derive(Debug)]
pub struct IdleTimer {
    /// The loop's time.
    now: Rc<Cell<Instant>>,
    touched: Rc<Cell<Instant>>,
    timer: Timer,
}

impl Loop {
    /// Calls `callback` once nothing has [touched](IdleTimer::touch) the timer for `timeout`. Dropping the
    /// [`IdleTimer`] cancels it. Loop thread only.
    pub fn idle_timer(
        &self,
        timeout: Duration,
        mut callback: impl FnMut(&Loop) + 'static,
    ) -> IdleTimer {
        let touched = Rc::new(Cell::new(self.now()));
        let last = Rc::clone(&touched);
        let slot: Rc<Cell<Option<TimerId>>> = Rc::default();
        let own = Rc::clone(&slot);
        let timer = self.after(timeout, move |lp| {
            let due = last.get() + timeout;
            match own.get() {
                Some(id) if due > lp.now() => {
                    lp.inner.timers.borrow_mut().wheel.set_deadline(id, due);
                }
                _ => callback(lp),
            }
        });
        slot.set(Some(timer.id));
        IdleTimer { now: Rc::clone(&self.inner.now), touched, timer }
    }
}

impl IdleTimer {
    /// Puts the time-out off: it begins anew [now](Loop::now), that is, at the end of the loop's last wait. Two
    /// loads and a store.
    #[inline]
    pub fn touch(&self) {
        self.touched.set(self.now.get());
    }
}

impl Drop for IdleTimer {
    fn drop(&mut self) {
        self.timer.cancel();
    }
}
