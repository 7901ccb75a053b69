//! CGI: programs that answer requests (RFC 3875).
//!
//! ```text
//!   request ──► script.rs: which program?  variables.rs: what is it told?  process.rs: started, watched, ended
//!                    body ──► standard input ──► program ──► standard output ──► head.rs, relay.rs ──► answer
//!                                                    └─────► standard error ──► log_lines.rs ──► log
//! ```
//!
//! The three pipes have a coroutine each, so that nobody waits for the wrong one: a program may answer before it
//! reads, never read at all, or read and write without end.

pub(crate) mod head;
pub(crate) mod log_lines;
mod process;
pub(crate) mod relay;
pub(crate) mod script;
pub(crate) mod variables;

use crate::body_reader::BodyReader;
use crate::client::link::now;
use crate::files::Symlinks;
use crate::files::open::Root;
use crate::settings::LONGEST;
use crate::{App, IntoResponse, Plan, Request, Response, Status};
use coracle_coro::net::UnixStream;
use coracle_coro::sync::Semaphore;
use coracle_coro::{JoinHandle, is_cancelled, offload, spawn};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use head::Style;
use log_lines::LogLines;
use process::{Process, Seat, Started};
use relay::{Patience, Speaker, failed};
use script::{Script, Search};
use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use variables::{Telling, Variables, variables};

/// How many processes there are at a time, unless set.
const LIMIT_PROCESSES: usize = 32;

/// How many requests wait for one of them; the next is answered with 503.
const LIMIT_WAITING: usize = 256;

/// How long a script may say nothing, unless set.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long it may run in all, unless set.
const RUN_LIMIT: Duration = Duration::from_secs(3600);

/// How much of a body is kept in memory that does not say how long it is.
const LIMIT_BUFFERED_BYTES: u64 = 1 << 20;

/// How long its end is awaited when its output is over.
const LIMIT_END: Duration = Duration::from_secs(1);

/// What is passed on at a time, to a script and from its standard error.
const PIECE_BYTES: usize = 16 << 10;

/// How often a program is tried that somebody is just writing.
const BUSY_TRIES: u32 = 20;

/// Where programs are looked for that a script starts.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs the programs of a directory: each request for one starts it, and what it prints is the answer. An
/// [`App`], to be [mounted](crate::Router::mount) somewhere.
///
/// ```
/// use coracle_http::{Cgi, Router};
///
/// # let dir = std::env::temp_dir().join(format!("coracle-cgi-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// // In the directory: an executable `hello` that prints "Content-Type: text/plain", an empty line, and a text.
/// let app = Router::new(()).mount("/cgi-bin", Cgi::new(&dir)?);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// | | |
/// |---|---|
/// | which program | An executable file below the directory; what is behind its name is `PATH_INFO`. |
/// | what it is told | The variables of RFC 3875 and nothing else of the server's environment; no `HTTP_PROXY`. |
/// | how it is run | Without a shell; in its own directory and process group, with three descriptors. |
/// | what it may say | A header and a body; `Status`, `Location`; all of it if its name begins with `nph-`. |
/// | how it ends | By itself; or with its whole group, when it is late or the client is gone. |
///
/// Any thread; clones share their [limit](Cgi::limit_processes).
#[derive(Debug, Clone)]
pub struct Cgi {
    root: Arc<Root>,
    prefix: String,
    telling: Telling,
    seats: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    timeout: Duration,
    run_limit: Duration,
    limit_body_bytes: Option<u64>,
    search_words: bool,
}

impl Cgi {
    /// Runs the programs of this directory.
    ///
    /// # Errors
    /// It is not a directory, or cannot be opened.
    pub fn new(directory: impl AsRef<Path>) -> io::Result<Cgi> {
        let directory = directory.as_ref();
        let root = Root::new(directory, Symlinks::default()).map_err(|error| {
            let path = directory.display();
            io::Error::new(error.kind(), format!("cannot run the scripts of {path}: {error}"))
        })?;
        Ok(Cgi {
            root: Arc::new(root),
            prefix: String::new(),
            telling: Telling::default(),
            seats: Arc::new(Semaphore::new(LIMIT_PROCESSES)),
            waiting: Arc::default(),
            timeout: TIMEOUT,
            run_limit: RUN_LIMIT,
            limit_body_bytes: None,
            search_words: false,
        })
    }

    /// Answers what is below `prefix` in the paths of requests, and 404 to everything else. Not needed where a
    /// router [mounts](crate::Router::mount) it.
    ///
    /// # Panics
    /// When it does not begin with a slash.
    #[must_use]
    pub fn mounted_at(mut self, prefix: &str) -> Cgi {
        assert!(prefix.starts_with('/'), "a path begins with a slash: {prefix:?}");
        prefix.trim_end_matches('/').clone_into(&mut self.prefix);
        self
    }

    /// A variable that all scripts have, such as `LANG`; it takes the place of one that they would have. They get
    /// none of the server's own.
    ///
    /// ```
    /// # use coracle_http::Cgi;
    /// let cgi = Cgi::new("/usr/lib")?.variable("LANG", "C.UTF-8").variable("HTTPS", "on");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// When the name is empty or has `=` in it, or there is a NUL in either.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Cgi {
        self.telling.set(name, value);
        self
    }

    /// Whether scripts are told what the client proves itself by: `HTTP_AUTHORIZATION`. Not unless set: a script
    /// that lists its variables would show passwords.
    #[must_use]
    pub fn pass_authorization(mut self, pass: bool) -> Cgi {
        self.telling.authorization = pass;
        self
    }

    /// Where the files of the site are: `DOCUMENT_ROOT`, and `PATH_TRANSLATED`.
    #[must_use]
    pub fn document_root(mut self, directory: impl Into<PathBuf>) -> Cgi {
        self.telling.document_root = Some(directory.into());
        self
    }

    /// The name and port of this server, in the place of what clients call it: `SERVER_NAME`, `SERVER_PORT`.
    #[must_use]
    pub fn server(mut self, name: Option<&str>, port: Option<u16>) -> Cgi {
        (self.telling.server_name, self.telling.server_port) = (name.map(str::to_owned), port);
        self
    }

    /// What becomes of symbolic links below the directory; those that stay inside are followed unless set.
    #[must_use]
    pub fn symlinks(mut self, symlinks: Symlinks) -> Cgi {
        Arc::make_mut(&mut self.root).set_symlinks(symlinks);
        self
    }

    /// How long a script may say nothing, 60 seconds unless set; its header has to be there in that time. That
    /// begins anew with each piece of the body that it gets, and does not pass while the client is waited for.
    /// Then it is ended, and the answer is 504, or cut off.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Cgi {
        self.timeout = timeout;
        self
    }

    /// How long a script may run in all, an hour unless set.
    #[must_use]
    pub fn run_limit(mut self, limit: Duration) -> Cgi {
        self.run_limit = limit;
        self
    }

    /// How many processes there are at a time, 32 unless set. Requests above that wait, and 256 of those that
    /// do; the next is answered with 503.
    ///
    /// # Panics
    /// When there may be none.
    #[must_use]
    pub fn limit_processes(mut self, processes: usize) -> Cgi {
        assert!(processes > 0, "without processes there are no answers");
        self.seats = Arc::new(Semaphore::new(processes));
        self
    }

    /// The longest body of a request, instead of the server's limit. One that does not say how long it is can
    /// have a mebibyte, since a script is told beforehand.
    #[must_use]
    pub fn limit_body_bytes(mut self, bytes: u64) -> Cgi {
        self.limit_body_bytes = Some(bytes);
        self
    }

    /// Whether the words of a query without `=` are arguments of the program (RFC 3875, 4.4). Not unless set:
    /// there are programs to which a client could give options then.
    #[must_use]
    pub fn search_words(mut self, words: bool) -> Cgi {
        self.search_words = words;
        self
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        self.root.path()
    }

    /// Runs what the path leads to.
    fn run(&self, req: &Request<'_>) -> Response {
        if here().is_ok_and(|lp| lp.backend() == Backend::Sim) {
            tracing::error!("a simulated loop cannot start processes");
            return Status::NOT_IMPLEMENTED.into_response();
        }
        let search = Search { executable: true, ..Search::default() };
        let script = match search.find_for(req, &self.prefix, &self.root) {
            Ok(script) => script,
            Err(no_script) => return no_script.into_response(),
        };
        let name: Rc<str> = script.file.display().to_string().into();
        let is_nph = script
            .file
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"nph-"));
        let style = if is_nph { Style::Nph } else { Style::Cgi };
        match self.start(req, &script, &name) {
            Ok(running) => relay::answer(req, running, style),
            Err(error) => not_started(&name, &error),
        }
    }

    /// Starts a script, and all that goes with it.
    fn start(&self, req: &Request<'_>, script: &Script, name: &Rc<str>) -> io::Result<Running> {
        let seat = self.seat()?;
        let variables = variables(req, script, body_bytes(req), &self.telling);
        let words = if self.search_words { search_words(req) } else { Vec::new() };
        let file = script.file.clone();
        let (mut started, seat) =
            offload(move || launch(&file, words, variables).map(|started| (started, seat)))??;
        let deadline = now() + self.run_limit.min(LONGEST);
        let patience = Patience::new(self.timeout);
        let child = &mut started.child;
        let pipe = |end: Option<OwnedFd>| {
            UnixStream::from_descriptor(end.expect("it was started with three pipes"))
        };
        let stdin = pipe(child.stdin.take().map(Into::into))?;
        let stdout = pipe(child.stdout.take().map(Into::into))?;
        let stderr = pipe(child.stderr.take().map(Into::into))?;
        let process = Process::watch(&here()?, started, Rc::clone(name), seat)?;
        let failure = Rc::new(RefCell::new(None));
        let feeding = spawn({
            let (body, process, failure) =
                (req.owned_body_reader(), Rc::clone(&process), Rc::clone(&failure));
            let patience = patience.clone();
            move || match feed(body, stdin, &patience) {
                Err(error) if !is_cancelled(&error) => {
                    failure.replace(Some(error));
                    if let Some(lp) = Loop::current() {
                        process.end(&lp); // half a body is none
                    }
                }
                _ => {} // all of it, or nobody wants it any more
            }
        });
        let logging = spawn({
            let lines = LogLines::new(Rc::clone(name));
            move || log(stderr, lines)
        });
        Ok(Running {
            name: Rc::clone(name),
            stdout,
            process,
            feeding: Some(feeding),
            logging: Some(logging),
            failure,
            patience,
            deadline,
        })
    }

    /// The right to have one process more.
    fn seat(&self) -> io::Result<Seat> {
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let permit = match self.seats.try_acquire(1) {
            Some(permit) => permit,
            None => {
                let before = self.waiting.fetch_add(1, Ordering::Relaxed);
                let _waiting = Waiting(&self.waiting);
                let busy = "there are as many processes as there may be (limit_processes)";
                if before >= LIMIT_WAITING {
                    return Err(io::Error::new(io::ErrorKind::QuotaExceeded, busy));
                }
                self.seats.acquire_timeout(1, self.timeout).map_err(|error| match error.kind() {
                    io::ErrorKind::TimedOut => io::Error::new(io::ErrorKind::QuotaExceeded, busy),
                    _ => error,
                })?
            }
        };
        permit.forget(); // it comes back with the seat
        Ok(Seat(Arc::clone(&self.seats)))
    }
}

impl App for Cgi {
    fn call(&self, req: &Request<'_>) -> Response {
        self.run(req)
    }

    fn plan(&self, req: &Request<'_>) -> Plan {
        plan(req, self.limit_body_bytes)
    }
}

/// The loop. Nobody who waits holds on to it: it may end before, and then so do its processes.
fn here() -> io::Result<Loop> {
    Loop::current().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::Unsupported,
            "a script needs a loop: call this in a coroutine",
        )
    })
}

/// A body is passed on while it comes, if it says how long it is: a script wants to know before it begins.
pub(crate) fn plan(req: &Request<'_>, limit_body_bytes: Option<u64>) -> Plan {
    let plan = Plan::default().cancel_when_gone();
    match (req.headers().contains("content-length"), limit_body_bytes) {
        (true, Some(limit)) => plan.streamed().limit_body_bytes(limit),
        (true, None) => plan.streamed(),
        (false, limit) => {
            plan.limit_body_bytes(limit.unwrap_or(LIMIT_BUFFERED_BYTES).min(LIMIT_BUFFERED_BYTES))
        }
    }
}

/// How long the body of a request is, if it has one: `CONTENT_LENGTH`.
pub(crate) fn body_bytes(req: &Request<'_>) -> Option<u64> {
    match req.header("content-length") {
        Some(length) => length.parse().ok(),
        None => (!req.body().is_empty()).then_some(req.body().len() as u64),
    }
}

impl Telling {
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        let is_name = !name.is_empty() && !name.contains(['=', '\0']);
        assert!(is_name, "this cannot be the name of a variable: {name:?}");
        assert!(!value.contains('\0'), "a variable has no NUL in it: {name}");
        self.extra.retain(|(other, _)| other != name);
        self.extra.push((name.to_owned(), value.to_owned()));
    }
}

/// The words of a query that is no form, decoded (RFC 3875, 4.4).
fn search_words(req: &Request<'_>) -> Vec<OsString> {
    let query = req.query().filter(|query| !query.is_empty() && !query.contains('='));
    let words = query.into_iter().flat_map(|query| query.split('+'));
    let words = words.map(|word| percent_encoding::percent_decode_str(word).collect::<Vec<u8>>());
    let words: Vec<_> = words.collect();
    match words.iter().any(|word| word.contains(&0)) {
        true => Vec::new(), // they cannot be told: then none are
        false => words.into_iter().map(OsString::from_vec).collect(),
    }
}

/// Starts a program, without a shell, with nothing of ours but three pipes. May wait for a disk.
fn launch(file: &Path, words: Vec<OsString>, variables: Variables) -> io::Result<Started> {
    let mut command = Command::new(file);
    command.args(words).env_clear().env("PATH", PATH);
    command.envs(variables.into_iter().map(|(name, value)| (name, OsString::from_vec(value))));
    command.current_dir(file.parent().unwrap_or(Path::new("/"))).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tries = 0;
    loop {
        match command.spawn() {
            // Somebody writes it, or has forked while it was being written.
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES =>
            {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            spawned => return spawned.map(Started::new),
        }
    }
}

/// What the client is told of a script that could not be started, and what the log.
fn not_started(script: &str, error: &io::Error) -> Response {
    if is_for_now(error) {
        tracing::error!(script, "it cannot be started now: {error}");
        return Status::SERVICE_UNAVAILABLE.into_response().with_header("retry-after", "1");
    }
    if error.raw_os_error().is_none() || is_cancelled(error) {
        return failed(script, error);
    }
    tracing::error!(script, "it cannot be started: {error}{}", hint(error));
    Status::INTERNAL_SERVER_ERROR.into_response()
}

/// Whether there is only no room now: for another process, descriptor or page.
fn is_for_now(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let error = Errno::from_io_error(error);
    matches!(error, Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE))
}

/// What may help against an error of starting a program.
fn hint(error: &io::Error) -> &'static str {
    const ENOEXEC: i32 = 8;
    match (error.raw_os_error(), error.kind()) {
        (Some(ENOEXEC), _) => ": a script begins with a line such as `#!/bin/sh`",
        (_, io::ErrorKind::NotFound) => ": is the program behind its `#!` there?",
        (_, io::ErrorKind::PermissionDenied) => ": is its file system mounted noexec?",
        _ => "",
    }
}

/// Passes a body on until it ends, or the script wants no more. The error is the client's.
fn feed(
    mut body: BodyReader<'static>,
    mut stdin: UnixStream,
    patience: &Patience,
) -> io::Result<()> {
    let mut space = vec![0; PIECE_BYTES];
    loop {
        match patience.receive(|| body.read(&mut space))? {
            0 => return Ok(()),
            count => {
                if stdin.write_all(&space[..count]).is_err() {
                    return Ok(()); // it does not read on, and may say why
                }
                patience.feed();
            }
        }
    }
}

fn log(mut stderr: UnixStream, mut lines: LogLines) {
    let mut space = vec![0; PIECE_BYTES];
    while let Ok(count @ 1..) = stderr.read(&mut space) {
        lines.push(&space[..count]);
    }
}

/// A script that runs. Dropped before its end, it is ended.
struct Running {
    name: Rc<str>,
    stdout: UnixStream,
    process: Rc<Process>,
    feeding: Option<JoinHandle<()>>,
    logging: Option<JoinHandle<()>>,
    /// Why the body of the request did not come.
    failure: Rc<RefCell<Option<io::Error>>>,
    patience: Patience,
    /// When it has run long enough.
    deadline: Instant,
}

impl Read for Running {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Running { stdout, patience, .. } = self;
        let read = patience.wait(Some(self.deadline), || stdout.read(into));
        if let (Ok(0) | Err(_), Some(failure)) = (&read, self.failure.take()) {
            return Err(failure);
        }
        match read {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let text = "it takes too long, and is ended";
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
            read => read,
        }
    }
}

impl Speaker for Running {
    fn finish(&mut self) -> io::Result<()> {
        let status = self.process.wait(LIMIT_END);
        if let Some(feeding) = self.feeding.take() {
            // What comes from the client from here on may be of another request.
            feeding.cancel();
            let _ = coracle_coro::shield(LIMIT_END, || feeding.join());
        }
        if let Some(logging) = self.logging.take()
            && let Err(coracle_coro::JoinError::TimedOut(logging)) = logging.join_timeout(LIMIT_END)
        {
            logging.cancel(); // somebody else has its standard error
        }
        match status {
            Some(status) if status.signal().is_some() => {
                Err(io::Error::other(format!("it has ended with {status}")))
            }
            Some(_) => Ok(()),
            None => {
                // It has nothing more to say, and goes on all the same.
                if let Some(lp) = Loop::current() {
                    self.process.let_go(&lp, self.deadline);
                }
                Ok(())
            }
        }
    }

    fn patience(&self) -> &Patience {
        &self.patience
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.feeding.take().inspect(JoinHandle::cancel);
        self.logging.take().inspect(JoinHandle::cancel);
        if let Some(lp) = Loop::current() {
            self.process.abandon(&lp);
        }
    }
}
