//! A short page through a reverse proxy, which keeps its connections to the server behind it: the proxy's CPU time
//! per request, its system calls and instructions.
//!
//! ```text
//!  core 1: ask ──► core 0: proxy ──► core 1: ask, which answers      one process at both ends
//!              ◄──               ◄──
//! ```

use std::io;
use std::net::SocketAddr;

use clap::Args;

use crate::candidate::{Candidate, Kind, available};
use crate::comparison::{Column, Comparison};
use crate::counting;
use crate::load::{self, Amount, Place};
use crate::options::Options;
use crate::plot::Scale;
use crate::programs::{self, program};
use crate::report::Report;
use crate::server::{Server, free_address_behind};
use crate::web::{haproxy_http, nginx_proxy};

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct Proxy {
    /// Numbers of connections.
    #[arg(long, value_delimiter = ',', default_value = "16,64,256",
          value_parser = clap::value_parser!(u32).range(1..=4000))]
    connections: Vec<u32>,
    /// Measured time of a repetition, in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Time before it that is not measured.
    #[arg(long, default_value_t = 0.3)]
    warmup: f64,
    /// Count system calls and instructions at this number of connections; 0 leaves it out.
    #[arg(long, default_value_t = 64)]
    count_connections: u32,
    /// Only candidates whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// What a repetition yields.
const COLUMNS: [Column; 8] = [
    Column { heading: "proxy CPU µs/request", decimals: 2 },
    Column { heading: "requests/s", decimals: 0 },
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
/// When a proxy fails, or what comes through it is wrong.
pub fn run(options: &Options, proxy: &Proxy) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_coracle()?;
    }
    let behind = free_address_behind()?;
    let place = Place::WebBothEnds(options.load_core, behind);
    let keep = proxy.connections.iter().copied().max().unwrap_or(0).max(proxy.count_connections);
    let (candidates, mut skipped) = available(candidates(behind, keep), &proxy.only);
    let count = proxy.count_connections;
    let counted = counting::count_all(options, &candidates, place, &[count], false, &mut skipped);
    let all: Vec<&Candidate> = candidates.iter().collect();
    let mut measured = Comparison::new("connections", &COLUMNS);
    for &connections in &proxy.connections {
        eprintln!("proxy: {connections} connections");
        measured.measure(options, connections, &all, |candidate| {
            let server = Server::start(candidate, options.server_core)?;
            let amount = Amount::Time { warmup: proxy.warmup, seconds: proxy.seconds };
            let report = load::run(&server, place, connections, amount)?;
            Ok([report.figures().as_slice(), &[server.peak_mebibytes()?]].concat())
        })?;
    }

    let mut report = Report::new("proxy", "A short page through a reverse proxy");
    report.add(
        "`GET /` on connections that stay, handed on over connections that stay, answered with 13 bytes. The \
         proxy's CPU microseconds per request, minimum / median of the repetitions. The proxy has one core; one \
         process on the other is the client and the server behind it, and never sleeps. Every answer was compared \
         with the first. coracle is `coracle serve`, with a `[[proxy]]` in its configuration; nginx has \
         one worker and a pool of connections that is \
         large enough, HAProxy one thread and `http-reuse always`; all three say for whom they ask \
         (`X-Forwarded-For`, `-Proto`, `-Host`). The limits (`raw-…-proxy`) read nothing, and pass on bytes, each \
         connection to one of its own.",
    );
    report.add(&measured.overview());
    counting::report(&mut report, &counted);
    report.details(&measured, options);
    report.list(&skipped);
    let charts = [(0, Scale::Linear), (5, Scale::Log)];
    let figure = measured.figure("A short page through a reverse proxy, one core", &charts);
    report.write(&options.out(), &figure)
}

fn candidates(behind: SocketAddr, keep: u32) -> Vec<Candidate> {
    let to = behind.to_string();
    // Who is stepped takes long for everything, to connect too.
    let config = format!(
        "listen = [\"LISTEN\"]
[[proxy]]
path = \"/\"
to = [\"http://{to}\"]
connect_seconds = 600
head_seconds = 600
"
    );
    let coracle = |name, backend| {
        Candidate::new(name, Kind::Coracle, programs::coracle())
            .arguments(&["serve", "--threads", "1", "--backend", backend])
            .config("--config", config.clone())
    };
    let limit = |name| Candidate::new(name, Kind::Limit, program(name)).arguments(&["--to", &to]);
    vec![
        limit("raw-uring-proxy"),
        limit("raw-epoll-proxy"),
        coracle("coracle-uring", "uring"),
        coracle("coracle-epoll", "epoll"),
        nginx_proxy("nginx", behind, keep),
        haproxy_http("haproxy", behind),
    ]
}
