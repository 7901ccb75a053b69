//! The seeds of a simulation: which are run, and what one that fails says.

use coracle_loop::demux::sim::{Faults, Kernel};
use std::fmt::Display;
use std::ops::{AddAssign, Range};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;

/// Makes a seed fail, to see that it is told.
const SABOTAGE: &str = "CORACLE_SIMULATION_SABOTAGE";

/// Those the environment asks for, else `count`.
fn seeds(count: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match number("CORACLE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CORACLE_SEEDS").unwrap_or(count),
    }
}

/// Runs all seeds, and says what came of them. If one fails, says how to do it again.
pub(crate) fn run_all<S: Default + AddAssign + Display>(count: u64, run: impl Fn(u64) -> S) {
    let mut all = S::default();
    for seed in seeds(count) {
        match catch_unwind(AssertUnwindSafe(|| run(seed))) {
            Ok(summary) => all += summary,
            Err(panic) => {
                eprintln!("{}", replay(seed));
                resume_unwind(panic);
            }
        }
    }
    println!("{all}");
}

fn replay(seed: u64) -> String {
    format!("CORACLE_SEED={seed} cargo test -p {} --test simulation", env!("CARGO_PKG_NAME"))
}

/// Whether this seed is to fail for no other reason.
pub(crate) fn is_sabotaged(seed: u64) -> bool {
    std::env::var(SABOTAGE).is_ok_and(|text| text.parse() == Ok(seed))
}

/// Runs `case` of this program in a process in which a seed fails, and gives what that says.
pub(crate) fn sabotage(case: &str) -> String {
    if std::env::var_os(SABOTAGE).is_some() {
        return String::new(); // in the process that the other half has started
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", case])
        .env(SABOTAGE, "7")
        .env("CORACLE_SEEDS", "10")
        .env_remove("CORACLE_SEED")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains(&replay(7)), "{text}");
    text.into_owned()
}

/// Makes the same voyage again and again; each time another operation, or another call, meets an error.
pub(crate) fn fail_each_operation(seed: u64, sail: impl Fn(&Kernel)) {
    const EIO: i32 = 5;
    const EMFILE: i32 = 24;
    let sail_with = |prepare: &dyn Fn(&Kernel)| {
        let kernel = Kernel::with_faults(seed, Faults::benign());
        prepare(&kernel);
        sail(&kernel);
        (kernel.operations(), kernel.calls())
    };
    let (operations, calls) = sail_with(&|_| ());
    assert!(operations > 20 && calls > 5, "{operations} operations, {calls} calls");
    for n in 1..=operations {
        eprintln!("seed {seed}: operation {n} of {operations} fails");
        sail_with(&|kernel| kernel.fail_nth(n, EIO));
    }
    for n in 1..=calls {
        eprintln!("seed {seed}: call {n} of {calls} fails");
        sail_with(&|kernel| kernel.fail_nth_call(n, EMFILE));
    }
}
