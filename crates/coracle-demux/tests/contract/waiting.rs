//! Waiting and waking: statement 10.

use crate::harness::Harness;
use coracle_demux::Operation;
use std::time::{Duration, Instant};

pub(crate) fn b4_wake_from_another_thread_ends_a_wait(h: &mut Harness) {
    let waker = h.demux.waker();
    let start = Instant::now();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        waker.wake();
    });
    let deadline = start + Duration::from_secs(300);
    // A wait may end early; but without the wake-up the last one would never end.
    while start.elapsed() < Duration::from_millis(30) {
        h.demux.wait(None).unwrap();
        assert!(h.demux.next().is_none());
        assert!(Instant::now() < deadline);
    }
    thread.join().unwrap();
}

pub(crate) fn b4_wake_before_the_wait_is_not_lost(h: &mut Harness) {
    for _ in 0..100 {
        h.demux.waker().wake();
        h.demux.wait(None).unwrap(); // would hang
        assert!(h.demux.next().is_none());
    }
}

pub(crate) fn b4_wake_between_wait_and_next_is_not_lost(h: &mut Harness) {
    let waker = h.demux.waker();
    for _ in 0..100 {
        waker.wake();
        h.demux.wait(None).unwrap();
        waker.wake(); // before the loop has looked at what ended its wait
        assert!(h.demux.next().is_none());
        h.demux.wait(None).unwrap(); // would hang
        assert!(h.demux.next().is_none());
    }
}

pub(crate) fn b4_many_wakes_are_no_more_than_one(h: &mut Harness) {
    let waker = h.demux.waker();
    for _ in 0..100_000 {
        waker.wake(); // never blocks, whatever it is made of
    }
    h.demux.wait(None).unwrap();
    while h.demux.next().is_some() {}
    // What was left of them has been used up by now or is by the next few waits.
    let start = h.demux.now();
    let mut waits = 0;
    while h.demux.now().duration_since(start) < Duration::from_millis(50) {
        h.demux.wait(Some(Duration::from_millis(50))).unwrap();
        while h.demux.next().is_some() {}
        waits += 1;
        assert!(waits < 20, "the loop spins on a wake-up that was heard");
    }
}

pub(crate) fn b8_completions_not_taken_are_kept(h: &mut Harness) {
    // Three: a completion that is kept keeps its buffer, and there may be as few as four.
    let tokens: Vec<_> = (0..3)
        .map(|_| {
            let (a, b) = h.demux.socket_pair().unwrap();
            let token = h.submit(Operation::ReceiveLent { socket: b }).token();
            h.send_all(a, b"kept");
            token
        })
        .collect();
    for token in tokens {
        // Wait several times and take nothing: nothing gets lost.
        for _ in 0..3 {
            h.demux.wait(Some(Duration::ZERO)).unwrap();
        }
        assert!(h.next_of(token).result.is_ok());
    }
}

pub(crate) fn rule_10_wait_of_zero_returns_at_once(h: &mut Harness) {
    let start = h.demux.now();
    for _ in 0..100 {
        h.demux.wait(Some(Duration::ZERO)).unwrap();
        assert!(h.demux.next().is_none());
    }
    // On a busy machine a hundred calls take long, too.
    assert!(h.demux.now().duration_since(start) < Duration::from_secs(60));
}

pub(crate) fn rule_10_wait_lasts_as_long_as_its_time_out(h: &mut Harness) {
    // Never shorter than asked for, whole or broken milliseconds; a wait may end early, so go on waiting.
    for timeout in [Duration::from_micros(300), Duration::from_micros(20_700)] {
        let start = h.demux.now();
        let mut waits = 0;
        loop {
            let left = timeout.saturating_sub(h.demux.now().duration_since(start));
            if left.is_zero() {
                break;
            }
            h.demux.wait(Some(left)).unwrap();
            waits += 1;
            assert!(waits < 50, "a wait must not become a busy loop near its end");
        }
    }
}

/// Waits until `deadline`, however often that ends early.
fn sleep_until(h: &mut Harness, deadline: Instant) {
    let mut waits = 0;
    while h.demux.now() < deadline {
        h.demux.wait_until(deadline).unwrap();
        assert!(h.demux.next().is_none());
        waits += 1;
        assert!(waits < 50, "a wait must not become a busy loop near its end");
    }
}

pub(crate) fn rule_10_wait_ends_at_its_deadline(h: &mut Harness) {
    // Near, far, over; and what was set for one does not keep the next from ending.
    for left in [20, 250, 0, 120, 130, 110, 20, 120].map(Duration::from_millis) {
        let deadline = h.demux.now() + left;
        sleep_until(h, deadline);
    }
    let past = h.demux.now() - Duration::from_secs(1);
    h.demux.wait_until(past).unwrap();
}

pub(crate) fn rule_10_earlier_deadline_is_kept_after_a_later_one(h: &mut Harness) {
    let start = h.demux.now();
    for seconds in [3600, 7200, 60] {
        h.demux.waker().wake();
        h.demux.wait_until(start + Duration::from_secs(seconds)).unwrap();
        assert!(h.demux.next().is_none());
    }
    sleep_until(h, start + Duration::from_millis(150));
    assert!(h.demux.now().duration_since(start) < Duration::from_secs(50));
}

pub(crate) fn rule_10_deadline_that_passes_during_work_is_not_counted_on_again(h: &mut Harness) {
    let (a, b) = h.demux.socket_pair().unwrap();
    let token = h.submit(Operation::ReceiveLent { socket: b }).token();
    for _ in 0..3 {
        let deadline = h.demux.now() + Duration::from_millis(110);
        for _ in 0..3 {
            h.demux.waker().wake();
            h.demux.wait_until(deadline).unwrap();
            assert!(h.demux.next().is_none());
        }
        // Both come at once: bytes, and the end of the time.
        h.send_all(a, b"late");
        std::thread::sleep(Duration::from_millis(130));
        h.demux.wait_until(deadline).unwrap();
        assert!(h.next_of(token).result.is_ok());
        let deadline = h.demux.now() + Duration::from_millis(110);
        sleep_until(h, deadline); // would hang
    }
}

pub(crate) fn b12_time_never_goes_back(h: &mut Harness) {
    let mut last = h.demux.now();
    for _ in 0..1000 {
        let now = h.demux.now();
        assert!(now >= last);
        last = now;
    }
    h.demux.wait(Some(Duration::from_millis(2))).unwrap();
    assert!(h.demux.now() >= last);
}

pub(crate) fn b11_dump_names_what_is_in_flight(h: &mut Harness) {
    let (listener, _) = h.listen();
    h.submit(Operation::Accept { listener }).token();
    let (_a, b) = h.demux.socket_pair().unwrap();
    h.submit(Operation::ReceiveLent { socket: b }).token();
    let dump = h.dump();
    assert!(dump.contains("accept"), "{dump}");
    assert!(dump.contains("receive lent"), "{dump}");
    assert_eq!(dump.lines().count(), 2);
    assert_eq!(h.demux.in_flight(), 2);
}
