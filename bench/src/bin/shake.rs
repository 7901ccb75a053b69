//! `shake`: handshakes of TLS 1.3. Connect, shake hands, one request, its answer, close; all of it checked.
//!
//! In batches, as `knock`: the first flights of a batch go out together, so that the server always finds several
//! to answer. With the second flight goes a short request; its answer shows that the server has finished too. With
//! `--resume`, each connection goes on with the session of an earlier one, by a ticket of its own.
//!
//! ```text
//! cargo run --release --bin shake -- --connect 127.0.0.1:8443 --certificate cert.pem --count 5000
//! ```
//! Prints one line of JSON ([`ShakeReport`]). It talks to loopback only, and always for a bounded time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use harness::cpu_clock::{cpu_time, cpu_time_of};
use harness::load::tell;
use harness::load_ring::check_loopback;
use harness::request::{Kind, connect_from, source};
use harness::shake::ShakeReport;
use harness::tls_client::{TlsClient, check};
use rustls::{ClientConnection, HandshakeKind};

#[derive(Parser)]
#[command(about = "Handshakes of TLS over loopback; prints one line of JSON")]
struct Arguments {
    /// The server, on a loopback address.
    #[arg(long)]
    connect: SocketAddr,
    /// Its certificate (PEM).
    #[arg(long)]
    certificate: PathBuf,
    /// Go on with earlier sessions, in the place of full handshakes.
    #[arg(long)]
    resume: bool,
    /// How many handshakes.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// How many before that, which are not measured.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    warmup: u32,
    /// How many are under way at the same time.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    batch: u32,
    /// Give up when an answer takes so long, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    limit_silence: u64,
    /// Report the processor time of these processes too (the server's).
    #[arg(long, value_delimiter = ',')]
    watch: Vec<u32>,
}

fn main() -> ExitCode {
    tell("shake", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> io::Result<ShakeReport> {
    check_loopback(arguments.connect)?;
    let client = TlsClient::new(&arguments.certificate, arguments.resume)?;
    let mut batches = 0;
    let mut shake = |count: u32, wanted: HandshakeKind| {
        let mut left = count;
        while left > 0 {
            let batch = left.min(arguments.batch);
            shake(arguments, &client, batch, batches, wanted)?;
            (left, batches) = (left - batch, batches + 1);
        }
        io::Result::Ok(())
    };
    let mut wanted = HandshakeKind::Full;
    if arguments.resume {
        // The first ones have nothing to go on with.
        shake(arguments.batch, wanted)?;
        if !client.can_resume(arguments.batch as usize) {
            return Err(io::Error::other("there is no ticket for each: the server gives out none"));
        }
        wanted = HandshakeKind::Resumed;
    }
    let usage = || io::Result::Ok((cpu_time_of(&arguments.watch)?, cpu_time(std::process::id())?));
    shake(arguments.warmup, wanted)?;
    let (start, before, tickets) = (Instant::now(), usage()?, client.tickets());
    shake(arguments.count, wanted)?;
    let (seconds, after) = (start.elapsed().as_secs_f64(), usage()?);
    Ok(ShakeReport {
        handshakes: arguments.count,
        tickets: client.tickets() - tickets,
        seconds,
        server_cpu_seconds: (after.0 - before.0).as_secs_f64(),
        load_cpu_seconds: (after.1 - before.1).as_secs_f64(),
    })
}

/// One batch of connections, from the address that belongs to it.
fn shake(
    arguments: &Arguments,
    client: &TlsClient,
    size: u32,
    batch: u32,
    wanted: HandshakeKind,
) -> io::Result<()> {
    let mut open: Vec<(TcpStream, ClientConnection)> = Vec::with_capacity(size as usize);
    for _ in 0..size {
        let mut stream = connect_from(source(batch), arguments.connect)?;
        stream.set_read_timeout(Some(Duration::from_secs(arguments.limit_silence)))?;
        let mut tls = client.connection()?;
        // It is kept until there are keys.
        tls.writer().write_all(Kind::Http.request())?;
        write(&mut stream, &mut tls)?;
        open.push((stream, tls));
    }
    for (stream, tls) in &mut open {
        while tls.is_handshaking() {
            read(stream, tls)?;
        }
        write(stream, tls)?;
    }
    let mut buffer = [0; 1024];
    for (stream, tls) in &mut open {
        let mut len = 0;
        while !Kind::Http.is_answer(&buffer[..len])? {
            len += match tls.reader().read(&mut buffer[len..]) {
                Ok(0) => return Err(io::Error::other("the answer is too long, or not whole")),
                Ok(more) => more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    read(stream, tls)?;
                    0
                }
                Err(error) => return Err(error),
            };
        }
        check(tls, wanted)?;
        tls.send_close_notify();
        write(stream, tls)?;
    }
    Ok(())
}

fn read(stream: &mut TcpStream, tls: &mut ClientConnection) -> io::Result<()> {
    if tls.read_tls(stream)? == 0 {
        return Err(io::Error::other("the server closed before it had answered"));
    }
    tls.process_new_packets().map_err(io::Error::other)?;
    Ok(())
}

fn write(stream: &mut TcpStream, tls: &mut ClientConnection) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(stream)?;
    }
    Ok(())
}
