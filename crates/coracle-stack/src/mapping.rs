//! Slabs: one mapping for many stacks, each above its guard region.
//!
//! ```text
//!  start                                                                             higher addresses ──►
//!  ┌────────┬──────────────────────────┬────────┬──────────────────────────┬────────┬────────
//!  │▒▒▒▒▒▒▒▒│                  ◄─grows─│▒▒▒▒▒▒▒▒│                  ◄─grows─│▒▒▒▒▒▒▒▒│   …
//!  └────────┴──────────────────────────┴────────┴──────────────────────────┴────────┴────────
//!    guard    slot 0                     guard    slot 1                     guard
//!    64 KiB   192 KiB, or what was asked for, and a page that is left free
//! ```
//!
//! A slot is *unused* until it is first taken, and has no guard and no memory. Guards are installed a batch at a
//! time, when the first of the batch is taken. A slot that comes back without its memory is *cold*; one that comes
//! back with it does not come here, but to the [pool](crate::Pool).
#![allow(unsafe_code)]

use crate::guard::{self, GUARD_BYTES, GUARDS_PER_CALL, Guard};
use crate::label;
use crate::size::StackSize;
use corosensei::stack::valgrind::ValgrindStackRegistration;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A slab has so many bytes at most, unless a single stack has more: 252 stacks of the default size.
const SLAB_BYTES: usize = 64 << 20;

/// A slab has so many stacks at most.
const SLOTS_PER_SLAB: usize = 256;

/// Names a stack: where it is.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    /// Its lowest address.
    pub(crate) low: NonZeroUsize,
    /// Its slab's number in the pool.
    pub(crate) slab: u32,
    /// Its own in the slab.
    pub(crate) number: u16,
    pub(crate) size: StackSize,
}

impl Slot {
    /// Gives its memory back to the kernel, but for the `keep` bytes at its top. It reads as zero then.
    ///
    /// For stacks on which nothing runs.
    pub(crate) fn empty(self, keep: usize) {
        let size = self.size.bytes();
        let bytes = size - keep.next_multiple_of(page_size()).min(size);
        // SAFETY: within a slot of a slab: private anonymous memory, which nothing in use lies in. Guards survive.
        let result = unsafe { madvise(self.address(), bytes, Advice::LinuxDontNeed) };
        // EINVAL: the program has locked its memory. Then it stays where it is, as was asked for.
        debug_assert!(matches!(result, Ok(()) | Err(Errno::INVAL)), "{result:?}");
    }

    /// How far down from its top it has memory, in whole pages.
    pub(crate) fn touched(self) -> usize {
        let size = self.size.bytes();
        let mut is_resident = vec![0u8; size / page_size()];
        // SAFETY: mincore(2) writes a byte for each page of the stack, which is mapped.
        let result = unsafe { libc::mincore(self.address(), size, is_resident.as_mut_ptr()) };
        assert_eq!(result, 0, "a stack is mapped");
        let untouched = is_resident.iter().take_while(|page| **page & 1 == 0).count();
        size - untouched * page_size()
    }

    /// The slot that an address is in, or in the guard region of, if it is in this slab. For a signal handler: it
    /// computes, and asks nobody. (The number of the slab is not known, and left 0.)
    pub(crate) fn around(start: usize, size: StackSize, address: usize) -> Option<Slot> {
        let offset = address.checked_sub(start).filter(|offset| *offset < slab_bytes(size))?;
        let number = offset / stride(size);
        let low = NonZeroUsize::new(start + number * stride(size) + GUARD_BYTES)?;
        Some(Slot { low, slab: 0, number: number as u16, size })
    }

    /// Where its slab starts.
    pub(crate) fn slab_start(self) -> usize {
        self.low.get() - GUARD_BYTES - usize::from(self.number) * stride(self.size)
    }

    fn address(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.low.get())
    }
}

/// Stacks of one size, in one mapping. Unmapped when dropped.
pub(crate) struct Slab {
    start: *mut c_void,
    number: u32,
    size: StackSize,
    guard: Guard,
    /// How many slots were ever taken: those before this one.
    used: usize,
    /// How many slots have a guard: those before this one.
    guarded: usize,
    /// How many guards are by `mprotect`.
    protected: usize,
    /// Slots that came back, without memory.
    cold: Vec<u16>,
    /// Where a signal handler finds it.
    entry: &'static label::Entry,
    /// What valgrind was told, of every slot that has a guard. Nothing, and no time, where there is no valgrind.
    registrations: Vec<ValgrindStackRegistration>,
}

impl Slab {
    /// Maps a slab. It takes no memory yet.
    pub(crate) fn map(number: u32, size: StackSize, guard: Guard) -> io::Result<Slab> {
        let bytes = slab_bytes(size);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
        // SAFETY: a fresh anonymous mapping, at a place the kernel chooses.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
        let start = start.map_err(|error| cannot_map(size, error))?;
        // A huge page would make 2 MiB of the first byte. EINVAL: a kernel that has none.
        // SAFETY: the mapping of a line ago.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxNoHugepage) };
        Ok(Slab {
            start,
            number,
            size,
            guard,
            used: 0,
            guarded: 0,
            protected: 0,
            cold: Vec::new(),
            entry: label::Entry::new(start.expose_provenance(), size),
            registrations: Vec::new(),
        })
    }

    /// Takes a slot out that has no memory: one that came back, or the next unused.
    pub(crate) fn take(&mut self) -> io::Result<Slot> {
        let number = match self.cold.pop() {
            Some(number) => number,
            None => self.take_unused()?,
        };
        let low = self.low(number.into()).expose_provenance();
        let low = NonZeroUsize::new(low).expect("a mapping is not at address zero");
        Ok(Slot { low, slab: self.number, number, size: self.size })
    }

    /// Takes a slot back, and all memory of it.
    pub(crate) fn put_back(&mut self, slot: Slot) {
        slot.empty(0);
        self.cold.push(slot.number);
    }

    /// Whether [`take`](Slab::take) will find one.
    pub(crate) fn has_room(&self) -> bool {
        !self.cold.is_empty() || self.used < slots(self.size)
    }

    /// Whether every slot is here.
    pub(crate) fn is_idle(&self) -> bool {
        self.cold.len() == self.used
    }

    /// How the guards are made, as far as it is known.
    pub(crate) fn guard(&self) -> Guard {
        self.guard
    }

    fn take_unused(&mut self) -> io::Result<u16> {
        assert!(self.used < slots(self.size), "a full slab is not asked");
        if self.used == self.guarded {
            self.guard_batch()?;
        }
        self.used += 1;
        Ok((self.used - 1) as u16)
    }

    fn guard_batch(&mut self) -> io::Result<()> {
        let stride = stride(self.size);
        let count = GUARDS_PER_CALL.min(slots(self.size) - self.guarded);
        let first = self.start.wrapping_byte_add(self.guarded * stride);
        // SAFETY: all within our mapping, below slots that were never taken.
        self.protected += unsafe { guard::install(&mut self.guard, first, stride, count)? };
        for number in self.guarded..self.guarded + count {
            let (low, bytes) = (self.low(number), self.size.bytes());
            self.registrations.push(ValgrindStackRegistration::new(low.cast(), bytes));
        }
        self.guarded += count;
        Ok(())
    }

    /// The lowest address of a stack.
    fn low(&self, number: usize) -> *mut c_void {
        self.start.wrapping_byte_add(number * stride(self.size) + GUARD_BYTES)
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        self.entry.vacate();
        // SAFETY: mapped by `map` with this size. Whoever takes a slot keeps the pool alive, and the pool keeps
        // slabs that are not idle.
        let result = unsafe { munmap(self.start, slab_bytes(self.size)) };
        debug_assert!(result.is_ok(), "cannot unmap a slab: {result:?}");
        guard::forget(self.protected);
    }
}

/// Asked for once, before there is a slab: who computes with it may be a signal handler.
fn page_size() -> usize {
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    let known = BYTES.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // Not rustix's, which looks for it where valgrind hides it.
    // SAFETY: sysconf(3) has no conditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize };
    BYTES.store(bytes, Ordering::Relaxed);
    bytes
}

/// From one slot to the next: an odd number of pages, for which one is left free. A processor keeps what it knows
/// of a page where the low bits of the page's number say; if all first pages had these in common, they would
/// compete for a few places out of thousands (W6: a switch among a thousand takes 5 ns instead of 8).
fn stride(size: StackSize) -> usize {
    GUARD_BYTES + size.bytes() + page_size()
}

/// How many slots a slab has.
fn slots(size: StackSize) -> usize {
    (SLAB_BYTES / stride(size)).clamp(1, SLOTS_PER_SLAB)
}

fn slab_bytes(size: StackSize) -> usize {
    slots(size) * stride(size)
}

fn cannot_map(size: StackSize, error: Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("cannot map {} stacks of {size}: {error}", slots(size)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;
    use std::os::fd::AsRawFd;

    /// Whether the kernel can read each page of a range, which it tells without a signal.
    fn readable(start: usize, bytes: usize) -> Vec<bool> {
        let (_reader, writer) = pipe().unwrap();
        let pages = (start..start + bytes).step_by(page_size());
        pages
            .map(|page| {
                // SAFETY: write(2) says EFAULT of memory it cannot read.
                let written = unsafe { libc::write(writer.as_raw_fd(), page as *const c_void, 1) };
                written == 1
            })
            .collect()
    }

    #[test]
    fn s44_below_every_stack_is_a_guard_that_faults() {
        for guard in [Guard::Install, Guard::Protect] {
            let mut slab = Slab::map(0, StackSize::SMALL, guard).unwrap();
            for _ in 0..100 {
                let slot = slab.take().unwrap();
                let below = readable(slot.low.get() - GUARD_BYTES, GUARD_BYTES);
                assert!(!below.is_empty() && below.iter().all(|readable| !readable), "{guard:?}");
                let above = readable(slot.low.get(), slot.size.bytes());
                assert!(above.iter().all(|readable| *readable), "{guard:?}");
            }
        }
    }

    #[test]
    fn stacks_are_an_odd_number_of_pages_apart() {
        for rank in 0..StackSize::COUNT {
            let apart = stride(StackSize::of_rank(rank));
            assert_eq!((apart % page_size(), apart / page_size() % 2), (0, 1));
        }
    }

    #[test]
    fn s44_guards_stay_when_memory_goes() {
        let mut slab = Slab::map(0, StackSize::SMALL, Guard::best()).unwrap();
        let slot = slab.take().unwrap();
        slab.put_back(slot);
        assert!(slab.is_idle());
        let again = slab.take().unwrap();
        assert_eq!(again.low, slot.low);
        let below = readable(slot.low.get() - GUARD_BYTES, GUARD_BYTES);
        assert!(below.iter().all(|readable| !readable));
    }

    #[test]
    fn an_address_leads_to_its_slot() {
        let mut slab = Slab::map(0, StackSize::SMALL, Guard::best()).unwrap();
        let slots = [slab.take().unwrap(), slab.take().unwrap()];
        for slot in slots {
            let (low, top) = (slot.low.get(), slot.low.get() + slot.size.bytes());
            for address in [low - GUARD_BYTES, low - 1, low, top - 1] {
                assert_eq!(label::find(address).unwrap().low, slot.low);
            }
            assert_eq!(slot.slab_start(), slab.start.addr());
        }
        let start = slab.start.addr();
        drop(slab);
        assert!(label::find(start).is_none(), "it is unmapped");
    }
}
