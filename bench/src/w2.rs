//! W2: echo ping-pong of 8 bytes over 1 to 1,024 connections.
//!
//! Two kinds of figures. What it costs: server CPU time per operation, with throughput and latency
//! beside it. What it does: system calls and user-mode instructions per operation, which do not depend
//! on how noisy the machine is.

use std::io;
use std::path::PathBuf;

use clap::Args;

use crate::candidate::{Candidate, Kind, able, available, c_peer};
use crate::comparison::{Column, Comparison};
use crate::counting::{self, Counted};
use crate::load::{self, Amount, Place};
use crate::options::Options;
use crate::plot::Scale;
use crate::programs::{self, program};
use crate::report::Report;
use crate::server::Server;

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
    /// Count system calls and instructions at these numbers of connections; 0 leaves it out.
    #[arg(long, value_delimiter = ',', default_value = "2,64")]
    count_connections: Vec<u32>,
    /// Count instructions with callgrind too (never on io_uring).
    #[arg(long)]
    callgrind: bool,
}

/// What a repetition yields.
const COLUMNS: [Column; 8] = [
    Column { heading: "server CPU µs/op", decimals: 2 },
    Column { heading: "ops/s", decimals: 0 },
    Column { heading: "server busy %", decimals: 0 },
    Column { heading: "load busy %", decimals: 0 },
    Column { heading: "p50 µs", decimals: 0 },
    Column { heading: "p99 µs", decimals: 0 },
    Column { heading: "p99.9 µs", decimals: 0 },
    Column { heading: "peak MiB", decimals: 1 },
];
/// The charts: CPU time and p99.
const CHARTS: [(usize, Scale); 2] = [(0, Scale::Linear), (5, Scale::Log)];

/// Measures all candidates and writes the report.
///
/// # Errors
/// When a server fails or answers wrongly.
pub fn run(options: &Options, w2: &W2) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_coracle()?;
    }
    let (candidates, mut skipped) = available(candidates(options, w2), &w2.only);

    let (place, count) = (Place::Core(options.load_core), &w2.count_connections);
    let counted =
        counting::count_all(options, &candidates, place, count, w2.callgrind, &mut skipped);
    let mut measured = Comparison::new("connections", &COLUMNS);
    for &connections in &w2.connections {
        eprintln!("w2: {connections} connections");
        let able = able(&candidates, connections);
        measured.measure(options, connections, &able, |candidate| {
            measure(options, w2, candidate, connections)
        })?;
    }
    report(options, w2, &measured, &counted, &skipped)
}

fn candidates(options: &Options, w2: &W2) -> Vec<Candidate> {
    let coracle = w2.coracle.clone().unwrap_or_else(programs::coracle);
    let in_style = |name, style, backend| {
        Candidate::new(name, Kind::Coracle, coracle.clone()).arguments(&[
            "echo",
            "--threads",
            "1",
            "--style",
            style,
            "--backend",
            backend,
        ])
    };
    let coracle = |name, backend| in_style(name, "callback", backend);
    // What the loop itself costs; `coracle echo` has connections and protocols on top.
    let on_the_loop = |name, backend| {
        Candidate::new(name, Kind::Coracle, programs::loop_echo())
            .arguments(&["--backend", backend])
    };
    let c_peer =
        |name, source, library, package| c_peer(options, name, name, source, library, package);
    let libevent = c_peer("libevent", "libevent_echo.c", "libevent_core", "libevent-dev");
    let mut libevent_queued = libevent.clone();
    libevent_queued.name = "libevent-queued";
    vec![
        Candidate::new("raw-uring", Kind::Limit, program("raw-uring")),
        Candidate::new("raw-uring-own", Kind::Limit, program("raw-uring-own")),
        Candidate::new("raw-epoll", Kind::Limit, program("raw-epoll")),
        Candidate::new("raw-epoll-called", Kind::Limit, program("raw-epoll-called")),
        on_the_loop("loop-uring", "uring"),
        on_the_loop("loop-epoll", "epoll"),
        on_the_loop("loop-poll", "poll"),
        on_the_loop("loop-select", "select").limit_connections(LIMIT_SELECT),
        coracle("coracle-uring", "uring"),
        coracle("coracle-epoll", "epoll"),
        in_style("coracle-coro-uring", "coroutine", "uring"),
        in_style("coracle-coro-epoll", "coroutine", "epoll"),
        in_style("coracle-async-uring", "async", "uring"),
        in_style("coracle-async-epoll", "async", "epoll"),
        coracle("coracle-poll", "poll"),
        coracle("coracle-select", "select").limit_connections(LIMIT_SELECT),
        Candidate::new("tokio", Kind::Peer, program("tokio-echo")),
        Candidate::new("may", Kind::Peer, program("may-echo")),
        c_peer("libuv", "libuv_echo.c", "libuv", "libuv1-dev"),
        libevent,
        libevent_queued.arguments(&["--queued"]),
    ]
}

fn measure(
    options: &Options,
    w2: &W2,
    candidate: &Candidate,
    connections: u32,
) -> io::Result<Vec<f64>> {
    let server = Server::start(candidate, options.server_core)?;
    let amount = Amount::Time { warmup: w2.warmup, seconds: w2.seconds };
    let place = match w2.lockstep {
        true => Place::Lockstep(options.server_core),
        false => Place::Core(options.load_core),
    };
    let report = load::run(&server, place, connections, amount)?;
    Ok([report.figures().as_slice(), &[server.peak_mebibytes()?]].concat())
}

fn report(
    options: &Options,
    w2: &W2,
    measured: &Comparison<'_>,
    counted: &[Counted],
    skipped: &[String],
) -> io::Result<()> {
    if options.repetitions == 0 {
        let mut report = Report::new("w2-counts", "W2: what an echo of 8 bytes consists of");
        counting::report(&mut report, counted);
        report.list(skipped);
        return report.write_text(&options.out());
    }
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
    report.add(&measured.overview());
    counting::report(&mut report, counted);
    report.details(measured, options);
    report.list(skipped);
    report.write(&options.out(), &measured.figure("W2: echo, 8 bytes, one core", &CHARTS))
}
