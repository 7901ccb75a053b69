//! Where a coroutine is that does not run: it is asked, and answers from its own stack.
//!
//! A coroutine that waits, or that gave way, sits in one place of our own code: in `Frame::suspend`. It is
//! resumed there with a note that somebody only looks. It then walks up its own stack, as any panic does,
//! leaves the addresses it has found, and suspends itself again. The wait it is in does not notice: its
//! ticket, its state and its place in every queue are as before, and whoever would have woken it still will.
//!
//! ```text
//!   look ── resume ──► suspend returns ── asked? ─ yes ─► walk, leave addresses ─► suspend ──► look returns
//!                                            └─ no: it is woken, and goes on
//! ```

use super::trace::{LIMIT_FRAMES, Trace};
use crate::task::{State, Task};
use coracle_stack::{CoroutineResult, stack_around};
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// What must be left of a stack for walking up on it. It takes about a quarter of that.
const ROOM_BYTES: usize = 16 << 10;

thread_local! {
    /// Who is resumed now is only asked where it is.
    static ASKED: Cell<bool> = const { Cell::new(false) };
    /// What it has answered.
    static ANSWER: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Whether the coroutine that was resumed just now is only asked where it is.
#[inline]
pub(crate) fn is_asked() -> bool {
    ASKED.get()
}

/// Asks a coroutine where it is. `None` if it was not started, if it runs, or if it has too little stack left
/// to answer.
pub(super) fn look(task: &Task) -> Option<Trace> {
    if task.state.get() == State::New {
        return None; // there may be a stack of the one before
    }
    let mut place = task.coroutine.borrow_mut();
    let coroutine = place.as_mut()?;
    // Memory is taken here, and not on a stack that may be small.
    ANSWER.with_borrow_mut(|answer| {
        answer.clear();
        answer.reserve(LIMIT_FRAMES);
    });
    ASKED.set(true);
    let asking = Asking;
    let result = coroutine.resume(());
    drop(asking);
    assert!(matches!(result, CoroutineResult::Yield(())), "who is asked stays where it is");
    let addresses = ANSWER.take();
    if addresses.is_empty() { None } else { Some(Trace::new(addresses)) }
}

/// Somebody is asked, until this is dropped.
struct Asking;

impl Drop for Asking {
    fn drop(&mut self) {
        ASKED.set(false);
    }
}

/// Answers. `base` is an address on the stack that the coroutine began on: what is below that is its
/// scheduler's.
#[cold]
#[inline(never)]
pub(crate) fn answer(base: usize) {
    let here = (&raw const base).addr();
    let room = stack_around(here).map_or(0, |stack| here - stack.start);
    if room >= ROOM_BYTES {
        ANSWER.with_borrow_mut(|answer| walk(stack_around(base), answer));
    }
}

/// Where the coroutine is that calls, or the callback.
pub(super) fn look_at_caller(base: Option<usize>) -> Trace {
    let mut addresses = Vec::with_capacity(LIMIT_FRAMES);
    walk(base.and_then(stack_around), &mut addresses);
    Trace::new(addresses)
}

/// Walks up from here, to the end of the stack `base` if there is one.
fn walk(base: Option<Range<usize>>, addresses: &mut Vec<usize>) {
    let mut reached = false;
    backtrace::trace(|frame| {
        let is_in_base = base.as_ref().is_some_and(|base| base.contains(&frame.sp().addr()));
        if reached && !is_in_base {
            return false;
        }
        reached |= is_in_base;
        addresses.push(frame.ip().addr());
        addresses.len() < LIMIT_FRAMES
    });
}
