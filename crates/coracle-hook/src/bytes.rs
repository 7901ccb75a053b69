//! Reading and writing what is no socket: pipes, eventfds and their kin. Regular files and devices are left alone.
//!
//! The attempt is `preadv2` with `RWF_NOWAIT`. Where that is not supported (a FIFO that was opened by its name),
//! poll(2) says whether a plain call would wait.
#![allow(unsafe_code)]

use crate::raw::{self, Answer, Kind, call};
use crate::wait::Patience;
use coracle_coro::hooking::done_at_once;
use coracle_loop::demux::Interest;
use libc::{c_int, c_long, iovec};

/// A plain write of so much to a pipe that poll(2) calls writable does not wait.
const PIPE_BUF: usize = 4096;

/// A write of so little does not give way to others: signal handlers make such, in the middle of whatever they
/// interrupt. An eventfd takes eight bytes.
const SMALL: usize = 8;

/// The most stretches the kernel takes.
const LIMIT_STRETCHES: c_int = 1024;

/// Whether it is one of the standard streams, which are never parked on: std's locks of them are the thread's.
pub(crate) fn is_standard(fd: c_int) -> bool {
    (0..=2).contains(&fd)
}

/// A write was done without a wait.
pub(crate) fn written_at_once(len: usize) {
    if len > SMALL {
        done_at_once();
    }
}

/// The caller's stretches, if there are as many as there may be.
///
/// # Safety
/// There are so many of them.
pub(crate) unsafe fn stretches<'a>(first: *const iovec, count: c_int) -> Option<&'a [iovec]> {
    if first.is_null() || !(1..=LIMIT_STRETCHES).contains(&count) {
        return None;
    }
    // SAFETY: as promised.
    Some(unsafe { std::slice::from_raw_parts(first, count as usize) })
}

/// What is left of stretches of which `done` bytes are used.
pub(crate) fn after(stretches: &[iovec], mut done: usize) -> Vec<iovec> {
    let mut left = Vec::with_capacity(stretches.len());
    for stretch in stretches {
        let used = done.min(stretch.iov_len);
        done -= used;
        if used < stretch.iov_len {
            let iov_base = stretch.iov_base.wrapping_byte_add(used);
            left.push(iovec { iov_base, iov_len: stretch.iov_len - used });
        }
    }
    left
}

/// The first `limit` bytes of stretches.
fn first(stretches: &[iovec], limit: usize) -> Vec<iovec> {
    let mut left = limit;
    let cut = |stretch: &iovec| {
        let iov_len = stretch.iov_len.min(left);
        left -= iov_len;
        iovec { iov_base: stretch.iov_base, iov_len }
    };
    stretches.iter().map(cut).filter(|stretch| stretch.iov_len > 0).collect()
}

/// read(2) or readv(2) of what is no socket. `plain` is the call itself.
pub(crate) fn read(fd: c_int, stretches: &[iovec], plain: impl Fn() -> Answer) -> Answer {
    if raw::kind(fd)? != Kind::Bytes {
        return plain();
    }
    let mut patience = Patience::begin(fd, Interest::READ)?.asking();
    let mut waited = false;
    loop {
        let answer = match now(libc::SYS_preadv2, fd, stretches) {
            Err(libc::EOPNOTSUPP | libc::ESPIPE) => {
                if raw::poll_now(fd, libc::POLLIN) == 0 {
                    Err(libc::EAGAIN)
                } else {
                    plain()
                }
            }
            answer => answer,
        };
        match answer {
            Err(libc::EINTR) => {}
            Err(libc::EAGAIN) => {
                waited = true;
                patience.wait()?;
            }
            answer => {
                if !waited {
                    done_at_once();
                }
                return answer;
            }
        }
    }
}

/// write(2) or writev(2) of what is no socket: all of it, unless the user wanted no wait. `plain` is the call
/// itself.
pub(crate) fn write(fd: c_int, stretches: &[iovec], plain: impl Fn() -> Answer) -> Answer {
    if raw::kind(fd)? != Kind::Bytes {
        return plain();
    }
    let mut patience = Patience::begin(fd, Interest::WRITE)?.asking();
    let len: usize = stretches.iter().map(|stretch| stretch.iov_len).sum();
    let (mut done, mut waited) = (0, false);
    loop {
        // Nothing is allocated before there was a wait: a signal handler may have called.
        let owned = if done == 0 { Vec::new() } else { after(stretches, done) };
        let rest: &[iovec] = if done == 0 { stretches } else { &owned };
        let answer = match now(libc::SYS_pwritev2, fd, rest) {
            Err(libc::EOPNOTSUPP | libc::ESPIPE) if raw::poll_now(fd, libc::POLLOUT) == 0 => {
                Err(libc::EAGAIN)
            }
            Err(libc::EOPNOTSUPP | libc::ESPIPE) if done == 0 && len <= PIPE_BUF => plain(),
            Err(libc::EOPNOTSUPP | libc::ESPIPE) => {
                let part = first(rest, PIPE_BUF);
                // SAFETY: stretches of the caller's, which he lends for reading.
                unsafe { call(libc::SYS_writev, [fd as usize, part.as_ptr().addr(), part.len()]) }
            }
            answer => answer,
        };
        match answer {
            Ok(count) => {
                done += count as usize;
                if done >= len || count == 0 {
                    if !waited {
                        written_at_once(len);
                    }
                    return Ok(done as isize);
                }
                patience.progress();
            }
            Err(libc::EINTR) => {}
            Err(libc::EAGAIN) => {
                waited = true;
                match patience.wait() {
                    Ok(()) => {}
                    Err(_) if done > 0 => return Ok(done as isize),
                    Err(error) => return Err(error),
                }
            }
            Err(_) if done > 0 => return Ok(done as isize),
            Err(error) => return Err(error),
        }
    }
}

/// One attempt, at the place where the descriptor is.
fn now(number: c_long, fd: c_int, stretches: &[iovec]) -> Answer {
    let here = usize::MAX;
    let arguments = [
        fd as usize,
        stretches.as_ptr().addr(),
        stretches.len(),
        here,
        here,
        libc::RWF_NOWAIT as usize,
    ];
    // SAFETY: stretches of the caller's, which he lends for this.
    unsafe { call(number, arguments) }
}
