//! Mutex, condition variable, read-write lock.

use super::{LONG, SHORT, until};
use crate::sync::{Condvar, Mutex, RwLock};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

#[test]
fn s17_mutex_lets_one_in_at_a_time() {
    let count = Mutex::new(0_u32);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let mut count = count.lock().unwrap();
                    let seen = *count;
                    std::hint::spin_loop();
                    *count = seen + 1;
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 8_000);
}

#[test]
fn s17_mutex_is_handed_over_in_the_order_they_came() {
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let guard = order.lock().unwrap();
        for n in 0..6 {
            let order = &order;
            scope.spawn(move || order.lock().unwrap().push(n));
            until(|| order.waiting() == n + 1);
        }
        drop(guard);
    });
    assert_eq!(order.into_inner(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn s17_nobody_takes_the_mutex_on_its_way_to_who_waits() {
    let mutex = Mutex::new(());
    let (locked, is_locked) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let guard = mutex.lock().unwrap();
        let mutex = &mutex;
        scope.spawn(move || {
            let _guard = mutex.lock().unwrap();
            locked.send(()).unwrap();
            released.recv().unwrap();
        });
        until(|| mutex.waiting() == 1);
        drop(guard);
        // Whether the other has run by now or not, the mutex is his.
        assert!(mutex.try_lock().is_none());
        is_locked.recv().unwrap();
        assert!(mutex.try_lock().is_none());
        release.send(()).unwrap();
        let _guard = mutex.lock().unwrap();
    });
}

#[test]
fn s17_who_has_timed_out_is_passed_over() {
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let guard = order.lock().unwrap();
        let order = &order;
        scope.spawn(move || order.try_lock_for(LONG).unwrap().push("first"));
        until(|| order.waiting() == 1);
        let impatient = scope.spawn(move || order.try_lock_for(SHORT).map(drop));
        let error = impatient.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(order.waiting(), 1, "it has left the line");
        scope.spawn(move || order.lock().unwrap().push("last"));
        until(|| order.waiting() == 2);
        drop(guard);
    });
    assert_eq!(order.into_inner(), ["first", "last"]);
}

#[test]
fn s17_time_outs_at_the_moment_of_the_hand_over_lose_nothing() {
    let count = Mutex::new(0);
    let gained: u32 = thread::scope(|scope| {
        let workers = [0, 1, 2].map(|n| {
            let count = &count;
            scope.spawn(move || {
                let mut gained = 0;
                for round in 0..3_000_u64 {
                    let timeout = std::time::Duration::from_nanos(round * n % 3_000);
                    if let Ok(mut count) = count.try_lock_for(timeout) {
                        *count += 1;
                        gained += 1;
                    }
                }
                gained
            })
        });
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!(count.waiting(), 0);
    assert_eq!(*count.try_lock().expect("nobody has it"), gained);
}

#[test]
fn s17_panic_unlocks_and_poisons_nothing() {
    let mutex = Mutex::new(1);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = mutex.lock().unwrap();
        *guard = 2;
        panic!("on purpose");
    }));
    assert!(panic.is_err());
    assert_eq!(*mutex.lock().unwrap(), 2);
}

#[test]
fn s18_condvar_wakes_who_has_waited_longest() {
    let (order, changed) = (Mutex::new(Vec::new()), Condvar::new());
    thread::scope(|scope| {
        for n in 0..4 {
            let (order, changed) = (&order, &changed);
            scope.spawn(move || changed.wait(order.lock().unwrap()).unwrap().push(n));
            until(|| changed.waiting() == n + 1);
        }
        for n in 0..4 {
            changed.notify_one();
            until(|| order.lock().unwrap().len() == n + 1);
        }
    });
    assert_eq!(order.into_inner(), [0, 1, 2, 3]);
}

#[test]
fn s18_condvar_wakes_all() {
    let (open, changed) = (Mutex::new(false), Condvar::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| changed.wait_while(open.lock().unwrap(), |open| !*open).map(drop));
        }
        until(|| changed.waiting() == 4);
        *open.lock().unwrap() = true;
        changed.notify_all();
    });
    assert_eq!(changed.waiting(), 0);
}

#[test]
fn s18_wait_says_whether_it_timed_out() {
    let (ready, changed) = (Mutex::new(false), Condvar::new());
    let (guard, result) = changed.wait_timeout(ready.lock().unwrap(), SHORT).unwrap();
    assert!(result.timed_out());
    assert_eq!(changed.waiting(), 0, "it has left the line");
    let (guard, result) = changed.wait_timeout_while(guard, SHORT, |ready| !*ready).unwrap();
    assert!(result.timed_out());
    thread::scope(|scope| {
        scope.spawn(|| {
            *ready.lock().unwrap() = true;
            changed.notify_one();
        });
        let (_guard, result) = changed.wait_timeout_while(guard, LONG, |ready| !*ready).unwrap();
        assert!(!result.timed_out());
    });
}

#[test]
fn s18_notification_for_one_that_timed_out_reaches_the_next() {
    let (mutex, changed) = (Mutex::new(()), Condvar::new());
    thread::scope(|scope| {
        let (mutex, changed) = (&mutex, &changed);
        let impatient = scope.spawn(move || {
            changed.wait_timeout(mutex.lock().unwrap(), SHORT).unwrap().1.timed_out()
        });
        until(|| changed.waiting() == 1 || impatient.is_finished());
        let patient = scope.spawn(move || {
            changed.wait_timeout(mutex.lock().unwrap(), LONG).unwrap().1.timed_out()
        });
        assert!(impatient.join().unwrap());
        until(|| changed.waiting() == 1);
        changed.notify_one();
        assert!(!patient.join().unwrap());
    });
}

#[test]
fn s18_no_notification_is_lost_between_unlocking_and_waiting() {
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    thread::scope(|scope| {
        for parity in [0, 1] {
            let (turn, changed) = (&turn, &changed);
            scope.spawn(move || {
                for _ in 0..2_000 {
                    let turn = turn.lock().unwrap();
                    let mut turn = changed.wait_while(turn, |turn| *turn % 2 != parity).unwrap();
                    *turn += 1;
                    changed.notify_one();
                }
            });
        }
    });
    assert_eq!(turn.into_inner(), 4_000);
}

#[test]
fn s19_readers_read_together_and_writers_write_alone() {
    let lock = RwLock::new(1);
    let (one, other) = (lock.read().unwrap(), lock.read().unwrap());
    assert_eq!(*one + *other, 2);
    assert!(lock.try_write().is_none());
    assert_eq!(lock.try_write_for(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
    drop((one, other));
    let guard = lock.write().unwrap();
    assert!(lock.try_read().is_none() && lock.try_write().is_none());
    assert_eq!(lock.try_read_for(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
    drop(guard);
    assert_eq!(*lock.read().unwrap(), 1);
}

#[test]
fn s19_readers_that_come_later_do_not_starve_a_writer() {
    let order = RwLock::new(Vec::new());
    let seen = thread::scope(|scope| {
        let reading = order.read().unwrap();
        let order = &order;
        scope.spawn(move || order.write().unwrap().push("written"));
        until(|| order.waiting() == 1);
        assert!(order.try_read().is_none(), "a writer waits");
        let late = scope.spawn(move || order.read().unwrap().len());
        until(|| order.waiting() == 2);
        drop(reading);
        late.join().unwrap()
    });
    assert_eq!(seen, 1, "it has read after the writer wrote");
}

#[test]
fn s19_readers_behind_a_writer_that_gives_up_go_on() {
    let lock = RwLock::new(());
    thread::scope(|scope| {
        let _reading = lock.read().unwrap();
        let lock = &lock;
        let writer = scope.spawn(move || lock.try_write_for(20 * SHORT).map(drop));
        until(|| lock.waiting() > 0 || writer.is_finished());
        let reader = scope.spawn(move || drop(lock.read().unwrap()));
        assert!(writer.join().unwrap().is_err());
        reader.join().unwrap();
    });
}

#[test]
fn s19_writers_exclude_each_other_and_readers() {
    let pair = RwLock::new((0_u32, 0_u32));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    let mut pair = pair.write().unwrap();
                    pair.0 += 1;
                    std::hint::spin_loop();
                    pair.1 += 1;
                }
            });
            scope.spawn(|| {
                for _ in 0..1_000 {
                    let pair = pair.read().unwrap();
                    assert_eq!(pair.0, pair.1);
                }
            });
        }
    });
    assert_eq!(pair.into_inner(), (2_000, 2_000));
}
