//! Servers to be judged: started on a free port, and ended.

use crate::{command, tree};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where our programs are.
pub(super) struct Programs {
    directory: PathBuf,
}

impl Programs {
    /// Builds them, beside the program that is running.
    pub(super) fn build(root: &Path, release: bool) -> Result<Programs, String> {
        // All of the workspace is named, so that its crates have the features with which tests build them.
        let mut cargo = command::cargo(root, &["build", "--quiet", "--workspace"]);
        cargo.args(["--bin", "coracle", "--example", "http_echo"]);
        if release {
            cargo.arg("--release");
        }
        command::run(&mut cargo)?;
        Programs::find(release)
    }

    /// Takes them as they are.
    pub(super) fn find(release: bool) -> Result<Programs, String> {
        Ok(Programs { directory: tree::target()?.join(if release { "release" } else { "debug" }) })
    }

    /// `coracle hello`: 13 bytes for everybody.
    pub(super) fn hello(&self, backend: &str) -> Result<Server, String> {
        let mut program = Command::new(self.directory.join("coracle"));
        Server::start(program.arg("hello"), backend)
    }

    /// `coracle serve`, of a directory; of an empty one, the welcome page.
    pub(super) fn serve(
        &self,
        backend: &str,
        directory: &Path,
        options: &[&str],
    ) -> Result<Server, String> {
        let mut program = Command::new(self.directory.join("coracle"));
        Server::start(program.arg("serve").arg(directory).args(options), backend)
    }

    /// The example that answers with what it was sent.
    pub(super) fn echo(&self, backend: &str, options: &[&str]) -> Result<Server, String> {
        let mut program = Command::new(self.directory.join("examples/http_echo"));
        Server::start(program.args(options), backend)
    }
}

/// One of them, running.
pub(super) struct Server {
    process: Child,
    pub(super) address: SocketAddr,
}

impl Server {
    fn start(program: &mut Command, backend: &str) -> Result<Server, String> {
        program.args(["--listen", "127.0.0.1:0", "--backend", backend, "--threads", "1"]);
        let text = command::text(program);
        let failed = |why: &dyn std::fmt::Display| format!("{text}: {why}");
        let piped = program.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = piped.spawn().map_err(|why| failed(&why))?;
        let output = BufReader::new(process.stdout.take().expect("it was piped"));
        let mut lines = output.lines();
        let address = loop {
            let line = match lines.next() {
                Some(Ok(line)) => line,
                _ => {
                    let _ = process.kill();
                    return Err(failed(&"it ended before it said where it listens"));
                }
            };
            if let Some(address) =
                line.split([' ', '/', ',', ';']).find_map(|word| word.parse().ok())
            {
                break address;
            }
        };
        // Somebody has to read what it says, or it would wait.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Server { process, address })
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The same, of one that speaks TLS.
    pub(super) fn secure_url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// It must be running still: whoever has judged it has not ended it.
    pub(super) fn end(mut self) -> Result<(), String> {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("the server has ended: {status}")),
            Err(why) => Err(format!("the server cannot be asked: {why}")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only when it has ended already; then there is nothing to do.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
