//! W14: ten active connections among 0 to 10,000 idle ones, on each backend; and a thread for each connection.
//!
//! What is often said of them, measured: poll and select look at every descriptor each time they wait, epoll and
//! io_uring do not; select ends before 1,024; a thread for each connection is fine while there are few.

use std::io;

use clap::Args;

use crate::candidate::{Candidate, Kind, able, available};
use crate::comparison::{Column, Comparison};
use crate::hold::Hold;
use crate::load::{self, Amount, Place};
use crate::options::Options;
use crate::plot::{Figure, Scale};
use crate::programs::{self, program};
use crate::report::Report;
use crate::request;
use crate::server::Server;

/// Connections that are not idle.
const ACTIVE: u32 = 10;
/// A server on `select` has room for 896: it cannot watch descriptors from 1,024 on, and keeps some.
const LIMIT_SELECT: u32 = 880;

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W14 {
    /// Numbers of idle connections.
    #[arg(long, value_delimiter = ',', default_value = "0,800,1000,10000",
          value_parser = clap::value_parser!(u32).range(0..=18_000))]
    idle: Vec<u32>,
    /// Numbers of active connections, for threads.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64")]
    active: Vec<u32>,
    /// Measured time of a repetition, in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Time before it that is not measured.
    #[arg(long, default_value_t = 0.3)]
    warmup: f64,
    /// Only candidates whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// What a repetition yields.
const COLUMNS: [Column; 7] = [
    Column { heading: "server CPU µs/op", decimals: 2 },
    Column { heading: "ops/s", decimals: 0 },
    Column { heading: "server busy %", decimals: 0 },
    Column { heading: "load busy %", decimals: 0 },
    Column { heading: "p50 µs", decimals: 0 },
    Column { heading: "p99 µs", decimals: 0 },
    Column { heading: "p99.9 µs", decimals: 0 },
];

/// Measures all candidates and writes the report.
///
/// # Errors
/// When a server fails or answers wrongly.
pub fn run(options: &Options, w14: &W14) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_coracle()?;
    }
    let (backends, mut skipped) = available(backends(), &w14.only);
    let (styles, missing) = available(styles(), &w14.only);
    skipped.extend(missing);

    let mut among_idle = Comparison::new("idle connections", &COLUMNS);
    for &idle in &w14.idle {
        eprintln!("w14: {ACTIVE} active among {idle} idle");
        let able = able(&backends, idle);
        among_idle.measure(options, idle, &able, |candidate| {
            measure(options, w14, candidate, idle, ACTIVE)
        })?;
    }
    let mut by_active = Comparison::new("active connections", &COLUMNS);
    for &active in &w14.active {
        eprintln!("w14: {active} active");
        let all: Vec<&Candidate> = styles.iter().collect();
        by_active.measure(options, active, &all, |candidate| {
            measure(options, w14, candidate, 0, active)
        })?;
    }
    if let Some(select) = backends.iter().find(|candidate| candidate.name == "coracle-select") {
        skipped.push(refusal(options, select)?);
    }

    let mut report = Report::new("w14", "W14: a few active among many idle; threads");
    report.add(&format!(
        "Echo of 8 bytes over {ACTIVE} connections while others are open and silent. Server CPU microseconds \
         per operation, minimum / median of the repetitions. The server has one core and the load another; \
         every answer was checked."
    ));
    report.add(&among_idle.overview());
    report.heading("A thread for each connection, beside a loop");
    report.add(
        "All connections are active. `threads` is the standard library alone \
         (`bench/peers/threads-echo`), on one core too.",
    );
    report.add(&by_active.overview());
    report.details(&among_idle, options);
    report.details(&by_active, options);
    report.list(&skipped);
    let charts = [(0, Scale::Linear)];
    let mut charts: Vec<_> = [&among_idle, &by_active]
        .iter()
        .flat_map(|comparison| comparison.figure("", &charts).charts)
        .collect();
    for line in charts.iter_mut().flat_map(|chart| &mut chart.lines) {
        // The axis is logarithmic: none is drawn as one.
        line.points.iter_mut().for_each(|(x, _)| *x = x.max(1.0));
    }
    let title = "W14: ten active among idle connections; threads".into();
    report.write(&options.out(), &Figure { title, charts })
}

fn measure(
    options: &Options,
    w14: &W14,
    candidate: &Candidate,
    idle: u32,
    active: u32,
) -> io::Result<Vec<f64>> {
    let server = Server::start(candidate, options.server_core)?;
    let mut hold = Hold::start(&server, options.load_core, request::Kind::Echo, idle, 0)?;
    let open = hold.opened()?;
    if open < idle {
        return Err(io::Error::other(format!("it holds {open} of {idle} connections")));
    }
    let amount = Amount::Time { warmup: w14.warmup, seconds: w14.seconds };
    let report = load::run(&server, Place::Core(options.load_core), active, amount)?;
    Ok(report.figures().to_vec())
}

/// What select does when there are too many.
fn refusal(options: &Options, select: &Candidate) -> io::Result<String> {
    let server = Server::start(select, options.server_core)?;
    let mut hold = Hold::start(&server, options.load_core, request::Kind::Echo, 2000, 0)?;
    let open = hold.opened()?;
    Ok(format!("{}: of 2000 connections it held {open}, and refused the next", select.name))
}

fn coracle(name: &'static str, backend: &str) -> Candidate {
    Candidate::new(name, Kind::Coracle, programs::coracle()).arguments(&[
        "echo",
        "--threads",
        "1",
        "--backend",
        backend,
    ])
}

fn backends() -> Vec<Candidate> {
    vec![
        coracle("coracle-uring", "uring"),
        coracle("coracle-epoll", "epoll"),
        coracle("coracle-poll", "poll"),
        coracle("coracle-select", "select").limit_connections(LIMIT_SELECT),
    ]
}

fn styles() -> Vec<Candidate> {
    vec![
        Candidate::new("threads", Kind::Peer, program("threads-echo")),
        coracle("coracle-uring", "uring"),
        coracle("coracle-epoll", "epoll"),
    ]
}
