//! Noticing that the process has forked, for the price of one load.
//!
//! A page that the kernel wipes in the child (`MADV_WIPEONFORK`, Linux 4.14) holds the process id. A
//! demultiplexer that finds another value there was made by a parent process: its epoll set or its ring is
//! still the parent's, and must be left alone.
#![allow(unsafe_code)]

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Remembers in which process it was made, for those who must leave what they have alone in a copy of it.
///
/// ```
/// use coracle_demux::ForkGuard;
///
/// let guard = ForkGuard::new();
/// assert!(!guard.is_forked());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ForkGuard {
    mark: &'static AtomicU32,
    owner: u32,
}

impl ForkGuard {
    /// Of this process.
    #[allow(clippy::new_without_default)] // it depends on when and where it is made
    pub fn new() -> ForkGuard {
        static MARK: OnceLock<&'static AtomicU32> = OnceLock::new();
        // Where the kernel cannot wipe pages, a plain one: forks then go unnoticed, as everywhere else.
        let mark = MARK.get_or_init(|| wiped_page().unwrap_or_else(|_| Box::leak(Box::default())));
        if mark.load(Ordering::Relaxed) == 0 {
            mark.store(std::process::id(), Ordering::Relaxed);
        }
        ForkGuard { mark, owner: mark.load(Ordering::Relaxed) }
    }

    /// Whether this is a child of the process that made the guard. One load.
    #[inline]
    pub fn is_forked(self) -> bool {
        self.mark.load(Ordering::Relaxed) != self.owner
    }

    /// `EOWNERDEAD` in a child of the process that made the guard.
    #[inline]
    pub(crate) fn check(self) -> io::Result<()> {
        if self.is_forked() { Err(Errno::OWNERDEAD.into()) } else { Ok(()) }
    }
}

fn wiped_page() -> io::Result<&'static AtomicU32> {
    let bytes = 4096; // the kernel rounds it up to whole pages
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh private anonymous mapping; it is never unmapped, so `'static` holds, it is zeroed
    // (a valid `AtomicU32`) and page-aligned, and only atomics touch it.
    unsafe {
        let page = mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)?;
        madvise(page, bytes, Advice::LinuxWipeOnFork)?;
        Ok(&*page.cast::<AtomicU32>())
    }
}
