//! How much processor time a process has used, in nanoseconds.
//!
//! Every process has a CPU clock that any other process may read. It counts all threads of the process
//! and, unlike the ticks of `/proc/PID/stat`, has the scheduler's own resolution.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// What several processes have used together.
///
/// # Errors
/// When one of them is not there.
pub fn cpu_time_of(pids: &[u32]) -> io::Result<Duration> {
    pids.iter().map(|&pid| cpu_time(pid)).sum()
}

/// User plus system time of all threads of `pid` since it was started.
///
/// # Errors
/// When there is no such process.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let mut clock = 0;
    // SAFETY: writes one clock id to `clock`.
    let error = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: writes one timespec to `time`.
    if unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above succeeded, so it has written `time`.
    let time = unsafe { time.assume_init() };
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// User plus system time of the children of this process that have ended and were waited for.
///
/// # Errors
/// The system's; there is no reason for one.
pub fn children_cpu_time() -> io::Result<Duration> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: writes one rusage to `usage`.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above succeeded, so it has written `usage`.
    let usage = unsafe { usage.assume_init() };
    let time = |it: libc::timeval| {
        Duration::from_secs(it.tv_sec as u64) + Duration::from_micros(it.tv_usec as u64)
    };
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}
