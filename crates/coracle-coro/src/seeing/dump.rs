//! Looking at a loop, or at all of them, from any thread: each loop is asked by a posted job.

use super::listing::{CoroutineInfo, list};
use super::stats::{self, Stats};
use super::watchdog::Held;
use crate::scheduler::Scheduler;
use crate::sync::{Receiver, channel};
use coracle_loop::demux::Backend;
use coracle_loop::{Loop, LoopHandle};
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// So many coroutines of a loop are asked where they are, the oldest first. Each holds the loop for some
/// microseconds.
const LIMIT_TRACES: usize = 1000;

/// A loop and its coroutines, as they were when it was looked at.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoopDump {
    /// The thread that the loop is on.
    pub thread: String,
    /// What the loop stands on.
    pub backend: Backend,
    /// What its coroutines have done so far.
    pub stats: Stats,
    /// Those that are not over, the oldest first; the first thousand with a backtrace.
    pub coroutines: Vec<CoroutineInfo>,
}

/// All loops of the process.
#[derive(Debug)]
#[non_exhaustive]
pub struct Dump {
    /// Those that have answered.
    pub loops: Vec<LoopDump>,
    /// Those that are held, and so could not.
    pub held: Vec<Held>,
    /// The threads of those that did not answer because nobody runs them.
    pub idle: Vec<String>,
}

/// Looks at a loop and its coroutines, with a backtrace of each. Any thread: the loop is asked by a posted
/// job, and what is waited for is its answer.
///
/// # Errors
/// The loop is gone, or has too many posted jobs; or it has not answered within `patience`, because it is
/// held or because nobody runs it. As for every wait, `ECANCELED` and `TimedOut`.
///
/// # Panics
/// In a callback, unless it is one of that loop.
///
/// ```
/// use coracle_coro::seeing::look_at;
/// use std::time::Duration;
///
/// # use coracle_loop::Loop;
/// coracle_coro::run(|| {
///     let handle = Loop::current().unwrap().handle();
///     let main = coracle_coro::current();
///     let thread = std::thread::spawn(move || {
///         let dump = look_at(&handle, Duration::from_secs(60));
///         main.unpark();
///         dump
///     });
///     coracle_coro::park()?;
///     let dump = thread.join().unwrap()?;
///     assert_eq!(dump.stats.created, 1);
///     assert!(dump.to_string().contains("'main' is Waiting for an unpark"), "{dump}");
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn look_at(handle: &LoopHandle, patience: Duration) -> io::Result<LoopDump> {
    if let Some(lp) = Loop::current().filter(|lp| handle.is_of(lp)) {
        return Ok(look(&lp));
    }
    let answers = ask(std::slice::from_ref(handle));
    match next(&answers, within(patience)) {
        Some((_, dump)) => Ok(dump),
        None if !handle.is_alive() => Err(coracle_loop::PostError::Gone.into()),
        None => {
            let text = format!("the loop of {} does not answer", thread_name(handle));
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        }
    }
}

/// Looks at all loops of the process. As [`look_at`]; those that have not answered within `patience` are named.
///
/// ```
/// use std::time::Duration;
///
/// let dump = coracle_coro::seeing::look_at_all(Duration::from_secs(1));
/// assert!(dump.loops.is_empty()); // there is none so far
/// ```
///
/// # Panics
/// In a callback.
pub fn look_at_all(patience: Duration) -> Dump {
    let own = Loop::current();
    let is_own = |handle: &LoopHandle| own.as_ref().is_some_and(|lp| handle.is_of(lp));
    let others: Vec<LoopHandle> =
        LoopHandle::all().into_iter().filter(|handle| !is_own(handle)).collect();
    let mut loops: Vec<LoopDump> = own.iter().map(look).collect();
    let mut missing: Vec<Option<&LoopHandle>> = others.iter().map(Some).collect();
    let answers = ask(&others);
    let deadline = within(patience);
    while missing.iter().any(Option::is_some)
        && let Some((index, dump)) = next(&answers, deadline)
    {
        missing[index] = None;
        loops.push(dump);
    }
    loops.sort_by(|one, other| one.thread.cmp(&other.thread));
    let missing = missing.into_iter().flatten().filter(|handle| handle.is_alive());
    let (held, idle): (Vec<&LoopHandle>, Vec<&LoopHandle>) =
        missing.partition(|handle| handle.pulse().is_turning());
    Dump {
        loops,
        held: held.into_iter().map(|handle| Held::look(handle, patience)).collect(),
        idle: idle.into_iter().map(thread_name).collect(),
    }
}

type Answers = Receiver<(usize, LoopDump)>;

/// Has each loop send what it looks like. One that is gone, or cannot be asked, sends nothing.
fn ask(handles: &[LoopHandle]) -> Answers {
    let (sender, receiver) = channel(handles.len().max(1));
    for (index, handle) in handles.iter().enumerate() {
        let sender = sender.clone();
        let _ = handle.post(move |lp| {
            let _ = sender.try_send((index, look(lp))); // or nobody waits for it any more
        });
    }
    receiver
}

fn next(answers: &Answers, deadline: Instant) -> Option<(usize, LoopDump)> {
    let left = deadline.saturating_duration_since(Instant::now());
    answers.recv_timeout(left).ok()
}

/// In a turn of the loop.
fn look(lp: &Loop) -> LoopDump {
    let scheduler = Scheduler::of(lp);
    LoopDump {
        thread: thread_name(&lp.handle()),
        backend: lp.backend(),
        stats: stats::of(lp, &scheduler),
        coroutines: list(lp, &scheduler, LIMIT_TRACES),
    }
}

/// `thread 'main'`
pub(super) fn thread_name(handle: &LoopHandle) -> String {
    match handle.thread().name() {
        Some(name) => format!("thread '{name}'"),
        None => format!("thread {}", handle.thread_id()),
    }
}

/// The loop, then each coroutine and where it is.
impl fmt::Display for LoopDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoopDump { thread, backend, stats, coroutines } = self;
        let Stats { created, switches, ready, waiting, parked, .. } = stats;
        writeln!(
            f,
            "loop of {thread}, on {backend}: coroutines {}, ready {ready}, waiting {waiting}; \
             so far created {created}, switches {switches}, waited {parked:.1?}",
            coroutines.len()
        )?;
        for info in coroutines {
            writeln!(f, "  {info}")?;
            if let Some(trace) = &info.trace {
                fmt::Display::fmt(trace, f)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dump { loops, held, idle } = self;
        for dump in loops {
            fmt::Display::fmt(dump, f)?;
        }
        for held in held {
            fmt::Display::fmt(held, f)?;
        }
        for thread in idle {
            writeln!(f, "loop of {thread}: nobody runs it")?;
        }
        Ok(())
    }
}

/// So far from now, or as far as anybody waits.
fn within(patience: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(patience).unwrap_or_else(|| now + Duration::from_secs(1 << 32))
}
