//! How much a coroutine may do before others have their turn.
//!
//! Most of what may wait does not have to: there is a message, the lock is free, the socket has room. Code that
//! is lucky every time would never leave its loop to anybody else, and a cancel would never strike it. So what did
//! not have to wait is counted:
//!
//! ```text
//!   operation, operation, … 64 in a row ──► the others that are ready go first
//!                                           └─ every 16th time, on one loop: also its timers, its sockets,
//!                                              and what other threads have posted
//!                         back again ─────► cancelled, or a deadline has passed? the next operation fails
//! ```
//!
//! A wait begins the count anew. Plain threads are not counted: the kernel interrupts them. Nor is what never
//! waits, as all that is called `try_…`.
//!
//! Futures are counted as well, by the poll: a future that has used up its share wakes itself, and is not ready.

use crate::current::{self, Frame};
use crate::failures;
use crate::scheduler::Scheduler;
use crate::sync::failure::Failure;
use crate::waiter::Waiter;
use coracle_loop::Loop;
use std::cell::Cell;
use std::task::{Context, Poll};
use std::thread;

/// So many operations in a row are done without a wait before whoever does them lets the others have their turn.
const OPERATIONS_IN_A_ROW: u32 = 64;

/// If that has happened so often on one loop, the loop has a turn.
const ROWS_PER_TURN: u32 = 16;

/// What looking for a moment counts, for who had what it waited for after that: it is longer than an operation is.
const LOOK: u32 = 4;

thread_local! {
    /// How much the future that is polled has done.
    static POLLED: Cell<u32> = const { Cell::new(0) };
}

/// How much a coroutine has done since it last waited.
pub(crate) struct Budget(Cell<u32>);

impl Budget {
    pub(crate) const fn new() -> Budget {
        Budget(Cell::new(0))
    }

    /// It waits, or has let the others go first.
    #[inline]
    pub(crate) fn renew(&self) {
        self.0.set(0);
    }

    /// Whether it is used up.
    #[inline]
    fn spend(&self, count: u32) -> bool {
        let spent = self.0.get().wrapping_add(count);
        self.0.set(spent);
        spent > OPERATIONS_IN_A_ROW
    }
}

/// Before an operation that may have to wait, and may fail as a wait does. Now and then the others go first; if
/// whoever calls is cancelled then, or late, it is told so, and the operation is not begun.
#[inline]
pub(crate) fn begin() -> Result<(), Failure> {
    current::with(|frame| frame.map_or(Ok(()), begin_in))
}

/// The same for who has the frame.
#[inline]
pub(crate) fn begin_in(frame: &Frame) -> Result<(), Failure> {
    if frame.budget.spend(1) { go_last_and_look(frame) } else { Ok(()) }
}

/// Before or after an operation that did not have to wait, and must not fail for this. Now and then the others go
/// first. Hold no lock.
#[inline]
pub(crate) fn share() {
    current::with(|frame| {
        if let Some(frame) = frame {
            share_in(frame);
        }
    });
}

/// The same for who has the frame.
#[inline]
pub(crate) fn share_in(frame: &Frame) {
    if frame.budget.spend(1) {
        go_last(frame);
    }
}

/// The same for who has looked for a moment, and had luck.
pub(crate) fn share_a_look(frame: &Frame) {
    if frame.budget.spend(LOOK) {
        go_last(frame);
    }
}

#[cold]
#[inline(never)]
fn go_last_and_look(frame: &Frame) -> Result<(), Failure> {
    go_last(frame);
    end_if_asked(frame)
}

/// Fails as a wait would.
fn end_if_asked(frame: &Frame) -> Result<(), Failure> {
    if !may_go_last(frame) {
        return Ok(());
    }
    if frame.sleeper.is_cancelled() && !frame.is_shielded() {
        return Failure::of(Waiter::new().wait(None)).map_or(Ok(()), Err);
    }
    if frame.deadline.get().is_some_and(|limit| limit <= frame.scheduler().now()) {
        failures::note();
        return Err(Failure::TimedOut);
    }
    Ok(())
}

/// Lets the others go first, where that may be; else as soon as it may.
#[cold]
#[inline(never)]
fn go_last(frame: &Frame) {
    if !may_go_last(frame) {
        return;
    }
    frame.budget.renew();
    if frame.scheduler().rows.count() {
        frame.give_way_to_the_loop();
    } else {
        frame.give_way();
    }
}

fn may_go_last(frame: &Frame) -> bool {
    frame.no_park.get() == 0
        && !thread::panicking()
        && frame.scheduler().is_turning()
        && !frame.scheduler().is_forked()
}

/// How many rows the coroutines and futures of a loop have come to the end of, since the loop last had a turn for
/// that.
#[derive(Default)]
pub(crate) struct Rows(Cell<u32>);

impl Rows {
    /// One more. Whether the loop is to have a turn.
    fn count(&self) -> bool {
        self.0.set(self.0.get() + 1);
        self.0.get() >= ROWS_PER_TURN
    }

    /// The loop had its turn.
    pub(crate) fn renew(&self) {
        self.0.set(0);
    }
}

/// Whoever polls a future begins.
#[inline]
pub(crate) fn begin_poll() {
    POLLED.set(0);
}

/// Before a future does what may be ready at once. If it is `Pending`, it will be polled again.
#[inline]
pub(crate) fn poll(cx: &Context<'_>) -> Poll<()> {
    let spent = POLLED.get() + 1;
    POLLED.set(spent);
    if spent > OPERATIONS_IN_A_ROW { poll_later(cx) } else { Poll::Ready(()) }
}

#[cold]
#[inline(never)]
fn poll_later(cx: &Context<'_>) -> Poll<()> {
    begin_poll();
    match Loop::current() {
        Some(lp) if Scheduler::of(&lp).rows.count() => {
            let waker = cx.waker().clone();
            lp.defer(move |lp| {
                Scheduler::of(lp).rows.renew();
                waker.wake();
            });
        }
        _ => cx.waker().wake_by_ref(),
    }
    Poll::Pending
}
