//! Pools: who gets which stack, limits, trimming. What is said of memory is in `tests/memory.rs`.

use crate::child::{in_child, said};
use coracle_stack::{
    Coroutine, Guard, LIMIT_STACK_BYTES, Pool, Settings, Stack, StackSize, Yielder,
};
use std::io;

/// A pool that keeps what comes back, as in release builds.
fn pool() -> Pool {
    Pool::with_settings(Settings { limit_warm: 100, ..Settings::default() }).unwrap()
}

fn take(pool: &Pool) -> Stack {
    pool.take(StackSize::default()).unwrap()
}

/// A coroutine that has used `bytes` of a stack, and a little more.
fn use_stack(stack: Stack, bytes: usize) -> Coroutine<(), (), ()> {
    fn deep(top: usize, bytes: usize) -> u8 {
        let filler = std::hint::black_box([1u8; 256]);
        // Something is done after the call, so that it stays one.
        if top - filler.as_ptr().addr() < bytes { deep(top, bytes) ^ filler[0] } else { 0 }
    }
    let mut coroutine = Coroutine::new(stack, move |_: &Yielder<(), ()>, ()| {
        let top = std::hint::black_box(0u8);
        deep((&raw const top).addr(), bytes);
    });
    let _ = coroutine.resume(());
    coroutine
}

#[test]
fn s45_the_stack_that_came_back_last_is_handed_out_first() {
    let pool = pool();
    let [first, second, third] = [take(&pool), take(&pool), take(&pool)];
    let names = [&first, &second, &third].map(|stack| format!("{stack:?}"));
    drop([third, first, second]);
    assert_eq!(pool.stats().warm, 3);
    let again = [take(&pool), take(&pool), take(&pool)].map(|stack| format!("{stack:?}"));
    assert_eq!(again, [1, 0, 2].map(|index| names[index].clone()));
}

#[test]
fn s45_a_used_stack_works_as_a_new_one_does() {
    let pool = pool();
    for round in 0..40 {
        let coroutine = use_stack(take(&pool), round * 4096);
        assert!(coroutine.is_done());
        drop(coroutine);
        assert_eq!(pool.stats().warm, 1);
    }
}

#[test]
fn s45_no_more_stacks_than_the_limit_stay_warm() {
    let pool = Pool::with_settings(Settings { limit_warm: 2, ..Settings::default() }).unwrap();
    drop([take(&pool), take(&pool), take(&pool)]);
    assert_eq!(pool.stats().warm, 2);
}

#[test]
fn one_stack_more_than_the_limit_is_an_error() {
    let pool = Pool::with_settings(Settings { limit_stacks: 2, ..Settings::default() }).unwrap();
    let stacks = [take(&pool), take(&pool)];
    let error = pool.take(StackSize::SMALL).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    assert_eq!(error.to_string(), "cannot take another stack: 2 are in use (limit_stacks)");
    drop(stacks);
    pool.take(StackSize::SMALL).unwrap();
}

#[test]
fn s3_every_size_can_be_had_and_used() {
    let pool = pool();
    let mut bytes = StackSize::SMALL.bytes();
    while bytes <= LIMIT_STACK_BYTES {
        let stack = pool.take(StackSize::at_least(bytes).unwrap()).unwrap();
        assert_eq!(stack.size().bytes(), bytes);
        // Most of a small one; of a large one as much as the machine of a test has.
        assert!(use_stack(stack, bytes.min(8 << 20) / 8 * 7).is_done());
        bytes *= 2;
    }
    assert!(StackSize::at_least(LIMIT_STACK_BYTES + 1).is_err());
    assert_eq!(StackSize::at_least(0).unwrap(), StackSize::SMALL);
}

#[test]
fn s48_the_high_water_mark_is_of_one_user() {
    // As in debug builds.
    let pool = Pool::with_settings(Settings { limit_warm: 0, ..Settings::default() }).unwrap();
    assert_eq!(take(&pool).high_water(), 0);
    let much = use_stack(take(&pool), 100 << 10).stack().high_water();
    assert!((100 << 10..=StackSize::default().bytes()).contains(&much), "{much}");
    let little = use_stack(take(&pool), 0).stack().high_water();
    assert!((1..50 << 10).contains(&little), "{little}");
}

#[test]
fn s48_the_high_water_mark_of_a_recycled_stack_is_of_all_its_users() {
    let pool = pool();
    drop(use_stack(take(&pool), 100 << 10));
    assert!(use_stack(take(&pool), 0).stack().high_water() >= 100 << 10);
}

#[test]
fn s45_trimming_goes_on_in_steps_and_comes_to_an_end() {
    let pool = pool();
    let stacks: Vec<Stack> = (0..10).map(|_| take(&pool)).collect();
    drop(stacks);
    assert_eq!(pool.trim(6, 3), 3, "as many as were allowed");
    assert_eq!(pool.stats().warm, 7);
    assert_eq!(pool.trim(6, 100), 1 + 6, "one too many; the others keep a little");
    assert_eq!(pool.stats().warm, 6);
    assert_eq!(pool.trim(6, 100), 0, "nothing is done twice");
    drop(take(&pool));
    assert_eq!(pool.trim(6, 100), 1, "but for what was used since");
}

#[test]
fn s45_a_trimmed_stack_keeps_what_lies_near_its_top() {
    let pool = pool();
    drop(use_stack(take(&pool), 100 << 10));
    while pool.trim(1, 1) > 0 {}
    let kept = take(&pool).high_water();
    assert!((1..=64 << 10).contains(&kept), "{kept}");
}

#[test]
fn s45_slabs_without_users_are_unmapped_but_for_the_last() {
    let pool = pool();
    let stacks: Vec<Stack> = (0..1000).map(|_| take(&pool)).collect();
    assert_eq!(pool.stats().slabs, 4);
    drop(stacks);
    while pool.trim(0, 10) > 0 {}
    assert_eq!(pool.stats().slabs, 1);
    assert_eq!(pool.stats().warm, 0);
    let again: Vec<Stack> = (0..1000).map(|_| take(&pool)).collect();
    assert_eq!(pool.stats().in_use, again.len());
}

#[test]
fn s45_a_pool_may_go_before_its_stacks() {
    let stack = take(&pool());
    assert!(use_stack(stack, 1000).is_done());
}

#[test]
fn s44_guards_by_mprotect_end_before_the_mappings_do() {
    let test = "pool::s44_guards_by_mprotect_end_before_the_mappings_do";
    let output = in_child(test, || {
        let guard = Some(Guard::Protect);
        for _ in 0..2 {
            let pool = Pool::with_settings(Settings { guard, ..Settings::default() }).unwrap();
            let mut stacks = Vec::new();
            let error = loop {
                match pool.take(StackSize::SMALL) {
                    Ok(stack) => stacks.push(stack),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded, "{error}");
            assert!(error.to_string().contains("vm.max_map_count"), "{error}");
            assert!(stacks.len() > 100, "{}", stacks.len());
            // The rest of the process goes on.
            std::thread::spawn(|| ()).join().unwrap();
            // The second time is as the first: what is unmapped does not count.
        }
    });
    let Some(output) = output else { return };
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn pools_of_many_threads_come_and_go() {
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                for round in 0..50 {
                    let pool = pool();
                    let stacks: Vec<Stack> = (0..300 + round).map(|_| take(&pool)).collect();
                    assert_eq!(pool.stats().in_use, stacks.len());
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn s44_each_kind_of_guard_can_be_chosen() {
    for guard in [Guard::Install, Guard::Protect] {
        let pool =
            Pool::with_settings(Settings { guard: Some(guard), ..Settings::default() }).unwrap();
        let stacks: Vec<Stack> = (0..300).map(|_| take(&pool)).collect();
        assert!(stacks.iter().all(|stack| stack.guard() == guard));
    }
}
