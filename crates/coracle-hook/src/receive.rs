//! Receiving: `recv` and its kin, and `read` and `readv`, which are the same on a socket.
//!
//! Every attempt is made with `MSG_DONTWAIT`, so that the descriptor stays as the user has set it. Only if there
//! is nothing is looked whether the user wanted to wait at all.
#![allow(unsafe_code)]

use crate::bytes;
use crate::cache;
use crate::gate;
use crate::guest;
use crate::poll;
use crate::raw::{self, Answer, call, settle};
use crate::wait::Patience;
use coracle_coro::hooking::done_at_once;
use coracle_loop::demux::Interest;
use libc::{
    MSG_DONTWAIT, MSG_ERRQUEUE, MSG_OOB, MSG_PEEK, MSG_WAITALL, MSG_WAITFORONE, c_int, c_uint,
    c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec,
};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// With these a receive does not wait in any case.
const NEVER_WAIT: c_int = MSG_DONTWAIT | MSG_ERRQUEUE | MSG_OOB;

hook! {
    park fn recv(fd: c_int, space: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { receive_into(fd, space, len, flags, std::ptr::null_mut(), std::ptr::null_mut()) })
    }

    park fn recvfrom(
        fd: c_int, space: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t,
    ) -> ssize_t {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { receive_into(fd, space, len, flags, from, from_len) })
    }

    always fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        let answer = if gate::may_park() {
            // SAFETY: what the caller has promised libc.
            gate::inside(|| settle(unsafe { receive_message(fd, message, flags) }))
        } else {
            // SAFETY: as it was called.
            unsafe { next!(recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t) }
        };
        if answer >= 0 && gate::is_enabled() {
            // SAFETY: the kernel has just filled it in.
            unsafe { passed(message, cache::forget) };
        }
        answer
    }

    park fn recvmmsg(
        fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec,
    ) -> c_int {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { receive_messages(fd, messages, count, flags, timeout) }) as c_int
    }

    park fn read(fd: c_int, space: *mut c_void, len: size_t) -> ssize_t {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { read_into(fd, space, len) })
    }

    park fn readv(fd: c_int, stretches: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { read_vectored(fd, stretches, count) })
    }

    // With these, glibc's headers have the length checked (`_FORTIFY_SOURCE`). What does not fit is for glibc,
    // which ends the process.

    park fn __recv_chk(fd: c_int, space: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t {
        if len > room {
            // SAFETY: what the caller has promised libc.
            return unsafe {
                next!(__recv_chk(
                    fd: c_int, space: *mut c_void, len: size_t, room: size_t, flags: c_int,
                ) -> ssize_t)
            };
        }
        // SAFETY: as above.
        settle(unsafe { receive_into(fd, space, len, flags, std::ptr::null_mut(), std::ptr::null_mut()) })
    }

    park fn __recvfrom_chk(
        fd: c_int, space: *mut c_void, len: size_t, room: size_t, flags: c_int, from: *mut sockaddr,
        from_len: *mut socklen_t,
    ) -> ssize_t {
        if len > room {
            // SAFETY: what the caller has promised libc.
            return unsafe {
                next!(__recvfrom_chk(
                    fd: c_int, space: *mut c_void, len: size_t, room: size_t, flags: c_int, from: *mut sockaddr,
                    from_len: *mut socklen_t,
                ) -> ssize_t)
            };
        }
        // SAFETY: as above.
        settle(unsafe { receive_into(fd, space, len, flags, from, from_len) })
    }

    park fn __read_chk(fd: c_int, space: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        if len > room {
            // SAFETY: what the caller has promised libc.
            return unsafe {
                next!(__read_chk(fd: c_int, space: *mut c_void, len: size_t, room: size_t) -> ssize_t)
            };
        }
        // SAFETY: as above.
        settle(unsafe { read_into(fd, space, len) })
    }
}

/// recvfrom(2).
///
/// # Safety
/// As recvfrom(2).
#[inline]
unsafe fn receive_into(
    fd: c_int,
    space: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> Answer {
    if flags == 0 && from.is_null() {
        // SAFETY: the caller's space.
        let answer = unsafe { guest::receive(fd, space, len) };
        if let Some(answer) = answer {
            return answer;
        }
    }
    // SAFETY: as above.
    unsafe { receive_here(fd, space, len, flags, from, from_len) }
}

/// The same by this thread. Not a part of the other, for each coroutine that is parked there has its frame: the
/// smaller that is, the more of them fit into the processor's cache.
#[inline(never)]
unsafe fn receive_here(
    fd: c_int,
    space: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> Answer {
    let answer = receive(fd, len, flags, |done, flags| {
        let rest = space.addr().wrapping_add(done);
        let arguments =
            [fd as usize, rest, len - done, flags as usize, from.addr(), from_len.addr()];
        // SAFETY: the caller's pointers; `done` bytes of the space are filled, and the rest is free.
        unsafe { call(libc::SYS_recvfrom, arguments) }
    });
    if flags == 0
        && let Ok(count) = answer
    {
        // The end of the stream stays readable.
        cache::note_read(fd, count > 0 && (count as usize) < len);
        if count > 0 {
            cache::note_connected(fd);
        }
    }
    answer
}

/// Receives as often as it takes: once, unless it is `MSG_WAITALL` on a stream. `attempt` is given how many bytes
/// there are already, and flags.
fn receive(
    fd: c_int,
    len: usize,
    flags: c_int,
    mut attempt: impl FnMut(usize, c_int) -> Answer,
) -> Answer {
    if flags & NEVER_WAIT != 0 || bytes::is_standard(fd) {
        return attempt(0, flags);
    }
    let mut patience = Patience::begin(fd, Interest::READ)?;
    let (mut done, mut seen, mut waited) = (0, 0, false);
    let facts = cache::facts(fd);
    if flags == 0 && (facts.is_drained() || facts.seems_drained() && patience.look().is_ok()) {
        // The last read took everything: to try would only cost a call.
        waited = true;
        patience.wait()?;
        patience.progress();
    }
    let answer = loop {
        if done > 0 && has_only_an_error(fd) {
            break Ok(done); // to try would use it up, and it is the next call's
        }
        match attempt(done, flags | MSG_DONTWAIT) {
            Ok(count) if flags & MSG_WAITALL == 0 || count == 0 => break Ok(done + count as usize),
            Ok(count) => {
                let all = done + count as usize;
                if all >= len || !is_stream(fd) {
                    break Ok(all);
                }
                if all > seen {
                    seen = all;
                    patience.progress();
                }
                if flags & MSG_PEEK != 0 {
                    // It stays ready as long as there is anything, so that only looking again helps.
                    if ends(fd) || patience.pause().is_err() {
                        break Ok(all);
                    }
                } else {
                    done = all;
                }
            }
            Err(libc::EINTR) => {}
            Err(libc::EAGAIN) => {
                waited = true;
                match patience.wait() {
                    Ok(()) => {}
                    Err(_) if done > 0 => break Ok(done),
                    Err(error) => break Err(error),
                }
            }
            Err(_) if done > 0 => break Ok(done),
            Err(error) => break Err(error),
        }
    };
    if !waited && answer.is_ok() {
        done_at_once();
    }
    answer.map(|count| count as isize)
}

fn is_stream(fd: c_int) -> bool {
    raw::socket_option::<c_int>(fd, libc::SO_TYPE) == Ok(libc::SOCK_STREAM)
}

/// Whether all there is to be read is an error.
fn has_only_an_error(fd: c_int) -> bool {
    let mut waiting: c_int = 0;
    raw::poll_now(fd, 0) & libc::POLLERR != 0 && {
        let arguments = [fd as usize, libc::FIONREAD as usize, (&raw mut waiting).addr()];
        // SAFETY: FIONREAD writes an integer, which lives through the call.
        unsafe { call(libc::SYS_ioctl, arguments) }.is_ok() && waiting == 0
    }
}

/// Whether nothing more will come.
fn ends(fd: c_int) -> bool {
    raw::poll_now(fd, libc::POLLRDHUP) & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
}

/// recvmsg(2).
///
/// # Safety
/// As recvmsg(2).
unsafe fn receive_message(fd: c_int, message: *mut msghdr, flags: c_int) -> Answer {
    // What only recvmsg(2) can say (control messages, flags, an address) comes with the first part; `MSG_WAITALL`
    // takes the rest into what is left of the stretches.
    let all_of_it = flags & MSG_WAITALL != 0 && flags & NEVER_WAIT == 0 && !message.is_null();
    let stretches = if all_of_it {
        // SAFETY: a message that the caller has promised to be one.
        unsafe { Stretches::of(message) }
    } else {
        Stretches::default()
    };
    let len = stretches.len();
    if !all_of_it || flags & MSG_PEEK != 0 {
        return receive(fd, len, flags, |_, flags| {
            // SAFETY: the caller's message.
            unsafe { call(libc::SYS_recvmsg, [fd as usize, message.addr(), flags as usize]) }
        });
    }
    // SAFETY: as above. It says how much was used when the call is over.
    let room = unsafe { (*message).msg_controllen };
    let ended = Cell::new(false);
    receive(fd, len, flags, |done, flags| {
        if ended.get() {
            return Ok(0); // descriptors are of the bytes they came with: as in the kernel, no others follow
        }
        let mut rest = stretches.after(done);
        // SAFETY: the caller's message, whose stretches are replaced by what is left of them.
        unsafe {
            let mut header = *message;
            (header.msg_iov, header.msg_iovlen) = (rest.as_mut_ptr(), rest.len() as _);
            header.msg_controllen = room;
            let count =
                call(libc::SYS_recvmsg, [fd as usize, (&raw mut header).addr(), flags as usize])?;
            passed(&raw const header, |_| ended.set(true));
            ended.set(ended.get() || header.msg_flags & libc::MSG_CTRUNC != 0);
            if done == 0 || count > 0 {
                (*message).msg_controllen = header.msg_controllen;
                (*message).msg_flags = header.msg_flags;
            }
            if done == 0 {
                (*message).msg_namelen = header.msg_namelen;
            }
            Ok(count)
        }
    })
}

/// Calls `each` with the descriptors that have come with a message. They are new, whatever was known of their
/// numbers.
///
/// # Safety
/// It is null, or a message that the kernel has filled in.
unsafe fn passed(message: *const msghdr, each: impl Fn(c_int)) {
    // SAFETY: as promised: control messages that the kernel has written, each of the length it says.
    unsafe {
        if message.is_null() || (*message).msg_control.is_null() {
            return;
        }
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if ((*header).cmsg_level, (*header).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(header);
                let len = ((*header).cmsg_len as usize).saturating_sub(data.addr() - header.addr());
                for index in 0..len / size_of::<c_int>() {
                    each(data.cast::<c_int>().add(index).read_unaligned());
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

/// recvmmsg(2): until all are there, or one is with `MSG_WAITFORONE`. The time-out is looked at after each
/// batch, as in the kernel.
///
/// # Safety
/// As recvmmsg(2).
unsafe fn receive_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> Answer {
    let try_once = |done: usize, flags: c_int| {
        let rest = messages.wrapping_add(done);
        let arguments = [fd as usize, rest.addr(), count as usize - done, flags as usize];
        // SAFETY: the messages from `done` on are untouched.
        unsafe { call(libc::SYS_recvmmsg, arguments) }
    };
    if flags & NEVER_WAIT != 0 || messages.is_null() || count == 0 {
        return try_once(0, flags);
    }
    // SAFETY: null, or a time that the caller lends.
    let limit = unsafe { poll::from_time(timeout) }?;
    let begin = Instant::now();
    let answer = receive_several(fd, count, flags, limit.map(|limit| (begin, limit)), try_once);
    for index in 0..answer.unwrap_or(0) as usize {
        // SAFETY: the kernel has filled in so many of the caller's messages.
        unsafe { passed(&raw const (*messages.add(index)).msg_hdr, cache::forget) };
    }
    // SAFETY: as above.
    let place = unsafe { timeout.as_mut() };
    if let (Ok(_), Some(limit), Some(place)) = (answer, limit, place) {
        // What is left of the time: Linux tells it.
        let left = limit.saturating_sub(begin.elapsed());
        (place.tv_sec, place.tv_nsec) = (left.as_secs() as _, left.subsec_nanos().into());
    }
    answer
}

fn receive_several(
    fd: c_int,
    count: c_uint,
    flags: c_int,
    limit: Option<(Instant, Duration)>,
    try_once: impl Fn(usize, c_int) -> Answer,
) -> Answer {
    let mut patience = Patience::begin(fd, Interest::READ)?;
    let mut done = 0;
    loop {
        if done > 0 && raw::poll_now(fd, 0) & libc::POLLERR != 0 {
            return Ok(done as isize); // to try would use the error up, and it is the next call's
        }
        match try_once(done, (flags & !MSG_WAITFORONE) | MSG_DONTWAIT) {
            Ok(more) => {
                done += more as usize;
                patience.progress();
                let late = limit.is_some_and(|(begin, limit)| begin.elapsed() >= limit);
                if done >= count as usize || flags & MSG_WAITFORONE != 0 || late {
                    return Ok(done as isize);
                }
            }
            Err(libc::EINTR) => {}
            Err(libc::EAGAIN) => match patience.wait() {
                Ok(()) => {}
                Err(_) if done > 0 => return Ok(done as isize),
                Err(error) => return Err(error),
            },
            Err(_) if done > 0 => return Ok(done as isize),
            Err(error) => return Err(error),
        }
    }
}

/// read(2).
///
/// # Safety
/// As read(2).
unsafe fn read_into(fd: c_int, space: *mut c_void, len: size_t) -> Answer {
    let plain = || {
        // SAFETY: the caller's space.
        unsafe { call(libc::SYS_read, [fd as usize, space.addr(), len]) }
    };
    // Descriptors 0 to 2 are std's, whose locks are the thread's. A read of nothing asks for nothing.
    if bytes::is_standard(fd) || len == 0 {
        return plain();
    }
    // SAFETY: as the caller has promised: on a socket, read(2) is recv(2) without flags.
    match unsafe { receive_into(fd, space, len, 0, std::ptr::null_mut(), std::ptr::null_mut()) } {
        Err(libc::ENOTSOCK) => {}
        answer => return answer,
    }
    let stretch = iovec { iov_base: space, iov_len: len };
    bytes::read(fd, &[stretch], plain)
}

/// readv(2).
///
/// # Safety
/// As readv(2).
unsafe fn read_vectored(fd: c_int, stretches: *const iovec, count: c_int) -> Answer {
    let plain = || {
        // SAFETY: the caller's stretches.
        unsafe { call(libc::SYS_readv, [fd as usize, stretches.addr(), count as usize]) }
    };
    // SAFETY: the caller's stretches.
    let Some(list) = (unsafe { bytes::stretches(stretches, count) }) else { return plain() };
    if bytes::is_standard(fd) || list.iter().all(|stretch| stretch.iov_len == 0) {
        return plain();
    }
    let answer = receive(fd, 0, 0, |_, flags| {
        let mut header = header_of(list);
        // SAFETY: the caller's stretches: on a socket, readv(2) is recvmsg(2) without flags.
        unsafe { call(libc::SYS_recvmsg, [fd as usize, (&raw mut header).addr(), flags as usize]) }
    });
    match answer {
        Err(libc::ENOTSOCK) => bytes::read(fd, list, plain),
        answer => answer,
    }
}

/// A message that is nothing but bytes. The kernel only reads where they are.
pub(crate) fn header_of(stretches: &[iovec]) -> msghdr {
    // SAFETY: numbers and null pointers, which all mean "nothing".
    let mut header: msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = stretches.as_ptr().cast_mut();
    header.msg_iovlen = stretches.len() as _;
    header
}

/// The stretches of a message.
#[derive(Default)]
pub(crate) struct Stretches<'a>(&'a [iovec]);

impl<'a> Stretches<'a> {
    /// # Safety
    /// It is a message, whose stretches stay as they are as long as this is used.
    pub(crate) unsafe fn of(message: *const msghdr) -> Stretches<'a> {
        // SAFETY: as promised.
        let list = unsafe { bytes::stretches((*message).msg_iov, (*message).msg_iovlen as c_int) };
        Stretches(list.unwrap_or_default())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|stretch| stretch.iov_len).sum()
    }

    /// What is left of them when `done` bytes are used.
    pub(crate) fn after(&self, done: usize) -> Vec<iovec> {
        bytes::after(self.0, done)
    }
}
