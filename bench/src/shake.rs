//! How `shake` is started, and what it reports.

use std::io;
use std::path::Path;
use std::process::Stdio;

use serde::{Deserialize, Serialize};

use crate::affinity::pinned;
use crate::programs::program;
use crate::server::Server;

/// The result of one run of `shake`. Every handshake and every answer was checked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShakeReport {
    /// Connections that were made, shaken hands on, asked, and closed.
    pub handshakes: u32,
    /// Tickets the server gave out meanwhile.
    pub tickets: u64,
    /// How long that took.
    pub seconds: f64,
    /// The server's processor time meanwhile.
    pub server_cpu_seconds: f64,
    /// That of `shake`.
    pub load_cpu_seconds: f64,
}

/// Runs `shake` on `core`: so many handshakes with `server`, after a few that are not measured.
///
/// # Errors
/// When a handshake was of the wrong kind, or an answer was wrong or missing.
pub fn run(
    server: &Server,
    core: usize,
    certificate: &Path,
    resume: bool,
    count: u32,
) -> io::Result<ShakeReport> {
    let mut shake = pinned(core, &program("shake"));
    shake.args(["--connect", &server.address().to_string()]);
    shake.arg("--certificate").arg(certificate);
    shake.args(["--count", &count.to_string(), "--watch", &server.pid_list()]);
    if resume {
        shake.arg("--resume");
    }
    let output = shake.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("shake failed: {}", output.status)));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
