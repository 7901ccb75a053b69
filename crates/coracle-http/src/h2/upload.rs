//! The body of a request, as hyper hands it out: for the server, which keeps it, or for a handler that reads it.
//!
//! What nobody reads stays with the client: hyper moves its window as pieces are taken.

use super::request::read_trailers;
use super::stream::Stream;
use crate::body_reader::Source;
use crate::exchange::TOO_LARGE;
use crate::h1::Refusal;
use crate::{Headers, Settings};
use bytes::{Buf, Bytes};
use coracle_loop::Loop;
use http_body::Body as _;
use hyper::body::Incoming;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

pub(super) struct Upload {
    /// Until all of it has come.
    incoming: Option<Incoming>,
    /// What has come and was read in part.
    piece: Bytes,
    limit_body_bytes: u64,
    received: u64,
    trailers: Headers,
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
    pub(super) fn new(incoming: Option<Incoming>) -> Upload {
        Upload {
            incoming,
            piece: Bytes::new(),
            limit_body_bytes: u64::MAX,
            received: 0,
            trailers: Headers::new(),
            failed: None,
            told: false,
            waited: Duration::ZERO,
            waits: None,
        }
    }

    pub(super) fn limit(&mut self, limit_body_bytes: u64) {
        self.limit_body_bytes = limit_body_bytes;
    }

    pub(super) fn take_trailers(&mut self) -> Headers {
        std::mem::take(&mut self.trailers)
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
        let Poll::Ready(frame) = Pin::new(incoming).poll_frame(cx) else {
            let since = self.waits.as_ref().map_or(now, |(since, _)| *since);
            self.waits = Some((since, cx.waker().clone()));
            return Poll::Pending;
        };
        if let Some((since, _)) = self.waits.take() {
            self.waited += now.saturating_duration_since(since);
        }
        let refused = match frame {
            None => {
                self.incoming = None;
                return Poll::Ready(Ok(None));
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => {
                    self.received += piece.len() as u64;
                    if self.received <= self.limit_body_bytes {
                        return Poll::Ready(Ok(Some(piece)));
                    }
                    (io::ErrorKind::InvalidData, TOO_LARGE)
                }
                Err(frame) => {
                    self.incoming = None;
                    let trailers = frame.into_trailers().unwrap_or_default();
                    match read_trailers(&trailers, settings) {
                        Ok(trailers) => {
                            self.trailers = trailers;
                            return Poll::Ready(Ok(None));
                        }
                        Err(refusal) => (io::ErrorKind::InvalidData, refusal),
                    }
                }
            },
            Some(Err(error)) => {
                tracing::debug!("a body cannot be read on: {error}");
                CUT
            }
        };
        self.failed = Some(refused);
        self.told = true;
        Poll::Ready(Err(refused))
    }

    fn is_over(&self) -> bool {
        self.incoming.is_none() && self.piece.is_empty()
    }
}

impl Source for Stream {
    fn trailers(&self) -> Option<Headers> {
        let upload = self.upload.borrow();
        upload.is_over().then(|| upload.trailers.clone())
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
            let next = self.upload.borrow_mut().poll_piece(cx, now, self.settings());
            return Poll::Ready(match ready!(next) {
                Ok(Some(piece)) if piece.is_empty() => continue,
                Ok(piece) => Ok(piece),
                Err((kind, why)) => Err(io::Error::new(kind, why)),
            });
        }
    }
}
