//! From what a script says to an answer: its header, a redirect, a body that is sent while it comes.

use super::head::{Head, HeadReader, Style};
use crate::client::link::now;
use crate::into_response::may_have_body;
use crate::refusal::Refusal;
use crate::settings::LONGEST;
use crate::{Body, BodyWriter, IntoResponse, Method, Request, Response, Status};
use coracle_coro::is_cancelled;
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// So much is read at a time.
const PIECE_BYTES: usize = 32 << 10;

/// So much of a body is read that nobody gets; then the script is ended.
const LIMIT_DRAINED_BYTES: usize = 16 << 20;

/// How often a script may send a request elsewhere on the same server.
const LIMIT_REDIRECTS: u32 = 10;

/// A script that speaks. Whoever drops one before its end wants no more of it: it is ended.
pub(crate) trait Speaker: Read + 'static {
    /// All was read that it says. Whether it came to a good end.
    fn finish(&mut self) -> io::Result<()>;

    /// How long its header may take.
    fn patience(&self) -> &Patience;

    /// Which it is, for the log.
    fn name(&self) -> &str;
}

/// How long a script may say nothing. It is not late while the client is waited for, which has its own time for
/// the body of the request; and its time begins anew with each piece that it is given.
#[derive(Clone)]
pub(crate) struct Patience {
    timeout: Duration,
    feeding: Rc<Feeding>,
}

/// How far the body is that a script is given.
struct Feeding {
    /// When the last piece has come, or was given to it.
    fed: Cell<Instant>,
    /// The client is waited for.
    receives: Cell<bool>,
}

impl Patience {
    pub(crate) fn new(timeout: Duration) -> Patience {
        let feeding = Feeding { fed: Cell::new(now()), receives: Cell::new(false) };
        Patience { timeout: timeout.min(LONGEST), feeding: Rc::new(feeding) }
    }

    /// Waits for the next piece from the client.
    pub(crate) fn receive<T>(&self, read: impl FnOnce() -> T) -> T {
        self.feeding.receives.set(true);
        let piece = read();
        self.feeding.receives.set(false);
        self.feed();
        piece
    }

    /// It was given a piece.
    pub(crate) fn feed(&self) {
        self.feeding.fed.set(now());
    }

    /// Waits for something that it says, and no longer than until `limit`.
    ///
    /// # Errors
    /// `TimedOut`; those of `wait`, which is called again if it was not the script that was waited for meanwhile.
    pub(crate) fn wait<T>(
        &self,
        limit: Option<Instant>,
        mut wait: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let mut since = now();
        loop {
            since = since.max(self.feeding.fed.get());
            let due = since + self.timeout;
            let waited =
                coracle_coro::deadline(limit.map_or(due, |limit| due.min(limit)), &mut wait);
            let is_late = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
            let is_ours = now() >= due && limit.is_none_or(|limit| now() < limit);
            if !(waited.as_ref().is_err_and(is_late) && is_ours) {
                return waited;
            }
            match self.feeding.receives.get() {
                true => since = now(),
                false if self.feeding.fed.get() > since => {}
                false => return waited,
            }
        }
    }
}

/// How often this request was sent elsewhere.
struct Redirected(u32);

/// The answer of a script.
pub(crate) fn answer(req: &Request<'_>, mut script: impl Speaker, style: Style) -> Response {
    let (patience, mut reader) = (script.patience().clone(), HeadReader::new(style));
    let (head, begin) = match patience.wait(None, || read_head(&mut script, &mut reader)) {
        Ok(read) => read,
        Err(error) => return failed(script.name(), &error),
    };
    if let Some(target) = local_target(&head, style) {
        let target = target.to_owned();
        return redirect(req, script, &target);
    }
    let default = if head.location.is_some() { Status::FOUND } else { Status::OK };
    let status = head.status.unwrap_or(default);
    let mut response = Response::new(status);
    *response.headers_mut() = head.headers;
    if let Some(location) = &head.location {
        response = response.with_header("location", location);
    }
    if req.method() == Method::Head || !may_have_body(status) {
        if let Some(length) = head.content_length {
            response = response.with_header("content-length", length.to_string());
        }
        return match drain(&mut script) {
            Ok(()) => response,
            Err(error) => failed(script.name(), &error),
        };
    }
    response.with_body(match head.content_length {
        Some(len) => Body::stream_exact(len, move |out| relay(script, &begin, Some(len), out)),
        None => Body::stream(move |out| relay(script, &begin, None, out)),
    })
}

/// What the client is told when a script has failed, and what the log.
pub(crate) fn failed(script: &str, error: &io::Error) -> Response {
    if let Some(refusal) = Refusal::of(error) {
        return refusal.into_response(); // its body could not be read: it is the client who has failed
    }
    if is_cancelled(error) {
        return Status::SERVICE_UNAVAILABLE.into_response(); // nobody reads it
    }
    tracing::error!(script, "{error}");
    match error.kind() {
        io::ErrorKind::TimedOut => Status::GATEWAY_TIMEOUT.into_response(),
        io::ErrorKind::QuotaExceeded => {
            Status::SERVICE_UNAVAILABLE.into_response().with_header("retry-after", "1")
        }
        _ => Status::BAD_GATEWAY.into_response(),
    }
}

fn read_head(script: &mut impl Speaker, reader: &mut HeadReader) -> io::Result<(Head, Vec<u8>)> {
    let mut space = vec![0; PIECE_BYTES];
    loop {
        let count = script.read(&mut space)?;
        if count == 0 {
            script.finish()?;
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                match reader.is_empty() {
                    true => "it has ended without an answer",
                    false => "it has ended before its header did: an empty line is missing",
                },
            ));
        }
        match reader.feed(&space[..count]) {
            Ok(None) => {}
            Ok(Some(whole)) => return Ok(whole),
            Err(error) => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string()));
            }
        }
    }
}

/// Where on this server the request is to be answered instead (RFC 3875, 6.2.2).
fn local_target(head: &Head, style: Style) -> Option<&str> {
    let target = head.location.as_deref()?;
    let is_local = target.starts_with('/') && !target.starts_with("//");
    (is_local && head.status.is_none() && style == Style::Cgi).then_some(target)
}

fn redirect(req: &Request<'_>, mut script: impl Speaker, target: &str) -> Response {
    if let Err(error) = drain(&mut script) {
        return failed(script.name(), &error);
    }
    let times = req.local::<Redirected>().map_or(0, |before| before.0) + 1;
    if times > LIMIT_REDIRECTS {
        let error = io::Error::other("it is sent elsewhere again and again");
        return failed(script.name(), &error);
    }
    drop(script);
    req.set_local(Redirected(times));
    let elsewhere = Status::FOUND.into_response();
    req.ask_for(target).unwrap_or_else(|| elsewhere.with_header("location", target))
}

/// Lets it come to its end, if that is not too far.
fn drain(script: &mut impl Speaker) -> io::Result<()> {
    let mut space = vec![0; PIECE_BYTES];
    let mut drained = 0;
    loop {
        match script.read(&mut space)? {
            0 => return script.finish(),
            count => drained += count,
        }
        if drained > LIMIT_DRAINED_BYTES {
            return Ok(());
        }
    }
}

/// Sends what the script says, as it says it.
fn relay(
    mut script: impl Speaker,
    begin: &[u8],
    len: Option<u64>,
    out: &mut BodyWriter<'_>,
) -> io::Result<()> {
    let mut left = len.unwrap_or(u64::MAX);
    let mut send = |piece: &[u8], left: &mut u64| {
        let count = usize::try_from(*left).unwrap_or(usize::MAX).min(piece.len());
        *left -= count as u64;
        out.write_all(&piece[..count])?;
        out.flush()?;
        Ok::<_, io::Error>(count < piece.len())
    };
    let mut too_much = send(begin, &mut left)?;
    let mut space = vec![0; PIECE_BYTES];
    while left > 0 {
        match script.read(&mut space)? {
            0 => break,
            count => too_much |= send(&space[..count], &mut left)?,
        }
    }
    if too_much {
        tracing::warn!(script = script.name(), "it says more than its Content-Length");
    }
    script.finish().or_else(|error| if left == 0 { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_coro::{park, run_on, sleep, spawn};
    use coracle_loop::Loop;
    use coracle_loop::demux::sim::Kernel;

    const SECOND: Duration = Duration::from_secs(1);

    /// For how many seconds a script is waited for that says nothing, if it may be silent for a minute, and run
    /// for `limit` in all.
    fn waited(limit: Option<Duration>, feed: fn(&Patience) -> io::Result<()>) -> u64 {
        let lp = Loop::builder().demux(Kernel::new(7).demux()).build().expect("a loop");
        let waited = run_on(&lp, move || {
            let (patience, begin) = (Patience::new(60 * SECOND), now());
            let fed = patience.clone();
            drop(spawn(move || feed(&fed)));
            let limit = limit.map(|limit| begin + limit);
            // As the header is, and in it each piece.
            let waited = patience.wait(None, || patience.wait(limit, park));
            assert_eq!(waited.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
            Ok::<_, io::Error>(now() - begin)
        });
        waited.expect("a run").as_secs()
    }

    #[test]
    fn o1_time_of_a_script_does_not_pass_while_its_client_is_waited_for() {
        assert_eq!(waited(None, |_| Ok(())), 60);
        assert_eq!(waited(None, |patience| patience.receive(|| sleep(290 * SECOND))), 350);
        // Each piece begins it anew; and one that it does not take is its own time.
        let pieces = |patience: &Patience| {
            for _ in 0..3 {
                patience.receive(|| sleep(30 * SECOND))?;
                sleep(50 * SECOND)?;
                patience.feed();
            }
            patience.receive(|| ());
            sleep(1000 * SECOND)
        };
        assert_eq!(waited(None, pieces), 3 * 80 + 60);
        for limit in [100, 120, 130] {
            let endless = |patience: &Patience| patience.receive(|| sleep(1000 * SECOND));
            assert_eq!(waited(Some(limit * SECOND), endless), u64::from(limit));
        }
    }
}
