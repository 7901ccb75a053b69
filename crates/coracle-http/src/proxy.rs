//! Handing requests on to other servers: a reverse proxy, as an app.
//!
//! ```text
//!            head, cleaned, and the body, framed anew              a connection that is kept
//!   client ──────────────────────────────────────► Proxy::call ──────────────────────────────► upstream
//!          ◄──────────────────────────────────────             ◄──────────────────────────────
//!            a small body with its head, a large one as it comes   read as strictly as requests are
//! ```
//!
//! A request runs in the coroutine of its handler. A small one, with a small answer, is one write to the upstream
//! and one to the client. Large bodies are never in memory as a whole: who reads slowly makes the other wait.

mod head;
mod health;
mod settings;
mod trailers;
mod tunnel;
mod upstream;

pub use self::settings::{Balance, HealthCheck, HostPolicy, ProxyVersion, Settings};
pub use self::upstream::Upstream;

use self::head::Framing;
use self::tunnel::Tunnel;
use self::upstream::InFlight;
use crate::client::link::{Link, is_gone};
use crate::client::pools::{Keeping, Pooled};
use crate::client::upload::{Source, Upload};
use crate::h1::reply::{End, Facts, Incoming};
use crate::{
    App, Body, BodyWriter, Headers, IntoResponse, Method, Plan, Refusal, Request, Response, Status,
    Trailers, Version, proxy_protocol,
};
use coracle_coro::conn_pool::ConnPoolSettings;
use coracle_loop::Loop;
use coracle_net::Address;
use smallvec::SmallVec;
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A body up to this size is received before it is handed on, so that it goes with its head.
const JOIN_BYTES: usize = 16 << 10;

/// How much of a larger one is handed on at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Hands requests on to other servers, its upstreams.
///
/// ```no_run
/// use coracle_http::{self as http, Proxy, Router};
///
/// fn main() -> std::io::Result<()> {
///     let api = Proxy::to(["http://127.0.0.1:9001", "http://127.0.0.1:9002"])?;
///     let app = Router::new(()).mount("/api", api); // /api/posts is asked for as /posts
///     http::serve("127.0.0.1:8080", app)
/// }
/// ```
///
/// | what | the client is told |
/// |---|---|
/// | no connection to an upstream | 502, when [others](Settings::limit_attempts) were tried |
/// | an answer that is none, can be read in two ways, or breaks off before its body | 502 |
/// | no answer in time | 504 |
/// | no upstream that may be asked; too many who wait | 503 |
/// | an answer that breaks off in its body | the connection is cut |
///
/// A request is tried again elsewhere if its connection could not be opened, or broke before anything of the
/// answer came and the request is [idempotent](Method::is_idempotent) and was small. The handler of a client that
/// is gone is cancelled, and with it what it waits for.
///
/// [`Trailers`] are handed on both ways, with a body in chunks: those of an answer to a client that says
/// `TE: trailers`. Those that would change what a message is, where it goes or who asks are left out.
pub struct Proxy {
    upstreams: Arc<[Upstream]>,
    settings: Settings,
    parsing: crate::Settings,
    keeping: Keeping,
    turn: AtomicUsize,
    is_asking: AtomicBool,
}

impl Proxy {
    /// To these: `http://host:port/base`, the same by `https` (feature `tls`), or `unix:/path/of/socket`. What is
    /// asked for is looked for below `base`.
    ///
    /// # Errors
    /// `InvalidInput`: one of them is none, or there is none.
    pub fn to<'u>(upstreams: impl IntoIterator<Item = &'u str>) -> io::Result<Proxy> {
        let upstreams: io::Result<Vec<_>> = upstreams.into_iter().map(Upstream::parse).collect();
        let upstreams: Arc<[Upstream]> = upstreams?.into();
        if upstreams.is_empty() {
            let text = "a proxy needs an upstream: `http://127.0.0.1:9000`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Proxy::made(upstreams, Settings::default())
    }

    fn made(upstreams: Arc<[Upstream]>, settings: Settings) -> io::Result<Proxy> {
        settings.check()?;
        let parsing = settings.parsing();
        let pool = ConnPoolSettings {
            limit_connections: settings.limit_connections,
            limit_idle: settings.limit_idle,
            limit_waiters: settings.limit_waiters,
            idle_timeout: settings.idle_timeout,
        };
        let keeping = Keeping::new(pool, settings.connect_timeout, settings.secure.clone());
        let (turn, is_asking) = (AtomicUsize::new(0), AtomicBool::new(false));
        Ok(Proxy { upstreams, settings, parsing, keeping, turn, is_asking })
    }

    /// With these limits, time-outs and habits.
    ///
    /// # Errors
    /// They make no sense.
    pub fn settings(self, settings: Settings) -> io::Result<Proxy> {
        Proxy::made(Arc::clone(&self.upstreams), settings)
    }

    /// Who is asked.
    pub fn upstreams(&self) -> &[Upstream] {
        &self.upstreams
    }

    /// Asks one after the other, until one answers.
    fn hand_on(&self, req: &Request<'_>) -> Response {
        let Some(lp) = Loop::current() else {
            return io::Error::other("a proxy needs a loop").into_response();
        };
        self.check_health(&lp);
        if head::leads_up(req.path()) {
            return (Status::BAD_REQUEST, "the path leads above itself\n").into_response();
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let (mut tried, mut last) = (SmallVec::<[usize; 4]>::new(), None);
        loop {
            let balance = self.settings.balance;
            let next = upstream::choose(&self.upstreams, turn, balance, lp.now(), &tried);
            let Some(next) = next else {
                return last.map_or_else(unavailable, Failure::into_response);
            };
            let upstream = &self.upstreams[next];
            let failure = match self.ask(upstream, req) {
                Ok(response) => {
                    upstream.succeeded();
                    return response;
                }
                Err(failure) => failure,
            };
            if failure.is_its_fault {
                let settings = &self.settings;
                upstream.note_failure(lp.now(), settings.fail_limit, settings.fail_pause);
                tracing::warn!("{upstream}: {}", failure.error);
            }
            tried.push(next);
            if !failure.again || tried.len() >= self.settings.limit_attempts as usize {
                return failure.into_response();
            }
            last = Some(failure);
        }
    }

    fn check_health(&self, lp: &Loop) {
        if let Some(check) = &self.settings.health
            && !self.is_asking.swap(true, Ordering::Relaxed)
        {
            let asking = health::Asking {
                check: check.clone(),
                keeping: self.keeping.clone(),
                parsing: self.parsing.clone(),
                send_proxy: self.settings.send_proxy,
            };
            health::start(lp, &self.upstreams, asking);
        }
    }

    /// Asks an upstream. A connection that turns out to be an old one is not its fault: another is taken.
    fn ask(&self, upstream: &Upstream, req: &Request<'_>) -> Result<Response, Failure> {
        let in_flight = upstream.begin();
        // Only what is known: over HTTP/2 without encryption (h2c) a client would talk past us.
        let is_known = |name: &&str| name.eq_ignore_ascii_case("websocket");
        let upgrade = req.header("upgrade").filter(is_known);
        let upgrade = upgrade.filter(|_| req.headers().has_token("connection", "upgrade"));
        let framing = framing_of(req);
        let repeatable = req.method().is_idempotent() && req.stream.is_none();
        loop {
            let mut conn = self.connection(upstream, req, upgrade.is_some(), repeatable)?;
            let settings = &self.settings;
            head::write_request(&mut conn.out, req, upstream, settings, framing, upgrade);
            let mut headers = Headers::new();
            let (result, upload) = self.exchange(&mut conn, req, framing, &mut headers);
            let failure = match result {
                Ok(facts) => {
                    return self.answer(conn, req, facts, headers, upload, in_flight, upgrade);
                }
                Err(error) => error,
            };
            let again = repeatable && is_gone(&failure) && !conn.is_answering();
            let is_stale = again && conn.used;
            conn.discard();
            if !is_stale {
                let Some(upload) = upload else {
                    return Err(Failure::of_upstream(failure, again));
                };
                return Err(match upload.explain(failure) {
                    Err(unread) => Failure::of_client(unread),
                    Ok(error) => Failure::of_upstream(error, false),
                });
            }
        }
    }

    fn connection(
        &self,
        upstream: &Upstream,
        req: &Request<'_>,
        is_upgrade: bool,
        repeatable: bool,
    ) -> Result<Connection, Failure> {
        let place = upstream.place();
        let unreachable = |error: io::Error| match error.kind() {
            // It is somebody else, who has answered nothing.
            io::ErrorKind::InvalidData => Failure::of_upstream(io::Error::other(error), true),
            _ => Failure::of_upstream(error, true),
        };
        if is_upgrade || self.settings.send_proxy.is_some() {
            let link = match self.settings.send_proxy {
                None => self.keeping.connect(place),
                Some(version) => self.keeping.connect_with(place, &|target| {
                    let mut out = Vec::new();
                    proxy_protocol::write(&mut out, version, ip_of(req.peer()), target);
                    out
                }),
            };
            return Ok(Connection::Own(Box::new(link.map_err(unreachable)?)));
        }
        self.keeping.get(place, !repeatable).map(Connection::Kept).map_err(unreachable)
    }

    /// Sends a request whose head was put together, and waits for the head of the answer.
    fn exchange(
        &self,
        conn: &mut Link,
        req: &Request<'_>,
        framing: Framing,
        headers: &mut Headers,
    ) -> (io::Result<Facts>, Option<Upload>) {
        let (settings, parsing, method) = (&self.settings, &self.parsing, req.method());
        if req.stream.is_none() {
            conn.out.extend_from_slice(req.body());
            let facts = coracle_coro::timeout(settings.head_timeout, || match conn.send() {
                Ok(()) => conn.receive_head(method, parsing, headers),
                // Perhaps it has said why before it went.
                Err(error) if is_gone(&error) => {
                    let facts = conn.receive_head(method, parsing, headers)?;
                    Ok(Facts { keep_alive: false, ..facts })
                }
                Err(error) => Err(error),
            });
            return (facts, None);
        }
        let sent = coracle_coro::timeout(settings.body_timeout, || conn.send());
        if let Err(error) = sent {
            return (Err(error), None);
        }
        let len = match framing {
            Framing::Length(len) => Some(len),
            Framing::None | Framing::Chunks => None,
        };
        let reader = Box::new(req.owned_body_reader());
        let late = reader.late_trailers();
        let trailers = Box::new(move || trailers::allowed(&late()));
        let source = Source { reader, len, trailers };
        let upload = match conn.stream.share() {
            Ok(stream) => {
                Upload::start(stream, source, settings.body_timeout, settings.head_timeout)
            }
            Err(error) => return (Err(error), None),
        };
        (conn.receive_head(method, parsing, headers), Some(upload))
    }

    /// Makes an answer of what has come.
    #[allow(clippy::too_many_arguments)] // it is called in one place
    fn answer(
        &self,
        conn: Connection,
        req: &Request<'_>,
        facts: Facts,
        mut headers: Headers,
        upload: Option<Upload>,
        in_flight: InFlight,
        upgrade: Option<&str>,
    ) -> Result<Response, Failure> {
        let wrong = |text: &str| {
            Failure::of_upstream(io::Error::new(io::ErrorKind::InvalidData, text), false)
        };
        if facts.status == Status::SWITCHING_PROTOCOLS {
            let Some(protocol) = upgrade.filter(|it| headers.has_token("upgrade", it)) else {
                conn.discard();
                return Err(wrong("the answer is another protocol, which was not asked for"));
            };
            return switch(conn, protocol, &headers, in_flight);
        }
        let sent = upload.as_ref().is_none_or(Upload::answered);
        let upload = upload.filter(|_| !sent && facts.status.as_u16() < 400);
        let reusable = facts.keep_alive && (sent || upload.is_some());
        let wants_trailers = trailers::are_wanted(req);
        head::clean_response(&mut headers, wants_trailers);
        let has_length = headers.contains("content-length");
        let mut response = Response::new(facts.status);
        *response.headers_mut() = headers;
        let incoming = Incoming::new(facts.end, u64::MAX)
            .map_err(|refusal| Failure::of_upstream(crate::client::link::wrong(refusal), false))?;
        let mut flow = Flow {
            conn: Some(conn),
            incoming,
            trailers: Headers::new(),
            told: wants_trailers.then(Trailers::new),
            parsing: self.parsing.clone(),
            body_timeout: self.settings.body_timeout,
            upload,
            reusable,
            _in_flight: in_flight,
        };
        if facts.end == End::None {
            flow.end();
            if req.method() == Method::Head && !has_length {
                response.set_body(Body::stream(|_| Ok(()))); // its length is not known
            }
            return Ok(response);
        }
        let mut begin = Vec::new();
        let is_whole = flow.begin(&mut begin);
        if is_whole.map_err(|error| Failure::of_upstream(error, false))? {
            let told = flow.told.take().filter(|_| !flow.trailers.is_empty());
            let fields = trailers::allowed(&flow.trailers);
            flow.end();
            match told {
                // They follow chunks, which a body is sent in that has no length.
                Some(told) => {
                    told.set(fields);
                    response.set_body(Body::stream(move |out| out.write_all(&begin)));
                    response = response.with_trailers(told);
                }
                None => response.set_body(begin),
            }
            return Ok(response);
        }
        let len = flow.incoming.len();
        if let Some(told) = flow.told.as_ref().filter(|_| len.is_none()) {
            response = response.with_trailers(told.clone());
        }
        let write = move |out: &mut BodyWriter<'_>| flow.hand_on(&begin, out);
        response.set_body(match len {
            Some(len) => Body::stream_exact(len, write),
            None => Body::stream(write),
        });
        Ok(response)
    }
}

/// Hands the connections of both sides to each other.
fn switch(
    conn: Connection,
    protocol: &str,
    headers: &Headers,
    in_flight: InFlight,
) -> Result<Response, Failure> {
    let Connection::Own(link) = conn else {
        return Err(Failure::of_upstream(io::Error::other("its connection is shared"), false));
    };
    let tunnel = Tunnel::new(*link, in_flight);
    let tunnel = tunnel.map_err(|error| Failure::of_upstream(error, false))?;
    let mut response = Response::upgrade(protocol, tunnel);
    let mut rest = headers.clone();
    head::clean_response(&mut rest, false);
    rest.remove("content-length");
    for (name, value) in rest.iter() {
        let _ = response.headers_mut().append(name, value); // it was read, so it can be sent
    }
    Ok(response)
}

/// A body on its way from an upstream to the client. Its connection is closed if it does not come to its end:
/// the rest of it is not the answer to the next request.
struct Flow {
    /// Until the end.
    conn: Option<Connection>,
    incoming: Incoming,
    trailers: Headers,
    /// Where they are told to a client that wants them.
    told: Option<Trailers>,
    parsing: crate::Settings,
    body_timeout: Duration,
    upload: Option<Upload>,
    reusable: bool,
    _in_flight: InFlight,
}

impl Flow {
    /// Takes what has come of it, and waits for the rest if that is little; true if that is all.
    fn begin(&mut self, begin: &mut Vec<u8>) -> io::Result<bool> {
        let Flow { conn: Some(conn), incoming, trailers, .. } = self else { return Ok(true) };
        if conn.take_body(incoming, &self.parsing, trailers, begin, JOIN_BYTES)? {
            return Ok(true);
        }
        let Some(len) = incoming.len().filter(|&len| len <= JOIN_BYTES as u64) else {
            return Ok(false);
        };
        let mut at = begin.len();
        begin.resize(len as usize, 0);
        while at < begin.len() {
            let more = coracle_coro::timeout(self.body_timeout, || {
                conn.read_body(incoming, &self.parsing, trailers, &mut begin[at..])
            });
            at += more?;
        }
        Ok(true)
    }

    /// The body is over: its connection may be used by the next.
    fn end(mut self) {
        let sent = self.upload.take().is_none_or(|upload| upload.answered());
        if let Some(mut conn) = self.conn.take()
            && !(conn.rest() && self.reusable && sent)
        {
            conn.discard();
        }
    }

    fn hand_on(mut self, begin: &[u8], out: &mut BodyWriter<'_>) -> io::Result<()> {
        out.write_all(begin)?;
        let (mut piece, body_timeout) = (vec![0; PIECE_BYTES], self.body_timeout);
        while let Flow { conn: Some(conn), incoming, trailers, parsing, .. } = &mut self {
            if !conn.has_body(incoming, parsing, trailers) {
                out.flush()?; // it may be long until there is more
            }
            let count = coracle_coro::timeout(body_timeout, || {
                conn.read_body(incoming, parsing, trailers, &mut piece)
            })?;
            if count == 0 {
                break;
            }
            out.write_all(&piece[..count])?;
        }
        if let Some(told) = &self.told {
            told.set(trailers::allowed(&self.trailers));
        }
        self.end();
        Ok(())
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            conn.discard();
        }
    }
}

/// A connection to an upstream.
enum Connection {
    Kept(Pooled),
    /// It is used once.
    Own(Box<Link>),
}

impl Connection {
    fn discard(self) {
        if let Connection::Kept(conn) = self {
            conn.discard();
        }
    }
}

impl Deref for Connection {
    type Target = Link;

    fn deref(&self) -> &Link {
        match self {
            Connection::Kept(conn) => conn,
            Connection::Own(conn) => conn,
        }
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut Link {
        match self {
            Connection::Kept(conn) => conn,
            Connection::Own(conn) => conn,
        }
    }
}

/// Why there is no answer.
struct Failure {
    error: io::Error,
    /// Whether another may be asked.
    again: bool,
    is_its_fault: bool,
}

impl Failure {
    fn of_upstream(error: io::Error, again: bool) -> Failure {
        let cancelled = coracle_coro::is_cancelled(&error);
        let too_many = error.kind() == io::ErrorKind::QuotaExceeded;
        Failure { error, again: again && !cancelled, is_its_fault: !cancelled && !too_many }
    }

    /// The body of the request could not be read.
    fn of_client(error: io::Error) -> Failure {
        Failure { error, again: false, is_its_fault: false }
    }

    /// What the client is told: what happened, and nothing about who is behind.
    fn into_response(self) -> Response {
        if Refusal::of(&self.error).is_some() {
            return self.error.into_response();
        }
        let (status, text) = match self.error.kind() {
            io::ErrorKind::TimedOut => {
                (Status::GATEWAY_TIMEOUT, "the server behind this one did not answer in time\n")
            }
            io::ErrorKind::QuotaExceeded => return unavailable(),
            io::ErrorKind::InvalidData => (
                Status::BAD_GATEWAY,
                "the server behind this one answered something that is no answer\n",
            ),
            _ => (Status::BAD_GATEWAY, "the server behind this one cannot be reached\n"),
        };
        (status, text).into_response()
    }
}

fn unavailable() -> Response {
    let text = "there is no server behind this one that can be asked now\n";
    (Status::SERVICE_UNAVAILABLE, text).into_response().with_header("retry-after", "5")
}

/// How the body of a request is sent on.
fn framing_of(req: &Request<'_>) -> Framing {
    if req.stream.is_none() {
        return match req.body().len() {
            0 => Framing::None,
            len => Framing::Length(len as u64),
        };
    }
    let length = req.header("content-length").and_then(|length| length.parse().ok());
    length.map_or(Framing::Chunks, Framing::Length)
}

fn ip_of(address: &Address) -> Option<SocketAddr> {
    match address {
        Address::Ip(address) => Some(*address),
        Address::Unix(_) => None,
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("upstreams", &self.upstreams).finish_non_exhaustive()
    }
}

impl App for Proxy {
    fn call(&self, req: &Request<'_>) -> Response {
        self.hand_on(req)
    }

    /// A small body is received first, and goes with its head.
    fn plan(&self, req: &Request<'_>) -> Plan {
        let plan =
            Plan::default().cancel_when_gone().limit_body_bytes(self.settings.limit_body_bytes);
        let length = req.header("content-length").and_then(|length| length.parse::<u64>().ok());
        let is_small = match length {
            Some(length) => length <= JOIN_BYTES as u64,
            None => !req.headers().contains("transfer-encoding") && req.version() != Version::Http2,
        };
        if is_small { plan } else { plan.streamed() }
    }
}
