//! The end of a run on several loops, and wakes that come from other threads, in every interleaving.
//!
//! It is the very code of `src/group.rs` and `src/inbox.rs`, with loom's atomics and locks under it, and loops
//! that do nothing but what was posted to them.
//!
//! loom calls it a deadlock when somebody waits for ever: a run that does not end, or a wake that was lost.
//! The last test plants a mistake, and must fail.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs)]

use loom::thread;
use std::sync::Arc;

/// What `src/primitive.rs` takes from std and from `coracle-loop`, from loom.
mod primitive {
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
    use loom::sync::{Condvar, Mutex, MutexGuard};
    use std::cell::RefCell;
    use std::collections::VecDeque;

    pub(crate) struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) fn new(value: T) -> Lock<T> {
            Lock(Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    type Job = Box<dyn FnOnce(&Loop) + Send>;

    #[derive(PartialEq)]
    pub(crate) enum PostError {
        Full,
    }

    struct Queue {
        jobs: Mutex<(VecDeque<Job>, bool)>,
        changed: Condvar,
    }

    #[derive(Clone)]
    pub(crate) struct LoopHandle(Arc<Queue>);

    impl LoopHandle {
        pub(crate) fn new() -> LoopHandle {
            let jobs = Mutex::new((VecDeque::new(), false));
            LoopHandle(Arc::new(Queue { jobs, changed: Condvar::new() }))
        }

        pub(crate) fn post(
            &self,
            job: impl FnOnce(&Loop) + Send + 'static,
        ) -> Result<(), PostError> {
            self.0.jobs.lock().unwrap().0.push_back(Box::new(job));
            self.0.changed.notify_one();
            Ok(())
        }

        pub(crate) fn stop(&self) {
            self.0.jobs.lock().unwrap().1 = true;
            self.0.changed.notify_one();
        }

        /// The loop is gone, and with it what it has not done.
        pub(crate) fn end(&self) {
            let left = std::mem::take(&mut self.0.jobs.lock().unwrap().0);
            drop(left);
        }
    }

    /// One that is run by its thread.
    pub(crate) struct Loop(pub(crate) LoopHandle);

    impl Loop {
        pub(crate) fn current() -> Option<Loop> {
            None // asked only by those whose jobs are refused
        }

        pub(crate) fn defer(&self, job: impl FnOnce(&Loop) + Send + 'static) {
            assert!(self.0.post(job).is_ok());
        }

        /// Does one job. False if it was told to stop, and has none.
        pub(crate) fn turn(&self) -> bool {
            let queue = &self.0.0;
            let mut state = queue.jobs.lock().unwrap();
            let job = loop {
                match state.0.pop_front() {
                    Some(job) => break job,
                    None if state.1 => return false,
                    None => state = queue.changed.wait(state).unwrap(),
                }
            };
            drop(state);
            job(self);
            true
        }
    }
}

/// What those two ask of it.
mod scheduler {
    use crate::primitive::Loop;

    pub(crate) struct Scheduler;

    impl Scheduler {
        pub(crate) fn of(_: &Loop) -> Scheduler {
            Scheduler
        }

        pub(crate) fn cancel_all(&self) {}

        pub(crate) fn take_in(&self) {
            super::take_in();
        }
    }
}

mod leak {
    pub(crate) fn exit(_: &[String]) {
        panic!("nobody is leaked");
    }
}

mod task {
    pub(crate) type Key = u32;
}

#[path = "../src/group.rs"]
mod group;
#[path = "../src/inbox.rs"]
mod inbox;

use group::{Group, Member};
use inbox::Inbox;
use primitive::{AtomicUsize, Loop, LoopHandle};
use std::sync::atomic::Ordering;

/// Interleavings with more changes of thread than this are left out: there are too many of them.
const CHANGES: usize = 2;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(CHANGES);
    builder.check(model);
}

/// A coroutine that comes to loop `index`, sends another to the next loop, and is over.
fn hop(group: &Arc<Group>, index: usize, left: usize, done: &Arc<AtomicUsize>) {
    let member = Member { group: Arc::clone(group), index };
    member.entered();
    if left > 0 {
        let (group, done) = (Arc::clone(group), Arc::clone(done));
        let next = (index + 1) % group.handles().len();
        let handle = group.handles()[next].clone();
        assert!(handle.post(move |_| hop(&group, next, left - 1, &done)).is_ok());
    }
    done.fetch_add(1, Ordering::SeqCst);
    member.left(0);
}

/// Runs a loop until all is over, and says how many coroutines were, then.
fn run(lp: &Loop, group: &Group, done: &AtomicUsize) -> usize {
    while lp.turn() {}
    assert!(group.is_done());
    done.load(Ordering::SeqCst)
}

#[test]
fn s38_run_ends_with_the_last_coroutine_and_not_before() {
    explore(|| {
        let handles = [LoopHandle::new(), LoopHandle::new()];
        let group = Group::new(handles.to_vec());
        let done = Arc::new(AtomicUsize::new(0));
        let [here, there] = handles.map(Loop);
        let other = {
            let (group, done) = (Arc::clone(&group), Arc::clone(&done));
            thread::spawn(move || run(&there, &group, &done))
        };
        hop(&group, 0, 2, &done);
        assert_eq!(run(&here, &group, &done), 3, "loop 0 ends when all are over");
        assert_eq!(other.join().unwrap(), 3, "and so does loop 1");
        group.handles().iter().for_each(LoopHandle::end);
    });
}

/// Whoever is sent by a thread may come before the end, or after it; the run ends all the same.
#[test]
fn s38_one_who_comes_from_outside_does_not_keep_a_run_from_ending() {
    explore(|| {
        let handles = [LoopHandle::new(), LoopHandle::new()];
        let group = Group::new(handles.to_vec());
        let done = Arc::new(AtomicUsize::new(0));
        let [here, there] = handles.clone().map(Loop);
        let outside = {
            let (group, done) = (Arc::clone(&group), Arc::clone(&done));
            thread::spawn(move || {
                let coming = move |_: &Loop| hop(&group, 1, 0, &done);
                assert!(handles[1].post(coming).is_ok());
            })
        };
        let other = {
            let (group, done) = (Arc::clone(&group), Arc::clone(&done));
            thread::spawn(move || run(&there, &group, &done))
        };
        hop(&group, 0, 0, &done);
        assert!(run(&here, &group, &done) >= 1);
        assert!(other.join().unwrap() >= 1);
        outside.join().unwrap();
        group.handles().iter().for_each(LoopHandle::end);
    });
}

loom::thread_local! {
    /// The inbox of the loop that this thread runs, and what came out of it.
    static INBOX: std::cell::RefCell<Option<(Arc<Inbox>, Vec<(u32, u64)>)>> =
        std::cell::RefCell::new(None);
}

fn take_in() {
    INBOX.with(|place| {
        let mut place = place.borrow_mut();
        let (inbox, taken) = place.as_mut().expect("this thread runs a loop");
        taken.extend(inbox.take(Vec::new()));
    });
}

/// Two threads wake coroutines of one loop, which hears of all, whether they come together or not.
fn no_wake_is_lost(put: fn(&Inbox, &LoopHandle, u32)) {
    explore(move || {
        let (inbox, handle) = (Arc::new(Inbox::default()), LoopHandle::new());
        let lp = Loop(handle.clone());
        let wakers = [1, 2].map(|key| {
            let (inbox, handle) = (Arc::clone(&inbox), handle.clone());
            thread::spawn(move || put(&inbox, &handle, key))
        });
        INBOX.with(|place| *place.borrow_mut() = Some((inbox, Vec::new())));
        let taken =
            || INBOX.with(|place| place.borrow().as_ref().map_or(0, |(_, taken)| taken.len()));
        while taken() < 2 {
            lp.turn();
        }
        for waker in wakers {
            waker.join().unwrap();
        }
        let (_, mut taken) = INBOX.with(|place| place.borrow_mut().take()).expect("it was there");
        taken.sort_unstable();
        assert_eq!(taken, [(1, 7), (2, 7)], "each once");
    });
}

#[test]
fn s13_no_wake_from_another_thread_is_lost() {
    no_wake_is_lost(|inbox, handle, key| inbox.put(handle, key, 7));
}

/// Who finds the inbox empty must say so: if it is left to chance, a wake is lost, and the model sees it.
#[test]
#[should_panic(expected = "deadlock")]
fn a_wake_that_nobody_is_told_of_is_found() {
    no_wake_is_lost(|inbox, handle, key| {
        if key == 1 {
            inbox.put(&LoopHandle::new(), key, 7); // which posts its job to the wrong loop
        } else {
            inbox.put(handle, key, 7);
        }
    });
}
