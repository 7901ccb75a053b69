//! How much of their stacks coroutines use, by the line that spawned them. In debug builds only.

use crate::scheduler::Scheduler;
use coracle_loop::Loop;
use coracle_stack::Stack;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;

/// What coroutines that were spawned in one place have used of their stacks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackUse {
    /// The place.
    pub spawned: Location<'static>,
    /// How many of them are over. Those that are not do not count yet.
    pub coroutines: u64,
    /// The most that one has used, in whole pages.
    pub most_bytes: usize,
    /// How large its stack was.
    pub stack_bytes: usize,
}

/// `src/main.rs:7:5: 12 KiB of 192 KiB at most, by 3 coroutines`
impl fmt::Display for StackUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StackUse { spawned, coroutines, most_bytes, stack_bytes } = self;
        let (most, stack) = (most_bytes >> 10, stack_bytes >> 10);
        write!(f, "{spawned}: {most} KiB of {stack} KiB at most, by {coroutines} coroutines")
    }
}

/// What the coroutines of this loop that are over have used of their stacks, by the line that spawned them; who
/// has used most comes first.
///
/// In debug builds only, where it costs a system call for each coroutine; in others, and outside a loop, it is
/// empty. Frames are smaller in release builds. If a [setting](crate::set_stacks) has stacks kept warm, what
/// former users of a stack have used counts as well.
///
/// ```
/// coracle_coro::run(|| {
///     coracle_coro::spawn(|| ()).join().unwrap();
///     for place in coracle_coro::stack_use() {
///         println!("{place}");
///     }
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn stack_use() -> Vec<StackUse> {
    let places = Loop::current().map(|lp| Scheduler::of(&lp).census().list());
    places.unwrap_or_default()
}

/// The use of all places of a loop: there are as many as lines of the program that spawn.
#[derive(Default)]
pub(crate) struct Census {
    places: RefCell<BTreeMap<Location<'static>, StackUse>>,
}

impl Census {
    /// A coroutine is over.
    pub(crate) fn note(&self, spawned: Location<'static>, stack: &Stack) {
        let (most_bytes, stack_bytes) = (stack.high_water(), stack.size().bytes());
        let mut places = self.places.borrow_mut();
        let new = StackUse { spawned, coroutines: 0, most_bytes, stack_bytes };
        let place = places.entry(spawned).or_insert(new);
        place.coroutines += 1;
        if most_bytes > place.most_bytes {
            (place.most_bytes, place.stack_bytes) = (most_bytes, stack_bytes);
        }
    }

    fn list(&self) -> Vec<StackUse> {
        let mut list: Vec<StackUse> = self.places.borrow().values().cloned().collect();
        list.sort_by_key(|place| std::cmp::Reverse(place.most_bytes));
        list
    }
}
