//! Counts the user-mode instructions of another process, one by one.
//!
//! `ptrace` stops the process after each instruction it executes; the stops are counted. That is slow
//! (some 50,000 a second) and exact, needs no hardware counters, and works for any program: valgrind
//! 3.19 cannot be stopped while a program waits in `io_uring_enter`. What happens inside a system call is
//! the kernel's and not counted; the `syscall` instruction itself is one.

#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::process::Command;
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A process has settled when it executes nothing for this long.
const QUIET: Duration = Duration::from_millis(200);
/// Some programs wake up now and then for ever. They are not waited for longer than this, if what they execute
/// then is not more than this share of all.
const LIMIT_SETTLE: Duration = Duration::from_secs(30);
const LIMIT_AFTER: f64 = 0.1;

/// A process whose threads are all being single-stepped. Dropping this lets them run freely again.
pub struct Stepper {
    threads: BTreeSet<libc::pid_t>,
    instructions: u64,
}

impl Stepper {
    /// Stops every thread of `pid` and starts to step them.
    ///
    /// # Errors
    /// When there is no such process, or it may not be traced.
    pub fn attach(pid: u32) -> io::Result<Stepper> {
        let mut stepper = Stepper { threads: BTreeSet::new(), instructions: 0 };
        for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
            let name = entry?.file_name();
            let thread: libc::pid_t = name
                .to_str()
                .and_then(|name| name.parse().ok())
                .ok_or_else(|| io::Error::other("a task of /proc is not a number"))?;
            ptrace(libc::PTRACE_SEIZE, thread, libc::PTRACE_O_TRACECLONE as usize)?;
            stepper.threads.insert(thread);
            ptrace(libc::PTRACE_INTERRUPT, thread, 0)?;
        }
        Ok(stepper)
    }

    /// Runs `load` to its end, waits until the stepped process has settled, and returns how many
    /// instructions that took.
    ///
    /// # Errors
    /// When the load cannot be started or fails, or the process goes on and on when it is over: some do under
    /// ptrace whose wait in `io_uring_enter` is interrupted again and again.
    pub fn count(&mut self, load: &mut Command) -> io::Result<u64> {
        let before = self.instructions;
        let load = load.spawn()?.id() as libc::pid_t;
        loop {
            match self.step(0)? {
                Step::Ended { who, code } if who == load => {
                    if code != 0 {
                        return Err(io::Error::other(format!("the load failed with code {code}")));
                    }
                    break;
                }
                _ => {}
            }
        }
        let (ended, during) = (Instant::now(), self.instructions - before);
        let mut last = ended;
        while last.elapsed() < QUIET {
            // Ends of connections are not more work than all that was before, however slow the machine is.
            let after = self.instructions - before - during;
            if after > during {
                return Err(io::Error::other("it does not come to rest while it is stepped"));
            }
            let all = (during + after) as f64;
            if ended.elapsed() > LIMIT_SETTLE && after as f64 <= all * LIMIT_AFTER {
                break;
            }
            match self.step(libc::WNOHANG)? {
                Step::None => thread::sleep(Duration::from_micros(100)),
                _ => last = Instant::now(),
            }
        }
        Ok(self.instructions - before)
    }

    /// Waits for a stop of any thread, counts it, and lets the thread execute its next instruction.
    fn step(&mut self, options: libc::c_int) -> io::Result<Step> {
        let (who, status) = wait(-1, options)?;
        if who == 0 {
            return Ok(Step::None);
        }
        if !libc::WIFSTOPPED(status) {
            self.threads.remove(&who);
            let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 };
            return Ok(Step::Ended { who, code });
        }
        let deliver = if is_end_of_step(status) {
            self.instructions += 1;
            0
        } else if status >> 16 != 0 {
            // Attached, or a new thread: not a signal for the process.
            self.threads.insert(who);
            0
        } else {
            libc::WSTOPSIG(status) as usize
        };
        match ptrace(libc::PTRACE_SINGLESTEP, who, deliver) {
            // The thread was killed in between.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            result => result?,
        }
        Ok(Step::Stepped)
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        for &thread in self.threads.iter().filter(|&&thread| !is_kernels(thread)) {
            // Fails when the thread was killed meanwhile; then there is nothing to let go.
            let _ = release(thread);
        }
    }
}

/// Whether a thread is a worker of io_uring's, which looks like one of the program's and never stops.
fn is_kernels(thread: libc::pid_t) -> bool {
    fs::read_to_string(format!("/proc/{thread}/comm")).is_ok_and(|name| name.starts_with("iou-"))
}

/// Stops a thread, which may be inside a system call, and lets it go.
///
/// That has to happen at the end of a step. A trap still on its way would kill a process that nobody
/// traces any more.
fn release(thread: libc::pid_t) -> io::Result<()> {
    ptrace(libc::PTRACE_INTERRUPT, thread, 0)?;
    loop {
        let (_, status) = wait(thread, 0)?;
        if is_end_of_step(status) {
            return ptrace(libc::PTRACE_DETACH, thread, 0);
        }
        ptrace(libc::PTRACE_SINGLESTEP, thread, 0)?;
    }
}

/// A trap that does not tell of an event, such as having been attached to.
fn is_end_of_step(status: libc::c_int) -> bool {
    libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP && status >> 16 == 0
}

/// What one wait brought.
enum Step {
    /// Nothing, and we were not to wait.
    None,
    Stepped,
    Ended {
        who: libc::pid_t,
        code: i32,
    },
}

/// Waits for `who` (-1: anybody); returns who it was and its status.
fn wait(who: libc::pid_t, options: libc::c_int) -> io::Result<(libc::pid_t, libc::c_int)> {
    let mut status = 0;
    // SAFETY: writes one status word.
    match unsafe { libc::waitpid(who, &mut status, options | libc::__WALL) } {
        -1 => Err(io::Error::last_os_error()),
        who => Ok((who, status)),
    }
}

/// The requests used here take their argument in `data` and no address.
fn ptrace(request: libc::c_uint, thread: libc::pid_t, data: usize) -> io::Result<()> {
    // SAFETY: none of SEIZE, INTERRUPT, SINGLESTEP and DETACH reads or writes this program's memory.
    let result = unsafe { libc::ptrace(request, thread, null_mut::<libc::c_void>(), data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The result of one run of `steps`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepsReport {
    /// Instructions of the run with fewer operations.
    pub instructions_low: u64,
    /// Instructions of the run with more.
    pub instructions_high: u64,
    /// How many operations the second run had more than the first.
    pub operations: u64,
    /// The difference of instructions divided by the difference of operations.
    pub instructions_per_operation: f64,
}
