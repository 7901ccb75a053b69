//! The program `coracle`.

mod echo;

use clap::{Parser, Subcommand};
use coracle::demux::{Address, Backend};
use std::io::IsTerminal;
use std::process::ExitCode;

/// Servers on coracle's loop. Without a command, `echo` with its defaults.
#[derive(Parser)]
#[command(name = "coracle", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Send back whatever arrives.
    Echo(EchoArguments),
}

#[derive(clap::Args)]
struct EchoArguments {
    /// Where to listen: IP:PORT, [IPv6]:PORT, unix:PATH or unix:@NAME.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7000")]
    listen: Address,
    /// uring, epoll, poll or select; by default $CORACLE_BACKEND, else the best the kernel allows.
    #[arg(long)]
    backend: Option<Backend>,
}

fn main() -> ExitCode {
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_target(false).with_ansi(colours);
    log.with_writer(std::io::stderr).init();
    let command = Arguments::parse().command.unwrap_or_else(|| {
        let listen = "127.0.0.1:7000".parse().expect("the default address is an address");
        Command::Echo(EchoArguments { listen, backend: None })
    });
    let Command::Echo(EchoArguments { listen, backend }) = command;
    match echo::run(&listen, backend) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("coracle: {error}");
            ExitCode::FAILURE
        }
    }
}
