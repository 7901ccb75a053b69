//! Settings of a loop, checked before anything is made.

use crate::handle::Shared;
use crate::pool::Pool;
use crate::timer::Timers;
use crate::{Inner, Loop, pulse};
use coracle_demux::{Backend, Demux, Settings, Threads};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// How much of one kind of work a turn does before it looks at the others.
///
/// About a millisecond of small callbacks: short enough that timers stay on time, long enough that the cost
/// of a turn is spread over many.
const BUDGET: usize = 1024;

/// How many jobs may wait to be run by a loop. A thread that posts faster than the loop runs is told so.
const LIMIT_POSTED_JOBS: usize = 1 << 20;

/// Makes a [`Loop`] with settings of one's own.
///
/// ```
/// use coracle_loop::Loop;
/// use coracle_loop::demux::Backend;
///
/// let lp = Loop::builder().backend(Backend::Epoll).budget(256).build().unwrap();
/// assert_eq!(lp.backend(), Backend::Epoll);
/// ```
#[derive(Default)]
pub struct Builder {
    settings: Option<Settings>,
    backend: Option<Backend>,
    demux: Option<Box<dyn Demux>>,
    pool: Option<Pool>,
    budget: Option<usize>,
    limit_posted_jobs: Option<usize>,
}

impl Builder {
    /// The defaults: the best backend, the process's worker pool.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Which backend to use. A refusal costs one line in the log, and the next best is taken.
    pub fn backend(mut self, backend: Backend) -> Builder {
        self.backend = Some(backend);
        self
    }

    /// Settings of the demultiplexer, such as the size of its queues. Its threads are those of the
    /// [`pool`](Builder::pool), and [`backend`](Builder::backend) comes before the one named there.
    ///
    /// ```
    /// use coracle_loop::Loop;
    /// use coracle_loop::demux::Settings;
    ///
    /// let mut settings = Settings::default();
    /// settings.lent_buffer_bytes = 16 << 10;
    /// let lp = Loop::builder().settings(settings).build().unwrap();
    /// ```
    pub fn settings(mut self, settings: Settings) -> Builder {
        self.settings = Some(settings);
        self
    }

    /// A demultiplexer made elsewhere, such as the simulator's.
    pub fn demux(mut self, demux: impl Demux + 'static) -> Builder {
        self.demux = Some(Box::new(demux));
        self
    }

    /// The worker pool for [`Loop::offload`] and for file operations on backends that need one. By default,
    /// all loops of the process share one.
    pub fn pool(mut self, pool: Pool) -> Builder {
        self.pool = Some(pool);
        self
    }

    /// How many timers, jobs and completions (each) one turn runs at most. 1024.
    pub fn budget(mut self, callbacks: usize) -> Builder {
        self.budget = Some(callbacks);
        self
    }

    /// How many posted jobs may wait; beyond it, [`post`](crate::LoopHandle::post) is refused. 1,048,576.
    pub fn limit_posted_jobs(mut self, jobs: usize) -> Builder {
        self.limit_posted_jobs = Some(jobs);
        self
    }

    /// Makes the loop, which belongs to this thread from here on.
    ///
    /// # Errors
    /// A limit of zero, or what [`coracle_demux::open`] says.
    pub fn build(self) -> io::Result<Loop> {
        let budget = positive("budget", self.budget.unwrap_or(BUDGET))?;
        let limit = self.limit_posted_jobs.unwrap_or(LIMIT_POSTED_JOBS);
        let limit = positive("limit_posted_jobs", limit)?;
        let pool = match self.pool {
            Some(pool) => pool,
            None => process_pool()?,
        };
        let mut demux = match self.demux {
            Some(demux) => demux,
            None => {
                let mut settings = self.settings.unwrap_or_default();
                settings.backend = self.backend.or(settings.backend);
                let threads = pool.clone();
                settings.threads = Threads::new(move |job| threads.submit(job));
                coracle_demux::open(settings)?
            }
        };
        demux.flush();
        let now = demux.now();
        let shared = Arc::new(Shared::new(demux.waker(), limit));
        pulse::enter(&shared);
        Ok(Loop {
            inner: Rc::new(Inner {
                shared,
                backend: demux.backend(),
                features: demux.features(),
                demux: RefCell::new(demux),
                targets: RefCell::default(),
                timers: RefCell::new(Timers::new(now)),
                batch: RefCell::default(),
                deferred: RefCell::default(),
                last: RefCell::default(),
                hooks: RefCell::default(),
                offloads: RefCell::default(),
                extensions: Default::default(),
                pool,
                now: Rc::new(Cell::new(now)),
                stopping: Cell::new(false),
                turning: Cell::new(false),
                listening: Cell::new(0),
                overrun: Cell::new(false),
                budget,
            }),
        })
    }
}

/// The worker pool that loops share unless they are given their own. It has no thread until there is work.
fn process_pool() -> io::Result<Pool> {
    static POOL: OnceLock<Pool> = OnceLock::new();
    if let Some(pool) = POOL.get() {
        return Ok(pool.clone());
    }
    let pool = Pool::new(crate::pool::PoolSettings::default())?;
    Ok(POOL.get_or_init(|| pool).clone())
}

fn positive(name: &str, value: usize) -> io::Result<usize> {
    if value == 0 {
        let text = format!("{name} is 0, so that the loop would never do anything: use at least 1");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(value)
}
