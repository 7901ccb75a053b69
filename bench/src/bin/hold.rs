//! `hold`: many connections that do nothing, and one that does.
//!
//! Opens its connections from several loopback addresses, makes one request on each so that the server has seen it
//! through, and says how many are open. Then it does what it is told, a word a line, until there are no more:
//!
//! ```text
//!  active 2000     2,000 requests on one more connection, one after the other: their latencies, as JSON
//! ```
//! A process may have some 20,000 descriptors; who needs more connections starts several (`--first-source`).
//!
//! ```text
//! cargo run --release --bin hold -- --connect 127.0.0.1:7000 --connections 10000
//! ```

use std::io::{self, BufRead, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use harness::hold::Latency;
use harness::request::{Kind, connect_from, source};
use hdrhistogram::Histogram;
use rustix::net::sockopt::set_socket_linger;

/// After so many connections, the next come from another address.
const PER_SOURCE: u32 = 1000;
/// A server answers within this time.
const LIMIT_ANSWER: Duration = Duration::from_secs(20);

#[derive(Parser)]
#[command(about = "Holds idle connections over loopback")]
struct Arguments {
    /// The server, on a loopback address.
    #[arg(long)]
    connect: SocketAddr,
    /// How many connections to hold.
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    connections: u32,
    /// Which of the loopback addresses to begin with.
    #[arg(long, default_value_t = 0)]
    first_source: u32,
    /// What the server answers.
    #[arg(long, value_enum, default_value_t = Kind::Echo)]
    server: Kind,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hold: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let mut held = Vec::with_capacity(arguments.connections as usize);
    for index in 0..arguments.connections {
        match open(arguments, index) {
            Ok(stream) => held.push(stream),
            Err(error) => {
                eprintln!("hold: connection {index}: {error}");
                break;
            }
        }
    }
    say(&held.len())?;
    let mut active = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let Some(count) = line.strip_prefix("active ").and_then(|count| count.parse().ok()) else {
            return Err(io::Error::other(format!("not understood: {line}")));
        };
        let stream = match &mut active {
            Some(stream) => stream,
            none => none.insert(open(arguments, arguments.connections)?),
        };
        say(&latency(arguments.server, stream, count)?)?;
    }
    Ok(())
}

fn say(what: &impl serde::Serialize) -> io::Result<()> {
    println!("{}", serde_json::to_string(what)?);
    io::stdout().flush()
}

/// Opens a connection, and uses it once.
fn open(arguments: &Arguments, index: u32) -> io::Result<TcpStream> {
    let source = source(arguments.first_source + index / PER_SOURCE);
    let mut stream = connect_from(source, arguments.connect)?;
    // Reset at the end: what is left over for a minute otherwise would be in the way of who measures memory next.
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    stream.set_read_timeout(Some(LIMIT_ANSWER))?;
    ask(arguments.server, &mut stream)?;
    Ok(stream)
}

fn ask(server: Kind, stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(server.request())?;
    let (mut buffer, mut len) = ([0; 1024], 0);
    while !server.is_answer(&buffer[..len])? {
        len += match stream.read(&mut buffer[len..])? {
            0 => return Err(io::Error::other("closed by the server")),
            more => more,
        };
    }
    Ok(())
}

fn latency(server: Kind, stream: &mut TcpStream, count: u32) -> io::Result<Latency> {
    let mut nanoseconds =
        Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds");
    for _ in 0..count {
        let start = Instant::now();
        ask(server, stream)?;
        nanoseconds.saturating_record(start.elapsed().as_nanos() as u64);
    }
    let quantile = |q| nanoseconds.value_at_quantile(q) as f64 / 1000.0;
    Ok(Latency { p50_us: quantile(0.5), p99_us: quantile(0.99) })
}
