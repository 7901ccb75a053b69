//! W2: echo ping-pong of 8 bytes over 1 to 1,024 connections.
//!
//! Two kinds of figures. What it costs: server CPU time per operation, with throughput and latency
//! beside it. What it does: system calls and user-mode instructions per operation, which do not depend
//! on how noisy the machine is.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;

use crate::affinity::pinned;
use crate::callgrind;
use crate::candidate::{Candidate, Kind, available};
use crate::interleave::Series;
use crate::load::{self, Amount, Place};
use crate::options::Options;
use crate::plot::{Chart, Figure, Line, Scale};
use crate::programs::{self, build_c, program};
use crate::report::Report;
use crate::server::Server;
use crate::single_step::StepsReport;
use crate::statistics::Summary;
use crate::syscalls::{self, Syscalls};
use crate::table::Table;

/// `select` cannot watch descriptors from 1,024 on; some are the server's own.
const LIMIT_SELECT: u32 = 1000;

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W2 {
    /// Numbers of connections.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,256,1024")]
    connections: Vec<u32>,
    /// Measured time of a repetition, in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Time before it that is not measured.
    #[arg(long, default_value_t = 0.5)]
    warmup: f64,
    /// Only candidates whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The program `coracle`, when it is not the one built from this repository.
    #[arg(long)]
    coracle: Option<PathBuf>,
    /// Let the load take turns with the server on one core. Slower, and far less noisy.
    #[arg(long)]
    lockstep: bool,
    /// Count system calls and instructions at this number of connections; 0 leaves it out.
    #[arg(long, default_value_t = 64)]
    count_connections: u32,
    /// Count instructions with callgrind too (never on io_uring).
    #[arg(long)]
    callgrind: bool,
}

/// One repetition of one candidate.
#[derive(Clone, Debug)]
struct Run {
    cpu_us: f64,
    ops_per_second: f64,
    /// The server's and the load's share of their core.
    busy: f64,
    load_busy: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    peak_bytes: u64,
}

/// All repetitions of one candidate at one number of connections.
struct Measured<'a> {
    candidate: &'a Candidate,
    connections: u32,
    series: Series<Run>,
}

/// What one operation of a candidate consists of.
struct Counted<'a> {
    candidate: &'a Candidate,
    syscalls: Syscalls,
    instructions: f64,
    callgrind: Option<f64>,
}

/// Measures all candidates and writes the report.
///
/// # Errors
/// When a server fails or answers wrongly.
pub fn run(options: &Options, w2: &W2) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_coracle()?;
    }
    let (mut candidates, mut skipped) = available(candidates(options, w2));
    for line in &skipped {
        eprintln!("{line}");
    }
    candidates.retain(|candidate| {
        w2.only.is_empty() || w2.only.iter().any(|part| candidate.name.contains(part.as_str()))
    });

    let mut counted = Vec::new();
    if w2.count_connections > 0 {
        for candidate in &candidates {
            match count(options, w2, candidate, w2.count_connections) {
                Ok(counts) => counted.push(counts),
                Err(error) => skipped.push(format!("{} not counted: {error}", candidate.name)),
            }
        }
    }
    let mut measured = Vec::new();
    for &connections in &w2.connections {
        eprintln!("w2: {connections} connections");
        measured.extend(measure(options, w2, &candidates, connections)?);
    }
    report(options, w2, &measured, &counted, &skipped)
}

fn candidates(options: &Options, w2: &W2) -> Vec<Candidate> {
    let coracle = w2.coracle.clone().unwrap_or_else(programs::coracle);
    let coracle = |name, backend| {
        Candidate::new(name, Kind::Coracle, coracle.clone()).arguments(&[
            "echo",
            "--threads",
            "1",
            "--backend",
            backend,
        ])
    };
    // What the loop itself costs; `coracle echo` has connections and protocols on top.
    let on_the_loop = |name, backend| {
        Candidate::new(name, Kind::Coracle, programs::loop_echo())
            .arguments(&["--backend", backend])
    };
    let c_peer = |name, source, library, package| {
        let mut candidate = Candidate::new(name, Kind::Peer, program(name));
        if !options.no_build {
            candidate.unavailable = build_c(name, source, library, package).err();
        }
        candidate
    };
    let libevent = c_peer("libevent", "libevent_echo.c", "libevent_core", "libevent-dev");
    let mut libevent_queued = libevent.clone();
    libevent_queued.name = "libevent-queued";
    vec![
        Candidate::new("raw-uring", Kind::Limit, program("raw-uring")),
        Candidate::new("raw-epoll", Kind::Limit, program("raw-epoll")),
        Candidate::new("raw-epoll-called", Kind::Limit, program("raw-epoll-called")),
        on_the_loop("loop-uring", "uring"),
        on_the_loop("loop-epoll", "epoll"),
        on_the_loop("loop-poll", "poll"),
        on_the_loop("loop-select", "select").limit_connections(LIMIT_SELECT),
        coracle("coracle-uring", "uring"),
        coracle("coracle-epoll", "epoll"),
        coracle("coracle-poll", "poll"),
        coracle("coracle-select", "select").limit_connections(LIMIT_SELECT),
        Candidate::new("tokio", Kind::Peer, program("tokio-echo")),
        Candidate::new("may", Kind::Peer, program("may-echo")),
        c_peer("libuv", "libuv_echo.c", "libuv", "libuv1-dev"),
        libevent,
        libevent_queued.arguments(&["--queued"]),
    ]
}

fn measure<'a>(
    options: &Options,
    w2: &W2,
    candidates: &'a [Candidate],
    connections: u32,
) -> io::Result<Vec<Measured<'a>>> {
    let able: Vec<&Candidate> =
        candidates.iter().filter(|candidate| connections <= candidate.limit_connections).collect();
    let all = options.repetitions().run(&able, |candidate| {
        let server = Server::start(candidate, options.server_core)?;
        let amount = Amount::Time { warmup: w2.warmup, seconds: w2.seconds };
        let place = match w2.lockstep {
            true => Place::Lockstep(options.server_core),
            false => Place::Core(options.load_core),
        };
        let report = load::run(&server, place, connections, amount)
            .map_err(|error| io::Error::other(format!("{}: {error}", candidate.name)))?;
        let cpu = report.server_cpu_seconds.expect("ping was told to watch the server");
        Ok(Run {
            cpu_us: cpu / report.operations as f64 * 1e6,
            ops_per_second: report.ops_per_second,
            busy: cpu / report.seconds,
            load_busy: report.load_cpu_seconds / report.seconds,
            p50_us: report.p50_us,
            p99_us: report.p99_us,
            p999_us: report.p999_us,
            peak_bytes: server.peak_resident_bytes()?,
        })
    })?;
    let measured = able.into_iter().zip(all);
    Ok(measured.map(|(candidate, series)| Measured { candidate, connections, series }).collect())
}

fn count<'a>(
    options: &Options,
    w2: &W2,
    candidate: &'a Candidate,
    connections: u32,
) -> io::Result<Counted<'a>> {
    let (server_core, load_core) = (options.server_core, options.load_core);
    let syscalls = syscalls::count(candidate, server_core, load_core, connections)?;
    let instructions = steps(options, candidate, connections)?;
    let uses_uring = candidate.name.ends_with("uring");
    let callgrind = (w2.callgrind && !uses_uring)
        .then(|| callgrind::count(candidate, server_core, load_core, connections))
        .transpose()?;
    eprintln!(
        "w2: {} takes {:.3} system calls and {instructions:.0} instructions",
        candidate.name, syscalls.per_operation
    );
    Ok(Counted { candidate, syscalls, instructions, callgrind })
}

/// Runs `steps`, on the server's core: tracer and traced take turns anyway.
fn steps(options: &Options, candidate: &Candidate, connections: u32) -> io::Result<f64> {
    let server = Server::start(candidate, options.server_core)?;
    let mut steps: Command = pinned(options.server_core, &program("steps"));
    steps.args(["--pid", &server.pid().to_string()]);
    steps.args(["--connect", &server.address().to_string()]);
    steps.args(["--connections", &connections.to_string()]);
    steps.args(["--load-core", &options.load_core.to_string()]);
    let output = steps.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("steps failed: {}", output.status)));
    }
    let report: StepsReport = serde_json::from_slice(&output.stdout)?;
    Ok(report.instructions_per_operation)
}

fn report(
    options: &Options,
    w2: &W2,
    measured: &[Measured<'_>],
    counted: &[Counted<'_>],
    skipped: &[String],
) -> io::Result<()> {
    let mut report = if w2.lockstep {
        let mut report = Report::new("w2-lockstep", "W2 in lockstep: echo, 8 bytes, ping-pong");
        report.add(
            "Server CPU microseconds per operation, minimum / median of the repetitions. Server and load \
             take turns on one core: the load sends one message on each connection, sleeps until all \
             are answered, and checks them.",
        );
        report
    } else {
        let mut report = Report::new("w2", "W2: echo, 8 bytes, ping-pong");
        report.add(
            "Server CPU microseconds per operation, minimum / median of the repetitions. The server has \
             one core and the load another; every answer was checked.",
        );
        report
    };
    report.add(&overview(w2, measured));
    if !counted.is_empty() {
        report.heading(&format!(
            "What an operation consists of ({} connections)",
            w2.count_connections
        ));
        report.add(
            "System calls by `strace`, user-mode instructions by single-stepping (`steps`): the \
             difference of two runs with different numbers of operations, so that start, accept and \
             close do not count.",
        );
        report.add(&counts(counted));
    }
    for &connections in &w2.connections {
        report.heading(&format!("{connections} connections"));
        let rows = || measured.iter().filter(|row| row.connections == connections);
        report.add(&details(rows()));
        let remark = |row: &Measured<'_>| {
            let remark = row.series.remark(options.keep_noisy)?;
            Some(format!("{}: {remark}", row.candidate.name))
        };
        report.list(&rows().filter_map(remark).collect::<Vec<_>>());
    }
    report.list(skipped);
    report.write(&options.out(), &figure(measured))
}

/// A row per candidate, a column per number of connections.
fn overview(w2: &W2, measured: &[Measured<'_>]) -> String {
    let counts = w2.connections.iter().map(u32::to_string);
    let mut table = Table::new(&[vec!["connections".into()], counts.collect()].concat());
    for name in names(measured) {
        let mut cells = vec![name.to_owned()];
        for &connections in &w2.connections {
            let cell = measured
                .iter()
                .find(|row| row.candidate.name == name && row.connections == connections)
                .and_then(|row| row.summary(|run| run.cpu_us));
            cells
                .push(cell.map_or("–".into(), |cpu| format!("{:.2} / {:.2}", cpu.min, cpu.median)));
        }
        table.row(&cells);
    }
    table.markdown()
}

fn counts(counted: &[Counted<'_>]) -> String {
    let mut table =
        Table::new(&["", "system calls", "which", "instructions", "instructions (callgrind)"]);
    for row in counted {
        let by_name = row.syscalls.by_name.iter();
        let which: Vec<String> =
            by_name.map(|(name, calls)| format!("{name} {calls:.3}")).collect();
        table.row(&[
            row.candidate.name.to_owned(),
            format!("{:.3}", row.syscalls.per_operation),
            which.join(", "),
            format!("{:.0}", row.instructions),
            row.callgrind.map_or("–".into(), |instructions| format!("{instructions:.0}")),
        ]);
    }
    table.markdown()
}

fn details<'a>(rows: impl Iterator<Item = &'a Measured<'a>>) -> String {
    let mut table = Table::new(&[
        "",
        "kind",
        "CPU µs/op min",
        "median",
        "spread",
        "ops/s (median)",
        "server busy",
        "load busy",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "peak MiB",
        "repetitions",
    ]);
    for row in rows {
        let Some(cpu) = row.summary(|run| run.cpu_us) else { continue };
        let median =
            |of: fn(&Run) -> f64| row.summary(of).map_or(f64::NAN, |summary| summary.median);
        table.row(&[
            row.candidate.name.to_owned(),
            row.candidate.kind.name().to_owned(),
            format!("{:.2}", cpu.min),
            format!("{:.2}", cpu.median),
            format!("{:.0} %", cpu.spread * 100.0),
            format!("{:.0}", median(|run| run.ops_per_second)),
            format!("{:.0} %", median(|run| run.busy) * 100.0),
            format!("{:.0} %", median(|run| run.load_busy) * 100.0),
            format!("{:.0}", median(|run| run.p50_us)),
            format!("{:.0}", median(|run| run.p99_us)),
            format!("{:.0}", median(|run| run.p999_us)),
            format!("{:.1}", median(|run| run.peak_bytes as f64) / (1024.0 * 1024.0)),
            row.series.kept.len().to_string(),
        ]);
    }
    table.markdown()
}

fn figure(measured: &[Measured<'_>]) -> Figure {
    let chart = |title: &str, y_scale, of: fn(&Run) -> f64| Chart {
        title: title.into(),
        x_label: "connections".into(),
        y_scale,
        lines: names(measured).into_iter().map(|name| line(measured, name, of)).collect(),
    };
    Figure {
        title: "W2: echo, 8 bytes, one core".into(),
        charts: vec![
            chart("server CPU µs per operation (minimum)", Scale::Linear, |run| run.cpu_us),
            chart("p99 latency, µs (minimum)", Scale::Log, |run| run.p99_us),
        ],
    }
}

fn line(measured: &[Measured<'_>], name: &str, of: fn(&Run) -> f64) -> Line {
    let rows = || measured.iter().filter(|row| row.candidate.name == name);
    let point = |row: &Measured<'_>| Some((f64::from(row.connections), row.summary(of)?.min));
    Line {
        name: name.into(),
        dashed: rows().any(|row| row.candidate.kind == Kind::Limit),
        points: rows().filter_map(point).collect(),
    }
}

/// Every candidate that was measured, once.
fn names<'a>(measured: &[Measured<'a>]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for row in measured {
        if !names.contains(&row.candidate.name) {
            names.push(row.candidate.name);
        }
    }
    names
}

impl Measured<'_> {
    fn summary(&self, of: impl Fn(&Run) -> f64) -> Option<Summary> {
        Summary::of(self.series.kept.iter().map(of))
    }
}
