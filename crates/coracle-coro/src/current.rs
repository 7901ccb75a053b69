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

use crate::budget::Budget;
use crate::extras::Extras;
use crate::leak::Family;
use crate::scheduler::Scheduler;
use crate::seeing::look;
use crate::sleeper::Sleeper;
use crate::task::{Listed, State};
use crate::waiter::REFUSAL;
use crate::waits_for::WaitsFor;
use coracle_loop::Loop;
use coracle_loop::demux::{Awaited, Landing};
use coracle_stack::Yielder;
use std::cell::{Cell, OnceCell};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, offset_of};
use std::ops::Deref;
use std::ptr::{NonNull, null};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};
use std::time::Instant;

thread_local! {
    /// The coroutine that runs on this thread. Has no destructor, and needs no initialisation.
    static CURRENT: Cell<*const Frame> = const { Cell::new(null()) };
}

/// What a coroutine knows of itself.
pub(crate) struct Frame {
    /// That of the task, lent.
    pub(crate) sleeper: ManuallyDrop<Arc<Sleeper>>,
    task: Listed,
    scheduler: NonNull<Scheduler>,
    /// Its loop. It does not count: a loop is not kept alive by its coroutines.
    lp: ManuallyDrop<Loop>,
    yielder: NonNull<Yielder<(), ()>>,
    /// The wait it is in, or was in last.
    pub(crate) waiting: Cell<Waiting>,
    /// What few have.
    pub(crate) extras: OnceCell<Box<Extras>>,
    /// The earliest [deadline](crate::deadline()) around what runs now.
    pub(crate) deadline: Cell<Option<Instant>>,
    /// How many waits have failed because it is cancelled.
    pub(crate) cancelled_waits: Cell<u32>,
    /// How much it has done since it last waited.
    pub(crate) budget: Budget,
    /// How many waits have been cut short, for whatever reason: see `failures.rs`.
    pub(crate) failed_waits: Cell<u64>,
    /// How many [`no_park`](crate::no_park())s are around what runs now.
    pub(crate) no_park: Cell<u32>,
    /// If it is not zero, hooked calls are as they are without hooks: see `hooking.rs`.
    pub(crate) unhooked: Cell<u32>,
    /// How many [shields](crate::shield()) are around what runs now.
    pub(crate) shields: Cell<u32>,
    /// Those who must not go on before it is over.
    pub(crate) family: Cell<Option<Rc<dyn Family>>>,
    /// Where a receive or a send lands that it waits for.
    pub(crate) landing: Landing,
}

/// What a coroutine waits for, and since when.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) what: WaitsFor,
    pub(crate) since: Instant,
}

/// What the coroutine of `task`, of `scheduler`, whose loop is `lp`, runs on its stack.
#[inline]
pub(crate) fn body(
    scheduler: &Scheduler,
    lp: &Loop,
    task: Listed,
) -> impl FnOnce(&Yielder<(), ()>, ()) + 'static {
    let scheduler = NonNull::from(scheduler);
    // SAFETY: a copy that does not count, is never dropped, and is used by the coroutine only. It runs in turns of
    // this loop, which is owned for the length of a turn; when the loop is gone, its coroutines run no more.
    let lp = ManuallyDrop::new(unsafe { std::ptr::read(lp) });
    move |yielder: &Yielder<(), ()>, ()| {
        // SAFETY: this is called by `Scheduler::resume`.
        let since = unsafe { scheduler.as_ref() }.now();
        // SAFETY: a second one of the same count, which is not given back. The task keeps the first as long as it
        // is the task of this coroutine, and the table of the scheduler keeps the task until that is over.
        let sleeper = ManuallyDrop::new(unsafe { std::ptr::read(task.sleeper_ref()) });
        let frame = Frame {
            sleeper,
            task,
            scheduler,
            lp,
            yielder: NonNull::from(yielder),
            waiting: Cell::new(Waiting { what: WaitsFor::Something, since }),
            extras: OnceCell::new(),
            deadline: Cell::new(None),
            cancelled_waits: Cell::new(0),
            budget: Budget::new(),
            failed_waits: Cell::new(0),
            no_park: Cell::new(0),
            unhooked: Cell::new(0),
            shields: Cell::new(0),
            family: Cell::new(None),
            landing: Landing::new(go_on_landed),
        };
        let _left = Left; // dropped before the frame
        compiler_fence(Ordering::Release); // a signal handler may look, too: `seeing/sample.rs`
        CURRENT.set(&frame);
        // SAFETY: the task was loaded before it was started, which is now; and the frame stays here until the end.
        unsafe { frame.task.run(&frame) };
        if let Some(extras) = frame.extras.get() {
            extras.clear();
        }
    }
}

/// The coroutine has come to its end.
struct Left;

impl Drop for Left {
    fn drop(&mut self) {
        CURRENT.set(null());
    }
}

/// Runs a coroutine that waits for what has landed, unless something else has ended its wait.
///
/// # Safety
/// The landing is that of a frame, was [lent](Frame::lend_landing), and this is a turn of its loop.
#[inline]
unsafe fn go_on_landed(landing: NonNull<Landing>) {
    // SAFETY: it is within a frame, and its pointer was made of that of the frame.
    let frame = unsafe { landing.byte_sub(offset_of!(Frame, landing)) }.cast::<Frame>();
    // SAFETY: its coroutine has waited since it was lent, and this is a turn of its loop.
    unsafe { go_on(frame) };
}

/// Runs a coroutine whose operation has landed, unless something else has ended its wait. Nothing of a
/// descriptor's is held here: the coroutine may be its last owner, and drop it.
///
/// # Safety
/// This is a turn of its loop, and it has not gone on since it waits for what has landed.
#[inline(always)]
pub(crate) unsafe fn go_on(coroutine: NonNull<Frame>) {
    // SAFETY: it is parked, so that its frame is there; not for long, if this is its end.
    let frame = unsafe { coroutine.as_ref() };
    // SAFETY: a loop keeps its scheduler, and this is a turn of it.
    let scheduler = unsafe { &*std::ptr::from_ref(frame.scheduler()) };
    scheduler.resume_now(frame.task());
}

/// Who ran before: a coroutine may run a loop of its own, whose coroutines run while it does.
pub(crate) struct Outer(*const Frame);

/// To be [restored](Outer::restore) after another coroutine was resumed.
#[inline]
pub(crate) fn outer() -> Outer {
    Outer(CURRENT.get())
}

impl Outer {
    #[inline]
    pub(crate) fn restore(self) {
        CURRENT.set(self.0);
    }
}

/// Calls `look` with the coroutine that runs on this thread, if one does.
#[inline]
pub(crate) fn with<R>(look: impl FnOnce(Option<&Frame>) -> R) -> R {
    // SAFETY: if it is not null, then it is the frame of the coroutine that calls this, at the base of the
    // stack that it runs on; so it is there until this returns. It is only ever shared.
    look(unsafe { CURRENT.get().as_ref() })
}

/// Whoever calls, for the length of one wait: a coroutine, whose frame keeps what is lent here, or a thread.
pub(crate) struct Caller {
    sleeper: ManuallyDrop<Arc<Sleeper>>,
    is_lent: bool,
    /// It stays on its thread.
    thread: PhantomData<*const ()>,
}

impl Caller {
    /// It must not be kept when the coroutine is over; in this crate it is always a local of who waits.
    #[inline]
    pub(crate) fn new() -> Caller {
        with(|frame| match frame {
            Some(frame) => Caller::of(frame),
            None => Caller::of_thread(),
        })
    }

    /// The same for who is known to be the coroutine with this frame.
    #[inline]
    pub(crate) fn of(frame: &Frame) -> Caller {
        // SAFETY: a second one of the same count, which is not given back. The frame keeps the first until the
        // coroutine is over, and this is a local of that coroutine.
        let sleeper = ManuallyDrop::new(unsafe { std::ptr::read(&*frame.sleeper) });
        Caller { sleeper, is_lent: true, thread: PhantomData }
    }

    #[cold]
    fn of_thread() -> Caller {
        let sleeper = ManuallyDrop::new(Sleeper::of_this_thread());
        Caller { sleeper, is_lent: false, thread: PhantomData }
    }

    /// A second one of the same count.
    ///
    /// # Safety
    /// It is not dropped, and not used after the caller is gone.
    #[inline]
    pub(crate) unsafe fn lend(&self) -> Arc<Sleeper> {
        // SAFETY: who calls has promised it.
        unsafe { std::ptr::read(&*self.sleeper) }
    }
}

impl Deref for Caller {
    type Target = Arc<Sleeper>;

    #[inline]
    fn deref(&self) -> &Arc<Sleeper> {
        &self.sleeper
    }
}

impl Drop for Caller {
    #[inline]
    fn drop(&mut self) {
        if !self.is_lent {
            // SAFETY: it is ours, and not used after this.
            unsafe { ManuallyDrop::drop(&mut self.sleeper) };
        }
    }
}

impl Frame {
    #[inline]
    pub(crate) fn scheduler(&self) -> &Scheduler {
        // SAFETY: a coroutine runs only inside `Scheduler::resume`, for the length of which its scheduler,
        // which does not move, is borrowed. Who looks at a frame from outside the coroutine does so in a turn of
        // its loop, which keeps the scheduler.
        unsafe { self.scheduler.as_ref() }
    }

    #[inline]
    pub(crate) fn task(&self) -> Listed {
        self.task
    }

    /// Leaves the coroutine until the wait with this ticket has ended.
    #[inline]
    pub(crate) fn wait(&self, ticket: u64, waits_for: WaitsFor) {
        let task = self.task;
        task.ticket.set(ticket);
        self.waiting.set(Waiting { what: waits_for, since: self.scheduler().now() });
        task.state.set(State::Waiting);
        self.budget.renew();
        self.suspend();
    }

    /// Lends its landing for one receive or send.
    ///
    /// # Safety
    /// The coroutine waits until that has landed.
    #[inline]
    pub(crate) unsafe fn lend_landing(&self) -> Awaited {
        // SAFETY: the landing is within the frame.
        let landing = unsafe { NonNull::from(self).byte_add(offset_of!(Frame, landing)) };
        // SAFETY: the frame stays where it is until the coroutine is over, which waits meanwhile, as who calls has
        // promised; and the function is the one for landings of frames.
        unsafe { Awaited::new(landing.cast()) }
    }

    /// Leaves the coroutine until all that are ready now have had their turn.
    #[inline(always)]
    pub(crate) fn give_way(&self) {
        if self.scheduler().is_forked() {
            return; // nobody would come back to it
        }
        self.scheduler().push(self.task);
        self.suspend();
    }

    /// Leaves the coroutine until its loop has had a turn, with timers and all.
    #[cold]
    pub(crate) fn give_way_to_the_loop(&self) {
        let key = self.task.key();
        self.task.state.set(State::Ready);
        self.lp().defer(move |lp| {
            let scheduler = Scheduler::of(lp);
            scheduler.rows.renew();
            scheduler.push_again(key);
        });
        self.suspend();
    }

    /// Whether it keeps nobody waiting if it goes on for a moment.
    pub(crate) fn has_a_moment(&self) -> bool {
        self.no_park.get() == 0
            && self.scheduler().has_nobody_ready()
            && self.scheduler().is_turning()
    }

    /// Leaves the coroutine for good.
    #[cold]
    pub(crate) fn leave(&self) -> ! {
        self.task.ticket.set(0);
        self.task.state.set(State::Leaked);
        self.scheduler().note_leak(&self.sleeper);
        // SAFETY: this is the coroutine, and it does not come back to leave a result.
        unsafe { self.sleeper.ending.leak() };
        loop {
            self.suspend();
        }
    }

    /// Always inlined: the processor mispredicts the return of every function that a switch lies in.
    #[inline(always)]
    fn suspend(&self) {
        if let Some(extras) = self.extras.get() {
            extras.spans.pause(self);
        }
        CURRENT.set(null());
        // SAFETY: the yielder is on the same stack as this frame, in the function that called the one whose
        // frame this is.
        unsafe { self.yielder.as_ref() }.suspend(());
        if look::is_asked() {
            self.answer();
        }
        CURRENT.set(self);
        if let Some(extras) = self.extras.get() {
            extras.spans.go_on(self);
        }
    }

    /// What few have, made when somebody needs it.
    pub(crate) fn extras(&self) -> &Extras {
        self.extras.get_or_init(Box::default)
    }

    /// Tells those who only look where it is, until it is resumed to go on. Apart, to keep the switch small.
    #[cold]
    #[inline(never)]
    fn answer(&self) {
        while look::is_asked() {
            look::answer(std::ptr::from_ref(self).addr());
            // SAFETY: as in `suspend`.
            unsafe { self.yielder.as_ref() }.suspend(());
        }
    }

    /// # Panics
    /// Inside [`no_park`](crate::no_park()), and in a callback of a loop that the coroutine itself runs.
    #[inline]
    pub(crate) fn assert_may_park(&self) {
        assert!(
            self.no_park.get() == 0,
            "a wait inside `no_park`, or in a subscriber of `tracing` that is told of a span while its coroutine \
             is about to wait: what is in there must not be interrupted by other coroutines"
        );
        assert!(self.scheduler().is_turning(), "{REFUSAL}");
    }

    /// Whether who calls is on the stack that it began on: this frame is at the base of that.
    #[inline]
    pub(crate) fn is_on_own_stack(&self) -> bool {
        let here = 0_u8;
        let depth = std::ptr::from_ref(self).addr().wrapping_sub((&raw const here).addr());
        depth < self.task.size.get().bytes()
    }

    /// The loop it is on.
    #[inline]
    pub(crate) fn lp(&self) -> &Loop {
        &self.lp
    }

    #[inline]
    pub(crate) fn is_shielded(&self) -> bool {
        self.shields.get() > 0
    }
}
