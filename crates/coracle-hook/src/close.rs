//! Closing: who waits on a descriptor that is closed is told `EBADF`, in whatever loop.
//!
//! These are never parked in; they are looked at in every thread, for the price of one load if nobody waits.
#![allow(unsafe_code)]

use crate::cache;
use crate::gate;
use crate::wait;
use libc::{c_int, c_uint};

/// A range beyond this is cut: no process has more.
const LIMIT_NUMBER: c_uint = 1 << 20;

hook! {
    always fn close(fd: c_int) -> c_int {
        if gate::is_enabled() {
            cache::forget(fd);
            wait::closing(fd);
        }
        // SAFETY: as it was called.
        unsafe { next!(close(fd: c_int) -> c_int) }
    }

    always fn dup2(old: c_int, new: c_int) -> c_int {
        if gate::is_enabled() && old != new {
            cache::forget(old);
            cache::forget(new);
            wait::closing(new);
        }
        // SAFETY: as it was called.
        unsafe { next!(dup2(old: c_int, new: c_int) -> c_int) }
    }

    always fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        if gate::is_enabled() && old != new {
            cache::forget(old);
            cache::forget(new);
            wait::closing(new);
        }
        // SAFETY: as it was called.
        unsafe { next!(dup3(old: c_int, new: c_int, flags: c_int) -> c_int) }
    }

    always fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        const CLOEXEC: c_int = 1 << 2; // closes nothing now
        if gate::is_enabled() && flags & CLOEXEC == 0 {
            for fd in first..=last.min(LIMIT_NUMBER) {
                cache::forget(fd as c_int);
                wait::closing(fd as c_int);
            }
        }
        // SAFETY: as it was called.
        unsafe { next!(close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int) }
    }
}
