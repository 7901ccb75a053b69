//! The sleep protocol of `handle.rs`, in every interleaving.
//!
//! This is the protocol and nothing else, word by word, with loom's atomics and lock in the place of std's:
//! a poster queues first and looks whether the loop sleeps after that; the loop announces its sleep first
//! and looks into the queue after that. The kernel's side is a flag, like an eventfd. A wake-up is lost when
//! the loop sleeps although nobody is left who could wake it.
//!
//! The last tests turn the order around, and must fail: a model that cannot find the known mistakes would
//! prove nothing.

use loom::sync::atomic::{self, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::collections::VecDeque;

/// An atomic of which all accesses are `SeqCst`, unless they say otherwise.
///
/// loom knows that ordering of fences only, and takes it for `AcqRel` elsewhere. So what the protocol leans
/// on is spelled out: a store is followed, and a load preceded, by such a fence. A store is a swap, because
/// loom knows the place of a swap in the order of modifications, and not that of a store.
struct AtomicBool(atomic::AtomicBool);

impl AtomicBool {
    fn new(value: bool) -> AtomicBool {
        AtomicBool(atomic::AtomicBool::new(value))
    }

    fn load(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire)
    }

    fn load_relaxed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn store(&self, value: bool) {
        self.0.swap(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    fn swap(&self, value: bool) -> bool {
        fence(Ordering::SeqCst);
        let before = self.0.swap(value, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        before
    }
}

/// The same for a number.
struct AtomicUsize(atomic::AtomicUsize);

impl AtomicUsize {
    fn new(value: usize) -> AtomicUsize {
        AtomicUsize(atomic::AtomicUsize::new(value))
    }

    fn load(&self) -> usize {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire)
    }

    fn store(&self, value: usize) {
        self.0.swap(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

/// An eventfd, and the wait for it.
struct Kernel {
    state: Mutex<State>,
    changed: Condvar,
    /// System calls made by wakers.
    calls: atomic::AtomicUsize,
}

struct State {
    signalled: bool,
    /// Threads that have not ended.
    others: usize,
}

impl Kernel {
    fn new(others: usize) -> Kernel {
        Kernel {
            state: Mutex::new(State { signalled: false, others }),
            changed: Condvar::new(),
            calls: atomic::AtomicUsize::new(0),
        }
    }

    fn wake(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.state.lock().unwrap().signalled = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        while !state.signalled {
            assert!(state.others > 0, "a wake-up was lost: the loop sleeps for ever");
            state = self.changed.wait(state).unwrap();
        }
        state.signalled = false;
    }

    /// A wait that may not sleep.
    fn look(&self) {
        self.state.lock().unwrap().signalled = false;
    }

    /// A thread has ended.
    fn leave(&self) {
        self.state.lock().unwrap().others -= 1;
        self.changed.notify_one();
    }
}

/// `handle::Shared`.
struct Shared {
    queue: Mutex<VecDeque<usize>>,
    waiting: AtomicUsize,
    asleep: AtomicBool,
    stop: AtomicBool,
    nudged: AtomicBool,
    kernel: Kernel,
}

impl Shared {
    fn new(others: usize) -> Shared {
        Shared {
            queue: Mutex::new(VecDeque::new()),
            waiting: AtomicUsize::new(0),
            asleep: AtomicBool::new(true),
            stop: AtomicBool::new(false),
            nudged: AtomicBool::new(false),
            kernel: Kernel::new(others),
        }
    }

    // --- Any thread ------------------------------------------------------------------------------------

    fn post(&self, job: usize) {
        let mut queue = self.queue.lock().unwrap();
        queue.push_back(job);
        self.waiting.store(queue.len());
        drop(queue);
        self.wake();
    }

    fn stop(&self) {
        self.stop.store(true);
        self.wake();
    }

    /// `LoopHandle::wake`.
    fn nudge(&self) {
        self.nudged.store(true);
        self.wake();
    }

    fn wake(&self) {
        if self.asleep.load() && self.asleep.swap(false) {
            self.kernel.wake();
        }
    }

    // --- The loop --------------------------------------------------------------------------------------

    fn fall_asleep(&self) -> bool {
        self.asleep.store(true);
        let called = self.stop.load() || self.nudged.load();
        if self.waiting.load() == 0 && !called {
            return true;
        }
        self.asleep.store(false);
        false
    }

    fn rest(&self) {
        self.asleep.store(true);
    }

    fn wake_up(&self) {
        if self.asleep.load_relaxed() {
            self.asleep.store(false);
        }
    }

    fn begin_turn(&self) {
        if self.nudged.load_relaxed() {
            self.nudged.store(false);
        }
    }

    fn take_jobs(&self) -> VecDeque<usize> {
        if self.waiting.load() == 0 {
            return VecDeque::new();
        }
        let mut queue = self.queue.lock().unwrap();
        self.waiting.store(0);
        std::mem::take(&mut queue)
    }

    /// `Loop::run`, until so many jobs are done.
    fn run(&self, enough: usize) -> (Vec<usize>, usize) {
        self.wake_up();
        let (mut done, mut turns) = (Vec::new(), 0);
        while done.len() < enough {
            self.turn(&mut done, enough);
            turns += 1;
        }
        self.rest();
        (done, turns)
    }

    /// `Loop::turn`: what was posted, then the wait.
    fn turn(&self, done: &mut Vec<usize>, enough: usize) {
        self.begin_turn();
        done.extend(self.take_jobs());
        if done.len() == enough {
            return;
        }
        if self.waiting.load() == 0 && self.fall_asleep() {
            self.kernel.wait();
        } else {
            self.kernel.look();
        }
        self.wake_up();
    }

    /// `Loop::run_ready`, as another loop calls it that then sleeps on our descriptor.
    fn run_ready(&self, done: &mut Vec<usize>) {
        self.wake_up();
        done.extend(self.take_jobs());
        self.kernel.look();
        self.wake_up();
        self.rest();
    }

    /// `Loop::run` with the mistake: looks first, announces after.
    fn run_carelessly(&self, enough: usize) {
        self.wake_up();
        let mut done = Vec::new();
        while done.len() < enough {
            done.extend(self.take_jobs());
            if done.len() < enough && self.waiting.load() == 0 {
                self.asleep.store(true);
                self.kernel.wait();
            }
            self.wake_up();
        }
    }

    /// The mistake on the other side: looks whether the loop sleeps, and queues after.
    fn careless_post(&self, job: usize) {
        self.wake();
        let mut queue = self.queue.lock().unwrap();
        queue.push_back(job);
        self.waiting.store(queue.len());
    }
}

/// Runs `act` on a thread of its own.
fn start(shared: &Arc<Shared>, act: impl FnOnce(&Shared) + 'static) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        act(&shared);
        shared.kernel.leave();
    })
}

/// Explores every interleaving with up to `switches` involuntary switches between threads, which is where
/// such mistakes live; without a bound, three threads would take hours.
fn explore(switches: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = switches;
    builder.check(model);
}

#[test]
fn b4_post_is_never_lost() {
    explore(None, || {
        let shared = Arc::new(Shared::new(1));
        let poster = start(&shared, |shared| shared.post(1));
        assert_eq!(shared.run(1).0, [1]);
        poster.join().unwrap();
    });
}

#[test]
fn b4_posts_of_two_threads_are_never_lost_and_stay_in_order() {
    explore(Some(2), || {
        let shared = Arc::new(Shared::new(2));
        let posters = [[1, 2], [10, 20]].map(|jobs| {
            start(&shared, move |shared| jobs.into_iter().for_each(|job| shared.post(job)))
        });
        let (done, _) = shared.run(4);
        let place = |job| done.iter().position(|&other| other == job);
        assert!(place(1) < place(2) && place(10) < place(20), "{done:?}");
        for poster in posters {
            poster.join().unwrap();
        }
    });
}

#[test]
fn b4_wake_up_costs_at_most_one_call_per_sleep() {
    explore(Some(2), || {
        let shared = Arc::new(Shared::new(2));
        let posters = [1, 2].map(|job| start(&shared, move |shared| shared.post(job)));
        let (_, turns) = shared.run(2);
        for poster in posters {
            poster.join().unwrap();
        }
        // All turns but the last slept; and before the first and after the last, nobody ran the loop.
        let calls = shared.kernel.calls.load(Ordering::SeqCst);
        assert!(calls <= turns + 1, "{calls} calls in {turns} turns");
    });
}

#[test]
fn b3_stop_is_never_lost() {
    explore(None, || {
        let shared = Arc::new(Shared::new(1));
        let stopper = start(&shared, Shared::stop);
        shared.wake_up();
        while !shared.stop.load() {
            shared.turn(&mut Vec::new(), usize::MAX);
        }
        shared.rest();
        stopper.join().unwrap();
    });
}

#[test]
fn b4_wake_is_never_lost() {
    // A flag that a hook looks at, in every turn.
    explore(Some(3), || {
        let shared = Arc::new(Shared::new(1));
        let flag = Arc::new(atomic::AtomicBool::new(false));
        let set = Arc::clone(&flag);
        let waker = start(&shared, move |shared| {
            shared.nudge();
            set.store(true, Ordering::Release);
            shared.nudge();
        });
        shared.wake_up();
        loop {
            shared.begin_turn();
            if flag.load(Ordering::Acquire) {
                break;
            }
            if shared.fall_asleep() {
                shared.kernel.wait();
            } else {
                shared.kernel.look();
            }
            shared.wake_up();
        }
        shared.rest();
        waker.join().unwrap();
    });
}

#[test]
fn b10_post_is_never_lost_on_who_drives_the_loop() {
    explore(None, || {
        let shared = Arc::new(Shared::new(1));
        let poster = start(&shared, |shared| shared.post(1));
        let mut done = Vec::new();
        loop {
            shared.run_ready(&mut done);
            if !done.is_empty() {
                break;
            }
            // `Loop::timeout`, and then a sleep on `Loop::descriptor`, which is not looked into.
            if shared.waiting.load() == 0 {
                shared.kernel.wait();
            }
        }
        poster.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn model_finds_a_loop_that_looks_before_it_announces() {
    explore(None, || {
        let shared = Arc::new(Shared::new(1));
        let poster = start(&shared, |shared| shared.post(1));
        shared.run_carelessly(1);
        poster.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn model_finds_a_poster_that_looks_before_it_queues() {
    explore(None, || {
        let shared = Arc::new(Shared::new(1));
        let poster = start(&shared, |shared| shared.careless_post(1));
        shared.run(1);
        poster.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn model_finds_orderings_that_are_too_weak() {
    // The right order of statements, but with release and acquire only: a store may then pass the load that
    // follows it, on either side.
    explore(None, || {
        let queued = Arc::new(atomic::AtomicBool::new(false));
        let asleep = Arc::new(atomic::AtomicBool::new(false));
        let kernel = Arc::new(Kernel::new(1));
        let poster = {
            let (queued, asleep, kernel) =
                (Arc::clone(&queued), Arc::clone(&asleep), Arc::clone(&kernel));
            thread::spawn(move || {
                queued.store(true, Ordering::Release);
                if asleep.load(Ordering::Acquire) {
                    kernel.wake();
                }
                kernel.leave();
            })
        };
        asleep.store(true, Ordering::Release);
        if !queued.load(Ordering::Acquire) {
            kernel.wait();
        }
        poster.join().unwrap();
    });
}
