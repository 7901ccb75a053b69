//! Channels and locks awaited by futures: in the same lines as coroutines and threads, and nothing is lost.

use crate::futures::Counting;
use crate::harness::Harness;
use coracle_coro::future::{FutureError, block_on, spawn_future};
use coracle_coro::sync::{
    Mutex, RecvError, Semaphore, SendError, TryRecvError, TrySendError, channel,
};
use coracle_coro::{spawn, yield_now};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

/// Polls it once; says whether it is ready.
fn poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let waker = Waker::from(Arc::<Counting>::default());
    match Pin::new(future).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

pub(crate) fn s26_coroutine_and_future_exchange_messages(h: &Harness) {
    for limit in [0, 1, 7] {
        h.run(move || {
            let (to, from) = channel::<u32>(limit);
            let (back, answers) = channel(limit);
            let doubling = spawn_future(async move {
                while let Ok(n) = from.recv_async().await {
                    back.send_async(Rc::new(n * 2)).await.unwrap();
                }
            });
            let sending = spawn(move || (0..100).for_each(|n| to.send(n).unwrap()));
            let received: Vec<u32> = answers.iter().map(|n| *n).collect();
            assert_eq!(received, (0..100).map(|n| n * 2).collect::<Vec<_>>());
            sending.join().unwrap();
            doubling.join()?;
            Ok(())
        });
    }
}

pub(crate) fn s26_message_handed_to_a_dropped_future_goes_to_the_next(h: &Harness) {
    for limit in [0, 1] {
        h.run(move || {
            let (sender, receiver) = channel(limit);
            let mut first = receiver.recv_async();
            assert_eq!(poll(&mut first), None);
            let other = receiver.clone();
            let second = spawn(move || other.recv());
            yield_now();
            sender.send(7).unwrap(); // handed to the first
            assert!(receiver.is_empty());
            drop(first);
            assert_eq!(second.join().unwrap(), Ok(7));
            Ok(())
        });
    }
}

pub(crate) fn s26_message_handed_to_a_dropped_future_stays_if_nobody_waits(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(0);
        let mut future = receiver.recv_async();
        assert_eq!(poll(&mut future), None);
        sender.try_send(1).unwrap();
        drop(future);
        assert_eq!(receiver.len(), 1);
        // There is no more room for that: the next ones go from hand to hand.
        assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
        let sending = spawn(move || sender.send(3));
        yield_now();
        assert_eq!(receiver.try_recv(), Ok(1));
        yield_now();
        assert!(!sending.is_finished(), "nobody has received it");
        assert_eq!(receiver.try_recv(), Ok(3));
        sending.join().unwrap().unwrap();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
        Ok(())
    });
}

pub(crate) fn s26_messages_given_back_come_first(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(2);
        let mut future = receiver.recv_async();
        assert_eq!(poll(&mut future), None);
        (1..=3).for_each(|n| sender.send(n).unwrap()); // one is handed over, two are in the buffer
        drop(future);
        drop(sender);
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 2, 3]);
        Ok(())
    });
}

pub(crate) fn s26_receiving_future_is_dropped_in_every_state(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(1);
        drop(receiver.recv_async()); // never polled
        let mut waiting = receiver.recv_async();
        assert_eq!(poll(&mut waiting), None);
        drop(waiting); // it has left the line:
        sender.send(1).unwrap();
        assert_eq!(receiver.len(), 1);
        let mut ready = receiver.recv_async();
        assert_eq!(poll(&mut ready), Some(Ok(1)));
        drop(ready);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));

        let mut cut_off = receiver.recv_async();
        assert_eq!(poll(&mut cut_off), None);
        drop(sender);
        assert_eq!(poll(&mut cut_off), Some(Err(RecvError::Disconnected)));
        Ok(())
    });
}

pub(crate) fn s26_sending_future_is_dropped_in_every_state(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(1);
        let message = Rc::new(());
        let send = || sender.send_async(Rc::clone(&message));
        drop(send()); // never polled
        assert_eq!(Rc::strong_count(&message), 1);

        assert!(poll(&mut send()).is_some());
        let mut waiting = send();
        assert!(poll(&mut waiting).is_none());
        drop(waiting); // with its message
        assert_eq!((Rc::strong_count(&message), receiver.len()), (2, 1));

        let mut taken = send();
        assert!(poll(&mut taken).is_none());
        receiver.recv().unwrap(); // there is room: it is in the buffer now
        drop(taken);
        assert_eq!(receiver.len(), 1, "what was taken is sent");

        let mut cut_off = send();
        assert!(poll(&mut cut_off).is_none());
        drop(receiver);
        let Some(Err(SendError::Disconnected(back))) = poll(&mut cut_off) else {
            panic!("it was sent to nobody")
        };
        assert!(Rc::ptr_eq(&back, &message));
        Ok(())
    });
}

pub(crate) fn s26_futures_threads_and_coroutines_stand_in_one_line(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(0);
        let (one, two, three) = (receiver.clone(), receiver.clone(), receiver);
        let first = spawn_future(async move { one.recv_async().await });
        yield_now();
        let second = spawn(move || two.recv());
        yield_now();
        let third = spawn_future(async move { three.recv_async().await });
        yield_now();
        (1..=3).for_each(|n| sender.try_send(n).expect("somebody waits"));
        assert_eq!(first.join()?, Ok(1));
        assert_eq!(second.join().unwrap(), Ok(2));
        assert_eq!(third.join()?, Ok(3));
        Ok(())
    });
}

pub(crate) fn s26_cancelled_future_leaves_the_line(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(0);
        let other = receiver.clone();
        let first = spawn_future(async move { other.recv_async().await });
        yield_now();
        let second = spawn(move || receiver.recv());
        yield_now();
        // Handed to the first, which is dropped before it is polled.
        sender.send(7).unwrap();
        first.cancel();
        assert!(matches!(first.join(), Err(FutureError::Cancelled)));
        assert_eq!(second.join().unwrap(), Ok(7));
        Ok(())
    });
}

pub(crate) fn s26_threads_and_futures_lose_no_message(h: &Harness) {
    h.run(|| {
        const EACH: usize = 500;
        let (sender, receiver) = channel(2);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let sender = sender.clone();
                std::thread::spawn(move || (0..EACH).for_each(|n| sender.send(n).unwrap()))
            })
            .collect();
        drop(sender);
        // Two that receive, one of them giving up and beginning anew all the time.
        let patient = receiver.clone();
        let patient = spawn_future(async move {
            let mut count = 0;
            while patient.recv_async().await.is_ok() {
                count += 1;
            }
            count
        });
        let fickle = spawn_future(async move {
            let mut count = 0;
            loop {
                let mut receiving = receiver.recv_async();
                let once =
                    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut receiving).poll(cx)));
                match once.await {
                    Poll::Ready(Ok(_)) => count += 1,
                    Poll::Ready(Err(_)) => return count,
                    Poll::Pending => {
                        crate::futures::yield_once().await; // it may be handed something
                        drop(receiving);
                    }
                }
            }
        });
        let total: usize = block_on(async { patient.await.unwrap() + fickle.await.unwrap() })?;
        assert_eq!(total, 3 * EACH);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        Ok(())
    });
}

pub(crate) fn s26_lock_goes_from_coroutine_to_future_and_back(h: &Harness) {
    h.run(|| {
        let mutex = Rc::new(Mutex::new(Vec::new()));
        let guard = mutex.lock()?;
        let (one, two) = (Rc::clone(&mutex), Rc::clone(&mutex));
        let future = spawn_future(async move {
            let mut guard = one.lock_async().await;
            crate::futures::yield_once().await; // with the guard
            guard.push("future");
        });
        yield_now();
        let coroutine = spawn(move || two.lock().map(|mut guard| guard.push("coroutine")));
        yield_now();
        assert!(!future.is_finished());
        drop(guard);
        assert!(mutex.try_lock().is_none(), "it was handed over, and nobody passes by");
        future.join()?;
        coroutine.join().unwrap()?;
        assert_eq!(*mutex.lock()?, ["future", "coroutine"]);
        Ok(())
    });
}

pub(crate) fn s26_lock_handed_to_a_dropped_future_goes_to_the_next(h: &Harness) {
    h.run(|| {
        let mutex = Rc::new(Mutex::new(7));
        drop(mutex.lock_async()); // never polled
        let guard = mutex.lock()?;
        let mut left = mutex.lock_async();
        assert!(poll(&mut left).is_none());
        drop(left); // it has left the line
        let mut first = mutex.lock_async();
        assert!(poll(&mut first).is_none());
        let other = Rc::clone(&mutex);
        let second = spawn(move || other.lock().map(|guard| *guard));
        yield_now();
        drop(guard); // handed to the first
        yield_now();
        assert!(!second.is_finished());
        drop(first);
        assert_eq!(second.join().unwrap()?, 7);
        assert!(mutex.try_lock().is_some());

        let mut ready = mutex.lock_async();
        assert_eq!(poll(&mut ready).map(|guard| *guard), Some(7));
        drop(ready);
        assert!(mutex.try_lock().is_some());
        Ok(())
    });
}

pub(crate) fn s26_one_that_needs_many_permits_is_not_overtaken(h: &Harness) {
    h.run(|| {
        let semaphore = Semaphore::new(2);
        let held = semaphore.acquire(1)?;
        let mut many = semaphore.acquire_async(2);
        assert!(poll(&mut many).is_none());
        let mut few = semaphore.acquire_async(1);
        assert!(poll(&mut few).is_none(), "somebody waits");
        drop(many); // who is behind it needs fewer
        let few = poll(&mut few).expect("there is one");
        drop((held, few));
        assert_eq!(semaphore.available_permits(), 2);
        Ok(())
    });
}

/// What was given back is before the ring that threads share, also if there is no room for it there.
pub(crate) fn s26_messages_given_back_come_first_when_threads_receive(h: &Harness) {
    h.run(|| {
        let (sender, receiver) = channel(1);
        let mut future = receiver.recv_async();
        assert_eq!(poll(&mut future), None);
        sender.try_send(1).unwrap(); // handed to the future
        sender.try_send(2).unwrap();
        drop(future);
        assert_eq!(receiver.len(), 2);
        assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
        let other = receiver.clone();
        let received =
            thread::spawn(move || [other.try_recv(), other.try_recv(), other.try_recv()]);
        assert_eq!(received.join().unwrap(), [Ok(1), Ok(2), Err(TryRecvError::Empty)]);

        // And once more, now that there is a ring.
        let mut future = receiver.recv_async();
        assert_eq!(poll(&mut future), None);
        sender.try_send(4).unwrap();
        sender.try_send(5).unwrap();
        drop(future);
        let received = thread::spawn(move || [receiver.try_recv(), receiver.try_recv()]);
        assert_eq!(received.join().unwrap(), [Ok(4), Ok(5)]);
        Ok(())
    });
}
