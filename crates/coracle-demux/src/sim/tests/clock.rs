//! Time, determinism, wake-ups, deadlocks, several demultiplexers.

use super::*;
use std::time::{Duration, Instant};

/// Runs a busy little scenario and writes down all that can be seen of it.
fn trace(seed: u64) -> String {
    use std::fmt::Write;
    let kernel = Kernel::with_faults(seed, Faults { reset: 0.05, ..Faults::hostile() });
    let mut demux = kernel.demux();
    let mut trace = format!("seed {}\n", demux.seed());
    let mut pairs = Vec::new();
    for _ in 0..4 {
        if let Ok(pair) = demux.socket_pair() {
            pairs.push(pair);
        }
    }
    for round in 0..30 {
        for &(a, b) in &pairs {
            let payload = Payload::from(vec![round; 20]);
            for operation in
                [Operation::Send { socket: a, payload }, Operation::ReceiveLent { socket: b }]
            {
                writeln!(trace, "{:?}", demux.submit(operation)).unwrap();
            }
        }
        demux.wait(Some(Duration::from_millis(5))).unwrap();
        while let Some(completion) = demux.next() {
            let at = kernel.elapsed();
            let Completion { token, more, result, .. } = completion;
            writeln!(trace, "{at:?} {token:?} {more} {result:?}").unwrap();
        }
    }
    writeln!(trace, "{}", kernel.describe_faults()).unwrap();
    trace
}

#[test]
fn the_same_seed_gives_the_same_completions_at_the_same_times() {
    for seed in 0..20 {
        assert_eq!(trace(seed), trace(seed));
    }
}

#[test]
fn another_seed_gives_other_completions() {
    assert_ne!(trace(1), trace(2));
}

#[test]
fn an_hour_passes_in_no_time() {
    let real = Instant::now();
    let mut rig = Rig::kind();
    let before = rig.demux.now();
    rig.demux.wait(Some(Duration::from_secs(3600))).unwrap();
    assert_eq!(rig.demux.now() - before, Duration::from_secs(3600));
    assert_eq!(rig.kernel.elapsed(), Duration::from_secs(3600));
    assert!(real.elapsed() < Duration::from_secs(3600));
}

#[test]
fn a_wait_ends_at_the_completion_and_not_at_the_time_out() {
    let delay = Duration::from_millis(7);
    let mut rig = Rig::new(Kernel::with_faults(
        1,
        Faults { pending: 1.0, delay: delay..=delay, ..Faults::none() },
    ));
    let (a, _) = rig.demux.socket_pair().unwrap();
    let send = rig.start(Operation::Send { socket: a, payload: b"x".to_vec().into() });
    rig.demux.wait(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(rig.kernel.elapsed(), delay);
    assert_eq!(rig.demux.next().unwrap().token, send);
}

#[test]
fn the_clock_moves_even_if_a_loop_never_sleeps() {
    let mut rig = Rig::kind();
    for _ in 0..1000 {
        rig.demux.wait(Some(Duration::ZERO)).unwrap();
    }
    assert!(rig.kernel.elapsed() >= Duration::from_millis(1));
}

#[test]
fn nothing_to_hope_for_is_a_deadlock_that_names_what_is_in_flight() {
    let mut rig = Rig::kind();
    let error = rig.demux.wait(None).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Deadlock);
    assert!(error.to_string().contains("in flight is nothing"), "{error}");

    let (a, _b) = rig.demux.socket_pair().unwrap();
    rig.start(Operation::ReceiveLent { socket: a });
    let error = rig.demux.wait(None).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Deadlock);
    assert!(error.to_string().contains("receive lent on descriptor"), "{error}");
    // For ever is no time-out.
    assert!(rig.demux.wait(Some(Duration::MAX)).is_err());
    // But with a time-out there is something to wait for.
    rig.demux.wait(Some(Duration::from_secs(1))).unwrap();
}

#[test]
fn a_wake_up_is_never_lost() {
    let mut rig = Rig::kind();
    let waker = rig.demux.waker();
    waker.wake(); // before the wait
    rig.demux.wait(None).unwrap();
    assert_eq!(rig.kernel.elapsed(), Duration::from_micros(1));
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        waker.wake(); // during the wait
    });
    rig.demux.wait(None).unwrap();
    thread.join().unwrap();
    assert!(rig.demux.wait(None).is_err(), "the wake-up was used up and its waker is gone");
}

#[test]
fn a_waker_that_is_used_and_dropped_at_once_still_wakes() {
    for _ in 0..200 {
        let mut rig = Rig::kind();
        let waker = rig.demux.waker();
        let thread = std::thread::spawn(move || waker.wake());
        rig.demux.wait(None).unwrap();
        thread.join().unwrap();
    }
}

#[test]
fn several_demultiplexers_talk_through_one_kernel() {
    for seed in 0..50 {
        let kernel = Kernel::new(seed);
        let (mut server, mut client) = (kernel.demux(), kernel.demux());
        let listener = server.socket(SocketKind::Tcp4).unwrap();
        server.bind(listener, &"127.0.0.1:80".parse().unwrap()).unwrap();
        server.listen(listener, 1).unwrap();
        let _ = server.submit(Operation::Accept { listener });
        let socket = client.socket(SocketKind::Tcp4).unwrap();
        let address = "127.0.0.1:80".parse().unwrap();
        let mut is_connected = match client.submit(Operation::Connect { socket, address }) {
            Submitted::Done(finished) => finished.result.is_ok(),
            Submitted::Pending(_) => false,
        };
        let mut accepted = None;
        while !is_connected || accepted.is_none() {
            server.wait(Some(Duration::ZERO)).unwrap();
            while let Some(completion) = server.next() {
                if let Ok(Outcome::Accepted(handle)) = completion.result {
                    accepted = Some(handle);
                }
            }
            client.wait(Some(Duration::ZERO)).unwrap();
            while let Some(completion) = client.next() {
                is_connected = completion.result.is_ok();
            }
            kernel.advance_to_next_event();
        }
        let accepted = accepted.unwrap();
        assert_eq!(server.peer_address(accepted).unwrap(), client.local_address(socket).unwrap());
        drop((server, client));
        assert_eq!(kernel.open_descriptors(), 0);
    }
}

#[test]
fn what_is_due_for_another_demultiplexer_ends_the_wait_and_is_kept_for_it() {
    let delay = Duration::from_secs(1);
    let faults = Faults { pending: 1.0, delay: delay..=delay, ..Faults::none() };
    let kernel = Kernel::with_faults(1, faults);
    let (mut one, mut two) = (kernel.demux(), kernel.demux());
    let (a, _b) = two.socket_pair().unwrap();
    let _ = two.submit(Operation::Send { socket: a, payload: b"x".to_vec().into() });
    one.wait(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(kernel.elapsed(), delay, "so that the other one can be seen to");
    assert!(one.next().is_none());
    assert!(two.next().is_some());
}

#[test]
fn a_quiet_demultiplexer_gives_the_others_a_turn_before_it_calls_it_a_deadlock() {
    let kernel = Kernel::with_faults(1, Faults::none());
    let (mut one, mut two) = (kernel.demux(), kernel.demux());
    one.wait(None).unwrap();
    // A wake-up is something to act on, even if nobody is left who could send another.
    one.waker().wake();
    two.wait(None).unwrap();
    one.wait(None).unwrap();
    // But now there is nothing: each has waited in vain.
    one.wait(None).unwrap();
    assert_eq!(two.wait(None).unwrap_err().kind(), io::ErrorKind::Deadlock);
    // Something happens, and hope is back.
    two.socket_pair().unwrap();
    one.wait(None).unwrap();
    assert_eq!(two.wait(None).unwrap_err().kind(), io::ErrorKind::Deadlock);
    // One that is never stepped cannot keep another waiting for ever.
    let _three = kernel.demux();
    let mut waits = 0;
    while one.wait(None).is_ok() {
        waits += 1;
    }
    assert!(waits > 1000);
}

#[test]
fn spurious_returns_happen_and_mean_nothing() {
    let mut rig = Rig::new(Kernel::with_faults(1, Faults { spurious_wait: 1.0, ..Faults::none() }));
    rig.demux.wait(None).unwrap();
    rig.demux.wait(Some(Duration::from_secs(1))).unwrap();
    assert_eq!(rig.kernel.elapsed(), Duration::ZERO);
    assert_eq!(rig.kernel.injected().count(crate::sim::Fault::SpuriousWait), 2);
}
