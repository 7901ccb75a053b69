//! The ring of a channel, in every interleaving: the very code of `src/sync/ring.rs`, with loom's atomics and
//! cells under it.
//!
//! loom panics when two touch a slot without one having seen the other. A message that is lost, doubled or out of
//! order is found by its number; one that is dropped twice, or never, by counting.
#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::arc_with_non_send_sync)] // what loom runs as threads shares one of them

use loom::thread;
use std::sync::Arc;

/// What `src/primitive.rs` takes from std, from loom.
mod primitive {
    #[allow(clippy::unsafe_removed_from_name)]
    pub(crate) use loom::cell::UnsafeCell as Shared;
    pub(crate) use loom::sync::atomic::AtomicUsize;
    pub(crate) use loom::thread::yield_now;
}

#[path = "../src/sync/ring.rs"]
mod ring;

use ring::Ring;

/// Explores every interleaving with up to `switches` involuntary switches between threads.
fn explore(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

/// The next message, however long that takes.
fn next(ring: &Ring<u32>) -> u32 {
    loop {
        if let Some(message) = ring.pop() {
            return message;
        }
        thread::yield_now();
    }
}

/// Sends, however long that takes.
fn send(ring: &Ring<u32>, mut message: u32) {
    while let Err(back) = ring.push(message) {
        message = back;
        thread::yield_now();
    }
}

#[test]
fn s23_messages_of_one_are_in_order() {
    for limit in [1, 2, 3] {
        explore(3, move || {
            let ring = Arc::new(Ring::new(limit));
            let sending = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || (1..=3).for_each(|n| send(&ring, n)))
            };
            assert_eq!([next(&ring), next(&ring), next(&ring)], [1, 2, 3]);
            assert_eq!(ring.pop(), None);
            sending.join().unwrap();
        });
    }
}

#[test]
fn s23_two_senders_do_not_take_one_slot() {
    for limit in [2, 3] {
        explore(3, move || {
            let ring = Arc::new(Ring::new(limit));
            let sending = [1, 2].map(|n| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || assert!(ring.push(n).is_ok(), "there is room for both"))
            });
            let early = ring.pop();
            sending.into_iter().for_each(|sending| sending.join().unwrap());
            assert_eq!(sum_with_the_rest(early, &ring), 3);
        });
    }
}

#[test]
fn s23_two_receivers_do_not_take_one_message() {
    for limit in [2, 3] {
        explore(2, move || {
            let ring = Arc::new(Ring::new(limit));
            let receiving = [(), ()].map(|()| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.pop_now())
            });
            assert!(ring.push(1).is_ok());
            assert!(ring.push(2).is_ok());
            let early = receiving.map(|receiving| receiving.join().unwrap());
            assert_eq!(sum_with_the_rest(early.into_iter().flatten(), &ring), 3);
        });
    }
}

/// The sum of what was received, and of what is left.
fn sum_with_the_rest(received: impl IntoIterator<Item = u32>, ring: &Ring<u32>) -> u32 {
    received.into_iter().chain(std::iter::from_fn(|| ring.pop())).sum()
}

#[test]
fn s23_room_is_for_one() {
    explore(3, || {
        let ring = Arc::new(Ring::new(1));
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.push(1).is_ok())
        };
        let one = ring.push(2).is_ok();
        assert_ne!(one, other.join().unwrap(), "there is room for one of them");
        assert!(ring.is_full());
        assert_eq!(ring.len(), 1);
    });
}

#[test]
fn s23_what_is_left_is_dropped_once() {
    explore(3, || {
        let message = Arc::new(());
        let ring = Arc::new(Ring::new(3));
        let other = {
            let (ring, message) = (Arc::clone(&ring), Arc::clone(&message));
            thread::spawn(move || {
                assert!(ring.push(Arc::clone(&message)).is_ok());
                assert!(ring.push(message).is_ok());
            })
        };
        let taken = ring.pop();
        other.join().unwrap();
        assert_eq!(Arc::strong_count(&message), 3);
        drop(ring);
        assert_eq!(Arc::strong_count(&message), 1 + usize::from(taken.is_some()));
    });
}
