//! Real servers: started on a free port, in a folder of their own, ended with the case.

use crate::helping::{MS, PATIENCE, PROCESSES};
use rustix::net::{self, AddressFamily, SocketType};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

/// Somebody without privileges: some servers refuse to be run by root.
pub(crate) const NOBODY: u32 = 65534;

/// Where a program is. If it is not installed, that is said, for a case to be left out; in continuous
/// integration it is a failure.
pub(crate) fn find(program: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push("/usr/sbin".into());
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    folders.extend(versions.flatten().map(|version| version.path().join("bin")));
    let found = folders.iter().map(|folder| folder.join(program)).find(|file| file.is_file());
    if found.is_none() {
        let text = format!("{program} is not installed: apt-get install {package}");
        assert!(std::env::var_os("CI").is_none(), "{text}");
        let test = thread::current().name().unwrap_or("a case").to_owned();
        let _ = writeln!(io::stderr(), "LEFT OUT: {test}: {text}"); // past the test's own capture
    }
    found
}

pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let _ = kill_process(pid, signal);
    }
}

/// A port at which nobody listens, and nobody else will: it is taken.
pub(crate) struct Nobody {
    _socket: OwnedFd,
    pub(crate) port: u16,
}

impl Nobody {
    pub(crate) fn new() -> Nobody {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let address = net::getsockname(&socket).expect("an address");
        let port = SocketAddr::try_from(address).expect("an address").port();
        Nobody { _socket: socket, port }
    }
}

/// A port that is free at the moment.
fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    free.expect("a free port").port()
}

/// A folder that is removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("coracle-compat-{}-{count}", std::process::id()));
        std::fs::create_dir(&path).expect("a new folder");
        Folder(path)
    }

    /// For servers that root must not run: theirs.
    pub(crate) fn of_nobody() -> Folder {
        let folder = Folder::new();
        if is_root() {
            std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("a folder");
        }
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that runs.
pub(crate) struct Server {
    process: Child,
    pub(crate) port: u16,
}

impl Server {
    /// Starts `command`, with a port, until `is_up` has found it. Somebody may take the port before it does: then
    /// it is tried with another.
    pub(crate) fn start(
        command: impl Fn(u16) -> Command,
        mut is_up: impl FnMut(u16) -> bool,
    ) -> Server {
        let begin = Instant::now();
        'anew: loop {
            let port = free_port();
            let mut command = command(port);
            let name = command.get_program().to_string_lossy().into_owned();
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let process = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
            PROCESSES.lock().unwrap_or_else(PoisonError::into_inner).push(process.id());
            let mut server = Server { process, port };
            while !is_up(port) {
                assert!(begin.elapsed() < PATIENCE, "{name} does not start");
                if server.process.try_wait().expect("a child").is_some() {
                    continue 'anew;
                }
                thread::sleep(10 * MS);
            }
            return server;
        }
    }

    /// It keeps its connections, and does nothing.
    pub(crate) fn pause(&self) {
        signal(self.process.id(), Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        signal(self.process.id(), Signal::CONT);
    }

    /// Ends it, in the middle of whatever it does.
    pub(crate) fn kill(&self) {
        signal(self.process.id(), Signal::KILL);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let id = self.process.id();
        PROCESSES.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| *other != id);
    }
}
