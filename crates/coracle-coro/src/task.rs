//! A coroutine, as its scheduler has it: not started, ready, running, or waiting.
//!
//! ```text
//!   spawn ──► New ──► Running ──► (over)
//!                      │  ▲ └────────────► Waiting
//!             yield_now│  │                   │ woken
//!                      ▼  │                   │
//!                     Ready ◄─────────────────┘
//! ```
#![allow(unsafe_code)]

use crate::coroutine::{Coroutine as Handle, CoroutineId};
use crate::current::{Frame, Waiting};
use crate::join::{JoinHandle, report};
use crate::kept::Kept;
use crate::prefetch;
use crate::scheduler::Scheduler;
use crate::sleeper::Sleeper;
use coracle_stack::StackSize;
use std::cell::{Cell, UnsafeCell};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::ptr::{NonNull, from_ref, null};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

slotmap::new_key_type! {
    /// Names a task of a scheduler, also when another coroutine is made of it: the tickets tell them apart.
    pub(crate) struct Key;
}

/// What a coroutine is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It was not started yet, and has no stack.
    New,
    /// It waits for its turn.
    Ready,
    /// It is the one that asks.
    Running,
    /// It waits for something.
    Waiting,
    /// It was cancelled and went on waiting, or waits for children who did: it never runs again.
    Leaked,
}

/// One task. When it is over, another is made of it, because allocating one would be a good part of what a short
/// coroutine costs.
///
/// There may be a million of them, so it is small: what is only known of a coroutine that was started is on its
/// stack, in its [`Frame`].
pub(crate) struct Task {
    /// Another one is put there when another coroutine is made of the task, and at no other time.
    sleeper: UnsafeCell<Arc<Sleeper>>,
    pub(crate) size: Cell<StackSize>,
    /// A [`Body`], until it is started: what to do with the closure that waits at its sleeper's. From then on its
    /// [`Frame`], at the base of its stack.
    link: Cell<*const ()>,
    /// When it was started; or that of the former one, whose stack is still warm.
    pub(crate) coroutine: Kept,
    /// Of the wait it is in, or 0.
    pub(crate) ticket: Cell<u64>,
    pub(crate) state: Cell<State>,
    /// It waits for another coroutine to be made of it.
    pub(crate) is_spare: Cell<bool>,
    pub(crate) spawned_at: Cell<Stamp>,
    /// Who is after it in the list it is in: of those who are ready, or of those that are spare.
    pub(crate) next: Cell<Option<Listed>>,
}

impl Task {
    pub(crate) fn new(sleeper: Arc<Sleeper>) -> Rc<Task> {
        Rc::new(Task {
            sleeper: UnsafeCell::new(sleeper),
            size: Cell::default(),
            link: Cell::new(null()),
            coroutine: Kept::default(),
            ticket: Cell::new(0),
            state: Cell::new(State::New),
            is_spare: Cell::new(true),
            spawned_at: Cell::default(),
            next: Cell::new(None),
        })
    }

    /// Itself, uncounted. It must not be used when the task is in the table of its scheduler no more.
    #[inline]
    pub(crate) fn listed(&self) -> Listed {
        Listed(NonNull::from(self))
    }

    pub(crate) fn sleeper(&self) -> Arc<Sleeper> {
        Arc::clone(self.sleeper_ref())
    }

    /// For the length of an expression: not until another coroutine is made of it.
    #[inline]
    pub(crate) fn sleeper_ref(&self) -> &Arc<Sleeper> {
        // SAFETY: a task stays on its thread, and what changes the sleeper (`renew`, `replace`) calls nobody who
        // could ask for it meanwhile. Nobody keeps what is returned here until then: it is used at once.
        unsafe { &*self.sleeper.get() }
    }

    /// Its place in the table of its scheduler.
    pub(crate) fn key(&self) -> Key {
        self.sleeper_ref().key()
    }

    /// Makes another coroutine of one that is over, to run `f`.
    #[inline]
    pub(crate) fn renew<F, T>(
        &self,
        scheduler: &Scheduler,
        id: CoroutineId,
        name: Option<Box<str>>,
        spawned: &'static Location<'static>,
        f: F,
    ) -> JoinHandle<T>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        self.renew_sleeper(scheduler, id, name, spawned);
        // SAFETY: its sleeper is as new, and has no handle but this, which is for a `T`.
        unsafe {
            self.load(f);
            JoinHandle::new(Handle::new(self.sleeper()))
        }
    }

    /// The same, of which nobody has a handle.
    #[inline]
    pub(crate) fn renew_detached<F: FnOnce() + 'static>(
        &self,
        scheduler: &Scheduler,
        id: CoroutineId,
        spawned: &'static Location<'static>,
        f: F,
    ) {
        self.renew_sleeper(scheduler, id, None, spawned);
        self.sleeper_ref().ending.begin_detached();
        // SAFETY: its sleeper is as new, and has no handle.
        unsafe { self.load(f) };
    }

    #[inline]
    fn renew_sleeper(
        &self,
        scheduler: &Scheduler,
        id: CoroutineId,
        name: Option<Box<str>>,
        spawned: &'static Location<'static>,
    ) {
        // SAFETY: as of `sleeper_ref`. Nobody has a reference now, since no coroutine is made of it.
        let renewed = Sleeper::renew(unsafe { &mut *self.sleeper.get() }, id, name, spawned);
        if let Err(name) = renewed {
            // Somebody still has a handle or a waker of the former one.
            let handle = scheduler.handle().clone();
            self.replace(scheduler, Arc::new(Sleeper::of_coroutine(handle, id, name, spawned)));
        }
    }

    #[inline]
    pub(crate) fn has_name(&self) -> bool {
        self.sleeper_ref().name.is_some()
    }

    /// Makes another coroutine of one that is over, with a sleeper of its own.
    #[cold]
    fn replace(&self, scheduler: &Scheduler, sleeper: Arc<Sleeper>) {
        let former = self.sleeper_ref();
        sleeper.succeed(former);
        former.unsettle(); // which may be the same, if it is the first of the task
        sleeper.settle(scheduler, former.key(), self);
        // SAFETY: as in `renew`.
        let former = std::mem::replace(unsafe { &mut *self.sleeper.get() }, sleeper);
        drop(former);
    }

    /// What it waits for, if it waits.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        if self.state.get() != State::Waiting {
            return None;
        }
        // SAFETY: it is in the middle of a wait.
        Some(unsafe { self.frame() }.waiting.get())
    }

    /// Its frame.
    ///
    /// # Safety
    /// It is in the middle of a wait.
    #[inline]
    unsafe fn frame(&self) -> &Frame {
        // SAFETY: it was started and is not over, so that its frame is where the coroutine has left it, on a stack
        // that nobody else gets. Nobody makes a `&mut` of a frame, and this is its thread.
        unsafe { &*self.link.get().cast::<Frame>() }
    }

    /// Has the processor fetch what this needs when it goes on, while another runs: its frame, and those around
    /// it on its stack.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        prefetch::around(self.link.get(), 4, 3);
    }

    /// The wait with this ticket has ended: if it is still in it, it is ready to go on. Only in a turn of its
    /// loop.
    #[inline]
    pub(crate) fn go_on(&self, ticket: u64) {
        if self.ticket.get() == ticket {
            self.ticket.set(0);
            // SAFETY: it has a ticket only while it waits.
            unsafe { self.frame() }.scheduler().push(self.listed());
        }
    }

    /// The same, at once: only for what the loop itself calls, with nothing borrowed.
    pub(crate) fn go_on_now(&self, ticket: u64) {
        if self.ticket.get() == ticket {
            // SAFETY: it has a ticket only while it waits. A loop keeps its scheduler, and this is a turn of it.
            let scheduler = unsafe { &*from_ref(self.frame().scheduler()) };
            scheduler.resume_now(self.listed());
        }
    }

    // --- What it does ----------------------------------------------------------------------------------

    /// Has it run `f`, and leave what `f` returns.
    ///
    /// # Safety
    /// Its sleeper is new, and has no handle but those that are for a `T`.
    #[inline]
    unsafe fn load<F, T>(&self, f: F)
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        // SAFETY: its sleeper is new.
        unsafe { self.sleeper_ref().ending.load(f) };
        self.link.set(from_ref(Body::of::<F, T>()).cast());
    }

    /// Runs it, as the coroutine that calls, whose frame this is.
    ///
    /// # Safety
    /// Once after it was [loaded](Task::load). The frame stays where it is until the coroutine is over.
    #[inline]
    pub(crate) unsafe fn run(&self, frame: &Frame) {
        let body = self.link.replace(from_ref(frame).cast()).cast::<Body>();
        // SAFETY: what was loaded has left a body, and this is the first who asks for it.
        let body = unsafe { &*body };
        let sleeper = self.sleeper.get();
        // SAFETY: the sleeper stays the same until the coroutine is over. Its closure is the one that the body was
        // made for, and used once, since the body was taken.
        unsafe { (body.run)(&*sleeper) };
    }

    /// It was started, and will not go on, since its loop is gone: those who wait for it are told.
    pub(crate) fn lose(&self) {
        if self.state.get() != State::Leaked {
            // SAFETY: nobody resumes it any more, so that it leaves nothing.
            unsafe { self.sleeper_ref().ending.lose() };
        }
    }

    /// It will not be run: those who wait for it are told. Does nothing if it was started.
    pub(crate) fn give_up(&self) {
        if self.state.get() != State::New {
            return;
        }
        let body = self.link.replace(null()).cast::<Body>();
        // SAFETY: it was loaded, or else it would not be new, and not run since; null if it was given up before.
        if let Some(body) = unsafe { body.as_ref() } {
            let sleeper = self.sleeper();
            // SAFETY: as above.
            unsafe { (body.give_up)(&sleeper) };
        }
    }
}

/// From now on nobody finds it.
impl Drop for Task {
    fn drop(&mut self) {
        self.sleeper.get_mut().unsettle();
    }
}

/// A task that the table of its scheduler has. It is not counted, so that it costs nothing to hand it on: the
/// table has a task until its coroutine is over and it is in no list, and nobody uses one of these any longer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listed(NonNull<Task>);

impl Deref for Listed {
    type Target = Task;

    #[inline]
    fn deref(&self) -> &Task {
        // SAFETY: the table has it, and so it is there. Nobody makes a `&mut` of a task that the table has.
        unsafe { self.0.as_ref() }
    }
}

/// A point in time, in half the room: nanoseconds since another one, which its scheduler has in its [`Stamps`].
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(u64);

/// Makes stamps of points in time, of which the same one is likely to come again.
pub(crate) struct Stamps {
    began: Instant,
    last: Cell<(Instant, Stamp)>,
}

impl Stamps {
    pub(crate) fn new(began: Instant) -> Stamps {
        Stamps { began, last: Cell::new((began, Stamp(0))) }
    }

    #[inline]
    pub(crate) fn stamp(&self, time: Instant) -> Stamp {
        let (last, stamp) = self.last.get();
        if last == time { stamp } else { self.stamp_anew(time) }
    }

    #[cold]
    fn stamp_anew(&self, time: Instant) -> Stamp {
        let stamp = Stamp(time.saturating_duration_since(self.began).as_nanos() as u64);
        self.last.set((time, stamp));
        stamp
    }

    pub(crate) fn time(&self, stamp: Stamp) -> Instant {
        self.began + Duration::from_nanos(stamp.0)
    }
}

/// How a closure is run, or not run, whose type is forgotten.
struct Body {
    run: unsafe fn(&Sleeper),
    give_up: unsafe fn(&Sleeper),
}

impl Body {
    const fn of<F: FnOnce() -> T + 'static, T: 'static>() -> &'static Body {
        const { &Body { run: run::<F, T>, give_up: give_up::<F> } }
    }
}

/// # Safety
/// An `F` is at this sleeper's, whose handle is for a `T`. Once.
unsafe fn run<F: FnOnce() -> T, T>(sleeper: &Sleeper) {
    // SAFETY: it is there.
    let f = unsafe { sleeper.ending.unload::<F>() };
    let result = catch_unwind(AssertUnwindSafe(f));
    if let Err(payload) = &result {
        report(&**payload);
    }
    // SAFETY: this is the coroutine, and its handle is for a `T`.
    let unwanted = unsafe { sleeper.ending.finish(result) };
    // Its destructor is not ours.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(unwanted))) {
        report(&*payload);
    }
}

/// # Safety
/// An `F` is at this sleeper's. Once.
unsafe fn give_up<F>(sleeper: &Sleeper) {
    // SAFETY: it is there.
    let f = unsafe { sleeper.ending.unload::<F>() };
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(f)));
    // SAFETY: it will not be run.
    unsafe { sleeper.ending.give_up() };
    if let Err(payload) = dropped {
        report(&*payload); // of a destructor, which is not ours
    }
}

/// A closure on its way to another loop. If it does not arrive, those who wait for it are told.
pub(crate) struct Sent<F, T> {
    sleeper: Arc<Sleeper>,
    f: Option<F>,
    result: std::marker::PhantomData<fn() -> T>,
}

impl<F, T> Sent<F, T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    pub(crate) fn new(sleeper: Sleeper, f: F) -> (Sent<F, T>, JoinHandle<T>) {
        let sleeper = Arc::new(sleeper);
        let sent =
            Sent { sleeper: Arc::clone(&sleeper), f: Some(f), result: std::marker::PhantomData };
        // SAFETY: it will run `f`, which returns a `T`; and the sleeper is new, so there is no other handle.
        (sent, unsafe { JoinHandle::new(Handle::new(sleeper)) })
    }

    pub(crate) fn sleeper(&self) -> &Arc<Sleeper> {
        &self.sleeper
    }

    /// It has arrived, and `task` runs it.
    pub(crate) fn load(mut self, scheduler: &Scheduler, task: &Task) {
        if let Some(f) = self.f.take() {
            task.replace(scheduler, Arc::clone(&self.sleeper));
            // SAFETY: its sleeper is new, and has the handle that was made above.
            unsafe { task.load(f) };
        }
    }
}

impl<F, T> Drop for Sent<F, T> {
    fn drop(&mut self) {
        if let Some(f) = self.f.take() {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(f)));
            // SAFETY: nobody will run it.
            unsafe { self.sleeper.ending.give_up() };
            if let Err(payload) = dropped {
                report(&*payload);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With what an allocator adds they take 80 and 176 bytes. A million of them are to fit (`tests/memory.rs`).
    #[test]
    fn s60_what_is_kept_of_a_coroutine_beside_its_stack_is_small() {
        let counts = 2 * size_of::<usize>();
        assert!(size_of::<Task>() + counts <= 72, "{}", size_of::<Task>());
        assert!(size_of::<Sleeper>() + counts <= 168, "{}", size_of::<Sleeper>());
    }
}
