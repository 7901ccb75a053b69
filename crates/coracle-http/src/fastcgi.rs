//! FastCGI: a program that stays, and answers requests over a socket. For php-fpm, say.
//!
//! ```text
//!   request ──► script.rs: which file?  variables.rs: what is it told?
//!                  body ──► records (record.rs) ──► php-fpm ──► records ──► cgi/head.rs, cgi/relay.rs ──► answer
//! ```
//!
//! One request at a time on a connection; connections are kept for the next, on each loop its own.

pub(crate) mod record;

use crate::body_reader::BodyReader;
use crate::cgi::head::Style;
use crate::cgi::log_lines::LogLines;
use crate::cgi::relay::{self, Patience, Speaker, failed};
use crate::cgi::script::{NoScript, Script, Search};
use crate::cgi::variables::{Telling, variables};
use crate::cgi::{body_bytes, plan};
use crate::client::link::is_gone;
use crate::client::place::{At, Place};
use crate::client::pools::{Keeping, Pooled};
use crate::client::stream::Stream;
use crate::files::open::Root;
use crate::files::{Symlinks, add_slash};
use crate::{App, IntoResponse, Method, Plan, Request, Response};
use coracle_coro::conn_pool::ConnPoolSettings;
use coracle_coro::{JoinHandle, spawn};
use coracle_net::Address;
use record::{CONTENT_BYTES, Decoder, Ending, Event};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the server may say nothing, unless set.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How many connections each loop has, unless set.
const LIMIT_CONNECTIONS: usize = 16;

/// How long one is kept that nobody needs. A process of php-fpm is taken by each.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// So much is received at a time.
const PIECE_BYTES: usize = 32 << 10;

/// How long the end of a body that is being sent is awaited when the answer is there.
const LIMIT_END: Duration = Duration::from_secs(1);

/// Has the scripts of a directory run by a server that speaks FastCGI, such as php-fpm. An [`App`].
///
/// ```
/// use coracle_http::{FastCgi, Router};
///
/// let php = FastCgi::new("unix:/run/php/php-fpm.sock", "/usr/share")?;
/// let app = Router::new(()).mount("/app", php);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A script is a file below the directory whose name ends in `.php` ([`suffix`](FastCgi::suffix)); a path that
/// ends in a slash means `index.php` there. What is behind the name in the path is `PATH_INFO`. A path that leads
/// through any other file (`photo.jpg/x.php`) is 404, and so is every other file: serve them beside it, or as its
/// [fallback](FastCgi::fallback).
///
/// Any thread; each loop has its own connections.
#[derive(Clone)]
pub struct FastCgi {
    root: Arc<Root>,
    place: Place,
    /// What its clones share.
    keeping: Keeping,
    prefix: String,
    telling: Telling,
    search: Search,
    timeout: Duration,
    limit_body_bytes: Option<u64>,
    /// Where the server has the directory, if elsewhere than we.
    root_there: Option<PathBuf>,
    fallback: Option<Arc<dyn App + Send + Sync>>,
}

/// Where a FastCGI server listens: `unix:/run/php/php-fpm.sock`, `127.0.0.1:9000`.
fn place(text: &str) -> io::Result<Place> {
    let path = text.strip_prefix("unix:").or_else(|| text.starts_with('/').then_some(text));
    let at = match (path, text.rsplit_once(':')) {
        (Some(path), _) => format!("unix:{path}").parse::<Address>().ok().map(At::Address),
        (None, Some((host, port))) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Some(At::Name(text.to_owned()))
        }
        _ => None,
    };
    at.map(|at| Place { at, secure: None }).ok_or_else(|| {
        let text =
            format!("{text:?} is no address of a FastCGI server: write unix:/path or host:port");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

impl FastCgi {
    /// Has the scripts of `directory` run by the server at `address`: `unix:/run/php/php-fpm.sock`, or
    /// `127.0.0.1:9000`. Nobody connects before there is a request.
    ///
    /// # Errors
    /// The address is none, or the directory cannot be opened.
    pub fn new(address: &str, directory: impl AsRef<Path>) -> io::Result<FastCgi> {
        let (place, directory) = (place(address)?, directory.as_ref());
        let root = Root::new(directory, Symlinks::default()).map_err(|error| {
            let path = directory.display();
            io::Error::new(error.kind(), format!("cannot run the scripts of {path}: {error}"))
        })?;
        let telling = Telling { document_root: Some(root.path().to_owned()), ..Telling::default() };
        Ok(FastCgi {
            root: Arc::new(root),
            place,
            keeping: keeping(LIMIT_CONNECTIONS, IDLE_TIMEOUT),
            prefix: String::new(),
            telling,
            search: Search {
                suffix: Some(".php".to_owned()),
                index: Some("index.php".to_owned()),
                ..Search::default()
            },
            timeout: TIMEOUT,
            limit_body_bytes: None,
            root_there: None,
            fallback: None,
        })
    }

    /// Answers what is below `prefix` in the paths of requests, and 404 to everything else. Not needed where a
    /// router [mounts](crate::Router::mount) it.
    ///
    /// # Panics
    /// When it does not begin with a slash.
    #[must_use]
    pub fn mounted_at(mut self, prefix: &str) -> FastCgi {
        assert!(prefix.starts_with('/'), "a path begins with a slash: {prefix:?}");
        prefix.trim_end_matches('/').clone_into(&mut self.prefix);
        self
    }

    /// What the names of scripts end in, `.php` unless set.
    #[must_use]
    pub fn suffix(mut self, suffix: &str) -> FastCgi {
        self.search.suffix = Some(suffix.to_owned());
        self
    }

    /// The script of a directory, `index.php` unless set.
    #[must_use]
    pub fn index(mut self, name: &str) -> FastCgi {
        self.search.index = Some(name.to_owned());
        self
    }

    /// The script, below the directory, that answers where there is no other: the front controller of a framework.
    /// What [the fallback](FastCgi::fallback) has is not asked of it.
    #[must_use]
    pub fn front_controller(mut self, name: &str) -> FastCgi {
        self.search.front = Some(name.to_owned());
        self
    }

    /// What answers where there is no script: the [files](crate::files::Files) of the same directory, say. Those
    /// that end like a script are not asked of it.
    #[must_use]
    pub fn fallback(mut self, app: impl App + Send + Sync) -> FastCgi {
        self.fallback = Some(Arc::new(app));
        self
    }

    /// Where the server has the directory, if it is another machine or in a container: `SCRIPT_FILENAME` begins
    /// with it.
    #[must_use]
    pub fn directory_there(mut self, directory: impl Into<PathBuf>) -> FastCgi {
        let directory = directory.into();
        self.telling.document_root = Some(directory.clone());
        self.root_there = Some(directory);
        self
    }

    /// A variable that all scripts have; it takes the place of one that they would have.
    ///
    /// # Panics
    /// When the name is empty or has `=` in it, or there is a NUL in either.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> FastCgi {
        self.telling.set(name, value);
        self
    }

    /// Whether scripts are told what the client proves itself by: `HTTP_AUTHORIZATION`. Not unless set.
    #[must_use]
    pub fn pass_authorization(mut self, pass: bool) -> FastCgi {
        self.telling.authorization = pass;
        self
    }

    /// The name and port of this server, in the place of what clients call it: `SERVER_NAME`, `SERVER_PORT`.
    #[must_use]
    pub fn server(mut self, name: Option<&str>, port: Option<u16>) -> FastCgi {
        (self.telling.server_name, self.telling.server_port) = (name.map(str::to_owned), port);
        self
    }

    /// How long the server may say nothing, 60 seconds unless set; a header has to be there in that time. That
    /// begins anew with each piece of the body that it gets, and does not pass while the client is waited for.
    /// Then the answer is 504, or cut off.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> FastCgi {
        self.timeout = timeout;
        self
    }

    /// How many connections each loop has, 16 unless set: no more in all than the server has processes. Requests
    /// above that wait.
    ///
    /// # Panics
    /// When there may be none.
    #[must_use]
    pub fn limit_connections(mut self, connections: usize) -> FastCgi {
        assert!(connections > 0, "without connections there are no answers");
        self.keeping = keeping(connections, self.keeping.pool.idle_timeout);
        self
    }

    /// How long a connection is kept that nobody needs, 5 seconds unless set, and twice that at most. Each takes a
    /// process of php-fpm.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> FastCgi {
        self.keeping = keeping(self.keeping.pool.limit_connections, timeout);
        self
    }

    /// The longest body of a request, instead of the server's limit.
    #[must_use]
    pub fn limit_body_bytes(mut self, bytes: u64) -> FastCgi {
        self.limit_body_bytes = Some(bytes);
        self
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        self.root.path()
    }

    /// What the path leads to.
    fn find(&self, req: &Request<'_>) -> Result<Script, NoScript> {
        let mut script = self.search.find_for(req, &self.prefix, &self.root)?;
        if let Some(there) = &self.root_there
            && let Ok(below) = script.file.strip_prefix(self.root.path())
        {
            script.file = there.join(below);
        }
        Ok(script)
    }

    fn run(&self, req: &Request<'_>) -> Response {
        // Mounted at `/app`, `/` is what is asked for by `/app`, too; but what is linked there is below `/app/`.
        let is_mount = !self.prefix.is_empty() && req.path() == self.prefix;
        if is_mount || (req.path() == "/" && !req.full_path().ends_with('/')) {
            return add_slash(req);
        }
        let script = match (self.find(req), &self.fallback) {
            (Ok(script), _) => script,
            // The source of a script is never what answers.
            (Err(NoScript::NotFound), Some(fallback)) if !self.names_a_script(req) => {
                return fallback.call(req);
            }
            (Err(no_script), _) => return no_script.into_response(),
        };
        let name: Rc<str> = script.file.display().to_string().into();
        match self.ask(req, &script, &name) {
            Ok(talk) => relay::answer(req, talk, Style::Cgi),
            Err(error) => failed(&name, &error),
        }
    }

    fn names_a_script(&self, req: &Request<'_>) -> bool {
        let suffix = self.search.suffix.as_deref().unwrap_or_default().to_ascii_lowercase();
        req.segments().iter().any(|segment| segment.to_ascii_lowercase().ends_with(&suffix))
    }

    /// Sends the request.
    fn ask(&self, req: &Request<'_>, script: &Script, name: &Rc<str>) -> io::Result<Talk> {
        let body_bytes = body_bytes(req);
        let told = variables(req, script, body_bytes, &self.telling);
        let mut request = Vec::with_capacity(2048);
        record::begin(&mut request, true);
        record::params(&mut request, told.iter().map(|(name, value)| (name.as_bytes(), &**value)));
        let has_body = body_bytes.is_some_and(|bytes| bytes > 0);
        if !has_body {
            record::stdin(&mut request, b"");
        }
        let is_safe = matches!(req.method(), Method::Get | Method::Head | Method::Options);
        let mut talk = Talk {
            name: Rc::clone(name),
            connection: None,
            decoder: Decoder::default(),
            received: Vec::new(),
            feeding: None,
            fed: Rc::new(Cell::new(!has_body)),
            failure: Rc::default(),
            ended: false,
            lines: LogLines::new(Rc::clone(name)),
            timeout: self.timeout,
            patience: Patience::new(self.timeout),
            again: None,
        };
        let to = (self.keeping.clone(), self.place.clone());
        talk.send(&to, &request)?;
        let used = talk.connection.as_ref().is_some_and(|connection| connection.used);
        if used && is_safe && !has_body {
            talk.again = Some((to, request)); // it may be found closed
        }
        if has_body {
            talk.feed(req.owned_body_reader())?;
        }
        Ok(talk)
    }
}

impl App for FastCgi {
    fn call(&self, req: &Request<'_>) -> Response {
        self.run(req)
    }

    fn plan(&self, req: &Request<'_>) -> Plan {
        plan(req, self.limit_body_bytes)
    }
}

impl fmt::Debug for FastCgi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastCgi")
            .field("address", &self.place.to_string())
            .field("root", &self.directory())
            .finish_non_exhaustive()
    }
}

/// Connections of each loop.
fn keeping(limit_connections: usize, idle_timeout: Duration) -> Keeping {
    let pool = ConnPoolSettings {
        limit_connections,
        limit_idle: limit_connections,
        idle_timeout,
        ..ConnPoolSettings::default()
    };
    Keeping::new(pool, CONNECT_TIMEOUT, None)
}

/// A request that is being answered.
struct Talk {
    name: Rc<str>,
    connection: Option<Pooled>,
    decoder: Decoder,
    /// What was received and not looked at.
    received: Vec<u8>,
    feeding: Option<JoinHandle<()>>,
    /// Whether all of the body was sent.
    fed: Rc<Cell<bool>>,
    /// Why the body of the request did not come.
    failure: Rc<RefCell<Option<io::Error>>>,
    /// The server says that the request is over.
    ended: bool,
    lines: LogLines,
    timeout: Duration,
    patience: Patience,
    /// What is sent once more, and where, if the connection turns out to have been closed before.
    again: Option<((Keeping, Place), Vec<u8>)>,
}

impl Talk {
    fn send(&mut self, to: &(Keeping, Place), request: &[u8]) -> io::Result<()> {
        let (keeping, place) = to;
        loop {
            // What cannot be asked twice is not asked on a connection that may be gone.
            let connection = coracle_coro::timeout(self.timeout, || keeping.get(place, true))?;
            match coracle_coro::timeout(self.timeout, || connection.stream.write_all(request)) {
                Ok(()) => {
                    self.connection = Some(connection);
                    return Ok(());
                }
                // It was closed just now, and nobody has read all of the request.
                Err(_) if connection.used => connection.discard(),
                Err(error) => {
                    connection.discard();
                    return Err(error);
                }
            }
        }
    }

    /// Passes the body on, meanwhile.
    fn feed(&mut self, body: BodyReader<'static>) -> io::Result<()> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let (stream, patience) = (connection.stream.share()?, self.patience.clone());
        let (fed, failure) = (Rc::clone(&self.fed), Rc::clone(&self.failure));
        self.feeding = Some(spawn(move || match feed(body, &stream, &patience) {
            Ok(whole) => fed.set(whole),
            Err(error) if coracle_coro::is_cancelled(&error) => {}
            Err(error) => {
                failure.replace(Some(error));
                stream.close(); // whoever waits for the answer is told: half a body is none
            }
        }));
        Ok(())
    }

    /// Receives more; none is an error.
    fn receive(&mut self) -> io::Result<()> {
        let closed =
            || io::Error::new(io::ErrorKind::UnexpectedEof, "the FastCGI server has hung up");
        let connection = self.connection.as_ref().ok_or_else(closed)?;
        let start = self.received.len();
        self.received.resize(start + PIECE_BYTES, 0);
        let space = &mut self.received[start..];
        let read = self.patience.wait(None, || connection.stream.read(space));
        self.received.truncate(start + *read.as_ref().unwrap_or(&0));
        if let (Ok(0) | Err(_), Some(failure)) = (&read, self.failure.take()) {
            return Err(failure);
        }
        match (read, self.again.take()) {
            (Ok(1..), _) => Ok(()),
            (Ok(0), Some((to, request))) => self.send_again(&to, &request),
            (Err(error), Some((to, request))) if is_gone(&error) => self.send_again(&to, &request),
            (Ok(_), _) => Err(closed()),
            (Err(error), _) if error.kind() == io::ErrorKind::TimedOut => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the FastCGI server takes too long"))
            }
            (Err(error), _) => Err(error),
        }
    }

    fn send_again(&mut self, to: &(Keeping, Place), request: &[u8]) -> io::Result<()> {
        if let Some(connection) = self.connection.take() {
            connection.discard();
        }
        self.send(to, request)?;
        self.receive()
    }

    /// Gives the connection back if it can be used again, and else closes it.
    fn hang_up(&mut self) {
        if let Some(feeding) = self.feeding.take() {
            // What comes from the client from here on may be of another request.
            if !feeding.is_finished() {
                feeding.cancel();
                let _ = coracle_coro::shield(LIMIT_END, || feeding.join());
            }
        }
        if let Some(mut connection) = self.connection.take() {
            let is_over = self.ended && self.received.is_empty() && self.decoder.is_between();
            if !(connection.rest() && is_over && self.fed.get()) {
                connection.discard();
            }
        }
    }
}

impl Read for Talk {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.ended {
                return Ok(0);
            }
            let looked = self.decoder.next(&self.received, into.len());
            let (used, event) = looked.map_err(|error| {
                let text = format!("the FastCGI server is not understood: {error}");
                io::Error::new(io::ErrorKind::InvalidData, text)
            })?;
            let mut count = 0;
            match event {
                Some(Event::Stdout(piece)) => {
                    into[..piece.len()].copy_from_slice(piece);
                    count = piece.len();
                }
                Some(Event::Stderr(piece)) => self.lines.push(piece),
                Some(Event::End { status, how }) => {
                    self.ended = true;
                    end(&self.name, status, how)?;
                }
                None => {
                    self.received.drain(..used);
                    self.receive()?;
                    continue;
                }
            }
            self.received.drain(..used);
            if count > 0 {
                self.again = None;
                return Ok(count);
            }
        }
    }
}

fn end(name: &str, status: u32, how: Ending) -> io::Result<()> {
    match how {
        Ending::Complete => {
            if status != 0 {
                tracing::warn!(script = name, "it has ended with exit status: {status}");
            }
            Ok(())
        }
        Ending::Overloaded => {
            Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the FastCGI server is overloaded"))
        }
        other => {
            Err(io::Error::other(format!("the FastCGI server refuses the request: {other:?}")))
        }
    }
}

impl Speaker for Talk {
    fn finish(&mut self) -> io::Result<()> {
        // There may be a little left to read before the connection is as it was.
        let mut space = [0; 1024];
        for _ in 0..8 {
            match coracle_coro::timeout(LIMIT_END, || self.read(&mut space)) {
                Ok(1..) => {}
                Ok(0) | Err(_) => break,
            }
        }
        self.hang_up();
        Ok(())
    }

    fn patience(&self) -> &Patience {
        &self.patience
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Talk {
    /// Nobody wants more of it: the server sees that by the end of the connection.
    fn drop(&mut self) {
        self.feeding.take().inspect(JoinHandle::cancel);
        if let Some(connection) = self.connection.take() {
            connection.discard();
        }
    }
}

/// Passes a body on; whether all of it. The error is the client's.
fn feed(mut body: BodyReader<'static>, stream: &Stream, patience: &Patience) -> io::Result<bool> {
    let mut space = vec![0; PIECE_BYTES.min(CONTENT_BYTES)];
    let mut out = Vec::with_capacity(PIECE_BYTES + 16);
    loop {
        let count = patience.receive(|| body.read(&mut space))?;
        out.clear();
        record::stdin(&mut out, &space[..count]);
        if stream.write_all(&out).is_err() {
            return Ok(false); // it does not read on, and may say why
        }
        patience.feed();
        if count == 0 {
            return Ok(true);
        }
    }
}
