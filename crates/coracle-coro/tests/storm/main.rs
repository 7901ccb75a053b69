//! Cancelling under load: coroutines in every place where one can wait, cancelled at any moment, while others take
//! their stacks, their descriptors and their places in line.
//!
//! ```text
//!   seed ──► victims ──── wait in `points.rs`, each with bytes of its own around what it lends ──► cancelled
//!            bystanders ─ are never cancelled; what lies on their stacks stays as it is
//!            helpers ──── write, read, connect, notify, so that waits end at the same moment (`world.rs`)
//! ```
//!
//! Afterwards: every byte that was told written has arrived, once, from whom it was; every message was received or
//! came back; nobody holds a lock; no coroutine, future, stack, operation, timer or descriptor is left.
//!
//! `CORACLE_SEEDS=200` runs more seeds than a few; a failure prints `CORACLE_SEED=…`, which runs just that one.

#[allow(dead_code)] // each suite uses what it needs
#[path = "../rows/harness.rs"]
mod harness;
#[allow(dead_code)]
#[path = "../../../coracle-loop/tests/simulation/random.rs"]
mod random;

mod points;
mod victims;
mod world;

use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use coracle_loop::demux::sim::{Faults, Kernel};
use coracle_loop::pool::{Pool, PoolSettings};
use random::Random;
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Descriptors are counted for the whole process, so one case runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// How many seeds a real backend has, with two storms each, unless `CORACLE_SEEDS` says otherwise.
const SEEDS: u64 = 1;

/// The same for a simulated kernel.
const SEEDS_SIMULATED: u64 = 6;

/// How long it may take until a worker has closed what it was asked to open for somebody who is gone.
const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn t4_cancels_under_load_leave_nothing_behind_on_uring() {
    on_real(Backend::Uring);
}

#[test]
fn t4_cancels_under_load_leave_nothing_behind_on_epoll() {
    on_real(Backend::Epoll);
}

#[test]
fn t4_cancels_under_load_leave_nothing_behind_on_poll() {
    on_real(Backend::Poll);
}

#[test]
fn t4_cancels_under_load_leave_nothing_behind_on_select() {
    on_real(Backend::Select);
}

/// Short counts, late completions, cancels that come too late; but what is sent arrives.
#[test]
fn t4_cancels_under_load_leave_nothing_behind_on_sim() {
    on_sim(SEEDS_SIMULATED, Faults::default, true);
}

/// Everything that can go wrong: connections break and descriptors run out. Nothing is left, all the same.
#[test]
fn t4_cancels_under_load_leave_nothing_behind_whatever_happens() {
    on_sim(4 * SEEDS_SIMULATED, Faults::hostile, false);
}

fn on_real(backend: Backend) {
    run_all(SEEDS, |seed| {
        let pool = Pool::new(PoolSettings { threads: 2, ..PoolSettings::default() }).unwrap();
        let lp = Loop::builder().backend(backend).pool(pool).build().expect("the backend opens");
        let mut random = Random::new(seed);
        let mut storm = || victims::storm(&lp, random.fork(), true);
        storm().expect("nothing fails but what is cancelled");
        lp.run_ready().expect("sockets are closed");
        // Of the loop, which is still there: it would close what was left.
        let descriptors = open_descriptors();
        storm().expect("nothing fails but what is cancelled");
        victims::nothing_is_left(&lp);
        let begin = Instant::now();
        while open_descriptors() > descriptors {
            assert!(begin.elapsed() < PATIENCE, "{} of {descriptors}", open_descriptors());
            std::thread::yield_now(); // a worker has not heard yet that nobody waits for its file
        }
    });
}

fn on_sim(seeds: u64, faults: fn() -> Faults, is_exact: bool) {
    let failed = Cell::new(0);
    let seeds = run_all(seeds, |seed| {
        let kernel = Kernel::with_faults(seed, faults());
        let lp = Loop::builder().demux(kernel.demux()).build().expect("a simulated loop");
        let before = kernel.open_descriptors();
        match victims::storm(&lp, Random::new(seed), is_exact) {
            Ok(()) => {}
            Err(error) if is_exact => panic!("{error}"),
            Err(_) => failed.set(failed.get() + 1), // it had not even the sockets to begin with
        }
        victims::nothing_is_left(&lp);
        assert_eq!(kernel.open_descriptors(), before, "{}", kernel.describe_faults());
    });
    assert!(failed.get() <= seeds / 2 + 1, "{} of {seeds} seeds did not begin", failed.get());
}

/// Runs the seeds that the environment asks for, else `count`, one at a time; gives how many.
fn run_all(count: u64, run: impl Fn(u64)) -> u64 {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let seeds = seeds(count);
    for seed in seeds.clone() {
        let _watchdog = harness::watch_over("a storm of one seed");
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("CORACLE_SEED={seed} cargo test -p coracle-coro --test storm");
            resume_unwind(panic);
        }
    }
    seeds.end - seeds.start
}

fn seeds(count: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match number("CORACLE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CORACLE_SEEDS").unwrap_or(count),
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux has it").count()
}
