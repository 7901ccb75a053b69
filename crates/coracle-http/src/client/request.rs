//! A request, as it is put together and sent.

use super::answer::Answer;
use super::client::Client;
use super::link::{Link, is_gone, now};
use super::place::Place;
use super::pools::Pooled;
use super::upload::{Source, Upload};
use super::url::Url;
use crate::h1::reply::{Facts, Incoming};
use crate::{Headers, Method, Status};
use base64::Engine;
use bytes::Bytes;
use coracle_net::Address;
use serde::Serialize;
use std::fmt;
use std::io::{self, Cursor, Read};
use std::time::{Duration, Instant};

/// A body up to this size is sent together with its head, and before its answer is looked for.
const JOIN_BYTES: usize = 16 << 10;

/// Fields that say how a message is read, or concern one connection: they are the client's business.
const OURS: [&str; 8] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What only its own server is to know.
const SECRETS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// A request that is being put together; [`send`](RequestBuilder::send) sends it.
///
/// ```no_run
/// use coracle_http::client::Client;
///
/// coracle_coro::run(|| {
///     let client = Client::new();
///     let answer = client
///         .post("http://127.0.0.1:8080/posts")
///         .header("X-Tag", "whale")
///         .body("there she blows")
///         .send()?;
///     println!("{}", answer.status());
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// What cannot be sent, such as a header field with a line end in it, is told by `send`.
#[must_use = "a request is sent by `send`"]
pub struct RequestBuilder {
    client: Client,
    method: Method,
    method_name: String,
    url: Option<Url>,
    headers: Headers,
    body: Outgoing,
    trailers: Headers,
    at: Option<Address>,
    expect_continue: bool,
    idempotent: bool,
    timeout: Option<Duration>,
    limit_body_bytes: u64,
    /// The server has answered before it wanted the body.
    withheld: bool,
    /// The first thing that was wrong.
    wrong: Option<io::Error>,
}

enum Outgoing {
    Bytes(Bytes),
    Stream(Option<Box<dyn Read>>, Option<u64>),
}

impl RequestBuilder {
    pub(super) fn new(client: &Client, method: &str, url: &str) -> RequestBuilder {
        let settings = client.settings();
        let mut wrong = None;
        let url = Url::parse(url).map_err(|error| wrong = Some(error)).ok();
        let known = Method::from_name(method);
        let token = !method.is_empty() && method.bytes().all(crate::headers::is_token);
        if !token || matches!(known, Method::Connect | Method::Trace) {
            let text = format!("cannot send a request by {method:?}");
            wrong.get_or_insert(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        RequestBuilder {
            client: client.clone(),
            method: known,
            method_name: method.to_owned(),
            url,
            headers: Headers::new(),
            body: Outgoing::Bytes(Bytes::new()),
            trailers: Headers::new(),
            at: None,
            expect_continue: false,
            idempotent: known.is_idempotent(),
            timeout: settings.timeout,
            limit_body_bytes: settings.limit_body_bytes,
            withheld: false,
            wrong,
        }
    }

    fn refuse(&mut self, text: impl fmt::Display) {
        let error = io::Error::new(io::ErrorKind::InvalidInput, text.to_string());
        self.wrong.get_or_insert(error);
    }

    /// With this header field, beside those of that name. `Host` and `User-Agent` take the place of the usual
    /// ones.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> RequestBuilder {
        if OURS.iter().any(|ours| ours.eq_ignore_ascii_case(name)) {
            self.refuse(format_args!("the header {name:?} is the client's business"));
        } else if let Err(error) = self.headers.append(name, value) {
            self.refuse(error);
        }
        self
    }

    /// With the name and the password of a user.
    pub fn basic_auth(mut self, user: &str, password: &str) -> RequestBuilder {
        if user.contains(':') {
            self.refuse("the name of a user has no colon in it");
        }
        let text = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        let _ = self.headers.insert("authorization", format!("Basic {text}")); // it is plain text
        self
    }

    /// With a body.
    pub fn body(mut self, body: impl Into<Bytes>) -> RequestBuilder {
        self.body = Outgoing::Bytes(body.into());
        self
    }

    /// With a body that is JSON.
    pub fn json(mut self, value: &impl Serialize) -> RequestBuilder {
        match serde_json::to_vec(value) {
            Ok(text) => self.typed("application/json", text),
            Err(error) => {
                self.refuse(format_args!("cannot be written as JSON: {error}"));
                self
            }
        }
    }

    /// With a body that is a form.
    pub fn form(mut self, value: &impl Serialize) -> RequestBuilder {
        match serde_html_form::to_string(value) {
            Ok(text) => self.typed("application/x-www-form-urlencoded", text),
            Err(error) => {
                self.refuse(format_args!("cannot be written as a form: {error}"));
                self
            }
        }
    }

    fn typed(mut self, content_type: &'static str, body: impl Into<Bytes>) -> RequestBuilder {
        if !self.headers.contains("content-type") {
            self.headers.insert_static("content-type", content_type);
        }
        self.body(body)
    }

    /// With a body that is read while it is sent, in chunks. The reader runs in a coroutine of its own, and may
    /// wait as long as it likes. Such a request is tried once.
    pub fn body_reader(mut self, reader: impl Read + 'static) -> RequestBuilder {
        self.body = Outgoing::Stream(Some(Box::new(reader)), None);
        self
    }

    /// The same, when it is known how much it will be.
    pub fn body_reader_exact(mut self, len: u64, reader: impl Read + 'static) -> RequestBuilder {
        self.body = Outgoing::Stream(Some(Box::new(reader)), Some(len));
        self
    }

    /// With these fields behind a body that is sent in chunks.
    pub fn trailers(mut self, trailers: Headers) -> RequestBuilder {
        self.trailers = trailers;
        self
    }

    /// Sends the body only when the server says that it wants it, or says nothing for
    /// [a moment](super::Settings::continue_timeout).
    pub fn expect_continue(mut self) -> RequestBuilder {
        self.expect_continue = true;
        self
    }

    /// Whether it does no harm to ask twice. Known for most methods; for `POST` and `PATCH` say so.
    pub fn idempotent(mut self, idempotent: bool) -> RequestBuilder {
        self.idempotent = idempotent;
        self
    }

    /// How long all of it may take, instead of what the [settings](super::Settings::timeout) say.
    pub fn timeout(mut self, timeout: Duration) -> RequestBuilder {
        self.timeout = Some(timeout);
        self
    }

    /// How many bytes the body of the answer may have, instead of what the
    /// [settings](super::Settings::limit_body_bytes) say.
    pub fn limit_body_bytes(mut self, bytes: u64) -> RequestBuilder {
        self.limit_body_bytes = bytes;
        self
    }

    /// Connects there, whatever the URL says: to a Unix socket, say. Redirects to other hosts are not sent there.
    pub fn at(mut self, address: impl Into<Address>) -> RequestBuilder {
        self.at = Some(address.into());
        self
    }

    /// Sends it, and waits for the head of its answer. In a coroutine.
    ///
    /// # Errors
    /// - `InvalidInput`: it cannot be sent.
    /// - Those of connecting: `ConnectionRefused`, and what else there is.
    /// - `InvalidData`: the answer is none, or can be read in two ways; the server is not who it should be
    ///   (`https`); a redirect leads from `https` [to `http`](super::Settings::redirect_to_http).
    /// - `FileTooLarge`: the answer is longer than it may be.
    /// - `UnexpectedEof`, `ConnectionReset`: the server went away.
    /// - `TimedOut`; `ECANCELED`.
    /// - `Unsupported`: `https` without the feature `tls`, where nobody [secures](super::Settings::secure) it.
    /// - What the reader of a body says.
    pub fn send(mut self) -> io::Result<Answer> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        match self.timeout {
            None => self.follow(None),
            Some(timeout) => {
                let deadline = now() + timeout.min(crate::settings::LONGEST);
                coracle_coro::deadline(deadline, || self.follow(Some(deadline)))
            }
        }
    }

    /// Asks, and asks where the answer says.
    fn follow(mut self, deadline: Option<Instant>) -> io::Result<Answer> {
        let mut followed = 0;
        loop {
            let mut answer = self.ask()?;
            answer.set_deadline(deadline);
            let limit = self.client.settings().limit_redirects;
            let Some(next) = self.redirected(&answer)? else { return Ok(answer) };
            if limit == 0 {
                return Ok(answer);
            }
            self.check_redirect(&next)?;
            if followed == limit {
                let text = format!("{next}: there are more than {limit} redirects");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            followed += 1;
            answer.skip(); // its connection may be used again
            self.go_to(next, answer.status());
        }
    }

    /// Where else to ask, if the answer says so and it can be done.
    fn redirected(&self, answer: &Answer) -> io::Result<Option<Url>> {
        let status = answer.status();
        if !matches!(status.as_u16(), 301..=303 | 307 | 308) {
            return Ok(None);
        }
        if matches!(self.body, Outgoing::Stream(..)) && !self.becomes_get(status) {
            return Ok(None); // its body cannot be sent again
        }
        let Some(location) = answer.header("location") else { return Ok(None) };
        let Some(url) = &self.url else { return Ok(None) };
        let joined = url.join(location).map_err(|error| {
            let text = format!("{url}: cannot follow the redirect: {error}");
            io::Error::new(io::ErrorKind::InvalidData, text)
        });
        joined.map(Some)
    }

    /// Who has asked in secret is not made to ask in public.
    fn check_redirect(&self, next: &Url) -> io::Result<()> {
        match &self.url {
            Some(url) if url.secure && !next.secure && !self.client.settings().redirect_to_http => {
                let text = format!("{url}: the redirect leads away from https (redirect_to_http)");
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
            }
            _ => Ok(()),
        }
    }

    fn becomes_get(&self, status: Status) -> bool {
        match status {
            Status::SEE_OTHER => self.method != Method::Head,
            Status::MOVED_PERMANENTLY | Status::FOUND => self.method == Method::Post,
            _ => false,
        }
    }

    fn go_to(&mut self, next: Url, status: Status) {
        if self.becomes_get(status) {
            (self.method, self.method_name) = (Method::Get, "GET".to_owned());
            self.idempotent = true;
            self.body = Outgoing::Bytes(Bytes::new());
            self.expect_continue = false;
            for about_the_body in ["content-type", "content-encoding", "content-language"] {
                self.headers.remove(about_the_body);
            }
        }
        if !self.url.as_ref().is_some_and(|url| url.is_same_origin(&next)) {
            self.at = None;
            self.headers.remove("host");
            for secret in SECRETS {
                self.headers.remove(secret);
            }
        }
        self.url = Some(next);
    }

    /// Asks, and asks again if that may help.
    fn ask(&mut self) -> io::Result<Answer> {
        let Some(url) = self.url.clone() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no URL to ask for"));
        };
        let place = url.place(self.at.as_ref());
        let settings = self.client.settings().clone();
        let (mut attempt, mut pause) = (1, settings.retry_pause);
        loop {
            let failure = match self.attempt(&url, &place) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            match failure.again {
                Again::AtOnce => continue, // the pool has one stale connection less
                Again::Later if attempt < settings.limit_attempts => {
                    coracle_coro::sleep(pause)?;
                    (attempt, pause) = (attempt + 1, pause.saturating_mul(2));
                }
                _ => return Err(told(&url, failure.error)),
            }
        }
    }

    /// Whether it could be sent once more.
    fn is_repeatable(&self) -> bool {
        self.idempotent && matches!(self.body, Outgoing::Bytes(_))
    }

    fn attempt(&mut self, url: &Url, place: &Place) -> Result<Answer, Failure> {
        let mut conn = self.connection(place)?;
        self.write_head(&mut conn.out, url);
        let upload = match self.send_to(&mut conn) {
            Ok(upload) => upload,
            Err(error) => return self.look_for_refusal(conn, error),
        };
        let mut headers = Headers::new();
        match self.receive_head(&mut conn, upload.as_ref(), &mut headers) {
            Ok(facts) => self.answer(conn, facts, headers, upload),
            Err(error) => {
                let Some(upload) = upload else { return Err(self.failed(conn, error)) };
                let (Ok(error) | Err(error)) = upload.explain(error);
                conn.discard();
                Err(Failure { error, again: Again::Never })
            }
        }
    }

    fn connection(&self, place: &Place) -> Result<Pooled, Failure> {
        self.client.keeping().get(place, !self.is_repeatable()).map_err(|error| {
            let hopeless = coracle_coro::is_cancelled(&error)
                || matches!(
                    error.kind(),
                    io::ErrorKind::Unsupported
                        | io::ErrorKind::QuotaExceeded
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::InvalidInput
                        | io::ErrorKind::InvalidData // it is somebody else
                );
            let again = if hopeless { Again::Never } else { Again::Later };
            Failure { error, again }
        })
    }

    fn write_head(&self, out: &mut Vec<u8>, url: &Url) {
        let settings = self.client.settings();
        out.clear();
        write_line(out, &self.method_name, &url.target);
        let mut field = |name: &str, value: &str| {
            if !self.headers.contains(name) {
                write_field(out, name.as_bytes(), value.as_bytes());
            }
        };
        field("host", &url.host);
        field("user-agent", &settings.user_agent);
        field("accept", "*/*");
        if cfg!(feature = "compression") && settings.compression && !self.headers.contains("range")
        {
            field("accept-encoding", super::decode::ACCEPTED);
        }
        write_fields(out, &self.headers);
        match &self.body {
            Outgoing::Bytes(bytes) if bytes.is_empty() => {
                // A method that means something by its body says that it has none (RFC 9110, 8.6).
                if matches!(self.method, Method::Post | Method::Put | Method::Patch) {
                    write_field(out, b"content-length", b"0");
                }
            }
            Outgoing::Bytes(bytes) => write_length(out, bytes.len() as u64),
            Outgoing::Stream(_, Some(len)) => write_length(out, *len),
            Outgoing::Stream(_, None) => write_field(out, b"transfer-encoding", b"chunked"),
        }
        if self.expect_continue && !self.has_no_body() {
            write_field(out, b"expect", b"100-continue");
        }
        out.extend_from_slice(b"\r\n");
    }

    fn has_no_body(&self) -> bool {
        matches!(&self.body, Outgoing::Bytes(bytes) if bytes.is_empty())
            || matches!(self.body, Outgoing::Stream(_, Some(0)))
    }

    /// Sends the head that was put together, and the body: what is large in a coroutine of its own.
    fn send_to(&mut self, conn: &mut Link) -> io::Result<Option<Upload>> {
        let settings = self.client.settings().clone();
        self.withheld = false;
        if self.expect_continue && !self.has_no_body() {
            coracle_coro::timeout(settings.body_timeout, || conn.send())?;
            if !self.is_wanted(conn, settings.continue_timeout)? {
                self.withheld = true;
                return Ok(None);
            }
        }
        let (reader, len): (Box<dyn Read>, _) = match &mut self.body {
            Outgoing::Bytes(bytes) if bytes.len() <= JOIN_BYTES => {
                conn.out.extend_from_slice(bytes);
                coracle_coro::timeout(settings.body_timeout, || conn.send())?;
                return Ok(None);
            }
            Outgoing::Bytes(bytes) => {
                (Box::new(Cursor::new(bytes.clone())), Some(bytes.len() as u64))
            }
            Outgoing::Stream(reader, len) => match reader.take() {
                Some(reader) => (reader, *len),
                None => return Err(io::Error::other("its body was sent before")),
            },
        };
        if !conn.out.is_empty() {
            coracle_coro::timeout(settings.body_timeout, || conn.send())?;
        }
        let trailers = self.trailers.clone();
        let source = Source { reader, len, trailers: Box::new(move || trailers) };
        let stream = conn.stream.share()?;
        Ok(Some(Upload::start(stream, source, settings.body_timeout, settings.head_timeout)))
    }

    /// Waits until the server says whether it wants the body, or has said nothing for a moment.
    fn is_wanted(&self, conn: &mut Link, timeout: Duration) -> io::Result<bool> {
        let parsing = self.client.parsing();
        let told = coracle_coro::timeout(timeout, || conn.peek_head(self.method, parsing));
        match told {
            Ok(facts) => Ok(facts.is_none_or(|facts| facts.status == Status::CONTINUE)),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn receive_head(
        &self,
        conn: &mut Link,
        upload: Option<&Upload>,
        headers: &mut Headers,
    ) -> io::Result<Facts> {
        let (method, parsing) = (self.method, self.client.parsing());
        let mut receive = || conn.receive_head(method, parsing, headers);
        let facts = match upload {
            // Its time begins when everything is sent.
            Some(_) => receive(),
            None => coracle_coro::timeout(self.client.settings().head_timeout, receive),
        }?;
        if facts.status == Status::SWITCHING_PROTOCOLS {
            let text = "the answer is another protocol, which was not asked for";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(facts)
    }

    /// Makes an answer of a head and the connection on which its body comes.
    fn answer(
        &self,
        conn: Pooled,
        facts: Facts,
        headers: Headers,
        upload: Option<Upload>,
    ) -> Result<Answer, Failure> {
        let never = |error| Failure { error, again: Again::Never };
        let sent = upload.as_ref().is_none_or(Upload::answered);
        // A server that has refused it does not want the rest.
        let upload = upload.filter(|_| !sent && facts.status.as_u16() < 400);
        let incoming = match Incoming::new(facts.end, self.limit_body_bytes) {
            Ok(incoming) => incoming,
            Err(refusal) => {
                conn.discard();
                return Err(never(super::link::wrong(refusal)));
            }
        };
        let client = self.client.clone();
        let reusable = facts.keep_alive && !self.withheld && (sent || upload.is_some());
        Answer::new(
            client,
            facts.status,
            headers,
            conn,
            incoming,
            upload,
            reusable,
            self.limit_body_bytes,
        )
        .map_err(never)
    }

    /// The request could not be sent: perhaps the server has said why, and gone.
    fn look_for_refusal(&self, mut conn: Pooled, error: io::Error) -> Result<Answer, Failure> {
        let mut headers = Headers::new();
        if is_gone(&error)
            && let Ok(facts) = self.receive_head(&mut conn, None, &mut headers)
        {
            let facts = Facts { keep_alive: false, ..facts };
            return self.answer(conn, facts, headers, None);
        }
        Err(self.failed(conn, error))
    }

    /// No answer has come: whether it is worth another try.
    fn failed(&self, conn: Pooled, error: io::Error) -> Failure {
        let again = match is_gone(&error) && self.is_repeatable() && !conn.is_answering() {
            true if conn.used => Again::AtOnce,
            true => Again::Later,
            false => Again::Never,
        };
        conn.discard();
        Failure { error, again }
    }
}

impl fmt::Debug for RequestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.as_ref().map(Url::to_string);
        f.debug_struct("RequestBuilder")
            .field("method", &self.method_name)
            .field("url", &url)
            .finish_non_exhaustive()
    }
}

/// Why there is no answer, and whether to ask again.
struct Failure {
    error: io::Error,
    again: Again,
}

enum Again {
    Never,
    /// The connection was an old one.
    AtOnce,
    Later,
}

/// Says whose answer it was that did not come.
fn told(url: &Url, error: io::Error) -> io::Error {
    let kind = error.kind();
    match kind {
        _ if coracle_coro::is_cancelled(&error) => error,
        io::ErrorKind::TimedOut => io::Error::new(kind, format!("{url}: it took too long")),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::FileTooLarge => {
            io::Error::new(kind, format!("{url}: {error}"))
        }
        _ => error,
    }
}

pub(crate) fn write_line(out: &mut Vec<u8>, method: &str, target: &str) {
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

pub(crate) fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn write_fields(out: &mut Vec<u8>, headers: &Headers) {
    headers.raw().for_each(|(name, value)| write_field(out, name, value));
}

pub(crate) fn write_length(out: &mut Vec<u8>, len: u64) {
    write_field(out, b"content-length", itoa::Buffer::new().format(len).as_bytes());
}
