//! poll(2), as the adaptor wants it: a list of what is waited for, and nothing else.
//!
//! A descriptor is in the list only while something waits for it, so the cost of a wait grows with the
//! number of operations in flight, not with the number of descriptors open.
#![allow(unsafe_code)]

use crate::backend::{Backend, Features};
use crate::operation::{Interest, Readiness};
use crate::readiness::Poller;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::io;
use std::time::Duration;

/// Not in the list.
const ABSENT: u32 = u32::MAX;

#[derive(Default)]
pub(crate) struct Poll {
    /// What the kernel gets. `'static` is a white lie: see `watch`.
    list: Vec<PollFd<'static>>,
    /// The adaptor's key of each entry of `list`.
    keys: Vec<u64>,
    /// For each key's index: where it is in `list`.
    places: Vec<u32>,
    /// What the last wait found, not yet handed out.
    events: Vec<(u64, Readiness)>,
}

impl Poll {
    fn place(&mut self, key: u64) -> &mut u32 {
        let index = (key & 0xffff_ffff) as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, ABSENT);
        }
        &mut self.places[index]
    }

    fn forget(&mut self, key: u64) {
        let place = std::mem::replace(self.place(key), ABSENT);
        if place != ABSENT {
            self.list.swap_remove(place as usize);
            self.keys.swap_remove(place as usize);
            if let Some(&moved) = self.keys.get(place as usize) {
                *self.place(moved) = place;
            }
        }
    }
}

impl Poller for Poll {
    const BACKEND: Backend = Backend::Poll;
    const FEATURES: Features = Features {
        completions: false,
        constant_cost: false,
        any_descriptor: true,
        early_close: true,
        files: false,
    };
    const EDGE: bool = false;

    fn add(&mut self, _fd: BorrowedFd<'_>, _key: u64) -> io::Result<()> {
        Ok(())
    }

    fn watch(
        &mut self,
        fd: BorrowedFd<'_>,
        key: u64,
        interest: Interest,
        _ask_again: bool,
    ) -> io::Result<()> {
        if interest.is_empty() {
            self.forget(key);
            return Ok(());
        }
        // SAFETY: the adaptor takes a descriptor out of the list (`remove`) before it is closed.
        let fd: BorrowedFd<'static> = unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) };
        let entry = PollFd::from_borrowed_fd(fd, flags(interest));
        let place = *self.place(key);
        if place == ABSENT {
            *self.place(key) = self.list.len() as u32;
            self.list.push(entry);
            self.keys.push(key);
        } else {
            self.list[place as usize] = entry;
        }
        Ok(())
    }

    fn remove(&mut self, _fd: BorrowedFd<'_>, key: u64, _closing: bool) {
        self.forget(key);
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.events.clear();
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match rustix::event::poll(&mut self.list, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        for (entry, &key) in self.list.iter().zip(&self.keys) {
            if !entry.revents().is_empty() {
                self.events.push((key, readiness(entry.revents())));
            }
        }
        self.events.reverse(); // they are handed out from the end
        Ok(())
    }

    fn next_event(&mut self) -> Option<(u64, Readiness)> {
        self.events.pop()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// What to ask poll(2) for.
pub(crate) fn flags(interest: Interest) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN | PollFlags::RDHUP, interest.contains(Interest::READ));
    flags.set(PollFlags::OUT, interest.contains(Interest::WRITE));
    flags
}

/// What poll(2) says, in our words.
pub(crate) fn readiness(flags: PollFlags) -> Readiness {
    let known = Readiness::from_kernel(flags.bits().into());
    if flags.contains(PollFlags::NVAL) { known | Readiness::ERROR } else { known }
}

/// What a descriptor is ready for at this moment.
pub(crate) fn ready_now(fd: BorrowedFd<'_>, interest: Interest) -> Readiness {
    let mut list = [PollFd::from_borrowed_fd(fd, flags(interest))];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::io::retry_on_intr(|| rustix::event::poll(&mut list, Some(&now))) {
        Ok(_) => readiness(list[0].revents()),
        Err(_) => Readiness::ERROR,
    }
}
