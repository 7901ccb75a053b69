//! Who runs on this thread, and how it is left: the only file that knows of a switch.
//!
//! A coroutine has its [`Frame`] at the base of its own stack. A thread-local points to it while the
//! coroutine runs, and to nothing while it does not: it is reset before a coroutine is left, and set again by
//! the coroutine itself when it is back.
//!
//! ```text
//!   the loop's stack                    the coroutine's stack
//!   Scheduler::resume ───────────────►  start: Frame made, CURRENT = &frame
//!                                         └─ body … wait … suspend: CURRENT = null
//!   CURRENT is null: callbacks run  ◄─────────┘
//!   Scheduler::resume ───────────────►        ┌─ suspend returns: CURRENT = &frame
//! ```
//!
//! Nothing of the loop and nothing of the scheduler is borrowed across a switch; what is borrowed is the
//! `Coroutine` that is resumed, which nobody else touches.
#![allow(unsafe_code)]

use crate::join::report;
use crate::local::Locals;
use crate::scheduler::Scheduler;
use crate::sleeper::Sleeper;
use crate::task::{Body, State, Task};
use crate::waiter::REFUSAL;
use coracle_stack::{Coroutine, Stack, Yielder};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

thread_local! {
    /// The coroutine that runs on this thread. Has no destructor, and needs no initialisation.
    static CURRENT: Cell<*const Frame> = const { Cell::new(null()) };
}

/// What a coroutine knows of itself.
pub(crate) struct Frame {
    pub(crate) sleeper: Arc<Sleeper>,
    task: Rc<Task>,
    scheduler: NonNull<Scheduler>,
    yielder: NonNull<Yielder<(), ()>>,
    pub(crate) locals: Locals,
    /// The earliest [deadline](crate::deadline()) around what runs now.
    pub(crate) deadline: Cell<Option<Instant>>,
    /// How many waits have failed because it is cancelled.
    pub(crate) cancelled_waits: Cell<u32>,
    /// How many [`no_park`](crate::no_park())s are around what runs now.
    pub(crate) no_park: Cell<u32>,
    /// Waits that must come to their end, whatever happens.
    pub(crate) shields: Cell<u32>,
}

/// A coroutine on `stack` that will run `body`, as the task of `scheduler`.
pub(crate) fn start(
    scheduler: &Scheduler,
    task: &Rc<Task>,
    stack: Stack,
    body: Body,
) -> Coroutine<(), (), ()> {
    let scheduler = NonNull::from(scheduler);
    let (task, sleeper) = (Rc::clone(task), task.sleeper());
    Coroutine::new(stack, move |yielder: &Yielder<(), ()>, ()| {
        let frame = Frame {
            sleeper,
            task,
            scheduler,
            yielder: NonNull::from(yielder),
            locals: Locals::default(),
            deadline: Cell::new(None),
            cancelled_waits: Cell::new(0),
            no_park: Cell::new(0),
            shields: Cell::new(0),
        };
        let _left = Left; // dropped before the frame
        CURRENT.set(&frame);
        // A panic of the body ends in the body. This is one of a destructor: of its result, which nobody wanted.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
            report(&*payload);
        }
        frame.locals.clear();
    })
}

/// The coroutine has come to its end.
struct Left;

impl Drop for Left {
    fn drop(&mut self) {
        CURRENT.set(null());
    }
}

/// Calls `look` with the coroutine that runs on this thread, if one does.
#[inline]
pub(crate) fn with<R>(look: impl FnOnce(Option<&Frame>) -> R) -> R {
    // SAFETY: if it is not null, then it is the frame of the coroutine that calls this, at the base of the
    // stack that it runs on; so it is there until this returns. It is only ever shared.
    look(unsafe { CURRENT.get().as_ref() })
}

impl Frame {
    #[inline]
    pub(crate) fn scheduler(&self) -> &Scheduler {
        // SAFETY: a coroutine runs only inside `Scheduler::resume`, for the length of which its scheduler,
        // which does not move, is borrowed. Nobody outside the coroutine has a frame.
        unsafe { self.scheduler.as_ref() }
    }

    /// Leaves the coroutine until the wait with this ticket has ended.
    pub(crate) fn wait(&self, ticket: u64) {
        self.task.ticket.set(ticket);
        self.task.state.set(State::Waiting);
        self.suspend();
    }

    /// Leaves the coroutine until all that are ready now have had their turn.
    #[inline]
    pub(crate) fn give_way(&self) {
        self.scheduler().push(Rc::clone(&self.task));
        self.suspend();
    }

    #[inline]
    fn suspend(&self) {
        CURRENT.set(null());
        // SAFETY: the yielder is on the same stack as this frame, in the function that called the one whose
        // frame this is.
        unsafe { self.yielder.as_ref() }.suspend(());
        CURRENT.set(self);
    }

    /// # Panics
    /// Inside [`no_park`](crate::no_park()), and in a callback of a loop that the coroutine itself runs.
    #[inline]
    pub(crate) fn assert_may_park(&self) {
        assert!(
            self.no_park.get() == 0,
            "a wait inside `no_park`: what is in there must not be interrupted by other coroutines"
        );
        assert!(self.scheduler().is_turning(), "{REFUSAL}");
    }

    pub(crate) fn is_shielded(&self) -> bool {
        self.shields.get() > 0
    }
}
