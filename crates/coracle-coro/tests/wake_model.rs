//! Waking a future from several threads, and polling it, in every interleaving: the very code of
//! `src/future/queued.rs`, with loom's atomic under it.
//!
//! A wake is lost when whoever polls waits for ever: loom calls that a deadlock. The last tests plant such
//! mistakes, and must fail: a model that cannot find them would prove nothing.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

/// What `src/primitive.rs` takes from std.
mod primitive {
    pub(crate) use loom::sync::atomic::AtomicBool;
}
#[path = "../src/future/queued.rs"]
#[allow(dead_code)]
mod queued;

use queued::Queued;

/// How a future's wakers and its loop share that it is to be polled.
trait Flag: Send + Sync + 'static {
    fn new() -> Self;
    fn enter(&self) -> bool;
    fn leave(&self);
}

impl Flag for Queued {
    fn new() -> Queued {
        Queued::new()
    }

    fn enter(&self) -> bool {
        Queued::enter(self)
    }

    fn leave(&self) {
        Queued::leave(self);
    }
}

struct Shared<F> {
    flag: F,
    /// What the future waits for: nobody orders this but the flag.
    done: [AtomicBool; 2],
    /// The loop's queue of posted jobs.
    queue: Mutex<usize>,
    posted: Condvar,
    polls: AtomicUsize,
}

impl<F: Flag> Shared<F> {
    fn wake(&self, which: usize) {
        self.done[which].store(true, Ordering::Relaxed);
        if self.flag.enter() {
            *self.queue.lock().unwrap() += 1;
            self.posted.notify_one();
        }
    }

    /// Takes one job, and polls: whether both have done their part.
    fn poll(&self, look: impl FnOnce(&Self) -> bool) -> bool {
        let mut queue = self.queue.lock().unwrap();
        while *queue == 0 {
            queue = self.posted.wait(queue).unwrap();
        }
        *queue -= 1;
        drop(queue);
        self.polls.fetch_add(1, Ordering::Relaxed);
        look(self)
    }

    fn is_done(&self) -> bool {
        self.done.iter().all(|done| done.load(Ordering::Relaxed))
    }
}

/// Two threads wake, this one polls until the future is ready.
fn explore<F: Flag>(look: impl Fn(&Shared<F>) -> bool + Copy + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let shared = Arc::new(Shared {
            flag: F::new(),
            done: [AtomicBool::new(false), AtomicBool::new(false)],
            queue: Mutex::new(0),
            posted: Condvar::new(),
            polls: AtomicUsize::new(0),
        });
        let wakers = [0, 1].map(|which| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.wake(which))
        });
        while !shared.poll(look) {}
        for waker in wakers {
            waker.join().unwrap();
        }
        let polls = shared.polls.load(Ordering::Relaxed);
        assert!(polls <= 2, "more polls than wakes: {polls}");
    });
}

#[test]
fn g6_no_wake_of_a_future_is_lost() {
    explore::<Queued>(|shared| {
        shared.flag.leave();
        shared.is_done()
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn model_finds_one_that_looks_before_it_leaves() {
    explore::<Queued>(|shared| {
        let done = shared.is_done();
        shared.flag.leave();
        done
    });
}

/// Leaves by a store: what was done before an `enter` that came to nothing need not be seen.
struct Careless(AtomicBool);

impl Flag for Careless {
    fn new() -> Careless {
        Careless(AtomicBool::new(false))
    }

    fn enter(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    fn leave(&self) {
        self.0.store(false, Ordering::Release);
    }
}

#[test]
#[should_panic(expected = "deadlock")]
fn model_finds_one_that_leaves_without_looking_back() {
    explore::<Careless>(|shared| {
        shared.flag.leave();
        shared.is_done()
    });
}
