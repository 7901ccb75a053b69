//! Stacks of coroutines: memory that goes back after a peak, and how much was used.

use crate::harness::{HOUR, Harness, MS, now};
use coracle_coro::{Builder, park, set_stacks, sleep, spawn, stack_stats, stack_use, yield_now};
use coracle_loop::{HookKind, Loop};
use coracle_stack::Settings;
use std::cell::Cell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

/// Stacks keep their memory, as in release builds.
fn keep_warm(lp: &Loop) {
    set_stacks(lp, Settings { limit_warm: 10_000, ..Settings::default() }).unwrap();
}

fn peak(count: usize) {
    let children: Vec<_> = (0..count).map(|_| spawn(park)).collect();
    yield_now();
    assert_eq!(stack_stats().in_use, count + 1);
    for child in children {
        child.coroutine().unpark();
        child.join().unwrap().unwrap();
    }
}

pub(crate) fn s45_memory_goes_back_after_a_peak(h: &Harness) {
    keep_warm(&h.lp);
    h.run(|| {
        peak(700);
        assert_eq!(stack_stats().warm, 700, "not at once: the next peak may come soon");
        while stack_stats().warm > 64 {
            sleep(50 * MS)?;
        }
        Ok(())
    });
}

pub(crate) fn s45_what_is_needed_now_and_then_stays(h: &Harness) {
    keep_warm(&h.lp);
    h.run(|| {
        for _ in 0..10 {
            peak(300);
            sleep(Duration::from_millis(400))?;
            assert_eq!(stack_stats().warm, 300);
        }
        // Those who wait do not count as a peak.
        let parked: Vec<_> = (0..200).map(|_| spawn(park)).collect();
        sleep(HOUR)?;
        assert_eq!((stack_stats().in_use, stack_stats().warm), (201, 64));
        for one in parked {
            one.coroutine().unpark();
        }
        Ok(())
    });
}

/// A debug build keeps none.
pub(crate) fn s45_stacks_that_are_kept_for_the_next_are_trimmed_too(h: &Harness) {
    keep_warm(&h.lp);
    h.run(|| {
        peak(700);
        while stack_stats().in_use > 1 || stack_stats().warm > 64 {
            sleep(50 * MS)?;
        }
        Ok(())
    });
}

pub(crate) fn s57_no_wake_ups_when_nothing_is_left_to_trim(h: &Harness) {
    keep_warm(&h.lp);
    let turns = Rc::new(Cell::new(0));
    let counter = Rc::clone(&turns);
    h.lp.on_turn(HookKind::Prepare, move |_| counter.set(counter.get() + 1));
    h.run(move || {
        peak(2000);
        let before = turns.get();
        sleep(HOUR)?;
        assert_eq!(stack_stats().warm, 64);
        // 1,936 stacks at 256 a turn; a first look, a last one, and the ends of waits that were woken for nothing.
        let during = turns.get() - before;
        assert!(during < 60, "{during} turns");
        let before = turns.get();
        sleep(HOUR)?;
        assert!(turns.get() - before < 10, "it is the sleep that ends");
        Ok(())
    });
}

pub(crate) fn s57_loop_with_parked_coroutines_sleeps_for_ever(h: &Harness) {
    let parked = Rc::new(Cell::new(None));
    let place = Rc::clone(&parked);
    h.lp.defer(move |_| {
        (0..100).for_each(|_| drop(spawn(|| ()))); // more than are kept
        place.set(Some(spawn(park)));
    });
    h.lp.run_until_idle().unwrap();
    assert_eq!(h.lp.timeout(), None, "nothing but a wake-up ends its wait");
    h.lp.defer(move |_| parked.take().unwrap().coroutine().unpark());
    h.lp.run_until_idle().unwrap();
}

/// Uses about this much of the stack.
fn use_stack(bytes: usize) -> u8 {
    let page = std::hint::black_box([1_u8; 1024]);
    if bytes < 1024 { page[7] } else { std::hint::black_box(use_stack(bytes - 1024)) + page[7] - 1 }
}

pub(crate) fn s48_stack_use_is_told_by_the_line_that_spawned(h: &Harness) {
    h.run(|| {
        let (mut shallow, deep_line) = (Vec::new(), line!() + 1);
        let deep = Builder::new().stack_size(1 << 20).spawn(|| use_stack(100 << 10))?;
        for _ in 0..3 {
            shallow.push(spawn(|| use_stack(10)));
        }
        deep.join().unwrap();
        shallow.into_iter().for_each(|one| _ = one.join().unwrap());
        let places = stack_use();
        if !cfg!(debug_assertions) {
            assert!(places.is_empty());
            return Ok(());
        }
        let [deep, shallow] = &places[..] else { panic!("two lines have spawned: {places:?}") };
        assert_eq!((deep.coroutines, shallow.coroutines), (1, 3));
        assert_eq!(deep.spawned.line(), deep_line);
        assert!(deep.most_bytes > 100 << 10 && deep.most_bytes < deep.stack_bytes, "{deep}");
        assert!(shallow.most_bytes < 100 << 10, "{shallow}");
        assert!(deep.to_string().contains("KiB of 1024 KiB at most, by 1 coroutines"), "{deep}");
        Ok(())
    });
}

pub(crate) fn s3_stacks_of_a_loop_have_limits_of_their_own(h: &Harness) {
    set_stacks(&h.lp, Settings { limit_stacks: 3, ..Settings::default() }).unwrap();
    h.run(|| {
        let begin = now();
        let children: Vec<_> = (0..5).map(|_| spawn(|| sleep(MS))).collect();
        let ended: Vec<_> = children.into_iter().map(|child| child.join().is_ok()).collect();
        assert_eq!(ended, [true, true, false, false, false]);
        assert!(now() >= begin + MS);
        Ok(())
    });
    let late = set_stacks(&h.lp, Settings::default()).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::AlreadyExists);
}
