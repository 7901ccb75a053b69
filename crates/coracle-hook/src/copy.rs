//! Copying inside the kernel: it would wait for a socket there, where nobody can be parked. `EINVAL` has callers
//! fall back to reading and writing, as they must where a file system does not support it.
#![allow(unsafe_code)]

use crate::raw::{self, Kind, set_errno};
use libc::{c_int, c_uint, loff_t, off_t, off64_t, size_t, ssize_t};

hook! {
    park fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        if may_wait(&[to, from]) {
            return refuse();
        }
        // SAFETY: as it was called.
        unsafe { next!(sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t) }
    }

    park fn sendfile64(to: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> ssize_t {
        if may_wait(&[to, from]) {
            return refuse();
        }
        // SAFETY: as it was called.
        unsafe { next!(sendfile64(to: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> ssize_t) }
    }

    park fn splice(
        from: c_int, from_at: *mut loff_t, to: c_int, to_at: *mut loff_t, count: size_t, flags: c_uint,
    ) -> ssize_t {
        if may_wait(&[to, from]) {
            return refuse();
        }
        // SAFETY: as it was called.
        unsafe {
            next!(splice(
                from: c_int, from_at: *mut loff_t, to: c_int, to_at: *mut loff_t, count: size_t, flags: c_uint,
            ) -> ssize_t)
        }
    }

    park fn copy_file_range(
        from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, count: size_t, flags: c_uint,
    ) -> ssize_t {
        if may_wait(&[to, from]) {
            return refuse();
        }
        // SAFETY: as it was called.
        unsafe {
            next!(copy_file_range(
                from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, count: size_t, flags: c_uint,
            ) -> ssize_t)
        }
    }
}

/// Whether one of them is something that one waits for. What cannot be looked at is for the kernel to refuse.
fn may_wait(descriptors: &[c_int]) -> bool {
    descriptors.iter().any(|&fd| matches!(raw::kind(fd), Ok(Kind::Socket | Kind::Bytes)))
}

fn refuse() -> ssize_t {
    set_errno(libc::EINVAL);
    -1
}
