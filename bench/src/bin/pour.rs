//! `pour`: a large answer over TLS 1.3, again and again on a few connections, every byte compared.
//!
//! It takes what is there of one connection after the other, and never sleeps: a client that sleeps has to be
//! woken, and the server would pay for that.
//!
//! ```text
//! cargo run --release --bin pour -- --connect 127.0.0.1:8443 --certificate cert.pem --path /10240.bin
//! ```
//! Prints one line of JSON ([`LoadReport`]), in which an operation is a byte. It talks to loopback only, and
//! always for a bounded time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use harness::answer::Answer;
use harness::ask::request;
use harness::load::{LoadReport, tell};
use harness::load_ring::{check_loopback, prepared};
use harness::snapshot::Snapshot;
use harness::tls_client::{TlsClient, check};
use hdrhistogram::Histogram;
use rustls::{ClientConnection, HandshakeKind, Stream};

/// What is taken from a socket at once.
const BUFFER_BYTES: usize = 256 * 1024;
/// The plain text of a record.
const RECORD_BYTES: usize = 16 * 1024;

#[derive(Parser)]
#[command(about = "A large answer over TLS and loopback; prints one line of JSON")]
struct Arguments {
    /// The server, on a loopback address.
    #[arg(long)]
    connect: SocketAddr,
    /// Its certificate (PEM).
    #[arg(long)]
    certificate: PathBuf,
    /// What to ask for.
    #[arg(long, default_value = "/")]
    path: String,
    /// The length that the body of an answer must have.
    #[arg(long)]
    body_bytes: Option<u64>,
    /// How many connections to keep busy.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// Measure for so long.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Run for so long before measuring.
    #[arg(long, default_value_t = 0.5)]
    warmup: f64,
    /// Give up when nothing came for so long.
    #[arg(long, default_value_t = 10.0)]
    limit_silence: f64,
    /// Report the processor time of these processes too (the server's).
    #[arg(long, value_delimiter = ',')]
    watch: Vec<u32>,
}

fn main() -> ExitCode {
    tell("pour", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> io::Result<LoadReport> {
    check_loopback(arguments.connect)?;
    let client = TlsClient::new(&arguments.certificate, false)?;
    let request = request(&arguments.path);
    let mut connections = Vec::new();
    let mut answer = None;
    for _ in 0..arguments.connections {
        let mut socket = prepared(TcpStream::connect(arguments.connect)?)?;
        socket.set_read_timeout(Some(Duration::from_secs_f64(arguments.limit_silence)))?;
        let mut tls = client.connection()?;
        // The first answer of each; it shows what the others will be.
        let first = Answer::ask(&mut Stream::new(&mut tls, &mut socket), &request)?;
        check(&tls, HandshakeKind::Full)?;
        let body = first.body().len() as u64;
        if arguments.body_bytes.is_some_and(|bytes| bytes != body) {
            return Err(io::Error::other(format!("the body of an answer has {body} bytes")));
        }
        answer.get_or_insert(first);
        socket.set_nonblocking(true)?;
        connections.push(Connection { socket, tls, received: 0 });
    }
    let answer = answer.expect("there is a connection at least");
    let mut load = Load { connections, request, answer, received: 0 };
    load.measure(arguments)
}

struct Connection {
    socket: TcpStream,
    tls: ClientConnection,
    /// How much of the answer has arrived.
    received: usize,
}

struct Load {
    connections: Vec<Connection>,
    request: Vec<u8>,
    answer: Answer,
    /// On all of them.
    received: u64,
}

impl Load {
    fn measure(&mut self, arguments: &Arguments) -> io::Result<LoadReport> {
        let warm_at = Duration::from_secs_f64(arguments.warmup);
        let end_at = warm_at + Duration::from_secs_f64(arguments.seconds);
        let limit_silence = Duration::from_secs_f64(arguments.limit_silence);
        let snapshot =
            |at, received| Snapshot::take(at, Duration::ZERO, received, &arguments.watch);
        let mut bytes = vec![0; BUFFER_BYTES];
        let start = Instant::now();
        for connection in &mut self.connections {
            connection.ask(&self.request)?;
        }
        let (mut begin, mut last) = (None, Duration::ZERO);
        loop {
            let before = self.received;
            for connection in &mut self.connections {
                self.received += connection.take(&mut bytes, &self.request, &self.answer)?;
            }
            let now = start.elapsed();
            if self.received > before {
                last = now;
            } else if now - last > limit_silence {
                return Err(io::Error::other(format!(
                    "nothing came for {} s",
                    arguments.limit_silence
                )));
            }
            match &begin {
                None if now >= warm_at => begin = Some(snapshot(now, self.received)?),
                Some(begin) if now >= end_at => {
                    // Latencies say nothing here: an answer takes as long as the others allow.
                    let none = Histogram::new(3).expect("three digits are possible");
                    let end = snapshot(now, self.received)?;
                    return Ok(begin.until(&end, self.connections.len(), 1, &none));
                }
                _ => {}
            }
        }
    }
}

impl Connection {
    /// Asks for the next answer.
    fn ask(&mut self, request: &[u8]) -> io::Result<()> {
        self.tls.writer().write_all(request)?;
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket)?; // it is short, and there is room
        }
        Ok(())
    }

    /// Takes and compares what is there: how many bytes of answers.
    fn take(&mut self, bytes: &mut [u8], request: &[u8], answer: &Answer) -> io::Result<u64> {
        let len = match self.socket.read(bytes) {
            Ok(0) => return Err(io::Error::other("closed by the server")),
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error),
        };
        let (mut left, mut taken) = (&bytes[..len], 0);
        let mut plain = [0; RECORD_BYTES];
        while !left.is_empty() {
            self.tls.read_tls(&mut left)?;
            self.tls.process_new_packets().map_err(io::Error::other)?;
            loop {
                let piece = match self.tls.reader().read(&mut plain) {
                    Ok(0) => return Err(io::Error::other("closed by the server")),
                    Ok(len) => &plain[..len],
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                };
                if !answer.continues(self.received, piece) {
                    return Err(io::Error::other("a wrong answer"));
                }
                taken += piece.len() as u64;
                self.received += piece.len();
                if self.received == answer.len() {
                    self.received = 0;
                    self.ask(request)?;
                }
            }
        }
        Ok(taken)
    }
}
