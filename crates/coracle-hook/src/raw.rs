//! System calls made directly: what hooked calls are made of inside a coroutine. Past libc, and so past the hooks.
#![allow(unsafe_code)]

use libc::{c_int, c_long, c_short};
use std::time::Duration;

/// What a system call has answered: a number, or an `errno`.
pub(crate) type Answer = Result<isize, c_int>;

/// A system call. Arguments that are not given are zero.
///
/// # Safety
/// As the call demands; that is for who calls the hooked function, whose pointers these are.
#[inline]
pub(crate) unsafe fn call<const N: usize>(number: c_long, arguments: [usize; N]) -> Answer {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: the caller has promised what the call demands.
    let answer = unsafe { sc::syscall6(number as usize, a, b, c, d, e, f) } as isize;
    if (-4095..0).contains(&answer) { Err(-answer as c_int) } else { Ok(answer) }
}

/// A system call that takes nothing but numbers, and changes no memory of ours.
#[inline]
pub(crate) fn plain<const N: usize>(number: c_long, arguments: [usize; N]) -> Answer {
    // SAFETY: used for calls whose arguments are numbers: whatever they are, the kernel checks them.
    unsafe { call(number, arguments) }
}

/// Puts an answer where libc's callers look for it.
#[inline]
pub(crate) fn settle(answer: Answer) -> isize {
    match answer {
        Ok(count) => count,
        Err(error) => {
            set_errno(error);
            -1
        }
    }
}

#[inline]
pub(crate) fn set_errno(error: c_int) {
    // SAFETY: libc's own place for it, which every thread has.
    unsafe { *libc::__errno_location() = error };
}

/// Says something on standard error, whatever becomes of it.
#[cold]
pub(crate) fn tell(text: &str) {
    let arguments = [libc::STDERR_FILENO as usize, text.as_ptr().addr(), text.len()];
    // SAFETY: so many bytes, which live through the call.
    let _ = unsafe { call(libc::SYS_write, arguments) };
}

/// Whether this is a signal handler that runs on the stack that was set apart for them.
#[cold]
pub(crate) fn is_on_signal_stack() -> bool {
    let mut now = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
    // SAFETY: nothing is changed; the kernel fills in `now`.
    let answer = unsafe { call(libc::SYS_sigaltstack, [0, (&raw mut now).addr()]) };
    answer.is_ok() && now.ss_flags & libc::SS_ONSTACK != 0
}

/// Sends a signal to this thread.
pub(crate) fn raise(signal: c_int) {
    let own = |number| plain(number, []).unwrap_or(0) as usize;
    let _ =
        plain(libc::SYS_tgkill, [own(libc::SYS_getpid), own(libc::SYS_gettid), signal as usize]);
}

/// Whether the user has made the descriptor non-blocking.
pub(crate) fn is_nonblocking(fd: c_int) -> Result<bool, c_int> {
    let flags = plain(libc::SYS_fcntl, [fd as usize, libc::F_GETFL as usize])?;
    Ok(flags as c_int & libc::O_NONBLOCK != 0)
}

/// Makes a descriptor non-blocking, or blocking.
pub(crate) fn set_nonblocking(fd: c_int, on: bool) -> Result<(), c_int> {
    let on = c_int::from(on);
    // SAFETY: FIONBIO reads an integer, which lives through the call.
    unsafe {
        call(libc::SYS_ioctl, [fd as usize, libc::FIONBIO as usize, (&raw const on).addr()])
    }?;
    Ok(())
}

/// A socket option that is a plain value.
pub(crate) fn socket_option<T: Default>(fd: c_int, option: c_int) -> Result<T, c_int> {
    let mut value = T::default();
    let mut len = size_of::<T>() as libc::socklen_t;
    let value_at = (&raw mut value).addr();
    let arguments =
        [fd as usize, libc::SOL_SOCKET as usize, option as usize, value_at, (&raw mut len).addr()];
    // SAFETY: the kernel writes at most `len` bytes to `value`, whose types here have no invalid values.
    unsafe { call(libc::SYS_getsockopt, arguments) }?;
    Ok(value)
}

/// What SO_RCVTIMEO or SO_SNDTIMEO is set to; `None` if it is not, or if this is no socket.
pub(crate) fn socket_timeout(fd: c_int, option: c_int) -> Option<Duration> {
    #[derive(Default)]
    #[repr(C)]
    struct Time {
        seconds: i64,
        microseconds: i64,
    }
    let time: Time = socket_option(fd, option).ok()?;
    let timeout = Duration::from_secs(time.seconds.try_into().ok()?)
        + Duration::from_micros(time.microseconds.try_into().ok()?);
    (!timeout.is_zero()).then_some(timeout)
}

/// What a descriptor is, as far as the hooks treat kinds differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Socket,
    /// A pipe, an eventfd, a timerfd, …: read(2) and write(2), and poll(2) means something.
    Bytes,
    /// A regular file, a directory, a device: never parked.
    Other,
}

/// What `fd` is.
pub(crate) fn kind(fd: c_int) -> Result<Kind, c_int> {
    // SAFETY: plain numbers and a pointer that libc does not use; all zeroes are valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills a `stat`, which on 64-bit Linux is libc's.
    unsafe { call(libc::SYS_fstat, [fd as usize, (&raw mut stat).addr()]) }?;
    Ok(match stat.st_mode & libc::S_IFMT {
        libc::S_IFSOCK => Kind::Socket,
        libc::S_IFIFO | 0 => Kind::Bytes, // those without a type are eventfd, timerfd, pidfd and their kin
        _ => Kind::Other,
    })
}

/// poll(2), which does not wait, or for the simulator a moment.
pub(crate) fn poll(list: &mut [libc::pollfd], timeout: Duration) -> Answer {
    let time = libc::timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
    loop {
        let arguments = [list.as_mut_ptr().addr(), list.len(), (&raw const time).addr()];
        // SAFETY: `list` is exclusively borrowed, `time` lives through the call, and there is no signal mask.
        match unsafe { call(libc::SYS_ppoll, arguments) } {
            Err(libc::EINTR) => {}
            answer => return answer,
        }
    }
}

/// What `fd` is ready for at this moment, of `events`.
pub(crate) fn poll_now(fd: c_int, events: c_short) -> c_short {
    let mut list = [libc::pollfd { fd, events, revents: 0 }];
    match poll(&mut list, Duration::ZERO) {
        Ok(_) => list[0].revents,
        Err(_) => 0,
    }
}
