//! From a length of time to a point in time, by the clock of whoever waits.

use crate::deadline;
use std::time::{Duration, Instant};

/// When `timeout` from now is over.
pub(crate) fn after(timeout: Duration) -> Option<Instant> {
    Some(deadline::after(timeout))
}
