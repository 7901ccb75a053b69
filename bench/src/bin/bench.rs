//! `bench`: measures coracle, its limits and its peers, and writes the reports.
//!
//! ```text
//! cargo run --release -- w2                        echo
//! cargo run --release -- w6                        coroutines
//! cargo run --release -- w7                        timers
//! cargo run --release -- w13                       worker pools
//! cargo run --release --features coracle -- all    with coracle's own stacks, timers and pool
//! ```
//! Run it when nothing else runs. `--help` lists the options.

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use harness::options::Options;
use harness::w2::{self, W2};
use harness::w6::{self, W6};
use harness::w7::{self, W7};
use harness::w13::{self, W13};

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
    /// Echo ping-pong: CPU per operation, system calls, instructions.
    W2(W2),
    /// Coroutines: nanoseconds per switch, and per short life.
    W6(W6),
    /// Timers: nanoseconds per operation with up to a million pending.
    W7(W7),
    /// Worker pools: jobs per second, CPU per job.
    W13(W13),
    /// All of them, with their defaults.
    All,
}

fn main() -> ExitCode {
    let Arguments { options, work } = Arguments::parse();
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
        Work::W2(work) => w2::run(options, work),
        Work::W6(work) => w6::run(options, work),
        Work::W7(work) => w7::run(options, work),
        Work::W13(work) => w13::run(options, work),
        Work::All => ["w2", "w6", "w7", "w13"].iter().try_for_each(|name| {
            // Parsing the bare name is what fills in the defaults.
            run(options, &Arguments::parse_from(["bench", name]).work)
        }),
    }
}
