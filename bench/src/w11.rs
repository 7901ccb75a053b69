//! W11: a clock that ticks every 5 ms, on the loop whose handlers write to SQLite: how many ticks of 200 are kept.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use clap::Args;

use crate::ask::{self, Question};
use crate::candidate::{Candidate, Kind, available};
use crate::comparison::{Column, Comparison};
use crate::load::Amount;
use crate::options::Options;
use crate::programs::{self, program};
use crate::report::Report;
use crate::server::Server;

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W11 {
    /// Handlers that write at the same time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    writers: u32,
    /// Measured time of a repetition, in seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Only candidates whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// What a repetition yields.
const COLUMNS: [Column; 4] = [
    Column { heading: "ticks kept of 200", decimals: 1 },
    Column { heading: "writes/s", decimals: 0 },
    Column { heading: "p50 ms", decimals: 1 },
    Column { heading: "p99 ms", decimals: 1 },
];

/// The packages with its servers.
const PACKAGES: [&str; 2] = ["coracle-canary", "axum-canary"];

/// Measures all candidates and writes the report.
///
/// # Errors
/// When a server fails or answers wrongly.
pub fn run(options: &Options, w11: &W11) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_packages(&PACKAGES)?;
    }
    let (candidates, skipped) = available(candidates(), &w11.only);
    let mut measured = Comparison::new("writers", &COLUMNS);
    eprintln!("w11: {} writers", w11.writers);
    let all: Vec<&Candidate> = candidates.iter().collect();
    measured.measure(options, w11.writers, &all, |candidate| measure(options, w11, candidate))?;

    let mut report = Report::new("w11", "W11: a clock beside handlers that block");
    report.add(&format!(
        "A clock on the loop ticks every 5 ms, while {} handlers of the same loop write to SQLite, each note on \
         the disk before the next. A tick is kept if it comes before the next is due. Of 200, that is in a \
         second, minimum / median of the repetitions: here the minimum is the worst. `coracle-…` writes by \
         `offload`, `axum-spawn-blocking` by tokio's; `axum-naive` writes in its handler.",
        w11.writers
    ));
    report.add(&measured.overview());
    report.details(&measured, options);
    report.list(&skipped);
    report.write_text(&options.out())
}

fn measure(options: &Options, w11: &W11, candidate: &Candidate) -> io::Result<Vec<f64>> {
    let directory = std::env::temp_dir().join(format!("coracle-bench-w11-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let database = directory.join("notes").to_string_lossy().into_owned();
    let mut candidate = candidate.clone();
    candidate.arguments.extend(["--database".into(), database]);
    let figures = Server::start(&candidate, options.server_core).and_then(|server| {
        let before = ticks(server.address())?;
        let question = Question { path: "/write".into(), pipelined: 1, body_bytes: 5 };
        let amount = Amount::Time { warmup: 0.5, seconds: w11.seconds };
        let report = ask::run(&server, options.load_core, w11.writers, &question, amount)?;
        let after = ticks(server.address())?;
        let kept = (after.kept - before.kept) as f64 / (after.due - before.due) as f64;
        let [_, per_second, _, _, p50, p99, _] = report.figures();
        Ok(vec![200.0 * kept, per_second, p50 / 1000.0, p99 / 1000.0])
    });
    fs::remove_dir_all(&directory)?;
    figures
}

/// What the clock of a server says.
struct Ticks {
    kept: u64,
    due: u64,
}

/// Asks for it; the first time, it begins.
fn ticks(address: SocketAddr) -> io::Result<Ticks> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /ticks HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let numbers = text.split_once("\r\n\r\n").and_then(|(_, body)| body.trim().split_once(' '));
    let parsed = numbers.and_then(|(kept, due)| Some((kept.parse().ok()?, due.parse().ok()?)));
    let (kept, due) = parsed.ok_or_else(|| io::Error::other(format!("no ticks: {text}")))?;
    Ok(Ticks { kept, due })
}

fn candidates() -> Vec<Candidate> {
    let coracle = |name, backend| {
        Candidate::new(name, Kind::Coracle, program("coracle-canary"))
            .arguments(&["--backend", backend])
    };
    let axum = |name| Candidate::new(name, Kind::Peer, program("axum-canary"));
    vec![
        coracle("coracle-uring", "uring"),
        coracle("coracle-epoll", "epoll"),
        axum("axum-naive"),
        axum("axum-spawn-blocking").arguments(&["--spawn-blocking"]),
    ]
}
