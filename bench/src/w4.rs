//! W4: short connections: connect, one request, its answer, close. One loop and two.
//!
//! The figure is the server's CPU time per connection; what the client spends, which is more, is not in it. The
//! client closes first, as browsers do, so that the minute of TIME_WAIT is its own.

use std::io;
use std::num::NonZero;

use clap::Args;

use crate::candidate::{Candidate, Kind, available};
use crate::comparison::{Column, Comparison};
use crate::counting;
use crate::knock;
use crate::options::Options;
use crate::programs::{self, program};
use crate::report::Report;
use crate::request;
use crate::server::Server;
use crate::table::Table;
use crate::web::{hello, hyper, nginx};

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W4 {
    /// Connections of a repetition.
    #[arg(long, default_value_t = 15_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Leave out the counting of instructions.
    #[arg(long)]
    no_counts: bool,
    /// Only candidates whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// What a repetition yields.
const COLUMNS: [Column; 5] = [
    Column { heading: "server CPU µs/connection", decimals: 2 },
    Column { heading: "connections per server CPU second", decimals: 0 },
    Column { heading: "connections/s", decimals: 0 },
    Column { heading: "server busy %", decimals: 0 },
    Column { heading: "load busy %", decimals: 0 },
];

/// Measures all candidates and writes the report.
///
/// # Errors
/// When a server fails or answers wrongly.
pub fn run(options: &Options, w4: &W4) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_coracle()?;
    }
    let mut skipped = Vec::new();
    let all = [1, 2].map(|loops| {
        let (candidates, missing) = available(candidates(loops), &w4.only);
        skipped.extend(missing);
        (loops, candidates)
    });
    let mut measured = Comparison::new("loops", &COLUMNS);
    for (loops, candidates) in &all {
        eprintln!("w4: {loops} loops");
        let cores = [options.server_core, options.load_core];
        let able: Vec<&Candidate> = candidates.iter().collect();
        measured.measure(options, *loops, &able, |candidate| {
            let server = Server::start_on(candidate, &cores[..*loops as usize])?;
            let kind = request::kind_of(candidate);
            let report = knock::run(&server, options.load_core, kind, w4.count)?;
            let connections = f64::from(report.connections);
            Ok(vec![
                report.server_cpu_seconds / connections * 1e6,
                connections / report.server_cpu_seconds,
                connections / report.seconds,
                report.server_cpu_seconds / report.seconds * 100.0,
                report.load_cpu_seconds / report.seconds * 100.0,
            ])
        })?;
    }

    let mut counts = Table::new(&["one loop", "instructions per connection"]);
    for candidate in all[0].1.iter().filter(|_| !w4.no_counts) {
        match counting::per_connection(options, candidate, request::kind_of(candidate)) {
            Ok(count) => counts.row(&[candidate.name.to_owned(), format!("{count:.0}")]),
            Err(error) => skipped.push(format!("{} not counted: {error}", candidate.name)),
        }
    }

    let mut report = Report::new("w4", "W4: short connections");
    report.add(
        "Connect, one request of 31 bytes, its answer, close; 32 connections at a time, from many loopback \
         addresses. Server CPU microseconds per connection, minimum / median of the repetitions. Every answer \
         was checked. `coracle-uring`, `coracle-epoll` and `raw-epoll` (accept4, recv, send, close, and nothing \
         else) echo the request. `coracle-http-…` (`coracle hello`, in coroutines), nginx and hyper answer it \
         with a page of 13 bytes. nginx has a master process too, which is counted.",
    );
    report.add(
        "With one loop the server has a core and the load another. With two loops both cores are the server's \
         and the load runs on one of them, so that connections per second are what the machine does, not what \
         two loops can; the CPU time per connection is not touched by that.",
    );
    report.add(&measured.overview());
    if !w4.no_counts {
        report.heading("User-mode instructions");
        report.add("By single-stepping (`steps`), of the process that serves; what the kernel does is not in it.");
        report.add(&counts.markdown());
    }
    report.details(&measured, options);
    report.list(&skipped);
    report.write_text(&options.out())
}

fn candidates(loops: u32) -> Vec<Candidate> {
    let coracle = |name, backend| {
        let threads = loops.to_string();
        Candidate::new(name, Kind::Coracle, programs::coracle()).arguments(&[
            "echo",
            "--threads",
            &threads,
            "--backend",
            backend,
        ])
    };
    let count = NonZero::new(loops).expect("there is a loop at least");
    let mut candidates = vec![
        coracle("coracle-uring", "uring"),
        coracle("coracle-epoll", "epoll"),
        hello("coracle-http-uring", "uring", loops),
        hello("coracle-http-epoll", "epoll", loops),
        nginx("nginx", count),
        hyper("hyper", count),
    ];
    if loops == 1 {
        candidates.insert(0, Candidate::new("raw-epoll", Kind::Limit, program("raw-epoll")));
    }
    candidates
}
