//! How `crowd` is started: subscribers of a room, and somebody who publishes to it.

use std::io;
use std::process::Stdio;

use serde::{Deserialize, Serialize};

use crate::affinity::pinned;
use crate::load::LoadReport;
use crate::programs::program;
use crate::server::Server;

/// What the server says to a subscriber that is in the room.
pub const WELCOME: &[u8] = b"welcome";

/// The crowd, and what is published.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// WebSockets that are told everything.
    pub subscribers: u32,
    /// The length of a message.
    pub bytes: u32,
    /// Messages that are published before the first of them has reached everybody.
    pub in_flight: u32,
    /// Time that is not measured, in seconds.
    pub warmup: f64,
    /// Time that is.
    pub seconds: f64,
}

/// The result of one run of `crowd`. Everybody was told everything, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CrowdReport {
    /// Messages that have reached everybody.
    pub messages: u64,
    /// An operation is a message that has reached one.
    pub deliveries: LoadReport,
}

/// Runs `crowd` on `core` against `server`.
///
/// # Errors
/// Somebody was told something wrong, or nothing for long.
pub fn run(server: &Server, core: usize, crowd: &Crowd) -> io::Result<CrowdReport> {
    let mut command = pinned(core, &program("crowd"));
    command.args(["--connect", &server.address().to_string(), "--watch", &server.pid_list()]);
    command.args(["--subscribers", &crowd.subscribers.to_string()]);
    command.args(["--bytes", &crowd.bytes.to_string()]);
    command.args(["--in-flight", &crowd.in_flight.to_string()]);
    command.args(["--warmup", &crowd.warmup.to_string()]);
    command.args(["--seconds", &crowd.seconds.to_string()]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("crowd failed: {}", output.status)));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
