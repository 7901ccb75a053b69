//! An example that runs, or is run to its end.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// No example takes longer than this, by far, even on a machine that does other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Runs an example that ends by itself, and gives what it printed.
pub(crate) fn run(name: &str, arguments: &[&str]) -> String {
    let (status, output) = Running::start(name, arguments, "").end();
    assert!(status.success(), "{name}: {status}:\n{output}");
    output
}

/// An example under way; killed when dropped.
pub(crate) struct Running {
    name: String,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    /// `backend` may be empty: the best there is.
    pub(crate) fn start(name: &str, arguments: &[&str], backend: &str) -> Running {
        let program = program(name);
        let mut command = Command::new(&program);
        command.args(arguments).env("CORACLE_BACKEND", backend);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("cannot run {}: {error}; cargo build --examples", program.display())
            });
        let output = BufReader::new(child.stdout.take().expect("it was piped"));
        Running { name: name.to_owned(), child, output }
    }

    /// The next line it prints, without its end. Whoever prints nothing is ended by the test's own limit.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("its output can be read");
        line.trim_end().to_owned()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &kill]).status().expect("there is a shell");
        assert!(status.success(), "{kill}: {status}");
    }

    /// Waits for its end; gives the status and what was printed since the last line read.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().expect("it is our child") {
                Some(status) => break status,
                None if Instant::now() > deadline => panic!("{} does not end", self.name),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("it prints text");
        (status, rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already, and then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where cargo has put an example.
pub(crate) fn program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("a running program has a path");
    let target = tests.ancestors().nth(2).expect("tests lie in TARGET/PROFILE/deps");
    target.join("examples").join(name)
}
