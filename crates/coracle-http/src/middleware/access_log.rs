//! A line for each answer, in a file, without holding up a loop.
//!
//! ```text
//!   loop ──┐
//!   loop ──┼─ a line ─► buffer (1 MiB, a lock for the length of a copy) ──► thread ──► file
//!   loop ──┘             full: the line is dropped, and counted
//! ```

mod line;
mod writer;

use self::line::Entry;
use self::writer::Writer;
use super::{Middleware, Next, User};
use crate::body::Kind;
use crate::{Body, BodyWriter, Method, Request, Response};
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// `127.0.0.1 - ahab [16/Nov/2026:04:56:43 +0000] "GET / HTTP/1.1" 200 5`
    Common,
    /// The same, and the page from which it came, and the name of the browser.
    Combined,
    /// An object per line, with the time it took, the request's id and the route as well.
    Json,
}

/// Writes a line for each answer. Clones write to the same file; keep one to [`reopen`](AccessLog::reopen) it, and
/// to see whether lines were lost.
///
/// ```
/// use coracle_http::middleware::{AccessLog, LogFormat};
/// use coracle_http::{App, OwnedRequest, Router};
///
/// let path = std::env::temp_dir().join(format!("coracle-access-log-{}", std::process::id()));
/// let log = AccessLog::to_file(&path, LogFormat::Common)?;
/// let app = Router::new(()).with(log.clone()).get("/", |_, _| "ahoy\n");
/// app.call(&OwnedRequest::new("GET", "/").request());
///
/// log.flush();
/// let text = std::fs::read_to_string(&path)?;
/// assert!(text.ends_with("\"GET / HTTP/1.1\" 200 5\n"), "{text}");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Requests that the server refuses have their line, too, with `-` for what was not understood of them. What
/// clients send is escaped: nobody can forge a line. Its length is counted when the answer is handed over, or has
/// been written, not when the client has it.
#[derive(Clone)]
pub struct AccessLog {
    format: LogFormat,
    writer: Arc<Writer>,
}

impl AccessLog {
    /// To the end of this file, which is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn to_file(path: impl Into<PathBuf>, format: LogFormat) -> io::Result<AccessLog> {
        Ok(AccessLog { format, writer: Arc::new(Writer::to_file(path.into())?) })
    }

    /// To anything else: standard output, a pipe. It is written to by a thread of its own, so it may block.
    pub fn to_writer(out: impl Write + Send + 'static, format: LogFormat) -> AccessLog {
        AccessLog { format, writer: Arc::new(Writer::new(Box::new(out))) }
    }

    /// Opens the file again, by its name: after it was renamed to make room for a new one. What was logged before
    /// goes to the old one.
    pub fn reopen(&self) {
        self.writer.reopen();
    }

    /// Waits until all that was logged before is written. For the end of a program, and for tests: it holds the
    /// thread.
    pub fn flush(&self) {
        self.writer.flush();
    }

    /// How many lines were lost: because they came faster than they could be written, or because that failed.
    pub fn dropped_lines(&self) -> u64 {
        self.writer.dropped()
    }

    fn write(&self, entry: &Entry) {
        let mut line = String::with_capacity(256);
        line::write(&mut line, self.format, entry);
        self.writer.push(line.as_bytes());
    }
}

impl Middleware for AccessLog {
    fn handle(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        let started = Instant::now();
        let time = SystemTime::now();
        let mut response = next.run(req);
        let mut entry = entry(req, &response, time);
        match response.body().0 {
            Kind::Stream { .. } if req.method() != Method::Head => {
                let Kind::Stream { writer, len } = response.take_body().0 else { return response };
                let written = Written { log: self.clone(), entry, started, bytes: 0 };
                response.set_body(Body(Kind::Stream { writer: counting(written, writer), len }));
            }
            _ => {
                entry.took = started.elapsed();
                self.write(&entry);
            }
        }
        response
    }

    fn refuse(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        self.handle(req, next)
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog")
            .field("format", &self.format)
            .field("dropped_lines", &self.dropped_lines())
            .finish_non_exhaustive()
    }
}

fn entry(req: &Request<'_>, response: &Response, time: SystemTime) -> Entry {
    let text = |name| req.header(name).map(str::to_owned);
    let bytes = if req.method() == Method::Head { Some(0) } else { response.body().len() };
    Entry {
        peer: req.peer().ip().map(|peer| peer.ip()),
        user: req.local::<User>().map(|user| user.name().to_owned()),
        time,
        took: Duration::ZERO,
        method: req.method_name().to_owned(),
        target: match req.query() {
            Some(query) => format!("{}?{query}", req.full_path()),
            None => req.full_path().to_owned(),
        },
        version: req.known_version(),
        host: req.host().map(str::to_owned),
        status: response.status().as_u16(),
        bytes: bytes.unwrap_or(0),
        referer: text("referer"),
        agent: text("user-agent"),
        id: req.id().map(|id| id.to_string()),
        route: req.route().map(str::to_owned),
    }
}

/// Logs an answer when it has been written, or dropped.
struct Written {
    log: AccessLog,
    entry: Entry,
    started: Instant,
    bytes: u64,
}

impl Drop for Written {
    fn drop(&mut self) {
        self.entry.bytes = self.bytes;
        self.entry.took = self.started.elapsed();
        self.log.write(&self.entry);
    }
}

fn counting(mut written: Written, writer: crate::body::Writer) -> crate::body::Writer {
    struct Counting<'a, 'b>(&'a mut BodyWriter<'b>, &'a mut u64);
    impl Write for Counting<'_, '_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = self.0.write(bytes)?;
            *self.1 += count as u64;
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }
    Box::new(move |out| {
        let written = &mut written; // all of it, so that it is dropped at the end
        let stopping = out.stopping();
        let mut out = Counting(out, &mut written.bytes);
        writer(&mut BodyWriter::of(stopping, &mut out))
    })
}

#[cfg(test)]
mod tests;
