//! Seeing what there is: the coroutines of a loop.

use crate::coroutine::Coroutine;
use crate::scheduler::Scheduler;
use crate::task::{State, Task};
use coracle_loop::Loop;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// A coroutine, as it was when [`coroutines`] was called.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CoroutineInfo {
    /// Which one it is.
    pub coroutine: Coroutine,
    /// What it was doing.
    pub state: State,
    /// The line that spawned it.
    pub spawned: &'static Location<'static>,
    /// How long ago that was, give or take a turn of the loop.
    pub age: Duration,
}

/// `'main' is Running, spawned at src/main.rs:7:5, 1.5s ago`
impl fmt::Display for CoroutineInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CoroutineInfo { coroutine, state, spawned, age } = self;
        write!(f, "{coroutine} is {state:?}, spawned at {spawned}, {age:?} ago")
    }
}

/// The coroutines of this loop that are not over, in no special order. Empty outside a loop.
///
/// ```
/// use coracle_coro::{State, coroutines};
///
/// coracle_coro::run(|| {
///     coracle_coro::spawn(|| ());
///     let all = coroutines();
///     assert_eq!(all.len(), 2);
///     assert!(all.iter().any(|one| one.coroutine.name() == Some("main") && one.state == State::Running));
///     assert!(all.iter().any(|one| one.state == State::New));
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn coroutines() -> Vec<CoroutineInfo> {
    match Loop::current() {
        Some(lp) => list(&lp, &Scheduler::of(&lp)),
        None => Vec::new(),
    }
}

/// All that `scheduler` has.
pub(crate) fn list(lp: &Loop, scheduler: &Scheduler) -> Vec<CoroutineInfo> {
    let info = |task: &Task| {
        let sleeper = task.sleeper();
        CoroutineInfo {
            state: task.state.get(),
            spawned: sleeper.spawned,
            age: lp.now().saturating_duration_since(task.spawned_at.get()),
            coroutine: Coroutine::new(sleeper),
        }
    };
    scheduler.tasks().iter().map(|task| info(task)).collect()
}
