//! Running a handler in its coroutine, and handing over what it answers.

use crate::body::Kind;
use crate::body_reader::Source;
use crate::connection::Shared;
use crate::exchange::Exchange;
use crate::h1::Refusal;
use crate::h1::answer::{Follow, write_chunk_head, write_last_chunk};
use crate::promise::Promise;
use crate::site::Site;
use crate::{BodyWriter, IntoResponse, Method, OwnedRequest, Plan, Response, Status, Trailers};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use coracle_net::{SocketOption, WriteBuffer};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// What is sent of a body at a time while it is written.
const PIECE_BYTES: usize = 16 << 10;

/// What may be asked of a server that is no proxy.
pub(crate) const ALLOWED: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// What the client of a handler is told that has panicked.
const PANICKED: Refusal = Refusal::new(Status::INTERNAL_SERVER_ERROR, "");

/// Methods that no app is asked for.
#[inline]
fn refuse_method(method: Method) -> Option<Refusal> {
    match method {
        Method::Connect => {
            Some(Refusal::new(Status::METHOD_NOT_ALLOWED, "this server is not a proxy"))
        }
        Method::Trace => Some(Refusal::new(Status::NOT_IMPLEMENTED, "this server does not trace")),
        _ => None,
    }
}

/// Hosts that somebody else is asked for, by TLS.
#[inline]
fn refuse_host(request: &OwnedRequest) -> Option<Refusal> {
    #[cfg(feature = "tls")]
    if let Some(session) = &request.session
        && let Some(host) = request.request().host()
        && session.is_misdirected(host)
    {
        const ELSEWHERE: &str = "this connection was made to another host";
        return Some(Refusal::new(Status::MISDIRECTED_REQUEST, ELSEWHERE));
    }
    let _ = request;
    None
}

/// Decides how a request is treated whose head is there, and refuses one that no app is asked for.
#[inline]
pub(crate) fn plan(site: &Site, exchange: &mut Exchange) -> Result<(), Refusal> {
    let refused = refuse_method(exchange.owned.method);
    if let Some(refusal) = refused.or_else(|| refuse_host(&exchange.owned)) {
        return Err(refusal);
    }
    let plan = match site.plan {
        Some(plan) => plan,
        None => ask_for_plan(site, &exchange.owned)?,
    };
    exchange.follow(plan, site.settings.limit_body_bytes)
}

#[inline(never)]
fn ask_for_plan(site: &Site, owned: &OwnedRequest) -> Result<Plan, Refusal> {
    let request = owned.request();
    catch_unwind(AssertUnwindSafe(|| site.app.plan(&request))).map_err(|_| {
        site.stats.count_panic();
        Refusal::new(Status::INTERNAL_SERVER_ERROR, "the app panicked")
    })
}

/// What the coroutine of a request does.
pub(crate) fn handle(shared: &Rc<Shared>) {
    let Some(mut exchange) = shared.take_exchange() else { return };
    loop {
        call(shared, &mut exchange);
        if exchange.is_streamed() {
            return stream(shared, exchange);
        }
        if !shared.is_starting() {
            break; // it has waited
        }
        match shared.go_on_at_desk(exchange) {
            Some(next) => exchange = next,
            None => return,
        }
    }
    let mut answer = Some(exchange);
    let _ = shared.reach(|conn| {
        if let Some(exchange) = answer.take() {
            shared.respond(conn, exchange);
            shared.go_on(conn);
        }
    });
    if let Some(exchange) = answer {
        shared.site.stats.count_dropped();
        shared.site.give_back(exchange);
    }
}

/// Calls the app, and leaves its answer in the exchange; a panic is a 500.
pub(crate) fn call(shared: &Rc<Shared>, exchange: &mut Exchange) {
    let is_streamed = exchange.plan.streamed && shared.with_upload(|_| ()).is_some();
    let source = is_streamed.then(|| Rc::clone(shared) as Rc<dyn Source>);
    let refused = || shared.with_upload(|upload| upload.told_refusal()).flatten();
    call_app(&shared.site, exchange, source, refused);
    if let Some(response) = exchange.response.as_mut()
        && let Kind::File { .. } = response.body().0
    {
        simulate_file(response);
    }
}

/// The same, of whatever protocol: with a body that is read from `source` while it comes, of which `refused` tells
/// why it could not be.
pub(crate) fn call_app(
    site: &Site,
    exchange: &mut Exchange,
    source: Option<Rc<dyn Source>>,
    refused: impl FnOnce() -> Option<Refusal>,
) {
    let called = {
        let mut request = exchange.owned.request();
        request.stream = source;
        request.whole = Some(&*site.app);
        let response = &mut exchange.response;
        catch_unwind(AssertUnwindSafe(|| match site.settings.handler_timeout {
            Some(timeout) if !exchange.plan.inline => {
                *response = Some(coracle_coro::timeout(timeout, || site.app.call(&request)));
            }
            _ => *response = Some(site.app.call(&request)),
        }))
    };
    if called.is_err() {
        site.stats.count_panic();
        exchange.response = Some(site.refuse(&exchange.owned, PANICKED));
    }
    let Some(response) = exchange.response.as_mut() else { return };
    if !response.status().is_success() {
        check(response, refused);
    }
}

/// A simulated kernel cannot send a file that is real.
#[cold]
fn simulate_file(response: &mut Response) {
    if Loop::current().is_some_and(|lp| lp.backend() == Backend::Sim) {
        let body = response.take_body().through_the_program();
        response.set_body(body);
    }
}

/// Answers that are not what the client is told.
#[cold]
fn check(response: &mut Response, refused: impl FnOnce() -> Option<Refusal>) {
    let status = response.status();
    if status.is_informational() && !matches!(response.body().0, Kind::Upgrade(_)) {
        tracing::error!("a handler answers {status}, which is no answer: a 500 is sent");
        *response = Status::INTERNAL_SERVER_ERROR.into_response();
    } else if status.is_server_error()
        && let Some(refusal) = refused()
    {
        *response = refusal.into_response(); // it has failed because of the client
    }
}

/// Sends an answer that was left by a handler without a coroutine.
pub(crate) fn stream_left(shared: &Rc<Shared>) {
    match shared.take_exchange() {
        Some(exchange) => stream(shared, exchange),
        None => shared.site.stats.count_dropped(), // the client is gone
    }
}

/// Sends an answer that is written while it is sent.
pub(crate) fn stream(shared: &Rc<Shared>, mut exchange: Box<Exchange>) {
    let Some(mut response) = exchange.response.take() else { return };
    if shared.is_starting() {
        coracle_coro::yield_now(); // until the connection can be reached
    }
    let mut head = WriteBuffer::default();
    let now = Loop::current().map(|lp| lp.now());
    let Some(now) = now else { return };
    let written = shared.write_head(now, &exchange, &response, response.body().len(), &mut head);
    // Whoever does not ask for them may throw them away, or not know what they are (RFC 9110, 6.5.1).
    let wants_trailers = exchange.owned.headers.has_token("te", "trailers");
    let trailers = response.trailers().filter(|_| wants_trailers).cloned();
    shared.site.give_back(exchange);
    let Kind::Stream { writer, len } = response.take_body().0 else { return };
    // The end of the connection is the end of the body: one that comes too early must not look like it.
    let ends_with_connection = written.follow == Follow::Plain && len.is_none();
    let reset_on_close = |on| {
        if ends_with_connection {
            let option = SocketOption::ResetOnClose(on);
            let _ = shared.reach(|conn| conn.set_option(option)); // or it is gone
        }
    };
    reset_on_close(true);
    let mut buffer = Vec::with_capacity(PIECE_BYTES + 512);
    buffer.extend_from_slice(head.as_slice());
    drop(head); // what follows may take long
    let mut out = Outlet {
        shared,
        buffer,
        begun: 0,
        chunked: written.follow == Follow::Chunks,
        trailers,
        left: Promise(len.filter(|_| written.follow == Follow::Plain)),
    };
    out.begin_piece();
    let result = match written.follow {
        Follow::Nothing => Ok(()),
        _ => {
            let mut out = BodyWriter::of(Some(&shared.site.stopping), &mut out);
            catch_unwind(AssertUnwindSafe(|| writer(&mut out))).unwrap_or_else(|_| {
                shared.site.stats.count_panic();
                Err(io::Error::other("it panicked"))
            })
        }
    };
    let result = result.and_then(|()| out.finish());
    match result {
        Ok(()) => {
            reset_on_close(false);
            let _ = shared.reach(|conn| {
                shared.answered(conn, written.keep_alive);
                shared.go_on(conn);
            });
        }
        Err(error) => {
            if shared.is_gone() {
                shared.site.stats.count_dropped();
            } else {
                tracing::error!("the body of a response is cut off: {error}");
            }
            let _ = shared.reach(|conn| conn.abort());
        }
    }
}

/// Where a body goes while it is written: to the connection, piece by piece, waiting for room.
struct Outlet<'a> {
    shared: &'a Rc<Shared>,
    /// What is put together, and where in it the piece begins.
    buffer: Vec<u8>,
    begun: usize,
    chunked: bool,
    trailers: Option<Trailers>,
    /// How much is missing of a length that was promised.
    left: Promise,
}

/// Room for the line before a chunk, which is written when it is known how long the chunk is.
const CHUNK_HEAD: usize = 8;

impl Outlet<'_> {
    fn begin_piece(&mut self) {
        if self.chunked {
            self.buffer.extend_from_slice(&[0; CHUNK_HEAD]);
        }
        self.begun = self.buffer.len();
    }

    fn is_empty(&self) -> bool {
        self.buffer.len() == self.begun
    }

    /// Sends the piece, and waits until there is room for the next.
    fn send(&mut self, last: bool) -> io::Result<()> {
        let mut start = 0;
        if self.chunked {
            let piece = self.buffer.len() - self.begun;
            if piece > 0 {
                let mut head = Vec::with_capacity(CHUNK_HEAD);
                write_chunk_head(&mut head, piece);
                // What is before the room for the line, the head of the answer, moves next to it.
                let unused = CHUNK_HEAD - head.len();
                self.buffer.copy_within(..self.begun - CHUNK_HEAD, unused);
                self.buffer[self.begun - head.len()..self.begun].copy_from_slice(&head);
                self.buffer.extend_from_slice(b"\r\n");
                start = unused;
            } else {
                self.buffer.truncate(self.begun - CHUNK_HEAD);
            }
            if last {
                let trailers = self.trailers.take().unwrap_or_default();
                trailers.with(|fields| write_last_chunk(&mut self.buffer, fields));
            }
        }
        let bytes = &self.buffer[start..];
        let gone = || io::Error::from(io::ErrorKind::ConnectionReset);
        let sent = self.shared.reach(|conn| {
            if !bytes.is_empty() {
                self.shared.count_written(bytes.len());
                conn.write_slice(bytes);
            }
            let writable = conn.writable();
            if !writable {
                self.shared.watch(conn);
            }
            writable
        });
        let mut writable = sent.ok_or_else(gone)?;
        self.buffer.clear();
        self.begin_piece();
        while !writable && !last {
            self.shared.wait()?;
            writable = self.shared.reach(|conn| conn.writable()).ok_or_else(gone)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.left.finish()?;
        self.send(true)
    }
}

impl Write for Outlet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PIECE_BYTES.saturating_sub(self.buffer.len() - self.begun).max(1);
        let bytes = &bytes[..bytes.len().min(room)];
        self.left.count(bytes.len())?;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() - self.begun >= PIECE_BYTES {
            self.send(false)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_empty() && self.begun <= CHUNK_HEAD {
            return Ok(());
        }
        self.send(false)
    }
}
