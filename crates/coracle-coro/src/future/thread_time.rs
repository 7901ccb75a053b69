//! Timers of futures in a plain thread, which has no loop: [`block_on`](super::block_on()) waits until the next
//! is due.

use super::time::AlarmState;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Instant;

thread_local! {
    /// When, and who is to be told. As many as there are sleeping futures in one `block_on`.
    static ALARMS: RefCell<Vec<(Instant, Weak<AlarmState>)>> = const { RefCell::new(Vec::new()) };
    /// How many `block_on`s of this thread are under way, one inside the other.
    static BLOCKING: Cell<u32> = const { Cell::new(0) };
}

/// Says that somebody will [ring](ring_due), until it is dropped.
pub(super) struct Blocking;

impl Blocking {
    pub(super) fn begin() -> Blocking {
        BLOCKING.set(BLOCKING.get() + 1);
        Blocking
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        BLOCKING.set(BLOCKING.get() - 1);
    }
}

/// Sets an alarm for this thread. False if nobody would ring it.
pub(super) fn set(deadline: Instant, state: &Rc<AlarmState>) -> bool {
    let somebody = BLOCKING.get() > 0;
    if somebody {
        ALARMS.with_borrow_mut(|alarms| alarms.push((deadline, Rc::downgrade(state))));
    }
    somebody
}

/// When the next one is due whose future still waits.
pub(super) fn next() -> Option<Instant> {
    ALARMS.with_borrow_mut(|alarms| {
        alarms.retain(|(_, state)| state.strong_count() > 0);
        alarms.iter().map(|(deadline, _)| *deadline).min()
    })
}

/// Rings those that are due.
pub(super) fn ring_due() {
    let now = Instant::now();
    let mut due = Vec::new();
    ALARMS.with_borrow_mut(|alarms| {
        alarms.retain(|(deadline, state)| {
            let later = *deadline > now;
            if !later {
                due.push((*deadline, state.clone()));
            }
            later
        });
    });
    due.sort_by_key(|(deadline, _)| *deadline);
    // When nothing is borrowed: a waker is somebody else's code.
    for (_, state) in due {
        if let Some(state) = state.upgrade() {
            state.ring();
        }
    }
}
