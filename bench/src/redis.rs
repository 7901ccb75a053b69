//! A Redis of our own, for as long as a measurement takes.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::affinity::pinned;
use crate::server::free_address;

/// It has to listen within this time.
const LIMIT_START: Duration = Duration::from_secs(20);

/// A running Redis, which keeps nothing.
pub struct Redis {
    process: Child,
    address: SocketAddr,
}

impl Redis {
    /// Where Debian has it, if it is installed.
    pub fn program() -> Option<PathBuf> {
        let program = PathBuf::from("/usr/bin/redis-server");
        program.exists().then_some(program)
    }

    /// Starts it on `core`.
    ///
    /// # Errors
    /// When it ends or does not listen in time.
    pub fn start(program: &Path, core: usize) -> io::Result<Redis> {
        let address = free_address()?;
        let mut command = pinned(core, program);
        command.args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()]);
        command.args(["--save", "", "--appendonly", "no", "--tcp-backlog", "4096"]);
        // It looks at the clock so many times a second: with the default of 10, 10 ms are 100.
        command.args(["--hz", "500", "--dynamic-hz", "no"]);
        let process = command.stdout(Stdio::null()).spawn()?;
        let mut redis = Redis { process, address };
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = redis.process.try_wait()? {
                return Err(io::Error::other(format!("redis-server ended at its start: {status}")));
            }
            if start.elapsed() > LIMIT_START {
                return Err(io::Error::other("redis-server does not listen"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(redis)
    }

    /// How its clients find it.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }
}

impl Drop for Redis {
    /// Waited for, so that what it has used counts as ours and not as noise.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
