//! `bench`: measures coracle, its limits and its peers, and writes the reports.
//!
//! ```text
//! cargo run --release -- w1                        a short page
//! cargo run --release -- w2                        echo
//! cargo run --release -- w3                        echo through a proxy
//! cargo run --release -- w4                        short connections
//! cargo run --release -- w5                        files
//! cargo run --release -- w6                        coroutines
//! cargo run --release -- w7                        timers
//! cargo run --release -- w8                        idle connections
//! cargo run --release -- w9                        handlers that wait
//! cargo run --release -- w10                       two loops against one
//! cargo run --release -- w11                       a clock beside handlers that block
//! cargo run --release -- w12                       WebSocket fan-out
//! cargo run --release -- w13                       worker pools
//! cargo run --release -- w14                       a few active among many idle
//! cargo run --release -- tls                       handshakes, and what is sent by TLS
//! cargo run --release -- h2                        a short page over HTTP/2
//! cargo run --release -- proxy                     a short page through a reverse proxy
//! cargo run --release -- slowloris                 one client among ten thousand that drip
//! cargo run --release -- slow-reader               the memory of a stream nobody reads fast
//! cargo run --release -- hook                      hooks: the echo, blocking clients, calls outside coroutines
//! cargo run --release --features coracle -- all    with coracle's own stacks, timers and pool
//! ```
//! Run it when nothing else runs. `--help` lists the options.

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use harness::h2::{self, H2};
use harness::hook::{self, Hook};
use harness::options::Options;
use harness::proxy::{self, Proxy};
use harness::slow_reader::{self, SlowReader};
use harness::slowloris::{self, Slowloris};
use harness::tls::{self, Tls};
use harness::w1::{self, W1};
use harness::w2::{self, W2};
use harness::w3::{self, W3};
use harness::w4::{self, W4};
use harness::w5::{self, W5};
use harness::w6::parked::{self, Parked};
use harness::w6::{self, W6};
use harness::w7::{self, W7};
use harness::w8::{self, W8};
use harness::w9::{self, W9};
use harness::w10::{self, W10};
use harness::w11::{self, W11};
use harness::w12::{self, W12};
use harness::w13::{self, W13};
use harness::w14::{self, W14};
use rustix::process::{getpid, set_child_subreaper};

#[derive(Parser)]
#[command(about = "Measures coracle, its limits and its peers")]
struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    work: Work,
}

#[derive(Subcommand)]
enum Work {
    /// A short page over HTTP: CPU per request, one at a time and sixteen.
    W1(W1),
    /// Echo ping-pong: CPU per operation, system calls, instructions.
    W2(W2),
    /// Echo through a proxy: CPU per operation, system calls, instructions.
    W3(W3),
    /// Short connections: CPU per connection, one loop and two.
    W4(W4),
    /// Files over HTTP: CPU per request and per GiB.
    W5(W5),
    /// Coroutines: nanoseconds per switch, and per short life.
    W6(W6),
    /// Timers: nanoseconds per operation with up to a million pending.
    W7(W7),
    /// Idle connections: memory each, idle CPU, latency of an active one.
    W8(W8),
    /// Handlers that wait: CPU per request, latency, memory.
    W9(W9),
    /// Two loops against one: throughput and CPU per operation.
    W10(W10),
    /// A clock beside handlers that write to SQLite: how many ticks are kept.
    W11(W11),
    /// WebSocket fan-out: CPU per message and subscriber.
    W12(W12),
    /// Worker pools: jobs per second, CPU per job.
    W13(W13),
    /// A few active connections among many idle ones, on each backend; threads beside loops.
    W14(W14),
    /// TLS: handshakes per CPU second, and CPU per GiB that is sent.
    Tls(Tls),
    /// A short page over HTTP/2: CPU per request.
    H2(H2),
    /// A short page through a reverse proxy: its CPU per request, system calls, instructions.
    Proxy(Proxy),
    /// A stream nobody reads fast: the peak of the server's memory.
    SlowReader(SlowReader),
    /// One client among ten thousand that drip: its latency.
    Slowloris(Slowloris),
    /// Hooks: the echo over the sockets of std, blocking clients, calls outside coroutines.
    Hook(Hook),
    /// All of them, with their defaults.
    All,
    /// A part of W6, in a process of its own.
    #[command(hide = true)]
    Parked(Parked),
}

/// The names of the works.
const ALL: [&str; 20] = [
    "w1",
    "w2",
    "w3",
    "w4",
    "w5",
    "w6",
    "w7",
    "w8",
    "w9",
    "w10",
    "w11",
    "w12",
    "w13",
    "w14",
    "tls",
    "h2",
    "proxy",
    "slow-reader",
    "slowloris",
    "hook",
];

fn main() -> ExitCode {
    let Arguments { options, work } = Arguments::parse();
    // Servers of several processes: what the children of a killed one have used is to be counted as ours.
    if let Err(error) = set_child_subreaper(Some(getpid())) {
        eprintln!("bench: orphans will count as noise: {error}");
    }
    match run(&options, &work) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, work: &Work) -> io::Result<()> {
    match work {
        Work::W1(work) => w1::run(options, work),
        Work::W2(work) => w2::run(options, work),
        Work::W3(work) => w3::run(options, work),
        Work::W4(work) => w4::run(options, work),
        Work::W5(work) => w5::run(options, work),
        Work::W6(work) => w6::run(options, work),
        Work::W7(work) => w7::run(options, work),
        Work::W8(work) => w8::run(options, work),
        Work::W9(work) => w9::run(options, work),
        Work::W10(work) => w10::run(options, work),
        Work::W11(work) => w11::run(options, work),
        Work::W12(work) => w12::run(options, work),
        Work::W13(work) => w13::run(options, work),
        Work::W14(work) => w14::run(options, work),
        Work::Tls(work) => tls::run(options, work),
        Work::H2(work) => h2::run(options, work),
        Work::Proxy(work) => proxy::run(options, work),
        Work::Slowloris(work) => slowloris::run(options, work),
        Work::SlowReader(work) => slow_reader::run(options, work),
        Work::Hook(work) => hook::run(options, work),
        Work::Parked(work) => parked::run(work),
        Work::All => ALL.iter().try_for_each(|name| {
            // Parsing the bare name is what fills in the defaults.
            run(options, &Arguments::parse_from(["bench", name]).work)
        }),
    }
}
