//! A coroutine, as its scheduler has it: not started, ready, running, or waiting.
//!
//! ```text
//!   spawn ──► New ──► Running ──► (over)
//!                      │  ▲ └────────────► Waiting
//!             yield_now│  │                   │ woken
//!                      ▼  │                   │
//!                     Ready ◄─────────────────┘
//! ```

use crate::sleeper::Sleeper;
use coracle_loop::LoopHandle;
use coracle_stack::{Coroutine, StackSize};
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

slotmap::new_key_type! {
    /// Names a task of a scheduler: never a later one in the same place.
    pub(crate) struct Key;
}

/// What a coroutine does, until it is started.
pub(crate) type Body = Box<dyn FnOnce()>;

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
}

/// One task. When it is over, another is made of it, because allocating one would be a good part of what a short
/// coroutine costs.
pub(crate) struct Task {
    sleeper: RefCell<Arc<Sleeper>>,
    pub(crate) key: Cell<Key>,
    pub(crate) size: Cell<StackSize>,
    /// Until it is started.
    pub(crate) body: Cell<Option<Body>>,
    /// From then on. Borrowed while it runs.
    pub(crate) coroutine: RefCell<Option<Coroutine<(), (), ()>>>,
    /// Of the wait it is in, or 0.
    pub(crate) ticket: Cell<u64>,
    pub(crate) state: Cell<State>,
    pub(crate) spawned_at: Cell<Instant>,
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
            spawned_at: Cell::new(now),
        })
    }

    pub(crate) fn sleeper(&self) -> Arc<Sleeper> {
        Arc::clone(&self.sleeper.borrow())
    }

    /// Makes another coroutine of one that is over.
    pub(crate) fn renew(
        &self,
        handle: &LoopHandle,
        name: Option<Box<str>>,
        spawned: &'static Location<'static>,
    ) {
        let mut sleeper = self.sleeper.borrow_mut();
        match Arc::get_mut(&mut sleeper) {
            Some(sleeper) => sleeper.renew(name, spawned),
            // Somebody still has a handle or a waker of the former one.
            None => *sleeper = Arc::new(Sleeper::of_coroutine(handle.clone(), name, spawned)),
        }
    }

    pub(crate) fn set_sleeper(&self, sleeper: Arc<Sleeper>) {
        self.sleeper.replace(sleeper);
    }
}
