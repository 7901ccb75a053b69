//! The coroutines of a loop: a line for each.

use super::look::{look, look_at_caller};
use super::trace::Trace;
use crate::coroutine::Coroutine;
use crate::current;
use crate::scheduler::Scheduler;
use crate::task::{State, Task};
use crate::waits_for::WaitsFor;
use coracle_loop::Loop;
use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

/// A coroutine, as it was when [`coroutines`] was called.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CoroutineInfo {
    /// Which one it is.
    pub coroutine: Coroutine,
    /// What it was doing.
    pub state: State,
    /// What it waited for, if it waited.
    pub waits_for: Option<WaitsFor>,
    /// The number of the descriptor, if it waited for a socket. A simulated one has none.
    pub descriptor: Option<i32>,
    /// For how long it had waited, give or take a turn of the loop.
    pub waited: Option<Duration>,
    /// The line that spawned it.
    pub spawned: &'static Location<'static>,
    /// How long ago that was, give or take a turn of the loop.
    pub age: Duration,
    /// The time of its loop, which may be a simulated one.
    pub seen: Instant,
    /// Where it was: of those that were started, and only if it was [asked for](crate::seeing::look_at).
    pub trace: Option<Trace>,
}

/// `#1 'main' is Waiting for the end of #7 for 1.2s, spawned at src/main.rs:7:5, 1.5s ago`; with `{:#}`, without
/// times.
impl fmt::Display for CoroutineInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CoroutineInfo { coroutine, state, waits_for, descriptor, waited, .. } = self;
        let CoroutineInfo { spawned, age, seen, .. } = self;
        write!(f, "#{}", coroutine.id())?;
        if let Some(name) = coroutine.name() {
            write!(f, " '{name}'")?;
        }
        write!(f, " is {state:?}")?;
        if let (Some(what), Some(waited)) = (waits_for, waited) {
            write!(f, " for {what}")?;
            if let Some(number) = descriptor {
                write!(f, " (descriptor {number})")?;
            }
            if !f.alternate() {
                write!(f, " for {waited:.1?}")?;
            }
            if let WaitsFor::Time(until) = what {
                write!(f, ", and {:.1?} to go", until.saturating_duration_since(*seen))?;
            }
        }
        write!(f, ", spawned at {spawned}")?;
        if f.alternate() { Ok(()) } else { write!(f, ", {age:.1?} ago") }
    }
}

/// The coroutines of this loop that are not over, the oldest first. Empty outside a loop. Without backtraces:
/// [`look_at`](crate::seeing::look_at) has them.
///
/// ```
/// use coracle_coro::{State, coroutines};
///
/// coracle_coro::run(|| {
///     coracle_coro::spawn(|| ());
///     let all = coroutines();
///     assert_eq!(all.len(), 2);
///     assert_eq!((all[0].coroutine.name(), all[0].state), (Some("main"), State::Running));
///     assert_eq!((all[1].coroutine.name(), all[1].state), (None, State::New));
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn coroutines() -> Vec<CoroutineInfo> {
    match Loop::current() {
        Some(lp) => list(&lp, &Scheduler::of(&lp), 0),
        None => Vec::new(),
    }
}

/// All that `scheduler` has, the oldest first; so many of them with a backtrace.
pub(crate) fn list(lp: &Loop, scheduler: &Scheduler, traces: usize) -> Vec<CoroutineInfo> {
    let mut tasks = scheduler.tasks();
    // Who was spawned by another thread has a number of that thread.
    tasks.sort_by_cached_key(|task| (task.spawned_at.get(), task.sleeper().id));
    let traced = |index: usize| index < traces;
    let spawned_at = |task: &Task| scheduler.stamps().time(task.spawned_at.get());
    tasks
        .iter()
        .enumerate()
        .map(|(index, task)| info(lp, task, spawned_at(task), traced(index)))
        .collect()
}

fn info(lp: &Loop, task: &Task, spawned: Instant, traced: bool) -> CoroutineInfo {
    let sleeper = task.sleeper();
    let (seen, state) = (lp.now(), task.state.get());
    let waiting = task.waiting();
    let waits_for = waiting.map(|waiting| waiting.what);
    CoroutineInfo {
        state,
        waits_for,
        descriptor: waits_for.and_then(WaitsFor::socket).and_then(|socket| lp.number(socket)),
        waited: waiting.map(|waiting| seen.saturating_duration_since(waiting.since)),
        spawned: sleeper.spawned,
        age: seen.saturating_duration_since(spawned),
        seen,
        trace: if !traced {
            None
        } else if is_caller(&sleeper) {
            Some(here())
        } else {
            look(task)
        },
        coroutine: Coroutine::new(sleeper),
    }
}

fn is_caller(sleeper: &crate::sleeper::Sleeper) -> bool {
    current::with(|frame| frame.is_some_and(|frame| std::ptr::eq(&**frame.sleeper, sleeper)))
}

fn here() -> Trace {
    current::with(|frame| look_at_caller(frame.map(|frame| std::ptr::from_ref(frame).addr())))
}
