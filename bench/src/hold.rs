//! Idle connections: how `hold` is started, and told what to do.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::affinity::pinned;
use crate::programs::program;
use crate::request::Kind;
use crate::server::Server;

/// How long requests took, one after the other on one connection.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Half of them took at most this long, in microseconds.
    pub p50_us: f64,
    /// 99 % of them.
    pub p99_us: f64,
}

/// A process that holds connections until this is dropped.
pub struct Hold {
    process: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    open: u32,
}

impl Hold {
    /// Starts to open `connections` to `server`, from loopback addresses that begin with `first_source`.
    ///
    /// # Errors
    /// When `hold` cannot be started.
    pub fn start(
        server: &Server,
        core: usize,
        kind: Kind,
        connections: u32,
        first_source: u32,
    ) -> io::Result<Hold> {
        let mut command = pinned(core, &program("hold"));
        command.args(["--connect", &server.address().to_string(), "--server", kind.name()]);
        command.args(["--connections", &connections.to_string()]);
        command.args(["--first-source", &first_source.to_string()]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let commands = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("stdout is piped"));
        Ok(Hold { process, commands, answers, open: 0 })
    }

    /// Waits until it has opened all it can, and returns how many that are.
    ///
    /// # Errors
    /// When it has failed.
    pub fn opened(&mut self) -> io::Result<u32> {
        self.open = self.answer()?;
        Ok(self.open)
    }

    /// How long `count` requests take on a connection that is not idle.
    ///
    /// # Errors
    /// When an answer was wrong or missing.
    pub fn active(&mut self, count: u32) -> io::Result<Latency> {
        let commands = self.commands.as_mut().expect("open until dropped");
        writeln!(commands, "active {count}")?;
        self.answer()
    }

    fn answer<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // The end of its commands is the end of it.
        drop(self.commands.take());
        let _ = self.process.wait();
    }
}
