//! The load: how `ping` is started, and what it reports.

use std::io;
use std::net::SocketAddr;
use std::process::{ExitCode, Stdio};

use serde::{Deserialize, Serialize};

use crate::affinity::pinned;
use crate::ask::{self, Question};
use crate::programs::program;
use crate::server::Server;

/// Ends a load: prints its report as the line of JSON that its starter reads, or what went wrong.
pub fn tell<R: Serialize>(program: &str, report: io::Result<R>) -> ExitCode {
    match report {
        Ok(report) => {
            println!("{}", serde_json::to_string(&report).expect("a report is plain numbers"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How much to send.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// As much as possible, measured for a time after a warm-up, both in seconds.
    Time {
        /// Not measured.
        warmup: f64,
        /// Measured.
        seconds: f64,
    },
    /// Exactly so many messages.
    Count(u64),
}

/// Where the load runs, and how it goes about it.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// On a core of its own, always busy: as many operations as the server can serve.
    Core(usize),
    /// On the server's core, in turns with it: nothing happens at the same time.
    Lockstep(usize),
    /// On a core of the server's, which stands still while the load sends; the load sleeps while it serves.
    Burst(usize),
    /// On a core of its own, always busy, asking a web server for a short page (`ask`).
    Web(usize),
    /// On a core of its own, always busy, and also the server at this address, behind a proxy.
    BothEnds(usize, SocketAddr),
    /// The same with a reverse proxy of HTTP (`ask`).
    WebBothEnds(usize, SocketAddr),
}

/// The result of one run of `ping`. Every answer counted here was compared with what was sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadReport {
    /// Connections that were kept busy.
    pub connections: usize,
    /// Bytes of each message.
    pub bytes: usize,
    /// Messages answered in the measured time.
    pub operations: u64,
    /// The measured time, without the warm-up.
    pub seconds: f64,
    /// Operations per second; of bursts, while they were answered.
    pub ops_per_second: f64,
    /// Half of the sampled answers took at most this long, in microseconds.
    pub p50_us: f64,
    /// 99 % of them.
    pub p99_us: f64,
    /// 99.9 % of them.
    pub p999_us: f64,
    /// The slowest of them.
    pub max_us: f64,
    /// Wrong or missing answers. Any ends the run, so a finished report says 0.
    pub errors: u64,
    /// The generator's own processor time in the measured time.
    pub load_cpu_seconds: f64,
    /// That of the processes `ping` was told to watch.
    pub server_cpu_seconds: f64,
}

impl LoadReport {
    /// What the works that use `ping` show: CPU µs per operation, operations a second, how busy the server and the
    /// load were (in per cent), and three quantiles of the latency.
    pub fn figures(&self) -> [f64; 7] {
        [
            self.server_cpu_seconds / self.operations as f64 * 1e6,
            self.ops_per_second,
            self.server_cpu_seconds / self.seconds * 100.0,
            self.load_cpu_seconds / self.seconds * 100.0,
            self.p50_us,
            self.p99_us,
            self.p999_us,
        ]
    }
}

/// Runs `ping` at `place` against `server` and returns its report.
///
/// # Errors
/// When a wrong byte came back, an answer was missing, or the time limit was reached.
pub fn run(
    server: &Server,
    place: Place,
    connections: u32,
    amount: Amount,
) -> io::Result<LoadReport> {
    let core = match place {
        Place::Web(core) => {
            return ask::run(server, core, connections, &Question::hello(1), amount);
        }
        Place::WebBothEnds(core, behind) => {
            return ask::through(server, core, behind, connections, amount);
        }
        Place::Core(core)
        | Place::Lockstep(core)
        | Place::Burst(core)
        | Place::BothEnds(core, _) => core,
    };
    let mut ping = pinned(core, &program("ping"));
    match place {
        Place::Core(_) | Place::Web(_) | Place::WebBothEnds(..) => {}
        Place::Lockstep(_) => {
            ping.arg("--lockstep");
        }
        Place::Burst(_) => {
            ping.args(["--lockstep", "--burst"]);
        }
        Place::BothEnds(_, address) => {
            ping.args(["--serve", &address.to_string()]);
        }
    }
    ping.args(["--connect", &server.address().to_string()]);
    ping.args(["--connections", &connections.to_string()]);
    ping.args(["--watch", &server.pid_list()]);
    match amount {
        Amount::Time { warmup, seconds } => {
            ping.args(["--warmup", &warmup.to_string(), "--seconds", &seconds.to_string()])
        }
        Amount::Count(count) => ping.args(["--count", &count.to_string()]),
    };
    let output = ping.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("ping failed: {}", output.status)));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
