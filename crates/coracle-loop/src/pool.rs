//! Blocking work, elsewhere: a bounded pool of worker threads.
//!
//! A loop must not block, so files, databases and long computations go to other threads as whole
//! closures. This is the part that runs them; bringing a result back to the loop is the business of
//! the layer above (`offload`), which puts it into the job.
//!
//! The queue has a limit and an answer for when it is reached ([`Overload`]); submitting never
//! waits. Threads start when they are first needed and then stay, asleep without a time-out when
//! there is nothing to do: an idle pool makes no system calls.
//!
//! ```text
//!             lock "back"                     lock "front"
//!  submit ─►┌──────────────┐   all of them  ┌──────────────┐  one by one ┌─► worker 0
//!  submit ─►│ 9  8  7  6   │───────────────►│ 5  4  3  2   │────────────►├─► worker 1
//!  submit ─►└──────────────┘  when front is └──────────────┘             └─► …
//!                             empty
//! ```
//!
//! # Why one queue with two locks
//! Blocking jobs differ in length by factors of thousands. With one queue no job waits behind a
//! long one while a thread is free, and jobs start in the order in which they came. Queues per
//! thread would need stealing to come near that, and stealing is no faster (bench W13:
//! `rayon::spawn` takes two to three times as long per tiny job). Under a single lock, submitters
//! and workers on different cores disturb each other at each job; with a lock at either end they
//! meet only when the front runs empty, which with eight submitters is worth a third of the time. A
//! queue without locks gained nothing more and would bring fences to reason about.
//!
//! # Calling threads
//! Waking a thread is a system call, and often a context switch, for a job that may take less. So a
//! thread is *called* (woken, or started if none sleeps and the pool is not complete) only when no
//! other call is under way. A thread that was called takes a job and, if more are waiting, calls
//! the next thread. So a submission costs at most one wake-up, a burst brings up the threads one
//! after the other, and no job waits while a thread sleeps. The invariant, whenever a job waits:
//!
//! > nobody is left to call, or a call is under way, or a thread that was called has not yet taken
//! > its first job.
//!
//! A worker that finds nothing goes to sleep at once, unless its sleeps have lately been short: see
//! `Patience`.

#[cfg(test)]
mod tests;

use coracle_demux::Processors;
use coracle_demux::lock::{Condvar, Guard, Lock};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// No more threads than this per pool: beyond it the setting is a mistake, not a wish.
const LIMIT_THREADS: usize = 1024;
/// How long dropping the last [`Pool`] waits for the jobs that are running.
const DROP_GRACE: Duration = Duration::from_secs(1);

/// A piece of work: runs once, on some thread of the pool.
///
/// ```
/// use coracle_loop::pool::Job;
///
/// let job: Job = Box::new(|| println!("elsewhere"));
/// # job();
/// ```
pub type Job = Box<dyn FnOnce() + Send>;

/// How a [`Pool`] is made.
///
/// ```
/// use coracle_loop::pool::{Overload, PoolSettings};
///
/// let overload = Overload::DropOldest;
/// let settings = PoolSettings { threads: 2, overload, ..Default::default() };
/// assert_eq!(settings.limit_queue, 1024);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    /// How many threads there may be, 1 to 1024. They are started one by one, when needed.
    ///
    /// By default as many as the machine runs in parallel, and at least four. Not fewer, because
    /// blocking jobs mostly wait: with two threads, two slow disk reads would stop everything. Not
    /// more, because computing jobs would only take turns, and take them from the loops.
    pub threads: usize,
    /// How many jobs may wait for a thread, at least 1; 1024 by default. Running ones do not count.
    pub limit_queue: usize,
    /// What happens to a job when the queue is full.
    pub overload: Overload,
    /// The threads are called `name-0`, `name-1`, …; Linux shows 15 bytes of it. By default
    /// `offload`.
    pub name: String,
}

impl Default for PoolSettings {
    fn default() -> PoolSettings {
        let parallel = thread::available_parallelism().map_or(1, usize::from);
        PoolSettings {
            threads: parallel.clamp(4, LIMIT_THREADS),
            limit_queue: 1024,
            overload: Overload::Refuse,
            name: "offload".to_owned(),
        }
    }
}

/// What happens to a job when the queue is full. Neither makes the caller wait: callers are loops.
///
/// ```
/// use coracle_loop::pool::Overload;
///
/// assert_eq!(Overload::default(), Overload::Refuse);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overload {
    /// The new job comes back to the submitter, who can answer "503" or try later.
    #[default]
    Refuse,
    /// The job that has waited longest is dropped without running, and the new one joins the queue.
    /// Right where only the latest matters, or where whoever waited that long has given up.
    DropOldest,
}

/// What a [`Pool`] has done so far.
///
/// At any moment `submitted` = `finished` + `dropped` + those running + those in the queue.
///
/// ```
/// use coracle_loop::pool::{Pool, PoolSettings};
///
/// let pool = Pool::new(PoolSettings::default())?;
/// assert_eq!(pool.stats().submitted, 0);
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStats {
    /// Jobs that were accepted.
    pub submitted: u64,
    /// Jobs that ran, those that panicked included.
    pub finished: u64,
    /// Jobs that were not accepted: the queue was full, or the pool shut down.
    pub refused: u64,
    /// Jobs that were accepted and dropped without running: by [`Overload::DropOldest`] or at the
    /// end.
    pub dropped: u64,
    /// Jobs that panicked.
    pub panicked: u64,
    /// The longest that the queue has been; beyond 16, to within a sixteenth.
    pub queue_len_max: usize,
}

/// What [`Pool::shutdown`] left undone.
///
/// ```
/// use coracle_loop::pool::{Leftover, Pool, PoolSettings};
/// use std::time::Instant;
///
/// let pool = Pool::new(PoolSettings::default())?;
/// assert_eq!(pool.shutdown(Instant::now()), Leftover::default()); // nothing was left
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leftover {
    /// Jobs that were still waiting at the deadline, and were dropped.
    pub dropped: usize,
    /// Jobs that were still running at the deadline. Their threads go on, and end with the job.
    pub running: usize,
}

/// A bounded pool of worker threads.
///
/// A handle: clones are cheap and mean the same pool. When the last one is dropped, jobs that wait
/// are dropped, jobs that run get one second to finish, and a thread still stuck after that is left
/// to itself. [`shutdown`](Self::shutdown) is kinder.
///
/// Any thread.
///
/// ```
/// use coracle_loop::pool::{Pool, PoolSettings};
/// use std::sync::mpsc;
///
/// let pool = Pool::new(PoolSettings::default())?;
/// let (sender, receiver) = mpsc::channel();
/// pool.try_run(move || {
///     let text = std::fs::read_to_string("/proc/version"); // blocks; the caller does not
///     let _ = sender.send(text.is_ok());
/// })
/// .map_err(|_job| std::io::Error::other("the pool is overloaded"))?;
/// assert!(receiver.recv().is_ok());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Pool {
    owner: Arc<Owner>,
}

impl Pool {
    /// A pool without threads yet.
    ///
    /// # Errors
    /// `InvalidInput` when a setting is out of its range.
    ///
    /// ```
    /// use coracle_loop::pool::{Pool, PoolSettings};
    ///
    /// let error = Pool::new(PoolSettings { threads: 0, ..Default::default() }).unwrap_err();
    /// assert_eq!(error.to_string(), "cannot make a pool with 0 threads; use 1 to 1024");
    /// ```
    pub fn new(settings: PoolSettings) -> io::Result<Pool> {
        check(&settings)?;
        let shared = Arc::new(Shared {
            settings,
            back: Apart::default(),
            front: Apart::default(),
            called: Condvar::new(),
            ended: Condvar::new(),
        });
        Ok(Pool { owner: Arc::new(Owner { shared }) })
    }

    /// Adds a job to the queue. Never waits, except for locks that are held for moments.
    ///
    /// The first submissions also start threads, some tens of microseconds each.
    ///
    /// # Errors
    /// Gives the job back when the queue is full and the pool [refuses](Overload::Refuse), when the
    /// pool has been shut down, or when the system would not start the first thread.
    ///
    /// ```
    /// use coracle_loop::pool::{Job, Pool, PoolSettings};
    ///
    /// let pool = Pool::new(PoolSettings::default())?;
    /// let job: Job = Box::new(|| println!("on a pool thread"));
    /// if let Err(job) = pool.submit(job) {
    ///     job(); // overloaded: here, then
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn submit(&self, job: Job) -> Result<(), Job> {
        let shared = &self.owner.shared;
        let mut back = shared.back.lock();
        if back.stopping || !shared.is_full(&mut back) {
            return shared.push(back, job);
        }
        back.queue_len_max = shared.settings.limit_queue;
        match shared.settings.overload {
            Overload::Refuse => {
                back.refused += 1;
                Err(job)
            }
            Overload::DropOldest => {
                drop(back);
                shared.replace_oldest(job)
            }
        }
    }

    /// [`submit`](Self::submit) for a closure.
    ///
    /// # Errors
    /// Like `submit`; the closure comes back boxed.
    ///
    /// ```
    /// use coracle_loop::pool::{Pool, PoolSettings};
    ///
    /// let pool = Pool::new(PoolSettings::default())?;
    /// assert!(pool.try_run(|| drop(std::fs::read("/etc/hosts"))).is_ok());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn try_run(&self, work: impl FnOnce() + Send + 'static) -> Result<(), Job> {
        self.submit(Box::new(work))
    }

    /// How many jobs wait for a thread.
    ///
    /// ```
    /// use coracle_loop::pool::{Pool, PoolSettings};
    ///
    /// assert_eq!(Pool::new(PoolSettings::default())?.queue_len(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn queue_len(&self) -> usize {
        let (front, back) = self.owner.shared.lock_both();
        front.queue.len() + back.queue.len()
    }

    /// How many jobs are running.
    ///
    /// ```
    /// use coracle_loop::pool::{Pool, PoolSettings};
    ///
    /// assert_eq!(Pool::new(PoolSettings::default())?.running(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn running(&self) -> usize {
        self.owner.shared.front.lock().running
    }

    /// How many threads there are, at work or asleep.
    ///
    /// ```
    /// use coracle_loop::pool::{Pool, PoolSettings};
    ///
    /// assert_eq!(Pool::new(PoolSettings::default())?.threads(), 0); // they start when needed
    /// # std::io::Result::Ok(())
    /// ```
    pub fn threads(&self) -> usize {
        self.owner.shared.back.lock().living
    }

    /// What the pool has done so far.
    ///
    /// ```
    /// use coracle_loop::pool::{Pool, PoolSettings};
    ///
    /// assert_eq!(Pool::new(PoolSettings::default())?.stats().panicked, 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn stats(&self) -> PoolStats {
        let (front, back) = self.owner.shared.lock_both();
        PoolStats {
            submitted: back.submitted,
            finished: front.finished,
            refused: back.refused,
            dropped: back.dropped,
            panicked: back.panicked,
            queue_len_max: back.queue_len_max,
        }
    }

    /// Stops accepting jobs, in every clone, and waits until those in the queue have run, or until
    /// the deadline. What waits then is dropped; what runs then is left to itself.
    ///
    /// Blocks: not on a loop thread. A job of this pool may call it; its own thread is not waited
    /// for.
    ///
    /// ```
    /// use coracle_loop::pool::{Leftover, Pool, PoolSettings};
    /// use std::time::{Duration, Instant};
    ///
    /// let pool = Pool::new(PoolSettings::default())?;
    /// for _ in 0..100 {
    ///     assert!(pool.try_run(|| ()).is_ok());
    /// }
    /// let leftover = pool.shutdown(Instant::now() + Duration::from_secs(10));
    /// assert_eq!(leftover, Leftover { dropped: 0, running: 0 });
    /// # std::io::Result::Ok(())
    /// ```
    pub fn shutdown(self, deadline: Instant) -> Leftover {
        let shared = &self.owner.shared;
        shared.back.lock().stopping = true;
        shared.called.notify_all();
        shared.wait_for_threads(deadline);
        let dropped = shared.drop_queue();
        shared.join_ended_threads();
        let own = shared.own_threads(&shared.back.lock());
        Leftover { dropped, running: shared.front.lock().running - own }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.owner.shared.settings.name)
            .field("threads", &self.threads())
            .field("running", &self.running())
            .field("queue_len", &self.queue_len())
            .finish_non_exhaustive()
    }
}

fn check(settings: &PoolSettings) -> io::Result<()> {
    let PoolSettings { threads, limit_queue, name, .. } = settings;
    let mistake = if !(1..=LIMIT_THREADS).contains(threads) {
        format!("cannot make a pool with {threads} threads; use 1 to {LIMIT_THREADS}")
    } else if *limit_queue == 0 {
        "cannot make a pool with limit_queue 0: no job could wait for a thread; use 1 or more"
            .into()
    } else if name.is_empty() || name.contains('\0') {
        format!("cannot name the threads of a pool {name:?}; use a name without zero bytes")
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, mistake))
}

/// What the clones of a [`Pool`] share. The threads only know [`Shared`], so this is dropped when
/// nobody can submit any more.
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let shared = &self.shared;
        let was_shut_down = mem::replace(&mut shared.back.lock().stopping, true);
        shared.drop_queue();
        shared.called.notify_all();
        if !was_shut_down {
            shared.wait_for_threads(Instant::now() + DROP_GRACE);
            shared.join_ended_threads();
        }
    }
}

/// What submitters and threads share. To take both locks, take `front` first; jobs never run or drop under one.
struct Shared {
    settings: PoolSettings,
    back: Apart<Lock<Back>>,
    front: Apart<Counted>,
    /// Sleeping threads wait here, with `back`.
    called: Condvar,
    /// Signalled when a thread ends, with `back`.
    ended: Condvar,
}

/// Something on cache lines of its own, so that two cores do not fight for one line over two
/// matters. Two lines, because processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// Where jobs come in.
#[derive(Default)]
struct Back {
    queue: VecDeque<Job>,
    /// Not less than `front.queue.len()`: its length when last looked at. Looking each time would
    /// take the cache line from the workers, at a third of a submission's price.
    ahead: usize,
    /// Threads that exist, and those of them that sleep.
    living: usize,
    sleeping: usize,
    /// A thread has been woken or started, and has not arrived yet.
    is_calling: bool,
    /// Starting a thread failed the last time; reported once, not at each submission.
    start_failed: bool,
    stopping: bool,
    handles: Vec<JoinHandle<()>>,
    submitted: u64,
    refused: u64,
    dropped: u64,
    panicked: u64,
    queue_len_max: usize,
}

/// Where threads take jobs.
#[derive(Default)]
struct Front {
    queue: VecDeque<Job>,
    running: usize,
    finished: u64,
}

/// The front, and how long it is. On one cache line together: a thread that takes a job writes both.
#[derive(Default)]
#[repr(C)]
struct Counted {
    /// `front.queue.len()`, for who holds `back`. Grows only under both locks.
    len: AtomicUsize,
    front: Lock<Front>,
}

#[cfg(not(feature = "thread-sanitizer"))] // with it, locks are longer
const _: () = assert!(mem::size_of::<Counted>() <= 64);

impl Apart<Lock<Back>> {
    fn lock(&self) -> Guard<'_, Back> {
        self.0.lock()
    }
}

impl Apart<Counted> {
    fn lock(&self) -> Guard<'_, Front> {
        self.0.front.lock()
    }

    fn len(&self) -> usize {
        self.0.len.load(Ordering::Relaxed)
    }

    fn note_len(&self, front: &Front) {
        self.0.len.store(front.queue.len(), Ordering::Relaxed);
    }
}

/// Submitting.
impl Shared {
    fn lock_both(&self) -> (Guard<'_, Front>, Guard<'_, Back>) {
        let front = self.front.lock();
        (front, self.back.lock())
    }

    fn is_full(&self, back: &mut Back) -> bool {
        let limit = self.settings.limit_queue;
        if back.queue.len() + back.ahead >= limit {
            back.ahead = self.front.len();
        }
        back.queue.len() + back.ahead >= limit
    }

    /// Keeps the longest length. To be exact each time would mean to look at the front each time.
    fn note_len(&self, back: &mut Back) {
        let longest = back.queue_len_max;
        if back.queue.len() + back.ahead > longest + longest / 16 {
            back.ahead = self.front.len();
            back.queue_len_max = longest.max(back.queue.len() + back.ahead);
        }
    }

    fn push(self: &Arc<Self>, mut back: Guard<'_, Back>, job: Job) -> Result<(), Job> {
        if back.stopping {
            back.refused += 1;
            return Err(job);
        }
        // Without a single thread the job would wait for ever, so the first must start at once.
        if back.living == 0
            && let Err(error) = self.start_thread(&mut back)
        {
            back.refused += 1;
            self.report(back, &error);
            return Err(job);
        }
        back.queue.push_back(job);
        back.submitted += 1;
        self.note_len(&mut back);
        self.call_one(back);
        Ok(())
    }

    fn replace_oldest(self: &Arc<Self>, job: Job) -> Result<(), Job> {
        let (mut front, mut back) = self.lock_both();
        let mut oldest = None;
        if self.is_full(&mut back) && !back.stopping {
            oldest = front.queue.pop_front().or_else(|| back.queue.pop_front());
            back.dropped += 1;
            self.front.note_len(&front);
        }
        drop(front);
        let pushed = self.push(back, job);
        if let Some(oldest) = oldest {
            discard(oldest);
        }
        pushed
    }

    /// Gets one more thread to come, unless one is on its way already. Unlocks before it wakes, so
    /// that the woken thread does not run into the lock.
    fn call_one(self: &Arc<Self>, mut back: Guard<'_, Back>) {
        if back.is_calling {
            return;
        }
        if back.sleeping > 0 {
            back.is_calling = true;
            drop(back);
            self.called.notify_one();
        } else if back.living < self.settings.threads
            && !back.stopping
            && let Err(error) = self.start_thread(&mut back)
        {
            self.report(back, &error);
        }
    }

    /// Under the lock, which makes others wait; but it happens only so often in the life of a pool.
    fn start_thread(self: &Arc<Self>, back: &mut Back) -> io::Result<()> {
        let name = format!("{}-{}", self.settings.name, back.living);
        let shared = Arc::clone(self);
        // Whoever is pinned to a processor does not want its work there, too.
        let processors = Processors::before_pinning();
        let start = move || {
            let _ = processors.map(|processors| processors.use_for_this_thread()); // or it shares one
            shared.work();
        };
        let handle = thread::Builder::new().name(name).spawn(start)?;
        back.handles.push(handle);
        back.living += 1;
        back.is_calling = true;
        back.start_failed = false;
        Ok(())
    }

    /// Logs that no thread could be started: the first time, and without the lock, because a log
    /// may go through this very pool.
    fn report(&self, mut back: Guard<'_, Back>, error: &io::Error) {
        let reported = mem::replace(&mut back.start_failed, true);
        let threads = back.living;
        drop(back);
        if !reported {
            let pool = &self.settings.name;
            tracing::warn!(pool, threads, %error, "cannot start a thread; will try again");
        }
    }
}

/// Working.
impl Shared {
    /// What a thread does all its life.
    fn work(self: Arc<Self>) {
        self.back.lock().is_calling = false;
        let mut was_called = true;
        let mut patience = Patience::default();
        let mut front = self.front.lock();
        loop {
            if let Some(job) = front.queue.pop_front() {
                self.start_job(front, mem::take(&mut was_called));
                if !run(job, &self.settings.name) {
                    self.back.lock().panicked += 1;
                }
                patience.note_job();
                front = self.front.lock();
                front.running -= 1;
                front.finished += 1;
                continue;
            }
            let mut back = self.back.lock();
            if !back.queue.is_empty() {
                mem::swap(&mut front.queue, &mut back.queue);
                back.ahead = front.queue.len();
                self.front.note_len(&front);
            } else if back.stopping {
                back.living -= 1;
                self.ended.notify_all();
                return;
            } else if patience.try_again() {
                drop((front, back));
                thread::yield_now();
                front = self.front.lock();
            } else {
                back.sleeping += 1;
                drop(front);
                patience.note_sleep(|| self.sleep(back));
                was_called = true;
                front = self.front.lock();
            }
        }
    }

    /// Accounts for a job taken from the front. A thread that was called calls the next if jobs
    /// wait: while it was on its way, submitters called nobody else.
    fn start_job(self: &Arc<Self>, mut front: Guard<'_, Front>, was_called: bool) {
        let left = front.queue.len();
        front.running += 1;
        self.front.note_len(&front);
        drop(front);
        if was_called {
            let back = self.back.lock();
            if left > 0 || !back.queue.is_empty() {
                self.call_one(back);
            }
        }
    }

    /// Being woken for no reason does no harm: the thread behaves as if called.
    fn sleep(&self, back: Guard<'_, Back>) {
        let mut back = self.called.wait(back);
        back.sleeping -= 1;
        back.is_calling = false;
    }
}

/// Ending.
impl Shared {
    fn wait_for_threads(&self, deadline: Instant) {
        let mut back = self.back.lock();
        let own = self.own_threads(&back);
        while back.living > own {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return };
            back = self.ended.wait_timeout(back, left);
        }
    }

    /// One when called from a job of this pool, which must not wait for itself; else none.
    fn own_threads(&self, back: &Back) -> usize {
        let this = thread::current().id();
        usize::from(back.handles.iter().any(|handle| handle.thread().id() == this))
    }

    fn drop_queue(&self) -> usize {
        let (mut front, mut back) = self.lock_both();
        let mut jobs = mem::take(&mut front.queue);
        jobs.append(&mut back.queue);
        back.dropped += jobs.len() as u64;
        self.front.note_len(&front);
        drop((front, back));
        let dropped = jobs.len();
        jobs.into_iter().for_each(discard);
        dropped
    }

    /// Joins the threads that have ended. The others keep their handles here, and so are left to
    /// themselves when the last of them drops `Shared`.
    fn join_ended_threads(&self) {
        let mut back = self.back.lock();
        let all_ended = back.living == 0;
        let (ended, stuck) = mem::take(&mut back.handles)
            .into_iter()
            // With none living, those that are not finished have only their last steps to go.
            .partition(|handle| all_ended || handle.is_finished());
        back.handles = stuck;
        drop(back);
        for handle in ended {
            let _ = handle.join(); // never an error: jobs' panics are caught
        }
    }
}

/// Whether a thread that finds no job should look again before it sleeps.
///
/// When tiny jobs come in a stream, sleeping after each is dear: the submitter pays for a wake-up
/// per job, and on a shared core the woken thread pushes the submitter aside each time. Yielding a
/// few times lets a handful of jobs gather. But a thread that yields on a busy core gets it back
/// only after its neighbour's time slice, milliseconds later, whereas one that is woken gets it at
/// once: with a busy thread on each core, yielding before every sleep made the typical job start
/// after 330 µs instead of 8. So a thread yields only after a row of short sleeps, the mark of a
/// stream.
#[derive(Default)]
struct Patience {
    short_sleeps: u32,
    tries: u32,
}

impl Patience {
    /// A few times the price of sleeping and being woken.
    const SHORT_SLEEP: Duration = Duration::from_micros(50);
    /// Two jobs of one turn of a loop make one short sleep; a stream makes them without end.
    const SHORT_SLEEPS: u32 = 8;
    /// More tries gained nothing.
    const LIMIT_TRIES: u32 = 4;

    fn try_again(&mut self) -> bool {
        let again = self.short_sleeps >= Self::SHORT_SLEEPS && self.tries < Self::LIMIT_TRIES;
        self.tries += u32::from(again);
        again
    }

    fn note_job(&mut self) {
        self.tries = 0;
    }

    fn note_sleep(&mut self, sleep: impl FnOnce()) {
        let began = Instant::now();
        sleep();
        let was_short = began.elapsed() < Self::SHORT_SLEEP;
        self.short_sleeps = if was_short { self.short_sleeps.saturating_add(1) } else { 0 };
        self.tries = 0;
    }
}

/// Runs a job; `false` when it panicked.
fn run(job: Job, pool: &str) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(job)) else { return true };
    let message = crate::offload::message(&*panic);
    let thread = thread::current();
    tracing::error!(pool, thread = thread.name(), panic = message, "a job of the pool panicked");
    discard(panic);
    false
}

/// Drops a job, or what a job panicked with, even if that panics: it must not harm the thread,
/// which may well be a loop's.
fn discard<T>(value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        tracing::error!("what a job of the pool owned panicked when it was dropped");
        mem::forget(panic);
    }
}
