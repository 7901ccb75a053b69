//! Connecting: begun while the socket is non-blocking, finished by the same call when the kernel is done, so
//! that the socket is afterwards just as a blocking connect(2) leaves it.
#![allow(unsafe_code)]

use crate::bytes;
use crate::cache;
use crate::guest;
use crate::raw::{self, Answer, call, settle};
use crate::wait::Patience;
use coracle_coro::hooking::done_at_once;
use coracle_loop::demux::Interest;
use libc::{c_int, sockaddr, socklen_t};

hook! {
    park fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { connect_to(fd, to, len) }) as c_int
    }
}

/// connect(2).
///
/// # Safety
/// As connect(2).
unsafe fn connect_to(fd: c_int, to: *const sockaddr, len: socklen_t) -> Answer {
    let plain = || {
        // SAFETY: the caller's pointers.
        unsafe { call(libc::SYS_connect, [fd as usize, to.addr(), len as usize]) }
    };
    // SAFETY: the caller's pointers.
    let answer = match unsafe { guest::connect(fd, to, len) } {
        Some(Err(libc::EAGAIN)) => Err(libc::EINPROGRESS), // SO_SNDTIMEO is over, and it goes on without us
        Some(answer) => answer,
        None => connect_by_poll(fd, plain),
    };
    if answer.is_ok() {
        cache::note_connected(fd);
    }
    answer
}

/// The same with `plain`, which is the call itself.
fn connect_by_poll(fd: c_int, plain: impl Fn() -> Answer) -> Answer {
    let facts = cache::facts(fd);
    let known =
        || if facts.is_known() { Ok(facts.is_nonblocking()) } else { raw::is_nonblocking(fd) };
    if bytes::is_standard(fd) || known()? {
        return plain();
    }
    let mut patience = Patience::begin(fd, Interest::WRITE)?;
    let mut begun = false;
    loop {
        raw::set_nonblocking(fd, true)?;
        let answer = plain();
        let _ = raw::set_nonblocking(fd, false);
        match answer {
            Err(libc::EINTR) => {}
            // It goes on without us: we wait for its end. At the end of SO_SNDTIMEO it is still under way.
            Err(libc::EINPROGRESS | libc::EALREADY) => {
                begun = true;
                patience.wait().map_err(|error| {
                    if error == libc::EAGAIN { libc::EINPROGRESS } else { error }
                })?;
            }
            // A Unix socket whose backlog is full: nobody tells when there is room.
            Err(libc::EAGAIN) => {
                begun = true;
                patience.pause()?;
            }
            answer => {
                if !begun {
                    done_at_once();
                }
                return answer;
            }
        }
    }
}
