//! W9: handlers that wait: 5,000 in flight on one loop, a second each; 500 in flight, 10 ms each.
//!
//! What is waited for is a sleep, and Redis, which is asked for what never comes (BLPOP). The handler of
//! `coracle-hook-…`, of `rouille`, of `threads` and of `axum-blocking` is the same source: std's sleep, and a
//! client that blocks. `coracle-…` and `axum` have their own sleep, and `axum` the client for tokio.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::ask::{self, Question};
use crate::candidate::{Candidate, Kind, able, available};
use crate::comparison::{Column, Comparison, Failed};
use crate::load::Amount;
use crate::memory::{kernel_stack_bytes, page_table_bytes};
use crate::options::Options;
use crate::programs::{self, program};
use crate::redis::Redis;
use crate::report::Report;
use crate::server::Server;

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W9 {
    /// Requests in flight that take a second each.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=9000))]
    many: u32,
    /// Requests in flight that take 10 ms each.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=9000))]
    few: u32,
    /// Measured time of a repetition, in seconds.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// What is waited for: `sleep`, `blpop`, or both.
    #[arg(long, value_delimiter = ',', default_value = "sleep,blpop", value_parser = ["sleep", "blpop"])]
    waits: Vec<String>,
    /// Only candidates whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// What a repetition yields.
const COLUMNS: [Column; 8] = [
    Column { heading: "server CPU µs/request", decimals: 1 },
    Column { heading: "requests/s", decimals: 0 },
    Column { heading: "server busy %", decimals: 0 },
    Column { heading: "p50 ms", decimals: 1 },
    Column { heading: "p99 ms", decimals: 1 },
    Column { heading: "peak MiB", decimals: 1 },
    Column { heading: "kernel MiB", decimals: 1 },
    Column { heading: "both MiB", decimals: 1 },
];

/// How often the kernel's memory is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// The packages with its servers.
const PACKAGES: [&str; 4] = ["coracle-wait", "axum-wait", "threads-wait", "rouille-wait"];

/// A server whose thread blocks serves one at a time: with more, or with a second each, there would be no end.
const BLOCKING: &str = "axum-blocking";
const LIMIT_BLOCKING: u32 = 500;

/// Measures all candidates and writes the report.
///
/// # Errors
/// When nothing can be measured, or the report cannot be written. A server that fails, or leaves connections
/// without an answer, is told of in the report.
pub fn run(options: &Options, w9: &W9) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_packages(&PACKAGES)?;
    }
    let (candidates, mut skipped) = available(candidates(), &w9.only);
    let mut report = Report::new("w9", "W9: handlers that wait");
    report.add(&format!(
        "Each request waits in its handler: {} in flight for a second each, {} in flight for 10 ms each. Server \
         CPU microseconds per request, minimum / median of the repetitions. The handler of `coracle-hook-…` (with \
         the hooks on), `rouille`, `threads` and `axum-blocking` is the same source: `std::thread::sleep`, and \
         the client of Redis that blocks, which is asked for what never comes (BLPOP); Redis runs beside the \
         load. `coracle-…` calls coracle's own `sleep`; `axum` awaits tokio's, and the client of Redis for \
         tokio, on a current-thread runtime; `axum-blocking` blocks that thread (of the {} in flight it serves \
         one after the other). *Peak* is what the server itself had resident at the most. *Kernel* is what the \
         kernel had for it besides, likewise: a stack for each of its threads, and its page tables. What both \
         ends of a connection cost there is the same for all, and in none of these figures; nor is the \
         description of a thread, some 8 KiB.",
        w9.many, w9.few, w9.few
    ));
    for (wait, title) in [("sleep", "Sleep"), ("blpop", "Redis: BLPOP")] {
        if !w9.waits.iter().any(|wanted| wanted == wait) {
            continue;
        }
        let redis = if wait == "blpop" { Redis::program() } else { None };
        if wait == "blpop" && redis.is_none() {
            skipped.push("BLPOP skipped: redis-server is not installed".into());
            continue;
        }
        let able = |in_flight, milliseconds| -> Vec<&Candidate> {
            let fits = |it: &&Candidate| {
                let has_it = wait == "sleep" || !OWN_SLEEP.contains(&it.name);
                has_it && (it.name != BLOCKING || milliseconds < 1000)
            };
            able(&candidates, in_flight).into_iter().filter(fits).collect()
        };
        let mut measured = Comparison::new("in flight", &COLUMNS);
        for (in_flight, milliseconds) in [(w9.many, 1000), (w9.few, 10)] {
            eprintln!("w9: {wait}: {in_flight} in flight, {milliseconds} ms each");
            let question =
                Question { path: format!("/{wait}/{milliseconds}"), pipelined: 1, body_bytes: 5 };
            let work = Work { options, seconds: w9.seconds, in_flight, milliseconds, question };
            let able = able(in_flight, milliseconds);
            let failed =
                measured.measure_while_they_serve(options, in_flight, &able, |candidate| {
                    work.measure(candidate, redis.as_deref())
                })?;
            skipped.extend(failed.into_iter().map(|Failed { name, why }| {
                format!("{name} was measured no further ({wait}, {in_flight} in flight): {why}")
            }));
        }
        report.heading(title);
        report.add(&measured.overview());
        report.details(&measured, options);
    }
    report.list(&skipped);
    report.write_text(&options.out())
}

/// What is asked of each candidate.
struct Work<'a> {
    options: &'a Options,
    seconds: f64,
    in_flight: u32,
    milliseconds: u32,
    question: Question,
}

impl Work<'_> {
    fn measure(&self, candidate: &Candidate, redis: Option<&Path>) -> io::Result<Vec<f64>> {
        let redis = redis.map(|it| Redis::start(it, self.options.load_core)).transpose()?;
        let mut candidate = candidate.clone();
        if let Some(redis) = &redis {
            candidate.arguments.extend(["--redis".into(), redis.url()]);
        }
        let before = kernel_stack_bytes()?;
        let server = Server::start(&candidate, self.options.server_core)?;
        let warmup = 1.0 + 2.0 * f64::from(self.milliseconds) / 1000.0;
        let amount = Amount::Time { warmup, seconds: self.seconds };
        let core = self.options.load_core;
        let pid = server.pid();
        let over = AtomicBool::new(false);
        let (report, kernel) = thread::scope(|scope| {
            let kernel = scope.spawn(|| -> io::Result<u64> {
                let mut most = 0;
                while !over.load(Ordering::Relaxed) {
                    let stacks = kernel_stack_bytes()?.saturating_sub(before);
                    most = most.max(stacks + page_table_bytes(pid)?);
                    thread::sleep(LOOK);
                }
                Ok(most)
            });
            let report = ask::run(&server, core, self.in_flight, &self.question, amount);
            over.store(true, Ordering::Relaxed);
            (report, kernel.join().expect("it only reads"))
        });
        let [cpu, per_second, busy, _, p50, p99, _] = report?.figures();
        let peak = server.peak_mebibytes()?;
        let kernel = kernel? as f64 / f64::from(1 << 20);
        Ok(vec![cpu, per_second, busy, p50 / 1000.0, p99 / 1000.0, peak, kernel, peak + kernel])
    }
}

/// Those that have nothing to wait for but coracle's own sleep.
const OWN_SLEEP: [&str; 2] = ["coracle-uring", "coracle-epoll"];

fn candidates() -> Vec<Candidate> {
    let coracle = |name, backend, more: &[&str]| {
        Candidate::new(name, Kind::Coracle, program("coracle-wait"))
            .arguments(&[&["--backend", backend], more].concat())
    };
    let axum = |name| Candidate::new(name, Kind::Peer, program("axum-wait"));
    vec![
        coracle("coracle-hook-uring", "uring", &["--hook"]),
        coracle("coracle-hook-epoll", "epoll", &["--hook"]),
        coracle("coracle-uring", "uring", &[]),
        coracle("coracle-epoll", "epoll", &[]),
        axum("axum"),
        axum(BLOCKING).arguments(&["--blocking"]).limit_connections(LIMIT_BLOCKING),
        Candidate::new("rouille", Kind::Peer, program("rouille-wait")),
        Candidate::new("threads", Kind::Peer, program("threads-wait")),
    ]
}
