//! W7: timers. Add, cancel, re-arm, touch and expire, with 1,000 to 1,000,000 pending.
//!
//! Deadlines lie at random within the next minute. Pure data structures on one core: nothing waits for
//! the clock, `expire` is told what time it is.

mod btree;
#[cfg(feature = "coracle")]
mod coracle;
mod delay_queue;
mod heap;
mod measure;

use std::io;
use std::time::{Duration, Instant};

use clap::Args;

use crate::affinity::pin_this_thread;
use crate::interleave::Series;
use crate::options::Options;
use crate::plot::{Chart, Figure, Line, Scale};
use crate::report::Report;
use crate::statistics::Summary;
use crate::table::Table;
use measure::{OPERATIONS, Times, measure};

/// All deadlines lie within this time.
pub const HORIZON: Duration = Duration::from_secs(60);

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W7 {
    /// Numbers of pending timers.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000,1000000")]
    pending: Vec<usize>,
}

/// A set of timers.
trait Timers {
    /// Names a pending timer.
    type Id;
    /// Names an idle time-out: the same, unless there is a cheaper kind.
    type Idle;

    /// An empty set.
    fn new(now: Instant) -> Self;

    /// Adds a timer.
    fn add(&mut self, deadline: Instant, value: u64) -> Self::Id;

    /// Removes a pending timer; returns its value.
    fn cancel(&mut self, id: Self::Id) -> Option<u64>;

    /// Moves a pending timer to another deadline. The name may change.
    fn rearm(&mut self, id: &mut Self::Id, deadline: Instant);

    /// Adds an idle time-out, which is put off often and rarely expires.
    fn add_idle(&mut self, deadline: Instant) -> Self::Idle;

    /// Puts an idle time-out off.
    fn touch(&mut self, idle: &mut Self::Idle, deadline: Instant);

    /// Takes all timers that are due at `now`, in order of their deadlines; returns how many.
    fn expire(&mut self, now: Instant) -> usize;
}

/// A candidate: its name, and the measurement compiled for it.
struct Candidate {
    name: &'static str,
    measure: fn(pending: usize) -> Times,
}

const CANDIDATES: &[Candidate] = &[
    #[cfg(feature = "coracle")]
    Candidate { name: "coracle wheel", measure: measure::<coracle::Wheel> },
    Candidate { name: "BinaryHeap (lazy)", measure: measure::<heap::Heap> },
    Candidate { name: "BTreeMap", measure: measure::<btree::BTree> },
    Candidate { name: "DelayQueue", measure: measure::<delay_queue::Delays> },
];

/// Measures all candidates and writes the report.
///
/// # Errors
/// When the core does not exist or the report cannot be written.
pub fn run(options: &Options, w7: &W7) -> io::Result<()> {
    pin_this_thread(options.server_core)?;
    let mut measured: Vec<(usize, Vec<Series<Times>>)> = Vec::new();
    for &pending in &w7.pending {
        eprintln!("w7: {pending} pending");
        let series =
            options.repetitions().run(CANDIDATES, |candidate| Ok((candidate.measure)(pending)))?;
        measured.push((pending, series));
    }

    let mut report = Report::new("w7", "W7: timers");
    report.add(
        "Nanoseconds per operation, minimum / median of the repetitions, by the number of pending \
         timers. Deadlines lie at random within a minute.",
    );
    for (index, operation) in OPERATIONS.iter().enumerate() {
        report.heading(operation.name);
        report.add(operation.meaning);
        report.add(&table(&measured, index));
    }
    report.list(&remarks(options, &measured));
    if cfg!(not(feature = "coracle")) {
        report.list(&["coracle wheel skipped: built without the feature `coracle`".into()]);
    }
    report.write(&options.out(), &figure(&measured))
}

fn table(measured: &[(usize, Vec<Series<Times>>)], operation: usize) -> String {
    let sizes = measured.iter().map(|(pending, _)| pending.to_string());
    let mut table = Table::new(&[vec!["pending".into()], sizes.collect()].concat());
    for (index, candidate) in CANDIDATES.iter().enumerate() {
        let mut cells = vec![candidate.name.to_owned()];
        for (_, series) in measured {
            cells.push(summary(&series[index], operation).map_or("–".into(), |nanoseconds| {
                format!("{:.1} / {:.1}", nanoseconds.min, nanoseconds.median)
            }));
        }
        table.row(&cells);
    }
    table.markdown()
}

fn remarks(options: &Options, measured: &[(usize, Vec<Series<Times>>)]) -> Vec<String> {
    let mut remarks = Vec::new();
    for (pending, all) in measured {
        for (candidate, series) in CANDIDATES.iter().zip(all) {
            if let Some(remark) = series.remark(options.keep_noisy) {
                remarks.push(format!("{}, {pending} pending: {remark}", candidate.name));
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
            .filter_map(|(pending, all)| {
                Some((*pending as f64, summary(&all[index], operation)?.min))
            })
            .collect(),
    };
    let charts = OPERATIONS.iter().enumerate().map(|(operation, description)| Chart {
        title: format!("{}, ns (minimum)", description.name),
        x_label: "pending timers".into(),
        y_scale: Scale::Log,
        lines: (0..CANDIDATES.len()).map(|index| line(operation, index)).collect(),
    });
    Figure { title: "W7: timers".into(), charts: charts.collect() }
}

fn summary(series: &Series<Times>, operation: usize) -> Option<Summary> {
    Summary::of(series.kept.iter().map(|times| times[operation]))
}

/// What every set of timers has to get right; a benchmark of a wrong answer is worth nothing.
#[cfg(test)]
fn check<T: Timers>() {
    let start = Instant::now();
    let second = Duration::from_secs(1);
    let mut timers = T::new(start);
    let one = timers.add(start + second, 1);
    let mut two = timers.add(start + 2 * second, 2);
    let _three = timers.add(start + 3 * second, 3);
    assert_eq!(timers.cancel(one), Some(1));
    timers.rearm(&mut two, start + 10 * second);
    assert_eq!(timers.expire(start + 5 * second), 1);
    timers.rearm(&mut two, start + 6 * second);
    assert_eq!(timers.expire(start + 7 * second), 1);
    assert_eq!(timers.expire(start + 60 * second), 0);
}
