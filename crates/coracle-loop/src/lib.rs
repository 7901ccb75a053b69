//! One loop per thread: whose turn is it?
//!
//! A [`Loop`] asks the kernel through a demultiplexer ([`coracle_demux`]) and runs what is due: timers,
//! jobs posted by other threads, completions of operations. Everything a loop owns stays on its thread;
//! other threads hold a [`LoopHandle`] and [`post`](LoopHandle::post).
//!
//! ```
//! use coracle_loop::Loop;
//! use std::time::Duration;
//!
//! # fn main() -> std::io::Result<()> {
//! let lp = Loop::new()?;
//! lp.after(Duration::from_millis(5), |lp| lp.stop());
//! lp.run()?; // returns after 5 ms; an idle loop makes no system call meanwhile
//! # Ok(())
//! # }
//! ```
//!
//! # A turn
//!
//! ```text
//!        ┌──────────────────────────────────────────────────────────────────────────────┐
//!        ▼                                                                              │
//!   due timers ──► posted jobs ──► deferred jobs ──► prepare ──► wait ──► now ──► check ──► completions
//!                                                                 │
//!                             (about to sleep: idle hooks) ◄──────┘
//! ```
//!
//! The order is a promise. Timers go first so that a deadline never queues behind a burst of I/O. Each
//! stage has a budget ([`Builder::budget`]); what is left over comes first in the same stage of the next turn,
//! which then does not sleep. So one busy source cannot starve the others. Completions also leave off when a timer
//! is late by a millisecond.
//!
//! The wait lasts exactly until the next timer, and without end when there is none: an idle loop makes no
//! system call.

mod builder;
mod extension;
mod handle;
mod hook;
mod lend;
mod offload;
mod operate;
pub mod pool;
mod pulse;
mod signal;
mod socket;
mod timer;
mod watch;
pub mod wheel;

pub use builder::Builder;
pub use coracle_demux as demux;
pub use handle::{LoopHandle, PostError};
pub use hook::{Hook, HookKind};
#[doc(hidden)]
pub use lend::{is_older, on_change_of_owner};
pub use offload::{OffloadError, Overloaded};
pub use operate::{Complete, Ticket};
pub use pulse::{Pulse, Watcher};
pub use signal::SignalListener;
pub use timer::{IdleTimer, RemoteTimer, Timer};
pub use watch::{Trigger, Watch, Watched};

use coracle_demux::{Backend, Demux, Features};
use handle::Shared;
use hook::Hooks;
use offload::Offloads;
use operate::Targets;
use pool::Pool;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::null;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};
use timer::Timers;

/// Between so many completions, it is looked whether a timer is late. Whoever is told of one may take its time.
const COMPLETIONS_PER_LOOK: usize = 4;

/// From when on a timer is late, so that the rest of the completions have to wait for the next turn.
const LATE: Duration = Duration::from_millis(1);

/// A piece of work for a later moment of the same loop.
type Deferred = Box<dyn FnOnce(&Loop)>;

thread_local! {
    /// The loop whose turn it is on this thread, if one is in its turn.
    static CURRENT: RefCell<Option<Loop>> = const { RefCell::new(None) };

    /// What that loop shares with its handles, or nothing. Only ever compared: it has no destructor, and so costs
    /// less to look at.
    static CURRENT_SHARED: Cell<*const Shared> = const { Cell::new(null()) };
}

/// An event loop. Cheap to clone; all clones are the same loop, which ends with the last of them. Callbacks
/// are given the loop they run on: a clone kept inside one would keep the loop alive for ever.
///
/// It stays on the thread that made it:
///
/// ```compile_fail
/// let lp = coracle_loop::Loop::new().unwrap();
/// std::thread::spawn(move || lp.run()); // error: `Rc<…>` cannot be sent between threads safely
/// ```
#[derive(Clone)]
pub struct Loop {
    inner: Rc<Inner>,
}

/// A loop, for what the loop itself holds: it must not keep its owner alive.
#[derive(Clone)]
pub(crate) struct WeakLoop(Weak<Inner>);

impl WeakLoop {
    /// The loop, if it still exists.
    pub(crate) fn upgrade(&self) -> Option<Loop> {
        self.0.upgrade().map(|inner| Loop { inner })
    }
}

impl fmt::Debug for WeakLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakLoop")
    }
}

/// The time of a loop. See [`Loop::clock`].
#[derive(Debug, Clone)]
pub struct Clock(Rc<Cell<Instant>>);

impl Clock {
    /// As [`Loop::now`].
    #[inline]
    pub fn now(&self) -> Instant {
        self.0.get()
    }
}

/// The state of a loop, in cells with short borrows: callbacks run inside a turn and use the loop too, so
/// nothing may be borrowed while they do.
struct Inner {
    demux: RefCell<Box<dyn Demux>>,
    targets: RefCell<Targets>,
    timers: RefCell<Timers>,
    /// Posted jobs whose turn has come.
    batch: RefCell<VecDeque<handle::Job>>,
    deferred: RefCell<VecDeque<Deferred>>,
    /// Jobs for when everything that is known was told, and how many completions they let go first at most.
    last: RefCell<Vec<(usize, Deferred)>>,
    hooks: RefCell<Hooks>,
    offloads: RefCell<Offloads>,
    extensions: extension::Extensions,
    pool: Pool,
    shared: Arc<Shared>,
    now: Rc<Cell<Instant>>,
    stopping: Cell<bool>,
    /// A turn is under way.
    turning: Cell<bool>,
    /// Operations that listen for signals, and keep no loop from being idle.
    listening: Cell<usize>,
    /// The last turn ran out of budget before it ran out of work.
    overrun: Cell<bool>,
    budget: usize,
    backend: Backend,
    features: Features,
}

/// How long a turn may sleep.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sleep {
    UntilNextTimer,
    /// Until the next timer, but not if the turn has already done something.
    UnlessUseful,
    Never,
}

/// How long a wait may last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Not at all.
    None,
    /// Until the next timer.
    Until(Instant),
    /// Until something happens.
    Endless,
}

impl Loop {
    /// A loop on the best backend there is, with default limits.
    ///
    /// # Errors
    /// As [`coracle_demux::open`].
    pub fn new() -> io::Result<Loop> {
        Builder::new().build()
    }

    /// A loop with settings of its own.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The loop whose turn it is on this thread. `None` outside of callbacks.
    pub fn current() -> Option<Loop> {
        // A thread that is about to end has no thread-locals any more, and no turn either.
        CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
    }

    /// Whether it is the loop whose turn it is on this thread. Cheaper than [`current`](Loop::current).
    ///
    /// ```
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// assert!(!lp.is_current());
    /// lp.defer(|lp| assert!(lp.is_current()));
    /// lp.run_ready().unwrap();
    /// ```
    #[inline]
    pub fn is_current(&self) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.inner.shared), CURRENT_SHARED.get())
    }

    pub(crate) fn downgrade(&self) -> WeakLoop {
        WeakLoop(Rc::downgrade(&self.inner))
    }

    /// What other threads may hold of this loop.
    pub fn handle(&self) -> LoopHandle {
        LoopHandle::new(Arc::clone(&self.inner.shared))
    }

    /// The time at which the loop last came out of its wait. Reading it costs nothing; until the next wait it
    /// stands still.
    #[inline]
    pub fn now(&self) -> Instant {
        self.inner.now.get()
    }

    /// That time, to be kept: it goes on with the loop. For what asks for it often, and has no loop at hand.
    ///
    /// ```
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// let clock = lp.clock();
    /// lp.run_ready().unwrap();
    /// assert_eq!(clock.now(), lp.now());
    /// ```
    pub fn clock(&self) -> Clock {
        Clock(Rc::clone(&self.inner.now))
    }

    /// Which backend this loop runs on.
    pub fn backend(&self) -> Backend {
        self.inner.backend
    }

    /// What that backend can do.
    pub fn features(&self) -> Features {
        self.inner.features
    }

    /// A random number for seeding hash keys and jitter; under the simulator, the same in each replay.
    pub fn seed(&self) -> u64 {
        self.inner.demux.borrow_mut().seed()
    }

    // --- Running ---------------------------------------------------------------------------------------

    /// Runs turns until [`stop`](Loop::stop).
    ///
    /// A stop that came before is not lost: then this returns at once. Either way, jobs posted before the
    /// stop are run before it returns.
    ///
    /// # Errors
    /// Only when the kernel's side of the loop is broken.
    ///
    /// # Panics
    /// When called from inside a turn of the same loop.
    pub fn run(&self) -> io::Result<()> {
        let _running = self.begin();
        while !self.is_stopping() {
            self.turn(Sleep::UntilNextTimer)?;
        }
        self.finish_stopping();
        Ok(())
    }

    /// Runs one turn, which waits until there is something to do if there is nothing yet.
    pub fn run_once(&self) -> io::Result<()> {
        let _running = self.begin();
        self.turn(Sleep::UnlessUseful)
    }

    /// Runs one turn, which does what there is to do and does not wait.
    pub fn run_ready(&self) -> io::Result<()> {
        let _running = self.begin();
        self.turn(Sleep::Never)
    }

    /// Runs turns until nothing is left that could ever happen: no operation in flight (listeners for signals do
    /// not count, until they are cancelled), no timer, no job, no offloaded work. Or until [`stop`](Loop::stop).
    ///
    /// Jobs that another thread may post later cannot be known: whoever waits for those uses
    /// [`run`](Loop::run).
    pub fn run_until_idle(&self) -> io::Result<()> {
        let _running = self.begin();
        while !self.is_stopping() && !self.is_idle() {
            self.turn(Sleep::UnlessUseful)?; // what it did may have been the last
        }
        if self.is_stopping() {
            self.finish_stopping();
        }
        Ok(())
    }

    /// Ends [`run`](Loop::run) after this turn; before it, makes it return at once. Other threads use
    /// [`LoopHandle::stop`].
    pub fn stop(&self) {
        self.inner.stopping.set(true);
    }

    /// Ends [`run`](Loop::run) after a time. The timer can be cancelled.
    pub fn stop_after(&self, timeout: Duration) -> Timer {
        self.after(timeout, Loop::stop)
    }

    /// Whether nothing is left that could ever happen by itself.
    #[inline]
    pub fn is_idle(&self) -> bool {
        // Mostly something is in flight, and then nothing else is looked at.
        let in_flight = self.inner.demux.borrow().in_flight();
        in_flight == self.inner.listening.get() && self.has_nothing_to_do()
    }

    /// Whether there is nothing but operations that could happen.
    #[inline(never)]
    fn has_nothing_to_do(&self) -> bool {
        let inner = &*self.inner;
        inner.timers.borrow().is_empty()
            && inner.deferred.borrow().is_empty()
            && inner.last.borrow().is_empty()
            && inner.batch.borrow().is_empty()
            && inner.offloads.borrow().is_empty()
            && inner.shared.is_empty()
    }

    /// Whether it listens for signals: if so, something may happen even when it [is idle](Loop::is_idle).
    ///
    /// ```
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// assert!(!lp.is_listening());
    /// lp.on_terminate(|lp| lp.stop()).unwrap();
    /// assert!(lp.is_listening());
    /// ```
    pub fn is_listening(&self) -> bool {
        self.inner.listening.get() > 0
    }

    fn is_stopping(&self) -> bool {
        self.inner.stopping.get() || self.inner.shared.stop_requested()
    }

    /// Runs what was posted before the stop, and makes the loop ready for another run.
    fn finish_stopping(&self) {
        self.take_posted_jobs(usize::MAX);
        self.run_posted_jobs();
        self.run_deferred_jobs();
        self.inner.stopping.set(false);
        self.inner.shared.clear_stop();
    }

    /// One turn. See the drawing at the top of the crate.
    fn turn(&self, sleep: Sleep) -> io::Result<()> {
        self.inner.overrun.set(false);
        self.inner.shared.begin_turn();
        let fired = self.run_due_timers();
        let posted = self.run_posted_jobs();
        let deferred = self.run_deferred_jobs();
        let useful = fired || posted || deferred;
        self.run_hooks(HookKind::Prepare);
        self.wait(if useful && sleep == Sleep::UnlessUseful { Sleep::Never } else { sleep })?;
        self.update_now();
        self.run_hooks(HookKind::Check);
        self.dispatch_completions();
        Ok(())
    }

    fn update_now(&self) {
        self.inner.now.set(self.inner.demux.borrow().now());
    }

    /// True if there were any.
    fn run_posted_jobs(&self) -> bool {
        self.take_posted_jobs(self.inner.budget);
        let mut any = false;
        // Not borrowed while a job runs; and if it panics, those behind it are still there.
        loop {
            let job = self.inner.batch.borrow_mut().pop_front();
            let Some(job) = job else { return any };
            any = true;
            job(self);
        }
    }

    /// Makes a batch of what is there now: a job that posts another does not keep the turn from ending.
    #[inline]
    fn take_posted_jobs(&self, limit: usize) {
        if !self.inner.shared.is_empty() {
            self.fill_batch(limit);
        }
    }

    #[inline(never)]
    fn fill_batch(&self, limit: usize) {
        self.inner.shared.take_jobs(&mut self.inner.batch.borrow_mut(), limit);
    }

    /// True if there were any.
    fn run_deferred_jobs(&self) -> bool {
        let batch = self.inner.deferred.borrow().len().min(self.inner.budget);
        for _ in 0..batch {
            let Some(job) = self.inner.deferred.borrow_mut().pop_front() else { break };
            job(self);
        }
        batch > 0
    }

    fn wait(&self, sleep: Sleep) -> io::Result<()> {
        let inner = &*self.inner;
        let mut rest = self.rest(sleep);
        if rest != Rest::None && self.run_idle_hooks(rest) {
            rest = self.rest(sleep); // the hooks may have found something to do
        }
        if rest != Rest::None && !inner.shared.fall_asleep() {
            rest = Rest::None; // a job came at the last moment
        }
        inner.shared.heart.enter_wait(rest != Rest::None);
        let mut demux = inner.demux.borrow_mut();
        let waited = match rest {
            Rest::None => demux.wait(Some(Duration::ZERO)),
            Rest::Until(deadline) => demux.wait_until(deadline),
            Rest::Endless => demux.wait(None),
        };
        drop(demux);
        inner.shared.wake_up();
        inner.shared.heart.leave_wait();
        waited
    }

    /// How long the coming wait may last.
    fn rest(&self, sleep: Sleep) -> Rest {
        let inner = &*self.inner;
        let busy = sleep == Sleep::Never
            || inner.overrun.get()
            || self.is_stopping()
            || !inner.deferred.borrow().is_empty()
            || !inner.last.borrow().is_empty()
            || !inner.batch.borrow().is_empty()
            || !inner.shared.is_empty();
        if busy {
            return Rest::None;
        }
        match inner.timers.borrow_mut().next_deadline() {
            Some(deadline) if deadline <= inner.now.get() => Rest::None,
            Some(deadline) => Rest::Until(deadline),
            None => Rest::Endless,
        }
    }

    fn dispatch_completions(&self) {
        let mut count = 0;
        while count < self.inner.budget {
            if !self.dispatch_next() {
                return self.run_last_jobs(usize::MAX);
            }
            count += 1;
            if count % COMPLETIONS_PER_LOOK == 0 && self.has_late_timer() {
                break;
            }
        }
        self.inner.overrun.set(true);
        self.run_last_jobs(count);
    }

    /// So many completions were told in this turn, or all there are.
    #[inline]
    fn run_last_jobs(&self, told: usize) {
        if !self.inner.last.borrow().is_empty() {
            self.run_last_jobs_after(told);
        }
    }

    #[cold]
    fn run_last_jobs_after(&self, told: usize) {
        let mut last = self.inner.last.borrow_mut();
        last.iter_mut().for_each(|(patience, _)| *patience = patience.saturating_sub(told));
        let due: Vec<_> = last.extract_if(.., |(patience, _)| *patience == 0).collect();
        drop(last); // a job may leave another
        for (_, job) in due {
            job(self);
        }
    }

    /// Whether a timer is late by a millisecond, because others are at work. Who does much in one callback leaves
    /// off then, and [defers](Loop::defer) the rest. It has to look at the clock for this.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let lp = coracle_loop::Loop::new().unwrap();
    /// lp.after(Duration::from_millis(1), |_| ());
    /// std::thread::sleep(Duration::from_millis(3));
    /// assert!(lp.has_late_timer());
    /// ```
    pub fn has_late_timer(&self) -> bool {
        let next = self.inner.timers.borrow_mut().next_deadline();
        next.is_some_and(|deadline| deadline + LATE <= self.inner.demux.borrow().now())
    }

    /// Makes this the current loop, and tells posters that it looks into its queue by itself, until the guard is
    /// dropped.
    fn begin(&self) -> Running<'_> {
        let entered = self.enter();
        self.inner.shared.wake_up();
        self.inner.shared.heart.leave_wait();
        self.update_now();
        Running { inner: &self.inner, _entered: entered }
    }

    /// Makes this the current loop until the guard is dropped.
    fn enter(&self) -> Entered {
        assert!(
            !self.inner.turning.replace(true),
            "a loop cannot run inside its own turn: return from the callback, or use `defer`"
        );
        CURRENT_SHARED.set(Arc::as_ptr(&self.inner.shared));
        Entered { outer: CURRENT.replace(Some(self.clone())) }
    }

    // --- Later -----------------------------------------------------------------------------------------

    /// Runs `job` later in this turn or in the next, never from inside this call. From another thread, use
    /// [`LoopHandle::post`].
    ///
    /// ```
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// lp.defer(|lp| lp.stop());
    /// lp.run().unwrap();
    /// ```
    pub fn defer(&self, job: impl FnOnce(&Loop) + 'static) {
        self.inner.deferred.borrow_mut().push_back(Box::new(job));
    }

    /// Runs `job` when the next wait is over, and everybody was told what it has found; if there is no end of
    /// that, those who are in line by now. For a job that does not panic. Only before the wait of a turn, as
    /// from a [deferred](Loop::defer) job.
    #[doc(hidden)]
    pub fn defer_to_last(&self, job: impl FnOnce(&Loop) + 'static) {
        // Each of them once; and as many that were in line already, in a backend that has two lines.
        let patience = self.inner.demux.borrow().in_flight() * 2;
        self.inner.last.borrow_mut().push((patience, Box::new(job)));
    }

    // --- Embedding and looking in ----------------------------------------------------------------------

    /// How long this loop would sleep now: with [`descriptor`](Loop::descriptor), what another loop needs to
    /// drive this one by [`run_ready`](Loop::run_ready). `None`: until something happens.
    pub fn timeout(&self) -> Option<Duration> {
        self.inner.demux.borrow_mut().flush();
        if self.inner.demux.borrow().is_busy() || self.inner.shared.is_nudged() {
            return Some(Duration::ZERO);
        }
        let own = self.inner.demux.borrow().timeout();
        let rest = match self.rest(Sleep::UntilNextTimer) {
            Rest::None => Some(Duration::ZERO),
            Rest::Until(deadline) => {
                Some(deadline.saturating_duration_since(self.inner.demux.borrow().now()))
            }
            Rest::Endless => None,
        };
        own.into_iter().chain(rest).min()
    }

    /// Calls `look` with a descriptor that polls readable when a turn would find something, or with `None`
    /// on backends that have none (poll, select, simulator).
    pub fn descriptor<T>(&self, look: impl FnOnce(Option<BorrowedFd<'_>>) -> T) -> T {
        look(self.inner.demux.borrow().as_fd())
    }

    /// What this loop waits for, for people: a line for each timer and operation.
    ///
    /// ```
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// lp.after(std::time::Duration::from_secs(60), |_| ());
    /// assert!(lp.dump().contains("timer"));
    /// ```
    pub fn dump(&self) -> String {
        let mut text = String::new();
        self.describe(&mut text).expect("a String takes everything");
        text
    }

    fn describe(&self, text: &mut String) -> fmt::Result {
        let inner = &*self.inner;
        writeln!(
            text,
            "loop on {}: {} operations, {} timers, {} posted and {} deferred jobs, {} offloaded",
            inner.backend,
            inner.demux.borrow().in_flight(),
            inner.timers.borrow().len(),
            inner.shared.len() + inner.batch.borrow().len(),
            inner.deferred.borrow().len(),
            inner.offloads.borrow().len(),
        )?;
        inner.timers.borrow().describe(inner.demux.borrow().now(), text)?;
        inner.demux.borrow().describe(text)
    }
}

impl fmt::Debug for Loop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loop({})", self.inner.backend)
    }
}

/// Tells posters that the loop has to be woken, when it stops running.
struct Running<'a> {
    inner: &'a Inner,
    /// Dropped last: until then it runs.
    _entered: Entered,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.inner.demux.borrow_mut().flush(); // somebody else may wait for the descriptor now
        self.inner.shared.rest();
    }
}

/// Restores the loop that was current before.
struct Entered {
    outer: Option<Loop>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let outer = self.outer.as_ref().map(|outer| Arc::as_ptr(&outer.inner.shared));
        CURRENT_SHARED.set(outer.unwrap_or(null()));
        if let Some(left) = CURRENT.replace(self.outer.take()) {
            left.inner.turning.set(false);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.close();
    }
}
