//! Channels: limits, order, ends.

use super::{LONG, SHORT, until};
use crate::sync::{
    Receiver, RecvError, RecvTimeoutError, SendError, SendTimeoutError, Sender, TryRecvError,
    TrySendError, channel,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[test]
fn s22_channel_holds_as_many_as_its_limit() {
    let (sender, receiver) = channel(2);
    assert_eq!(sender.try_send(1), Ok(()));
    assert_eq!(sender.try_send(2), Ok(()));
    assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
    assert_eq!(sender.send_timeout(3, SHORT), Err(SendTimeoutError::Timeout(3)));
    assert_eq!((receiver.try_recv(), receiver.recv()), (Ok(1), Ok(2)));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(receiver.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
    assert_eq!(receiver.waiting(), (0, 0), "who has timed out has left the line");
}

#[test]
fn s22_ends_may_be_used_where_a_panic_is_caught() {
    fn check<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    check::<Sender<std::cell::Cell<u8>>>();
    check::<Receiver<std::cell::Cell<u8>>>();
}

#[test]
fn s22_rendezvous_is_over_when_both_sides_were_there() {
    let (sender, receiver) = channel(0);
    assert_eq!(sender.try_send(1), Err(TrySendError::Full(1)));
    thread::scope(|scope| {
        let sending = scope.spawn(|| sender.send(2));
        until(|| receiver.waiting() == (1, 0));
        assert!(!sending.is_finished());
        assert_eq!(receiver.try_recv(), Ok(2));
        sending.join().unwrap().unwrap();

        let receiving = scope.spawn(|| receiver.recv());
        until(|| receiver.waiting() == (0, 1));
        assert_eq!(sender.try_send(3), Ok(()), "a receiver waits");
        assert_eq!(sender.try_send(4), Err(TrySendError::Full(4)), "it has its message");
        assert_eq!(receiving.join().unwrap(), Ok(3));
    });
}

#[test]
fn s22_messages_arrive_in_the_order_they_were_sent() {
    for limit in [0, 1, 3, 100] {
        let (sender, receiver) = channel(limit);
        thread::scope(|scope| {
            scope.spawn(move || (0..1_000).for_each(|n| sender.send(n).unwrap()));
            assert!(receiver.iter().eq(0..1_000), "limit {limit}");
        });
    }
}

#[test]
fn s22_who_waits_longest_is_served_first() {
    let (sender, receiver) = channel(0);
    thread::scope(|scope| {
        for n in 0..4 {
            let sender = &sender;
            scope.spawn(move || sender.send(n).unwrap());
            until(|| receiver.waiting() == (n + 1, 0));
        }
        assert!(receiver.iter().take(4).eq(0..4));

        let receivers = [0, 1, 2, 3].map(|n| {
            let receiving = scope.spawn(|| receiver.recv());
            until(|| receiver.waiting() == (0, n + 1));
            receiving
        });
        (0..4).for_each(|n| sender.send(n).unwrap());
        assert_eq!(receivers.map(|receiving| receiving.join().unwrap()), [0, 1, 2, 3].map(Ok));
    });
}

#[test]
fn s22_receivers_get_what_is_left_when_the_senders_are_gone() {
    let (sender, receiver) = channel(4);
    let other = sender.clone();
    sender.send(1).unwrap();
    other.send(2).unwrap();
    drop(sender);
    assert_eq!(receiver.recv(), Ok(1));
    drop(other);
    assert_eq!(receiver.recv(), Ok(2));
    assert_eq!(receiver.recv(), Err(RecvError::Disconnected));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    assert_eq!(receiver.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
    assert_eq!(receiver.into_iter().next(), None);
}

#[test]
fn s22_all_who_wait_hear_that_the_other_side_is_gone() {
    let (sender, receiver) = channel::<u32>(0);
    thread::scope(|scope| {
        let receiving = [(), ()].map(|()| scope.spawn(|| receiver.recv()));
        until(|| receiver.waiting() == (0, 2));
        drop(sender);
        for receiving in receiving {
            assert_eq!(receiving.join().unwrap(), Err(RecvError::Disconnected));
        }
    });

    let (sender, receiver) = channel(1);
    sender.send(0).unwrap();
    thread::scope(|scope| {
        let sender = &sender;
        let sending = [1, 2].map(|n| scope.spawn(move || sender.send(n)));
        until(|| receiver.waiting() == (2, 0));
        drop(receiver);
        for (sending, n) in sending.into_iter().zip([1, 2]) {
            let error = sending.join().unwrap().unwrap_err();
            assert_eq!(error, SendError::Disconnected(n), "it has its message back");
        }
        assert_eq!(sender.try_send(3), Err(TrySendError::Disconnected(3)));
        assert_eq!(sender.send_timeout(4, LONG), Err(SendTimeoutError::Disconnected(4)));
    });
}

#[test]
fn s22_what_nobody_can_receive_is_dropped_outside_the_lock() {
    /// Looks at the channel it is in when it is dropped.
    struct Message {
        channel: Option<Sender<Message>>,
        _alive: Arc<()>,
    }

    impl Drop for Message {
        fn drop(&mut self) {
            if let Some(sender) = &self.channel {
                assert!(sender.is_empty());
            }
        }
    }

    let (sender, receiver) = channel(4);
    let alive = Arc::new(());
    for channel in [Some(sender.clone()), None] {
        assert!(sender.send(Message { channel, _alive: Arc::clone(&alive) }).is_ok());
    }
    assert_eq!(Arc::strong_count(&alive), 3);
    drop(receiver);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn s22_try_iter_takes_what_is_there() {
    let (sender, receiver) = channel(4);
    sender.send('a').unwrap();
    sender.send('b').unwrap();
    assert_eq!(receiver.try_iter().collect::<String>(), "ab");
    let letters = thread::spawn(move || {
        let mut letters = String::new();
        for letter in &receiver {
            letters.push(letter);
        }
        letters
    });
    sender.send('c').unwrap();
    drop(sender);
    assert_eq!(letters.join().unwrap(), "c");
}

#[test]
fn s22_errors_become_those_of_io() {
    let kind = |error: io::Error| error.kind();
    assert_eq!(kind(RecvError::Disconnected.into()), io::ErrorKind::UnexpectedEof);
    assert_eq!(kind(TryRecvError::Empty.into()), io::ErrorKind::WouldBlock);
    assert_eq!(kind(RecvTimeoutError::Timeout.into()), io::ErrorKind::TimedOut);
    assert_eq!(kind(SendError::Disconnected(1).into()), io::ErrorKind::BrokenPipe);
    let cancelled = [
        io::Error::from(RecvError::Cancelled),
        RecvTimeoutError::Cancelled.into(),
        SendError::Cancelled(1).into(),
        SendTimeoutError::Cancelled(1).into(),
    ];
    for error in cancelled {
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::CANCELED.raw_os_error()));
    }
}

#[test]
fn s23_every_message_of_many_threads_arrives_once() {
    for limit in [0, 1, 8] {
        let (sender, receiver) = channel(limit);
        let mut arrived: Vec<u32> = thread::scope(|scope| {
            for n in 0..3 {
                let sender = sender.clone();
                scope.spawn(move || {
                    (0..500).for_each(|message| sender.send(n * 1_000 + message).unwrap());
                });
            }
            drop(sender);
            let receivers = [(), (), ()].map(|()| {
                let receiver = receiver.clone();
                scope.spawn(move || receiver.iter().collect::<Vec<_>>())
            });
            receivers.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        arrived.sort_unstable();
        let sent = (0..3).flat_map(|n| (0..500).map(move |message| n * 1_000 + message));
        assert!(arrived.into_iter().eq(sent), "limit {limit}");
    }
}

/// A message: who sent it, and as which.
type Message = (usize, u32);

/// Sends 0, 1, 2 and so on, and says how many went. Some have little time, and come back.
fn send_numbers(sender: &Sender<Message>, who: usize, count: u32, timeouts: &[u16]) -> u32 {
    let mut sent = 0;
    for n in 0..count {
        let nanoseconds = timeouts[n as usize % timeouts.len()];
        let message = match nanoseconds % 3 {
            0 => sender.send((who, n)).map_err(SendError::into_inner),
            1 => sender.try_send((who, n)).map_err(TrySendError::into_inner),
            _ => sender
                .send_timeout((who, n), Duration::from_nanos(nanoseconds.into()))
                .map_err(SendTimeoutError::into_inner),
        };
        match message {
            Ok(()) => sent += 1,
            Err(message) => assert_eq!(message, (who, n), "it came back as it was"),
        }
    }
    sent
}

/// Receives until the end. Some receives have little time.
fn receive_all(receiver: &Receiver<Message>, timeouts: &[u16]) -> Vec<Message> {
    let mut received = Vec::new();
    for nanoseconds in timeouts.iter().cycle() {
        let message = match nanoseconds % 3 {
            0 => receiver.recv_timeout(LONG),
            _ => receiver.recv_timeout(Duration::from_nanos((*nanoseconds).into())),
        };
        match message {
            Ok(message) => received.push(message),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
            Err(other) => unreachable!("nobody cancels it, and no deadline is around it: {other}"),
        }
    }
    received
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever the limit, and however many send, receive and give up: each receiver gets the messages of a
    /// sender in order, and all that were sent are received, once.
    #[test]
    fn s23_messages_of_a_sender_stay_in_order(
        limit in 0_usize..4,
        counts in prop::collection::vec(0_u32..60, 1..4),
        receivers in 1_usize..4,
        timeouts in prop::collection::vec(any::<u16>(), 1..9),
    ) {
        let (sender, receiver) = channel(limit);
        let (sent, received) = thread::scope(|scope| {
            let senders: Vec<_> = counts.iter().enumerate().map(|(who, &count)| {
                let (sender, timeouts) = (sender.clone(), &timeouts);
                scope.spawn(move || send_numbers(&sender, who, count, timeouts))
            }).collect();
            drop(sender);
            let receivers: Vec<_> = (0..receivers).map(|_| {
                let (receiver, timeouts) = (receiver.clone(), &timeouts);
                scope.spawn(move || receive_all(&receiver, timeouts))
            }).collect();
            let sent: Vec<u32> = senders.into_iter().map(|it| it.join().unwrap()).collect();
            let received: Vec<_> = receivers.into_iter().map(|it| it.join().unwrap()).collect();
            (sent, received)
        });
        let mut arrived = BTreeMap::<usize, u32>::new();
        for messages in &received {
            let mut last = BTreeMap::<usize, u32>::new();
            for &(who, n) in messages {
                prop_assert!(last.insert(who, n).is_none_or(|last| last < n), "{messages:?}");
                *arrived.entry(who).or_default() += 1;
            }
        }
        for (who, sent) in sent.into_iter().enumerate() {
            prop_assert_eq!(arrived.remove(&who).unwrap_or(0), sent);
        }
    }
}
