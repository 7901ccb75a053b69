//! Copies of the process: hooks are off in them.
#![allow(unsafe_code)]

use crate::gate;
use std::sync::Once;

/// From now on, a copy made by `fork` runs without hooks.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a function that only stores a number: it may run between fork and exec.
        unsafe { libc::pthread_atfork(None, None, Some(in_copy)) };
    });
}

extern "C" fn in_copy() {
    gate::set_enabled(false);
}
