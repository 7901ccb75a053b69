//! What an operation consists of: system calls and user-mode instructions, which no noise can change.

use std::io;
use std::process::Stdio;

use crate::affinity::pinned;
use crate::callgrind;
use crate::candidate::Candidate;
use crate::load::Place;
use crate::options::Options;
use crate::programs::program;
use crate::report::Report;
use crate::request::Kind;
use crate::server::Server;
use crate::single_step::StepsReport;
use crate::syscalls::{self, Syscalls};
use crate::table::Table;

/// What one operation of a candidate consists of.
pub struct Counted {
    name: &'static str,
    connections: u32,
    syscalls: Syscalls,
    instructions: f64,
    callgrind: Option<f64>,
}

/// Counts for each candidate with each of these numbers of connections, but 0. Who cannot be counted is noted in
/// `skipped`.
pub fn count_all(
    options: &Options,
    candidates: &[Candidate],
    place: Place,
    connections: &[u32],
    callgrind: bool,
    skipped: &mut Vec<String>,
) -> Vec<Counted> {
    let mut counted = Vec::new();
    for &connections in connections.iter().filter(|&&connections| connections > 0) {
        for candidate in candidates {
            match count(options, candidate, place, connections, callgrind) {
                Ok(counts) => counted.push(counts),
                Err(error) => {
                    let text = format!("{} ({connections}) not counted: {error}", candidate.name);
                    skipped.push(text);
                }
            }
        }
    }
    counted
}

/// Counts for one candidate, with so many connections; by callgrind too, if it is asked for and possible.
///
/// # Errors
/// When a tool is missing, or the load fails.
pub fn count(
    options: &Options,
    candidate: &Candidate,
    place: Place,
    connections: u32,
    callgrind: bool,
) -> io::Result<Counted> {
    let server_core = options.server_core;
    let syscalls = syscalls::count(candidate, server_core, place, connections)?;
    let instructions = steps(options, candidate, place, connections)?;
    let callgrind = (callgrind && !candidate.name.ends_with("uring"))
        .then(|| callgrind::count(candidate, server_core, options.load_core, connections))
        .transpose()?;
    eprintln!(
        "{} takes {:.3} system calls and {instructions:.0} instructions",
        candidate.name, syscalls.per_operation
    );
    Ok(Counted { name: candidate.name, connections, syscalls, instructions, callgrind })
}

/// Runs `steps`, on the server's core: tracer and traced take turns anyway.
fn steps(
    options: &Options,
    candidate: &Candidate,
    place: Place,
    connections: u32,
) -> io::Result<f64> {
    let mut more = vec!["--connections".to_owned(), connections.to_string()];
    if let Place::BothEnds(_, address) | Place::WebBothEnds(_, address) = place {
        more.extend(["--serve".to_owned(), address.to_string()]);
    }
    // Stepping is slow: an operation is two messages, or reads and writes two heads of each.
    match place {
        Place::BothEnds(..) => {
            more.extend(["--warmup", "300", "--count", "1000"].map(str::to_owned))
        }
        Place::WebBothEnds(..) => {
            // As many on each connection.
            let count = (3 * connections).to_string();
            more.extend(
                ["--warmup", &connections.to_string(), "--count", &count].map(str::to_owned),
            );
        }
        _ => {}
    }
    if let Place::Web(_) | Place::WebBothEnds(..) = place {
        more.push("--web".to_owned());
    }
    run_steps(options, candidate, &more)
}

/// User-mode instructions for a short connection: accepted, asked, answered, closed.
///
/// # Errors
/// When the load fails.
pub fn per_connection(options: &Options, candidate: &Candidate, kind: Kind) -> io::Result<f64> {
    let more = ["--knock", kind.name(), "--warmup", "20", "--count", "80"];
    run_steps(options, candidate, &more.map(str::to_owned))
}

fn run_steps(options: &Options, candidate: &Candidate, more: &[String]) -> io::Result<f64> {
    let server = Server::start(candidate, options.server_core)?;
    let mut steps = pinned(options.server_core, &program("steps"));
    // If it is several processes, the last one does the work.
    let pid = server.pids().last().expect("there is one at least");
    steps.args(["--pid", &pid.to_string(), "--connect", &server.address().to_string()]);
    steps.args(["--load-core", &options.load_core.to_string()]).args(more);
    let output = steps.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("steps failed: {}", output.status)));
    }
    let report: StepsReport = serde_json::from_slice(&output.stdout)?;
    Ok(report.instructions_per_operation)
}

/// Adds a table of them to a report for each number of connections, if there are any.
pub fn report(report: &mut Report, counted: &[Counted]) {
    if counted.is_empty() {
        return;
    }
    report.heading("What an operation consists of");
    report.add(
        "System calls by `strace`: the difference of two runs with different numbers of operations, so that \
         start, accept and close do not count. User-mode instructions by single-stepping (`steps`), from one \
         moment at which all is answered to another, on the same connections.",
    );
    for counted in counted.chunk_by(|one, next| one.connections == next.connections) {
        report.add(&table(counted));
    }
}

fn table(counted: &[Counted]) -> String {
    let connections = match counted {
        [first, ..] => format!("{} connections", first.connections),
        [] => String::new(),
    };
    let headings =
        [&*connections, "system calls", "which", "instructions", "instructions (callgrind)"];
    let mut table = Table::new(&headings);
    for row in counted {
        let by_name = row.syscalls.by_name.iter();
        let which: Vec<String> =
            by_name.map(|(name, calls)| format!("{name} {calls:.3}")).collect();
        table.row(&[
            row.name.to_owned(),
            format!("{:.3}", row.syscalls.per_operation),
            which.join(", "),
            format!("{:.0}", row.instructions),
            row.callgrind.map_or("–".into(), |instructions| format!("{instructions:.0}")),
        ]);
    }
    table.markdown()
}
