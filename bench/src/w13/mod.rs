//! W13: worker pools. Small jobs from 1 to 8 producers to one worker per core.
//!
//! Every producer keeps a bounded number of jobs in flight and sleeps while they are too many, in the
//! same way for all candidates (`window`). So no queue grows without end, and full queues are not what
//! is measured.

mod channel;
#[cfg(feature = "coracle")]
mod coracle;
mod locked;
mod rayon;
mod window;

use std::hint::black_box;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::cpu_clock::cpu_time;
use crate::interleave::Series;
use crate::options::Options;
use crate::plot::{Chart, Figure, Line, Scale};
use crate::report::Report;
use crate::statistics::Summary;
use crate::table::Table;
use window::{JOBS_IN_FLIGHT, Window};

/// Multiplications of a job: less than 100 ns, so that the hand-over weighs more than the work.
const JOB_ROUNDS: u64 = 64;

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W13 {
    /// Numbers of producers.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    producers: Vec<usize>,
    /// Jobs of a repetition.
    #[arg(long, default_value_t = 400_000)]
    jobs: usize,
}

/// Threads that run jobs. Dropping it ends them.
trait Pool: Sync {
    /// A pool of `threads` workers.
    fn new(threads: usize) -> Self;

    /// Has a worker run `job`.
    fn submit(&self, job: impl FnOnce() + Send + 'static);
}

/// A candidate: its name, and the measurement compiled for it.
struct Candidate {
    name: &'static str,
    measure: fn(producers: usize, jobs: usize) -> io::Result<Run>,
}

const CANDIDATES: &[Candidate] = &[
    #[cfg(feature = "coracle")]
    Candidate { name: "coracle pool", measure: measure::<coracle::Workers> },
    Candidate { name: "locked queue", measure: measure::<locked::Locked> },
    Candidate { name: "crossbeam-channel", measure: measure::<channel::Channel> },
    Candidate { name: "rayon spawn", measure: measure::<rayon::Rayon> },
];

/// One repetition.
struct Run {
    /// Nanoseconds per job by the wall clock.
    wall_ns: f64,
    /// Processor time per job of producers and workers together.
    cpu_ns: f64,
}

/// All candidates with one number of producers.
type Row = (usize, Vec<Series<Run>>);

/// Measures all candidates and writes the report.
///
/// # Errors
/// When the report cannot be written.
pub fn run(options: &Options, w13: &W13) -> io::Result<()> {
    let mut measured: Vec<Row> = Vec::new();
    for &producers in &w13.producers {
        eprintln!("w13: {producers} producers");
        let series = options
            .repetitions()
            .run(CANDIDATES, |candidate| (candidate.measure)(producers, w13.jobs))?;
        measured.push((producers, series));
    }

    let mut report = Report::new("w13", "W13: worker pools");
    report.add(&format!(
        "{} jobs of less than 100 ns, {} workers, at most {JOBS_IN_FLIGHT} jobs in flight. Columns are numbers \
         of producers.",
        w13.jobs,
        workers()
    ));
    report.heading("Million jobs per second, best / median");
    let million_jobs = |nanoseconds: f64| 1e3 / nanoseconds;
    report.add(&table(&measured, |run| run.wall_ns, million_jobs));
    report
        .heading("Processor nanoseconds per job, producers and workers together, minimum / median");
    report.add(&table(&measured, |run| run.cpu_ns, |nanoseconds| nanoseconds));
    report.list(&remarks(options, &measured));
    if cfg!(not(feature = "coracle")) {
        report.list(&["coracle pool skipped: built without the feature `coracle`".into()]);
    }
    report.write(&options.out(), &figure(&measured))
}

fn workers() -> usize {
    thread::available_parallelism().map_or(2, usize::from)
}

fn measure<P: Pool + 'static>(producers: usize, jobs: usize) -> io::Result<Run> {
    let pool = P::new(workers());
    let process = std::process::id();
    let cpu = cpu_time(process)?;
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..producers {
            scope.spawn(|| produce(&pool, jobs / producers, JOBS_IN_FLIGHT / producers));
        }
    });
    let wall = start.elapsed();
    let cpu = cpu_time(process)? - cpu;
    let per_job = |time: Duration| time.as_nanos() as f64 / jobs as f64;
    Ok(Run { wall_ns: per_job(wall), cpu_ns: per_job(cpu) })
}

fn produce(pool: &impl Pool, jobs: usize, in_flight: usize) {
    let window = Window::new(in_flight);
    for job in 0..jobs {
        window.enter();
        pool.submit(move || {
            black_box(work(job as u64));
            window.leave();
        });
    }
    window.wait_until_empty();
}

fn work(seed: u64) -> u64 {
    (0..JOB_ROUNDS).fold(seed, |value, round| (value ^ round).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn table(measured: &[Row], of: fn(&Run) -> f64, show: fn(f64) -> f64) -> String {
    let producers = measured.iter().map(|(producers, _)| producers.to_string());
    let mut table = Table::new(&[vec!["producers".into()], producers.collect()].concat());
    for (index, candidate) in CANDIDATES.iter().enumerate() {
        let mut cells = vec![candidate.name.to_owned()];
        for (_, all) in measured {
            cells.push(summary(&all[index], of).map_or("–".into(), |value| {
                format!("{:.2} / {:.2}", show(value.min), show(value.median))
            }));
        }
        table.row(&cells);
    }
    table.markdown()
}

fn remarks(options: &Options, measured: &[Row]) -> Vec<String> {
    let mut remarks = Vec::new();
    for (producers, all) in measured {
        for (candidate, series) in CANDIDATES.iter().zip(all) {
            if let Some(remark) = series.remark(options.keep_noisy) {
                remarks.push(format!("{}, {producers} producers: {remark}", candidate.name));
            }
        }
    }
    remarks
}

fn figure(measured: &[Row]) -> Figure {
    let line = |index: usize, of: fn(&Run) -> f64, show: fn(f64) -> f64| Line {
        name: CANDIDATES[index].name.into(),
        dashed: false,
        points: measured
            .iter()
            .filter_map(|(producers, all)| {
                Some((*producers as f64, show(summary(&all[index], of)?.min)))
            })
            .collect(),
    };
    let chart = |title: &str, of: fn(&Run) -> f64, show: fn(f64) -> f64| Chart {
        title: title.into(),
        x_label: "producers".into(),
        y_scale: Scale::Linear,
        lines: (0..CANDIDATES.len()).map(|index| line(index, of, show)).collect(),
    };
    Figure {
        title: "W13: worker pools".into(),
        charts: vec![
            chart("jobs per second (best)", |run| run.wall_ns, |nanoseconds| 1e9 / nanoseconds),
            chart("processor ns per job (minimum)", |run| run.cpu_ns, |nanoseconds| nanoseconds),
        ],
    }
}

fn summary(series: &Series<Run>, of: fn(&Run) -> f64) -> Option<Summary> {
    Summary::of(series.kept.iter().map(of))
}

#[cfg(test)]
mod tests {
    use super::{Pool, channel, locked, produce, rayon};

    #[test]
    fn a_producer_returns_when_its_jobs_have_run() {
        produce(&locked::Locked::new(2), 10_000, 8);
        produce(&channel::Channel::new(2), 10_000, 8);
        produce(&rayon::Rayon::new(2), 10_000, 8);
    }
}
