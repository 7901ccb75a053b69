//! From a length of time to a point in time, by the clock of whoever waits; and the deadlines around it.

use crate::deadline;
use std::time::{Duration, Instant};

/// When `timeout` from now is over.
pub(crate) fn after(timeout: Duration) -> Option<Instant> {
    Some(deadline::after(timeout))
}

/// Whether `deadline` has passed, by the same clock.
pub(crate) fn is_over(deadline: Instant) -> bool {
    deadline <= deadline::now()
}

/// The earliest of the deadlines [around](crate::deadline()) whoever calls. If a wait ends by that, and not by a
/// time-out of its own, it is an error in any case.
pub(crate) fn limit() -> Option<Instant> {
    deadline::limit()
}

/// Whether a wait that has timed out has done so by its `own` time-out, and not by one around it.
pub(crate) fn is_first(own: Option<Instant>, outer: Option<Instant>) -> bool {
    own.is_some_and(|own| outer.is_none_or(|outer| own <= outer))
}
