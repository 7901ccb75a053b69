//! `steps`: user-mode instructions per operation of a running server, counted exactly.
//!
//! Single-steps the server while `ping` sends a number of messages, and then so many more, on the same
//! connections. What the second number takes is counted: neither accepting nor closing is in it. Or while
//! `knock` makes short connections: then these are the operations. Or while `ask` makes requests of HTTP.
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
use harness::single_step::{Stepper, StepsReport, settle};

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
    /// Messages before those that are counted.
    #[arg(long, default_value_t = 1000)]
    warmup: u64,
    /// Messages that are counted.
    #[arg(long, default_value_t = 3000)]
    count: u64,
    /// If it is a proxy: where it connects to, for the load to echo there.
    #[arg(long)]
    serve: Option<SocketAddr>,
    /// Count per short connection instead (`knock`), to a server of this kind.
    #[arg(long, value_enum, conflicts_with = "serve")]
    knock: Option<Kind>,
    /// Count per request of HTTP (`ask`).
    #[arg(long, conflicts_with = "knock")]
    web: bool,
    /// How many of them are sent at once on each connection.
    #[arg(long, default_value_t = 1, requires = "web")]
    pipelined: u32,
    /// Run the load on this core.
    #[arg(long, default_value_t = 1)]
    load_core: usize,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    // What a server does only once, such as growing its tables, is done before.
    let mut freely = load(&arguments);
    if !freely.args(["--count", &arguments.count.to_string()]).status()?.success() {
        return Err(io::Error::other("the load failed"));
    }
    settle(arguments.pid)?;
    let stages = format!("{},{}", arguments.warmup, arguments.count);
    let stepper = Stepper::attach(arguments.pid)?;
    let [_, instructions] = stepper.count(load(&arguments).args(["--stages", &stages]))?;
    let report = StepsReport {
        instructions,
        operations: arguments.count,
        instructions_per_operation: instructions as f64 / arguments.count as f64,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// The load, without how much of it.
fn load(arguments: &Arguments) -> Command {
    let name = match arguments.knock {
        Some(_) => "knock",
        None if arguments.web => "ask",
        None => "ping",
    };
    let mut command = pinned(arguments.load_core, &program(name));
    command.args(["--connect", &arguments.connect.to_string()]).stdout(Stdio::null());
    if let Some(kind) = arguments.knock {
        // Few at a time: a stepped server takes its time for each.
        command.args(["--server", kind.name(), "--warmup", "0", "--batch", "4"]);
    } else {
        command.args(["--connections", &arguments.connections.to_string()]);
    }
    if arguments.web {
        command.args(["--pipelined", &arguments.pipelined.to_string()]);
    }
    if let Some(address) = arguments.serve {
        command.args(["--serve", &address.to_string()]);
    }
    // A stepped server is some thousand times slower, more so on a busy machine.
    command.args(["--limit-silence", "600"]);
    if name == "ping" {
        command.args(["--limit-seconds", "86400"]);
    }
    command
}
