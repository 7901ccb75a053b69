//! Sending: `send` and its kin, and `write` and `writev`, which are the same on a socket.
//!
//! A blocking send of a stream returns when everything is with the kernel. So what did not find room is sent
//! when there is some. If something strikes after a part, the part is told, and the error comes with the next
//! call.
#![allow(unsafe_code)]

use crate::bytes;
use crate::guest::{self, Sent};
use crate::raw::{self, Answer, call, settle};
use crate::receive::{Stretches, header_of};
use crate::wait::Patience;
use coracle_loop::demux::Interest;
use libc::{
    MSG_DONTWAIT, MSG_NOSIGNAL, c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr,
    socklen_t, ssize_t,
};

hook! {
    park fn send(fd: c_int, bytes: *const c_void, len: size_t, flags: c_int) -> ssize_t {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { send_from(fd, bytes, len, flags, std::ptr::null(), 0) })
    }

    park fn sendto(
        fd: c_int, bytes: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t,
    ) -> ssize_t {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { send_from(fd, bytes, len, flags, to, to_len) })
    }

    park fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { send_message(fd, message, flags) })
    }

    park fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { send_messages(fd, messages, count, flags) }) as c_int
    }

    park fn write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { write_from(fd, bytes, len) })
    }

    park fn writev(fd: c_int, stretches: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { write_vectored(fd, stretches, count) })
    }
}

/// sendto(2).
///
/// # Safety
/// As sendto(2).
#[inline]
unsafe fn send_from(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> Answer {
    let begun = match to.is_null() {
        // SAFETY: the caller's bytes.
        true => match unsafe { guest::send(fd, bytes, len, flags) } {
            Sent::Over(answer) => return answer,
            Sent::Begun(count) => count,
        },
        false => 0,
    };
    // SAFETY: as above.
    unsafe { send_here(fd, bytes, len, flags, to, to_len, begun) }
}

/// The same when so many bytes were sent already, by this thread. Not a part of the other, for each coroutine that
/// is parked there has its frame: the smaller that is, the more of them fit into the processor's cache.
#[inline(never)]
unsafe fn send_here(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
    begun: usize,
) -> Answer {
    send_rest(fd, len, flags, begun, |done, flags| {
        let rest = bytes.addr().wrapping_add(done);
        let arguments = [fd as usize, rest, len - done, flags as usize, to.addr(), to_len as usize];
        // SAFETY: the caller's pointers; `done` bytes are sent, and the rest is there.
        unsafe { call(libc::SYS_sendto, arguments) }
    })
}

/// Sends as often as it takes. `attempt` is given how many bytes are sent already, and flags.
fn send_all(
    fd: c_int,
    len: usize,
    flags: c_int,
    attempt: impl FnMut(usize, c_int) -> Answer,
) -> Answer {
    send_rest(fd, len, flags, 0, attempt)
}

/// The same when a part was sent already.
fn send_rest(
    fd: c_int,
    len: usize,
    flags: c_int,
    begun: usize,
    mut attempt: impl FnMut(usize, c_int) -> Answer,
) -> Answer {
    if flags & MSG_DONTWAIT != 0 || bytes::is_standard(fd) {
        return attempt(0, flags);
    }
    let mut patience = match Patience::begin(fd, Interest::WRITE) {
        Err(_) if begun > 0 => return Ok(begun as isize),
        patience => patience?,
    };
    let (mut done, mut waited) = (begun, false);
    let answer = loop {
        let mut now = flags | MSG_DONTWAIT;
        if done > 0 {
            // To try would use up the error, which is the next call's; and so is its signal.
            if raw::poll_now(fd, 0) & (libc::POLLERR | libc::POLLHUP) != 0 {
                break Ok(done);
            }
            now |= MSG_NOSIGNAL;
        }
        let wait = match attempt(done, now) {
            Ok(count) => {
                done += count as usize;
                if done >= len {
                    break Ok(done);
                }
                patience.progress();
                true // there is no more room
            }
            Err(libc::EINTR) => false,
            Err(libc::EAGAIN) => true,
            Err(_) if done > 0 => break Ok(done),
            Err(error) => break Err(error),
        };
        if wait {
            waited = true;
            match patience.wait() {
                Ok(()) => {}
                Err(_) if done > 0 => break Ok(done),
                Err(error) => break Err(error),
            }
        }
    };
    if !waited && answer.is_ok() {
        bytes::written_at_once(len);
    }
    answer.map(|count| count as isize)
}

/// sendmsg(2).
///
/// # Safety
/// As sendmsg(2).
unsafe fn send_message(fd: c_int, message: *const msghdr, flags: c_int) -> Answer {
    if message.is_null() {
        // SAFETY: the kernel answers EFAULT.
        return unsafe { call(libc::SYS_sendmsg, [fd as usize, 0, flags as usize]) };
    }
    // SAFETY: a message that the caller has promised to be one.
    let stretches = unsafe { Stretches::of(message) };
    send_all(fd, stretches.len(), flags, |done, flags| {
        if done == 0 {
            // SAFETY: the caller's message.
            return unsafe {
                call(libc::SYS_sendmsg, [fd as usize, message.addr(), flags as usize])
            };
        }
        // Descriptors and the like went with the first byte.
        let rest = stretches.after(done);
        let header = header_of(&rest);
        // SAFETY: what is left of the caller's stretches.
        unsafe {
            call(libc::SYS_sendmsg, [fd as usize, (&raw const header).addr(), flags as usize])
        }
    })
}

/// sendmmsg(2): one after the other, each to its end.
///
/// # Safety
/// As sendmmsg(2).
unsafe fn send_messages(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> Answer {
    if flags & MSG_DONTWAIT != 0 || messages.is_null() {
        let arguments = [fd as usize, messages.addr(), count as usize, flags as usize];
        // SAFETY: the caller's messages.
        return unsafe { call(libc::SYS_sendmmsg, arguments) };
    }
    let count = (count as usize).min(1024); // as in the kernel
    for done in 0..count {
        let message = messages.wrapping_add(done);
        // SAFETY: the caller's messages, of which there are so many.
        let sent = unsafe { send_message(fd, &raw const (*message).msg_hdr, flags) };
        match sent {
            // SAFETY: as above.
            Ok(sent) => unsafe { (*message).msg_len = sent as c_uint },
            Err(error) if done == 0 => return Err(error),
            Err(_) => return Ok(done as isize),
        }
    }
    Ok(count as isize)
}

/// write(2).
///
/// # Safety
/// As write(2).
unsafe fn write_from(fd: c_int, bytes: *const c_void, len: size_t) -> Answer {
    let plain = || {
        // SAFETY: the caller's bytes.
        unsafe { call(libc::SYS_write, [fd as usize, bytes.addr(), len]) }
    };
    if bytes::is_standard(fd) {
        return plain();
    }
    // SAFETY: as the caller has promised: on a socket, write(2) is send(2) without flags.
    match unsafe { send_from(fd, bytes, len, 0, std::ptr::null(), 0) } {
        Err(libc::ENOTSOCK) => {}
        answer => return answer,
    }
    if len == 0 {
        return plain();
    }
    let stretch = iovec { iov_base: bytes.cast_mut(), iov_len: len };
    bytes::write(fd, &[stretch], plain)
}

/// writev(2).
///
/// # Safety
/// As writev(2).
unsafe fn write_vectored(fd: c_int, stretches: *const iovec, count: c_int) -> Answer {
    let plain = || {
        // SAFETY: the caller's stretches.
        unsafe { call(libc::SYS_writev, [fd as usize, stretches.addr(), count as usize]) }
    };
    // SAFETY: the caller's stretches.
    let Some(list) = (unsafe { bytes::stretches(stretches, count) }) else { return plain() };
    // To write nothing is nothing, and to send nothing is an empty message.
    if bytes::is_standard(fd) || list.iter().all(|stretch| stretch.iov_len == 0) {
        return plain();
    }
    let len = list.iter().map(|stretch| stretch.iov_len).sum();
    let answer = send_all(fd, len, 0, |done, flags| {
        // Nothing is allocated, unless there was no room for all of it.
        let owned = if done == 0 { Vec::new() } else { bytes::after(list, done) };
        let header = header_of(if done == 0 { list } else { &owned });
        // SAFETY: the caller's stretches: on a socket, writev(2) is sendmsg(2) without flags.
        unsafe {
            call(libc::SYS_sendmsg, [fd as usize, (&raw const header).addr(), flags as usize])
        }
    });
    match answer {
        Err(libc::ENOTSOCK) => bytes::write(fd, list, plain),
        answer => answer,
    }
}
