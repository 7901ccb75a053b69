//! epoll, as the adaptor wants it: each descriptor is registered once, edge-triggered, for everything.
//!
//! After that no `epoll_ctl` is needed for sending and receiving: the adaptor remembers what it has not
//! used up. Only a poll asks again, because it must report a level: `EPOLL_CTL_MOD` makes the kernel look.
//!
//! The [alarm](crate::alarm) is a timerfd in the set.
#![allow(unsafe_code)]

use crate::alarm::Alarm;
use crate::backend::{Backend, Features};
use crate::operation::{Interest, Readiness};
use crate::readiness::Poller;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::time::{Duration, Instant};

/// How many events one wait takes from the kernel; the rest is there at the next.
const EVENTS_PER_WAIT: usize = 1024;

/// The key of the alarm. No handle has it: the lower half of a handle is never as large.
const ALARM: u64 = u64::MAX;

pub(crate) struct Epoll {
    set: OwnedFd,
    events: Vec<Event>,
    next: usize,
    /// epoll_pwait2 (Linux 5.11) takes nanoseconds; epoll_wait rounds up to milliseconds.
    nanoseconds: bool,
    alarm: Alarm,
    /// None if the kernel gives none: waits have their own time-outs then.
    timer: Option<Timer>,
}

impl Epoll {
    pub(crate) fn open() -> io::Result<Epoll> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        let events = Vec::with_capacity(EVENTS_PER_WAIT);
        let timer = Timer::open(&set).ok();
        Ok(Epoll { set, events, next: 0, nanoseconds: true, alarm: Alarm::default(), timer })
    }

    fn everything() -> EventFlags {
        let received = EventFlags::IN | EventFlags::PRI | EventFlags::RDHUP;
        received | EventFlags::OUT | EventFlags::ET
    }

    /// epoll_pwait2(2), called directly: rustix uses it only when told at compile time that every kernel
    /// has it.
    #[inline(always)]
    fn wait_nanoseconds(&mut self, timeout: &Timespec) -> Result<(), Errno> {
        // SAFETY: `events` has room for its capacity, `timeout` lives through the call, and no signal mask
        // is passed.
        let result = unsafe {
            sc::syscall6(
                sc::nr::EPOLL_PWAIT2,
                self.set.as_raw_fd() as usize,
                self.events.as_mut_ptr() as usize,
                self.events.capacity(),
                std::ptr::from_ref(timeout) as usize,
                0,
                0,
            )
        } as isize;
        if result < 0 {
            return Err(Errno::from_raw_os_error(-result as i32));
        }
        // SAFETY: the kernel has written this many events, which is at most the capacity.
        unsafe { self.events.set_len(result as usize) };
        Ok(())
    }
}

/// What the alarm is made of.
struct Timer(OwnedFd);

impl Timer {
    /// One that rings in `set`. It need not be read, for that is an edge.
    fn open(set: &OwnedFd) -> io::Result<Timer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(set, &timer, EventData::new_u64(ALARM), EventFlags::IN | EventFlags::ET)?;
        Ok(Timer(timer))
    }

    /// Makes it ring after so long, if it can be.
    #[cold]
    fn set(&self, left: Duration) -> bool {
        let Ok(left) = Timespec::try_from(left) else { return false };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval: never, it_value: left };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once).is_ok()
    }
}

impl Poller for Epoll {
    const BACKEND: Backend = Backend::Epoll;
    const FEATURES: Features = Features {
        completions: false,
        constant_cost: true,
        any_descriptor: true,
        early_close: true,
        files: false,
    };
    const EDGE: bool = true;

    fn add(&mut self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        Ok(epoll::add(&self.set, fd, EventData::new_u64(key), Epoll::everything())?)
    }

    fn watch(
        &mut self,
        fd: BorrowedFd<'_>,
        key: u64,
        _interest: Interest,
        ask_again: bool,
    ) -> io::Result<()> {
        if ask_again {
            epoll::modify(&self.set, fd, EventData::new_u64(key), Epoll::everything())?;
        }
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, _key: u64, closing: bool) {
        // Closing the last descriptor of a file removes it by itself.
        if !closing {
            // Only a descriptor that is not there can fail, and then there is nothing to remove.
            let _ = epoll::delete(&self.set, fd);
        }
    }

    #[inline]
    fn timeout(&mut self, deadline: Instant) -> Option<Duration> {
        let timer = self.timer.as_ref();
        self.alarm.timeout(deadline, |_, left| timer.is_some_and(|timer| timer.set(left)))
    }

    #[inline(always)]
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.events.clear();
        self.next = 0;
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        if let Some(timeout) = timeout.filter(|_| self.nanoseconds) {
            match self.wait_nanoseconds(&timeout) {
                // EPERM: an old container filter that does not know the call.
                Err(Errno::NOSYS | Errno::PERM) => self.nanoseconds = false,
                Err(Errno::INTR) => return Ok(()),
                result => return Ok(result?),
            }
        }
        match epoll::wait(
            &self.set,
            rustix::buffer::spare_capacity(&mut self.events),
            timeout.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    #[inline]
    fn next_event(&mut self) -> Option<(u64, Readiness)> {
        loop {
            let event = self.events.get(self.next)?;
            self.next += 1;
            let (data, flags) = (event.data, event.flags); // copied: the struct is packed
            if data.u64() != ALARM {
                return Some((data.u64(), Readiness::from_kernel(flags.bits())));
            }
            self.alarm.rang();
        }
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.set.as_fd())
    }
}
