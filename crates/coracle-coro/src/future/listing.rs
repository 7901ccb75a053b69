//! Seeing what there is: the futures of a loop.

use crate::scheduler::Scheduler;
use crate::task::State;
use coracle_loop::Loop;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// A future, as it was when [`futures`] was called.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FutureInfo {
    /// What it was doing.
    pub state: State,
    /// The line that spawned it.
    pub spawned: &'static Location<'static>,
    /// How long ago that was, give or take a turn of the loop.
    pub age: Duration,
}

/// `a future is Waiting, spawned at src/main.rs:7:5, 1.5s ago`; with `{:#}`, without the time.
impl fmt::Display for FutureInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FutureInfo { state, spawned, age } = self;
        write!(f, "a future is {state:?}, spawned at {spawned}")?;
        if f.alternate() { Ok(()) } else { write!(f, ", {age:.1?} ago") }
    }
}

/// The [spawned](crate::future::spawn_future) futures of this loop that are not over, in no special order. Empty
/// outside a loop.
///
/// ```
/// use coracle_coro::State;
/// use coracle_coro::future::{futures, spawn_future};
///
/// coracle_coro::run(|| {
///     let never = spawn_future(std::future::pending::<()>());
///     assert_eq!(futures()[0].state, State::Ready);
///     coracle_coro::yield_now();
///     never.cancel();
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn futures() -> Vec<FutureInfo> {
    match Loop::current() {
        Some(lp) => Scheduler::of(&lp).futures.list(lp.now()),
        None => Vec::new(),
    }
}
