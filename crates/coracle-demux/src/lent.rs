//! Buffers the seam lends for the length of one callback: an idle connection holds none.
//!
//! ```text
//!  pool ──id──► kernel fills it ──► Completion(Lent) ──► callback ──drop──► returned ──► pool
//! ```
//!
//! All buffers are one allocation. A [`Lent`] names one of them and gives it back when dropped; the
//! backend collects what was returned at its next wait.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

/// The buffers of one demultiplexer. Loop thread only.
pub(crate) struct LentPool {
    bytes: Box<[UnsafeCell<u8>]>,
    count: u16,
    /// Half of them.
    half: usize,
    size: usize,
    /// Buffers that came back, last in first out: the one just used is still in the processor's cache.
    returned: Returned,
}

/// A stack of ids with room for all of them.
struct Returned {
    ids: Box<[Cell<u16>]>,
    len: Cell<usize>,
}

impl Returned {
    #[inline]
    fn push(&self, id: u16) {
        self.ids[self.len.get()].set(id);
        self.len.set(self.len.get() + 1);
    }

    #[inline]
    fn pop(&self) -> Option<u16> {
        let top = self.len.get().checked_sub(1)?;
        self.len.set(top);
        Some(self.ids[top].get())
    }
}

/// A buffer of a pool that nobody else has.
pub(crate) struct Spare {
    start: *mut u8,
    id: u16,
}

impl LentPool {
    /// `count` buffers of `size` bytes, all of them in the caller's hands (not in `returned`).
    pub(crate) fn new(count: u16, size: u32) -> Rc<LentPool> {
        let size = size as usize;
        let bytes = vec![0u8; usize::from(count) * size].into_boxed_slice();
        // SAFETY: `UnsafeCell<u8>` has the layout of `u8` (repr(transparent)), and the box is unique.
        let bytes = unsafe { Box::from_raw(Box::into_raw(bytes) as *mut [UnsafeCell<u8>]) };
        let ids = (0..count).map(|_| Cell::new(0)).collect();
        let returned = Returned { ids, len: Cell::new(0) };
        Rc::new(LentPool { bytes, count, half: usize::from(count / 2), size, returned })
    }

    /// Bytes per buffer.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Where buffer `id` begins; `size()` bytes follow. The kernel or a system call fills it.
    #[inline]
    pub(crate) fn buffer(&self, id: u16) -> *mut u8 {
        assert!(id < self.count, "the kernel named a buffer that there is not");
        let base = self.bytes.as_ptr() as *mut u8;
        // SAFETY: `bytes` is `count * size` long, and `id` is below `count`.
        unsafe { base.add(usize::from(id) * self.size) }
    }

    /// The next buffer that came back since it was lent.
    #[inline(always)]
    pub(crate) fn take_spare(&self) -> Option<Spare> {
        Some(self.spare(self.returned.pop()?))
    }

    /// Buffer `id`, which must not be lent or with the kernel.
    #[inline(always)]
    pub(crate) fn spare(&self, id: u16) -> Spare {
        Spare { start: self.buffer(id), id }
    }

    /// Lets `fill` write into a buffer.
    #[inline(always)]
    pub(crate) fn fill<T>(&self, spare: &mut Spare, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        // SAFETY: it begins a buffer of `size` bytes, which is in the backend's hands: no `Lent` names it, the
        // kernel does not know it, and `&mut` access is exclusive for the length of the call.
        fill(unsafe { std::slice::from_raw_parts_mut(spare.start, self.size) })
    }

    /// Wraps the first `len` bytes of a buffer that was just filled.
    #[inline(always)]
    pub(crate) fn lend(self: &Rc<LentPool>, spare: Spare, len: usize) -> Lent {
        assert!(len <= self.size, "the kernel filled more than a buffer");
        let Spare { start, id } = spare;
        Lent { start, len: len as u32, id, pool: Some(Rc::clone(self)) }
    }

    /// Whether more than half of the buffers would be out with one more. Then copies are lent: whoever keeps them
    /// starves nobody.
    #[inline]
    pub(crate) fn is_scarce(self: &Rc<LentPool>) -> bool {
        Rc::strong_count(self) > self.half // those that are out, and the backend
    }

    /// All buffers that came back, the last one first.
    #[inline]
    pub(crate) fn take_all_returned(&self, take: impl FnMut(u16)) {
        let len = self.returned.len.replace(0);
        self.returned.ids[..len].iter().rev().map(Cell::get).for_each(take);
    }

    /// Gives buffer `id` back without having lent it.
    #[inline]
    pub(crate) fn give_back(&self, id: u16) {
        self.returned.push(id);
    }
}

impl Spare {
    /// Which one it is.
    pub(crate) fn id(&self) -> u16 {
        self.id
    }
}

/// Received bytes in a buffer of the seam's; dropping it gives the buffer back.
///
/// An empty one is the end of a stream (or an empty datagram). It may be kept; but the seam has a bounded
/// number of buffers, and whoever keeps half of them gets copies from then on.
pub struct Lent {
    /// Where the bytes are: in buffer `id` of the pool, or nowhere.
    start: *const u8,
    len: u32,
    id: u16,
    pool: Option<Rc<LentPool>>,
}

impl Lent {
    /// The end of a stream: no bytes, no buffer.
    pub(crate) fn end() -> Lent {
        Lent { start: std::ptr::dangling(), len: 0, id: 0, pool: None }
    }

    /// The same, or a copy if more than half of the buffers are out.
    pub(crate) fn or_copy(self) -> Lent {
        match &self.pool {
            // Each `Lent` counts, and so does the backend; on io_uring its ring of buffers, too.
            Some(pool) if Rc::strong_count(pool) > pool.half + 1 => Lent::owned(&self),
            _ => self,
        }
    }

    /// Bytes from where the kernel cannot fill a buffer of the pool: they are a pool of their own.
    pub(crate) fn owned(bytes: &[u8]) -> Lent {
        let pool = LentPool::new(1, bytes.len() as u32);
        let mut spare = pool.spare(0);
        pool.fill(&mut spare, |space| space.copy_from_slice(bytes));
        pool.lend(spare, bytes.len())
    }
}

impl Deref for Lent {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `lend` made this from a buffer of at least `len` bytes, which the pool keeps allocated.
        // While this `Lent` lives the id is neither in `returned` nor with the kernel: nobody writes there.
        unsafe { std::slice::from_raw_parts(self.start, self.len as usize) }
    }
}

impl Drop for Lent {
    #[inline]
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.give_back(self.id);
        }
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({} bytes)", self.len())
    }
}
