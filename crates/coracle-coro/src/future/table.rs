//! The futures of a loop: who is polled next.
//!
//! A future has no stack and no `Send`: it stays in this table, on its loop's thread, and is polled, and dropped,
//! from the loop's turn. What others hold of it is its [`Shell`], which knows its key.
//!
//! ```text
//!   wake, same loop ──────────────► ready ──► poll ──┬─► Pending: in the table only
//!   wake, elsewhere ──► a post ──►  (FIFO)           └─► over, or cancelled: dropped
//!        └─ queued already: nothing
//! ```
//!
//! All that are ready have one turn in the queue of the scheduler, among the coroutines. A future that is woken
//! while it is polled is queued again, behind the others.
#![allow(unsafe_code)]

use crate::budget;
use crate::future::listing::FutureInfo;
use crate::future::queued::Queued;
use crate::inbox;
use crate::join::message;
use crate::scheduler::Scheduler;
use crate::task::State;
use coracle_loop::LoopHandle;
use slotmap::{Key as _, KeyData, SlotMap};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

slotmap::new_key_type! {
    /// Names a future of a loop: never a later one in the same place.
    pub(crate) struct Key;
}

/// What is polled. It tells its handle by itself how it ended.
pub(crate) type Body = Pin<Box<dyn Future<Output = ()>>>;

/// The futures of one loop.
#[derive(Default)]
pub(crate) struct Futures {
    places: RefCell<SlotMap<Key, Place>>,
    ready: RefCell<VecDeque<Key>>,
    /// They have a turn in the scheduler's queue.
    awake: Cell<bool>,
}

/// What came of a turn.
pub(crate) struct Ran {
    pub(crate) count: usize,
    /// How many are over.
    pub(crate) over: usize,
    /// Others are ready.
    pub(crate) again: bool,
}

struct Place {
    /// What is polled, and its shell as a waker. Absent while it is polled.
    body: Option<(Body, Waker)>,
    shell: Arc<Shell>,
    spawned_at: Instant,
}

/// What anybody may hold of a future: its wakers and its handle do.
pub(crate) struct Shell {
    handle: LoopHandle,
    /// Its key, and the scheduler whose it is, from when the loop has it.
    key: AtomicU64,
    scheduler: AtomicPtr<Scheduler>,
    /// It is in the queue, or on its way there.
    queued: Queued,
    /// It is to be dropped when its turn comes.
    cancelled: AtomicBool,
    pub(crate) spawned: &'static Location<'static>,
}

impl Shell {
    pub(crate) fn new(handle: LoopHandle, spawned: &'static Location<'static>) -> Arc<Shell> {
        Arc::new(Shell {
            handle,
            key: AtomicU64::new(0),
            scheduler: AtomicPtr::new(null_mut()),
            queued: Queued::new(),
            cancelled: AtomicBool::new(false),
            spawned,
        })
    }

    /// Its loop has it.
    pub(crate) fn settle(&self, owner: &Scheduler) {
        self.scheduler.store(std::ptr::from_ref(owner).cast_mut(), Ordering::Relaxed);
    }

    /// Has its loop drop it. Any thread; never inline.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        self.queue();
    }

    fn key(&self) -> Key {
        Key::from(KeyData::from_ffi(self.key.load(Ordering::Relaxed)))
    }

    /// Has it polled. One of many at the same time does something.
    fn queue(&self) {
        if self.queued.enter() && !self.queue_here() {
            self.queue_elsewhere();
        }
    }

    /// False if it is of another loop than the one whose turn it is on this thread.
    fn queue_here(&self) -> bool {
        if !self.handle.is_current() {
            return false;
        }
        // SAFETY: this is a turn of its loop, which keeps its scheduler.
        let scheduler = unsafe { self.scheduler.load(Ordering::Relaxed).as_ref() };
        if let Some(scheduler) = scheduler {
            scheduler.push_future(self.key()); // else it is still on its way, and polled when it is there
        }
        true
    }

    fn queue_elsewhere(&self) {
        let key = self.key();
        inbox::post(&self.handle, move |lp| Scheduler::of(lp).push_future(key));
    }
}

impl Wake for Shell {
    fn wake(self: Arc<Self>) {
        self.queue();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.queue();
    }
}

impl Futures {
    /// Takes a future, and says how it is called here. Whoever calls has it polled.
    pub(crate) fn enter(&self, now: Instant, shell: Arc<Shell>, body: Body) -> Key {
        let place = Place {
            body: Some((body, Waker::from(Arc::clone(&shell)))),
            shell: Arc::clone(&shell),
            spawned_at: now,
        };
        let key = self.places.borrow_mut().insert(place);
        shell.key.store(key.data().as_ffi(), Ordering::Relaxed);
        // A cancel that found no key may have set this; it is not in the queue for that.
        shell.queued.enter();
        key
    }

    /// Puts one at the end of the queue. True if they need a turn for that.
    pub(crate) fn push(&self, key: Key) -> bool {
        self.ready.borrow_mut().push_back(key);
        !self.awake.replace(true)
    }

    /// Polls those who are ready, but for those who become so meanwhile, and at most `limit`; until `is_forked`.
    pub(crate) fn run(&self, limit: usize, is_forked: impl Fn() -> bool) -> Ran {
        let count = self.ready.borrow().len().min(limit);
        let mut over = 0;
        for _ in 0..count {
            let next = self.ready.borrow_mut().pop_front();
            if let Some(key) = next
                && !is_forked()
                && self.poll(key)
            {
                over += 1;
            }
        }
        let again = !self.ready.borrow().is_empty();
        self.awake.set(again);
        Ran { count, over, again }
    }

    /// True if it is over.
    fn poll(&self, key: Key) -> bool {
        // Nothing is borrowed while it is polled or dropped: that may spawn, wake and cancel others.
        let ((mut body, waker), cancelled) = {
            let mut places = self.places.borrow_mut();
            let Some(place) = places.get_mut(key) else { return false }; // a wake that came too late
            place.shell.queued.leave();
            let cancelled = place.shell.cancelled.load(Ordering::SeqCst);
            let Some(body) = place.body.take() else { return false };
            (body, cancelled)
        };
        let over = cancelled || {
            budget::begin_poll();
            let mut context = Context::from_waker(&waker);
            let poll = AssertUnwindSafe(|| body.as_mut().poll(&mut context));
            match catch_unwind(poll) {
                Ok(Poll::Pending) => false,
                Ok(Poll::Ready(())) => true,
                // One of the body's own, which ends there: this is of a destructor.
                Err(payload) => {
                    report(&*payload, key);
                    true
                }
            }
        };
        if !over {
            if let Some(place) = self.places.borrow_mut().get_mut(key) {
                place.body = Some((body, waker));
            }
            return false;
        }
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(body))) {
            report(&*payload, key);
        }
        let place = self.places.borrow_mut().remove(key);
        drop(place);
        true
    }

    /// Has all be dropped, when their turn comes.
    pub(crate) fn cancel_all(&self) {
        let shells: Vec<_> =
            self.places.borrow().values().map(|place| Arc::clone(&place.shell)).collect();
        for shell in shells {
            shell.cancel();
        }
    }

    /// Those that are not over.
    pub(crate) fn list(&self, now: Instant) -> Vec<FutureInfo> {
        let info = |place: &Place| FutureInfo {
            state: match place.body {
                None => State::Running,
                Some(_) if place.shell.queued.is_in() => State::Ready,
                Some(_) => State::Waiting,
            },
            spawned: place.shell.spawned,
            age: now.saturating_duration_since(place.spawned_at),
        };
        self.places.borrow().values().map(info).collect()
    }
}

fn report(payload: &(dyn std::any::Any + Send), key: Key) {
    let said = message(payload);
    tracing::error!(future = key.data().as_ffi(), said, "a future panicked as it was dropped");
}
