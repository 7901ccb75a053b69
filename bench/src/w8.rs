//! W8: idle connections: 18,000 to one process, 100,000 to six.
//!
//! Each connection has made one request, so that what a server keeps for a connection that was used is in the
//! figure.

use std::io;
use std::num::NonZero;
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::candidate::{Candidate, Kind, available};
use crate::comparison::{Column, Comparison};
use crate::hold::Hold;
use crate::memory::{private_bytes, slab_bytes};
use crate::options::Options;
use crate::programs;
use crate::report::Report;
use crate::request;
use crate::server::Server;
use crate::web::{hello, hyper, nginx};

/// A process here may have 20,000 descriptors; some are its own.
const LIMIT_PER_PROCESS: u32 = 18_000;

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct W8 {
    /// Connections to one process.
    #[arg(long, default_value_t = LIMIT_PER_PROCESS,
          value_parser = clap::value_parser!(u32).range(1..=LIMIT_PER_PROCESS as i64))]
    connections: u32,
    /// Connections to six processes; 0 leaves it out.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    many: u32,
    /// How long nothing happens, in seconds.
    #[arg(long, default_value_t = 5.0)]
    idle: f64,
    /// Requests on the one connection that is active.
    #[arg(long, default_value_t = 5000)]
    requests: u32,
    /// Only candidates whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// What a repetition yields.
const COLUMNS: [Column; 5] = [
    Column { heading: "user bytes/connection", decimals: 0 },
    Column { heading: "kernel slab bytes/connection (both ends)", decimals: 0 },
    Column { heading: "idle CPU µs/s", decimals: 0 },
    Column { heading: "active p50 µs", decimals: 0 },
    Column { heading: "active p99 µs", decimals: 0 },
];

/// Measures all candidates and writes the report.
///
/// # Errors
/// When a server fails, or does not hold all connections.
pub fn run(options: &Options, w8: &W8) -> io::Result<()> {
    if !options.no_build {
        programs::build_workspace()?;
        programs::build_coracle()?;
    }
    let (candidates, mut skipped) = available(candidates(), &w8.only);
    let (mut several, missing) = available(several(), &w8.only);
    skipped.extend(missing);
    // Workers take connections from one queue, each as many as it can: one may be full while others have room.
    several.retain(|candidate| match w8.many {
        0 => false,
        many => match measure(options, w8, candidate, many) {
            Ok(_) => true,
            Err(error) => {
                skipped.push(format!("{} left out: {error}", candidate.name));
                false
            }
        },
    });
    let mut measured = Comparison::new("idle connections", &COLUMNS);
    for (connections, candidates) in [(w8.connections, &candidates), (w8.many, &several)] {
        if candidates.is_empty() {
            continue;
        }
        eprintln!("w8: {connections} idle connections");
        let all: Vec<&Candidate> = candidates.iter().collect();
        measured.measure(options, connections, &all, |candidate| {
            measure(options, w8, candidate, connections)
        })?;
    }

    let mut report = Report::new("w8", "W8: idle connections");
    report.add(&format!(
        "Connections that have made one request each and then do nothing. *User bytes*: private dirty memory \
         of the server's processes (`/proc/PID/smaps_rollup`), the difference to before, for each connection. \
         *Kernel slab*: the difference of `Slab` in `/proc/meminfo`: sockets and what goes with them, at both \
         ends, for client and server are on one machine; what differs between candidates is the server's. \
         *Idle CPU*: of all its processes, over {} s in which nothing happened. *Active*: {} requests, one \
         after the other, on one more connection. Minimum / median of the repetitions.",
        w8.idle, w8.requests
    ));
    report.add(&measured.overview());
    report.details(&measured, options);
    report.list(&skipped);
    report.write_text(&options.out())
}

fn measure(
    options: &Options,
    w8: &W8,
    candidate: &Candidate,
    connections: u32,
) -> io::Result<Vec<f64>> {
    let kind = request::kind_of(candidate);
    let server = Server::start(candidate, options.server_core)?;
    let (user, kernel) = (private_bytes(server.pids())?, slab_bytes()?);
    let mut holds = hold(&server, options.load_core, kind, connections)?;
    server.settle()?;
    let each = |before: u64, after: u64| (after as f64 - before as f64) / f64::from(connections);
    let user = each(user, private_bytes(server.pids())?);
    let kernel = each(kernel, slab_bytes()?);

    let before = server.cpu_time()?;
    thread::sleep(Duration::from_secs_f64(w8.idle));
    let idle = (server.cpu_time()? - before).as_secs_f64() / w8.idle * 1e6;
    let active = holds[0].active(w8.requests)?;
    Ok(vec![user, kernel, idle, active.p50_us, active.p99_us])
}

/// Opens the connections, from as many processes as that takes.
fn hold(
    server: &Server,
    core: usize,
    kind: request::Kind,
    connections: u32,
) -> io::Result<Vec<Hold>> {
    let processes = connections.div_ceil(LIMIT_PER_PROCESS);
    let mut holds = Vec::new();
    for index in 0..processes {
        let share = connections * (index + 1) / processes - connections * index / processes;
        holds.push(Hold::start(server, core, kind, share, index * 30)?);
    }
    let mut open = 0;
    for hold in &mut holds {
        open += hold.opened()?;
    }
    if open == connections {
        Ok(holds)
    } else {
        Err(io::Error::other(format!("it holds {open} of {connections} connections")))
    }
}

fn coracle(name: &'static str, backend: &str, more: &[&str]) -> Candidate {
    let arguments = [&["echo", "--threads", "1", "--backend", backend], more].concat();
    Candidate::new(name, Kind::Coracle, programs::coracle()).arguments(&arguments)
}

fn candidates() -> Vec<Candidate> {
    vec![
        coracle("coracle-uring", "uring", &[]),
        coracle("coracle-epoll", "epoll", &[]),
        hello("coracle-http-uring", "uring", 1),
        hello("coracle-http-epoll", "epoll", 1),
        nginx("nginx", NonZero::<u32>::MIN),
        hyper("hyper", NonZero::<u32>::MIN),
    ]
}

fn several() -> Vec<Candidate> {
    vec![
        coracle("coracle-uring, six processes", "uring", &["--processes", "6"]),
        coracle("coracle-epoll, six processes", "epoll", &["--processes", "6"]),
    ]
}
