//! Copies of the process: hooks are off in them.
#![allow(unsafe_code)]

use crate::gate;
use crate::raw;
use std::sync::Once;
use std::sync::atomic::{AtomicIsize, Ordering};

/// The process that has enabled hooks.
static OWN: AtomicIsize = AtomicIsize::new(0);

/// From now on, a copy made by `fork` runs without hooks.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        OWN.store(id(), Ordering::Relaxed);
        // SAFETY: a function that only stores a number: it may run between fork and exec.
        unsafe { libc::pthread_atfork(None, None, Some(in_copy)) };
    });
}

/// Whether this is a child made by `vfork`, which has our memory, and descriptors of its own: what it closes is
/// open here.
pub(crate) fn is_elsewhere() -> bool {
    id() != OWN.load(Ordering::Relaxed)
}

fn id() -> isize {
    raw::plain(libc::SYS_getpid, []).unwrap_or(0)
}

extern "C" fn in_copy() {
    gate::set_enabled(false);
}
