//! A slowloris: ten thousand clients whose headers drip, and one that behaves.
//!
//! The figure is how much longer the one has to wait, at the 99th percentile, than it did before they came.

use std::io;
use std::num::NonZero;

use clap::Args;

use crate::candidate::{Candidate, available};
use crate::comparison::{Column, Comparison};
use crate::drip::Drip;
use crate::hold::Hold;
use crate::options::Options;
use crate::programs;
use crate::report::Report;
use crate::request;
use crate::server::Server;
use crate::web::{hello, hyper, nginx};

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct Slowloris {
    /// Numbers of clients that drip.
    #[arg(long, value_delimiter = ',', default_value = "10000",
          value_parser = clap::value_parser!(u32).range(1..=18_000))]
    connections: Vec<u32>,
    /// Seconds between two bytes of one.
    #[arg(long, default_value_t = 5.0)]
    interval: f64,
    /// Requests of the one that behaves, before and meanwhile.
    #[arg(long, default_value_t = 20_000)]
    requests: u32,
    /// Only candidates whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// What a repetition yields.
const COLUMNS: [Column; 6] = [
    Column { heading: "p99 meanwhile / before", decimals: 2 },
    Column { heading: "p50 before µs", decimals: 1 },
    Column { heading: "p99 before µs", decimals: 1 },
    Column { heading: "p50 meanwhile µs", decimals: 1 },
    Column { heading: "p99 meanwhile µs", decimals: 1 },
    Column { heading: "peak MiB", decimals: 1 },
];

/// Measures all candidates and writes the report.
///
/// # Errors
/// When a server fails or answers wrongly.
pub fn run(options: &Options, work: &Slowloris) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_coracle()?;
    }
    let (candidates, skipped) = available(candidates(), &work.only);
    let all: Vec<&Candidate> = candidates.iter().collect();
    let mut measured = Comparison::new("clients that drip", &COLUMNS);
    for &connections in &work.connections {
        eprintln!("slowloris: {connections} clients");
        measured.measure(options, connections, &all, |candidate| {
            let server = Server::start(candidate, options.server_core)?;
            let mut client = Hold::start(&server, options.load_core, request::Kind::Http, 0, 0)?;
            client.opened()?;
            client.active(work.requests / 10)?; // warm
            let before = client.active(work.requests)?;
            let _drip = Drip::start(&server, options.load_core, connections, work.interval)?;
            let meanwhile = client.active(work.requests)?;
            Ok(vec![
                meanwhile.p99_us / before.p99_us,
                before.p50_us,
                before.p99_us,
                meanwhile.p50_us,
                meanwhile.p99_us,
                server.peak_mebibytes()?,
            ])
        })?;
    }

    let mut report = Report::new("slowloris", "A slowloris of ten thousand clients");
    report.add(&format!(
        "Clients that send the header of a request a byte every {} s, and are there again when they are cut; and \
         one that makes {} requests, one after the other, before they come and while they are there. *Meanwhile / \
         before*: how much longer that one waits, at the 99th percentile, minimum / median of the repetitions. At \
         most 2 is wanted. All clients run on the same core, so that what they take from each other is in the \
         figure.",
        work.interval, work.requests
    ));
    report.add(&measured.overview());
    report.details(&measured, options);
    report.list(&skipped);
    report.write_text(&options.out())
}

fn candidates() -> Vec<Candidate> {
    vec![
        hello("coracle-uring", "uring", 1),
        hello("coracle-epoll", "epoll", 1),
        nginx("nginx", NonZero::<u32>::MIN),
        hyper("hyper", NonZero::<u32>::MIN),
    ]
}
