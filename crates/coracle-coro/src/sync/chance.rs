//! Which of several arms is tried first.
//!
//! Any fixed order would starve those at its end, and taking turns does so when two selects take turns with
//! each other. So it is drawn, from a stream of numbers that each thread has, and that always begins the same:
//! what runs in a simulator runs twice in the same way.

use std::cell::Cell;

thread_local! {
    static STATE: Cell<u32> = const { Cell::new(0x2545_F491) };
}

/// What tells this thread from the others that are there.
#[inline]
pub(crate) fn thread() -> usize {
    STATE.with(|state| std::ptr::from_ref(state).addr())
}

/// A number below `count`.
pub(crate) fn below(count: usize) -> usize {
    STATE.with(|state| {
        // Marsaglia's xorshift.
        let mut x = state.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        state.set(x);
        x as usize % count
    })
}
