//! The only part of a loop that other threads may hold.
//!
//! ```text
//!   any thread: post ──► queue ──► asleep? ──yes, and I am the first to see it──► wake: one system call
//!                                    └─no──► nothing: the loop looks into the queue before it sleeps
//! ```
//!
//! The loop announces its sleep first and looks into the queue after that; a poster queues first and
//! looks whether the loop sleeps after that. So one of the two always sees the other, and no job is left
//! behind. (`tests/mailbox_model.rs` checks every interleaving of it.)

use crate::pulse::Heart;
use crate::{CURRENT_SHARED, Loop};
use coracle_demux::Waker;
use coracle_demux::lock::Lock;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// For so many posted jobs there is room that is kept when they are done.
const JOBS_WITH_ROOM: usize = 64;

/// A job for a loop, from any thread.
pub(crate) type Job = Box<dyn FnOnce(&Loop) + Send>;

/// Names a loop from any thread: posts jobs to it, and stops it.
///
/// ```
/// # let lp = coracle_loop::Loop::new().unwrap();
/// let handle = lp.handle();
/// std::thread::spawn(move || handle.post(|lp| lp.stop()));
/// lp.run().unwrap();
/// ```
#[derive(Clone)]
pub struct LoopHandle {
    pub(crate) shared: Arc<Shared>,
}

impl LoopHandle {
    pub(crate) fn new(shared: Arc<Shared>) -> LoopHandle {
        LoopHandle { shared }
    }

    /// Has the loop run `job` in its next turn. Jobs of one thread run in the order they were posted.
    ///
    /// Never runs it inline and never blocks. If the loop sleeps, it is woken by one system call; if it is
    /// awake, this makes none. Works before the loop runs. Any thread.
    ///
    /// # Errors
    /// The loop is gone, or [`limit_posted_jobs`](crate::Builder::limit_posted_jobs) wait already.
    pub fn post(&self, job: impl FnOnce(&Loop) + Send + 'static) -> Result<(), PostError> {
        self.shared.post(Box::new(job))
    }

    /// Ends [`Loop::run`]; before it, makes it return at once. Any thread.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake();
    }

    /// Ends the loop's wait, so that it begins a new turn. Any thread.
    pub fn wake(&self) {
        self.shared.nudged.store(true, Ordering::SeqCst);
        self.shared.wake();
    }

    /// Whether this names `lp`. As cheap as comparing two pointers.
    #[inline]
    pub fn is_of(&self, lp: &Loop) -> bool {
        Arc::ptr_eq(&self.shared, &lp.inner.shared)
    }

    /// Whether this names the loop whose turn it is on this thread: what [`Loop::current`] is for, but as cheap
    /// as comparing two pointers. Any thread.
    ///
    /// ```
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// let handle = lp.handle();
    /// assert!(!handle.is_current());
    /// lp.defer(move |lp| {
    ///     assert!(handle.is_current());
    ///     lp.stop();
    /// });
    /// lp.run().unwrap();
    /// ```
    #[inline]
    pub fn is_current(&self) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.shared), CURRENT_SHARED.get())
    }

    /// Whether both name the same loop. Any thread.
    #[inline]
    pub fn is_same(&self, other: &LoopHandle) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether the loop still exists. Any thread.
    pub fn is_alive(&self) -> bool {
        !self.shared.queue.lock().closed
    }

    /// How many posted jobs wait. Any thread.
    pub fn posted_jobs(&self) -> usize {
        self.shared.len()
    }
}

impl fmt::Debug for LoopHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoopHandle({} posted jobs)", self.shared.len())
    }
}

/// Why a job was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// The loop does not exist any more.
    Gone,
    /// Too many jobs wait already.
    Full,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PostError::Gone => "cannot post: the loop is gone",
            PostError::Full => {
                "cannot post: limit_posted_jobs is reached, the loop is slower than its posters"
            }
        })
    }
}

impl std::error::Error for PostError {}

impl From<PostError> for std::io::Error {
    fn from(error: PostError) -> std::io::Error {
        let kind = match error {
            PostError::Gone => std::io::ErrorKind::BrokenPipe,
            PostError::Full => std::io::ErrorKind::QuotaExceeded,
        };
        std::io::Error::new(kind, error)
    }
}

/// What a loop and its handles share.
pub(crate) struct Shared {
    queue: Lock<Queue>,
    /// `queue.jobs.len()`, to be looked at without the lock.
    waiting: AtomicUsize,
    /// The loop is in its wait or about to be, or does not run at all: who drives it by its descriptor has to be
    /// told, too.
    asleep: AtomicBool,
    stop: AtomicBool,
    /// A new turn was asked for.
    nudged: AtomicBool,
    waker: Waker,
    limit: usize,
    pub(crate) heart: Heart,
}

struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Shared {
    pub(crate) fn new(waker: Waker, limit: usize) -> Shared {
        Shared {
            queue: Lock::new(Queue { jobs: VecDeque::new(), closed: false }),
            waiting: AtomicUsize::new(0),
            asleep: AtomicBool::new(true),
            stop: AtomicBool::new(false),
            nudged: AtomicBool::new(false),
            waker,
            limit,
            heart: Heart::new(),
        }
    }

    fn post(&self, job: Job) -> Result<(), PostError> {
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(PostError::Gone);
        }
        if queue.jobs.len() >= self.limit {
            return Err(PostError::Full);
        }
        queue.jobs.push_back(job);
        self.waiting.store(queue.jobs.len(), Ordering::SeqCst);
        drop(queue);
        self.wake();
        Ok(())
    }

    /// Wakes the loop if it sleeps and nobody else has woken it.
    fn wake(&self) {
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    // --- The loop's side -------------------------------------------------------------------------------

    /// Announces that the loop is about to sleep. False if it must not: something has come.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let called = self.stop_requested() || self.nudged.load(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0 && !called {
            return true;
        }
        self.asleep.store(false, Ordering::SeqCst);
        false
    }

    /// Announces that nobody runs the loop.
    pub(crate) fn rest(&self) {
        self.asleep.store(true, Ordering::SeqCst);
        self.heart.rest();
    }

    /// Announces that the loop is awake. Also after a sleep that did not come about.
    #[inline]
    pub(crate) fn wake_up(&self) {
        // Awake already if a poster woke it, or if it never slept: then a store would only cost.
        if self.asleep.load(Ordering::Relaxed) {
            self.asleep.store(false, Ordering::SeqCst);
        }
    }

    /// Whether somebody has asked for another turn.
    pub(crate) fn is_nudged(&self) -> bool {
        self.nudged.load(Ordering::SeqCst)
    }

    /// A turn begins: whoever asked for one has it.
    #[inline]
    pub(crate) fn begin_turn(&self) {
        if self.nudged.load(Ordering::Relaxed) {
            self.nudged.store(false, Ordering::SeqCst);
        }
    }

    /// Fills `batch` up to `limit` jobs.
    pub(crate) fn take_jobs(&self, batch: &mut VecDeque<Job>, limit: usize) {
        let mut queue = self.queue.lock();
        if batch.is_empty() && queue.jobs.len() <= limit {
            // Their memory changes places, so that the next poster finds some. Not that of a peak.
            if batch.capacity() > JOBS_WITH_ROOM {
                *batch = VecDeque::new();
            }
            std::mem::swap(batch, &mut queue.jobs);
        } else {
            let count = limit.saturating_sub(batch.len()).min(queue.jobs.len());
            batch.extend(queue.jobs.drain(..count));
        }
        self.waiting.store(queue.jobs.len(), Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    #[inline]
    pub(crate) fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    pub(crate) fn clear_stop(&self) {
        self.stop.store(false, Ordering::SeqCst);
    }

    /// The loop is gone: jobs that wait are dropped, later ones refused.
    pub(crate) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        let jobs = std::mem::take(&mut queue.jobs);
        self.waiting.store(0, Ordering::SeqCst);
        drop(queue);
        drop(jobs); // outside the lock: what they own may post as it goes
    }
}
