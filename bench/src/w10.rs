//! W10: two loops against one, on two cores.
//!
//! A load on the same two cores would take from the server what is to be measured. So the load comes in bursts:
//! the server stands still (SIGSTOP) while a message is sent on each connection, then it goes on, and the load
//! sleeps until every answer is there. In that time both cores are the server's.
//!
//! ```text
//!  load     ── send 1,024 ──┐                       ┌── take in, check, send ──
//!  server   stopped         └─ go on ── 1,024 answers ┘   waits, then stopped
//!                              ◄──── the time that counts ────►
//! ```
//!
//! A burst ends when the slower loop is done. So two loops, each on a core of its own, are measured twice: with
//! connections that the kernel spreads by chance (SO_REUSEPORT, the default), and with connections that the loops
//! get in turn. And once, by chance, where the system moves the loops as it likes.

use std::io;

use clap::Args;

use crate::ask::{self, Question};
use crate::candidate::{Candidate, Kind, available};
use crate::comparison::{Column, Comparison};
use crate::load::{self, Amount, Place};
use crate::options::Options;
use crate::programs;
use crate::report::Report;
use crate::request;
use crate::server::Server;
use crate::table::Table;
use crate::web::hello;

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W10 {
    /// Numbers of connections; as many messages are in a burst.
    #[arg(long, value_delimiter = ',', default_value = "256,1024",
          value_parser = clap::value_parser!(u32).range(2..=2048))]
    connections: Vec<u32>,
    /// Measured time of a repetition, in seconds.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Time before it that is not measured.
    #[arg(long, default_value_t = 0.5)]
    warmup: f64,
    /// Only candidates whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// What a repetition yields.
const COLUMNS: [Column; 2] = [
    Column { heading: "server CPU µs/op", decimals: 2 },
    Column { heading: "ops/s while answering", decimals: 0 },
];

/// Measures one loop and two, and writes the report.
///
/// # Errors
/// When a server fails or answers wrongly.
pub fn run(options: &Options, w10: &W10) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_coracle()?;
    }
    let (candidates, skipped) = available(candidates(), &w10.only);
    let mut measured = Comparison::new("connections", &COLUMNS);
    for &connections in &w10.connections {
        eprintln!("w10: {connections} connections");
        let all: Vec<&Candidate> = candidates.iter().collect();
        measured.measure(options, connections, &all, |candidate| {
            let server = Server::start_on(candidate, &[options.server_core, options.load_core])?;
            let amount = Amount::Time { warmup: w10.warmup, seconds: w10.seconds };
            let place = Place::Burst(options.load_core);
            let report = match request::kind_of(candidate) {
                request::Kind::Echo => load::run(&server, place, connections, amount)?,
                request::Kind::Http => ask::burst(
                    &server,
                    options.load_core,
                    connections,
                    &Question::hello(1),
                    amount,
                )?,
            };
            let [cpu, per_second, ..] = report.figures();
            Ok(vec![cpu, per_second])
        })?;
    }

    let mut report = Report::new("w10", "W10: two loops against one, on two cores");
    report.add(
        "Echo of 8 bytes, and a page of 13 bytes over HTTP (in coroutines), in bursts: the server is stopped \
         while one message is sent on each connection; then \
         it goes on, with both cores to itself, while the load sleeps until all are answered. *While \
         answering* counts from there to the last answer, without the time the load takes to read them. Every \
         answer was checked.",
    );
    report.add(
        "What this shows is how two loops share work that is there, and what a message costs then. What it \
         cannot show on two cores is two loops under a load that keeps coming: that would need a third core, \
         or a second machine. A burst ends when the slower of the two loops is done, so an uneven share of the \
         connections shows too: *by chance* is what SO_REUSEPORT gives each loop (the default), *in turn* is \
         `--placement round-robin`, where one loop accepts, and each gets as many. With both, each loop stays \
         on its core (`--pin-threads`), also the one that two are compared with; *free* is by chance, too, with \
         loops that the system moves as it likes (the default), compared with one that it moves.",
    );
    report.add(&ratios(&measured));
    report.details(&measured, options);
    report.list(&skipped);
    report.write_text(&options.out())
}

fn candidates() -> Vec<Candidate> {
    let coracle = |name, backend, threads| {
        Candidate::new(name, Kind::Coracle, programs::coracle()).arguments(&[
            "echo",
            "--threads",
            threads,
            "--backend",
            backend,
        ])
    };
    let pinned = |mut candidate: Candidate| {
        candidate.arguments.push("--pin-threads".into());
        candidate
    };
    let in_turn = |mut candidate: Candidate| {
        candidate.arguments.extend(["--placement".into(), "round-robin".into()]);
        pinned(candidate)
    };
    vec![
        pinned(coracle("uring, one loop", "uring", "1")),
        pinned(hello("http uring, one loop", "uring", 1)),
        coracle("uring, one loop free", "uring", "1"),
        hello("http uring, one loop free", "uring", 1),
        pinned(coracle("uring, two loops", "uring", "2")),
        pinned(hello("http uring, two loops", "uring", 2)),
        in_turn(coracle("uring, two loops in turn", "uring", "2")),
        in_turn(hello("http uring, two loops in turn", "uring", 2)),
        coracle("uring, two loops free", "uring", "2"),
        hello("http uring, two loops free", "uring", 2),
        pinned(coracle("epoll, one loop", "epoll", "1")),
        pinned(hello("http epoll, one loop", "epoll", 1)),
        coracle("epoll, one loop free", "epoll", "1"),
        hello("http epoll, one loop free", "epoll", 1),
        pinned(coracle("epoll, two loops", "epoll", "2")),
        pinned(hello("http epoll, two loops", "epoll", 2)),
        in_turn(coracle("epoll, two loops in turn", "epoll", "2")),
        in_turn(hello("http epoll, two loops in turn", "epoll", 2)),
        coracle("epoll, two loops free", "epoll", "2"),
        hello("http epoll, two loops free", "epoll", 2),
    ]
}

/// Two loops divided by one.
fn ratios(measured: &Comparison<'_>) -> String {
    let headings = ["two loops / one", "spread", "connections", "throughput", "CPU per op"];
    let mut table = Table::new(&headings);
    for backend in ["uring", "epoll", "http uring", "http epoll"] {
        let twos = [
            ("by chance", "two loops", "one loop"),
            ("in turn", "two loops in turn", "one loop"),
            ("free", "two loops free", "one loop free"),
        ];
        for (spread, two, one) in twos {
            for connections in measured.values() {
                let ratio = |column| {
                    let of = |loops| {
                        measured.median(&format!("{backend}, {loops}"), connections, column)
                    };
                    Some(format!("{:.2}", of(two)? / of(one)?))
                };
                if let (Some(throughput), Some(cpu)) = (ratio(1), ratio(0)) {
                    let connections = connections.to_string();
                    table.row(&[backend, spread, &connections, &throughput, &cpu]);
                }
            }
        }
    }
    table.markdown()
}
