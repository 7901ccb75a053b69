//! Cancelling: an error of every wait from then on, and nothing by force.

use crate::harness::{ECANCELED, HOUR, Harness, Log, MS, Noted, errno, now};
use coracle_coro::future::{FutureHandle, spawn_future};
use coracle_coro::{JoinHandle, current, park, run_on, sleep, spawn, yield_now};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use coracle_loop::demux::sim::{Faults, Kernel};
use std::cell::RefCell;
use std::rc::Rc;

pub(crate) fn s10_cancel_ends_the_wait_and_every_later_one(h: &Harness) {
    h.run(|| {
        let child = spawn(|| [errno(sleep(HOUR)), errno(park()), errno(sleep(MS))]);
        yield_now();
        child.cancel();
        assert_eq!(child.join().unwrap(), [ECANCELED; 3]);
        Ok(())
    });
}

pub(crate) fn s10_what_has_happened_is_delivered_first(h: &Harness) {
    h.run(|| {
        let child = spawn(|| (park().is_ok(), errno(park())));
        yield_now();
        child.coroutine().unpark();
        child.cancel();
        assert_eq!(child.join().unwrap(), (true, ECANCELED));
        Ok(())
    });
}

pub(crate) fn s10_cancel_before_the_start_strikes_the_first_wait(h: &Harness) {
    h.run(|| {
        let child = spawn(|| errno(sleep(HOUR)));
        child.cancel();
        assert_eq!(child.join().unwrap(), ECANCELED);
        Ok(())
    });
}

pub(crate) fn s10_destructors_run(h: &Harness) {
    h.run(|| {
        let log = Log::default();
        let noted = log.clone();
        let child = spawn(move || {
            let _noted = Noted(noted, "dropped");
            sleep(HOUR)
        });
        yield_now();
        child.cancel();
        assert_eq!(errno(child.join().unwrap()), ECANCELED);
        assert_eq!(log.take(), ["dropped"]);
        Ok(())
    });
}

pub(crate) fn s10_thread_cancels(h: &Harness) {
    h.run(|| {
        let main = current();
        let child = spawn(|| errno(park()));
        let thread = std::thread::spawn(move || {
            child.cancel();
            let error = child.join().unwrap();
            main.unpark();
            error
        });
        park()?;
        assert_eq!(thread.join().unwrap(), ECANCELED);
        Ok(())
    });
}

pub(crate) fn s10_stop_of_the_loop_cancels_all(h: &Harness) {
    let ended = coracle_coro::run_on(&h.lp, || {
        let child = spawn(|| errno(sleep(HOUR)));
        Loop::current().unwrap().stop();
        let own = errno(sleep(HOUR));
        // The child has as much to say, and is waited for.
        drop(child);
        Ok(own)
    });
    assert_eq!(ended.unwrap(), ECANCELED);
}

pub(crate) fn s10_who_ignores_it_waits_longer_and_longer(h: &Harness) {
    h.run(|| {
        let child = spawn(|| {
            let begin = now();
            for _ in 0..13 {
                assert_eq!(errno(sleep(HOUR)), ECANCELED);
            }
            now() - begin
        });
        child.cancel();
        // Eight at once, and then 2, 4, 8, 16 and 32 ms.
        assert!(child.join().unwrap() >= 62 * MS);
        Ok(())
    });
}

pub(crate) fn s10_started_coroutine_is_leaked_with_its_loop(h: &Harness) {
    let lp = h.another_loop();
    let shared = Rc::new(());
    let (started, unstarted) = (Rc::clone(&shared), Rc::clone(&shared));
    lp.defer(move |_| {
        spawn(move || {
            let _held = started;
            park()
        });
    });
    lp.run_ready().unwrap();
    lp.run_ready().unwrap();
    lp.defer(move |_| drop(spawn(move || drop(unstarted))));
    lp.run_ready().unwrap(); // which spawns it; it would run in the next turn
    assert_eq!(Rc::strong_count(&shared), 3);
    drop(lp);
    assert_eq!(Rc::strong_count(&shared), 2, "dropped is what was not started, and only that");
}

pub(crate) fn s10_more_than_can_be_posted_are_cancelled_at_once(h: &Harness) {
    let lp = narrow_loop(h, 10);
    let handle = lp.handle();
    let ended = run_on(&lp, move || {
        let many: Vec<_> = (0..100).map(|_| spawn(|| errno(sleep(HOUR)))).collect();
        yield_now();
        handle.stop();
        assert_eq!(errno(sleep(HOUR)), ECANCELED);
        Ok(many.into_iter().filter(|one| one.is_finished()).count())
    });
    ended.expect("all were cancelled");
}

/// One that takes `limit` posted jobs at a time.
pub(crate) fn narrow_loop(h: &Harness, limit: usize) -> Loop {
    let builder = Loop::builder().limit_posted_jobs(limit);
    let lp = match h.another_loop().backend() {
        Backend::Sim => builder.demux(Kernel::with_faults(1, Faults::benign()).demux()),
        backend => builder.backend(backend),
    };
    lp.build().unwrap()
}

pub(crate) fn s10_loop_does_not_wait_for_another_that_is_behind(h: &Harness) {
    type Many<T> = Rc<RefCell<Vec<T>>>;
    let (lp, coroutines, futures) = (narrow_loop(h, 10), Many::default(), Many::default());
    let (many, more) = (Rc::clone(&coroutines), Rc::clone(&futures));
    lp.defer(move |_| {
        many.borrow_mut().extend((0..100).map(|_| spawn(|| errno(sleep(HOUR)))));
        more.borrow_mut().extend((0..100).map(|_| spawn_future(std::future::pending::<()>())));
    });
    lp.run_ready().unwrap();
    lp.run_ready().unwrap();
    // Both are of this thread: who waited for the other would wait for ever, as two would that wait for each
    // other.
    let (many, more) = (Rc::clone(&coroutines), Rc::clone(&futures));
    h.lp.defer(move |_| {
        many.borrow().iter().for_each(JoinHandle::cancel);
        more.borrow().iter().for_each(FutureHandle::cancel);
    });
    let is_over = || {
        coroutines.borrow().iter().all(JoinHandle::is_finished)
            && futures.borrow().iter().all(FutureHandle::is_finished)
    };
    let turn = |_: &u32| {
        h.lp.run_ready().unwrap();
        lp.run_ready().unwrap();
        is_over()
    };
    assert!((0..1000).any(|nth| turn(&nth)), "some were not cancelled");
}
