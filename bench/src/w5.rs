//! W5: files of 1 KiB to 10 MiB, which are in memory already: CPU per request, and per GiB.

use std::io;

use clap::Args;

use crate::ask::{self, Question};
use crate::candidate::{Candidate, Kind, available};
use crate::comparison::{Column, Comparison};
use crate::load::Amount;
use crate::options::Options;
use crate::plot::Scale;
use crate::programs::{self, program};
use crate::report::Report;
use crate::scratch::Scratch;
use crate::server::Server;
use crate::table::Table;
use crate::web::nginx_files;

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W5 {
    /// Sizes of files, in KiB.
    #[arg(long, value_delimiter = ',', default_value = "1,4,64,1024,10240")]
    kibibytes: Vec<u32>,
    /// Connections, each with one request at a time.
    #[arg(long, default_value_t = 64)]
    connections: u32,
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
    Column { heading: "server CPU µs/request", decimals: 1 },
    Column { heading: "server CPU s/GiB", decimals: 2 },
    Column { heading: "requests/s", decimals: 0 },
    Column { heading: "server busy %", decimals: 0 },
    Column { heading: "load busy %", decimals: 0 },
    Column { heading: "p50 µs", decimals: 0 },
    Column { heading: "p99 µs", decimals: 0 },
    Column { heading: "peak MiB", decimals: 1 },
];

/// Up to this size and from the other one on there is a target.
const SMALL_KIBIBYTES: u32 = 64;
const LARGE_KIBIBYTES: u32 = 1024;

/// Measures all candidates and writes the report.
///
/// # Errors
/// When a server fails or answers wrongly.
pub fn run(options: &Options, w5: &W5) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_coracle()?;
    }
    let site = Scratch::new("site")?;
    let (candidates, skipped) = available(candidates(site.path()), &w5.only);
    let all: Vec<&Candidate> = candidates.iter().collect();
    let mut measured = Comparison::new("KiB", &COLUMNS);
    for &size in &w5.kibibytes {
        eprintln!("w5: {size} KiB");
        let file = site.write_kibibytes(size)?;
        measured.measure(options, size, &all, |candidate| {
            let server = Server::start(candidate, options.server_core)?;
            let body_bytes = u64::from(size) * 1024;
            let question = Question { path: format!("/{file}"), pipelined: 1, body_bytes };
            let amount = Amount::Time { warmup: w5.warmup, seconds: w5.seconds };
            let report = ask::run(&server, options.load_core, w5.connections, &question, amount)?;
            let [cpu, per_second, server_busy, load_busy, p50, p99, _] = report.figures();
            let gibibytes = report.operations as f64 * body_bytes as f64 / f64::from(1 << 30);
            let per_gibibyte = report.server_cpu_seconds / gibibytes;
            let peak = server.peak_mebibytes()?;
            Ok(vec![cpu, per_gibibyte, per_second, server_busy, load_busy, p50, p99, peak])
        })?;
    }

    let mut report = Report::new("w5", "W5: files");
    report.add(&format!(
        "Files that are in memory already, over {} connections that stay, one request at a time on each. Server \
         CPU microseconds per request, minimum / median of the repetitions. The server has one core and the load \
         another; every byte was compared. coracle is `coracle serve`; nginx has `sendfile`, `tcp_nopush` and a \
         cache of open files, axum is on a current-thread runtime with tower-http's `ServeDir`.",
        w5.connections
    ));
    report.add(&measured.overview());
    report.heading("Against nginx");
    report.add("Medians of the CPU time, ours divided by nginx's.");
    report.add(&against_nginx(&measured));
    report.details(&measured, options);
    report.list(&skipped);
    report.write(&options.out(), &measured.figure("W5: files, one core", &[(0, Scale::Log)]))
}

fn against_nginx(measured: &Comparison<'_>) -> String {
    let mut table = Table::new(&["ours / nginx", "KiB", "ratio", "target", ""]);
    for name in measured.names().into_iter().filter(|name| name.starts_with("coracle")) {
        for size in measured.values() {
            let median = |name| measured.median(name, size, 0);
            let (Some(ours), Some(theirs)) = (median(name), median("nginx")) else { continue };
            let ratio = ours / theirs;
            let against = |target: f64| {
                (format!("≤ {target:.2}"), if ratio <= target { "met" } else { "missed" })
            };
            let (target, verdict) = match size {
                ..=SMALL_KIBIBYTES => against(0.90),
                LARGE_KIBIBYTES.. => against(1.05),
                _ => ("–".to_owned(), ""),
            };
            let ratio = format!("{ratio:.2}");
            table.row(&[name, &size.to_string(), &ratio, &target, verdict]);
        }
    }
    table.markdown()
}

fn candidates(site: &str) -> Vec<Candidate> {
    let coracle = |name, backend| {
        let arguments = ["serve", site, "--threads", "1", "--backend", backend];
        Candidate::new(name, Kind::Coracle, programs::coracle()).arguments(&arguments)
    };
    vec![
        coracle("coracle-uring", "uring"),
        coracle("coracle-epoll", "epoll"),
        nginx_files("nginx", site),
        Candidate::new("axum", Kind::Peer, program("axum-files")).arguments(&["--root", site]),
    ]
}
