//! Coroutines whose loop is dropped before they are over: they are leaked, and nobody waits for them in vain.

use crate::harness::Harness;
use coracle_coro::sync::{Condvar, Mutex, Semaphore, channel};
use coracle_coro::{JoinError, JoinHandle, park, spawn_on};
use coracle_loop::Loop;
use std::sync::Arc;

/// A coroutine of a loop that is dropped before the coroutine is over.
fn castaway<T: Send + 'static>(lp: &Loop, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let child = spawn_on(&lp.handle(), f).unwrap();
    for _ in 0..3 {
        lp.run_ready().unwrap();
    }
    assert!(!child.is_finished(), "it waits");
    child
}

pub(crate) fn s7_who_joins_a_coroutine_of_a_loop_that_is_gone_is_told(h: &Harness) {
    let lp = h.another_loop();
    let [first, second, third] = [park, park, park].map(|f| castaway(&lp, f));
    let joining = std::thread::spawn(move || first.join());
    let second = spawn_on(&h.lp.handle(), move || second.join()).unwrap();
    h.lp.run_ready().unwrap(); // it waits
    drop(lp);
    h.run(|| Ok(()));
    for ended in [joining.join().unwrap(), second.join().unwrap(), third.join()] {
        let Err(JoinError::Lost(why)) = &ended else { panic!("{ended:?}") };
        assert!(why.contains("its loop was dropped"), "{why}");
        let error = std::io::Error::from(ended.unwrap_err());
        assert!(error.to_string().contains("its loop was dropped"), "{error}");
    }
}

pub(crate) fn s17_lock_is_not_handed_to_a_coroutine_whose_loop_is_gone(h: &Harness) {
    let (lp, mutex, many) =
        (h.another_loop(), Arc::new(Mutex::new(0)), Arc::new(Semaphore::new(1)));
    let guard = mutex.try_lock().unwrap();
    let (locks, acquires) = (Arc::clone(&mutex), Arc::clone(&many));
    castaway(&lp, move || locks.lock().map(drop));
    castaway(&lp, move || acquires.acquire(5).map(drop));
    drop(lp);
    let waiting = {
        let (mutex, many) = (Arc::clone(&mutex), Arc::clone(&many));
        std::thread::spawn(move || {
            *mutex.lock().unwrap() += 1;
            drop(many.acquire(1).unwrap()); // though one who wants more was first
        })
    };
    drop(guard);
    waiting.join().unwrap();
    assert_eq!(mutex.try_lock().as_deref(), Some(&1), "nobody is in the line any more");
    assert!(many.try_acquire(1).is_some());
}

pub(crate) fn s22_message_is_not_handed_to_a_coroutine_whose_loop_is_gone(h: &Harness) {
    let lp = h.another_loop();
    let ((sender, receiver), (offers, sink)) = (channel(0), channel(0));
    let (receives, sends) = (receiver.clone(), offers.clone());
    castaway(&lp, move || receives.recv());
    castaway(&lp, move || sends.send(1));
    drop(lp);
    let receiving = std::thread::spawn(move || receiver.recv());
    sender.send(7).unwrap();
    assert_eq!(receiving.join().unwrap(), Ok(7));
    let sending = std::thread::spawn(move || offers.send(2));
    assert_eq!(sink.recv(), Ok(2), "what was not taken is lost with who offered it");
    sending.join().unwrap().unwrap();
}

pub(crate) fn s18_notification_is_not_lost_to_a_coroutine_whose_loop_is_gone(h: &Harness) {
    let lp = h.another_loop();
    let shared = Arc::new((Mutex::new(false), Condvar::new()));
    let waits = |shared: &Arc<(Mutex<bool>, Condvar)>| {
        let shared = Arc::clone(shared);
        move || {
            let mut ready = shared.0.lock().unwrap();
            *ready = true; // from when it waits on, since that is when it is unlocked
            drop(shared.1.wait(ready));
        }
    };
    castaway(&lp, waits(&shared));
    drop(lp);
    *shared.0.lock().unwrap() = false;
    let waiting = std::thread::spawn(waits(&shared));
    while !*shared.0.lock().unwrap() {
        std::thread::yield_now();
    }
    shared.1.notify_one();
    waiting.join().unwrap();
}

pub(crate) fn s13_unpark_of_a_coroutine_whose_loop_is_gone_does_nothing(h: &Harness) {
    let lp = h.another_loop();
    let child = castaway(&lp, park);
    drop(lp);
    child.coroutine().unpark();
    child.cancel();
    assert!(child.is_finished());
}
