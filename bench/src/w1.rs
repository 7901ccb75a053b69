//! W1: a short page over HTTP/1.1: `GET /`, 13 bytes, connections that stay; one request at a time, and sixteen.
//!
//! The figure is the server's CPU time per request. Beside the limits (no parsing, one receive, one send that is
//! always the same) and the peers stand three styles of one server: a callback, a coroutine for each request, a
//! future for each request.

use std::io;
use std::num::NonZero;

use clap::Args;

use crate::ask::{self, Question};
use crate::candidate::{Candidate, Kind, available};
use crate::comparison::{Column, Comparison};
use crate::counting;
use crate::load::{Amount, Place};
use crate::options::Options;
use crate::plot::Scale;
use crate::programs::{self, program};
use crate::report::Report;
use crate::server::Server;
use crate::table::Table;
use crate::web::{hyper, nginx};

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W1 {
    /// Numbers of connections, with one request at a time on each.
    #[arg(long, value_delimiter = ',', default_value = "16,64,256,1024")]
    connections: Vec<u32>,
    /// Numbers of connections, with sixteen at a time.
    #[arg(long, value_delimiter = ',', default_value = "64")]
    pipelined: Vec<u32>,
    /// Measured time of a repetition, in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Time before it that is not measured.
    #[arg(long, default_value_t = 0.5)]
    warmup: f64,
    /// Count system calls and instructions at this number of connections; 0 leaves it out.
    #[arg(long, default_value_t = 64)]
    count_connections: u32,
    /// Only candidates whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// Requests that go out together, where they do.
const PIPELINED: u32 = 16;

/// What a repetition yields.
const COLUMNS: [Column; 8] = [
    Column { heading: "server CPU µs/request", decimals: 2 },
    Column { heading: "requests/s", decimals: 0 },
    Column { heading: "server busy %", decimals: 0 },
    Column { heading: "load busy %", decimals: 0 },
    Column { heading: "p50 µs", decimals: 0 },
    Column { heading: "p99 µs", decimals: 0 },
    Column { heading: "p99.9 µs", decimals: 0 },
    Column { heading: "peak MiB", decimals: 1 },
];
/// The charts: CPU time and p99.
const CHARTS: [(usize, Scale); 2] = [(0, Scale::Linear), (5, Scale::Log)];

/// What is aimed at: ours, whose, at most so much of it, pipelined or not.
const TARGETS: [(&str, &str, f64, bool); 16] = [
    ("coracle-coro-epoll", "raw-http-epoll", 1.10, false),
    ("coracle-coro-epoll", "raw-http-epoll-called", 1.10, false),
    ("coracle-coro-uring", "raw-http-uring", 1.12, false),
    ("coracle-coro-uring", "hyper", 0.78, false),
    ("coracle-coro-uring", "may_minihttp", 0.78, false),
    ("coracle-coro-uring", "nginx", 0.66, false),
    ("coracle-coro-epoll", "hyper", 0.92, false),
    ("coracle-coro-epoll", "may_minihttp", 0.92, false),
    ("coracle-coro-epoll", "nginx", 0.80, false),
    ("coracle-uring", "raw-http-uring", 1.12, false),
    ("coracle-epoll", "raw-http-epoll", 1.10, false),
    ("coracle-epoll", "raw-http-epoll-called", 1.10, false),
    ("coracle-coro-uring", "hyper", 0.60, true),
    ("coracle-coro-epoll", "hyper", 0.60, true),
    ("coracle-uring", "hyper", 0.60, true),
    ("coracle-epoll", "hyper", 0.60, true),
];

/// Measures all candidates and writes the report.
///
/// # Errors
/// When a server fails or answers wrongly.
pub fn run(options: &Options, w1: &W1) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_coracle()?;
    }
    let (candidates, mut skipped) = available(candidates(), &w1.only);
    let (place, count) = (Place::Web(options.load_core), w1.count_connections);
    let counted = counting::count_all(options, &candidates, place, &[count], false, &mut skipped);
    let all: Vec<&Candidate> = candidates.iter().collect();
    let mut single = Comparison::new("connections", &COLUMNS);
    let mut several = Comparison::new("connections, pipelined", &COLUMNS);
    for (measured, connections, pipelined) in
        [(&mut single, &w1.connections, 1), (&mut several, &w1.pipelined, PIPELINED)]
    {
        for &connections in connections {
            eprintln!("w1: {connections} connections, {pipelined} at a time");
            measured.measure(options, connections, &all, |candidate| {
                let server = Server::start(candidate, options.server_core)?;
                let amount = Amount::Time { warmup: w1.warmup, seconds: w1.seconds };
                let question = Question::hello(pipelined);
                let report = ask::run(&server, options.load_core, connections, &question, amount)?;
                Ok([report.figures().as_slice(), &[server.peak_mebibytes()?]].concat())
            })?;
        }
    }

    let mut report = Report::new("w1", "W1: a short page over HTTP/1.1");
    report.add(
        "`GET /` on connections that stay, answered with 13 bytes. Server CPU microseconds per request, minimum / \
         median of the repetitions. The server has one core and the load another; every answer was compared with \
         the first, but for its date. The limits (`raw-http-…`) read nothing: one receive, one send of what \
         is always the same; `raw-http-epoll-called` does so in a function that returns, which has [its \
         price](returns.md). coracle is `coracle hello`, in its three styles. nginx answers by `return 200`; \
         hyper is on tokio's current-thread runtime, actix-web has one worker, may_minihttp one thread.",
    );
    report.add(&single.overview());
    report.heading("Sixteen requests at a time");
    report.add(&several.overview());
    report.heading("Against the targets");
    report.add("Medians: ours, divided by theirs.");
    report.add(&targets(&single, &several));
    counting::report(&mut report, &counted);
    report.details(&single, options);
    report.details(&several, options);
    report.list(&skipped);
    report.write(&options.out(), &single.figure("W1: a short page, one core", &CHARTS))
}

/// Ratios of medians beside what is aimed at.
fn targets(single: &Comparison<'_>, several: &Comparison<'_>) -> String {
    let mut table = Table::new(&["ours / theirs", "connections", "ratio", "target", ""]);
    for (ours, theirs, target, pipelined) in TARGETS {
        let measured = if pipelined { several } else { single };
        for connections in measured.values() {
            let median = |name| measured.median(name, connections, 0);
            let (Some(a), Some(b)) = (median(ours), median(theirs)) else { continue };
            let ratio = a / b;
            table.row(&[
                format!("{ours} / {theirs}"),
                format!("{connections}{}", if pipelined { " ×16" } else { "" }),
                format!("{ratio:.2}"),
                format!("≤ {target:.2}"),
                (if ratio <= target { "met" } else { "missed" }).to_owned(),
            ]);
        }
    }
    table.markdown()
}

fn candidates() -> Vec<Candidate> {
    let coracle = |name, style, backend| {
        let arguments = ["hello", "--threads", "1", "--style", style, "--backend", backend];
        Candidate::new(name, Kind::Coracle, programs::coracle()).arguments(&arguments)
    };
    let one = NonZero::new(1).expect("one is not nothing");
    vec![
        Candidate::new("raw-http-uring", Kind::Limit, program("raw-http-uring")),
        Candidate::new("raw-http-epoll", Kind::Limit, program("raw-http-epoll")),
        Candidate::new("raw-http-epoll-called", Kind::Limit, program("raw-http-epoll-called")),
        coracle("coracle-uring", "callback", "uring"),
        coracle("coracle-epoll", "callback", "epoll"),
        coracle("coracle-coro-uring", "coroutine", "uring"),
        coracle("coracle-coro-epoll", "coroutine", "epoll"),
        coracle("coracle-async-uring", "async", "uring"),
        coracle("coracle-async-epoll", "async", "epoll"),
        hyper("hyper", one),
        Candidate::new("may_minihttp", Kind::Peer, program("may-hello")),
        Candidate::new("actix-web", Kind::Peer, program("actix-hello")),
        nginx("nginx", one),
    ]
}
