//! W6: coroutines. The switch, and a short life: created, run, dropped; then the same with a scheduler, and what
//! goes from one to another.
//!
//! First one thread, one core, no scheduler: what is measured is the stack and the jump. All candidates use stacks
//! of [`STACK_BYTES`] that were used before, since a new one is a page fault, whoever asks for it. Then schedulers
//! (`tasks.rs`), channels between two threads (`between.rs`), and the memory of those who are parked
//! (`parked.rs`).

mod between;
#[cfg(feature = "coracle")]
mod coracle;
#[cfg(feature = "coracle")]
mod coracle_generator;
mod corosensei;
mod generator;
mod measure;
pub mod parked;
mod tasks;
#[cfg(feature = "coracle")]
mod tasks_coracle;
mod tasks_may;
mod tasks_threads;
mod tasks_tokio;

use std::io;

use clap::{Args, ValueEnum};

use crate::inside::{Candidate, Work};
use crate::options::Options;
use measure::{OPERATIONS, measure};

/// The size of every stack.
pub const STACK_BYTES: usize = 64 << 10;

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W6 {
    /// What of it is measured.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    parts: Vec<Part>,
    /// Numbers of coroutines. Two candidates have a guard by mprotect for each, so that 30,000 is the end.
    #[arg(long, value_delimiter = ',', default_value = "1,100,1000,10000")]
    coroutines: Vec<usize>,
    /// What the channels between two threads hold at most.
    #[arg(long, value_delimiter = ',', default_value = "0,1,16,128,1024")]
    limits: Vec<usize>,
    /// Numbers of parked coroutines whose memory is measured. A million need 5 GB.
    #[arg(long, value_delimiter = ',', default_value = "10000,100000,1000000")]
    parked: Vec<usize>,
}

/// A part of this work, with a report of its own.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The switch, and a short life.
    Bare,
    /// The same with a scheduler.
    Tasks,
    /// Channels between two threads.
    Between,
    /// The memory of those who are parked.
    Parked,
}

impl Part {
    const ALL: [Part; 4] = [Part::Bare, Part::Tasks, Part::Between, Part::Parked];
}

/// Where coroutines come from.
trait Coroutines {
    /// A coroutine: takes a number, adds it to all it has taken, and gives back the sum, for ever.
    type Endless;
    /// A coroutine that takes a number and returns it, plus one.
    type Short;

    /// Without any.
    fn new() -> Self;

    /// A coroutine that only switches.
    fn endless(&mut self) -> Self::Endless;

    /// Enters a coroutine with a number; returns what it gives back.
    fn resume(coroutine: &mut Self::Endless, number: u64) -> u64;

    /// A coroutine on a stack that was used before, if there is one.
    fn create(&mut self) -> Self::Short;

    /// Runs it to its end; returns what it returns.
    fn run(coroutine: &mut Self::Short, number: u64) -> u64;

    /// Takes its stack back.
    fn give_back(&mut self, coroutine: Self::Short);
}

const CANDIDATES: &[Candidate<{ OPERATIONS.len() }>] = &[
    #[cfg(feature = "coracle")]
    Candidate { name: "coracle-stack", measure: measure::<coracle::Pooled> },
    #[cfg(feature = "coracle")]
    Candidate { name: "coracle Generator", measure: measure::<coracle_generator::OwnGenerators> },
    Candidate { name: "corosensei (bare)", measure: measure::<corosensei::Bare> },
    Candidate { name: "generator", measure: measure::<generator::Generators> },
];

const TASKS: &[Candidate<{ tasks::OPERATIONS.len() }>] = &[
    #[cfg(feature = "coracle")]
    Candidate { name: "coracle", measure: tasks_coracle::measure },
    Candidate { name: "may, one worker", measure: tasks_may::measure },
    Candidate { name: "tokio, current thread", measure: tasks_tokio::measure },
    Candidate { name: "OS threads, crossbeam-channel", measure: tasks_threads::measure },
];

/// Measures all candidates and writes the reports.
///
/// # Errors
/// When the core does not exist or the report cannot be written.
pub fn run(options: &Options, w6: &W6) -> io::Result<()> {
    let work = Work {
        name: "w6",
        title: "W6: coroutines",
        introduction: "Nanoseconds per operation, minimum / median of the repetitions, by the number of \
                       coroutines that take turns. One thread, no scheduler, stacks of 64 KiB that were \
                       used before.",
        sizes_of: "coroutines",
        unit: "ns",
        decimals: 2,
        operations: &OPERATIONS,
        candidates: CANDIDATES,
    };
    for part in Part::ALL.into_iter().filter(|part| w6.parts.contains(part)) {
        match part {
            Part::Bare => work.run(options, &w6.coroutines)?,
            Part::Tasks => tasks::work(TASKS).run(options, &w6.coroutines)?,
            Part::Between => {
                between::work([options.server_core, options.load_core]).run(options, &w6.limits)?;
            }
            Part::Parked => parked::work().run(options, &w6.parked)?,
        }
    }
    Ok(())
}

/// What every candidate has to get right; a benchmark of a wrong answer is worth nothing.
#[cfg(test)]
fn check<C: Coroutines>() {
    let mut coroutines = C::new();
    let mut all: Vec<C::Endless> = (0..3).map(|_| coroutines.endless()).collect();
    for turn in 1..10 {
        for coroutine in &mut all {
            assert_eq!(C::resume(coroutine, 2), 2 * turn);
        }
    }
    for _ in 0..3 {
        let mut short = coroutines.create();
        assert_eq!(C::run(&mut short, 6), 7);
        coroutines.give_back(short);
    }
}
