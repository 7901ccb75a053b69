//! What is known of a socket by its number, so that nobody has to ask the kernel before a wait.
//!
//! One byte for each number. It is filled in when a socket is born in a hooked call, kept true by the calls that
//! change it, and forgotten when the number is closed, or has a copy (`dup`), which the same flags are of. Of
//! what was not seen from birth nothing is known, and the kernel is asked. What is left then is a guess whether
//! there is anything to be read, by what the last read has found. It decides what is done first, and about nothing
//! else:
//!
//! ```text
//!   seems to have something       try ──► F_GETFL ──► wait ──► SO_RCVTIMEO, if it lasts ──► try again
//!   seems empty: poll, select             F_GETFL ──► wait ──► SO_RCVTIMEO, if it lasts ──► try
//!                io_uring, epoll          F_GETFL ──► the receive itself ──► SO_RCVTIMEO, if it lasts
//! ```
//!
//! `F_GETFL` is asked before every wait: who wants no wait must not let others run. On epoll there is an
//! `EPOLL_CTL_MOD` before it, by which the kernel looks whether the number is still what is registered.
//!
//! ```text
//!   socket, socketpair, accept ──► known ──► fcntl, ioctl, setsockopt: kept true
//!                                    └─────► close, dup: unknown
//! ```
//!
//! It is there for speed. If it is wrong, because somebody has changed a socket past libc, a call may wait that
//! should not, or the other way round, as far as the user's own flags go; nobody is left waiting for something
//! that is there.
#![allow(unsafe_code)]

use crate::fork;
use crate::gate;
use crate::raw;
use crate::seats;
use crate::wait;
use coracle_coro::hooking::{Ask, expect_timeouts_of};
use libc::{c_int, c_uint, c_ulong, c_void, socklen_t};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Of higher numbers nothing is known.
const LIMIT_KNOWN: usize = 1 << 16;

static FACTS: [AtomicU8; LIMIT_KNOWN] = [const { AtomicU8::new(0) }; LIMIT_KNOWN];

/// The others are true.
const KNOWN: u8 = 1;
/// The user has made it non-blocking.
const NONBLOCKING: u8 = 2;
/// It has, or may have, time-outs of its own.
const RECEIVE_TIMEOUT: u8 = 4;
const SEND_TIMEOUT: u8 = 8;
/// TCP: a short read means that nothing is left.
const TCP: u8 = 16;
/// The last read was short.
const DRAINED: u8 = 32;

/// It has a peer, or needs none: a receive waits for bytes, and does not fail at once.
const CONNECTED: u8 = 64;

/// Nothing is known, but it was looked at once whether it is TCP. That, and whether the last read was short, are
/// guesses then: by them one chooses what to try first, and if they are wrong, it takes longer.
const GUESSED: u8 = 128;

/// What is known of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Facts(u8);

impl Facts {
    pub(crate) fn is_known(self) -> bool {
        self.0 & KNOWN != 0
    }

    pub(crate) fn is_nonblocking(self) -> bool {
        self.0 & NONBLOCKING != 0
    }

    pub(crate) fn has_timeout(self, receiving: bool) -> bool {
        self.0 & if receiving { RECEIVE_TIMEOUT } else { SEND_TIMEOUT } != 0
    }

    /// Whether a call on it may be made by the loop.
    #[inline]
    pub(crate) fn may_be_guest(self) -> bool {
        self.0 & (KNOWN | NONBLOCKING) == KNOWN
    }

    /// Whether a receive may be made by the loop, which waits first.
    #[inline]
    pub(crate) fn is_guest(self) -> bool {
        self.0 & (KNOWN | NONBLOCKING | CONNECTED) == KNOWN | CONNECTED
    }

    /// The same for a send.
    #[inline]
    pub(crate) fn is_tcp_guest(self) -> bool {
        self.0 & (KNOWN | NONBLOCKING | TCP | CONNECTED) == KNOWN | TCP | CONNECTED
    }

    /// Whether a read would find nothing, unless something has come meanwhile, and the user wants to wait for
    /// that.
    pub(crate) fn is_drained(self) -> bool {
        self.0 & (KNOWN | NONBLOCKING | TCP | DRAINED) == KNOWN | TCP | DRAINED
    }

    /// Whether it seems to be TCP, and nothing is known of it.
    #[inline]
    pub(crate) fn seems_tcp(self) -> bool {
        self.0 & !DRAINED == GUESSED | TCP
    }

    /// Whether a socket of which nothing is known seems to be drained: a guess, too.
    #[inline]
    pub(crate) fn seems_drained(self) -> bool {
        self.0 == GUESSED | TCP | DRAINED
    }
}

fn place(fd: c_int) -> Option<&'static AtomicU8> {
    FACTS.get(usize::try_from(fd).ok()?)
}

/// What is known of `fd`.
#[inline]
pub(crate) fn facts(fd: c_int) -> Facts {
    Facts(place(fd).map_or(0, |place| place.load(Ordering::Relaxed)))
}

/// Nothing is known of `fd` any more.
#[inline]
pub(crate) fn forget(fd: c_int) {
    if let Some(place) = place(fd) {
        place.store(0, Ordering::Relaxed);
    }
}

/// A child with our memory may have changed what its number and ours are both of.
#[cold]
fn forget_borrowed(fd: c_int) {
    if fork::is_borrower() {
        forget(fd);
    }
}

/// A read of TCP was short, or it was not.
#[inline]
pub(crate) fn note_read(fd: c_int, short: bool) {
    if facts(fd).is_known() {
        set(fd, DRAINED, short);
    } else {
        guess(fd, short);
    }
}

/// The same for a socket of which nothing is known.
fn guess(fd: c_int, short: bool) {
    let Some(place) = place(fd) else { return };
    let before = place.load(Ordering::Relaxed);
    let looked = if before & GUESSED != 0 {
        before & (GUESSED | TCP)
    } else {
        GUESSED | if is_tcp(fd) { TCP } else { 0 }
    };
    let after = looked | if short && looked & TCP != 0 { DRAINED } else { 0 };
    if after != before {
        // If somebody else has found out more meanwhile, that stays.
        let order = Ordering::Relaxed;
        let _ = place.compare_exchange(before, after, order, order);
    }
}

fn is_tcp(fd: c_int) -> bool {
    raw::socket_option::<c_int>(fd, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
}

/// It has a peer.
#[inline]
pub(crate) fn note_connected(fd: c_int) {
    set(fd, CONNECTED, true);
}

/// Changes one fact, if anything is known.
fn set(fd: c_int, bit: u8, on: bool) {
    let change = |facts: u8| {
        let changed = if on { facts | bit } else { facts & !bit };
        (facts & KNOWN != 0 && changed != facts).then_some(changed)
    };
    if let Some(place) = place(fd) {
        let _ = place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }
}

/// Whether anything is to be remembered.
static REMEMBERING: AtomicBool = AtomicBool::new(true);

/// Whether anything is to be remembered of sockets that are born from now on. Without, every call that waits asks
/// the kernel: for measurements, and to find out whether it is this that is wrong.
#[doc(hidden)]
pub fn remember(on: bool) {
    REMEMBERING.store(on, Ordering::Relaxed);
}

/// A socket was born.
fn born(fd: c_int, facts: u8) {
    seats::renew(fd);
    if !REMEMBERING.load(Ordering::Relaxed) {
        return forget(fd);
    }
    if let Some(place) = place(fd) {
        place.store(facts | KNOWN, Ordering::Relaxed);
    }
}

/// `fd` was accepted from `listener`, whose time-outs it has. If nothing is known of that, because it was
/// inherited, or made past libc, the kernel is asked once.
pub(crate) fn accepted(fd: c_int, listener: c_int, flags: c_int) {
    let of = facts(listener);
    let inherited =
        if of.is_known() { of.0 & (RECEIVE_TIMEOUT | SEND_TIMEOUT | TCP) } else { look_at(fd) };
    let nonblocking = if flags & libc::SOCK_NONBLOCK != 0 { NONBLOCKING } else { 0 };
    born(fd, inherited | CONNECTED | nonblocking);
}

/// What the kernel says of a socket that nobody else has yet.
fn look_at(fd: c_int) -> u8 {
    let facts = [
        (is_tcp(fd), TCP),
        (wait::receive_timeout(fd).is_some(), RECEIVE_TIMEOUT),
        (wait::send_timeout(fd).is_some(), SEND_TIMEOUT),
    ];
    facts.iter().filter(|(holds, _)| *holds).map(|(_, fact)| fact).sum()
}

fn of_kind(domain: c_int, kind: c_int) -> u8 {
    let ip = matches!(domain, libc::AF_INET | libc::AF_INET6);
    let tcp = if ip && kind & 0xf == libc::SOCK_STREAM { TCP } else { 0 };
    let nonblocking = if kind & libc::SOCK_NONBLOCK != 0 { NONBLOCKING } else { 0 };
    let connected = if kind & 0xf == libc::SOCK_DGRAM { CONNECTED } else { 0 };
    tcp | nonblocking | connected
}

/// Both numbers are of one socket now, or of none.
fn copied(old: c_int, new: c_int) {
    forget(old);
    forget(new);
}

hook! {
    always fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        // SAFETY: as it was called.
        let fd = unsafe { next!(socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int) };
        if fd >= 0 && gate::is_enabled() {
            born(fd, of_kind(domain, kind));
        }
        fd
    }

    always fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int {
        // SAFETY: as it was called.
        let answer = unsafe {
            next!(socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int)
        };
        if answer == 0 && gate::is_enabled() {
            // SAFETY: the kernel has written two numbers there.
            let (one, other) = unsafe { (*pair, *pair.add(1)) };
            born(one, of_kind(domain, kind) | CONNECTED);
            born(other, of_kind(domain, kind) | CONNECTED);
        }
        answer
    }

    always fn dup(old: c_int) -> c_int {
        // SAFETY: as it was called.
        let new = unsafe { next!(dup(old: c_int) -> c_int) };
        if new >= 0 && gate::is_enabled() {
            copied(old, new);
        }
        new
    }

    always fn setsockopt(
        fd: c_int, level: c_int, option: c_int, value: *const c_void, len: socklen_t,
    ) -> c_int {
        // SAFETY: as it was called.
        let answer = unsafe {
            next!(setsockopt(
                fd: c_int, level: c_int, option: c_int, value: *const c_void, len: socklen_t,
            ) -> c_int)
        };
        if answer == 0 && level == libc::SOL_SOCKET && !gate::is_enabled() {
            forget_borrowed(fd);
        } else if answer == 0 && level == libc::SOL_SOCKET {
            let (bit, ask): (u8, Ask) = match option {
                libc::SO_RCVTIMEO | libc::SO_RCVTIMEO_NEW => (RECEIVE_TIMEOUT, wait::receive_timeout),
                libc::SO_SNDTIMEO | libc::SO_SNDTIMEO_NEW => (SEND_TIMEOUT, wait::send_timeout),
                _ => return answer,
            };
            // SAFETY: the kernel has just read so many bytes there.
            let some = unsafe { is_some(value, len) };
            set(fd, bit, some);
            if some {
                ask(fd).into_iter().for_each(expect_timeouts_of); // as the kernel has understood it
            }
        }
        answer
    }

    // What is no socket: if its number was one, and was closed past libc, that is over.

    always fn pipe(pair: *mut c_int) -> c_int {
        // SAFETY: as it was called.
        let answer = unsafe { next!(pipe(pair: *mut c_int) -> c_int) };
        if answer == 0 && gate::is_enabled() {
            // SAFETY: the kernel has written two numbers there.
            unsafe { copied(*pair, *pair.add(1)) };
        }
        answer
    }

    always fn pipe2(pair: *mut c_int, flags: c_int) -> c_int {
        // SAFETY: as it was called.
        let answer = unsafe { next!(pipe2(pair: *mut c_int, flags: c_int) -> c_int) };
        if answer == 0 && gate::is_enabled() {
            // SAFETY: the kernel has written two numbers there.
            unsafe { copied(*pair, *pair.add(1)) };
        }
        answer
    }

    always fn eventfd(count: c_uint, flags: c_int) -> c_int {
        // SAFETY: as it was called.
        let fd = unsafe { next!(eventfd(count: c_uint, flags: c_int) -> c_int) };
        forget(fd);
        fd
    }

    always fn timerfd_create(clock: c_int, flags: c_int) -> c_int {
        // SAFETY: as it was called.
        let fd = unsafe { next!(timerfd_create(clock: c_int, flags: c_int) -> c_int) };
        forget(fd);
        fd
    }

    // These take a variable number of arguments in C: see `hold.rs`.

    always fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        // SAFETY: as it was called.
        let answer = unsafe { next!(fcntl(fd: c_int, command: c_int, argument: usize) -> c_int) };
        if answer >= 0 {
            note_control(fd, command, argument, answer);
        }
        answer
    }

    always fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        // SAFETY: as it was called.
        let answer = unsafe { next!(fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int) };
        if answer >= 0 {
            note_control(fd, command, argument, answer);
        }
        answer
    }

    always fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
        // SAFETY: as it was called.
        let answer = unsafe { next!(ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int) };
        if answer >= 0 && request as u32 == libc::FIONBIO as u32 {
            if gate::is_enabled() {
                // SAFETY: the kernel has just read a number there.
                set(fd, NONBLOCKING, unsafe { *argument.cast::<c_int>() } != 0);
            } else {
                forget_borrowed(fd);
            }
        }
        answer
    }
}

/// Whether a time is not zero, which is none.
///
/// # Safety
/// There are so many bytes, or as many as the kernel reads.
unsafe fn is_some(value: *const c_void, len: socklen_t) -> bool {
    // The kernel reads no more than a time, whatever it is told.
    let len = (len as usize).min(size_of::<libc::timeval>());
    // SAFETY: as promised.
    unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len) }.iter().any(|&byte| byte != 0)
}

fn note_control(fd: c_int, command: c_int, argument: usize, answer: c_int) {
    if !gate::is_enabled() {
        return forget_borrowed(fd);
    }
    match command {
        libc::F_SETFL => set(fd, NONBLOCKING, argument as c_int & libc::O_NONBLOCK != 0),
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, answer),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{accepted, facts, forget};
    use std::io;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    #[test]
    fn who_is_accepted_from_an_unknown_listener_is_known() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        forget(listener.as_raw_fd());
        // SO_RCVTIMEO of a listener is that of whoever is accepted.
        let as_stream = TcpStream::from(std::os::fd::OwnedFd::from(listener.try_clone()?));
        let mut waits = Vec::new();
        for timeout in [None, Some(Duration::from_secs(5))] {
            as_stream.set_read_timeout(timeout)?;
            let _client = TcpStream::connect(listener.local_addr()?)?;
            let (socket, _) = listener.accept()?;
            accepted(socket.as_raw_fd(), listener.as_raw_fd(), 0);
            let known = facts(socket.as_raw_fd());
            assert!(known.is_tcp_guest(), "{known:?}");
            waits.push((known.has_timeout(true), known.has_timeout(false)));
            forget(socket.as_raw_fd());
        }
        assert_eq!(waits, [(false, false), (true, false)]);
        Ok(())
    }
}
