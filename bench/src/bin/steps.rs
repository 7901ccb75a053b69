//! `steps`: user-mode instructions per operation of a running server, counted exactly.
//!
//! Single-steps the server while `ping` sends a number of messages, then again with a smaller one: what both
//! runs have in common (accepting, closing) cancels out in the difference. A server may close the connections
//! of one run when the next begins, so a third run goes before the two, and is not counted. Or while `knock`
//! makes short connections: then these are the operations.
//!
//! ```text
//! cargo build --release && target/release/raw-uring --listen 127.0.0.1:7000 &
//! target/release/steps --pid $! --connect 127.0.0.1:7000
//! ```
//! Prints one line of JSON ([`StepsReport`]).

use std::io;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use clap::Parser;
use harness::affinity::pinned;
use harness::programs::program;
use harness::request::Kind;
use harness::single_step::{Stepper, StepsReport};

#[derive(Parser)]
#[command(about = "User-mode instructions per operation of a running server")]
struct Arguments {
    /// The server's process.
    #[arg(long)]
    pid: u32,
    /// Where it listens.
    #[arg(long)]
    connect: SocketAddr,
    /// How many connections to keep busy.
    #[arg(long, default_value_t = 64)]
    connections: u32,
    /// Messages of the run with fewer.
    #[arg(long, default_value_t = 1500)]
    count_low: u64,
    /// Messages of the run with more.
    #[arg(long, default_value_t = 4500)]
    count_high: u64,
    /// If it is a proxy: where it connects to, for the load to echo there.
    #[arg(long)]
    serve: Option<SocketAddr>,
    /// Count per short connection instead (`knock`), to a server of this kind.
    #[arg(long, value_enum, conflicts_with = "serve")]
    knock: Option<Kind>,
    /// Run the load on this core.
    #[arg(long, default_value_t = 1)]
    load_core: usize,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    // What a server does only once, such as growing its tables, belongs to neither run.
    if !load(&arguments, arguments.count_high).status()?.success() {
        return Err(io::Error::other("the load failed"));
    }
    let mut stepper = Stepper::attach(arguments.pid)?;
    let mut instructions = |count| stepper.count(&mut load(&arguments, count));
    instructions(arguments.count_low)?;
    let high = instructions(arguments.count_high)?;
    let low = instructions(arguments.count_low)?;
    let operations = arguments.count_high - arguments.count_low;
    let report = StepsReport {
        instructions_low: low,
        instructions_high: high,
        operations,
        instructions_per_operation: (high as f64 - low as f64) / operations as f64,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn load(arguments: &Arguments, count: u64) -> Command {
    if let Some(kind) = arguments.knock {
        let mut command = pinned(arguments.load_core, &program("knock"));
        command.args(["--connect", &arguments.connect.to_string(), "--server", kind.name()]);
        // Few at a time: a stepped server takes its time for each.
        command.args(["--count", &count.to_string(), "--warmup", "0", "--batch", "4"]);
        command.stdout(Stdio::null());
        return command;
    }
    let mut command = pinned(arguments.load_core, &program("ping"));
    command.args(["--connect", &arguments.connect.to_string()]);
    command.args(["--connections", &arguments.connections.to_string()]);
    command.args(["--count", &count.to_string()]);
    if let Some(address) = arguments.serve {
        command.args(["--serve", &address.to_string()]);
    }
    // A stepped server is some thousand times slower, more so on a busy machine.
    command.args(["--limit-silence", "120"]);
    command.stdout(Stdio::null());
    command
}
