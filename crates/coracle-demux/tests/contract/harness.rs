//! What a case of the contract suite works with: a demultiplexer, and ways to drive it.

use coracle_demux::sim::{Faults, Kernel};
use coracle_demux::{
    Address, Arrival, Backend, Completion, Demux, Finished, Handle, Landed, Landing, Operation,
    Outcome, Payload, Settings, SocketKind, SocketOption, Submitted, Token,
};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// No case takes longer than this on a healthy machine, by far.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Harness {
    pub(crate) demux: Box<dyn Demux>,
    kernel: Option<Kernel>,
    /// Completions that came while another was awaited.
    kept: VecDeque<Completion>,
    /// To be removed at the end.
    files: RefCell<Vec<PathBuf>>,
}

/// An operation that was submitted.
pub(crate) enum Submission {
    Done(Finished),
    Pending(Token),
}

impl Submission {
    /// The token of an operation that cannot have finished at once.
    pub(crate) fn token(self) -> Token {
        match self {
            Submission::Pending(token) => token,
            Submission::Done(finished) => panic!("finished at once: {finished:?}"),
        }
    }
}

impl Harness {
    pub(crate) fn new(backend: Backend) -> Harness {
        Harness::with(backend, |_| {})
    }

    /// One with other settings, where there is a kernel that has some.
    pub(crate) fn with(backend: Backend, change: impl FnOnce(&mut Settings)) -> Harness {
        if backend == Backend::Sim {
            // Every choice the contract leaves open is made at random, nothing goes wrong.
            let kernel = Kernel::with_faults(1, Faults::benign());
            return Harness {
                demux: Box::new(kernel.demux()),
                kernel: Some(kernel),
                kept: VecDeque::new(),
                files: RefCell::default(),
            };
        }
        let mut settings = Settings::default();
        settings.backend = Some(backend);
        change(&mut settings);
        let demux = coracle_demux::open(settings).expect("the backend opens");
        assert_eq!(demux.backend(), backend, "no fallback: this kernel must have them all");
        Harness { demux, kernel: None, kept: VecDeque::new(), files: RefCell::default() }
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.kernel.is_some()
    }

    // --- Driving ---------------------------------------------------------------------------------------

    pub(crate) fn submit(&mut self, operation: Operation) -> Submission {
        match self.demux.submit(operation) {
            Submitted::Done(finished) => Submission::Done(finished),
            Submitted::Pending(token) => Submission::Pending(token),
        }
    }

    /// The next completion of all.
    pub(crate) fn next(&mut self) -> Completion {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let kept = self.kept.pop_front();
            if let Some(completion) = kept.or_else(|| self.demux.next()) {
                return completion;
            }
            assert!(Instant::now() < deadline, "waited in vain:\n{}", self.dump());
            self.demux.wait(Some(Duration::from_millis(100))).expect("wait");
        }
    }

    /// The next completion of `token`, whatever else happens meanwhile.
    pub(crate) fn next_of(&mut self, token: Token) -> Completion {
        if let Some(at) = self.kept.iter().position(|completion| completion.token == token) {
            return self.kept.remove(at).expect("it is there");
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            while let Some(completion) = self.demux.next() {
                if completion.token == token {
                    return completion;
                }
                self.kept.push_back(completion);
            }
            assert!(Instant::now() < deadline, "waited in vain for {token:?}:\n{}", self.dump());
            self.demux.wait(Some(Duration::from_millis(100))).expect("wait");
        }
    }

    /// Goes on until a receive has landed that is awaited; says what came of it.
    pub(crate) fn landed(&mut self, landing: &Landing) -> Landed {
        let deadline = Instant::now() + PATIENCE;
        loop {
            while let Some(arrival) = self.demux.next_arrival() {
                match arrival {
                    Arrival::Completion(completion) => self.kept.push_back(completion),
                    Arrival::Landed(awaited) => awaited.go_on(),
                }
            }
            match landing.take() {
                Landed::Nothing => {}
                landed => return landed,
            }
            assert!(Instant::now() < deadline, "nothing has landed:\n{}", self.dump());
            self.demux.wait(Some(Duration::from_millis(100))).expect("wait");
        }
    }

    /// Keeps a completion for whoever asks for it.
    pub(crate) fn keep(&mut self, completion: Completion) {
        self.kept.push_back(completion);
    }

    /// What comes next, a completion or a landing.
    pub(crate) fn next_arrival(&mut self) -> Arrival {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(arrival) = self.demux.next_arrival() {
                return arrival;
            }
            assert!(Instant::now() < deadline, "waited in vain:\n{}", self.dump());
            self.demux.wait(Some(Duration::from_millis(100))).expect("wait");
        }
    }

    /// The end of an operation.
    pub(crate) fn finish(&mut self, submission: Submission) -> Finished {
        let token = match submission {
            Submission::Done(finished) => return finished,
            Submission::Pending(token) => token,
        };
        loop {
            let completion = self.next_of(token);
            if !completion.more {
                return Finished { result: completion.result, payload: completion.payload };
            }
        }
    }

    /// Submits an operation and sees it through.
    pub(crate) fn run(&mut self, operation: Operation) -> io::Result<Outcome> {
        let submission = self.submit(operation);
        self.finish(submission).result
    }

    /// What has completed by now.
    pub(crate) fn look(&mut self) -> Vec<Completion> {
        self.demux.wait(Some(Duration::ZERO)).expect("wait");
        std::iter::from_fn(|| self.demux.next()).collect()
    }

    /// Everything that completes without further doing.
    pub(crate) fn settle(&mut self) -> Vec<Completion> {
        let mut all: Vec<Completion> = self.kept.drain(..).collect();
        // Real kernels need a moment for what loopback, threads and signals have under way.
        let mut quiet = 0;
        while quiet < 3 {
            quiet += 1;
            self.demux.wait(Some(Duration::from_millis(4))).expect("wait");
            while let Some(completion) = self.demux.next() {
                all.push(completion);
                quiet = 0;
            }
        }
        all
    }

    pub(crate) fn dump(&self) -> String {
        let mut text = String::new();
        self.demux.describe(&mut text).expect("a String takes everything");
        text
    }

    // --- Sockets ---------------------------------------------------------------------------------------

    /// A TCP listener on a free port.
    pub(crate) fn listen(&mut self) -> (Handle, Address) {
        let any: Address = "127.0.0.1:0".parse().unwrap();
        let listener = self.demux.socket(SocketKind::Tcp4).expect("socket");
        self.demux.set_option(listener, SocketOption::ReuseAddress(true)).expect("option");
        self.demux.bind(listener, &any).expect("bind");
        self.demux.listen(listener, 128).expect("listen");
        let address = self.demux.local_address(listener).expect("address");
        (listener, address)
    }

    /// A TCP connection: its two ends.
    pub(crate) fn connection(&mut self) -> (Handle, Handle) {
        let (listener, address) = self.listen();
        let accept = self.submit(Operation::Accept { listener }).token();
        let client = self.demux.socket(SocketKind::Tcp4).expect("socket");
        self.run(Operation::Connect { socket: client, address }).expect("connect");
        let Ok(Outcome::Accepted(server)) = self.next_of(accept).result else {
            panic!("nothing was accepted");
        };
        self.run(Operation::Close { handle: listener }).expect("close");
        self.kept.retain(|completion| completion.token != accept);
        (client, server)
    }

    pub(crate) fn send(&mut self, socket: Handle, bytes: &[u8]) -> io::Result<usize> {
        let payload = Payload::from(bytes.to_vec());
        match self.run(Operation::Send { socket, payload })? {
            Outcome::Count(count) => Ok(count),
            other => panic!("a send gave {other:?}"),
        }
    }

    pub(crate) fn send_all(&mut self, socket: Handle, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let sent = self.send(socket, bytes).expect("send");
            bytes = &bytes[sent..];
        }
    }

    pub(crate) fn receive(&mut self, socket: Handle, limit: usize) -> io::Result<Vec<u8>> {
        let submission = self.submit(Operation::Receive { socket, space: vec![0; limit].into() });
        let finished = self.finish(submission);
        match finished.result? {
            Outcome::Count(count) => {
                let mut bytes = finished.payload.into_vec();
                assert_eq!(bytes.len(), limit, "the memory comes back whole");
                bytes.truncate(count);
                Ok(bytes)
            }
            other => panic!("a receive gave {other:?}"),
        }
    }

    pub(crate) fn receive_exactly(&mut self, socket: Handle, count: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < count {
            let bytes = self.receive(socket, count - all.len()).expect("receive");
            assert!(!bytes.is_empty(), "the stream ended after {} of {count} bytes", all.len());
            all.extend(bytes);
        }
        all
    }

    pub(crate) fn close(&mut self, handle: Handle) {
        self.run(Operation::Close { handle }).expect("close");
    }

    /// Fills a connection until a send has to wait, and gives that send's token and the bytes before it.
    pub(crate) fn block_sender(&mut self, socket: Handle) -> (Token, usize) {
        let mut sent = 0;
        loop {
            let payload = Payload::from(vec![b'x'; 1 << 20]);
            let submission = self.submit(Operation::Send { socket, payload });
            let token = match submission {
                Submission::Done(finished) => {
                    sent += count(finished.result);
                    continue;
                }
                Submission::Pending(token) => token,
            };
            let early: Vec<Completion> = self.settle();
            let (mine, others): (Vec<_>, Vec<_>) =
                early.into_iter().partition(|completion| completion.token == token);
            self.kept.extend(others);
            match mine.into_iter().next() {
                Some(completion) => sent += count(completion.result),
                None => return (token, sent),
            }
        }
    }

    // --- The world around ------------------------------------------------------------------------------

    pub(crate) fn raise(&self, signal: i32) {
        match &self.kernel {
            Some(kernel) => kernel.raise(signal),
            None => {
                let signal = rustix::process::Signal::from_named_raw(signal).expect("a signal");
                rustix::process::kill_process(rustix::process::getpid(), signal).expect("kill");
            }
        }
    }

    /// A child that ends soon, by exiting with `code`.
    #[expect(clippy::zombie_processes, reason = "the operation under test reaps it")]
    pub(crate) fn spawn_child(&self, code: i32) -> u32 {
        match &self.kernel {
            Some(kernel) => {
                kernel.spawn_child(Duration::from_millis(5), ExitStatus::from_raw(code << 8))
            }
            None => {
                let script = format!("sleep 0.01; exit {code}");
                let child = Command::new("sh").args(["-c", &script]).spawn().expect("sh starts");
                child.id()
            }
        }
    }

    /// A file with these contents.
    pub(crate) fn file(&self, contents: &[u8]) -> PathBuf {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "coracle-contract-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        match &self.kernel {
            Some(kernel) => kernel.add_file(&path, contents),
            None => std::fs::write(&path, contents).expect("a temporary file"),
        }
        self.files.borrow_mut().push(path.clone());
        path
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        if std::thread::panicking() && self.is_simulated() {
            eprintln!("simulated with seed 1");
        }
        for file in self.files.take() {
            let _ = std::fs::remove_file(file); // a simulated one is not there
        }
    }
}

/// The count of a finished send or receive.
pub(crate) fn count(result: io::Result<Outcome>) -> usize {
    match result {
        Ok(Outcome::Count(count)) => count,
        other => panic!("expected a count, not {other:?}"),
    }
}

/// The error number of a failed operation.
pub(crate) fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.expect_err("it must fail").raw_os_error().expect("an error of the system")
}
