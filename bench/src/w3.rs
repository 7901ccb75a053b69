//! W3: echo ping-pong of 8 bytes through a proxy that is always busy, over 2 to 1,024 connections.
//!
//! ```text
//!  core 1: ping ──► core 0: proxy ──► core 1: ping, which echoes      one process at both ends
//!               ◄──               ◄──
//! ```
//! A message passes the proxy twice: two receives and two sends are one operation.

use std::io;
use std::net::SocketAddr;

use clap::Args;

use crate::candidate::{Candidate, Kind, able, available, c_peer, debian_peer};
use crate::comparison::{Column, Comparison};
use crate::counting;
use crate::load::{self, Amount, Place};
use crate::options::Options;
use crate::plot::Scale;
use crate::programs::{self, program};
use crate::report::Report;
use crate::server::{Server, free_address_behind};

/// `select` cannot watch descriptors from 1,024 on, a proxied connection has two, and some are the proxy's own.
const LIMIT_SELECT: u32 = 500;

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W3 {
    /// Numbers of connections.
    #[arg(long, value_delimiter = ',', default_value = "2,16,64,256,1024")]
    connections: Vec<u32>,
    /// Measured time of a repetition, in seconds.
    #[arg(long, default_value_t = 0.6)]
    seconds: f64,
    /// Time before it that is not measured.
    #[arg(long, default_value_t = 0.3)]
    warmup: f64,
    /// Only candidates whose name contains one of these; poll and select take part when they are named.
    #[arg(long, value_delimiter = ',', default_value = "raw,uring,epoll,tokio,libevent,haproxy")]
    only: Vec<String>,
    /// Count system calls and instructions at these numbers of connections; 0 leaves it out.
    #[arg(long, value_delimiter = ',', default_value = "2,64")]
    count_connections: Vec<u32>,
}

/// What a repetition yields.
const COLUMNS: [Column; 8] = [
    Column { heading: "proxy CPU µs/op", decimals: 2 },
    Column { heading: "ops/s", decimals: 0 },
    Column { heading: "proxy busy %", decimals: 0 },
    Column { heading: "load busy %", decimals: 0 },
    Column { heading: "p50 µs", decimals: 0 },
    Column { heading: "p99 µs", decimals: 0 },
    Column { heading: "p99.9 µs", decimals: 0 },
    Column { heading: "peak MiB", decimals: 1 },
];

/// Measures all candidates and writes the report.
///
/// # Errors
/// When a proxy fails, or what comes back is not what was sent.
pub fn run(options: &Options, w3: &W3) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_coracle()?;
    }
    let upstream = free_address_behind()?;
    let place = Place::BothEnds(options.load_core, upstream);
    let (candidates, mut skipped) = available(candidates(options, upstream), &w3.only);

    let count = &w3.count_connections;
    let counted = counting::count_all(options, &candidates, place, count, false, &mut skipped);
    let mut measured = Comparison::new("connections", &COLUMNS);
    for &connections in &w3.connections {
        eprintln!("w3: {connections} connections");
        let able = able(&candidates, connections);
        measured.measure(options, connections, &able, |candidate| {
            let server = Server::start(candidate, options.server_core)?;
            let amount = Amount::Time { warmup: w3.warmup, seconds: w3.seconds };
            let report = load::run(&server, place, connections, amount)?;
            Ok([report.figures().as_slice(), &[server.peak_mebibytes()?]].concat())
        })?;
    }

    let mut report = Report::new("w3", "W3: echo through a proxy, 8 bytes, ping-pong");
    report.add(
        "The proxy's CPU microseconds per operation (there and back), minimum / median of the repetitions. The \
         proxy has one core; one process on the other is the client and the server behind it, and never \
         sleeps. Every answer was checked. Where the proxy is less than 95 % busy, the load was too slow for \
         it, and wake-ups are part of the figure.",
    );
    report.add(&measured.overview());
    counting::report(&mut report, &counted);
    report.details(&measured, options);
    report.list(&skipped);
    let charts = [(0, Scale::Linear), (5, Scale::Log)];
    report.write(&options.out(), &measured.figure("W3: echo through a proxy, one core", &charts))
}

fn candidates(options: &Options, upstream: SocketAddr) -> Vec<Candidate> {
    let to = &upstream.to_string();
    let in_style = |name, style, backend| {
        Candidate::new(name, Kind::Coracle, programs::coracle()).arguments(&[
            "proxy",
            "--threads",
            "1",
            "--style",
            style,
            "--backend",
            backend,
            "--to",
            to,
        ])
    };
    let coracle = |name, backend| in_style(name, "callback", backend);
    let limit = |name| Candidate::new(name, Kind::Limit, program(name)).arguments(&["--to", to]);
    let libevent = c_peer(
        options,
        "libevent",
        "libevent-proxy",
        "libevent_proxy.c",
        "libevent_core",
        "libevent-dev",
    );
    vec![
        limit("raw-uring-proxy"),
        limit("raw-epoll-proxy"),
        coracle("coracle-uring", "uring"),
        coracle("coracle-epoll", "epoll"),
        in_style("coracle-coro-uring", "coroutine", "uring"),
        in_style("coracle-coro-epoll", "coroutine", "epoll"),
        in_style("coracle-async-uring", "async", "uring"),
        in_style("coracle-async-epoll", "async", "epoll"),
        coracle("coracle-poll", "poll"),
        coracle("coracle-select", "select").limit_connections(LIMIT_SELECT),
        Candidate::new("tokio", Kind::Peer, program("tokio-proxy")).arguments(&["--to", to]),
        libevent.arguments(&["--to", to]),
        debian_peer("haproxy", "haproxy").arguments(&["-db", "-q"]).config("-f", haproxy(to)),
    ]
}

/// HAProxy in TCP mode on one thread. Without `retries 0` it would try for the connection that sees whether it
/// listens, when there is no server behind it yet, again later, and be a connection too many.
fn haproxy(to: &str) -> String {
    format!(
        "global
  nbthread 1
  maxconn 8192
defaults
  mode tcp
  retries 0
  timeout connect 10s
  timeout client 60s
  timeout server 60s
listen proxy
  bind LISTEN
  server behind {to}
"
    )
}
