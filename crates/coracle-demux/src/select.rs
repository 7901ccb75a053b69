//! select(2), as the adaptor wants it: two sets of bits, for descriptors below 1024.
//!
//! The kernel would take larger sets, but a program that also passes our descriptors to a libc `fd_set`
//! would write past its end: refusing is the only safe answer.
#![allow(unsafe_code)]

use crate::backend::{Backend, Features};
use crate::operation::{Interest, Readiness};
use crate::readiness::Poller;
use rustix::event::{
    FdSetElement, FdSetIter, fd_set_bound, fd_set_insert, fd_set_num_elements, fd_set_remove,
};
use rustix::fd::{AsRawFd, BorrowedFd, RawFd};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::io;
use std::time::Duration;

/// The number of descriptors an `fd_set` has room for.
const FD_SETSIZE: usize = 1024;

pub(crate) struct Select {
    /// What is waited for.
    read: Vec<FdSetElement>,
    write: Vec<FdSetElement>,
    /// What the kernel has left of it.
    readable: Vec<FdSetElement>,
    writable: Vec<FdSetElement>,
    /// For each number: who waits for it, by the adaptor's key, and what for. More than one does if a number is
    /// lent that is also the loop's own.
    waiting: Vec<Vec<(u64, Interest)>>,
    /// What the last wait found, not yet handed out.
    events: Vec<(u64, Readiness)>,
}

impl Default for Select {
    fn default() -> Select {
        let empty =
            vec![FdSetElement::default(); fd_set_num_elements(FD_SETSIZE, FD_SETSIZE as RawFd)];
        Select {
            read: empty.clone(),
            write: empty.clone(),
            readable: empty.clone(),
            writable: empty,
            waiting: vec![Vec::new(); FD_SETSIZE],
            events: Vec::new(),
        }
    }
}

impl Select {
    /// Somebody waits for this from here on, for nothing else, and not at all if it is empty. The others who
    /// wait for the number go on.
    fn set(&mut self, fd: RawFd, key: u64, interest: Interest) {
        let waiting = &mut self.waiting[fd as usize];
        waiting.retain(|(other, _)| *other != key);
        if !interest.is_empty() {
            waiting.push((key, interest));
        }
        for (set, wanted) in [(&mut self.read, Interest::READ), (&mut self.write, Interest::WRITE)]
        {
            if waiting.iter().any(|(_, interest)| interest.contains(wanted)) {
                fd_set_insert(set, fd);
            } else {
                fd_set_remove(set, fd);
            }
        }
    }

    /// Somebody has closed a descriptor that was lent, and is waited for: it is ready for anything, since
    /// nothing on it would wait. As poll(2) says of each by itself.
    #[cold]
    fn give_up_closed(&mut self) {
        let waited: Vec<RawFd> =
            FdSetIter::new(&self.read).chain(FdSetIter::new(&self.write)).collect();
        for fd in waited {
            // SAFETY: only asked whether it is one.
            let open = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) }).is_ok();
            if !open {
                fd_set_remove(&mut self.read, fd);
                fd_set_remove(&mut self.write, fd);
                let all = Readiness::READ | Readiness::WRITE | Readiness::ERROR;
                let waiting = self.waiting[fd as usize].drain(..);
                self.events.extend(waiting.map(|(key, _)| (key, all)));
            }
        }
    }
}

impl Poller for Select {
    const BACKEND: Backend = Backend::Select;
    const FEATURES: Features = Features {
        completions: false,
        constant_cost: false,
        any_descriptor: false,
        early_close: true,
        files: false,
    };
    const EDGE: bool = false;
    const COARSE: bool = true;

    fn check(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if fd.as_raw_fd() as usize >= FD_SETSIZE {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                format!(
                    "descriptor {} is beyond what select can wait for (1023): use another backend",
                    fd.as_raw_fd()
                ),
            ));
        }
        Ok(())
    }

    fn add(&mut self, fd: BorrowedFd<'_>, _key: u64) -> io::Result<()> {
        self.check(fd)
    }

    fn watch(
        &mut self,
        fd: BorrowedFd<'_>,
        key: u64,
        interest: Interest,
        _ask_again: bool,
    ) -> io::Result<()> {
        self.set(fd.as_raw_fd(), key, interest);
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, key: u64, _closing: bool) {
        self.set(fd.as_raw_fd(), key, Interest::empty());
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.events.clear();
        self.readable.copy_from_slice(&self.read);
        self.writable.copy_from_slice(&self.write);
        let bound = fd_set_bound(&self.read).max(fd_set_bound(&self.write));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // SAFETY: the adaptor takes a descriptor out of the sets (`remove`) before it is closed, so all of
        // them are open; the sets have room for FD_SETSIZE bits, and `bound` is not more.
        let result = unsafe {
            rustix::event::select(
                bound,
                Some(&mut self.readable),
                Some(&mut self.writable),
                None,
                timeout.as_ref(),
            )
        };
        match result {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(Errno::BADF) => {
                self.give_up_closed();
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        let sets = [
            (&self.readable, Interest::READ, Readiness::READ),
            (&self.writable, Interest::WRITE, Readiness::WRITE),
        ];
        for (set, wanted, readiness) in sets {
            for fd in FdSetIter::new(set) {
                let waiting = self.waiting[fd as usize].iter();
                let told = waiting.filter(|(_, interest)| interest.contains(wanted));
                self.events.extend(told.map(|&(key, _)| (key, readiness)));
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
