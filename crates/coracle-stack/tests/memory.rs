//! What stacks cost, as the kernel counts it. One test at a time: they all look at the same process.

use coracle_stack::{Pool, Seated, Settings, Stack, StackSize, Yielder, on_stack};
use std::sync::Mutex;
use std::time::Instant;

static ALONE: Mutex<()> = Mutex::new(());

/// Runs `test` while no other does.
fn alone(test: impl FnOnce()) {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    test();
}

/// Resident memory and page tables of this process, in bytes.
fn memory() -> usize {
    // Not `VmRSS`, which is a sum of what each core has last said.
    field("/proc/self/smaps_rollup", "Rss:") + field("/proc/self/status", "VmPTE:")
}

fn field(file: &str, name: &str) -> usize {
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).expect("Linux has this field");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("a number")
        << 10
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

/// So many coroutines, each suspended.
fn park(pool: &Pool, count: usize) -> Vec<Seated<(), (), ()>> {
    let mut coroutines = Vec::with_capacity(count);
    for _ in 0..count {
        let stack = pool.take(StackSize::default()).unwrap();
        let mut coroutine = Seated::new(stack, |yielder: &Yielder<(), ()>, ()| yielder.suspend(()));
        assert!(coroutine.resume(()).as_yield().is_some());
        coroutines.push(coroutine);
    }
    coroutines
}

fn parked_coroutines_cost(count: usize) {
    let pool = Pool::new().unwrap();
    let (before, mappings_before) = (memory(), mappings());
    let start = Instant::now();
    let mut coroutines = park(&pool, count);
    let nanoseconds = start.elapsed().as_nanos() as usize / count;
    let each = (memory() - before) as f64 / count as f64;
    let mapped = mappings().saturating_sub(mappings_before);
    println!(
        "{count} parked coroutines: {each:.0} bytes and {nanoseconds} ns each, {mapped} mappings"
    );
    // A page, 520 bytes of page tables, and the handles.
    assert!(each <= 4650.0, "{each:.0} bytes each");
    assert!(mapped <= count / 100, "{mapped} mappings");
    for coroutine in &mut coroutines {
        assert!(coroutine.resume(()).as_return().is_some());
    }
}

#[test]
fn s60_a_hundred_thousand_parked_coroutines_cost_little_more_than_a_page_each() {
    alone(|| parked_coroutines_cost(100_000));
}

#[test]
#[ignore = "needs 5 GB; cargo xtask full runs it"]
fn s60_a_million_parked_coroutines_cost_little_more_than_a_page_each() {
    alone(|| parked_coroutines_cost(1_000_000));
}

#[test]
fn s60_coroutines_that_come_and_go_leave_nothing_behind() {
    alone(|| {
        let pool =
            Pool::with_settings(Settings { limit_warm: 5_000, ..Settings::default() }).unwrap();
        drop(park(&pool, 10_000));
        let before = memory();
        for _ in 0..10 {
            drop(park(&pool, 10_000));
        }
        let grown = memory().saturating_sub(before);
        assert!(grown < 8 << 20, "{grown} bytes more");
    });
}

#[test]
fn s45_memory_falls_after_a_peak() {
    const COUNT: usize = 500;
    const BYTES: usize = 128 << 10;
    fn deep(top: usize) -> u8 {
        let filler = std::hint::black_box([1u8; 256]);
        // Something is done after the call, so that it stays one.
        if top - filler.as_ptr().addr() < BYTES { deep(top) ^ filler[0] } else { 0 }
    }
    fn touch(mut stack: Stack) -> Stack {
        on_stack(&mut stack, || {
            let top = std::hint::black_box(0u8);
            deep((&raw const top).addr());
        });
        stack
    }
    alone(|| {
        let pool =
            Pool::with_settings(Settings { limit_warm: COUNT, ..Settings::default() }).unwrap();
        let before = memory();
        let stacks: Vec<Stack> =
            (0..COUNT).map(|_| touch(pool.take(StackSize::default()).unwrap())).collect();
        drop(stacks);
        let peak = memory() - before;
        assert!(peak >= COUNT * BYTES, "{peak}");
        while pool.trim(COUNT, 64) > 0 {}
        let kept = memory() - before;
        assert!(kept <= COUNT * (20 << 10), "{kept} of {peak}: warm stacks keep 16 KiB each");
        while pool.trim(0, 64) > 0 {}
        let left = memory().saturating_sub(before);
        assert!(left <= 4 << 20, "{left} of {peak}");
    });
}
