//! A short page over HTTP/2, without TLS (prior knowledge): the server's CPU time per request, over 1 to 64
//! connections with 1 to 32 streams each.

use std::io;

use clap::Args;

use crate::candidate::{Candidate, available};
use crate::comparison::{Column, Comparison};
use crate::h2load;
use crate::options::Options;
use crate::programs;
use crate::report::Report;
use crate::request::{BODY, OUR_BODY};
use crate::server::Server;
use crate::table::Table;
use crate::web::{hello, hyper_http2, nginx_http2};

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct H2 {
    /// Numbers of connections.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Vec<u32>,
    /// Numbers of streams on each.
    #[arg(long, value_delimiter = ',', default_value = "1,32",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    streams: Vec<u32>,
    /// Measured time of a repetition, in seconds; about, for it is so many requests.
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Only candidates whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// Requests of each stream that are not measured; they show how many there are to be.
const WARMUP: u64 = 200;
/// At least so many in all.
const LIMIT_WARMUP: u64 = 5_000;

/// What a repetition yields.
const COLUMNS: [Column; 7] = [
    Column { heading: "server CPU µs/request", decimals: 2 },
    Column { heading: "requests per server CPU second", decimals: 0 },
    Column { heading: "requests/s", decimals: 0 },
    Column { heading: "server busy %", decimals: 0 },
    Column { heading: "load busy %", decimals: 0 },
    Column { heading: "mean µs", decimals: 0 },
    Column { heading: "peak MiB", decimals: 1 },
];

/// Measures all candidates and writes the report.
///
/// # Errors
/// When a server fails or answers wrongly, or h2load is not there.
pub fn run(options: &Options, h2: &H2) -> io::Result<()> {
    if let Some(reason) = h2load::missing() {
        return Err(io::Error::other(reason));
    }
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_coracle()?;
    }
    let (candidates, skipped) = available(candidates(), &h2.only);
    let all: Vec<&Candidate> = candidates.iter().collect();
    let mut measured = Vec::new();
    for &streams in &h2.streams {
        let plural = if streams == 1 { "stream" } else { "streams" };
        let varies = format!("connections, {streams} {plural} each");
        let mut comparison = Comparison::new(varies, &COLUMNS);
        for &connections in &h2.connections {
            eprintln!("h2: {connections} connections, {streams} {plural} each");
            comparison.measure(options, connections, &all, |candidate| {
                measure(options, h2, candidate, connections, streams)
            })?;
        }
        measured.push(comparison);
    }

    let mut report = Report::new("h2", "A short page over HTTP/2");
    report.add(
        "`GET /` by HTTP/2 without TLS (prior knowledge), answered with 13 bytes. Server CPU microseconds per \
         request, minimum / median of the repetitions. The server has one core and h2load, of nghttp2, another; \
         it counts the answers, their status and their length. To open and close the connections is in the \
         figure. coracle is `coracle hello`, with a coroutine for each request; hyper is on tokio's \
         current-thread runtime; nginx answers by `return 200`. Where the server is less than 95 % busy, the load \
         was too slow for it, and wake-ups are part of the figure.",
    );
    for comparison in &measured {
        report.add(&comparison.overview());
    }
    report.heading("Requests per server CPU second");
    report.add("Medians.");
    report.add(&per_cpu_second(&measured));
    for comparison in &measured {
        report.details(comparison, options);
    }
    report.list(&skipped);
    report.write_text(&options.out())
}

fn measure(
    options: &Options,
    h2: &H2,
    candidate: &Candidate,
    connections: u32,
    streams: u32,
) -> io::Result<Vec<f64>> {
    let server = Server::start(candidate, options.server_core)?;
    h2load::probe(server.address(), &[BODY, OUR_BODY])?;
    let at_once = u64::from(connections * streams);
    let run = |requests| h2load::run(&server, options.load_core, connections, streams, requests);
    let warm = run((WARMUP * at_once).clamp(LIMIT_WARMUP, 10 * LIMIT_WARMUP))?;
    let per_second = warm.requests as f64 / warm.seconds;
    // As many for each stream.
    let rounds = (per_second * h2.seconds / at_once as f64).ceil() as u64;
    let report = run(rounds.max(1) * at_once)?;
    let (requests, seconds) = (report.requests as f64, report.seconds);
    let (server_cpu, load_cpu) = (report.server_cpu.as_secs_f64(), report.load_cpu.as_secs_f64());
    Ok(vec![
        server_cpu / requests * 1e6,
        requests / server_cpu,
        requests / seconds,
        server_cpu / seconds * 100.0,
        load_cpu / seconds * 100.0,
        report.mean_us,
        server.peak_mebibytes()?,
    ])
}

/// A row for each candidate, a column for each number of connections and streams.
fn per_cpu_second(measured: &[Comparison<'_>]) -> String {
    let columns =
        || measured.iter().flat_map(|it| it.values().into_iter().map(move |value| (it, value)));
    let headings = columns().map(|(it, value)| format!("{value} {}", it.varies()));
    let mut table = Table::new(&[vec![String::new()], headings.collect()].concat());
    for name in measured.first().map(Comparison::names).unwrap_or_default() {
        let cell = |(it, value): (&Comparison<'_>, u32)| {
            it.median(name, value, 1).map_or("–".into(), |median| format!("{median:.0}"))
        };
        table.row(&[vec![name.to_owned()], columns().map(cell).collect()].concat());
    }
    table.markdown()
}

fn candidates() -> Vec<Candidate> {
    vec![
        hello("coracle-uring", "uring", 1),
        hello("coracle-epoll", "epoll", 1),
        hyper_http2("hyper"),
        nginx_http2("nginx"),
    ]
}
