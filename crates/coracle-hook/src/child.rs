//! Waiting for child processes: by a descriptor of the process (pidfd) where one is named, and by looking again
//! where any may be meant.
#![allow(unsafe_code)]

use crate::raw::{Answer, call, plain, settle};
use crate::wait::{self, Stop, lp};
use coracle_coro::hooking::is_cancelled;
use coracle_loop::demux::Interest;
use libc::{c_int, id_t, idtype_t, pid_t, rusage, siginfo_t};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Where no descriptor tells, one looks again after a pause, which grows up to this.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

hook! {
    park fn waitpid(pid: pid_t, status: *mut c_int, options: c_int) -> pid_t {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { wait_for(pid, status, options, std::ptr::null_mut()) }) as pid_t
    }

    park fn wait4(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { wait_for(pid, status, options, usage) }) as pid_t
    }

    park fn wait3(status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { wait_for(-1, status, options, usage) }) as pid_t
    }

    park fn wait(status: *mut c_int) -> pid_t {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { wait_for(-1, status, 0, std::ptr::null_mut()) }) as pid_t
    }

    park fn waitid(kind: idtype_t, id: id_t, info: *mut siginfo_t, options: c_int) -> c_int {
        // SAFETY: what the caller has promised libc.
        settle(unsafe { wait_for_state(kind, id, info, options) }) as c_int
    }
}

/// wait4(2).
///
/// # Safety
/// As wait4(2).
unsafe fn wait_for(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> Answer {
    let try_with = |options: c_int| {
        // SAFETY: the caller's pointers.
        unsafe {
            call(libc::SYS_wait4, [pid as usize, status.addr(), options as usize, usage.addr()])
        }
    };
    if options & libc::WNOHANG != 0 {
        return try_with(options);
    }
    // A pidfd tells of the end and of nothing else.
    let named = (pid > 0 && options & (libc::WUNTRACED | libc::WCONTINUED) == 0).then_some(pid);
    until_there(named, None, || match try_with(options | libc::WNOHANG) {
        Ok(0) => None,
        answer => Some(answer),
    })
}

/// waitid(2).
///
/// # Safety
/// As waitid(2).
unsafe fn wait_for_state(kind: idtype_t, id: id_t, info: *mut siginfo_t, options: c_int) -> Answer {
    // Without a place for it, one could not tell that nobody is there.
    // SAFETY: numbers, of which zeroes mean nobody.
    let mut own: siginfo_t = unsafe { std::mem::zeroed() };
    let info = if info.is_null() { &raw mut own } else { info };
    let try_with = |options: c_int| {
        let arguments = [kind as usize, id as usize, info.addr(), options as usize, 0];
        // SAFETY: the caller's pointer, or ours.
        unsafe { call(libc::SYS_waitid, arguments) }
    };
    if options & libc::WNOHANG != 0 {
        return try_with(options);
    }
    let ends = options & (libc::WSTOPPED | libc::WCONTINUED) == 0;
    let pid = (kind == libc::P_PID && ends).then_some(id as pid_t);
    let pidfd = (kind == libc::P_PIDFD && ends).then_some(id as c_int);
    until_there(pid, pidfd, || match try_with(options | libc::WNOHANG) {
        // SAFETY: the kernel has filled it in, with zeroes if nobody is there.
        Ok(0) if unsafe { (*info).si_pid() } == 0 => None,
        answer => Some(answer),
    })
}

/// Looks until there is an answer: when the process called `pid`, or behind `pidfd`, has ended, or else now and
/// then.
fn until_there(
    pid: Option<pid_t>,
    pidfd: Option<c_int>,
    mut look: impl FnMut() -> Option<Answer>,
) -> Answer {
    if is_cancelled() {
        return Err(wait::refuse_cancelled());
    }
    if let Some(answer) = look() {
        return answer;
    }
    let own = pid.and_then(|pid| {
        let fd = plain(libc::SYS_pidfd_open, [pid as usize]).ok()?;
        // SAFETY: the kernel has just made it for us.
        Some(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
    });
    let descriptor = own.as_ref().map(AsRawFd::as_raw_fd).or(pidfd);
    let mut pause = Duration::from_millis(1);
    loop {
        let waited = match (descriptor, pid) {
            (Some(fd), Some(pid)) => wait::ended(fd, pid),
            (Some(fd), None) => wait::ready(fd, Interest::READ, None),
            (None, _) => wait::pause(lp().deadline(pause)),
        };
        waited.map_err(|stop: Stop| stop.errno(libc::ETIMEDOUT))?;
        if let Some(answer) = look() {
            return answer;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
