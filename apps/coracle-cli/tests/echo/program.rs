//! The program under test: started, talked to, looked at from outside, and ended.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::LazyLock;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longer than anything takes on the busiest machine: it decides no test, it only ends those that hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// The same program of several kinds, which are tested alike.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) backend: &'static str,
    pub(crate) style: &'static str,
}

impl Kind {
    /// Where the kind does not matter.
    pub(crate) const EPOLL: Kind = Kind { backend: "epoll", style: "callback" };

    /// What the command line has to say for it.
    pub(crate) fn options(self) -> Vec<&'static str> {
        let mut options = vec!["--backend", self.backend];
        if self.style != "callback" {
            options.extend(["--style", self.style]);
        }
        options
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.style, self.backend)
    }
}

/// A server of the program, running.
pub(crate) struct Program {
    process: Child,
    /// Where it listens: `127.0.0.1:40000`, `unix:/path`.
    pub(crate) address: String,
    /// On which backend, as it says itself.
    pub(crate) backend: String,
    /// How many loops, and in which style, likewise: `2 loops`, `2 loops, in coroutines`.
    pub(crate) loops: String,
    stdout: BufReader<ChildStdout>,
    stderr: Option<JoinHandle<String>>,
}

/// The program.
pub(crate) fn coracle() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coracle"));
    command.env_remove("CORACLE_BACKEND");
    command
}

/// The program as an echo server on a free port.
pub(crate) fn echo(kind: Kind) -> Command {
    service("echo", kind)
}

/// The program as a server of another kind, likewise.
pub(crate) fn service(name: &str, kind: Kind) -> Command {
    let mut command = coracle();
    command.args([name, "--listen", "127.0.0.1:0"]).args(kind.options());
    command
}

/// Runs what is to end by itself, and gives back how it did.
pub(crate) fn run_to_the_end(command: &mut Command) -> Output {
    let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = process.spawn().expect("the program starts");
    let deadline = Instant::now() + PATIENCE;
    while process.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            process.kill().unwrap();
            panic!("it does not end: {:?}", process.wait_with_output());
        }
        thread::sleep(Duration::from_millis(5));
    }
    process.wait_with_output().unwrap()
}

/// Puts `program`, with its arguments and environment, behind another one's arguments.
pub(crate) fn under(mut other: Command, program: &Command) -> Command {
    other.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

impl Program {
    /// An echo server on a free port, of a kind that has to be there.
    pub(crate) fn start(kind: Kind) -> Program {
        Program::run_on(kind, echo(kind))
    }

    /// Started by `command`, which names a kind that has to be there, and listening.
    pub(crate) fn run_on(kind: Kind, command: Command) -> Program {
        let program = Program::run(command);
        let backend = if kind.backend == "uring" { "io_uring" } else { kind.backend };
        assert_eq!(program.backend, backend);
        let told = program.loops.split_once(", in ").map_or("callback", |(_, style)| style);
        assert!(told.starts_with(kind.style), "{told}"); // `hooked coroutines` is `hook`
        program
    }

    /// Started by `command`, and listening.
    pub(crate) fn run(mut command: Command) -> Program {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut errors = process.stderr.take().unwrap();
        let stderr = thread::spawn(move || {
            let mut text = Vec::new();
            errors.read_to_end(&mut text).unwrap();
            String::from_utf8_lossy(&text).into_owned()
        });
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let told = line.trim().split_once(": listening on ").and_then(|(_, told)| {
            let (address, told) = told.rsplit_once(", on ")?;
            Some((address, told.split_once(", ")?))
        });
        let Some((address, (backend, loops))) = told else {
            let _ = process.kill();
            panic!("it did not begin to listen: {line:?}\n{}", stderr.join().unwrap());
        };
        let (address, backend, loops) = (address.into(), backend.into(), loops.into());
        Program { process, address, backend, loops, stdout, stderr: Some(stderr) }
    }

    /// The next address that it says it listens on.
    #[allow(dead_code)] // not in all suites
    pub(crate) fn next_address(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "it says nothing more");
            if let Some((_, told)) = line.split_once(": listening on ") {
                return told.split_once(", on ").expect("a backend").0.to_owned();
            }
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id() as i32).unwrap()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let address: SocketAddr = self.address.parse().expect("an IP address");
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    /// Asks it to end, and gives back how it did.
    pub(crate) fn end(self) -> Output {
        self.signal(Signal::TERM);
        self.output()
    }

    /// Awaits its end, and gives back how it ended and what it said.
    pub(crate) fn output(mut self) -> Output {
        let mut stdout = Vec::new();
        self.stdout.read_to_end(&mut stdout).unwrap();
        let status = self.process.wait().unwrap();
        let stderr = self.stderr.take().unwrap().join().unwrap().into_bytes();
        Output { status, stdout, stderr }
    }

    // --- From outside ----------------------------------------------------------------------------------

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.process.id())).expect("it runs")
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).expect("it runs").count()
    }

    /// How many descriptors each of its epolls watches.
    pub(crate) fn watched_by_epolls(&self) -> Vec<usize> {
        let folder = format!("/proc/{}/fd", self.process.id());
        let is_epoll = |link: &PathBuf| {
            std::fs::read_link(link).is_ok_and(|to| to.as_os_str() == "anon_inode:[eventpoll]")
        };
        let links = std::fs::read_dir(folder).expect("it runs").map(|entry| entry.unwrap().path());
        let mut epolls: Vec<PathBuf> = links.filter(is_epoll).collect();
        epolls.sort();
        let watched = |link: &PathBuf| {
            let number = link.file_name().unwrap().to_str().unwrap();
            let info = self.proc(&format!("fdinfo/{number}"));
            info.lines().filter(|line| line.starts_with("tfd:")).count()
        };
        epolls.iter().map(watched).collect()
    }

    /// The processors, as text, to each of which one or more of its threads are bound.
    #[allow(dead_code)] // not in all suites
    pub(crate) fn bound_to(&self) -> BTreeSet<String> {
        let folder = format!("/proc/{}/task", self.process.id());
        let tasks = std::fs::read_dir(folder).expect("it runs").map(|entry| entry.unwrap().path());
        let allowed = tasks.filter_map(|task| {
            let status = std::fs::read_to_string(task.join("status")).ok()?; // a thread may end
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            Some(line.trim().to_owned())
        });
        allowed.filter(|list| list.parse::<usize>().is_ok()).collect()
    }

    /// How much memory it occupies, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        let kilobytes = line.trim().trim_end_matches(" kB");
        kilobytes.parse::<u64>().expect("a number") << 10
    }

    /// How much processor time it has used.
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = self.proc("stat");
        // After the name, which may contain anything: state is the first field, utime the 12th, stime the 13th.
        let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What it has told the log, but for the lines that say who has enabled hooks, and how many connections are left
/// when it is asked to end.
pub(crate) fn log_of(output: &std::process::Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let usual = ["INFO hooks are enabled, by apps/", "INFO stopping: "];
    let lines = text.lines().filter(|line| !usual.iter().any(|begin| line.contains(begin)));
    lines.fold(String::new(), |all, line| all + line + "\n")
}

/// Sends `bytes`, and wants them back.
pub(crate) fn expect_echo(stream: &mut (impl Read + Write), bytes: &[u8]) {
    stream.write_all(bytes).expect("send");
    let mut echo = vec![0; bytes.len()];
    stream.read_exact(&mut echo).expect("an echo");
    assert!(echo == bytes, "the echo is not what was sent");
}

/// Bytes that tell where they are, so that what is lost, doubled or out of order shows. They begin anew after a
/// prime number of them, which is no buffer's size: what is not optimised takes long to make 64 MiB one by one.
pub(crate) fn pattern(count: usize) -> Vec<u8> {
    static PERIOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let byte = |position: u32| (position ^ (position >> 8) ^ (position >> 16)) as u8;
        (0..999_983).map(byte).collect()
    });
    let mut bytes = PERIOD.repeat(count.div_ceil(PERIOD.len()));
    bytes.truncate(count);
    bytes
}

/// Waits for something that comes about soon, unless it never does.
pub(crate) fn eventually(what: &str, reached: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
