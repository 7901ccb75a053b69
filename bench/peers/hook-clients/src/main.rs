//! Blocking clients in hooked coroutines on one thread, and the echo over the sockets of std.
//!
//! ```text
//! hook-clients echo --style hook --backend uring --listen 127.0.0.1:7000
//! hook-clients answer --listen 127.0.0.1:7001                 a web server that takes its time
//! hook-clients ask http --connect 127.0.0.1:7001              how long a thousand take, and their neighbour
//! hook-clients calls                                          what libc's calls cost outside coroutines
//! ```
#![allow(unsafe_code)]

mod ask;
#[allow(dead_code, unreachable_pub)] // it is the harness's, too
#[path = "../../../src/calls.rs"]
mod calls;
mod echo;

use clap::{Parser, Subcommand, ValueEnum};
use coracle::demux::Backend;
use coracle::hook::Settings;
use std::io;
use std::net::SocketAddr;

#[derive(Parser)]
#[command(about = "Blocking clients in hooked coroutines")]
struct Arguments {
    #[command(subcommand)]
    work: Work,
}

#[derive(Subcommand)]
enum Work {
    /// Echoes.
    Echo {
        /// Over which sockets.
        #[arg(long, value_enum, default_value = "hook")]
        style: Style,
        /// The backend of the loop.
        #[arg(long, default_value = "uring")]
        backend: Backend,
        /// Where to listen.
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Answers every request, after a tenth of a second.
    Answer {
        /// Where to listen.
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Has many coroutines ask at once, and says how long that took.
    Ask {
        /// How.
        #[arg(value_enum)]
        client: ask::Client,
        /// How many.
        #[arg(long, default_value_t = 1000)]
        count: usize,
        /// The backend of the loop.
        #[arg(long, default_value = "uring")]
        backend: Backend,
        /// The server, if there is one.
        #[arg(long)]
        connect: Option<SocketAddr>,
    },
    /// What libc's calls cost outside coroutines. Prints a list of numbers.
    Calls {
        /// The hooks are enabled, and not only there.
        #[arg(long)]
        enabled: bool,
    },
}

/// Over which sockets there is an echo.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Style {
    /// Coracle's own.
    Coroutine,
    /// Those of std, hooked.
    Hook,
    /// The same without a memory for descriptors.
    Stateless,
}

fn main() -> io::Result<()> {
    match Arguments::parse().work {
        Work::Echo { style: Style::Coroutine, backend, listen } => echo::own(backend, listen),
        Work::Echo { style, backend, listen } => {
            coracle::hook::remember(style == Style::Hook);
            let settings = Settings { sending: true, ..Settings::default() };
            // SAFETY: as below; and there is no OpenSSL here.
            unsafe { coracle::hook::enable_with(settings) };
            echo::hooked(backend, listen)
        }
        Work::Answer { listen } => echo::answer(listen),
        Work::Ask { client, count, backend, connect } => {
            enable();
            let asked = ask::ask(client, count, backend, connect)?;
            println!("{}", serde_json::to_string(&asked)?);
            Ok(())
        }
        Work::Calls { enabled } => {
            if enabled {
                enable();
            }
            println!("{}", serde_json::to_string(&calls::measure()?)?);
            Ok(())
        }
    }
}

fn enable() {
    // SAFETY: coroutines that share nothing, each with a client or socket of its own.
    unsafe { coracle::hook::enable() };
}
