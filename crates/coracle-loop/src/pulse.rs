//! Whether loops turn, seen from outside: for a watchdog.
//!
//! A loop has a word that says whether it is in a turn, and that changes whenever it comes to its wait.
//! Whoever finds the same word twice, and that it is in a turn, knows that something has held the loop in
//! between.
//!
//! ```text
//!    word: │ how often it came to its wait: 63 bits │ in a turn: 1 bit │
//! ```
//!
//! A watcher need not look at loops that all wait: it says that it sleeps, looks once more, and is woken by the
//! first loop that leaves its wait. A loop says first that it has left, and looks for sleeping watchers after
//! that; so one of the two sees the other. As long as no watcher sleeps, this costs a loop two stores and a
//! load in a turn.

use crate::handle::{LoopHandle, Shared};
use crate::{Builder, Loop};
use coracle_demux::lock::Lock;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, Thread};

/// The loops of the process, but for those of watchers.
static LOOPS: Lock<Vec<Weak<Shared>>> = Lock::new(Vec::new());

/// The loops of watchers.
static WATCHERS: Lock<Vec<LoopHandle>> = Lock::new(Vec::new());

/// A watcher sleeps, or did a moment ago.
static SLEEPING: AtomicBool = AtomicBool::new(false);

/// What can be seen of a loop from outside.
///
/// ```
/// let lp = coracle_loop::Loop::new().unwrap();
/// let handle = lp.handle();
/// assert!(!handle.pulse().is_turning());
/// lp.defer(move |lp| {
///     assert!(handle.pulse().is_turning());
///     lp.stop();
/// });
/// lp.run().unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulse(u64);

impl Pulse {
    /// Whether it is in a turn: it neither waits nor rests. If a later pulse is equal to this one, it has
    /// been in the same turn all the time.
    pub fn is_turning(self) -> bool {
        self.0 & 1 == 1
    }
}

/// The part of a loop that others may feel. Only the loop itself changes it.
pub(crate) struct Heart {
    word: AtomicU64,
    thread: Thread,
    thread_id: i32,
    /// It is the loop of a watcher, which nobody watches.
    is_watcher: AtomicBool,
}

impl Heart {
    /// That of a loop of this thread.
    pub(crate) fn new() -> Heart {
        Heart {
            word: AtomicU64::new(0),
            thread: thread::current(),
            thread_id: coracle_demux::thread_id(),
            is_watcher: AtomicBool::new(false),
        }
    }

    /// The loop comes to its wait; `sleeps` says whether it may last.
    #[inline]
    pub(crate) fn enter_wait(&self, sleeps: bool) {
        let count = (self.word.load(Ordering::Relaxed) >> 1) + 1;
        self.word.store(count << 1 | u64::from(!sleeps), Ordering::Relaxed);
    }

    /// The loop goes on.
    #[inline]
    pub(crate) fn leave_wait(&self) {
        let word = self.word.load(Ordering::Relaxed);
        if word & 1 == 0 {
            self.word.swap(word | 1, Ordering::SeqCst);
            if SLEEPING.load(Ordering::SeqCst) {
                self.wake_watchers();
            }
        }
    }

    /// Nobody runs the loop any more.
    pub(crate) fn rest(&self) {
        self.enter_wait(true);
    }

    #[cold]
    fn wake_watchers(&self) {
        if !self.is_watcher.load(Ordering::Relaxed) && SLEEPING.swap(false, Ordering::SeqCst) {
            WATCHERS.lock().iter().for_each(LoopHandle::wake);
        }
    }
}

/// Enters a loop into the list of all.
pub(crate) fn enter(shared: &Arc<Shared>) {
    let mut loops = LOOPS.lock();
    loops.retain(|one| one.strong_count() > 0);
    loops.push(Arc::downgrade(shared));
}

impl LoopHandle {
    /// All loops of the process, but for those of [watchers](Watcher). Any thread.
    ///
    /// ```
    /// # use coracle_loop::{Loop, LoopHandle};
    /// let lp = Loop::new().unwrap();
    /// assert!(LoopHandle::all().iter().any(|one| one.is_of(&lp)));
    /// ```
    pub fn all() -> Vec<LoopHandle> {
        let loops: Vec<_> = LOOPS.lock().iter().filter_map(Weak::upgrade).collect();
        loops.into_iter().map(LoopHandle::new).filter(LoopHandle::is_alive).collect()
    }

    /// Whether it is in a turn, and in which. Any thread.
    pub fn pulse(&self) -> Pulse {
        Pulse(self.shared.heart.word.load(Ordering::SeqCst))
    }

    /// The thread that made the loop, which is the one that runs it. Any thread.
    ///
    /// ```
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// assert_eq!(lp.handle().thread().id(), std::thread::current().id());
    /// ```
    pub fn thread(&self) -> &Thread {
        &self.shared.heart.thread
    }

    /// The number that the kernel has for that thread. Any thread.
    ///
    /// ```
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// assert!(lp.handle().thread_id() > 0);
    /// ```
    pub fn thread_id(&self) -> i32 {
        self.shared.heart.thread_id
    }
}

/// Who watches over loops from outside, on a loop of its own, which nobody watches.
///
/// ```
/// use coracle_loop::Watcher;
///
/// let watcher = Watcher::new()?;
/// if watcher.may_sleep() {
///     // Every loop waits. The first that leaves its wait wakes this one, which then makes a turn.
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Watcher {
    lp: Loop,
}

impl Watcher {
    /// A watcher with a loop of its own, which is not one of [all](LoopHandle::all).
    ///
    /// # Errors
    /// There is no loop to be had.
    pub fn new() -> io::Result<Watcher> {
        let builder = Builder::new().backend(coracle_demux::Backend::Poll); // for one descriptor
        let lp = builder.build()?;
        let handle = lp.handle();
        handle.shared.heart.is_watcher.store(true, Ordering::Relaxed);
        LOOPS.lock().retain(|one| !std::ptr::eq(one.as_ptr(), Arc::as_ptr(&handle.shared)));
        WATCHERS.lock().push(handle);
        Ok(Watcher { lp })
    }

    /// The loop that it works on: for timers, signals, posted jobs.
    pub fn lp(&self) -> &Loop {
        &self.lp
    }

    /// Whether every loop waits. Then the first that leaves its wait [wakes](LoopHandle::wake) the loop of this
    /// watcher, once.
    pub fn may_sleep(&self) -> bool {
        may_sleep()
    }
}

/// First we say that we sleep, then we look. (It is not taken back if we do not: another may sleep.)
pub(crate) fn may_sleep() -> bool {
    SLEEPING.store(true, Ordering::SeqCst);
    !LoopHandle::all().iter().any(|handle| handle.pulse().is_turning())
}

impl Drop for Watcher {
    fn drop(&mut self) {
        WATCHERS.lock().retain(|handle| !handle.is_of(&self.lp));
    }
}
