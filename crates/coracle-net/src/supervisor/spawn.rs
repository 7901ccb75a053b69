//! Starting one worker: the same program again, with sockets that survive `exec`.
#![allow(unsafe_code)]

use crate::bind::ListenSocket;
use crate::worker::{READY, SOCKETS, SUPERVISOR, WORKER};
use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid};
use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// What every worker is started from.
#[derive(Debug)]
pub(super) struct Recipe {
    program: PathBuf,
    /// The first is the name under which it was called.
    arguments: Vec<OsString>,
    sockets: RefCell<Vec<ListenSocket>>,
}

/// A worker that was started.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) pid: u32,
    /// Names the process even when its number belongs to another by now.
    pub(super) process: OwnedFd,
    /// Gives a byte when the worker serves.
    pub(super) ready: OwnedFd,
}

impl Recipe {
    /// This program, called as it was. Its path is looked up now: a file that is put in its place later is what
    /// later workers run.
    pub(super) fn new(sockets: Vec<ListenSocket>) -> io::Result<Recipe> {
        let program = std::env::current_exe()?;
        Ok(Recipe {
            program,
            arguments: std::env::args_os().collect(),
            sockets: RefCell::new(sockets),
        })
    }

    /// Closes the sockets. No worker is started after this.
    pub(super) fn close(&self) {
        drop(self.sockets.take());
    }

    /// Starts worker `index`. It ends with the calling thread.
    pub(super) fn spawn(&self, index: usize) -> io::Result<Spawned> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ready, told) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let mut command = Command::new(&self.program);
        let mut arguments = self.arguments.iter();
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        command.args(arguments).stdin(Stdio::null());
        // Ctrl-C goes to a whole group. A worker would hear of it twice, from the terminal and from here, and the
        // second request ends a process at once.
        command.process_group(0);
        let sockets = self.sockets.borrow();
        let numbers: Vec<String> =
            sockets.iter().map(|socket| socket.as_fd().as_raw_fd().to_string()).collect();
        command.env(SOCKETS, numbers.join(","));
        command.env(READY, told.as_raw_fd().to_string());
        command.env(WORKER, index.to_string());
        command.env(SUPERVISOR, getpid().as_raw_nonzero().to_string());
        let passed: Vec<BorrowedFd<'_>> =
            sockets.iter().map(AsFd::as_fd).chain([told.as_fd()]).collect();
        let mut child = pass_on(&mut command, &passed)?;
        match open(&child) {
            Ok(process) => Ok(Spawned { pid: child.id(), process, ready }),
            Err(error) => {
                // It cannot be watched: it shall not be.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }
}

/// Starts `command` with descriptors that it inherits, and so that it is asked to end when this thread ends.
fn pass_on(command: &mut Command, descriptors: &[BorrowedFd<'_>]) -> io::Result<Child> {
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let supervisor = getpid();
    let prepare = move || -> io::Result<()> {
        // By a request that can be honoured gracefully, and is a second one if the first has been made already.
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        if getppid() != Some(supervisor) {
            return Err(Errno::SRCH.into()); // it has died before it could be told of
        }
        for &number in &numbers {
            // SAFETY: it is open: the child has what the parent had, and the parent holds it until `spawn`
            // returns.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            rustix::io::fcntl_setfd(descriptor, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between `fork` and `exec` of a process that may have other threads, only what is
    // async-signal-safe may be done: these are the system calls prctl, getppid and fcntl. Nothing is allocated
    // or locked: the numbers are read where they are, and an error is a number too. The descriptors changed are
    // the child's: after `fork` the parent's table is another, so no program that another thread starts at this
    // moment inherits them.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

/// A descriptor of the process.
fn open(child: &Child) -> io::Result<OwnedFd> {
    Ok(rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty())?)
}
