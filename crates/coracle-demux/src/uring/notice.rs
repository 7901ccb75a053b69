//! What somebody else can wait for in place of the ring.
//!
//! A ring can be polled, but with deferred task work it does not wake who polls it: that is announced to a
//! registered eventfd only. And an announcement made while another eventfd is being written, which is how other
//! threads wake this loop, may get lost (seen on Linux 6.18). So there are two descriptors to wait for, the
//! registered eventfd and the wake-up, in one epoll set that stands for both.

use io_uring::IoUring;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::time::Timespec;
use std::io;

pub(super) struct Notice {
    set: OwnedFd,
    /// In the set as long as it is open, and nothing else needs it.
    _announced: OwnedFd,
}

impl Notice {
    /// Has the kernel announce what the ring completes, beginning with what it has completed already.
    pub(super) fn register(ring: &IoUring, wakeup: BorrowedFd<'_>) -> io::Result<Notice> {
        let announced = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        let edges = EventFlags::IN | EventFlags::ET;
        epoll::add(&set, &announced, EventData::new_u64(0), edges)?;
        epoll::add(&set, wakeup, EventData::new_u64(1), edges)?;
        ring.submitter().register_eventfd(announced.as_raw_fd())?;
        Ok(Notice { set, _announced: announced })
    }

    /// Forgets what was announced; it is looked at now.
    pub(super) fn clear(&self) {
        let mut events = Vec::with_capacity(2);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Non-blocking; a failure could only mean that there is nothing to forget.
        let _ = epoll::wait(&self.set, spare_capacity(&mut events), Some(&now));
    }
}

impl AsFd for Notice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}
