//! Whose stack is it? Found from an address alone, by a signal handler.
//!
//! A stack's name is not kept by whoever runs, because then every switch would have to say who runs now. It
//! is written on the stack itself, above everything else. From an address to the name it is three steps:
//! which slab is it in (the list of all slabs, here), which slot of it (a division), and what is written at
//! that slot's top.
//!
//! ```text
//!  LIST ─► entry ─► entry ─► entry ─► ∅        added at the front, never removed: one whose slab is gone
//!          start    start    start             has a start of zero, and is used for the next
//! ```
#![allow(unsafe_code)]

use crate::mapping::Slot;
use crate::pool::Stack;
use crate::size::StackSize;
use std::ops::Range;
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// What is reserved for the label at the top of a stack: a line of the processor's cache, which no frame shares.
pub(crate) const LABEL_BYTES: usize = 64;

/// What is written there. All zero, as memory comes from the kernel, is no name.
struct Label {
    name: *const u8,
    len: usize,
}

impl Stack {
    /// What whoever runs on it is called.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Names whoever runs on it, for the message about an [overflow](crate#overflow). The name is gone when
    /// the stack is given back.
    ///
    /// ```
    /// # use coracle_stack::{Pool, StackSize};
    /// let pool = Pool::new()?;
    /// let mut stack = pool.take(StackSize::default())?;
    /// stack.set_name("resolver");
    /// assert_eq!(stack.name(), Some("resolver"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_name(&mut self, name: impl Into<Rc<str>>) {
        let name = name.into();
        self.write_label(&name);
        self.name = Some(name);
    }

    /// Takes the name off.
    #[inline]
    pub(crate) fn unlabel(&mut self) {
        if self.name.is_some() {
            self.write_label("");
        }
    }

    fn write_label(&mut self, name: &str) {
        let label = Label { name: name.as_ptr(), len: name.len() };
        // SAFETY: the place is in our stack, is large enough, and aligned as pages are.
        unsafe { place(self.slot()).write(label) };
    }
}

/// Reads what is written on a stack.
///
/// # Safety
/// Somebody has the slot, and changes nothing meanwhile.
pub(crate) unsafe fn read<'a>(slot: Slot) -> &'a str {
    // SAFETY: the memory is mapped as long as somebody has the slot. It is zero, or a label whose name the
    // `Stack` has.
    unsafe {
        let Label { name, len } = place(slot).read();
        if len == 0 { "" } else { str::from_utf8_unchecked(std::slice::from_raw_parts(name, len)) }
    }
}

fn place(slot: Slot) -> *mut Label {
    std::ptr::with_exposed_provenance_mut(slot.low.get() + slot.size.bytes() - LABEL_BYTES)
}

/// A slab, in the list of all. Entries are never freed.
pub(crate) struct Entry {
    /// Where the slab starts; zero if there is none, one while it is being entered.
    start: AtomicUsize,
    size: AtomicUsize,
    next: AtomicPtr<Entry>,
}

/// The slabs of the process.
static LIST: AtomicPtr<Entry> = AtomicPtr::new(null_mut());

/// How many entries have no slab.
static VACANT: AtomicUsize = AtomicUsize::new(0);

impl Entry {
    /// Enters a slab into the list.
    pub(crate) fn new(start: usize, size: StackSize) -> &'static Entry {
        let entry = vacant().unwrap_or_else(|| {
            let start = AtomicUsize::new(1);
            let next = AtomicPtr::default();
            let entry: &'static Entry =
                Box::leak(Box::new(Entry { start, size: AtomicUsize::new(0), next }));
            let mut first = LIST.load(Ordering::Acquire);
            loop {
                entry.next.store(first, Ordering::Relaxed);
                let us = std::ptr::from_ref(entry).cast_mut();
                match LIST.compare_exchange_weak(first, us, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => break entry,
                    Err(other) => first = other,
                }
            }
        });
        entry.size.store(size.rank(), Ordering::Relaxed);
        entry.start.store(start, Ordering::Release);
        entry
    }

    /// Says that the slab is about to go.
    pub(crate) fn vacate(&self) {
        self.start.store(0, Ordering::Release);
        VACANT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Takes an entry whose slab is gone, if there is one.
fn vacant() -> Option<&'static Entry> {
    let take = |count: usize| count.checked_sub(1);
    VACANT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
    let is_taken = |entry: &&Entry| {
        entry.start.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    // None: another thread took it, and has left one behind us in the list, which is for the next who asks.
    entries().find(is_taken).or_else(|| {
        VACANT.fetch_add(1, Ordering::Relaxed);
        None
    })
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    // SAFETY: an entry that is in the list was leaked before it came there.
    let at = |entry: &AtomicPtr<Entry>| unsafe { entry.load(Ordering::Acquire).as_ref() };
    std::iter::successors(at(&LIST), move |entry| at(&entry.next))
}

/// The slot that an address is in, guard regions included, if it is in any. No lock, no allocation.
pub(crate) fn find(address: usize) -> Option<Slot> {
    entries().find_map(|entry| {
        let start = entry.start.load(Ordering::Acquire);
        let size = StackSize::of_rank(entry.size.load(Ordering::Relaxed));
        if start <= 1 { None } else { Slot::around(start, size, address) }
    })
}

/// The stack that an address is on, if it is one of ours: from its end to its beginning. Any thread; no lock, no
/// allocation.
///
/// ```
/// use coracle_stack::{Pool, StackSize, on_stack, stack_around};
///
/// let pool = Pool::new()?;
/// let mut stack = pool.take(StackSize::default())?;
/// let left = on_stack(&mut stack, || {
///     let here = 0u8;
///     let here = (&raw const here).addr();
///     stack_around(here).map(|stack| here - stack.start)
/// });
/// assert!(left.unwrap() > 128 << 10);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn stack_around(address: usize) -> Option<Range<usize>> {
    let slot = find(address)?;
    let stack = slot.low.get()..slot.low.get() + slot.size.bytes();
    stack.contains(&address).then_some(stack)
}
