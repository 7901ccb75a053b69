//! A candidate that is running: started on its cores, listening, and ended when dropped.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::affinity::pinned_to;
use crate::candidate::Candidate;
use crate::cpu_clock::cpu_time_of;
use crate::family::family;

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
    /// The process, and those it has started.
    pids: Vec<u32>,
    /// Where its configuration is, if it has one.
    directory: Option<PathBuf>,
}

impl Server {
    /// Starts `candidate` on `core` and waits until it accepts connections.
    ///
    /// # Errors
    /// When it ends or does not listen in time.
    pub fn start(candidate: &Candidate, core: usize) -> io::Result<Server> {
        Server::start_on(candidate, &[core])
    }

    /// Starts `candidate` on several cores.
    ///
    /// # Errors
    /// When it ends or does not listen in time.
    pub fn start_on(candidate: &Candidate, cores: &[usize]) -> io::Result<Server> {
        let mut command = pinned_to(cores, &candidate.program);
        command.args(&candidate.arguments);
        let Some(config) = &candidate.config else {
            return Server::start_command(&mut command, candidate.name);
        };
        let address = free_address()?;
        let directory = std::env::temp_dir().join(format!("coracle-bench-{}", address.port()));
        fs::create_dir_all(&directory)?;
        let text = config.text.replace("LISTEN", &address.to_string());
        let text = text.replace("DIRECTORY", &directory.to_string_lossy());
        let file = directory.join("config");
        fs::write(&file, text)?;
        Server::spawn(
            command.arg(config.option).arg(file),
            candidate.name,
            address,
            Some(directory),
        )
    }

    /// Starts `command` with `--listen ADDRESS` added to it.
    ///
    /// # Errors
    /// When it ends or does not listen in time.
    pub fn start_command(command: &mut Command, name: &str) -> io::Result<Server> {
        let address = free_address()?;
        Server::spawn(command.args(["--listen", &address.to_string()]), name, address, None)
    }

    /// Starts `command`, which has been told to listen at `address` in its own words.
    ///
    /// # Errors
    /// When it ends or does not listen in time.
    pub fn start_at(command: &mut Command, name: &str, address: SocketAddr) -> io::Result<Server> {
        Server::spawn(command, name, address, None)
    }

    fn spawn(
        command: &mut Command,
        name: &str,
        address: SocketAddr,
        directory: Option<PathBuf>,
    ) -> io::Result<Server> {
        let process = command.stdout(Stdio::null()).spawn()?;
        let mut server = Server { pids: vec![process.id()], process, address, directory };
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
        server.pids = family(server.pid())?;
        Ok(server)
    }

    /// Waits until the server waits: it sleeps and has used hardly any processor time for a while.
    ///
    /// # Errors
    /// When it has ended, or never comes to rest.
    pub fn settle(&self) -> io::Result<()> {
        let start = Instant::now();
        let mut used = self.cpu_time()?;
        while start.elapsed() < LIMIT_START {
            thread::sleep(QUIET);
            let now = self.cpu_time()?;
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

    /// Its process id, and those of the processes it had started when it was ready.
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// The same, for a command line.
    pub fn pid_list(&self) -> String {
        self.pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }

    /// Processor time that all of them have used.
    ///
    /// # Errors
    /// When one of them has ended.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        cpu_time_of(&self.pids)
    }

    /// The process itself, for those who end it in their own way.
    pub fn process(&mut self) -> &mut Child {
        &mut self.process
    }

    /// The most memory it has had resident so far, in MiB; of several processes, the first.
    ///
    /// # Errors
    /// When it has ended.
    pub fn peak_mebibytes(&self) -> io::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let kilobytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u32>().ok())
            .ok_or_else(|| io::Error::other("no VmHWM in /proc"))?;
        Ok(f64::from(kilobytes) / 1024.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only when it has ended already; then there is nothing to do.
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Its children are ours now, if we are a subreaper; what they have used counts once we have waited.
        for child in self.pids[1..].iter().filter_map(|&pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(child, Signal::KILL);
            let _ = waitpid(Some(child), WaitOptions::empty());
        }
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

/// A loopback address nobody listens on at the moment.
///
/// # Errors
/// When there is none.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// The same for the server behind a proxy. An address of its own: no connection to 127.0.0.1 takes its port.
///
/// # Errors
/// When there is none.
pub fn free_address_behind() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), 0))?.local_addr()
}
