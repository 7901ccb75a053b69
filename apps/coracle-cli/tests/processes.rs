//! `--processes`: one server that is several processes, as its users see it.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes on the busiest machine: it decides no test, it only ends those that hang.
const PATIENCE: Duration = Duration::from_secs(300);

const BACKENDS: [&str; 4] = ["uring", "epoll", "poll", "select"];

#[test]
fn it_says_once_where_it_listens_and_with_what() {
    let server = Server::start(&["echo", "--backend", "epoll", "--threads", "2"]);
    expect_echo(&mut server.connect(), b"hello");
    let address = server.address.clone();
    let port = address.rsplit_once(':').unwrap().1;
    assert_eq!(
        server.first_line,
        format!("coracle echo: listening on {address}, on epoll, 3 processes, 2 loops each\n")
    );
    let (status, rest) = server.end();
    assert!(status.success());
    assert_eq!(
        rest,
        format!("talk to it: nc 127.0.0.1 {port}; stop it: Ctrl-C\ncoracle echo: stopped\n")
    );
}

#[test]
fn no_processes_are_refused() {
    let output = coracle().args(["echo", "--processes", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("--processes"), "{text}");
}

#[test]
fn port_in_use_is_said_by_the_supervisor() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = coracle().args(["echo", "--processes", "2", "--listen", &address]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.matches(&format!("cannot listen on {address}")).count(), 1, "{text}");
    assert!(output.stdout.is_empty(), "it never listened");
}

#[test]
fn connections_are_served_by_all_processes() {
    for backend in BACKENDS {
        let server = Server::start(&["echo", "--backend", backend]);
        let workers = server.workers();
        let look =
            || -> Vec<BTreeSet<String>> { workers.iter().map(|&pid| sockets(pid)).collect() };
        let mut served = vec![0; workers.len()];
        for _ in 0..100 {
            // Several at once: a single one may always find the same process awake first.
            let mut burst: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
            burst.iter_mut().for_each(|connection| expect_echo(connection, b"hello"));
            let before = look();
            let count = burst.len();
            drop(burst);
            // What goes with the connections are the workers' ends of them.
            let gone = || -> Vec<usize> {
                before.iter().zip(look()).map(|(before, now)| (before - &now).len()).collect()
            };
            eventually("all are closed", || gone().iter().sum::<usize>() >= count);
            let gone = gone();
            if gone.iter().sum::<usize>() > count {
                continue; // a worker has closed what it has no more use for since its start
            }
            served.iter_mut().zip(gone).for_each(|(sum, gone)| *sum += gone);
            if !served.contains(&0) {
                break;
            }
        }
        assert!(!served.contains(&0), "{backend}: somebody serves nobody: {served:?}");
    }
}

#[test]
fn killed_process_is_replaced_and_service_goes_on() {
    let server = Server::start(&["echo"]);
    for _ in 0..3 {
        let workers = server.workers();
        let victim = *workers.first().unwrap();
        signal(victim, Signal::KILL);
        expect_echo(&mut server.connect(), b"hello");
        eventually("another is started", || {
            let now = server.workers();
            now.len() == workers.len() && !now.contains(&victim)
        });
        expect_echo(&mut server.connect(), b"hello");
    }
}

#[test]
fn hang_up_replaces_all_and_refuses_nobody() {
    for backend in BACKENDS {
        let server = Server::start(&["chargen", "--backend", backend]);
        let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::SeqCst) {
                        let mut line = [0; 74];
                        let mut stream = server.connect();
                        stream.read_exact(&mut line).expect("served, not reset");
                        assert!(line.ends_with(b"\r\n"));
                        served.fetch_add(1, Ordering::SeqCst);
                        thread::sleep(Duration::from_millis(1)); // light
                    }
                });
            }
            let mut workers = server.workers();
            for _ in 0..3 {
                let target = served.load(Ordering::SeqCst) + 10;
                eventually("a load", || served.load(Ordering::SeqCst) >= target);
                server.signal(Signal::HUP);
                eventually("all are replaced", || {
                    let now = server.workers();
                    now.len() == workers.len() && now.is_disjoint(&workers)
                });
                workers = server.workers();
            }
            over.store(true, Ordering::SeqCst);
        });
        let (status, _) = server.end();
        assert!(status.success(), "{backend}");
    }
}

#[test]
fn request_to_end_leaves_no_process_and_no_file() {
    for request in [Signal::TERM, Signal::INT] {
        let file = Temporary::new(&format!("processes-{request:?}"));
        let listen = format!("unix:{}", file.0.display());
        let server = Server::start(&["echo", "--listen", &listen]);
        let workers = server.workers();
        let mut connection = UnixStream::connect(&file.0).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        expect_echo(&mut connection, b"hello");
        signal(*workers.first().unwrap(), Signal::KILL);
        eventually("another is started", || {
            let now = server.workers();
            now.len() == workers.len() && now != workers
        });
        assert!(file.0.exists(), "a worker has removed it");
        drop(connection);
        let workers = server.workers();
        let (status, _) = server.end_by(request);
        assert!(status.success());
        assert!(workers.iter().all(|&pid| is_gone(pid)));
        assert!(!file.0.exists());
    }
}

#[test]
fn killed_supervisor_takes_all_along() {
    let server = Server::start(&["echo"]);
    let workers = server.workers();
    let address = server.address.clone();
    let (status, rest) = server.end_by(Signal::KILL); // its output ends when nobody can write to it any more
    assert!(!status.success());
    assert!(!rest.contains("stopped"));
    eventually("the workers are gone", || workers.iter().all(|&pid| is_gone(pid)));
    TcpStream::connect(&address).expect_err("nobody listens");
}

#[test]
fn daemon_has_workers_of_its_own() {
    let (socket, pid_file) = (Temporary::new("daemon-socket"), Temporary::new("daemon-pid"));
    let listen = format!("unix:{}", socket.0.display());
    let status = coracle()
        .args(["time", "--processes", "2", "--listen", &listen, "--daemon", "--pid-file"])
        .arg(&pid_file.0)
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    let read = || fs::read_to_string(&pid_file.0).ok()?.trim().parse::<u32>().ok();
    eventually("a daemon", || read().is_some_and(|pid| workers_of(pid).len() == 2));
    let daemon = read().unwrap();
    let workers = workers_of(daemon);
    let mut connection = UnixStream::connect(&socket.0).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection.write_all(b"what is the time?").unwrap();
    assert_ne!(connection.read(&mut [0; 100]).unwrap(), 0, "it is answered");
    drop(connection);
    signal(daemon, Signal::TERM);
    eventually("it is gone", || is_gone(daemon) && workers.iter().all(|&pid| is_gone(pid)));
    assert!(!pid_file.0.exists() && !socket.0.exists());
}

// --- The program ---------------------------------------------------------------------------------------

/// A server of three processes.
struct Server {
    process: Child,
    stdout: BufReader<ChildStdout>,
    first_line: String,
    address: String,
}

fn coracle() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coracle"));
    command.env_remove("CORACLE_BACKEND");
    command
}

impl Server {
    /// On a free port, unless `arguments` say where; serving.
    fn start(arguments: &[&str]) -> Server {
        let mut command = coracle();
        command.args(arguments).args(["--processes", "3", "--log", "warn"]);
        if !arguments.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut first_line = String::new();
        stdout.read_line(&mut first_line).unwrap();
        let told = first_line.split_once("listening on ").expect("it listens").1;
        let address = told.split_once(", on ").expect("a backend").0.to_owned();
        Server { process, stdout, first_line, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn signal(&self, what: Signal) {
        signal(self.process.id(), what);
    }

    fn workers(&self) -> BTreeSet<u32> {
        workers_of(self.process.id())
    }

    fn end(self) -> (ExitStatus, String) {
        self.end_by(Signal::TERM)
    }

    /// How it ended, and what it said after its first line.
    fn end_by(mut self, what: Signal) -> (ExitStatus, String) {
        self.signal(what);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (self.process.wait().unwrap(), rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The processes that a process has started and not yet buried.
fn workers_of(pid: u32) -> BTreeSet<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// The sockets of a process, by the numbers of their inodes.
fn sockets(pid: u32) -> BTreeSet<String> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let number = |target: PathBuf| {
        let number = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        Some(number.to_owned())
    };
    targets.filter_map(number).collect()
}

/// Whether a process has ended, even if nobody has buried it.
fn is_gone(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Err(_) => true,
        Ok(stat) => stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X'])),
    }
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).expect("it runs");
}

fn expect_echo(stream: &mut (impl Read + Write), bytes: &[u8]) {
    stream.write_all(bytes).expect("send");
    let mut echo = vec![0; bytes.len()];
    stream.read_exact(&mut echo).expect("an echo");
    assert_eq!(echo, bytes);
}

/// Waits for something that comes about soon, unless it never does.
fn eventually(what: &str, reached: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A path that nobody else uses, and that is removed in the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Temporary {
        let name = format!("coracle-{}-{}", std::process::id(), name.replace(['(', ')'], ""));
        Temporary(std::env::temp_dir().join(name))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let path: &Path = &self.0;
        let _ = fs::remove_file(path);
    }
}
