//! Whether a call is taken over: only if hooks are enabled, and a coroutine makes it that may be parked here.
//!
//! ```text
//!   recv() ──► enabled? ──► a coroutine, in a turn of its loop, not in `no_park`, hooks on, not unwinding?
//!                │no                     │no                                         │yes
//!                └────────► libc's own ◄─┘                              inside: try, wait, try again
//! ```
//!
//! While a hooked call is under way, the hooks of its coroutine are off: what it calls itself, a subscriber of
//! `tracing` included, is not taken over. Neither is what a signal handler calls that has a stack of its own.

use crate::fork;
use crate::raw;
use coracle_coro::hooking;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Set by `enable`, and cleared in a copy of the process.
static ENABLED: AtomicBool = AtomicBool::new(false);

/// How many calls were taken over, and how many of them have waited.
static TAKEN: AtomicU64 = AtomicU64::new(0);
static WAITED: AtomicU64 = AtomicU64::new(0);

/// Whether hooks are enabled, and this is the process that has enabled them.
#[inline]
pub(crate) fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed) && !fork::is_borrower()
}

pub(crate) fn set_enabled(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}

/// Whether this call is taken over.
#[inline]
pub(crate) fn may_park() -> bool {
    is_enabled()
        && hooking::may_park()
        && (hooking::is_on_own_stack() || !(raw::is_on_signal_stack() || fork::is_elsewhere()))
}

/// Does what a hook does.
#[inline]
pub(crate) fn inside<R>(act: impl FnOnce() -> R) -> R {
    TAKEN.fetch_add(1, Ordering::Relaxed);
    hooking::unhooked(act)
}

pub(crate) fn note_wait() {
    WAITED.fetch_add(1, Ordering::Relaxed);
}

/// How many calls were taken over, and how many waits there were.
pub(crate) fn counts() -> (u64, u64) {
    (TAKEN.load(Ordering::Relaxed), WAITED.load(Ordering::Relaxed))
}
