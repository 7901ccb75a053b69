//! The processes of a loop: awaited by their descriptors, ended as a group, and always reaped.
//!
//! ```text
//!   started ──► runs ──► has exited ──► reaped        its output is over: nobody is killed
//!                 │            ▲
//!                 └─► TERM to the group ─► KILL after a while ─► reaped       late, or nobody wants it any more
//! ```
//!
//! As long as it is not reaped, its number and that of its group are nobody else's; so it is reaped last. What a
//! loop has not reaped when it ends is killed then.

use coracle_coro::sync::Semaphore;
use coracle_coro::{Coroutine, park_timeout};
use coracle_loop::demux::Interest;
use coracle_loop::{Loop, Timer, Trigger, Watch};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a group has to end by itself when it is told to.
const GRACE: Duration = Duration::from_secs(5);

/// A process that nobody watches yet. Dropped, it is killed, with its group, and reaped.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) child: Child,
    reaped: bool,
}

impl Started {
    /// One that has a group of its own.
    pub(super) fn new(child: Child) -> Started {
        Started { child, reaped: false }
    }

    fn group(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Tells the whole group; it may be gone.
    fn kill(&self, signal: Signal) {
        if let Some(group) = self.group().filter(|_| !self.reaped) {
            let _ = kill_process_group(group, signal);
        }
    }

    fn kill_and_reap(&mut self) {
        if !self.reaped {
            self.kill(Signal::KILL);
            let _ = self.child.wait(); // not for long: nothing survives that
            self.reaped = true;
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.kill_and_reap();
    }
}

/// One of so many processes that there may be.
#[derive(Debug)]
pub(super) struct Seat(pub(super) Arc<Semaphore>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

/// A process of this loop.
pub(super) struct Process {
    name: Rc<str>,
    started: RefCell<Started>,
    seat: Cell<Option<Seat>>,
    watch: RefCell<Option<Watch<OwnedFd>>>,
    timer: RefCell<Option<Timer>>,
    fate: Cell<Fate>,
    exited: Cell<bool>,
    waiting: RefCell<Option<Coroutine>>,
    family: Weak<Family>,
}

/// What becomes of a process when it has exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Somebody will say.
    Open,
    /// It is reaped.
    Reap,
    /// So it is, and what is left of its group is killed before.
    Kill,
}

/// All processes of a loop that are not reaped.
#[derive(Default)]
struct Family(RefCell<HashMap<u32, Rc<Process>>>);

/// A coroutine that waits for its script may be left behind by its loop; the script is not.
impl Drop for Family {
    fn drop(&mut self) {
        for process in self.0.take().into_values() {
            process.started.borrow_mut().kill_and_reap();
        }
    }
}

impl Process {
    /// Watches a process until it is reaped.
    pub(super) fn watch(
        lp: &Loop,
        started: Started,
        name: Rc<str>,
        seat: Seat,
    ) -> io::Result<Rc<Process>> {
        let id = started.child.id();
        let family = lp.extension(Family::default);
        let pid = started.group().ok_or(rustix::io::Errno::SRCH)?;
        let pidfd = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        let process = Rc::new(Process {
            name,
            started: RefCell::new(started),
            seat: Cell::new(Some(seat)),
            watch: RefCell::new(None),
            timer: RefCell::new(None),
            fate: Cell::new(Fate::Open),
            exited: Cell::new(false),
            waiting: RefCell::new(None),
            family: Rc::downgrade(&family),
        });
        let watched = Rc::downgrade(&process);
        let watch = lp.watch(pidfd, Interest::READ, Trigger::OneShot, move |_, _| {
            if let Some(process) = watched.upgrade() {
                process.has_exited();
            }
        })?;
        process.watch.replace(Some(watch));
        family.0.borrow_mut().insert(id, Rc::clone(&process));
        Ok(process)
    }

    /// Waits until it has exited, for so long at most, and reaps it. Its output is over, so nobody is killed.
    pub(super) fn wait(&self, timeout: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + timeout;
        while !self.exited.get() {
            let left = deadline.saturating_duration_since(Instant::now());
            self.waiting.replace(Some(coracle_coro::current()));
            let woken = if left.is_zero() {
                Err(io::ErrorKind::TimedOut.into())
            } else {
                park_timeout(left)
            };
            self.waiting.take();
            if woken.is_err() && !self.exited.get() {
                return None;
            }
        }
        self.reap()
    }

    /// Leaves it to itself until the deadline; then it is [ended](Process::end).
    pub(super) fn let_go(self: &Rc<Self>, lp: &Loop, deadline: Instant) {
        if self.fate.get() == Fate::Open {
            self.fate.set(Fate::Reap);
            if self.exited.get() {
                self.reap();
            } else {
                let process = Rc::downgrade(self);
                let timer = lp.at(deadline, move |lp| {
                    if let Some(process) = process.upgrade() {
                        tracing::warn!(script = &*process.name, "it does not end, and is killed");
                        process.end(lp);
                    }
                });
                self.set_timer(Some(timer));
            }
        }
    }

    /// Ends it and its whole group: politely, and after a while by force. Does not wait.
    pub(super) fn end(self: &Rc<Self>, lp: &Loop) {
        if self.fate.replace(Fate::Kill) == Fate::Kill {
            return;
        }
        if self.exited.get() {
            self.started.borrow().kill(Signal::KILL);
            self.reap();
            return;
        }
        self.started.borrow().kill(Signal::TERM);
        let process = Rc::downgrade(self);
        let timer = lp.after(GRACE, move |_| {
            if let Some(process) = process.upgrade() {
                process.started.borrow().kill(Signal::KILL);
            }
        });
        self.set_timer(Some(timer));
    }

    /// Nobody wants it any more: [ends](Process::end) it, unless it was let go of.
    pub(super) fn abandon(self: &Rc<Self>, lp: &Loop) {
        if self.fate.get() == Fate::Open {
            self.end(lp);
        }
    }

    fn set_timer(&self, timer: Option<Timer>) {
        if let Some(before) = self.timer.replace(timer) {
            before.cancel();
        }
    }

    fn has_exited(&self) {
        self.exited.set(true);
        match self.fate.get() {
            Fate::Open => {}
            Fate::Reap => drop(self.reap()),
            Fate::Kill => {
                self.started.borrow().kill(Signal::KILL);
                self.reap();
            }
        }
        if let Some(waiting) = self.waiting.take() {
            waiting.unpark();
        }
    }

    /// Reaps it, which has exited.
    fn reap(&self) -> Option<ExitStatus> {
        let mut started = self.started.borrow_mut();
        if started.reaped {
            return started.child.try_wait().ok().flatten(); // its number may be another's by now
        }
        let status = started.child.try_wait().unwrap_or_else(|error| {
            tracing::error!(script = &*self.name, "somebody else has reaped it: {error}");
            None
        });
        started.reaped = true;
        let id = started.child.id();
        drop(started);
        if self.fate.get() == Fate::Open {
            self.fate.set(Fate::Reap);
        }
        self.set_timer(None);
        self.watch.take();
        self.seat.take();
        if let Some(family) = self.family.upgrade() {
            family.0.borrow_mut().remove(&id);
        }
        if let Some(status) =
            status.filter(|status| !status.success() && self.fate.get() != Fate::Kill)
        {
            tracing::warn!(script = &*self.name, "it has ended with {status}");
        }
        status
    }
}
