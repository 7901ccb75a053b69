//! A stream nobody reads fast: does the server's memory stay bounded?
//!
//! `coracle chargen` would send for ever. One client reads a gigabyte of it slowly, with a pause after each
//! piece, so that the server has always more than fits; others connect and never read.

use std::io::{self, Read};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::affinity::pin_this_thread;
use crate::candidate::{Candidate, Kind, available};
use crate::comparison::{Column, Comparison};
use crate::options::Options;
use crate::programs;
use crate::report::Report;
use crate::server::Server;

/// What is read between two pauses.
const PIECE_BYTES: usize = 1 << 20;
/// chargen's lines are 72 of 95 characters, each line begins with the next of them.
const LINES: usize = 95;

/// What can be chosen about this work.
#[derive(Args, Clone, Debug)]
pub struct SlowReader {
    /// How much is read.
    #[arg(long, default_value_t = 1_000_000_000)]
    bytes: u64,
    /// How long that takes, at least, in seconds.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// How many others are connected, and never read.
    #[arg(long, value_delimiter = ',', default_value = "0,100")]
    others: Vec<u32>,
    /// Only candidates whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// What a repetition yields.
const COLUMNS: [Column; 4] = [
    Column { heading: "peak resident MiB", decimals: 1 },
    Column { heading: "before the first connection, MiB", decimals: 1 },
    Column { heading: "seconds", decimals: 1 },
    Column { heading: "server CPU s/GB", decimals: 2 },
];

/// Measures all backends and writes the report.
///
/// # Errors
/// When the server fails, or sends anything else.
pub fn run(options: &Options, work: &SlowReader) -> io::Result<()> {
    if !options.no_build {
        programs::build_coracle()?;
    }
    let (candidates, skipped) = available(candidates(), &work.only);
    let mut measured = Comparison::new("others", &COLUMNS);
    for &others in &work.others {
        eprintln!("slow-reader: {others} others");
        let all: Vec<&Candidate> = candidates.iter().collect();
        measured.measure(options, others, &all, |candidate| {
            let server = Server::start(candidate, options.server_core)?;
            let before = server.peak_mebibytes()?;
            // On a thread of its own, which is pinned; this one starts servers.
            let (address, core) = (server.address(), options.load_core);
            let silent: Vec<TcpStream> =
                (0..others).map(|_| TcpStream::connect(address)).collect::<io::Result<_>>()?;
            let used = server.cpu_time()?;
            let seconds = thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    pin_this_thread(core)?;
                    read(&mut TcpStream::connect(address)?, work)
                });
                reader.join().expect("the reader does not panic")
            })?;
            let used = (server.cpu_time()? - used).as_secs_f64();
            drop(silent);
            Ok(vec![server.peak_mebibytes()?, before, seconds, used / work.bytes as f64 * 1e9])
        })?;
    }

    let mut report = Report::new("slow-reader", "A slow reader of a long stream");
    report.add(&format!(
        "`coracle chargen` sends as fast as it is read. One client reads {:.2} GB of it in pieces, with \
         pauses, for at least {} s; others are connected and never read. The server's peak resident memory \
         (`VmHWM`), minimum / median of the repetitions. Every byte was compared.",
        work.bytes as f64 / 1e9,
        work.seconds
    ));
    report.add(&measured.overview());
    report.details(&measured, options);
    report.list(&skipped);
    report.write_text(&options.out())
}

fn candidates() -> Vec<Candidate> {
    let coracle = |name, backend| {
        Candidate::new(name, Kind::Coracle, programs::coracle()).arguments(&[
            "chargen",
            "--threads",
            "1",
            "--backend",
            backend,
        ])
    };
    vec![
        coracle("coracle-uring", "uring"),
        coracle("coracle-epoll", "epoll"),
        coracle("coracle-poll", "poll"),
        coracle("coracle-select", "select"),
    ]
}

/// Reads so many bytes in so many seconds, compares them, and returns how long it took.
fn read(stream: &mut TcpStream, work: &SlowReader) -> io::Result<f64> {
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let cycle = cycle();
    let expected = cycle.repeat(PIECE_BYTES / cycle.len() + 2);
    let mut piece = vec![0; PIECE_BYTES];
    let start = Instant::now();
    let mut done = 0;
    while done < work.bytes {
        let wanted = (work.bytes - done).min(PIECE_BYTES as u64) as usize;
        stream.read_exact(&mut piece[..wanted])?;
        let phase = (done % cycle.len() as u64) as usize;
        if piece[..wanted] != expected[phase..phase + wanted] {
            return Err(io::Error::other(format!("wrong bytes after {done}")));
        }
        done += wanted as u64;
        let due = Duration::from_secs_f64(work.seconds * (done as f64 / work.bytes as f64));
        thread::sleep(due.saturating_sub(start.elapsed()));
    }
    Ok(start.elapsed().as_secs_f64())
}

/// The lines of chargen, until they come round again.
fn cycle() -> Vec<u8> {
    let line = |first: usize| {
        let characters = (0..72).map(move |at| b' ' + ((first + at) % LINES) as u8);
        characters.chain(*b"\r\n")
    };
    (0..LINES).flat_map(line).collect()
}
