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
use crate::join::{JoinHandle, report};
use crate::sleeper::Sleeper;
use crate::waits_for::WaitsFor;
use coracle_loop::LoopHandle;
use coracle_stack::{Coroutine, StackSize};
use std::cell::{Cell, Ref, RefCell};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

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
pub(crate) struct Task {
    sleeper: RefCell<Arc<Sleeper>>,
    pub(crate) key: Cell<Key>,
    pub(crate) size: Cell<StackSize>,
    /// What to do with the closure that waits at its sleeper's, until it is started.
    body: Cell<Option<&'static Body>>,
    /// From then on; or that of the former one, whose stack is still warm. Borrowed while it runs.
    pub(crate) coroutine: RefCell<Option<Coroutine<(), (), ()>>>,
    /// Of the wait it is in, or 0.
    pub(crate) ticket: Cell<u64>,
    pub(crate) state: Cell<State>,
    /// It waits for another coroutine to be made of it.
    pub(crate) is_spare: Cell<bool>,
    /// What for, and since when, if it waits.
    pub(crate) waits_for: Cell<WaitsFor>,
    pub(crate) waits_since: Cell<Instant>,
    pub(crate) spawned_at: Cell<Instant>,
    /// Who is ready after it, if it is ready itself.
    pub(crate) next: Cell<Option<Rc<Task>>>,
}

impl Task {
    pub(crate) fn new(sleeper: Arc<Sleeper>, now: Instant) -> Rc<Task> {
        Rc::new(Task {
            sleeper: RefCell::new(sleeper),
            key: Cell::default(),
            size: Cell::default(),
            body: Cell::new(None),
            coroutine: RefCell::new(None),
            ticket: Cell::new(0),
            state: Cell::new(State::New),
            is_spare: Cell::new(true),
            waits_for: Cell::new(WaitsFor::Something),
            waits_since: Cell::new(now),
            spawned_at: Cell::new(now),
            next: Cell::new(None),
        })
    }

    pub(crate) fn sleeper(&self) -> Arc<Sleeper> {
        Arc::clone(&self.sleeper.borrow())
    }

    #[inline]
    pub(crate) fn sleeper_ref(&self) -> Ref<'_, Arc<Sleeper>> {
        self.sleeper.borrow()
    }

    /// Makes another coroutine of one that is over, to run `f`.
    #[inline]
    pub(crate) fn renew<F, T>(
        &self,
        handle: &LoopHandle,
        id: CoroutineId,
        name: Option<Box<str>>,
        spawned: &'static Location<'static>,
        f: F,
    ) -> JoinHandle<T>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        let renewed = Sleeper::renew(&mut self.sleeper.borrow_mut(), id, name, spawned);
        if let Err(name) = renewed {
            // Somebody still has a handle or a waker of the former one.
            self.replace(Arc::new(Sleeper::of_coroutine(handle.clone(), id, name, spawned)));
        }
        // SAFETY: its sleeper is as new, and has no handle but this, which is for a `T`.
        unsafe {
            self.load(f);
            JoinHandle::new(Handle::new(self.sleeper()))
        }
    }

    #[inline]
    pub(crate) fn has_name(&self) -> bool {
        self.sleeper.borrow().name.is_some()
    }

    /// Makes another coroutine of one that is over, with a sleeper of its own.
    #[cold]
    fn replace(&self, sleeper: Arc<Sleeper>) {
        sleeper.succeed(&self.sleeper.borrow());
        self.sleeper.replace(sleeper);
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
        unsafe { self.sleeper.borrow().ending.load(f) };
        self.body.set(Some(Body::of::<F, T>()));
    }

    /// Runs it, as the coroutine that calls.
    #[inline]
    pub(crate) fn run(&self) {
        let body = self.body.take().expect("a task that was not started has a body");
        let sleeper = self.sleeper.as_ptr();
        // SAFETY: the sleeper stays the same until the coroutine is over. Its closure is the one that the body was
        // made for, and used once, since the body was taken.
        unsafe { (body.run)(&*sleeper) };
    }

    /// It will not be run: those who wait for it are told. Does nothing if it was started.
    pub(crate) fn give_up(&self) {
        if let Some(body) = self.body.take() {
            let sleeper = self.sleeper();
            // SAFETY: as above.
            unsafe { (body.give_up)(&sleeper) };
        }
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
    pub(crate) fn load(mut self, task: &Task) {
        if let Some(f) = self.f.take() {
            task.replace(Arc::clone(&self.sleeper));
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
