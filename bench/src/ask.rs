//! How `ask` is started, and what it is to ask for.

use std::io;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use crate::affinity::pinned;
use crate::load::{Amount, LoadReport};
use crate::programs::program;
use crate::server::Server;

/// What is asked for, and how.
#[derive(Clone, Debug)]
pub struct Question {
    /// The path.
    pub path: String,
    /// So many requests go out together on each connection, and the next when all are answered.
    pub pipelined: u32,
    /// The length that the body of an answer must have.
    pub body_bytes: u64,
}

impl Question {
    /// The short page of 13 bytes.
    pub fn hello(pipelined: u32) -> Question {
        Question { path: "/".into(), pipelined, body_bytes: 13 }
    }
}

/// One request, as `ask` writes it.
pub fn request(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n").into_bytes()
}

/// Runs `ask` on `core` against `server` and returns its report.
///
/// # Errors
/// When an answer was wrong or missing, or the time limit was reached.
pub fn run(
    server: &Server,
    core: usize,
    connections: u32,
    question: &Question,
    amount: Amount,
) -> io::Result<LoadReport> {
    start(pinned(core, &program("ask")), server, connections, question, amount)
}

/// The same through a proxy, whose server behind it is `ask` as well, at this address: for the short page.
///
/// # Errors
/// Likewise.
pub fn through(
    proxy: &Server,
    core: usize,
    behind: SocketAddr,
    connections: u32,
    amount: Amount,
) -> io::Result<LoadReport> {
    let mut ask = pinned(core, &program("ask"));
    ask.args(["--serve", &behind.to_string()]);
    start(ask, proxy, connections, &Question::hello(1), amount)
}

/// The same in bursts, on a core of the server's: it stands still while they are sent.
///
/// # Errors
/// Likewise.
pub fn burst(
    server: &Server,
    core: usize,
    connections: u32,
    question: &Question,
    amount: Amount,
) -> io::Result<LoadReport> {
    let mut ask = pinned(core, &program("ask"));
    ask.arg("--burst");
    start(ask, server, connections, question, amount)
}

fn start(
    mut ask: Command,
    server: &Server,
    connections: u32,
    question: &Question,
    amount: Amount,
) -> io::Result<LoadReport> {
    ask.args(["--connect", &server.address().to_string(), "--path", &question.path]);
    ask.args(["--pipelined", &question.pipelined.to_string()]);
    ask.args(["--body-bytes", &question.body_bytes.to_string()]);
    ask.args(["--connections", &connections.to_string(), "--watch", &server.pid_list()]);
    match amount {
        Amount::Time { warmup, seconds } => {
            ask.args(["--warmup", &warmup.to_string(), "--seconds", &seconds.to_string()])
        }
        Amount::Count(count) => ask.args(["--count", &count.to_string()]),
    };
    let output = ask.stderr(Stdio::piped()).output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    eprint!("{words}");
    if !output.status.success() {
        // What it says of the server may be the result.
        let last = words.lines().last().and_then(|line| line.strip_prefix("ask: "));
        let why = last.map_or_else(|| format!("ask failed: {}", output.status), str::to_owned);
        return Err(io::Error::other(why));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
