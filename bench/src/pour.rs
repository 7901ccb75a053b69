//! How `pour` is started: a large answer over TLS, again and again.

use std::io;
use std::path::Path;
use std::process::Stdio;

use crate::affinity::pinned;
use crate::load::LoadReport;
use crate::programs::program;
use crate::server::Server;

/// What is asked for, and for how long.
#[derive(Clone, Debug)]
pub struct Pouring<'a> {
    /// The server's certificate (PEM).
    pub certificate: &'a Path,
    /// The path.
    pub path: &'a str,
    /// The length that the body of an answer must have.
    pub body_bytes: u64,
    /// Connections, each with one request at a time.
    pub connections: u32,
    /// Time that is not measured, in seconds.
    pub warmup: f64,
    /// Time that is.
    pub seconds: f64,
}

/// Runs `pour` on `core` against `server` and returns its report, in which an operation is a byte.
///
/// # Errors
/// When a byte was wrong, or nothing came for long.
pub fn run(server: &Server, core: usize, pouring: &Pouring<'_>) -> io::Result<LoadReport> {
    let mut pour = pinned(core, &program("pour"));
    pour.args(["--connect", &server.address().to_string(), "--path", pouring.path]);
    pour.arg("--certificate").arg(pouring.certificate);
    pour.args(["--body-bytes", &pouring.body_bytes.to_string()]);
    pour.args(["--connections", &pouring.connections.to_string(), "--watch", &server.pid_list()]);
    pour.args(["--warmup", &pouring.warmup.to_string()]);
    pour.args(["--seconds", &pouring.seconds.to_string()]);
    let output = pour.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("pour failed: {}", output.status)));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
