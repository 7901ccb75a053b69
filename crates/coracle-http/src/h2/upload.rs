//! The body of a request, as `h2` hands it out: for the server, which keeps it, or for a handler that reads it.
//!
//! What nobody reads stays with the client: its window moves as pieces are taken.

use super::request::read_trailers;
use super::stream::Stream;
use crate::body_reader::Source;
use crate::exchange::TOO_LARGE;
use crate::h1::Refusal;
use crate::{Headers, Settings};
use bytes::{Buf, Bytes};
use coracle_loop::Loop;
use h2::RecvStream;
use http::HeaderMap;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

pub(super) struct Upload {
    /// Until all of it was taken.
    incoming: Option<RecvStream>,
    /// What has come and was read in part.
    piece: Bytes,
    limit_body_bytes: u64,
    received: u64,
    /// The client waits until somebody wants it.
    expects_continue: bool,
    /// Where there are some, which is seldom.
    trailers: Option<Box<Headers>>,
    failed: Option<Failure>,
    /// Whoever reads was told that it failed.
    told: bool,
    /// How long it was waited for, without the wait that lasts.
    waited: Duration,
    waits: Option<(Instant, Waker)>,
}

/// Why it cannot be read on.
pub(super) type Failure = (io::ErrorKind, Refusal);

const CUT: Failure = (io::ErrorKind::UnexpectedEof, Refusal::bad("the body ended too early"));

impl Upload {
    pub(super) fn new(incoming: Option<RecvStream>) -> Upload {
        Upload {
            incoming,
            piece: Bytes::new(),
            limit_body_bytes: u64::MAX,
            received: 0,
            expects_continue: false,
            trailers: None,
            failed: None,
            told: false,
            waited: Duration::ZERO,
            waits: None,
        }
    }

    /// What is known of it before it comes.
    pub(super) fn announce(&mut self, limit_body_bytes: u64, expects_continue: bool) {
        self.limit_body_bytes = limit_body_bytes;
        self.expects_continue = expects_continue;
    }

    /// Whether the client is to be told now that it is wanted: it waits for that, and is waited for.
    pub(super) fn is_to_continue(&mut self) -> bool {
        self.waits.is_some() && std::mem::take(&mut self.expects_continue) && self.received == 0
    }

    pub(super) fn take_trailers(&mut self) -> Headers {
        self.trailers.take().map_or_else(Headers::new, |trailers| *trailers)
    }

    /// Why it was refused, if whoever reads it knows.
    pub(super) fn told_refusal(&self) -> Option<Refusal> {
        self.failed.filter(|_| self.told).map(|(_, why)| why)
    }

    /// Nothing more of it is wanted.
    pub(super) fn fail(&mut self, failure: Failure) -> Option<Waker> {
        self.failed.get_or_insert(failure);
        self.waits.take().map(|(_, waker)| waker)
    }

    /// Nobody wants it any more: what was not read is thrown away.
    pub(super) fn cut(&mut self) -> Option<Waker> {
        self.incoming = None;
        self.fail(CUT)
    }

    /// Whether it is waited for longer than it may take.
    pub(super) fn is_late(&self, now: Instant, settings: &Settings) -> bool {
        let Some((since, _)) = &self.waits else { return false };
        let earned = Duration::from_secs(self.received / u64::from(settings.min_body_rate));
        let waited = self.waited + now.saturating_duration_since(*since);
        waited >= settings.body_timeout.saturating_add(earned)
    }

    /// The next piece; none, when all of it has come.
    pub(super) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        settings: &Settings,
    ) -> Poll<Result<Option<Bytes>, Failure>> {
        if !self.piece.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.piece))));
        }
        if let Some(failure) = self.failed {
            self.told = true;
            return Poll::Ready(Err(failure));
        }
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(Ok(None)) };
        let Poll::Ready(next) = poll_next(incoming, cx) else {
            let since = self.waits.as_ref().map_or(now, |(since, _)| *since);
            self.waits = Some((since, cx.waker().clone()));
            return Poll::Pending;
        };
        if let Some((since, _)) = self.waits.take() {
            self.waited += now.saturating_duration_since(since);
        }
        let refused = match next {
            Ok(Next::Piece(piece)) => {
                self.received += piece.len() as u64;
                if self.received <= self.limit_body_bytes {
                    return Poll::Ready(Ok(Some(piece)));
                }
                (io::ErrorKind::InvalidData, TOO_LARGE)
            }
            Ok(Next::End(trailers)) => {
                self.incoming = None;
                let trailers = trailers.map(|trailers| read_trailers(&trailers, settings));
                match trailers.transpose() {
                    Ok(trailers) => {
                        self.trailers = trailers.map(Box::new);
                        return Poll::Ready(Ok(None));
                    }
                    Err(refusal) => (io::ErrorKind::InvalidData, refusal),
                }
            }
            // Whatever the client says of why: a part of a body must not look like the whole.
            Err(error) => {
                tracing::debug!("a body cannot be read on: {error}");
                CUT
            }
        };
        self.failed = Some(refused);
        self.told = true;
        Poll::Ready(Err(refused))
    }

    /// Whether nothing of it is left with `h2`.
    pub(super) fn is_taken(&self) -> bool {
        self.incoming.is_none()
    }

    fn is_over(&self) -> bool {
        self.incoming.is_none() && self.piece.is_empty()
    }
}

/// What comes next of a body.
enum Next {
    Piece(Bytes),
    End(Option<HeaderMap>),
}

fn poll_next(incoming: &mut RecvStream, cx: &mut Context<'_>) -> Poll<Result<Next, h2::Error>> {
    match ready!(incoming.poll_data(cx)).transpose()? {
        Some(piece) => {
            // It cannot be too much, for so much has come.
            let _ = incoming.flow_control().release_capacity(piece.len());
            Poll::Ready(Ok(Next::Piece(piece)))
        }
        None => incoming.poll_trailers(cx).map_ok(Next::End),
    }
}

impl Source for Stream {
    fn trailers(&self) -> Option<Headers> {
        let upload = self.upload.borrow();
        upload.is_over().then(|| upload.trailers.as_deref().cloned().unwrap_or_default())
    }

    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let piece = poll_fn(|cx| self.poll_piece(cx));
        let Some(mut piece) = coracle_coro::block_on(piece)?? else { return Ok(0) };
        let count = into.len().min(piece.len());
        piece.copy_to_slice(&mut into[..count]);
        self.upload.borrow_mut().piece = piece;
        Ok(count)
    }

    fn poll_piece(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let now = Loop::current().map_or_else(Instant::now, |lp| lp.now());
        loop {
            let next = self.poll_upload(cx, now);
            return Poll::Ready(match ready!(next) {
                Ok(Some(piece)) if piece.is_empty() => continue,
                Ok(piece) => Ok(piece),
                Err((kind, why)) => Err(io::Error::new(kind, why)),
            });
        }
    }
}
