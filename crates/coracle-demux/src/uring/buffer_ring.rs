//! The ring through which the kernel gets buffers to receive into.
//!
//! ```text
//!   we:      tail ──► [ id 7 ][ id 2 ][ id 5 ] ◄── head   :the kernel takes one when bytes arrive
//!            a `Lent` was dropped: put its id at the tail
//! ```

use crate::lent::LentPool;
use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

/// The group of buffers every lent receive takes from.
pub(super) const GROUP: u16 = 0;

/// A mapping shared with the kernel, and the buffers that go round in it.
pub(super) struct BufferRing {
    entries: NonNull<BufRingEntry>,
    mask: u16,
    tail: u16,
    pool: Rc<LentPool>,
}

impl BufferRing {
    /// Registers all buffers of `pool`, whose number must be a power of two.
    pub(super) fn register(
        submitter: &Submitter<'_>,
        pool: Rc<LentPool>,
        count: u16,
    ) -> io::Result<BufferRing> {
        assert!(count.is_power_of_two(), "settings were checked");
        // SAFETY: a fresh anonymous mapping, at a place the kernel chooses.
        let mapped = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                BufferRing::bytes(count),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let entries = NonNull::new(mapped.cast()).expect("a mapping is not at address zero");
        let mut ring = BufferRing { entries, mask: count - 1, tail: 0, pool };
        // SAFETY: the mapping is page-aligned, has room for `count` entries, and outlives the
        // registration: the ring's owner closes the io_uring before it drops this.
        unsafe { submitter.register_buf_ring_with_flags(mapped as u64, count, GROUP, 0)? };
        for id in 0..count {
            // SAFETY: the mapping has room for `count` entries, of which the kernel was shown none.
            let entry = unsafe { &mut *entries.as_ptr().add(usize::from(id)) };
            entry.set_len(ring.pool.size() as u32); // once and for all: they are all of one size
            ring.pool.give_back(id);
        }
        ring.refill();
        Ok(ring)
    }

    /// Gives every buffer that has come back to the kernel again.
    pub(super) fn refill(&mut self) {
        let (pool, entries, mask, mut tail) = (&self.pool, self.entries, self.mask, self.tail);
        pool.take_all_returned(|id| {
            let at = usize::from(tail & mask);
            // SAFETY: `at` is within the mapping, and the kernel does not look at entries beyond the tail it
            // was last shown. The tail itself lies in the reserved field of entry 0, which is not written.
            let entry = unsafe { &mut *entries.as_ptr().add(at) };
            entry.set_addr(pool.buffer(id) as u64);
            entry.set_bid(id);
            tail = tail.wrapping_add(1);
        });
        if tail != self.tail {
            self.tail = tail;
            self.publish();
        }
    }

    /// Shows the kernel the new tail.
    fn publish(&self) {
        // SAFETY: the tail is an aligned u16 in the mapping, which the kernel reads atomically.
        let tail =
            unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    fn bytes(count: u16) -> usize {
        usize::from(count) * size_of::<BufRingEntry>()
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: mapped by `register` with this size; the io_uring that knew it is closed.
        let _ = unsafe { munmap(self.entries.as_ptr().cast(), BufferRing::bytes(self.mask + 1)) };
    }
}
