//! What the hooks are doing, for people.

use crate::gate;
use crate::guest;
use crate::hold::{self, Holds};
use crate::symbols;
use std::fmt;
use std::panic::Location;

/// Whether hooks are enabled, by whom, and what they have done so far.
///
/// ```
/// let status = coracle_hook::status();
/// assert!(!status.enabled);
/// assert_eq!(status.to_string(), "hooks are linked, and not enabled");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Whether calls of coroutines are taken over. Never in a copy of a process (`fork`).
    pub enabled: bool,
    /// The line that has enabled them.
    pub enabled_by: Option<&'static Location<'static>>,
    /// Whether C's sleeping functions park, too.
    pub sleeping: bool,
    /// Whether small sends are handed over together.
    pub sending: bool,
    /// How many functions of libc's have a definition here.
    pub symbols: usize,
    /// Which of them are not in place. Then `enabled` is false.
    pub missing: Vec<String>,
    /// How many calls of coroutines were taken over.
    pub calls: u64,
    /// How often a coroutine was parked in one.
    pub waits: u64,
    /// How often calls that are never parked in have held a loop.
    pub holds: Holds,
}

pub(crate) fn status(enabled_by: Option<&'static Location<'static>>) -> Status {
    let (calls, waits) = gate::counts();
    Status {
        enabled: gate::is_enabled(),
        enabled_by,
        sleeping: crate::is_sleeping(),
        sending: guest::is_sending(),
        symbols: symbols::all().count(),
        missing: symbols::missing_here(),
        calls,
        waits,
        holds: hold::counts(),
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.missing.is_empty() {
            return write!(f, "hooks are not in place: {}", self.missing.join(", "));
        }
        match self.enabled_by {
            Some(by) if self.enabled => {
                let Status { symbols, calls, waits, holds, .. } = self;
                write!(
                    f,
                    "hooks are enabled, by {by}: {symbols} functions, {calls} calls, {waits} waits, {} holds",
                    holds.all()
                )?;
                match (self.sleeping, self.sending) {
                    (false, false) => Ok(()),
                    (true, false) => f.write_str("; with `sleeping`"),
                    (false, true) => f.write_str("; with `sending`"),
                    (true, true) => f.write_str("; with `sleeping` and `sending`"),
                }
            }
            _ => f.write_str("hooks are linked, and not enabled"),
        }
    }
}
