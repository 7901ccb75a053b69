//! `knock`: short connections. Connect, one request, its answer, close; every answer checked.
//!
//! Connections are made in batches: all of a batch are opened and asked, then all answers are taken, then all are
//! closed. So the server always finds several to accept, and its wake-ups are shared, as in a busy server.
//!
//! A connection that we close first keeps its address and port from being used again for a minute (TIME_WAIT). So
//! the number is bounded, and each batch comes from another loopback address: 127.1.0.1, 127.1.0.2, …
//!
//! ```text
//! cargo run --release --bin knock -- --connect 127.0.0.1:7000 --count 10000
//! ```
//! Prints one line of JSON ([`KnockReport`]).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use harness::cpu_clock::{cpu_time, cpu_time_of};
use harness::knock::KnockReport;
use harness::load::tell;
use harness::request::{Kind, connect_from, source};
use harness::stage;

#[derive(Parser)]
#[command(about = "Short connections over loopback; prints one line of JSON")]
struct Arguments {
    /// The server, on a loopback address.
    #[arg(long)]
    connect: SocketAddr,
    /// How many connections.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// The same in stages: it stops itself (SIGSTOP) after so many, and again after so many more.
    #[arg(long, value_delimiter = ',', conflicts_with = "count")]
    stages: Vec<u32>,
    /// How many before that, which are not measured.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    warmup: u32,
    /// How many are open at the same time.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    batch: u32,
    /// What the server answers.
    #[arg(long, value_enum, default_value_t = Kind::Echo)]
    server: Kind,
    /// Give up when an answer takes so long, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    limit_silence: u64,
    /// Report the processor time of these processes too (the server's).
    #[arg(long, value_delimiter = ',')]
    watch: Vec<u32>,
}

fn main() -> ExitCode {
    tell("knock", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> io::Result<KnockReport> {
    let mut batches = 0;
    let mut knock = |count: u32| {
        let mut left = count;
        while left > 0 {
            let batch = left.min(arguments.batch);
            knock(arguments, batch, batches)?;
            (left, batches) = (left - batch, batches + 1);
        }
        io::Result::Ok(())
    };
    let usage = || io::Result::Ok((cpu_time_of(&arguments.watch)?, cpu_time(std::process::id())?));
    knock(arguments.warmup)?;
    let (start, before) = (Instant::now(), usage()?);
    let mut connections = 0;
    for &count in &arguments.stages {
        knock(count)?;
        connections += count;
        stage::end()?;
    }
    if arguments.stages.is_empty() {
        knock(arguments.count)?;
        connections = arguments.count;
    }
    let (seconds, after) = (start.elapsed().as_secs_f64(), usage()?);
    Ok(KnockReport {
        connections,
        seconds,
        server_cpu_seconds: (after.0 - before.0).as_secs_f64(),
        load_cpu_seconds: (after.1 - before.1).as_secs_f64(),
    })
}

/// One batch of connections, from the address that belongs to it.
fn knock(arguments: &Arguments, size: u32, batch: u32) -> io::Result<()> {
    let mut open: Vec<TcpStream> = Vec::with_capacity(size as usize);
    for _ in 0..size {
        let mut stream = connect_from(source(batch), arguments.connect)?;
        stream.set_read_timeout(Some(Duration::from_secs(arguments.limit_silence)))?;
        stream.write_all(arguments.server.request())?;
        open.push(stream);
    }
    let mut buffer = [0; 1024];
    for stream in &mut open {
        let mut len = 0;
        while !arguments.server.is_answer(&buffer[..len])? {
            len += match stream.read(&mut buffer[len..])? {
                0 => return Err(io::Error::other("the server closed before it had answered")),
                more => more,
            };
        }
    }
    Ok(())
}
