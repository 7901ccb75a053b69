//! `drip`: a slowloris. Thousands of connections that send the header of a request a byte at a time, for ever.
//!
//! Each sends the beginning of a request at once, and then one byte every `--interval` seconds; those that the
//! server cuts are opened again. Says `open` when all are, and goes on until it is killed.
//!
//! ```text
//! cargo run --release --bin drip -- --connect 127.0.0.1:8080 --connections 10000
//! ```
//! It talks to loopback only.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use harness::request::{connect_from, source};
use rustix::net::sockopt::set_socket_linger;

/// After so many connections, the next come from another address.
const PER_SOURCE: u32 = 100;
/// What each sends at once.
const BEGINNING: &[u8] = b"GET / HTTP/1.1\r\nHost: bench\r\nX-Slow: ";

#[derive(Parser)]
#[command(about = "A slowloris over loopback")]
struct Arguments {
    /// The server, on a loopback address.
    #[arg(long)]
    connect: SocketAddr,
    /// How many connections.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=19_000))]
    connections: u32,
    /// Seconds between two bytes of one.
    #[arg(long, default_value_t = 5.0)]
    interval: f64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("drip: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<std::convert::Infallible> {
    if !arguments.connect.ip().is_loopback() {
        let why =
            format!("will not load {}: only loopback addresses are allowed", arguments.connect);
        return Err(io::Error::other(why));
    }
    let open = |index: u32| open(arguments.connect, index);
    let mut streams: Vec<TcpStream> =
        (0..arguments.connections).map(open).collect::<io::Result<_>>()?;
    println!("open");
    io::stdout().flush()?;
    // A few at a time, so that the bytes are spread over the interval.
    let pause = Duration::from_secs_f64(arguments.interval / f64::from(arguments.connections));
    let start = Instant::now();
    let mut sent = 0;
    loop {
        let due = (start.elapsed().as_secs_f64() / pause.as_secs_f64()) as u64;
        while sent < due {
            let index = (sent % streams.len() as u64) as usize;
            sent += 1;
            if (&streams[index]).write_all(b"x").is_err()
                && let Ok(stream) = open(index as u32)
            {
                streams[index] = stream;
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn open(server: SocketAddr, index: u32) -> io::Result<TcpStream> {
    let stream = connect_from(source(index / PER_SOURCE), server)?;
    // Reset at the end: ports that wait for a minute would run out.
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    stream.set_nonblocking(true)?;
    (&stream).write_all(BEGINNING)?;
    Ok(stream)
}
