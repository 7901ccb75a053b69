//! Which stretches of files are in memory: asked once between two waits, however often they are sent.

use crate::Handle;
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags};

/// So many stretches are remembered.
const STRETCHES: usize = 8;

/// What was found to be in memory since the last wait.
#[derive(Default)]
pub(crate) struct Resident(Vec<(Handle, u64, usize)>);

impl Resident {
    /// Whether the first and the last byte of a stretch can be read without waiting for the disk. What lies
    /// between was read ahead with them, or the kernel is short of memory and everything waits anyway.
    pub(crate) fn is_resident(
        &mut self,
        handle: Handle,
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> bool {
        let stretch = (handle, offset, count);
        if count == 0 || self.0.contains(&stretch) {
            return true;
        }
        let is_resident = can_read(file, offset) && can_read(file, offset + (count as u64 - 1));
        if is_resident && self.0.len() < STRETCHES {
            self.0.push(stretch);
        }
        is_resident
    }

    /// The kernel may have needed the memory meanwhile.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

/// Whether a byte of a file can be read at once.
fn can_read(file: BorrowedFd<'_>, position: u64) -> bool {
    let mut byte = [0u8];
    let slices = &mut [IoSliceMut::new(&mut byte)];
    let read = rustix::io::preadv2(file, slices, position, ReadWriteFlags::NOWAIT);
    // Not supported by this file system: then nothing is known, and sendfile has to do.
    !matches!(read, Err(Errno::AGAIN))
}
