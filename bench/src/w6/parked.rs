//! What parked coroutines cost in memory. Every measurement is a process of its own: what one has left would be
//! used again by the next, and not be counted.
#![allow(unsafe_code)]

use std::future::pending;
use std::io;
use std::process::{Command, id};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::STACK_BYTES;
use crate::inside::{Candidate, Operation, Work};
use crate::memory::resident_bytes;

const OPERATIONS: [Operation; 1] = [Operation {
    name: "bytes each",
    meaning: "Resident memory and page tables, for each. Of a thread without what the kernel keeps of it.",
}];

/// Two candidates need a mapping or two for each, and a process has 65,530.
const LIMIT_MAPPED: usize = 30_000;

/// What a child of this program is to do.
#[derive(Args, Clone, Debug)]
pub struct Parked {
    who: Who,
    count: usize,
}

/// Whose coroutines.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Who {
    #[cfg(feature = "coracle")]
    Coracle,
    #[cfg(feature = "coracle")]
    CoracleSmall,
    May,
    Tokio,
    Threads,
}

const CANDIDATES: &[Candidate<{ OPERATIONS.len() }>] = &[
    #[cfg(feature = "coracle")]
    Candidate { name: "coracle", measure: |count| ask(Who::Coracle, count, usize::MAX) },
    #[cfg(feature = "coracle")]
    Candidate {
        name: "coracle, stacks of 64 KiB",
        measure: |count| ask(Who::CoracleSmall, count, usize::MAX),
    },
    Candidate {
        name: "may, stacks of 64 KiB",
        measure: |count| ask(Who::May, count, LIMIT_MAPPED),
    },
    Candidate { name: "tokio tasks", measure: |count| ask(Who::Tokio, count, usize::MAX) },
    Candidate {
        name: "OS threads, stacks of 64 KiB",
        measure: |count| ask(Who::Threads, count, LIMIT_MAPPED),
    },
];

/// What is compared.
pub(super) fn work() -> Work<'static, { OPERATIONS.len() }> {
    Work {
        name: "w6-parked",
        title: "W6: the memory of parked coroutines",
        introduction: "Bytes, minimum / median of the repetitions, by the number of coroutines that are parked. \
                       Each measurement in a process of its own.",
        sizes_of: "coroutines",
        unit: "bytes",
        decimals: 0,
        operations: &OPERATIONS,
        candidates: CANDIDATES,
    }
}

/// Has a child measure; no number if that is more than it can have, or if it cannot for another reason.
fn ask(who: Who, count: usize, limit: usize) -> [f64; 1] {
    if count > limit {
        return [f64::NAN];
    }
    let who = who.to_possible_value().expect("none is skipped");
    let child = Command::new("/proc/self/exe")
        .args(["parked", who.get_name(), &count.to_string()])
        .output();
    let bytes = child.ok().and_then(|child| String::from_utf8(child.stdout).ok());
    [bytes.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(f64::NAN)]
}

/// In the child: parks so many, prints what each costs, and ends with all of them.
///
/// # Errors
/// When there is no memory, or no room for so many.
pub fn run(parked: &Parked) -> io::Result<()> {
    let count = parked.count;
    match parked.who {
        #[cfg(feature = "coracle")]
        Who::Coracle => own(coracle_coro::Builder::new(), count),
        #[cfg(feature = "coracle")]
        Who::CoracleSmall => own(coracle_coro::Builder::new().stack_size(STACK_BYTES), count),
        Who::May => mays(count),
        Who::Tokio => tokios(count),
        Who::Threads => threads(count),
    }
}

/// Prints what each of `count` costs that were parked since there were `before` bytes.
fn tell(before: u64, count: usize) -> io::Result<()> {
    println!("{}", (resident_bytes(id())? - before) as f64 / count as f64);
    std::process::exit(0)
}

#[cfg(feature = "coracle")]
fn own(builder: coracle_coro::Builder, count: usize) -> io::Result<()> {
    coracle_coro::run(move || {
        let before = resident_bytes(id())?;
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(builder.clone().spawn(coracle_coro::park)?);
        }
        coracle_coro::yield_now(); // they are all before us
        tell(before, count)
    })
}

/// How many are about to park.
static ABOUT_TO_PARK: AtomicUsize = AtomicUsize::new(0);

fn wait_for(count: usize) {
    while ABOUT_TO_PARK.load(Ordering::Relaxed) < count {
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_millis(100)); // until the last are parked; it changes next to nothing
}

fn mays(count: usize) -> io::Result<()> {
    may::config().set_workers(1).set_stack_size(STACK_BYTES / size_of::<usize>());
    let before = resident_bytes(id())?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        // SAFETY: it uses no thread-local state, and stays well inside its stack.
        all.push(unsafe {
            may::coroutine::spawn(|| {
                ABOUT_TO_PARK.fetch_add(1, Ordering::Relaxed);
                may::coroutine::park();
            })
        });
    }
    wait_for(count);
    tell(before, count)
}

fn tokios(count: usize) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let before = resident_bytes(id())?;
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(tokio::spawn(pending::<()>()));
        }
        // It polls some at a time.
        for _ in 0..count / 32 {
            tokio::task::yield_now().await;
        }
        tell(before, count)
    })
}

fn threads(count: usize) -> io::Result<()> {
    let before = resident_bytes(id())?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        all.push(thread::Builder::new().stack_size(STACK_BYTES).spawn(|| {
            ABOUT_TO_PARK.fetch_add(1, Ordering::Relaxed);
            thread::park();
        })?);
    }
    wait_for(count);
    tell(before, count)
}
