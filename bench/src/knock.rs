//! How `knock` is started, and what it reports.

use std::io;
use std::process::Stdio;

use serde::{Deserialize, Serialize};

use crate::affinity::pinned;
use crate::programs::program;
use crate::request::Kind;
use crate::server::Server;

/// The result of one run of `knock`. Every answer was checked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KnockReport {
    /// Connections that were made, asked, and closed.
    pub connections: u32,
    /// How long that took.
    pub seconds: f64,
    /// The server's processor time meanwhile.
    pub server_cpu_seconds: f64,
    /// That of `knock`.
    pub load_cpu_seconds: f64,
}

/// Runs `knock` on `core`: `count` connections to `server`, after a few that are not measured.
///
/// # Errors
/// When an answer was wrong or missing.
pub fn run(server: &Server, core: usize, kind: Kind, count: u32) -> io::Result<KnockReport> {
    let mut knock = pinned(core, &program("knock"));
    knock.args(["--connect", &server.address().to_string(), "--server", kind.name()]);
    knock.args(["--count", &count.to_string(), "--watch", &server.pid_list()]);
    let output = knock.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("knock failed: {}", output.status)));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
