//! A thread that notices when a loop is held, and says by whom.
//!
//! ```text
//!   some loop is in a turn:  look at all of them every limit / 2 ◄──────────┐
//!   every loop waits:        sleep without end ── a loop leaves its wait ───┘
//! ```
//!
//! So an idle process makes no system call, and a busy loop pays for the few stores of its pulse.

use super::dump::{look_at_all, thread_name};
use super::sample::sample;
use super::trace::Trace;
use super::unwind::unwind;
use coracle_loop::{LoopHandle, Pulse, Watcher};
use std::cell::Cell;
use std::fmt;
use std::io::{self, Write};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a loop may be held before that is reported.
const LIMIT_HELD: Duration = Duration::from_millis(100);

/// It is reported again when it has lasted so many times longer.
const AGAIN: u32 = 10;

/// How long loops may take to answer for a dump.
const PATIENCE: Duration = Duration::from_secs(1);

const SIGQUIT: i32 = 3;

/// How many threads of the process are watchdogs.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// How many threads of the process only watch.
pub(crate) fn threads() -> usize {
    THREADS.load(Ordering::SeqCst)
}

type Report = Box<dyn FnMut(&Held) + Send>;

/// A thread that watches over all loops of the process, and reports one that is held: by a callback or a
/// coroutine that takes too long, or that blocks.
///
/// ```
/// use coracle_coro::seeing::Watchdog;
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
///
/// let (tell, told) = channel();
/// let watching = Watchdog::new()
///     .limit(Duration::from_millis(20))
///     .on_held(move |held| _ = tell.send(held.to_string()))
///     .start()?;
/// coracle_coro::run(move || {
///     let hog = coracle_coro::Builder::new().name("hog").spawn(move || {
///         // It waits, but not in a way that coracle knows of: its loop waits with it.
///         told.recv_timeout(Duration::from_secs(60)).unwrap()
///     })?;
///     let report = hog.join().unwrap();
///     assert!(report.contains("held") && report.contains("'hog'"), "{report}");
///     Ok(())
/// })?;
/// drop(watching);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # How it sees the frames
/// The thread that is held is interrupted by a signal, SIGURG, whose handler notes what it was doing. A
/// system call that it is in is taken up again by the kernel; a few cannot be, and fail with `EINTR` (`poll`,
/// `nanosleep`, …: std repeats them). Who must not have that says [`without_frames`](Watchdog::without_frames).
#[must_use = "it does nothing before `start`"]
pub struct Watchdog {
    limit: Option<Duration>,
    report: Report,
    frames: bool,
    quit: bool,
}

impl Default for Watchdog {
    fn default() -> Watchdog {
        Watchdog::new()
    }
}

impl Watchdog {
    /// One that reports to the log what holds a loop longer than 100 ms.
    pub fn new() -> Watchdog {
        let report = |held: &Held| tracing::warn!("{held}");
        Watchdog { limit: Some(LIMIT_HELD), report: Box::new(report), frames: true, quit: false }
    }

    /// How long a loop may be held before that is reported, half as long again at most. Then once more when
    /// it has lasted ten times as long, and so on. 100 ms; not less than 1 ms.
    pub fn limit(mut self, limit: Duration) -> Watchdog {
        self.limit = Some(limit.max(Duration::from_millis(1)));
        self
    }

    /// Calls `report`, on the watchdog's thread, instead of writing to the log.
    pub fn on_held(mut self, report: impl FnMut(&Held) + Send + 'static) -> Watchdog {
        self.report = Box::new(report);
        self
    }

    /// Interrupts nobody: a report then says which thread is held, and since when, but not where.
    pub fn without_frames(mut self) -> Watchdog {
        self.frames = false;
        self
    }

    /// Writes a [dump](look_at_all) of all loops to standard error whenever SIGQUIT arrives (Ctrl-\, `kill
    /// -QUIT`), which does not end the process any more. Loops that are held are named, and not waited for.
    pub fn dump_on_sigquit(mut self) -> Watchdog {
        self.quit = true;
        self
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// There is no thread, or no loop for it, to be had.
    pub fn start(self) -> io::Result<Watching> {
        let (tell, told) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || {
            THREADS.fetch_add(1, Ordering::SeqCst);
            let _counted = Counted;
            match Watcher::new() {
                Ok(watcher) => self.watch(&watcher, &stopped, &tell),
                Err(error) => _ = tell.send(Err(error)),
            }
        };
        let thread = thread::Builder::new().name("coracle-watchdog".into()).spawn(body)?;
        match told.recv() {
            Ok(Ok(handle)) => Ok(Watching { handle, stop, thread: Some(thread) }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("the watchdog's thread has panicked")),
        }
    }

    fn watch(
        mut self,
        watcher: &Watcher,
        stop: &AtomicBool,
        tell: &mpsc::Sender<io::Result<LoopHandle>>,
    ) {
        let lp = watcher.lp();
        let asked = Rc::new(Cell::new(false));
        if self.quit {
            let asked = Rc::clone(&asked);
            if let Err(error) = lp.on_signal(SIGQUIT, move |_| asked.set(true)) {
                let _ = tell.send(Err(error));
                return;
            }
        }
        let _ = tell.send(Ok(lp.handle()));
        let mut rounds = Rounds::default();
        let ticking = Rc::new(Cell::new(false));
        while !stop.load(Ordering::SeqCst) {
            if asked.take() {
                dump();
            }
            if let Some(limit) = self.limit
                && !ticking.get()
                && (rounds.look(limit, self.frames, &mut self.report) || !watcher.may_sleep())
            {
                ticking.set(true);
                let ticking = Rc::clone(&ticking);
                lp.after(limit / 2, move |_| ticking.set(false));
            }
            if let Err(error) = lp.run_once() {
                tracing::error!(%error, "the watchdog's loop is broken: nobody watches any more");
                return;
            }
        }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watchdog({:?})", self.limit)
    }
}

/// A [`Watchdog`] at work, until this is dropped. `std::mem::forget` leaves it at work for good.
#[derive(Debug)]
#[must_use = "the watchdog goes when this is dropped"]
pub struct Watching {
    handle: LoopHandle,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.handle.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread is counted as one that only watches.
struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// From now on, SIGQUIT (Ctrl-\, `kill -QUIT`) does not end the process: it writes all loops and coroutines,
/// with backtraces, to standard error. As [`Watchdog::dump_on_sigquit`], without the watching.
///
/// ```
/// coracle_coro::seeing::dump_on_sigquit()?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As [`Watchdog::start`].
pub fn dump_on_sigquit() -> io::Result<()> {
    let watchdog = Watchdog { limit: None, ..Watchdog::new().dump_on_sigquit() };
    std::mem::forget(watchdog.start()?);
    Ok(())
}

fn dump() {
    let process = std::process::id();
    let text = format!("coracle, process {process}:\n{}", look_at_all(PATIENCE));
    // What was read of the debug information for that is tens of megabytes.
    backtrace::clear_symbol_cache();
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// What the watchdog has seen so far.
#[derive(Default)]
struct Rounds(Vec<Seen>);

/// A loop in a turn.
struct Seen {
    handle: LoopHandle,
    pulse: Pulse,
    since: Instant,
    /// When it is reported next.
    due: Duration,
}

impl Rounds {
    /// Looks at all loops. True if one is in a turn.
    fn look(&mut self, limit: Duration, frames: bool, report: &mut Report) -> bool {
        let now = Instant::now();
        let mut turning = Vec::new();
        for handle in LoopHandle::all() {
            let pulse = handle.pulse();
            if !pulse.is_turning() {
                continue;
            }
            let known = self.0.iter().position(|seen| seen.handle.is_same(&handle));
            let known = known.map(|index| self.0.swap_remove(index));
            let mut seen = known.filter(|seen| seen.pulse == pulse).unwrap_or_else(|| Seen {
                handle,
                pulse,
                since: now,
                due: limit,
            });
            let lasted = now - seen.since;
            if lasted >= seen.due {
                seen.due = lasted.saturating_mul(AGAIN);
                report(&Held::new(&seen.handle, lasted, frames));
            }
            turning.push(seen);
        }
        self.0 = turning;
        !self.0.is_empty()
    }
}

/// A loop that is held.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Held {
    /// The thread that the loop is on.
    pub thread: String,
    /// For how long it has been held, at least.
    pub lasted: Duration,
    /// The coroutine that ran, if it was one: its name, or its number.
    pub coroutine: Option<String>,
    /// The line that spawned it.
    pub spawned: Option<&'static Location<'static>>,
    /// Where it was.
    pub trace: Option<Trace>,
    /// Why that is not known.
    pub reason: Option<String>,
}

impl Held {
    /// Looks what a loop is doing that was asked so long ago, and did not answer.
    pub(super) fn look(handle: &LoopHandle, lasted: Duration) -> Held {
        Held::new(handle, lasted, true)
    }

    fn new(handle: &LoopHandle, lasted: Duration, frames: bool) -> Held {
        let mut held = Held {
            thread: thread_name(handle),
            lasted,
            coroutine: None,
            spawned: None,
            trace: None,
            reason: None,
        };
        if !frames {
            return held;
        }
        match sample(handle.thread_id()) {
            Ok(sample) => {
                if sample.registers.instruction == 0 {
                    held.reason = Some("the registers of this processor are not known".to_owned());
                } else {
                    held.trace = Some(unwind(&sample));
                }
                if let Some(runner) = sample.coroutine {
                    let number = || format!("#{}", runner.id);
                    held.coroutine =
                        Some(runner.name.map_or_else(number, |name| format!("'{name}'")));
                    held.spawned = Some(runner.spawned);
                }
            }
            Err(error) => held.reason = Some(error.to_string()),
        }
        held
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Held { thread, lasted, coroutine, spawned, trace, reason } = self;
        write!(f, "loop of {thread}: held for {lasted:.1?} and more")?;
        match (coroutine, spawned) {
            (Some(coroutine), Some(spawned)) => {
                write!(f, " by coroutine {coroutine}, spawned at {spawned}")?;
            }
            _ if trace.is_some() => f.write_str(" by a callback")?,
            _ => {}
        }
        writeln!(f)?;
        if let Some(reason) = reason {
            writeln!(f, "      where it is cannot be seen: {reason}")?;
        }
        match trace {
            Some(trace) => fmt::Display::fmt(trace, f),
            None => Ok(()),
        }
    }
}
