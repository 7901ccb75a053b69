//! W12: WebSocket fan-out: one publishes, two thousand are told.
//!
//! The figure is the server's CPU time per message and subscriber.

use std::io;

use clap::Args;

use crate::candidate::{Candidate, Kind, available};
use crate::comparison::{Column, Comparison};
use crate::crowd::{self, Crowd};
use crate::options::Options;
use crate::programs::{self, program};
use crate::report::Report;
use crate::server::Server;

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W12 {
    /// WebSockets that are told.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    subscribers: u32,
    /// The length of a message.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=4096))]
    bytes: u32,
    /// Numbers of messages on their way at the same time.
    #[arg(long, value_delimiter = ',', default_value = "1,16",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    in_flight: Vec<u32>,
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
const COLUMNS: [Column; 8] = [
    Column { heading: "server CPU µs/delivery", decimals: 2 },
    Column { heading: "messages/s", decimals: 1 },
    Column { heading: "deliveries/s", decimals: 0 },
    Column { heading: "server busy %", decimals: 0 },
    Column { heading: "load busy %", decimals: 0 },
    Column { heading: "p50 ms", decimals: 2 },
    Column { heading: "p99 ms", decimals: 2 },
    Column { heading: "peak MiB", decimals: 1 },
];

/// The packages with its servers.
const PACKAGES: [&str; 2] = ["coracle-rooms", "axum-rooms"];

/// Measures all candidates and writes the report.
///
/// # Errors
/// When a server fails, or somebody was told something wrong.
pub fn run(options: &Options, w12: &W12) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_packages(&PACKAGES)?;
    }
    let (candidates, skipped) = available(candidates(), &w12.only);
    let all: Vec<&Candidate> = candidates.iter().collect();
    let mut measured = Comparison::new("messages in flight", &COLUMNS);
    for &in_flight in &w12.in_flight {
        eprintln!("w12: {} subscribers, {in_flight} messages in flight", w12.subscribers);
        let crowd = Crowd {
            subscribers: w12.subscribers,
            bytes: w12.bytes,
            in_flight,
            warmup: w12.warmup,
            seconds: w12.seconds,
        };
        measured.measure(options, in_flight, &all, |candidate| {
            let server = Server::start(candidate, options.server_core)?;
            let report = crowd::run(&server, options.load_core, &crowd)?;
            let [cpu, per_second, server_busy, load_busy, p50, p99, _] =
                report.deliveries.figures();
            let messages = per_second / f64::from(w12.subscribers);
            let (p50, p99) = (p50 / 1000.0, p99 / 1000.0);
            let peak = server.peak_mebibytes()?;
            Ok(vec![cpu, messages, per_second, server_busy, load_busy, p50, p99, peak])
        })?;
    }

    let mut report = Report::new("w12", "W12: WebSocket fan-out");
    report.add(&format!(
        "One WebSocket publishes messages of {} bytes, {} others are told each of them; the next is published \
         when everybody has got the one before, or the one so many before it. Server CPU microseconds per \
         message and subscriber, minimum / median of the repetitions. The server has one core and the load \
         another; everybody was told everything, in order, and every byte was compared. `coracle-…` tells a \
         room, which encodes a message once; axum has a task for each subscriber, on tokio's current-thread \
         runtime, which gets the messages by tokio's broadcast channel, and flushes when it has sent all \
         there are.",
        w12.bytes, w12.subscribers
    ));
    report.add(&measured.overview());
    report.details(&measured, options);
    report.list(&skipped);
    report.write_text(&options.out())
}

fn candidates() -> Vec<Candidate> {
    let coracle = |name, backend| {
        Candidate::new(name, Kind::Coracle, program("coracle-rooms"))
            .arguments(&["--backend", backend])
    };
    vec![
        coracle("coracle-uring", "uring"),
        coracle("coracle-epoll", "epoll"),
        Candidate::new("axum", Kind::Peer, program("axum-rooms")),
    ]
}
