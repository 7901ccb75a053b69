//! How `drip` is started: thousands of clients that never come to the end of their requests.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Stdio};

use crate::affinity::pinned;
use crate::programs::program;
use crate::server::Server;

/// A running `drip`, which ends when dropped.
pub struct Drip(Child);

impl Drip {
    /// Starts it, and waits until all its connections are open.
    ///
    /// # Errors
    /// When it cannot open them.
    pub fn start(
        server: &Server,
        core: usize,
        connections: u32,
        interval: f64,
    ) -> io::Result<Drip> {
        let mut command = pinned(core, &program("drip"));
        command.args(["--connect", &server.address().to_string()]);
        command.args(["--connections", &connections.to_string()]);
        command.args(["--interval", &interval.to_string()]);
        let mut drip = Drip(command.stdout(Stdio::piped()).spawn()?);
        let mut line = String::new();
        BufReader::new(drip.0.stdout.take().expect("it is piped")).read_line(&mut line)?;
        match line.trim() == "open" {
            true => Ok(drip),
            false => Err(io::Error::other("drip has not opened its connections")),
        }
    }
}

impl Drop for Drip {
    fn drop(&mut self) {
        // Fails only when it has ended already; then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
