//! Waiting for several descriptors: `poll`, `select` and `epoll_wait`.
//!
//! The kernel is asked without a wait; if it knows of nothing, the coroutine waits for all of them, and then the
//! kernel is asked again. So what is answered is the kernel's own answer. What a loop cannot wait for by itself
//! (urgent data, a hang-up without anything else) goes into an epoll set made for the call, which a loop can
//! wait for; if there is none to be had, one looks again after a pause.
#![allow(unsafe_code)]

use crate::gate;
use crate::raw::{Answer, call, plain, settle};
use crate::wait::{self, Stop, lp};
use coracle_coro::hooking::{done_at_once, is_cancelled};
use coracle_loop::demux::Interest;
use libc::{
    c_int, c_short, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval,
};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The size of the kernel's set of signals.
const SIGNAL_BYTES: usize = 8;

hook! {
    park fn poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { poll_all(list, count, from_milliseconds(timeout), std::ptr::null()) }) as c_int
    }

    park fn ppoll(list: *mut pollfd, count: nfds_t, timeout: *const timespec, signals: *const sigset_t) -> c_int {
        // SAFETY: what the caller has promised libc.
        settle(unsafe {
            from_time(timeout).and_then(|timeout| poll_all(list, count, timeout, signals))
        }) as c_int
    }

    park fn __poll_chk(list: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int {
        if (count as usize).saturating_mul(size_of::<pollfd>()) > room {
            // SAFETY: as it was called: libc ends the process.
            return unsafe {
                next!(__poll_chk(list: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int)
            };
        }
        // SAFETY: what the caller has promised libc.
        settle(unsafe { poll_all(list, count, from_milliseconds(timeout), std::ptr::null()) }) as c_int
    }

    park fn __ppoll_chk(
        list: *mut pollfd, count: nfds_t, timeout: *const timespec, signals: *const sigset_t, room: size_t,
    ) -> c_int {
        if (count as usize).saturating_mul(size_of::<pollfd>()) > room {
            // SAFETY: as it was called: libc ends the process.
            return unsafe {
                next!(__ppoll_chk(
                    list: *mut pollfd, count: nfds_t, timeout: *const timespec, signals: *const sigset_t,
                    room: size_t,
                ) -> c_int)
            };
        }
        // SAFETY: what the caller has promised libc.
        settle(unsafe {
            from_time(timeout).and_then(|timeout| poll_all(list, count, timeout, signals))
        }) as c_int
    }

    park fn select(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval,
    ) -> c_int {
        // SAFETY: what the caller has promised libc.
        settle(unsafe {
            let begin = Instant::now();
            let limit = match timeout.as_ref() {
                None => None,
                Some(time) => match (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec)) {
                    // A million microseconds and more are as good as seconds.
                    (Ok(seconds), Ok(microseconds)) => {
                        let microseconds = Duration::from_micros(microseconds);
                        Some(Duration::from_secs(seconds).saturating_add(microseconds))
                    }
                    _ => return settle(Err(libc::EINVAL)) as c_int,
                },
            };
            let answer = select_all(count, [read, write, except], limit, std::ptr::null());
            // What is left of the time: Linux tells it.
            if let (Some(limit), Some(place)) = (limit, timeout.as_mut()) {
                let left = if answer == Ok(0) { Duration::ZERO } else { limit.saturating_sub(begin.elapsed()) };
                place.tv_sec = left.as_secs().try_into().unwrap_or(i64::MAX);
                place.tv_usec = left.subsec_micros().into();
            }
            answer
        }) as c_int
    }

    park fn pselect(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec,
        signals: *const sigset_t,
    ) -> c_int {
        // SAFETY: what the caller has promised libc.
        settle(unsafe {
            from_time(timeout).and_then(|timeout| select_all(count, [read, write, except], timeout, signals))
        }) as c_int
    }

    park fn epoll_wait(set: c_int, events: *mut epoll_event, limit: c_int, timeout: c_int) -> c_int {
        // SAFETY: what the caller has promised libc.
        settle(unsafe {
            epoll_all(set, events, limit, from_milliseconds(timeout), std::ptr::null())
        }) as c_int
    }

    park fn epoll_pwait(
        set: c_int, events: *mut epoll_event, limit: c_int, timeout: c_int, signals: *const sigset_t,
    ) -> c_int {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { epoll_all(set, events, limit, from_milliseconds(timeout), signals) }) as c_int
    }

    always fn epoll_pwait2(
        set: c_int, events: *mut epoll_event, limit: c_int, timeout: *const timespec, signals: *const sigset_t,
    ) -> c_int {
        if gate::may_park() {
            // SAFETY: what the caller has promised libc.
            return gate::inside(|| settle(unsafe {
                from_time(timeout).and_then(|timeout| epoll_all(set, events, limit, timeout, signals))
            })) as c_int;
        }
        if libcs::epoll_pwait2.look().is_null() {
            // Libc has had it since 2.35.
            let arguments = [
                set as usize, events.addr(), limit as usize, timeout.addr(), signals.addr(), SIGNAL_BYTES,
            ];
            // SAFETY: as it was called.
            return settle(unsafe { call(libc::SYS_epoll_pwait2, arguments) }) as c_int;
        }
        // SAFETY: as it was called.
        unsafe {
            next!(epoll_pwait2(
                set: c_int, events: *mut epoll_event, limit: c_int, timeout: *const timespec,
                signals: *const sigset_t,
            ) -> c_int)
        }
    }
}

/// A negative one is for ever.
fn from_milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// # Safety
/// It is null, for ever, or a time.
pub(crate) unsafe fn from_time(timeout: *const timespec) -> Result<Option<Duration>, c_int> {
    // SAFETY: as promised.
    let Some(time) = (unsafe { timeout.as_ref() }) else { return Ok(None) };
    let nanoseconds = u32::try_from(time.tv_nsec).ok().filter(|&it| it < 1_000_000_000);
    match (u64::try_from(time.tv_sec), nanoseconds) {
        (Ok(seconds), Some(nanoseconds)) => Ok(Some(Duration::new(seconds, nanoseconds))),
        _ => Err(libc::EINVAL),
    }
}

/// Asks again and again, until the answer is not zero, or time is over. `wait` waits for what may change it. If a
/// descriptor is closed meanwhile, nobody is asked any more, for its number may be a stranger's by now: `on_close`
/// says what that means.
fn until_some(
    timeout: Option<Duration>,
    mut ask: impl FnMut() -> Answer,
    wait: impl Fn(Option<Instant>) -> Result<(), Stop>,
    on_close: impl FnOnce(c_int) -> Answer,
) -> Answer {
    if timeout == Some(Duration::ZERO) {
        return ask(); // no wait
    }
    if is_cancelled() {
        return Err(wait::refuse_cancelled());
    }
    let deadline = timeout.map(|timeout| lp().deadline(timeout));
    let mut answer = ask();
    if answer != Ok(0) {
        done_at_once();
    }
    while answer == Ok(0) {
        match wait(deadline) {
            Ok(()) => answer = ask(),
            Err(Stop::TimedOut) => return ask(),
            Err(Stop::Closed(fd)) => return on_close(fd),
            Err(Stop::Error(error)) => return Err(error),
        }
    }
    answer
}

/// Waits for descriptors, with what poll(2) would be asked for of each.
fn wait_for(wanted: &[(c_int, c_short)], deadline: Option<Instant>) -> Result<(), Stop> {
    // The others mean the same on sockets only: an eventfd knows of no POLLRDNORM.
    const SIMPLE: c_short = libc::POLLIN | libc::POLLOUT;
    if wanted.is_empty() {
        // Nothing but time, or nothing at all, for ever.
        let far = lp().deadline(Duration::from_secs(1 << 30));
        wait::pause(deadline.unwrap_or(far))?;
        return if deadline.is_some() { Err(Stop::TimedOut) } else { Ok(()) };
    }
    if wanted.iter().all(|&(_, events)| events != 0 && events & !SIMPLE == 0) {
        let interest = |&(fd, events): &(c_int, c_short)| {
            let mut interest = Interest::empty();
            interest.set(Interest::READ, events & libc::POLLIN != 0);
            interest.set(Interest::WRITE, events & libc::POLLOUT != 0);
            (fd, interest)
        };
        let wanted: Vec<(c_int, Interest)> = wanted.iter().map(interest).collect();
        return wait::any_ready(&wanted, deadline);
    }
    wait::any_ready_in(wanted, || set_of(wanted), deadline)
}

/// An epoll set that is ready when one of them is.
fn set_of(wanted: &[(c_int, c_short)]) -> Result<OwnedFd, c_int> {
    let set = plain(libc::SYS_epoll_create1, [libc::EPOLL_CLOEXEC as usize])?;
    // SAFETY: the kernel has just made it for us.
    let set = unsafe { OwnedFd::from_raw_fd(set as c_int) };
    for (index, &(fd, _)) in wanted.iter().enumerate() {
        if wanted[..index].iter().any(|&(other, _)| other == fd) {
            continue;
        }
        let same = wanted.iter().filter(|&&(other, _)| other == fd);
        let events = same.fold(0, |all, &(_, events)| all | u32::from(events as u16));
        let event = epoll_event { events, u64: 0 };
        let arguments = [
            set.as_raw_fd() as usize,
            libc::EPOLL_CTL_ADD as usize,
            fd as usize,
            (&raw const event).addr(),
        ];
        // SAFETY: the event lives through the call.
        match unsafe { call(libc::SYS_epoll_ctl, arguments) } {
            Err(libc::EPERM) => {} // a file, which will never be ready for more than it is
            answer => {
                answer?;
            }
        }
    }
    Ok(set)
}

/// poll(2).
///
/// # Safety
/// As ppoll(2).
unsafe fn poll_all(
    list: *mut pollfd,
    count: nfds_t,
    timeout: Option<Duration>,
    signals: *const sigset_t,
) -> Answer {
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    let ask = || {
        let arguments =
            [list.addr(), count as usize, (&raw const now).addr(), signals.addr(), SIGNAL_BYTES];
        // SAFETY: the caller's list and signals; `now` lives through the call.
        unsafe { call(libc::SYS_ppoll, arguments) }
    };
    let wait = |deadline| {
        // Not null if there are any: the kernel has just read them.
        let wanted = (0..count as usize).map(|index| {
            // SAFETY: the caller's list, of so many.
            let entry = unsafe { *list.add(index) };
            (entry.fd, entry.events)
        });
        let wanted: Vec<(c_int, c_short)> = wanted.filter(|&(fd, _)| fd >= 0).collect();
        wait_for(&wanted, deadline)
    };
    // The others are told by the next call.
    until_some(timeout, ask, wait, |closed| {
        let mut told = 0;
        for index in 0..count as usize {
            // SAFETY: the caller's list, of so many.
            let entry = unsafe { &mut *list.add(index) };
            let is_closed = entry.fd == closed;
            entry.revents = if is_closed { libc::POLLNVAL } else { 0 };
            told += isize::from(is_closed);
        }
        Ok(told)
    })
}

/// epoll_wait(2): a set is itself something that becomes readable.
///
/// # Safety
/// As epoll_pwait(2).
unsafe fn epoll_all(
    set: c_int,
    events: *mut epoll_event,
    limit: c_int,
    timeout: Option<Duration>,
    signals: *const sigset_t,
) -> Answer {
    let ask = || {
        let arguments =
            [set as usize, events.addr(), limit as usize, 0, signals.addr(), SIGNAL_BYTES];
        // SAFETY: the caller's events and signals.
        unsafe { call(libc::SYS_epoll_pwait, arguments) }
    };
    let wait = |deadline| wait::ready(set, Interest::READ, deadline);
    until_some(timeout, ask, wait, |_| Err(libc::EBADF))
}

/// So many bits are in every set.
const FD_SETSIZE: c_int = libc::FD_SETSIZE as c_int;

/// How many descriptors the process has a table for.
fn table_size() -> Option<c_int> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("FDSize:"))?.trim().parse().ok()
}

/// pselect(2), which blocks.
///
/// # Safety
/// As pselect(2).
unsafe fn select_plainly(
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: Option<Duration>,
    signals: *const sigset_t,
) -> Answer {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    if let Some(timeout) = timeout {
        time.tv_sec = timeout.as_secs().try_into().unwrap_or(i64::MAX);
        time.tv_nsec = timeout.subsec_nanos().into();
    }
    let at = if timeout.is_some() { (&raw mut time).addr() } else { 0 };
    let mask = [signals.addr(), SIGNAL_BYTES];
    let mask = if signals.is_null() { 0 } else { mask.as_ptr().addr() };
    let arguments = [count as usize, sets[0].addr(), sets[1].addr(), sets[2].addr(), at, mask];
    // SAFETY: the caller's sets; the time and the mask live through the call.
    unsafe { call(libc::SYS_pselect6, arguments) }
}

/// select(2).
///
/// # Safety
/// As pselect(2).
unsafe fn select_all(
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: Option<Duration>,
    signals: *const sigset_t,
) -> Answer {
    // Some pass the highest number there could ever be, and a set that is smaller: the kernel looks at no more
    // than the process has a table for.
    let count = match count {
        ..=FD_SETSIZE => count,
        _ => match table_size() {
            Some(size) => count.min(size),
            // SAFETY: the caller's sets and signals, for the kernel to look at. It cannot be told without /proc.
            None => return unsafe { select_plainly(count, sets, timeout, signals) },
        },
    };
    // The kernel reads and writes whole words, as many as `count` needs: that may be more than an `fd_set`.
    let words = (count.max(0) as usize).div_ceil(usize::BITS as usize);
    let copy = |set: *mut fd_set| -> Option<Vec<usize>> {
        // SAFETY: the caller's set, of so many words.
        (!set.is_null())
            .then(|| unsafe { std::slice::from_raw_parts(set.cast::<usize>(), words) }.to_vec())
    };
    let asked = sets.map(copy);
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    let mask = [signals.addr(), SIGNAL_BYTES];
    let mask = if signals.is_null() { 0 } else { mask.as_ptr().addr() };
    let ask = || {
        let mut answer = asked.clone();
        let at = answer.each_mut().map(|set| set.as_mut().map_or(0, |set| set.as_mut_ptr().addr()));
        let arguments = [count as usize, at[0], at[1], at[2], (&raw const now).addr(), mask];
        // SAFETY: our own sets, of as many words as `count` needs; `now` and the mask live through the call.
        let ready = unsafe { call(libc::SYS_pselect6, arguments) }?;
        for (set, answer) in sets.iter().zip(&answer) {
            if let Some(answer) = answer {
                // SAFETY: the caller's set, of so many words, which is not ours.
                unsafe {
                    std::ptr::copy_nonoverlapping(answer.as_ptr(), set.cast::<usize>(), words)
                };
            }
        }
        Ok(ready)
    };
    let mut wanted: Vec<(c_int, c_short)> = Vec::new();
    let kinds = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    for (set, events) in asked.iter().zip(kinds) {
        for fd in 0..count.max(0) {
            let (word, bit) =
                (fd as usize / usize::BITS as usize, fd as usize % usize::BITS as usize);
            if set.as_ref().is_some_and(|set| set[word] >> bit & 1 == 1) {
                match wanted.iter_mut().find(|(known, _)| *known == fd) {
                    Some((_, known)) => *known |= events,
                    None => wanted.push((fd, events)),
                }
            }
        }
    }
    until_some(timeout, ask, |deadline| wait_for(&wanted, deadline), |_| Err(libc::EBADF))
}
