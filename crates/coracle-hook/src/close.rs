//! Closing: who waits on a descriptor that is closed is told `EBADF`, in whatever loop.
//!
//! These are never parked in; they are looked at in every thread, for the price of two loads if nobody waits: one
//! before libc closes the number, to tell those who wait, and one after it, for who has begun to wait meanwhile.
#![allow(unsafe_code)]

use crate::cache;
use crate::gate;
use crate::raw;
use crate::wait;
use libc::{c_int, c_uint};

/// A range beyond this is cut: no process has more.
const LIMIT_NUMBER: c_uint = 1 << 20;

hook! {
    always fn close(fd: c_int) -> c_int {
        if gate::is_enabled() {
            closing(fd);
        }
        // SAFETY: as it was called.
        let answer = unsafe { next!(close(fd: c_int) -> c_int) };
        closed(fd);
        answer
    }

    always fn dup2(old: c_int, new: c_int) -> c_int {
        if gate::is_enabled() && old != new && is_open(old) {
            cache::forget(old);
            closing(new);
        }
        // SAFETY: as it was called.
        let answer = unsafe { next!(dup2(old: c_int, new: c_int) -> c_int) };
        closed(new);
        answer
    }

    always fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        if gate::is_enabled() && old != new && is_open(old) && flags & !libc::O_CLOEXEC == 0 {
            cache::forget(old);
            closing(new);
        }
        // SAFETY: as it was called.
        let answer = unsafe { next!(dup3(old: c_int, new: c_int, flags: c_int) -> c_int) };
        closed(new);
        answer
    }

    always fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        const CLOEXEC: c_int = 1 << 2; // closes nothing now
        if gate::is_enabled() && flags & CLOEXEC == 0 {
            for fd in first..=last.min(LIMIT_NUMBER) {
                closing(fd as c_int);
            }
        }
        if libcs::close_range.look().is_null() {
            // Libc has had it since 2.34.
            let arguments = [first as usize, last as usize, flags as usize];
            let answer = raw::plain(libc::SYS_close_range, arguments);
            all_closed(first, last);
            return raw::settle(answer) as c_int;
        }
        // SAFETY: as it was called.
        let answer = unsafe { next!(close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int) };
        all_closed(first, last);
        answer
    }

    always fn closefrom(first: c_int) -> () {
        if gate::is_enabled() {
            (first.max(0)..LIMIT_NUMBER as c_int).for_each(closing);
        }
        if libcs::closefrom.look().is_null() {
            // Libc has had it since 2.34. It has no way to fail.
            let arguments = [first.max(0) as usize, c_uint::MAX as usize, 0];
            let _ = raw::plain(libc::SYS_close_range, arguments);
        } else {
            // SAFETY: as it was called.
            unsafe { next!(closefrom(first: c_int) -> ()) };
        }
        all_closed(first.max(0) as c_uint, LIMIT_NUMBER);
    }

    // Inside libc, it closes what it has without a call of `close`.

    always fn fclose(stream: *mut libc::FILE) -> c_int {
        let mut fd = -1;
        if gate::is_enabled() && !stream.is_null() {
            // SAFETY: a stream that is open, as it was called.
            fd = unsafe { libc::fileno(stream) };
            closing(fd);
        }
        // SAFETY: as it was called.
        let answer = unsafe { next!(fclose(stream: *mut libc::FILE) -> c_int) };
        closed(fd);
        answer
    }
}

/// The number is about to be closed.
pub(crate) fn closing(fd: c_int) {
    cache::forget(fd);
    wait::closing(fd);
}

/// The number was closed, or something else was put there.
pub(crate) fn closed(fd: c_int) {
    if gate::is_enabled() {
        wait::closed(fd, fd);
    }
}

/// The same of several.
fn all_closed(first: c_uint, last: c_uint) {
    if gate::is_enabled() && first <= last {
        let number = |fd: c_uint| fd.min(LIMIT_NUMBER) as c_int;
        wait::closed(number(first), number(last));
    }
}

/// If it is not, nothing will be closed.
fn is_open(fd: c_int) -> bool {
    raw::plain(libc::SYS_fcntl, [fd as usize, libc::F_GETFD as usize]).is_ok()
}
