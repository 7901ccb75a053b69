//! `select!` and `Select`.

use super::{LONG, SHORT, until};
use crate::select;
use crate::sync::{Arm, Receiver, RecvError, Select, SendError, after, channel};
use std::thread;
use std::time::Duration;

#[test]
fn s24_the_arm_that_can_be_done_is_done() {
    let (sender, full) = channel(1);
    let (_other, empty) = channel::<u32>(1);
    sender.send(7).unwrap();
    let got = select! {
        message = &full => message.unwrap(),
        message = &empty => message.unwrap(),
        () = after(LONG) => 0,
    };
    assert_eq!(got, 7);
}

#[test]
fn s24_default_is_for_when_nothing_can_be_done() {
    let (sender, receiver) = channel(1);
    let look = || {
        select! {
            message = &receiver => message.unwrap(),
            default => 0,
        }
    };
    assert_eq!(look(), 0);
    sender.send(7).unwrap();
    assert_eq!(look(), 7);
    assert_eq!(look(), 0);
}

#[test]
fn s24_time_out_is_an_arm() {
    let (_sender, receiver) = channel::<u32>(0);
    let late = select! {
        _ = &receiver => false,
        () = after(Duration::MAX) => false,
        () = after(SHORT) => true,
    };
    assert!(late);
    assert_eq!(receiver.waiting(), (0, 0), "it has left the line");
}

#[test]
fn s24_arm_that_loses_consumes_nothing() {
    let (full, _taker) = channel(0);
    let (sender, receiver) = channel(2);
    let mut held = Some("held".to_owned());
    sender.send(1).unwrap();
    sender.send(2).unwrap();
    for n in [1, 2] {
        select! {
            _ = full.sending(&mut held) => unreachable!("nobody receives"),
            message = &receiver => assert_eq!(message, Ok(n)),
        }
        assert_eq!(held.as_deref(), Some("held"));
    }
    // After a wait in the line, too.
    select! {
        _ = full.sending(&mut held) => unreachable!("nobody receives"),
        () = after(SHORT) => {}
    }
    assert_eq!(held.as_deref(), Some("held"));
}

#[test]
fn s24_arm_with_an_empty_slot_is_never_chosen() {
    let (sender, receiver) = channel(1);
    let mut nothing: Option<u32> = None;
    select! {
        _ = sender.sending(&mut nothing) => unreachable!("there is nothing to send"),
        default => {}
    }
    select! {
        _ = sender.sending(&mut nothing) => unreachable!("there is nothing to send"),
        () = after(SHORT) => {}
    }
    assert!(receiver.is_empty());
}

#[test]
fn s24_bodies_can_break_continue_return_and_fail() {
    fn sum(receiver: &Receiver<u32>) -> Result<u32, RecvError> {
        let mut total = 0;
        loop {
            select! {
                message = receiver => match message? {
                    0 => continue,
                    9 => break,
                    8 => return Ok(100),
                    n => total += n,
                },
                () = after(LONG) => {}
            }
        }
        Ok(total)
    }
    let run = |messages: &[u32]| {
        let (sender, receiver) = channel(8);
        messages.iter().for_each(|n| sender.send(*n).unwrap());
        drop(sender);
        sum(&receiver)
    };
    assert_eq!(run(&[1, 0, 2, 9]), Ok(3));
    assert_eq!(run(&[1, 8]), Ok(100));
    assert_eq!(run(&[1]), Err(RecvError::Disconnected));
}

#[test]
fn s24_the_other_side_being_gone_is_an_answer() {
    let (sender, receiver) = channel::<u32>(0);
    let (out, taker) = channel::<u32>(0);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            select! {
                message = &receiver => message,
                () = after(LONG) => Ok(0),
            }
        });
        until(|| receiver.waiting() == (0, 1));
        drop(sender);
        assert_eq!(waiting.join().unwrap(), Err(RecvError::Disconnected));
    });
    drop(taker);
    let mut held = Some(1);
    select! {
        sent = out.sending(&mut held) => assert_eq!(sent, Err(SendError::Disconnected(()))),
        () = after(LONG) => unreachable!(),
    }
    assert_eq!(held, Some(1), "what could not be sent is still there");
}

#[test]
fn s24_nobody_starves_among_arms_that_can_be_done() {
    let (one, ones) = channel(1_000);
    let (two, twos) = channel(1_000);
    for _ in 0..1_000 {
        one.send(()).unwrap();
        two.send(()).unwrap();
    }
    let mut counts = [0; 2];
    // Two selects that take turns, which is how "each in its turn" would be led astray.
    for _ in 0..400 {
        select! {
            _ = &ones => counts[0] += 1,
            _ = &twos => {}
        }
        select! {
            _ = &ones => {}
            _ = &twos => counts[1] += 1,
        }
    }
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}

#[test]
fn s24_two_selects_meet() {
    let (sender, receiver) = channel(0);
    let (_unused, never) = channel::<u32>(0);
    thread::scope(|scope| {
        let (sender, never) = (&sender, &never);
        let offering = scope.spawn(move || {
            for n in 0..500 {
                let mut held = Some(n);
                select! {
                    sent = sender.sending(&mut held) => sent.unwrap(),
                    _ = never => unreachable!(),
                }
                assert_eq!(held, None);
            }
        });
        for n in 0..500 {
            select! {
                message = &receiver => assert_eq!(message, Ok(n)),
                _ = never => unreachable!(),
            }
        }
        offering.join().unwrap();
    });
    assert_eq!(receiver.waiting(), (0, 0));
}

#[test]
fn s24_a_select_does_not_meet_itself() {
    let (sender, receiver) = channel(0);
    let mut held = Some(7);
    select! {
        _ = &receiver => unreachable!("it would have been its own"),
        _ = sender.sending(&mut held) => unreachable!("nobody else receives"),
        () = after(SHORT) => {}
    }
    assert_eq!((held, receiver.waiting()), (Some(7), (0, 0)));
}

#[test]
fn s24_no_message_is_lost_or_doubled_among_selects_that_give_up() {
    let (a, from_a) = channel(0);
    let (b, from_b) = channel(1);
    let (sent, received): (u32, u32) = thread::scope(|scope| {
        let receiving = [1, 2].map(|n| {
            let (from_a, from_b) = (from_a.clone(), from_b.clone());
            scope.spawn(move || {
                let (mut received, mut open) = (0, [true; 2]);
                while open != [false; 2] {
                    select! {
                        message = &from_a => match message {
                            Ok(()) => received += 1,
                            Err(_) => open[0] = false,
                        },
                        message = &from_b => match message {
                            Ok(()) => received += 1,
                            Err(_) => open[1] = false,
                        },
                        () = after(Duration::from_micros(n)) => {}
                    }
                }
                received
            })
        });
        let sending = [3, 4].map(|n| {
            let (a, b) = (a.clone(), b.clone());
            scope.spawn(move || {
                let mut sent = 0;
                for _ in 0..1_000 {
                    let (mut to_a, mut to_b) = (Some(()), Some(()));
                    select! {
                        result = a.sending(&mut to_a) => { result.unwrap(); sent += 1; }
                        result = b.sending(&mut to_b) => { result.unwrap(); sent += 1; }
                        () = after(Duration::from_micros(n)) => {}
                    }
                }
                sent
            })
        });
        let sent = sending.into_iter().map(|thread| thread.join().unwrap()).sum();
        drop((a, b));
        (sent, receiving.into_iter().map(|thread| thread.join().unwrap()).sum())
    });
    assert_eq!(sent, received);
}

#[test]
fn s24_the_number_of_arms_may_be_known_at_run_time_only() {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..50).map(|_| channel(0)).unzip();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut arms: Vec<_> = receivers.iter().map(Receiver::receiving).collect();
            let mut select = Select::new();
            for arm in &mut arms {
                select.arm(arm);
            }
            let chosen = select.wait_timeout(LONG).unwrap();
            (chosen, arms[chosen].output())
        });
        until(|| receivers.iter().all(|receiver| receiver.waiting() == (0, 1)));
        senders[42].send("here").unwrap();
        assert_eq!(waiting.join().unwrap(), (42, Ok("here")));
    });
    assert!(receivers.iter().all(|receiver| receiver.waiting() == (0, 0)));
}

#[test]
fn s24_an_arm_that_was_chosen_keeps_what_it_got() {
    let (sender, receiver) = channel(2);
    sender.send(1).unwrap();
    sender.send(2).unwrap();
    let mut arm = receiver.receiving();
    for _ in 0..2 {
        let mut select = Select::new();
        select.arm(&mut arm);
        assert_eq!(select.try_wait(), Some(0));
    }
    assert_eq!(arm.output(), Ok(1), "the second did not overwrite it");
    assert_eq!(receiver.recv(), Ok(2));
}
