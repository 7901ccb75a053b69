//! Coroutines that will not end: cancelled, told so too often, and still waiting. They are parked for good.
//!
//! ```text
//!   cancelled, and told so LIMIT_CANCELLED_WAITS times ──► parked for good
//!                                                              │ all children that are left of a scope
//!                                                              ▼
//!                     the parent, which must not go on without them: parked for good
//!                                                              │ all coroutines that are left of a run
//!                                                              ▼
//!                     `run`, which must not return before them: the process ends
//! ```

use crate::current::Frame;
use std::fmt;

/// The status of a process that ends because its coroutines do not. (`EX_SOFTWARE` of sysexits.h.)
const EXIT_STATUS: i32 = 70;

/// Those who must not go on before a coroutine is over.
pub(crate) trait Family {
    /// One of theirs will never be.
    fn child_leaked(&self);
}

/// Parks the coroutine that calls for good: neither it nor its stack is ever used again.
pub(crate) fn leak(frame: &Frame, why: &str) -> ! {
    let (coroutine, spawned) = (frame.sleeper.to_string(), frame.sleeper.spawned);
    tracing::error!(coroutine, %spawned, "{why}: the coroutine is parked for good");
    if let Some(family) = frame.family.take() {
        family.child_leaked();
    }
    frame.leave()
}

/// Ends the process, since `run` cannot return: these coroutines live, and nobody will ever resume them.
pub(crate) fn exit(leaked: &[impl fmt::Display]) -> ! {
    let names: Vec<String> = leaked.iter().map(ToString::to_string).collect();
    let names = names.join(", ");
    tracing::error!(names, "`run` cannot return before these coroutines end, and they never will");
    eprintln!(
        "coracle: `run` cannot return before all coroutines are over, and these never will be, for they were \
         cancelled and went on waiting: {names}. Ending the process."
    );
    std::process::exit(EXIT_STATUS)
}
