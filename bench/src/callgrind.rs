//! User-mode instructions per operation, by callgrind: a second opinion on `steps`.
//!
//! It cannot be used on io_uring. Valgrind 3.19 runs such programs, but does not know that
//! `io_uring_enter` may wait, and nothing ends valgrind while the program waits there.

use std::io::{self, Read};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::affinity::pinned;
use crate::candidate::Candidate;
use crate::load::{self, Amount, Place};
use crate::server::Server;

/// Messages of the two runs; what they have in common cancels out.
const COUNTS: [u64; 2] = [2_000, 12_000];

/// Counts the instructions of `candidate`, which must not use io_uring.
///
/// # Errors
/// When valgrind is missing, or the load fails.
pub fn count(
    candidate: &Candidate,
    server_core: usize,
    load_core: usize,
    connections: u32,
) -> io::Result<f64> {
    let [low, high] = COUNTS;
    let fewer = collected(candidate, server_core, load_core, connections, low)?;
    let more = collected(candidate, server_core, load_core, connections, high)?;
    Ok((more as f64 - fewer as f64) / (high - low) as f64)
}

fn collected(
    candidate: &Candidate,
    server_core: usize,
    load_core: usize,
    connections: u32,
    count: u64,
) -> io::Result<u64> {
    let mut command: Command = pinned(server_core, "valgrind".as_ref());
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(&candidate.program).args(&candidate.arguments).stderr(Stdio::piped());
    let mut server = Server::start_command(&mut command, candidate.name)?;
    load::run(&server, Place::Core(load_core), connections, Amount::Count(count))?;
    server.settle()?;
    kill_process(Pid::from_child(server.process()), Signal::TERM)?;
    server.process().wait()?;
    let mut text = String::new();
    server.process().stderr.take().expect("stderr is piped").read_to_string(&mut text)?;
    text.lines()
        .find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
        .ok_or_else(|| io::Error::other("callgrind has not said what it collected"))
}
