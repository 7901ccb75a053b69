//! Rows B4 and B5: waking a loop and posting to it. What several threads do at once is in `wakeup.rs`.

use crate::harness::Harness;
use coracle_loop::{HookKind, Loop, LoopHandle, PostError};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);

pub(crate) fn b4_wake_begins_a_new_turn(h: &Harness) {
    let handle = h.lp.handle();
    let (stop, stopped) = channel::<()>();
    let thread = thread::spawn(move || {
        while stopped.recv_timeout(MS) == Err(RecvTimeoutError::Timeout) {
            handle.wake();
        }
    });
    for _ in 0..10 {
        h.lp.run_once().unwrap(); // would sleep for ever
    }
    drop(stop);
    thread.join().unwrap();
}

pub(crate) fn b4_wake_before_the_wait_is_not_lost(h: &Harness) {
    // Whoever sets a flag for a hook to look at and then wakes the loop must not depend on the moment: here
    // it is the worst one, after the last hook and before the wait.
    h.lp.run_ready().unwrap(); // epoll's first wait finds its own wake-up writable
    let handle = h.lp.handle();
    let woken = Rc::new(Cell::new(false));
    let set = Rc::clone(&woken);
    h.lp.on_turn(HookKind::Idle, move |_| {
        if !set.replace(true) {
            handle.wake();
        }
    });
    let late = Rc::new(Cell::new(false));
    let set = Rc::clone(&late);
    h.lp.after(if h.is_simulated() { HOUR } else { 10_000 * MS }, move |_| set.set(true));
    h.lp.run_once().unwrap();
    assert!(woken.get(), "it was about to sleep");
    h.lp.run_ready().unwrap();
    assert!(!late.get(), "the wake-up was lost: only a timer has ended the sleep");
}

pub(crate) fn b4_flood_of_wakes_neither_blocks_nor_spins(h: &Harness) {
    let handle = h.lp.handle();
    let thread = thread::spawn(move || {
        for _ in 0..100_000 {
            handle.wake(); // a pipe would have room for 65,536 of them
        }
    });
    while !thread.is_finished() {
        h.lp.run_ready().unwrap();
    }
    thread.join().unwrap();
    let turns = h.count_turns();
    h.run_for(20 * MS);
    assert!(turns.get() < 50, "the loop spins on wake-ups it has heard: {} turns", turns.get());
}

pub(crate) fn b5_post_before_the_loop_starts_runs_at_once(h: &Harness) {
    h.lp.after(HOUR, |_| unreachable!("the posted job must not wait for this"));
    let handle = h.lp.handle();
    thread::spawn(move || handle.post(Loop::stop).unwrap()).join().unwrap();
    h.lp.run().unwrap();
}

pub(crate) fn b5_post_from_a_posted_job_runs_in_the_next_turn(h: &Harness) {
    fn post_again(lp: &Loop, left: u32, done: Sender<()>) {
        if left == 0 {
            done.send(()).unwrap();
        } else {
            lp.handle().post(move |lp| post_again(lp, left - 1, done)).unwrap();
        }
    }
    let turns = h.count_turns();
    let (send, done) = channel();
    let done = Rc::new(done);
    post_again(&h.lp, 10, send);
    h.run_until(&done, move |done| done.try_recv().is_ok());
    assert!(turns.get() >= 9, "ten jobs, each posted by the one before, in {} turns", turns.get());
}

pub(crate) fn b5_post_is_refused_when_the_loop_is_gone(h: &Harness) {
    let lp = h.builder().build().unwrap();
    let handle = lp.handle();
    assert!(handle.is_alive());
    drop(lp);
    assert!(!handle.is_alive());
    assert_eq!(handle.post(|_| unreachable!()), Err(PostError::Gone));
    handle.wake();
    handle.stop();
    assert_eq!(PostError::Gone.to_string(), "cannot post: the loop is gone");
}

pub(crate) fn b5_jobs_of_a_loop_that_goes_are_dropped_and_may_post_as_they_go(h: &Harness) {
    struct PostsWhenDropped(LoopHandle, Sender<Result<(), PostError>>);
    impl Drop for PostsWhenDropped {
        fn drop(&mut self) {
            self.1.send(self.0.post(|_| ())).unwrap();
        }
    }
    let lp = h.builder().build().unwrap();
    let (send, receive) = channel();
    let job = PostsWhenDropped(lp.handle(), send);
    lp.handle().post(move |_| drop(job)).unwrap();
    drop(lp);
    assert_eq!(receive.recv(), Ok(Err(PostError::Gone)));
}

pub(crate) fn b5_limit_of_posted_jobs_is_exact(h: &Harness) {
    let lp = h.builder().limit_posted_jobs(5).build().unwrap();
    let handle = lp.handle();
    for _ in 0..5 {
        handle.post(|_| ()).unwrap();
    }
    assert_eq!(handle.post(|_| unreachable!()), Err(PostError::Full));
    assert_eq!(handle.posted_jobs(), 5);
    lp.run_ready().unwrap();
    handle.post(|_| ()).unwrap();
    assert!(PostError::Full.to_string().contains("limit_posted_jobs"));
}

pub(crate) fn limits_of_zero_are_refused_with_the_reason(h: &Harness) {
    for (builder, name) in
        [(h.builder().budget(0), "budget"), (h.builder().limit_posted_jobs(0), "limit_posted_jobs")]
    {
        let error = builder.build().expect_err("a limit of zero");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().starts_with(name), "{error}");
    }
}
