//! TLS: handshakes per CPU second of the server, full and resumed ones; and its CPU time per GiB that it sends.
//!
//! TLS 1.3, X25519, AES-128-GCM and a certificate for ECDSA on P-256, for all: the client offers nothing else.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::candidate::{Candidate, Kind, available};
use crate::comparison::{Column, Comparison};
use crate::options::Options;
use crate::pour::{self, Pouring};
use crate::programs;
use crate::report::Report;
use crate::request::BODY;
use crate::scratch::Scratch;
use crate::server::Server;
use crate::shake;
use crate::table::Table;
use crate::tls_client::NAME;
use crate::web::nginx_tls;

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct Tls {
    /// Handshakes of a repetition.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// The size of the file that is sent, in KiB.
    #[arg(long, default_value_t = 10_240, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    kibibytes: u32,
    /// Connections on which it is sent.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// Measured time of a repetition, in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Time before it that is not measured.
    #[arg(long, default_value_t = 0.5)]
    warmup: f64,
    /// Only candidates whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// What a repetition of handshakes yields.
const SHAKE_COLUMNS: [Column; 6] = [
    Column { heading: "server CPU µs/handshake", decimals: 1 },
    Column { heading: "handshakes per server CPU second", decimals: 0 },
    Column { heading: "handshakes/s", decimals: 0 },
    Column { heading: "tickets/handshake", decimals: 1 },
    Column { heading: "server busy %", decimals: 0 },
    Column { heading: "load busy %", decimals: 0 },
];

/// What a repetition of sending yields.
const POUR_COLUMNS: [Column; 5] = [
    Column { heading: "server CPU s/GiB", decimals: 3 },
    Column { heading: "MiB/s", decimals: 0 },
    Column { heading: "server busy %", decimals: 0 },
    Column { heading: "load busy %", decimals: 0 },
    Column { heading: "peak MiB", decimals: 1 },
];

/// Measures all candidates and writes the report.
///
/// # Errors
/// When a server fails or answers wrongly.
pub fn run(options: &Options, tls: &Tls) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_coracle()?;
        programs::build_coracle_aws_lc()?;
    }
    let site = Scratch::new("site")?;
    site.write("index.html", BODY)?;
    let file = format!("/{}", site.write_kibibytes(tls.kibibytes)?);
    let identity = Identity::new()?;
    let (candidates, skipped) = available(candidates(site.path(), &identity), &tls.only);
    let all: Vec<&Candidate> = candidates.iter().collect();

    let mut full = Comparison::new("full handshakes", &SHAKE_COLUMNS);
    let mut resumed = Comparison::new("resumed handshakes", &SHAKE_COLUMNS);
    for (measured, resume) in [(&mut full, false), (&mut resumed, true)] {
        eprintln!("tls: {}", measured.varies());
        measured.measure(options, tls.count, &all, |candidate| {
            let server = Server::start(candidate, options.server_core)?;
            let (core, certificate) = (options.load_core, &identity.certificate);
            let report = shake::run(&server, core, certificate, resume, tls.count)?;
            let handshakes = f64::from(report.handshakes);
            Ok(vec![
                report.server_cpu_seconds / handshakes * 1e6,
                handshakes / report.server_cpu_seconds,
                handshakes / report.seconds,
                report.tickets as f64 / handshakes,
                report.server_cpu_seconds / report.seconds * 100.0,
                report.load_cpu_seconds / report.seconds * 100.0,
            ])
        })?;
    }
    let mut poured = Comparison::new("KiB", &POUR_COLUMNS);
    eprintln!("tls: {} KiB", tls.kibibytes);
    poured.measure(options, tls.kibibytes, &all, |candidate| {
        let server = Server::start(candidate, options.server_core)?;
        let pouring = Pouring {
            certificate: &identity.certificate,
            path: &file,
            body_bytes: u64::from(tls.kibibytes) * 1024,
            connections: tls.connections,
            warmup: tls.warmup,
            seconds: tls.seconds,
        };
        let report = pour::run(&server, options.load_core, &pouring)?;
        let [_, per_second, server_busy, load_busy, ..] = report.figures();
        let gibibytes = report.operations as f64 / f64::from(1 << 30);
        let mebibytes_per_second = per_second / f64::from(1 << 20);
        let per_gibibyte = report.server_cpu_seconds / gibibytes;
        let peak = server.peak_mebibytes()?;
        Ok(vec![per_gibibyte, mebibytes_per_second, server_busy, load_busy, peak])
    })?;

    let mut report = Report::new("tls", "TLS: handshakes, and what is sent");
    report.add(&format!(
        "TLS 1.3 with X25519, AES-128-GCM and a certificate for ECDSA on P-256, for all: the client (rustls on \
         ring) offers nothing else, and every connection was checked for it. The server has one core and the load \
         another. Minimum / median of the repetitions. coracle is `coracle serve`, built with ring and, as \
         `coracle-aws-lc-…`, with aws-lc-rs; nginx has one worker, on OpenSSL, and sends the same files. A \
         handshake is a new connection: the handshake, one request for a page of 13 bytes together with the end \
         of it, the answer, the close; {} of them, 32 under way at a time.",
        tls.count
    ));
    report.heading("Handshakes");
    report.add(
        "Server CPU microseconds per handshake: full ones, and those with the ticket of an earlier one; and how \
         many of them a CPU second of the server is enough for (medians).",
    );
    report.add(&handshakes(&full, &resumed, tls.count));
    report.heading("What is sent");
    report.add(&format!(
        "A file of {} KiB, again and again on {} connections, every byte compared. Server CPU seconds per GiB.",
        tls.kibibytes, tls.connections
    ));
    report.add(&poured.overview());
    report.heading("Against nginx");
    report.add("Medians of the CPU time, ours divided by nginx's.");
    let works = [(&full, tls.count), (&resumed, tls.count), (&poured, tls.kibibytes)];
    report.add(&against_nginx(works));
    report.details(&full, options);
    report.details(&resumed, options);
    report.details(&poured, options);
    report.list(&skipped);
    report.write_text(&options.out())
}

/// A row for each candidate: CPU time of both kinds, and how many of them a CPU second is enough for.
fn handshakes(full: &Comparison<'_>, resumed: &Comparison<'_>, count: u32) -> String {
    let headings = ["", "full µs", "resumed µs", "full per CPU second", "resumed per CPU second"];
    let mut table = Table::new(&headings);
    for name in full.names() {
        let time = |measured: &Comparison<'_>| {
            let summary = measured.summary(name, count, 0);
            summary.map_or("–".into(), |it| format!("{:.1} / {:.1}", it.min, it.median))
        };
        let per_second = |measured: &Comparison<'_>| {
            measured.median(name, count, 1).map_or("–".into(), |median| format!("{median:.0}"))
        };
        table.row(&[
            name.to_owned(),
            time(full),
            time(resumed),
            per_second(full),
            per_second(resumed),
        ]);
    }
    table.markdown()
}

fn against_nginx(works: [(&Comparison<'_>, u32); 3]) -> String {
    let mut table = Table::new(&["ours / nginx", "full handshake", "resumed", "per GiB"]);
    for name in works[0].0.names().into_iter().filter(|name| name.starts_with("coracle")) {
        let ratios = works.map(|(measured, value)| {
            let median = |name| measured.median(name, value, 0);
            let both = median(name).zip(median("nginx"));
            both.map_or("–".into(), |(ours, theirs)| format!("{:.2}", ours / theirs))
        });
        table.row(&[&[name.to_owned()], &ratios[..]].concat());
    }
    table.markdown()
}

/// The certificate that all show, made for this run.
struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    _scratch: Scratch,
}

impl Identity {
    fn new() -> io::Result<Identity> {
        // ECDSA on P-256, if nothing else is said.
        let made =
            rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(io::Error::other)?;
        let scratch = Scratch::new("identity")?;
        Ok(Identity {
            certificate: scratch.write("certificate.pem", made.cert.pem())?,
            key: scratch.write("key.pem", made.signing_key.serialize_pem())?,
            _scratch: scratch,
        })
    }
}

fn candidates(site: &str, identity: &Identity) -> Vec<Candidate> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (certificate, key) = (text(&identity.certificate), text(&identity.key));
    let coracle = |name, program, backend| {
        Candidate::new(name, Kind::Coracle, program).arguments(&[
            "serve",
            site,
            "--threads",
            "1",
            "--backend",
            backend,
            "--tls-cert",
            &certificate,
            "--tls-key",
            &key,
        ])
    };
    vec![
        coracle("coracle-uring", programs::coracle(), "uring"),
        coracle("coracle-epoll", programs::coracle(), "epoll"),
        coracle("coracle-aws-lc-uring", programs::coracle_aws_lc(), "uring"),
        coracle("coracle-aws-lc-epoll", programs::coracle_aws_lc(), "epoll"),
        nginx_tls("nginx", site, &identity.certificate, &identity.key),
    ]
}
