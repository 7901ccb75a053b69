//! Counts the user-mode instructions of another process, one by one.
//!
//! `ptrace` stops the process after each instruction it executes; the stops are counted. That is slow
//! (some 50,000 a second) and exact, needs no hardware counters, and works for any program: valgrind
//! 3.19 cannot be stopped while a program waits in `io_uring_enter`. What happens inside a system call is
//! the kernel's and not counted; the `syscall` instruction itself is one.
//!
//! The load says between which two moments to count, by stopping itself ([`crate::stage`]):
//!
//! ```text
//!   load    ──── stage 1 ────┐ stopped ┌──── stage 2 ────┐ stopped ┌── closes ──►
//!   process ─ answers … rests├─────────┤ answers …  rests├─────────┤ runs freely
//!                          count                       count
//! ```
//! At both moments everything is answered, the connections are open, and the process waits for more. So it does
//! not matter how long anything takes.

#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::process::Command;
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::threads;

/// A process rests when all its threads have been asleep for this long. Not longer: some wake up now and then.
const QUIET: Duration = Duration::from_millis(50);
/// How often to look whether it does.
const LOOK: Duration = Duration::from_millis(1);
/// How many instructions a process may execute after its last answer, before it rests.
const LIMIT_RESTLESS: u64 = 10_000_000;
/// How long a process that runs freely may take to come to rest.
const LIMIT_SETTLE: Duration = Duration::from_secs(60);

/// Waits until a process that nobody steps is at rest.
///
/// # Errors
/// When there is no such process, or it does not come to rest.
pub fn settle(pid: u32) -> io::Result<()> {
    let start = Instant::now();
    let mut awake = start;
    while awake.elapsed() < QUIET {
        if !threads::are_all(pid, 'S')? {
            awake = Instant::now();
        }
        if start.elapsed() > LIMIT_SETTLE {
            return Err(io::Error::other("it does not come to rest"));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// A process whose threads are all being single-stepped. Dropping this lets them run freely again.
pub struct Stepper {
    process: u32,
    threads: BTreeSet<libc::pid_t>,
    instructions: u64,
}

impl Stepper {
    /// Stops every thread of `pid` and starts to step them.
    ///
    /// # Errors
    /// When there is no such process, or it may not be traced.
    pub fn attach(pid: u32) -> io::Result<Stepper> {
        let mut stepper = Stepper { process: pid, threads: BTreeSet::new(), instructions: 0 };
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

    /// Runs `load`, which has so many stages, and returns how many instructions each of them took. Lets the
    /// process run freely before the load goes on from its last stage to its end.
    ///
    /// # Errors
    /// When the load cannot be started, fails, or ends too early; or the process goes on and on when everything is
    /// answered.
    pub fn count<const STAGES: usize>(mut self, load: &mut Command) -> io::Result<[u64; STAGES]> {
        let mut child = load.spawn()?;
        let load = Pid::from_child(&child);
        let mut instructions = [0; STAGES];
        for (stage, instructions) in instructions.iter_mut().enumerate() {
            if stage > 0 {
                kill_process(load, Signal::CONT)?;
            }
            let before = self.instructions;
            self.step_until_stopped(load)?;
            self.come_to_rest()?;
            *instructions = self.instructions - before;
        }
        drop(self);
        kill_process(load, Signal::CONT)?;
        let status = child.wait()?;
        if status.success() {
            Ok(instructions)
        } else {
            Err(io::Error::other(format!("the load failed: {status}")))
        }
    }

    /// Steps until the load has stopped itself.
    fn step_until_stopped(&mut self, load: Pid) -> io::Result<()> {
        let load = load.as_raw_nonzero().get();
        loop {
            match self.step(load, 0)? {
                Step::Stopped => return Ok(()),
                Step::Ended { who, code } if who == load => {
                    return Err(io::Error::other(format!(
                        "the load ended early, with code {code}"
                    )));
                }
                _ => {}
            }
        }
    }

    /// Steps until there is nothing to step: every thread sleeps inside a system call, and goes on doing so.
    fn come_to_rest(&mut self) -> io::Result<()> {
        let (before, mut awake) = (self.instructions, Instant::now());
        while awake.elapsed() < QUIET {
            match self.step(0, libc::WNOHANG)? {
                // A thread that could run and does not, because the machine is busy, is not at rest.
                Step::None if threads::are_all(self.process, 'S')? => thread::sleep(LOOK),
                _ => awake = Instant::now(),
            }
            if self.instructions - before > LIMIT_RESTLESS {
                return Err(io::Error::other("it does not come to rest while it is stepped"));
            }
        }
        Ok(())
    }

    /// Waits for a stop of any thread, counts it, and lets the thread execute its next instruction. The load is
    /// not stepped: it is told when that has stopped.
    fn step(&mut self, load: libc::pid_t, options: libc::c_int) -> io::Result<Step> {
        let (who, status) = wait(-1, options | libc::WUNTRACED)?;
        if who == 0 {
            return Ok(Step::None);
        }
        if !libc::WIFSTOPPED(status) {
            self.threads.remove(&who);
            let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 };
            return Ok(Step::Ended { who, code });
        }
        if who == load {
            return Ok(Step::Stopped);
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
    /// The load has stopped itself.
    Stopped,
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
    /// Instructions while the operations were under way.
    pub instructions: u64,
    /// How many operations.
    pub operations: u64,
    /// One divided by the other.
    pub instructions_per_operation: f64,
}
