//! What a server has answered: a head, and a body that is read while it comes.

use super::client::Client;
use super::decode::Decoder;
use super::pools::Pooled;
use super::upload::Upload;
use crate::h1::reply::Incoming;
use crate::{Headers, Status};
use serde::de::DeserializeOwned;
use std::fmt;
use std::io::{self, Read};
use std::time::Instant;

/// So much of a body that nobody wants is read, for the sake of its connection.
const SKIP_BYTES: usize = 64 << 10;

/// The answer to a request. Its body is read as it comes, by [`Read`] or at once; who does not read it to its end
/// gives up the connection it comes on.
///
/// ```no_run
/// use coracle_http::client::Client;
/// use std::io::Read;
///
/// coracle_coro::run(|| {
///     let mut answer = Client::new().get("http://127.0.0.1:8080/").send()?;
///     println!("{} {:?}", answer.status(), answer.header("content-type"));
///     let mut piece = [0; 4096];
///     while let count @ 1.. = answer.read(&mut piece)? {
///         println!("{count} bytes more");
///     }
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Answer {
    status: Status,
    headers: Headers,
    body: Decoder<Raw>,
    limit_body_bytes: u64,
    /// How much was handed out, decoded.
    read: u64,
}

/// A body as it was sent.
pub(super) struct Raw {
    client: Client,
    /// Until its end.
    conn: Option<Pooled>,
    /// Why that was not its end.
    broken: Option<io::ErrorKind>,
    incoming: Incoming,
    trailers: Headers,
    upload: Option<Upload>,
    reusable: bool,
    deadline: Option<Instant>,
}

impl Answer {
    #[allow(clippy::too_many_arguments)] // it is made in one place
    pub(super) fn new(
        client: Client,
        status: Status,
        headers: Headers,
        conn: Pooled,
        incoming: Incoming,
        upload: Option<Upload>,
        reusable: bool,
        limit_body_bytes: u64,
    ) -> io::Result<Answer> {
        let is_empty = incoming.len() == Some(0);
        let compression = client.settings().compression;
        let trailers = Headers::new();
        let mut raw = Raw {
            client,
            conn: Some(conn),
            broken: None,
            incoming,
            trailers,
            upload,
            reusable,
            deadline: None,
        };
        if is_empty {
            raw.end();
        }
        let coding = headers.get("content-encoding").filter(|_| compression && !is_empty);
        let body = Decoder::new(coding, raw)?;
        Ok(Answer { status, headers, body, limit_body_bytes, read: 0 })
    }

    pub(super) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.body.raw_mut().deadline = deadline;
    }

    /// What came of it.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The header fields, as they were sent.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The value of the first header field of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)
    }

    /// The fields behind a body in chunks. None until it was read to its end.
    pub fn trailers(&self) -> &Headers {
        &self.body.raw().trailers
    }

    /// This answer, if it is a good one; else an error that says what it is.
    ///
    /// # Errors
    /// Its status is 400 or above.
    pub fn error_for_status(self) -> io::Result<Answer> {
        if self.status.is_client_error() || self.status.is_server_error() {
            return Err(io::Error::other(format!("it was answered {}", self.status)));
        }
        Ok(self)
    }

    /// The whole body.
    ///
    /// # Errors
    /// It is too long, cannot be decoded, or does not come.
    pub fn bytes(mut self) -> io::Result<Vec<u8>> {
        let mut whole = Vec::new();
        self.read_to_end(&mut whole)?;
        Ok(whole)
    }

    /// The whole body as text.
    ///
    /// # Errors
    /// As [`bytes`](Answer::bytes); it is not UTF-8.
    pub fn text(self) -> io::Result<String> {
        let whole = self.bytes()?;
        String::from_utf8(whole).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// The whole body, which is JSON.
    ///
    /// # Errors
    /// As [`bytes`](Answer::bytes); it is not such JSON.
    pub fn json<T: DeserializeOwned>(self) -> io::Result<T> {
        let whole = self.bytes()?;
        serde_json::from_slice(&whole)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Reads what is left of a body that nobody wants, if it is little.
    pub(super) fn skip(&mut self) {
        let mut space = [0; 4096];
        let mut skipped = 0;
        let raw = self.body.raw_mut();
        while let Ok(count @ 1..) = raw.read(&mut space) {
            skipped += count;
            if skipped > SKIP_BYTES {
                break;
            }
        }
    }
}

impl Read for Answer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.body.read(into)?;
        self.read += count as u64;
        if self.read > self.limit_body_bytes {
            return Err(super::link::wrong(crate::h1::reply::TOO_LARGE));
        }
        Ok(count)
    }
}

impl Raw {
    /// The body is over: its connection may be used by the next.
    fn end(&mut self) {
        let sent = self.upload.take().is_none_or(|upload| upload.answered());
        if let Some(mut conn) = self.conn.take()
            && !(conn.rest() && self.reusable && sent)
        {
            conn.discard();
        }
    }
}

impl Read for Raw {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(kind) = self.broken {
            return Err(io::Error::new(kind, "the body has broken off before its end"));
        }
        let Some(conn) = &mut self.conn else { return Ok(0) };
        if into.is_empty() {
            return Ok(0);
        }
        let (incoming, trailers) = (&mut self.incoming, &mut self.trailers);
        let parsing = self.client.parsing();
        let mut read = || {
            coracle_coro::timeout(self.client.settings().body_timeout, || {
                conn.read_body(incoming, parsing, trailers, into)
            })
        };
        let count = match self.deadline {
            Some(deadline) => coracle_coro::deadline(deadline, read),
            None => read(),
        };
        match &count {
            Ok(0) => self.end(),
            Ok(_) => {}
            Err(error) => {
                self.broken = Some(error.kind());
                self.reusable = false;
                self.end();
            }
        }
        count
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // What has come already may be all of it.
        let whole = match &mut self.conn {
            None => return,
            Some(conn) => {
                let (incoming, trailers) = (&mut self.incoming, &mut self.trailers);
                let parsing = self.client.parsing();
                conn.take_body(incoming, parsing, trailers, &mut Vec::new(), SKIP_BYTES)
            }
        };
        self.reusable &= whole.is_ok_and(|whole| whole);
        self.end();
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}
