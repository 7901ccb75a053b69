//! Facts about waiting that cannot be seen from outside: who ends a wait, and who is told that it did.

use super::{Waiter, Waker, Woken};
use crate::{run, spawn, yield_now};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Somebody else's wakers are as good as one's own.
#[test]
fn s13_waker_goes_everywhere() {
    fn is_shared<T: Send + Sync + Clone>() {}
    is_shared::<Waker>();
}

#[test]
fn s13_wake_before_the_wait_is_not_lost() {
    let wait = || {
        let waiter = Waiter::new();
        assert!(waiter.waker().wake());
        assert_eq!(waiter.wait(None), Woken::Woken);
    };
    wait(); // a plain thread
    run(move || {
        wait();
        Ok(())
    })
    .unwrap();
}

#[test]
fn s13_only_the_first_wake_counts() {
    let wait = || {
        let waiter = Waiter::new();
        let [first, second] = [waiter.waker(), waiter.waker()];
        assert!(first.wake());
        assert!(!second.wake() && !first.wake());
        assert_eq!(waiter.wait(None), Woken::Woken);
        // They were for that wait, and not for the next.
        let waiter = Waiter::new();
        assert!(!first.wake());
        assert_eq!(waiter.wait(Some(Instant::now())), Woken::TimedOut);
    };
    wait();
    run(move || {
        wait();
        Ok(())
    })
    .unwrap();
}

#[test]
fn s13_wake_after_the_deadline_does_not_count() {
    let wait = || {
        let waiter = Waiter::new();
        let waker = waiter.waker();
        assert_eq!(waiter.wait(Some(Instant::now())), Woken::TimedOut);
        assert!(!waker.wake());
    };
    wait();
    run(move || {
        wait();
        Ok(())
    })
    .unwrap();
}

#[test]
fn s13_coroutines_wake_each_other_in_order() {
    run(|| {
        let wakers = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let children: Vec<_> = (0..10)
            .map(|_| {
                let wakers = std::rc::Rc::clone(&wakers);
                spawn(move || {
                    let waiter = Waiter::new();
                    wakers.borrow_mut().push(waiter.waker());
                    waiter.wait(None)
                })
            })
            .collect();
        yield_now();
        assert_eq!(wakers.borrow().len(), 10);
        assert!(wakers.take().iter().all(Waker::wake));
        for child in children {
            assert_eq!(child.join().unwrap(), Woken::Woken);
        }
        Ok(())
    })
    .unwrap();
}

/// Whatever the interleaving, the waiter and the waker agree about who it was.
fn race(rounds: u32) {
    let (send, receive) = channel::<Waker>();
    let (answer, answers) = channel();
    let thread = thread::spawn(move || {
        for (round, waker) in receive.iter().enumerate() {
            for _ in 0..round % 64 {
                std::hint::spin_loop();
            }
            answer.send(waker.wake()).unwrap();
        }
    });
    for round in 0..rounds {
        let waiter = Waiter::new();
        send.send(waiter.waker()).unwrap();
        let deadline = Instant::now() + Duration::from_nanos(u64::from(round % 50) * 200);
        let woken = waiter.wait(Some(deadline));
        assert_ne!(woken, Woken::Cancelled);
        assert_eq!(answers.recv().unwrap(), woken == Woken::Woken, "round {round}");
    }
    drop(send);
    thread.join().unwrap();
}

#[test]
fn s13_either_the_wake_or_the_deadline_ends_a_wait_of_a_thread() {
    race(2000);
}

#[test]
fn s13_either_the_wake_or_the_deadline_ends_a_wait_of_a_coroutine() {
    run(|| {
        race(2000);
        Ok(())
    })
    .unwrap();
}

#[test]
fn s10_either_the_wake_or_the_cancel_ends_a_wait() {
    run(|| {
        for _ in 0..500 {
            let (send, receive) = channel::<Waker>();
            let thread = thread::spawn(move || receive.recv().unwrap().wake());
            let child = spawn(move || {
                let waiter = Waiter::new();
                send.send(waiter.waker()).unwrap();
                waiter.wait(None)
            });
            yield_now();
            child.cancel();
            let woken = child.join().unwrap();
            assert_eq!(thread.join().unwrap(), woken == Woken::Woken);
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[should_panic(expected = "before the last one was over")]
fn wait_inside_another_is_found() {
    let outer = Waiter::new();
    let _inner = Waiter::new();
    outer.wait(None);
}
