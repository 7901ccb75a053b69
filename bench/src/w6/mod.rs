//! W6: coroutines. The switch, and a short life: created, run, dropped.
//!
//! One thread, one core, no scheduler: what is measured is the stack and the jump. All candidates use stacks of
//! [`STACK_BYTES`] that were used before, since a new one is a page fault, whoever asks for it.

#[cfg(feature = "coracle")]
mod coracle;
#[cfg(feature = "coracle")]
mod coracle_generator;
mod corosensei;
mod generator;
mod measure;

use std::io;

use clap::Args;

use crate::affinity::pin_this_thread;
use crate::interleave::Series;
use crate::options::Options;
use crate::plot::{Chart, Figure, Line, Scale};
use crate::report::Report;
use crate::statistics::Summary;
use crate::table::Table;
use measure::{OPERATIONS, Times, measure};

/// The size of every stack.
pub const STACK_BYTES: usize = 64 << 10;

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W6 {
    /// Numbers of coroutines. Two candidates have a guard by mprotect for each, so that 30,000 is the end.
    #[arg(long, value_delimiter = ',', default_value = "1,100,1000,10000")]
    coroutines: Vec<usize>,
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

/// A candidate: its name, and the measurement compiled for it.
struct Candidate {
    name: &'static str,
    measure: fn(coroutines: usize) -> Times,
}

const CANDIDATES: &[Candidate] = &[
    #[cfg(feature = "coracle")]
    Candidate { name: "coracle-stack", measure: measure::<coracle::Pooled> },
    #[cfg(feature = "coracle")]
    Candidate { name: "coracle Generator", measure: measure::<coracle_generator::OwnGenerators> },
    Candidate { name: "corosensei (bare)", measure: measure::<corosensei::Bare> },
    Candidate { name: "generator", measure: measure::<generator::Generators> },
];

/// Measures all candidates and writes the report.
///
/// # Errors
/// When the core does not exist or the report cannot be written.
pub fn run(options: &Options, w6: &W6) -> io::Result<()> {
    pin_this_thread(options.server_core)?;
    let mut measured: Vec<(usize, Vec<Series<Times>>)> = Vec::new();
    for &coroutines in &w6.coroutines {
        eprintln!("w6: {coroutines} coroutines");
        let series = options
            .repetitions()
            .run(CANDIDATES, |candidate| Ok((candidate.measure)(coroutines)))?;
        measured.push((coroutines, series));
    }

    let mut report = Report::new("w6", "W6: coroutines");
    report.add(
        "Nanoseconds per operation, minimum / median of the repetitions, by the number of coroutines that take \
         turns. One thread, no scheduler, stacks of 64 KiB that were used before.",
    );
    for (index, operation) in OPERATIONS.iter().enumerate() {
        report.heading(operation.name);
        report.add(operation.meaning);
        report.add(&table(&measured, index));
    }
    report.list(&remarks(options, &measured));
    if cfg!(not(feature = "coracle")) {
        report.list(&["coracle's own skipped: built without the feature `coracle`".into()]);
    }
    report.write(&options.out(), &figure(&measured))
}

fn table(measured: &[(usize, Vec<Series<Times>>)], operation: usize) -> String {
    let numbers = measured.iter().map(|(coroutines, _)| coroutines.to_string());
    let mut table = Table::new(&[vec!["coroutines".into()], numbers.collect()].concat());
    for (index, candidate) in CANDIDATES.iter().enumerate() {
        let mut cells = vec![candidate.name.to_owned()];
        for (_, series) in measured {
            cells.push(summary(&series[index], operation).map_or("–".into(), |nanoseconds| {
                format!("{:.2} / {:.2}", nanoseconds.min, nanoseconds.median)
            }));
        }
        table.row(&cells);
    }
    table.markdown()
}

fn remarks(options: &Options, measured: &[(usize, Vec<Series<Times>>)]) -> Vec<String> {
    let mut remarks = Vec::new();
    for (coroutines, all) in measured {
        for (candidate, series) in CANDIDATES.iter().zip(all) {
            if let Some(remark) = series.remark(options.keep_noisy) {
                remarks.push(format!("{}, {coroutines} coroutines: {remark}", candidate.name));
            }
        }
    }
    remarks
}

fn figure(measured: &[(usize, Vec<Series<Times>>)]) -> Figure {
    let line = |operation: usize, index: usize| Line {
        name: CANDIDATES[index].name.into(),
        dashed: false,
        points: measured
            .iter()
            .filter_map(|(coroutines, all)| {
                Some((*coroutines as f64, summary(&all[index], operation)?.min))
            })
            .collect(),
    };
    let charts = OPERATIONS.iter().enumerate().map(|(operation, description)| Chart {
        title: format!("{}, ns (minimum)", description.name),
        x_label: "coroutines".into(),
        y_scale: Scale::Log,
        lines: (0..CANDIDATES.len()).map(|index| line(operation, index)).collect(),
    });
    Figure { title: "W6: coroutines".into(), charts: charts.collect() }
}

fn summary(series: &Series<Times>, operation: usize) -> Option<Summary> {
    Summary::of(series.kept.iter().map(|times| times[operation]))
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
