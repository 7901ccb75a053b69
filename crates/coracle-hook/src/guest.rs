//! Calls that the loop makes for a coroutine, as for a socket of coracle's own: on io_uring the call is then the
//! operation itself, and elsewhere the socket stays registered. Small sends are made one after the other, when
//! several coroutines have something to send.
//!
//! Only for sockets that are known from birth ([`cache`]), or seem to be what they were, and for calls that are
//! then just what they are in the kernel: those that may wait, without flags that the loop does not know. `None`
//! means that the call is made here, with `MSG_DONTWAIT`, and waits by a poll.
#![allow(unsafe_code)]

use crate::accept;
use crate::bytes;
use crate::cache::{self, Facts};
use crate::gate;
use crate::raw::{self, Answer, Kind};
use crate::seats;
use crate::wait;
use coracle_coro::hooking::{self, Number};
use coracle_loop::demux::AcceptPlace;
use libc::{MSG_NOSIGNAL, c_int, c_void, sockaddr, socklen_t};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether sends are handed over with those of others: see [`Settings`](crate::Settings::sending).
static SENDING: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_sending(on: bool) {
    SENDING.store(on, Ordering::Relaxed);
}

pub(crate) fn is_sending() -> bool {
    SENDING.load(Ordering::Relaxed)
}

/// A longer send is copied for so long that the call itself does not count.
const LONGEST_SEND: usize = 16 << 10;

/// recv(2) without flags.
///
/// # Safety
/// As recv(2).
#[inline]
pub(crate) unsafe fn receive(fd: c_int, space: *mut c_void, len: usize) -> Option<Answer> {
    let facts = cache::facts(fd);
    let unknown = facts.seems_drained();
    if !(facts.is_guest() || unknown) || len == 0 || space.is_null() || bytes::is_standard(fd) {
        return None;
    }
    if !hooking::has_guests() {
        return None;
    }
    // SAFETY: the caller's space, which he has no use for before this returns. That it may not be initialised is
    // nobody's concern: it is only written to. What is longer than memory can be is cut, as in the kernel.
    let space =
        unsafe { std::slice::from_raw_parts_mut(space.cast::<u8>(), len.min(isize::MAX as usize)) };
    if unknown {
        // SAFETY: as below.
        return unsafe { receive_unknown(fd, space) };
    }
    gate::note_wait();
    let number = number(fd);
    // SAFETY: a socket, as far as is known; the loop finds out if not.
    answer(number, unsafe { number.receive(space, timeout(fd, facts, true)) })
}

/// The same for one that was not seen from birth. What is known of a number is not relied on: the kernel looks it
/// up anew, for a request of io_uring or by an `EPOLL_CTL_MOD`. So all that is to be asked is whether the user
/// wants to wait; and how long, if it lasts.
#[inline(never)]
unsafe fn receive_unknown(fd: c_int, space: &mut [u8]) -> Option<Answer> {
    if accept::is_nonblocking(fd) != Ok(false) {
        return None;
    }
    gate::note_wait();
    let (number, room) = (number(fd), space.len());
    // SAFETY: a socket, as far as is known; the loop finds out if not.
    let answer = answer(number, unsafe { number.receive_unasked(space, wait::receive_timeout) });
    if let Some(Ok(count)) = answer {
        cache::note_read(fd, count > 0 && (count as usize) < room);
    }
    answer
}

/// What came of a send.
pub(crate) enum Sent {
    /// That is the answer.
    Over(Answer),
    /// So many bytes are sent, or none. The others are to be.
    Begun(usize),
}

/// send(2), together with what others send.
///
/// # Safety
/// As send(2).
#[inline]
pub(crate) unsafe fn send(fd: c_int, bytes: *const c_void, len: usize, flags: c_int) -> Sent {
    let facts = cache::facts(fd);
    if !(facts.is_tcp_guest() || facts.seems_tcp())
        || flags & !MSG_NOSIGNAL != 0
        || len == 0
        || len > LONGEST_SEND
        || bytes.is_null()
        || bytes::is_standard(fd)
        || !is_sending()
        || !hooking::has_guests()
        || !hooking::is_shared_turn()
        // Who wants no wait must not let others run.
        || !facts.is_known() && accept::is_nonblocking(fd) != Ok(false)
    {
        return Sent::Begun(0);
    }
    // SAFETY: the caller's bytes, which stay as they are until this returns.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) };
    gate::note_wait();
    let number = number(fd);
    // SAFETY: as above.
    match answer(number, unsafe { number.send(bytes) }) {
        Some(Ok(count)) if (count as usize) < len => {
            // Others have run. If one of them has closed it, the number is nobody's, or somebody else's.
            match seats::generation(fd) == number.generation {
                true => Sent::Begun(count as usize),
                false if count > 0 => Sent::Over(Ok(count)),
                false => Sent::Over(Err(libc::EBADF)),
            }
        }
        Some(Err(libc::EPIPE)) if flags & MSG_NOSIGNAL == 0 => {
            raw::raise(libc::SIGPIPE); // the loop sends without it
            Sent::Over(Err(libc::EPIPE))
        }
        Some(answer) => Sent::Over(answer),
        None => Sent::Begun(0),
    }
}

/// connect(2), to an address of IP.
///
/// # Safety
/// As connect(2).
pub(crate) unsafe fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> Option<Answer> {
    let facts = cache::facts(fd);
    if !facts.may_be_guest() || bytes::is_standard(fd) || !hooking::is_on_uring() {
        return None;
    }
    // SAFETY: the caller's address.
    let address = unsafe { ip(to, len) }?;
    gate::note_wait();
    let number = number(fd);
    // SAFETY: as above.
    answer(number, unsafe { number.connect(address.into(), timeout(fd, facts, false)) })
}

/// accept4(2).
///
/// # Safety
/// As accept4(2).
pub(crate) unsafe fn accept(
    fd: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Option<Answer> {
    let facts = cache::facts(fd);
    if !facts.may_be_guest() || bytes::is_standard(fd) || !hooking::is_on_uring() {
        return None;
    }
    gate::note_wait();
    // SAFETY: what the caller has promised libc, until this returns.
    let place = unsafe { AcceptPlace::new(from.cast(), len, flags) };
    let number = number(fd);
    // SAFETY: as above.
    answer(number, unsafe { number.accept(place, timeout(fd, facts, true)) })
}

fn number(fd: c_int) -> Number {
    Number {
        fd,
        generation: seats::generation(fd),
        closes: seats::closes(fd),
        on_lend: seats::note_home,
    }
}

#[inline]
fn timeout(fd: c_int, facts: Facts, receiving: bool) -> Option<Duration> {
    if !facts.has_timeout(receiving) {
        return None;
    }
    if receiving { wait::receive_timeout(fd) } else { wait::send_timeout(fd) }
}

#[inline]
fn answer(number: Number, answer: Option<hooking::Answer>) -> Option<Answer> {
    match answer {
        Some(answer) => Some(answer.map(|count| count as isize)),
        None => refused(number),
    }
}

/// The loop has not done it. If it is not what it was taken for, nothing of what is known is true. And if others
/// have run, and closed it, the number is nobody's, or somebody else's.
#[cold]
fn refused(number: Number) -> Option<Answer> {
    if seats::generation(number.fd) != number.generation {
        return Some(Err(libc::EBADF));
    }
    if raw::kind(number.fd) != Ok(Kind::Socket) {
        cache::forget(number.fd);
    }
    None
}

/// An address of IPv4 or IPv6.
///
/// # Safety
/// Null, or an address of this length.
unsafe fn ip(address: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    if address.is_null() || (len as usize) < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: as promised: it is as long as what is read of it.
    unsafe {
        match c_int::from((&raw const (*address).sa_family).read_unaligned()) {
            libc::AF_INET if len as usize >= size_of::<libc::sockaddr_in>() => {
                let ip = address.cast::<libc::sockaddr_in>().read_unaligned();
                let host = Ipv4Addr::from(u32::from_be(ip.sin_addr.s_addr));
                Some(SocketAddr::from((host, u16::from_be(ip.sin_port))))
            }
            libc::AF_INET6 if len as usize >= size_of::<libc::sockaddr_in6>() => {
                let ip = address.cast::<libc::sockaddr_in6>().read_unaligned();
                let host = Ipv6Addr::from(ip.sin6_addr.s6_addr);
                let port = u16::from_be(ip.sin6_port);
                let (flow, scope) = (ip.sin6_flowinfo, ip.sin6_scope_id);
                Some(SocketAddrV6::new(host, port, flow, scope).into())
            }
            _ => None,
        }
    }
}
