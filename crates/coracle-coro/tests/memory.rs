//! What coroutines cost, as the kernel counts it. One test at a time: they all look at the same process.

use coracle_coro::{Builder, JoinHandle, park, run, spawn, yield_now};
use std::io;
use std::process::Command;
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

/// Runs `test`, which is called `name`, in a process of its own: what others have left in this one would be used
/// again, and not be counted.
fn afresh(name: &str, test: impl FnOnce()) {
    const FRESH: &str = "CORACLE_FRESH";
    if std::env::var_os(FRESH).is_some() {
        return test();
    }
    alone(|| {
        let mut child = Command::new(std::env::current_exe().expect("a program has a path"));
        child.args(["--exact", name, "--include-ignored", "--nocapture"]).env(FRESH, "1");
        assert!(child.status().expect("it runs").success(), "{name}");
    });
}

/// A debug build uses more of each stack: most of them a second page.
const MORE_IN_DEBUG: usize = if cfg!(debug_assertions) { 4096 } else { 0 };

/// 4.8 KiB: a page, 520 bytes of page tables, and what is kept beside the stack.
const LIMIT: usize = 4915;

/// The same with 264 bytes of page tables.
const LIMIT_ON_SMALL_STACKS: usize = LIMIT - 256;

/// Each is woken and joined in the end, so that it was really there.
fn parked_coroutines_cost(count: usize, builder: Builder, limit: usize) {
    run(move || {
        let before = memory();
        let begin = Instant::now();
        let mut parked: Vec<JoinHandle<io::Result<()>>> = Vec::with_capacity(count);
        for _ in 0..count {
            parked.push(builder.clone().spawn(park)?);
        }
        yield_now();
        let nanoseconds = begin.elapsed().as_nanos() as usize / count;
        let each = (memory() - before) / count;
        println!("{count} parked: {each} bytes, {nanoseconds} ns each");
        for coroutine in &parked {
            coroutine.coroutine().unpark();
        }
        for coroutine in parked {
            coroutine.join().unwrap()?;
        }
        assert!(each <= limit + MORE_IN_DEBUG, "{each} bytes each");
        Ok(())
    })
    .unwrap();
}

fn small() -> Builder {
    Builder::new().stack_size(64 << 10)
}

#[test]
fn t5_hundred_thousand_parked_coroutines_on_small_stacks_fit_the_limit() {
    afresh("t5_hundred_thousand_parked_coroutines_on_small_stacks_fit_the_limit", || {
        parked_coroutines_cost(100_000, small(), LIMIT_ON_SMALL_STACKS)
    });
}

#[test]
fn s60_hundred_thousand_parked_coroutines_cost_little_more_than_a_page_each() {
    afresh("s60_hundred_thousand_parked_coroutines_cost_little_more_than_a_page_each", || {
        parked_coroutines_cost(100_000, Builder::new(), LIMIT)
    });
}

#[test]
#[ignore = "needs 6 GB; cargo xtask full runs it"]
fn t5_million_parked_coroutines_on_small_stacks_fit_the_limit() {
    afresh("t5_million_parked_coroutines_on_small_stacks_fit_the_limit", || {
        parked_coroutines_cost(1_000_000, small(), LIMIT_ON_SMALL_STACKS)
    });
}

#[test]
#[ignore = "needs 6 GB; cargo xtask full runs it"]
fn s60_million_parked_coroutines_cost_little_more_than_a_page_each() {
    afresh("s60_million_parked_coroutines_cost_little_more_than_a_page_each", || {
        parked_coroutines_cost(1_000_000, Builder::new(), LIMIT)
    });
}

#[test]
fn s60_hundred_thousand_come_and_go_and_leave_nothing_behind() {
    fn round() -> io::Result<()> {
        let children: Vec<_> = (0..100_000_u64).map(|n| spawn(move || n)).collect();
        let mut sum = 0;
        for child in children {
            sum += child.join().unwrap();
        }
        assert_eq!(sum, 99_999 * 100_000 / 2);
        Ok(())
    }
    /// With all of them there at the same time.
    fn round_parked() -> io::Result<()> {
        let children: Vec<_> = (0..20_000).map(|_| spawn(park)).collect();
        yield_now();
        for child in &children {
            child.coroutine().unpark();
        }
        for child in children {
            child.join().unwrap()?;
        }
        Ok(())
    }
    alone(|| {
        run(|| {
            for _ in 0..3 {
                round()?;
                round_parked()?;
            }
            let before = memory();
            for _ in 0..5 {
                round()?;
                round_parked()?;
            }
            let grown = memory().saturating_sub(before);
            // Less than 2 bytes for each of them.
            assert!(grown < 1 << 20, "{grown} bytes more");
            Ok(())
        })
        .unwrap();
    });
}
