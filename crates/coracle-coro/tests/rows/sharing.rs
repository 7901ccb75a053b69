//! Locks, channels and `select!` between coroutines of one loop, of two loops, and threads, all at the same time.

use crate::harness::{Harness, PARTIES, everywhere};
use coracle_coro::sync::{
    Barrier, Condvar, Mutex, OnceLock, RwLock, Semaphore, WaitGroup, channel,
};
use coracle_coro::{select, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often each party does it.
const ROUNDS: usize = 100;

pub(crate) fn s17_mutex_is_held_by_one_at_a_time(h: &Harness) {
    let total = Arc::new(Mutex::new(0));
    let shared = Arc::clone(&total);
    let parties = everywhere(h, move |_, _| {
        for _ in 0..ROUNDS {
            let mut total = shared.lock().unwrap();
            let before = *total;
            yield_now(); // a guard is held while others run
            *total = before + 1;
        }
    });
    assert_eq!(*total.lock().unwrap(), ROUNDS * parties.len());
}

pub(crate) fn s18_condvar_wakes_whose_turn_it_is(h: &Harness) {
    let shared = Arc::new((Mutex::new(0), Condvar::new()));
    everywhere(h, move |me, all| {
        let (turn, changed) = &*shared;
        for _ in 0..ROUNDS / 10 {
            let mut turn = changed.wait_while(turn.lock().unwrap(), |turn| *turn != me).unwrap();
            *turn = (me + 1) % all;
            drop(turn);
            changed.notify_all();
        }
    });
}

pub(crate) fn s19_readers_see_what_a_writer_has_finished(h: &Harness) {
    let shared = Arc::new(RwLock::new((0, 0)));
    let both = Arc::clone(&shared);
    let parties = everywhere(h, move |me, _| {
        for _ in 0..ROUNDS {
            if me % 2 == 0 {
                let mut pair = both.write().unwrap();
                pair.0 += 1;
                yield_now();
                pair.1 += 1;
            } else {
                let pair = both.read().unwrap();
                let before = *pair;
                yield_now();
                assert_eq!((before.0, before), (before.1, *pair));
            }
        }
    });
    let writers = parties.len().div_ceil(2);
    assert_eq!(*shared.read().unwrap(), (ROUNDS * writers, ROUNDS * writers));
}

pub(crate) fn s20_semaphore_lets_so_many_in(h: &Harness) {
    let shared = Arc::new((Semaphore::new(2), AtomicUsize::new(0)));
    let both = Arc::clone(&shared);
    everywhere(h, move |me, _| {
        let (semaphore, inside) = &*both;
        for _ in 0..ROUNDS {
            let count = 1 + me % 2;
            let permit = semaphore.acquire(count).unwrap();
            let before = inside.fetch_add(count, Ordering::SeqCst);
            assert!(before + count <= 2, "{before} and {count} are inside");
            yield_now();
            inside.fetch_sub(count, Ordering::SeqCst);
            drop(permit);
        }
    });
    assert_eq!(shared.0.available_permits(), 2);
}

pub(crate) fn s21_nobody_passes_a_barrier_before_all_are_there(h: &Harness) {
    let shared = Arc::new((Barrier::new(PARTIES), AtomicUsize::new(0), AtomicUsize::new(0)));
    let both = Arc::clone(&shared);
    everywhere(h, move |_, all| {
        let (barrier, arrived, leaders) = &*both;
        for round in 1..=ROUNDS / 10 {
            arrived.fetch_add(1, Ordering::SeqCst);
            if barrier.wait().unwrap().is_leader() {
                leaders.fetch_add(1, Ordering::SeqCst);
            }
            assert!(arrived.load(Ordering::SeqCst) >= round * all);
            barrier.wait().unwrap();
        }
    });
    assert_eq!(shared.2.load(Ordering::SeqCst), ROUNDS / 10);
}

pub(crate) fn s21_value_is_made_once(h: &Harness) {
    let shared = Arc::new((OnceLock::new(), AtomicUsize::new(0)));
    let both = Arc::clone(&shared);
    let seen = everywhere(h, move |me, _| {
        let (once, count) = &*both;
        *once
            .get_or_init(|| {
                count.fetch_add(1, Ordering::SeqCst);
                yield_now(); // what makes it may wait
                me
            })
            .unwrap()
    });
    assert_eq!(shared.1.load(Ordering::SeqCst), 1);
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
}

pub(crate) fn s12_wait_group_waits_for_all(h: &Harness) {
    let group = WaitGroup::new();
    let members: Vec<_> = (0..PARTIES).map(|_| group.add()).collect();
    let shared = Arc::new((Mutex::new(members), group, AtomicUsize::new(0)));
    let seen = everywhere(h, move |_, _| {
        let (members, group, done) = &*shared;
        let member = members.lock().unwrap().pop();
        yield_now();
        done.fetch_add(1, Ordering::SeqCst);
        drop(member);
        group.wait().unwrap();
        done.load(Ordering::SeqCst)
    });
    assert!(seen.iter().all(|done| *done == seen.len()), "{seen:?}");
}

pub(crate) fn s22_every_message_arrives_once_and_in_order(h: &Harness) {
    for limit in [0, 3] {
        let (sender, receiver) = channel(limit);
        let received = everywhere(h, move |me, all| {
            let mut received = Vec::new();
            // Half of them send, the others receive.
            if me % 2 == 0 {
                for n in 0..ROUNDS {
                    sender.send((me, n)).unwrap();
                }
            } else {
                let share = ROUNDS * all.div_ceil(2) / (all / 2);
                received.extend((0..share).map(|_| receiver.recv().unwrap()));
            }
            received
        });
        let mut all: Vec<_> = received.concat();
        for one in &received {
            for sender in 0..received.len() {
                let of_one: Vec<_> = one.iter().filter(|(me, _)| *me == sender).collect();
                assert!(of_one.is_sorted(), "messages of one sender overtake each other");
            }
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), ROUNDS * received.len() / 2);
    }
}

pub(crate) fn s23_end_of_a_channel_reaches_everybody(h: &Harness) {
    let (sender, receiver) = channel::<usize>(1);
    let sender = Arc::new(Mutex::new(Some(sender)));
    let received = everywhere(h, move |me, all| {
        if me == 0 {
            let sender = sender.lock().unwrap().take().unwrap();
            (0..10 * all).for_each(|n| sender.send(n).unwrap());
        }
        receiver.iter().count()
    });
    assert_eq!(received.iter().sum::<usize>(), 10 * received.len());
}

pub(crate) fn s24_select_takes_each_message_once(h: &Harness) {
    let (left, from_left) = channel(1);
    let (right, from_right) = channel(2);
    let sums = everywhere(h, move |me, _| {
        let mut sum = 0;
        let mut held = None;
        let (mut sent, mut received) = (0, 0);
        while sent < ROUNDS || received < ROUNDS {
            if held.is_none() && sent < ROUNDS {
                held = Some(1);
            }
            let to = if me % 2 == 0 { &left } else { &right };
            if received < ROUNDS {
                select! {
                    n = &from_left => { sum += n.unwrap(); received += 1 },
                    n = &from_right => { sum += n.unwrap(); received += 1 },
                    done = to.sending(&mut held) => { done.unwrap(); sent += 1 },
                }
            } else {
                select! {
                    done = to.sending(&mut held) => { done.unwrap(); sent += 1 },
                }
            }
        }
        sum
    });
    assert_eq!(sums.iter().sum::<usize>(), ROUNDS * sums.len());
}
