//! Accepting connections.
//!
//! There is no `MSG_DONTWAIT` for accept(2): poll(2) says whether somebody is there, and the call is made while
//! the listening socket is non-blocking, for a moment, so that a connection that another thread takes first does
//! not leave us waiting. All who do so in this process take turns, and a plain thread that finds the socket in
//! that moment tries again. Only another process that shares the socket, and calls at that moment, can be told
//! `EAGAIN`.
#![allow(unsafe_code)]

use crate::bytes;
use crate::cache;
use crate::gate;
use crate::guest;
use crate::raw::{self, Answer, call, settle};
use crate::wait::Patience;
use coracle_coro::hooking::done_at_once;
use coracle_loop::demux::Interest;
use coracle_loop::demux::lock::Lock;
use libc::{c_int, sockaddr, socklen_t};
use std::sync::atomic::{AtomicU64, Ordering};

/// Whose turn it is to make a listening socket non-blocking.
static TURN: Lock<()> = Lock::new(());

/// How often one has been made so, and blocking again: odd while one is.
static CHANGES: AtomicU64 = AtomicU64::new(0);

hook! {
    always fn accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
        if gate::may_park() {
            // SAFETY: what the caller has promised libc.
            return gate::inside(|| settle(unsafe { accept_one(fd, from, len, 0) })) as c_int;
        }
        again_if_disturbed(fd, 0, || {
            // SAFETY: as it was called.
            unsafe { next!(accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int) }
        })
    }

    always fn accept4(fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
        if gate::may_park() {
            // SAFETY: what the caller has promised libc.
            return gate::inside(|| settle(unsafe { accept_one(fd, from, len, flags) })) as c_int;
        }
        again_if_disturbed(fd, flags, || {
            // SAFETY: as it was called.
            unsafe { next!(accept4(fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int) }
        })
    }
}

/// Accepts in a plain thread. `EAGAIN` is not meant for it if it came while a coroutine had the socket.
fn again_if_disturbed(fd: c_int, flags: c_int, accept: impl Fn() -> c_int) -> c_int {
    if !gate::is_enabled() {
        return accept();
    }
    loop {
        let before = CHANGES.load(Ordering::SeqCst);
        let answer = accept();
        if answer >= 0 {
            cache::accepted(answer, fd, flags);
            return answer;
        }
        let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        let disturbed = before % 2 == 1 || CHANGES.load(Ordering::SeqCst) != before;
        let own = disturbed && error == libc::EAGAIN && {
            let _turn = TURN.lock();
            raw::is_nonblocking(fd) != Ok(false)
        };
        if !disturbed
            || error != libc::EAGAIN
            || own
            || raw::socket_timeout(fd, libc::SO_RCVTIMEO).is_some()
        {
            raw::set_errno(error);
            return answer;
        }
    }
}

/// accept4(2).
///
/// # Safety
/// As accept4(2).
unsafe fn accept_one(fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> Answer {
    let plain = || {
        let arguments = [fd as usize, from.addr(), len.addr(), flags as usize];
        // SAFETY: the caller's pointers.
        unsafe { call(libc::SYS_accept4, arguments) }
    };
    if bytes::is_standard(fd) {
        return plain();
    }
    // SAFETY: the caller's pointers.
    match unsafe { guest::accept(fd, from, len, flags) } {
        Some(Ok(new)) => {
            cache::accepted(new as c_int, fd, flags);
            return Ok(new);
        }
        Some(Err(libc::EINTR)) | None => {}
        Some(error) => return error,
    }
    let mut patience = Patience::begin(fd, Interest::READ)?;
    let mut waited = false;
    loop {
        let answer = if raw::poll_now(fd, libc::POLLIN) == 0 && (waited || listens(fd)?) {
            Err(libc::EAGAIN)
        } else {
            at_once(fd, plain)
        };
        match answer {
            Err(libc::EINTR) => {}
            Err(libc::EAGAIN) => {
                waited = true;
                patience.wait()?;
            }
            answer => {
                if let Ok(new) = answer {
                    cache::accepted(new as c_int, fd, flags);
                }
                if !waited {
                    done_at_once();
                }
                return answer;
            }
        }
    }
}

/// Whether the user has made a descriptor non-blocking: not we, for a moment, on another thread.
pub(crate) fn is_nonblocking(fd: c_int) -> Result<bool, c_int> {
    let _turn = TURN.lock();
    raw::is_nonblocking(fd)
}

/// Whether anybody will ever come. If not, the kernel says why.
fn listens(fd: c_int) -> Result<bool, c_int> {
    raw::socket_option::<c_int>(fd, libc::SO_ACCEPTCONN).map(|listens| listens != 0)
}

/// Makes the call while the socket is non-blocking.
fn at_once(fd: c_int, plain: impl Fn() -> Answer) -> Answer {
    let _turn = TURN.lock();
    if raw::is_nonblocking(fd)? {
        return plain(); // the user's own wish
    }
    CHANGES.fetch_add(1, Ordering::SeqCst);
    let answer = raw::set_nonblocking(fd, true).and_then(|()| plain());
    let _ = raw::set_nonblocking(fd, false);
    CHANGES.fetch_add(1, Ordering::SeqCst);
    answer
}
