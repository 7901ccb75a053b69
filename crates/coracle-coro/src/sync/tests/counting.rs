//! Semaphore, barrier, once, wait group.

use super::{LONG, SHORT, until};
use crate::sync::{Barrier, Mutex, Once, OnceLock, Semaphore, WaitGroup};
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

#[test]
fn s20_no_more_than_the_permits_are_inside() {
    let (semaphore, inside) = (Semaphore::new(3), AtomicUsize::new(0));
    thread::scope(|scope| {
        for n in 0..5 {
            let (semaphore, inside) = (&semaphore, &inside);
            scope.spawn(move || {
                let count = 1 + n % 2;
                for _ in 0..500 {
                    let _permit = semaphore.acquire(count).unwrap();
                    let before = inside.fetch_add(count, Ordering::SeqCst);
                    assert!(before + count <= 3, "{before} were inside");
                    inside.fetch_sub(count, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(semaphore.available_permits(), 3);
}

#[test]
fn s20_one_that_needs_many_is_not_overtaken() {
    let (semaphore, order) = (Semaphore::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for (place, count) in [3, 1].into_iter().enumerate() {
            let (semaphore, order) = (&semaphore, &order);
            scope.spawn(move || {
                let permit = semaphore.acquire(count).unwrap();
                order.lock().unwrap().push(count);
                permit.forget();
            });
            until(|| semaphore.waiting() == place + 1);
        }
        // Two would be enough for the second, and are saved up for the first.
        semaphore.add_permits(2);
        assert!(semaphore.try_acquire(1).is_none());
        assert_eq!(semaphore.waiting(), 2);
        semaphore.add_permits(1);
        until(|| semaphore.waiting() == 1);
        until(|| order.lock().unwrap().len() == 1);
        semaphore.add_permits(1);
    });
    assert_eq!(order.into_inner(), [3, 1]);
    assert_eq!(semaphore.available_permits(), 0);
}

#[test]
fn s20_who_gives_up_leaves_what_was_saved_up_to_the_next() {
    let semaphore = Semaphore::new(2);
    thread::scope(|scope| {
        let semaphore = &semaphore;
        let greedy = scope.spawn(move || semaphore.acquire_timeout(3, 20 * SHORT).map(drop));
        until(|| semaphore.waiting() > 0 || greedy.is_finished());
        let modest = scope.spawn(move || semaphore.acquire_timeout(2, LONG).map(drop));
        assert_eq!(greedy.join().unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
        modest.join().unwrap().unwrap();
    });
    assert_eq!((semaphore.available_permits(), semaphore.waiting()), (2, 0));
}

#[test]
fn s20_permits_come_from_any_thread() {
    let semaphore = Semaphore::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..250).for_each(|_| semaphore.add_permits(1)));
        }
        for _ in 0..10 {
            semaphore.acquire(100).unwrap().forget();
        }
    });
    assert_eq!(semaphore.available_permits(), 0);
}

#[test]
fn s20_more_permits_than_can_be_counted_are_refused() {
    let semaphore = Semaphore::new(1);
    let panic = catch_unwind(AssertUnwindSafe(|| semaphore.add_permits(usize::MAX >> 3)));
    assert!(panic.is_err());
    assert_eq!(semaphore.available_permits(), 1);
    assert!(semaphore.try_acquire(usize::MAX).is_none());
}

#[test]
fn s21_nobody_passes_the_barrier_before_all_are_there_and_one_leads() {
    let (barrier, arrived, leaders) = (Barrier::new(4), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 1..=100 {
                    arrived.fetch_add(1, Ordering::SeqCst);
                    if barrier.wait().unwrap().is_leader() {
                        leaders.fetch_add(1, Ordering::SeqCst);
                    }
                    assert!(arrived.load(Ordering::SeqCst) >= 4 * round);
                }
            });
        }
    });
    assert_eq!((leaders.into_inner(), barrier.waiting()), (100, 0));
}

#[test]
fn s21_one_makes_the_value_and_the_others_wait_for_it() {
    let (once, made) = (OnceLock::new(), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let make = || {
                    // Not before the others wait for it.
                    until(|| once.waiting() == 3);
                    made.fetch_add(1, Ordering::SeqCst) + 1
                };
                assert_eq!(*once.get_or_init(make).unwrap(), 1);
            });
        }
    });
    assert_eq!(made.into_inner(), 1);
}

#[test]
fn s21_after_a_failure_or_a_panic_it_is_the_next_ones_turn() {
    let once = OnceLock::new();
    let refused = || Err::<u32, _>(io::Error::from(ErrorKind::ConnectionRefused));
    assert_eq!(once.get_or_try_init(refused).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let panic =
        catch_unwind(AssertUnwindSafe(|| once.get_or_init(|| panic!("on purpose")).map(|_| ())));
    assert!(panic.is_err());
    assert_eq!(*once.get_or_init(|| 7).unwrap(), 7);
}

#[test]
fn s21_once_is_done_once() {
    let (once, count) = (Once::new(), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                once.call_once(|| {
                    count.fetch_add(1, Ordering::SeqCst);
                })
                .unwrap();
                assert_eq!(count.load(Ordering::SeqCst), 1, "it is done when this returns");
            });
        }
    });
    assert!(once.is_completed());
}

#[test]
fn s21_a_flag_is_raised_for_all_who_wait() {
    let flag = OnceLock::new();
    assert_eq!(flag.wait_timeout(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| flag.wait().map(|_| ()).unwrap());
        }
        until(|| flag.waiting() == 3);
        flag.set(()).unwrap();
    });
    assert_eq!(flag.waiting(), 0);
    flag.wait().unwrap();
}

#[test]
fn s12_wait_group_waits_until_all_are_done() {
    let (group, done) = (WaitGroup::new(), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            let (member, done) = (group.add(), &done);
            scope.spawn(move || {
                done.fetch_add(1, Ordering::SeqCst);
                member.done();
            });
        }
        group.wait().unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 4);
    });
}

#[test]
fn s12_wait_group_wakes_all_who_wait() {
    let group = WaitGroup::new();
    let member = group.add();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| group.wait().unwrap());
        }
        until(|| group.waiting() == 3);
        drop(member);
    });
    assert_eq!((group.members(), group.waiting()), (0, 0));
}

#[test]
fn s12_wait_for_a_group_can_time_out_and_begin_again() {
    let group = WaitGroup::new();
    let member = group.add();
    assert_eq!(group.wait_timeout(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(group.waiting(), 0, "it has left the line");
    drop(member);
    group.wait_timeout(LONG).unwrap();
    let member = group.add();
    assert!(group.wait_timeout(SHORT).is_err());
    drop(member);
}

#[test]
fn s12_a_member_that_panics_is_done() {
    let group = WaitGroup::new();
    let member = group.add();
    let worker = thread::spawn(move || {
        let _member = member;
        panic!("on purpose");
    });
    group.wait().unwrap();
    assert!(worker.join().is_err());
}
