//! Provided buffers: a ring of receive buffers that the kernel picks from (io_uring).
//!
//! ```text
//!  ring of entries (shared with the kernel)        pool of buffers
//!  head (kernel) ──► [ id 7 ][ id 2 ]… ◄── tail     [ 0 ][ 1 ][ 2 ]…
//! ```
//! The kernel takes a buffer at the head for each receive and names it in the completion. When the
//! program has done with it, [`recycle`](BufferRing::recycle) writes it back at the tail, and
//! [`publish`](BufferRing::publish) shows all that were written back with one store.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

/// Both the ring and the pool start on a page.
const PAGE: usize = 4096;

/// A registered ring of receive buffers, all of the same size.
///
/// Drop it only after the io_uring instance it is registered with.
pub struct BufferRing {
    entries: *mut BufRingEntry,
    pool: *mut u8,
    count: u16,
    buffer_bytes: u32,
    /// Where the next buffer is written; the kernel sees it after `publish`.
    tail: u16,
}

impl BufferRing {
    /// Allocates `count` buffers (a power of two, at most 32,768) and registers them as `group`.
    ///
    /// # Errors
    /// When the kernel refuses, for instance because it is older than 5.19.
    pub fn register(
        submitter: &Submitter<'_>,
        group: u16,
        count: u16,
        buffer_bytes: u32,
    ) -> io::Result<BufferRing> {
        assert!(count.is_power_of_two() && buffer_bytes > 0);
        let entries = allocate(entries_layout(count)).cast::<BufRingEntry>();
        let pool = allocate(pool_layout(count, buffer_bytes));
        let mut ring = BufferRing { entries, pool, count, buffer_bytes, tail: 0 };
        // SAFETY: `entries` has room for `count` entries, starts on a page, and lives until drop.
        unsafe { submitter.register_buf_ring_with_flags(entries as u64, count, group, 0)? };
        for id in 0..count {
            ring.recycle(id);
        }
        ring.publish();
        Ok(ring)
    }

    /// The number of buffers.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Where buffer `id` starts.
    #[inline]
    pub fn address(&self, id: u16) -> *const u8 {
        debug_assert!(id < self.count);
        self.pool.wrapping_add(usize::from(id) * self.buffer_bytes as usize)
    }

    /// The first `len` bytes of buffer `id`, which a completion has just named.
    #[inline]
    pub fn bytes(&self, id: u16, len: usize) -> &[u8] {
        assert!(id < self.count && len <= self.buffer_bytes as usize);
        // SAFETY: inside the pool (checked above), initialised (the pool is zeroed), and not written
        // by the kernel until `recycle` and `publish`, which need `&mut self`.
        unsafe { std::slice::from_raw_parts(self.address(id), len) }
    }

    /// Gives buffer `id` back. The kernel sees it after [`publish`](BufferRing::publish).
    #[inline]
    pub fn recycle(&mut self, id: u16) {
        let slot = usize::from(self.tail & (self.count - 1));
        let address = self.address(id) as u64;
        // SAFETY: `slot` is below `count`. The kernel does not read at or after the published tail.
        // The setters leave the entry's reserved half-word alone, where entry 0 keeps the tail.
        let entry = unsafe { &mut *self.entries.add(slot) };
        entry.set_addr(address);
        entry.set_len(self.buffer_bytes);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the recycled buffers to the kernel; returns whether there were any.
    #[inline]
    pub fn publish(&mut self) -> bool {
        // SAFETY: the tail lies inside entry 0, is aligned to two bytes, and is only ever written here.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries).cast_mut()) };
        let any = tail.load(Ordering::Relaxed) != self.tail;
        tail.store(self.tail, Ordering::Release);
        any
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: allocated in `register` with these same layouts; the kernel let go of them when the
        // io_uring instance was closed, which the type's documentation asks to happen first.
        unsafe {
            dealloc(self.entries.cast(), entries_layout(self.count));
            dealloc(self.pool, pool_layout(self.count, self.buffer_bytes));
        }
    }
}

fn allocate(layout: Layout) -> *mut u8 {
    // SAFETY: both layouts have a size above zero (asserted in `register`).
    let memory = unsafe { alloc_zeroed(layout) };
    if ptr::eq(memory, ptr::null()) {
        handle_alloc_error(layout);
    }
    memory
}

fn entries_layout(count: u16) -> Layout {
    let bytes = usize::from(count) * size_of::<BufRingEntry>();
    Layout::from_size_align(bytes, PAGE).expect("32,768 entries of 16 bytes fit the address space")
}

fn pool_layout(count: u16, buffer_bytes: u32) -> Layout {
    let bytes = usize::from(count) * buffer_bytes as usize;
    Layout::from_size_align(bytes, PAGE).expect("the pool fits the address space")
}
