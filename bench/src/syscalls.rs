//! System calls per operation, by `strace`.
//!
//! The same server is traced twice, while `ping` sends a smaller and a larger number of messages. What
//! both have in common (accepting, closing, attaching) cancels out in the difference.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::candidate::Candidate;
use crate::load::{self, Amount, Place};
use crate::server::Server;

/// Messages of the two runs.
const COUNTS: [u64; 2] = [5_000, 25_000];
/// Calls below this share of an operation are left out of the break-down.
const LIMIT_SHARE: f64 = 0.001;

/// How many system calls an operation takes.
#[derive(Clone, Debug)]
pub struct Syscalls {
    /// All of them.
    pub per_operation: f64,
    /// By name, the most frequent first.
    pub by_name: Vec<(String, f64)>,
}

/// Counts the system calls of `candidate`.
///
/// # Errors
/// When strace is missing or may not attach, or the load fails.
pub fn count(
    candidate: &Candidate,
    server_core: usize,
    place: Place,
    connections: u32,
) -> io::Result<Syscalls> {
    let server = Server::start(candidate, server_core)?;
    let [low, high] = COUNTS;
    let fewer = calls(&server, place, connections, low)?;
    let more = calls(&server, place, connections, high)?;

    let mut by_name: Vec<(String, f64)> = more
        .into_iter()
        .map(|(name, calls)| {
            let before = fewer.get(&name).copied().unwrap_or(0);
            (name, (calls as f64 - before as f64) / (high - low) as f64)
        })
        .collect();
    by_name.sort_by(|a, b| b.1.total_cmp(&a.1));
    let per_operation = by_name.iter().map(|(_, calls)| calls).sum();
    by_name.retain(|(_, calls)| *calls > LIMIT_SHARE);
    Ok(Syscalls { per_operation, by_name })
}

/// The calls `server` makes while it answers `count` messages.
fn calls(
    server: &Server,
    place: Place,
    connections: u32,
    count: u64,
) -> io::Result<BTreeMap<String, u64>> {
    let table = std::env::temp_dir().join(format!("coracle-bench-strace-{}", server.pid()));
    let mut strace = Command::new("strace")
        .args(["--follow-forks", "--summary-only", "--summary-columns=calls,name", "--output"])
        .arg(&table)
        // Which of several processes does the work is not known.
        .args(server.pids().iter().flat_map(|pid| ["--attach".into(), pid.to_string()]))
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("cannot run strace: {error}")))?;
    wait_until_attached(&mut strace, server.pids().len())?;
    let report = load::run(server, place, connections, Amount::Count(count));
    let settled = server.settle();
    kill_process(Pid::from_child(&strace), Signal::INT)?;
    strace.wait()?;
    report?;
    settled?;
    let text = fs::read_to_string(&table)?;
    fs::remove_file(&table)?;
    Ok(parse(&text))
}

/// strace says "Process 123 attached" for each once it counts.
fn wait_until_attached(strace: &mut Child, processes: usize) -> io::Result<()> {
    let stderr = strace.stderr.take().expect("stderr is piped");
    let mut lines = BufReader::new(stderr).lines();
    for _ in 0..processes {
        let line = lines.next().transpose()?.unwrap_or_default();
        if !line.contains("attached") {
            return Err(io::Error::other(format!("strace cannot attach: {}", line.trim())));
        }
    }
    Ok(())
}

fn parse(table: &str) -> BTreeMap<String, u64> {
    table
        .lines()
        .filter_map(|line| {
            let (calls, name) = line.trim().split_once(' ')?;
            Some((name.trim().to_owned(), calls.parse().ok()?))
        })
        .filter(|(name, _)| name != "total")
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_of_strace_is_read() {
        let table = "    calls syscall\n--------- ----------\n      120 recvfrom\n      118 sendto\n\
                     --------- ----------\n      238 total\n";
        let calls = super::parse(table);
        assert_eq!(calls.len(), 2);
        assert_eq!(calls["sendto"], 118);
    }
}
