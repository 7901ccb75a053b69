//! The stacks of one loop: handed out, taken back, kept for the next, given up after a peak.
//!
//! ```text
//!            take: the last to come back                take: when none is warm
//!  ┌──────┐ ─────────────────────────────► ┌────────┐ ◄───────────────────────── ┌──────┐ ◄── a new slab
//!  │ warm │                                │ in use │                            │ cold │
//!  └──────┘ ◄───────────────────────────── └────────┘                            └──────┘ ──► unmapped, when all
//!      │                 drop                                                       ▲         of a slab is cold
//!      └──────── the first to come back, when trimmed, or when they are too many ───┘
//! ```
//!
//! The stack that came back last is handed out first: its pages are there, and most likely in a cache of the
//! processor's. The one that came back first is the first to lose its memory.

use crate::guard::Guard;
use crate::mapping::{Slab, Slot};
use crate::overflow;
use crate::size::StackSize;
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::rc::Rc;

/// What [`Pool::trim`] leaves of the memory of a stack that stays warm.
const KEEP_BYTES: usize = 16 << 10;

/// What can be chosen about a [`Pool`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How many stacks may be in use at a time. One more is an error of [`Pool::take`].
    pub limit_stacks: usize,
    /// How many stacks of each size are kept with their memory. When one more comes back, the one that
    /// waited longest loses its own. In debug builds 0, which costs some microseconds for each stack, and
    /// lets [`Stack::high_water`] tell of one user only.
    pub limit_warm: usize,
    /// How guard regions are made; `None` for the best that the kernel has.
    pub guard: Option<Guard>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            limit_stacks: 1 << 20,
            limit_warm: if cfg!(debug_assertions) { 0 } else { 1 << 14 },
            guard: None,
        }
    }
}

/// What a [`Pool`] has, at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Stacks that somebody has.
    pub in_use: usize,
    /// Stacks that wait with their memory.
    pub warm: usize,
    /// Mappings that stacks are cut from.
    pub slabs: usize,
}

/// The stacks of one loop. Stays on its thread, as the stacks do.
///
/// ```
/// use coracle_stack::{Pool, StackSize};
///
/// let pool = Pool::new()?;
/// let stack = pool.take(StackSize::default())?;
/// assert_eq!(pool.stats().in_use, 1);
/// drop(stack); // back to the pool
/// assert_eq!(pool.stats().in_use, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A clone is the same pool. Its mappings last until the last clone and the last stack are gone; a stack that is
/// leaked, with [`std::mem::forget`], is never handed out again.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<coracle_stack::Pool>();
/// ```
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<coracle_stack::Stack>();
/// ```
#[derive(Clone)]
pub struct Pool(Rc<Shared>);

struct Shared {
    limit_stacks: usize,
    limit_warm: usize,
    guard: Guard,
    state: RefCell<State>,
}

struct State {
    in_use: usize,
    shelves: [Shelf; StackSize::COUNT],
}

/// All stacks of one size.
#[derive(Default)]
struct Shelf {
    /// Those with memory, the last to come back at the end.
    warm: VecDeque<Slot>,
    /// How many of them, from the front, were trimmed since they came back.
    trimmed: usize,
    /// By number; a slab that was unmapped leaves a gap.
    slabs: Vec<Option<Slab>>,
    /// Slabs with room. The first is asked first, so that the last ones become idle.
    with_room: BTreeSet<u32>,
}

impl Pool {
    /// An empty pool, with the default settings.
    ///
    /// The first pool of a process installs the handler that [names stack overflows](crate#overflow), and
    /// the first of a thread gives the thread an alternate signal stack, if it has none.
    ///
    /// The first pool also says, in the log, if the kernel cannot guard a million stacks.
    ///
    /// # Errors
    /// When there is no memory for the signal stack.
    pub fn new() -> io::Result<Pool> {
        Pool::with_settings(Settings::default())
    }

    /// An empty pool.
    ///
    /// # Errors
    /// As of [`new`](Pool::new).
    pub fn with_settings(settings: Settings) -> io::Result<Pool> {
        overflow::watch()?;
        let Settings { limit_stacks, limit_warm, guard } = settings;
        let guard = guard.unwrap_or_else(Guard::best);
        let state = RefCell::new(State { in_use: 0, shelves: Default::default() });
        Ok(Pool(Rc::new(Shared { limit_stacks, limit_warm, guard, state })))
    }

    /// Hands out a stack. Dropping it gives it back.
    ///
    /// What the last user left on it is still there, as on the stack of a thread: safe code cannot see it, and a
    /// secret should be erased by whoever had it.
    ///
    /// # Errors
    /// `QuotaExceeded` when [`limit_stacks`](Settings::limit_stacks) are in use, or when guards by
    /// `mprotect` have used up what a process may map; what mmap(2) says, most likely `OutOfMemory`.
    #[inline]
    pub fn take(&self, size: StackSize) -> io::Result<Stack> {
        let mut state = self.0.state.borrow_mut();
        if state.in_use >= self.0.limit_stacks {
            return Err(too_many(state.in_use));
        }
        let shelf = &mut state.shelves[size.rank()];
        let slot = match shelf.warm.pop_back() {
            Some(slot) => {
                shelf.trimmed = shelf.trimmed.min(shelf.warm.len());
                slot
            }
            None => shelf.take_cold(size, self.0.guard)?,
        };
        state.in_use += 1;
        drop(state);
        Ok(Stack { slot, pool: self.clone(), name: None })
    }

    /// Gives memory back to the kernel after a peak: all of it, of warm stacks beyond `keep` of each size,
    /// and of the others what lies deeper than 16 KiB. Works on `limit` stacks at most, at one system call
    /// each, and returns how many there were: call it again, now and then, until it is 0.
    ///
    /// Stacks in use are not touched.
    ///
    /// ```
    /// use coracle_stack::{Pool, StackSize};
    ///
    /// let pool = Pool::new()?;
    /// drop(pool.take(StackSize::default())?);
    /// while pool.trim(0, 64) > 0 {}
    /// assert_eq!(pool.stats().warm, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn trim(&self, keep: usize, limit: usize) -> usize {
        let mut state = self.0.state.borrow_mut();
        let mut done = 0;
        for shelf in &mut state.shelves {
            while done < limit && shelf.warm.len() > keep {
                shelf.cool_one();
                done += 1;
            }
            while done < limit && shelf.trimmed < shelf.warm.len() {
                shelf.warm[shelf.trimmed].empty(KEEP_BYTES);
                shelf.trimmed += 1;
                done += 1;
            }
        }
        done
    }

    /// What the pool has now.
    pub fn stats(&self) -> Stats {
        let state = self.0.state.borrow();
        let sum = |count: fn(&Shelf) -> usize| state.shelves.iter().map(count).sum();
        Stats {
            in_use: state.in_use,
            warm: sum(|shelf| shelf.warm.len()),
            slabs: sum(|shelf| shelf.slabs.iter().flatten().count()),
        }
    }

    #[inline]
    fn give_back(&self, slot: Slot) {
        let mut state = self.0.state.borrow_mut();
        state.in_use -= 1;
        let shelf = &mut state.shelves[slot.size.rank()];
        shelf.warm.push_back(slot);
        if shelf.warm.len() > self.0.limit_warm {
            shelf.cool_one();
        }
    }
}

impl Shelf {
    /// A stack without memory: of the first slab that has one, or of a new slab.
    #[cold]
    fn take_cold(&mut self, size: StackSize, guard: Guard) -> io::Result<Slot> {
        let number = match self.with_room.first() {
            Some(number) => *number,
            None => self.map(size, guard)?,
        };
        let slab = self.slabs[number as usize].as_mut().expect("a slab with room is mapped");
        let slot = slab.take()?;
        if !slab.has_room() {
            self.with_room.remove(&number);
        }
        Ok(slot)
    }

    /// Maps another slab; returns its number.
    fn map(&mut self, size: StackSize, guard: Guard) -> io::Result<u32> {
        let gap = self.slabs.iter().position(Option::is_none);
        let number = gap.unwrap_or(self.slabs.len()) as u32;
        let slab = Some(Slab::map(number, size, guard)?);
        match gap {
            Some(gap) => self.slabs[gap] = slab,
            None => self.slabs.push(slab),
        }
        self.with_room.insert(number);
        Ok(number)
    }

    /// Takes its memory from the warm stack that waited longest. A slab that is idle then is unmapped,
    /// unless it is the last that has room.
    #[inline(never)]
    fn cool_one(&mut self) {
        let Some(slot) = self.warm.pop_front() else { return };
        self.trimmed = self.trimmed.saturating_sub(1);
        let slab =
            self.slabs[slot.slab as usize].as_mut().expect("a slab is mapped while a stack is out");
        slab.put_back(slot);
        self.with_room.insert(slot.slab);
        if slab.is_idle() && self.with_room.len() > 1 {
            self.with_room.remove(&slot.slab);
            self.slabs[slot.slab as usize] = None;
        }
    }
}

/// A stack, with a guard region below. Dropping it gives it back to its [`Pool`].
pub struct Stack {
    slot: Slot,
    pool: Pool,
    /// Its label leads to this.
    pub(crate) name: Option<Rc<str>>,
}

impl Stack {
    /// How large it is.
    pub fn size(&self) -> StackSize {
        self.slot.size
    }

    /// The most that was ever used of it, in bytes: whole pages, counted from its top.
    ///
    /// Counted since it last lost its memory: in debug builds that is when it was taken, in others former
    /// users count too (see [`limit_warm`](Settings::limit_warm)). One system call.
    pub fn high_water(&self) -> usize {
        self.slot.touched()
    }

    /// How its guard region was made.
    pub fn guard(&self) -> Guard {
        let state = self.pool.0.state.borrow();
        let slabs = &state.shelves[self.slot.size.rank()].slabs;
        slabs[self.slot.slab as usize].as_ref().expect("its slab is mapped").guard()
    }

    /// Where it is.
    #[inline]
    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }
}

impl Drop for Stack {
    #[inline]
    fn drop(&mut self) {
        self.unlabel();
        self.pool.give_back(self.slot);
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stack({} at {:#x})", self.slot.size, self.slot.low)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({:?})", self.stats())
    }
}

#[cold]
fn too_many(in_use: usize) -> io::Error {
    let text = format!("cannot take another stack: {in_use} are in use (limit_stacks)");
    io::Error::new(io::ErrorKind::QuotaExceeded, text)
}
