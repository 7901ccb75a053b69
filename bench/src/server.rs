//! A candidate that is running: started on its core, listening, and ended when dropped.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::affinity::pinned;
use crate::candidate::Candidate;
use crate::cpu_clock::cpu_time;

/// A server has to listen within this time (valgrind is slow to start).
const LIMIT_START: Duration = Duration::from_secs(20);

/// A server rests when it has used next to nothing for this long: some wake up now and then for ever.
const QUIET: Duration = Duration::from_millis(20);
/// Next to nothing.
const QUIET_CPU: Duration = Duration::from_micros(100);

/// A running server.
pub struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts `candidate` on `core` and waits until it accepts connections.
    ///
    /// # Errors
    /// When it ends or does not listen in time.
    pub fn start(candidate: &Candidate, core: usize) -> io::Result<Server> {
        let mut command = pinned(core, &candidate.program);
        Server::start_command(command.args(&candidate.arguments), candidate.name)
    }

    /// Starts `command` with `--listen ADDRESS` added to it.
    ///
    /// # Errors
    /// When it ends or does not listen in time.
    pub fn start_command(command: &mut Command, name: &str) -> io::Result<Server> {
        let address = free_address()?;
        command.args(["--listen", &address.to_string()]);
        let process = command.stdout(Stdio::null()).spawn()?;
        let mut server = Server { process, address };
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = server.process.try_wait()? {
                return Err(io::Error::other(format!("{name} ended at its start: {status}")));
            }
            if start.elapsed() > LIMIT_START {
                return Err(io::Error::other(format!("{name} does not listen on {address}")));
            }
            thread::sleep(Duration::from_millis(5));
        }
        // The kernel accepts for it as soon as it listens; its own start may take longer.
        server.settle()?;
        Ok(server)
    }

    /// Waits until the server waits: it sleeps and has used hardly any processor time for a while.
    ///
    /// # Errors
    /// When it has ended, or never comes to rest.
    pub fn settle(&self) -> io::Result<()> {
        let start = Instant::now();
        let mut used = cpu_time(self.pid())?;
        while start.elapsed() < LIMIT_START {
            thread::sleep(QUIET);
            let now = cpu_time(self.pid())?;
            if now - used < QUIET_CPU && self.sleeps()? {
                return Ok(());
            }
            used = now;
        }
        Err(io::Error::other(format!("the server on {} does not come to rest", self.address)))
    }

    fn sleeps(&self) -> io::Result<bool> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        // The name, in parentheses, may hold anything; the state follows it.
        Ok(stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The process itself, for those who end it in their own way.
    pub fn process(&mut self) -> &mut Child {
        &mut self.process
    }

    /// The most memory it has had resident so far, in bytes.
    ///
    /// # Errors
    /// When it has ended.
    pub fn peak_resident_bytes(&self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let kilobytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok())
            .ok_or_else(|| io::Error::other("no VmHWM in /proc"))?;
        Ok(kilobytes * 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only when it has ended already; then there is nothing to do.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A loopback address nobody listens on at the moment.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
