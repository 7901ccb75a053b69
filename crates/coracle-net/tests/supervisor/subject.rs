//! The processes under test: what they do, and how to talk to them, look at them and end them.

use coracle_net::{Buffer, Conn, ListenOptions, Protocol, Server, Settings, Supervisor, Worker};
use rustix::process::{Pid, Signal, kill_process};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes on the busiest machine: it decides no test, it only ends those that hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Set in the processes of a case, to its path.
const CASE: &str = "CORACLE_SUPERVISOR_CASE";

/// Set in them too, to what tells this run from others.
const RUN: &str = "CORACLE_SUPERVISOR_RUN";

/// Set in a process that a worker has started.
const GRANDCHILD: &str = "CORACLE_SUPERVISOR_GRANDCHILD";

/// A test on a backend.
pub(crate) struct Test {
    pub(crate) path: &'static str,
    pub(crate) backend: &'static str,
}

/// How the processes of a case differ from others.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) processes: usize,
    pub(crate) loops: usize,
    pub(crate) listen: &'a str,
    pub(crate) drain: Duration,
    /// How many connections a worker has room for.
    pub(crate) room: usize,
    /// Workers of this index die at once.
    pub(crate) doomed: Option<usize>,
    /// Workers die at once while there is this file.
    pub(crate) obstacle: Option<&'a Path>,
    /// Workers never serve while there is this file.
    pub(crate) sandbank: Option<&'a Path>,
    /// How long a worker may take until it serves.
    pub(crate) start_timeout: Duration,
    /// How long a worker waits for a peer to end its side.
    pub(crate) linger: Duration,
    /// The supervisor listens there too, and no worker does.
    pub(crate) unwanted: Option<&'a str>,
    /// A worker supervises too, which is wrong.
    pub(crate) nested: bool,
}

impl Plan<'_> {
    pub(crate) const USUAL: Plan<'static> = Plan {
        processes: 3,
        loops: 1,
        listen: "127.0.0.1:0",
        drain: PATIENCE,
        room: usize::MAX,
        doomed: None,
        obstacle: None,
        sandbank: None,
        start_timeout: PATIENCE,
        linger: Duration::from_secs(5),
        unwanted: None,
        nested: false,
    };
}

impl Test {
    /// A path that nobody else uses, the same in all processes of the case.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let run = std::env::var(RUN).unwrap_or_else(|_| std::process::id().to_string());
        let case = self.path.replace("::", "-");
        std::env::temp_dir().join(format!("coracle-{run}-{case}-{name}"))
    }

    /// In the process of the case: starts the supervisor. In that and its workers: does what they do, and does not
    /// return.
    pub(crate) fn start(&self, plan: Plan<'_>) -> Subject {
        if std::env::var_os(CASE).is_some() {
            let result = be(&plan);
            if let Err(error) = &result {
                say(&format!("failed: {error}"));
            }
            std::process::exit(i32::from(result.is_err()));
        }
        Subject::start(self)
    }
}

// --- Inside --------------------------------------------------------------------------------------------

fn be(plan: &Plan<'_>) -> io::Result<()> {
    tracing_subscriber::fmt().with_ansi(false).with_writer(io::stderr).init();
    if std::env::var_os(GRANDCHILD).is_some() {
        say(&format!("grandchild {:?}", Worker::current().map(Worker::index)));
        return Ok(());
    }
    if let Some(worker) = Worker::current() {
        say(&format!("born {} {:?}", worker.index(), now()));
        if plan.doomed == Some(worker.index()) || plan.obstacle.is_some_and(Path::exists) {
            std::process::exit(7);
        }
        if plan.sandbank.is_some_and(Path::exists) {
            loop {
                thread::sleep(PATIENCE);
            }
        }
    }
    let limits = Settings { limit_connections: plan.room, ..Settings::default() };
    let settings = Settings { drain: plan.linger, ..limits };
    let server = Server::bind(plan.listen)?.loops(plan.loops).drain(plan.drain).settings(settings);
    if Worker::current().is_some() && !plan.nested {
        let listen = |lp: &coracle_loop::Loop, _: usize| {
            let heard = |_: &coracle_loop::Loop| say(&format!("heard {}", std::process::id()));
            lp.on_signal(Signal::USR1.as_raw(), heard).expect("a signal");
        };
        return server.on_thread_start(listen).serve(|_| Who);
    }
    for address in server.local_addresses() {
        say(&format!("listening {address}"));
    }
    let mut supervisor: Supervisor = server.supervise(plan.processes);
    if let Some(unwanted) = plan.unwanted {
        supervisor = supervisor.bind(unwanted, &ListenOptions::new())?;
    }
    supervisor.start_timeout(plan.start_timeout).on_start(|_| say("serving")).run()
}

/// The time on a clock that all processes share.
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Says which process it is, and does as it is told.
struct Who;

impl Protocol for Who {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        conn.write_slice(format!("{}\n", std::process::id()).as_bytes());
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        match input.take_all() {
            b"hang" => {
                say("hanging");
                loop {
                    thread::sleep(PATIENCE);
                }
            }
            b"start a program" => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(std::env::args_os().skip(1)).env(GRANDCHILD, "yes").spawn()?.wait()?;
            }
            other => {
                let other = other.to_vec();
                conn.write(other);
            }
        }
        Ok(())
    }
}

/// Tells the case something. The test runner may have begun a line.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    out.write_all(format!("\n@{text}\n").as_bytes()).expect("somebody listens");
    out.flush().expect("somebody listens");
}

// --- Outside -------------------------------------------------------------------------------------------

/// A supervisor with its workers.
pub(crate) struct Subject {
    process: Child,
    pub(crate) address: String,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Subject {
    fn start(test: &Test) -> Subject {
        let mut command = Command::new(std::env::current_exe().expect("the test has a path"));
        command.args([test.path, "--exact", "--nocapture"]);
        command.env(CASE, test.path).env("CORACLE_BACKEND", test.backend);
        command.env(RUN, std::process::id().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the test runner starts");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let readers = vec![
            collect(process.stdout.take().unwrap(), &lines),
            collect(process.stderr.take().unwrap(), &lines),
        ];
        let mut subject = Subject { process, address: String::new(), lines, readers };
        subject.address = subject.await_said("listening ", 1).remove(0);
        subject
    }

    /// All that the processes have said and logged.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// What was said so far behind `prefix`.
    pub(crate) fn said(&self, prefix: &str) -> Vec<String> {
        let prefix = format!("@{prefix}");
        let lines = self.lines();
        lines.iter().filter_map(|line| line.strip_prefix(&prefix).map(str::to_owned)).collect()
    }

    pub(crate) fn await_said(&self, prefix: &str, times: usize) -> Vec<String> {
        self.eventually(&format!("{prefix:?}"), || self.said(prefix).len() >= times);
        self.said(prefix)
    }

    pub(crate) fn await_logged(&self, text: &str) {
        let logged = || self.lines().iter().any(|line| line.contains(text));
        self.eventually(&format!("{text:?} in the log"), logged);
    }

    /// Waits for something that comes about soon, unless it never does.
    pub(crate) fn eventually(&self, what: &str, reached: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !reached() {
            let lines = || self.lines().join("\n");
            assert!(Instant::now() < deadline, "never: {what}\n{}", lines());
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn connect(&self) -> Client {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        Client::new(stream).expect("a connection")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send_signal(self.pid(), signal);
    }

    /// The processes that it has started and not yet buried.
    pub(crate) fn workers(&self) -> BTreeSet<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it runs");
        let children = |task: io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.ok()?.path().join("children")).ok()
        };
        let children: Vec<String> = tasks.filter_map(children).collect();
        children.join(" ").split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }

    /// Waits until there are so many workers, and nobody of `old` any more.
    ///
    /// What is returned is the reading that was judged: the next could be another.
    pub(crate) fn await_workers(&self, count: usize, old: &BTreeSet<u32>) -> BTreeSet<u32> {
        let seen = RefCell::new(BTreeSet::new());
        self.eventually(&format!("{count} workers without {old:?}"), || {
            let workers = self.workers();
            let reached = workers.len() == count && workers.is_disjoint(old);
            seen.replace(workers);
            reached
        });
        seen.into_inner()
    }

    /// Waits until all posts are filled by others than `old`, who are gone.
    pub(crate) fn await_replacement(&self, old: &BTreeSet<u32>) -> BTreeSet<u32> {
        self.await_workers(old.len(), old)
    }

    /// Awaits its end, and of whoever can still write to the log: its workers.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let status = self.process.wait().expect("it was started");
        for reader in self.readers.drain(..) {
            reader.join().expect("a reader");
        }
        status
    }

    /// Asks it to end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection, and who serves it.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) server: u32,
}

impl Client {
    /// # Errors
    /// It was reset, or closed without a word.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Client> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let server = read_pid(&stream)?;
        Ok(Client { stream, server })
    }

    pub(crate) fn expect_echo(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).expect("send");
        let mut echo = vec![0; text.len()];
        self.stream.read_exact(&mut echo).expect("an echo");
        assert_eq!(echo, text.as_bytes());
    }
}

/// Reads the line that every connection begins with.
pub(crate) fn read_pid(stream: impl Read) -> io::Result<u32> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    line.trim().parse().map_err(|_| io::Error::other(format!("{line:?} is no process")))
}

pub(crate) fn send_signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).expect("it runs");
}

/// Whether a process has ended, even if nobody has buried it.
pub(crate) fn is_gone(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Err(_) => true,
        Ok(stat) => stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X'])),
    }
}

/// How many descriptors a process has open.
pub(crate) fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn collect(
    from: impl Read + Send + 'static,
    lines: &Arc<Mutex<Vec<String>>>,
) -> thread::JoinHandle<()> {
    let lines = Arc::clone(lines);
    thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            lines.lock().unwrap().push(line.expect("text"));
        }
    })
}
