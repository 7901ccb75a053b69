//! A body that a handler reads while it comes.

use crate::Headers;
use crate::body_reader::Source;
use crate::connection::{CONTINUE, Shared};
use crate::exchange::Exchange;
use crate::h1::chunks::{Chunks, Piece};
use crate::h1::{Framing, Refusal};
use crate::site::Site;
use bytes::{Buf, Bytes, BytesMut};
use coracle_net::Buffer;
use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

/// How much of a body may wait for its reader: then it is not received.
const LIMIT_UPLOAD_BYTES: usize = 64 << 10;

/// What has come and was not read, and how it goes on.
pub(crate) struct Upload {
    framing: Framing,
    chunks: Chunks,
    limit_body_bytes: u64,
    waiting: BytesMut,
    over: bool,
    failed: Option<(io::ErrorKind, Refusal)>,
    /// Whoever reads was told that it failed.
    told: bool,
    trailers: Headers,
    expects_continue: bool,
    paused: Option<Instant>,
    /// Since when it comes, without the time in which we did not read.
    pub(crate) since: Instant,
    /// How much of it has come.
    pub(crate) received: u64,
}

impl Upload {
    pub(crate) fn new(exchange: &Exchange, now: Instant) -> Upload {
        Upload {
            framing: exchange.framing,
            chunks: Chunks::default(),
            limit_body_bytes: exchange.limit_body_bytes(),
            waiting: BytesMut::new(),
            over: false,
            failed: None,
            told: false,
            trailers: Headers::new(),
            expects_continue: exchange.expects_continue,
            paused: None,
            since: now,
            received: 0,
        }
    }

    /// Whether all of it has come.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether so much waits that no more is received.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= LIMIT_UPLOAD_BYTES
    }

    /// Whether there is nothing to read, and will be.
    fn is_awaited(&self) -> bool {
        self.waiting.is_empty() && self.is_coming()
    }

    /// Whether more of it is to come.
    pub(crate) fn is_coming(&self) -> bool {
        !self.over && self.failed.is_none()
    }

    pub(crate) fn fail(&mut self, kind: io::ErrorKind, why: Refusal) {
        if !self.over {
            self.failed.get_or_insert((kind, why));
        }
    }

    /// Why it was refused, if whoever reads it knows.
    pub(crate) fn told_refusal(&self) -> Option<Refusal> {
        self.failed.filter(|_| self.told).map(|(_, why)| why)
    }

    /// Nothing is read from now on.
    pub(crate) fn pause(&mut self, now: Instant) {
        self.paused.get_or_insert(now);
    }

    /// The time in which nothing was read is not the client's.
    pub(crate) fn resume(&mut self, now: Instant) {
        if let Some(paused) = self.paused.take() {
            self.since += now.saturating_duration_since(paused);
        }
    }

    /// Takes what has come, all of it: how much that can be, the connection's buffers say.
    pub(crate) fn feed(&mut self, site: &Site, input: &mut Buffer) {
        while self.is_coming() && !input.is_empty() {
            match self.framing {
                Framing::None => self.over = true,
                Framing::Length(length) => {
                    let missing = length - self.received;
                    let count = usize::try_from(missing).unwrap_or(usize::MAX);
                    self.keep(input, count.min(input.len()));
                    self.over = self.received == length;
                }
                Framing::Chunked => {
                    let (limit, trailers) = (self.limit_body_bytes, &mut self.trailers);
                    match self.chunks.next(input.unread(), limit, &site.settings, trailers) {
                        Ok(Piece::More { skip }) => {
                            input.consume(skip);
                            break;
                        }
                        Ok(Piece::Data { skip, len }) => {
                            input.consume(skip);
                            self.keep(input, len);
                        }
                        Ok(Piece::End { skip }) => {
                            input.consume(skip);
                            self.over = true;
                        }
                        Err(refusal) => {
                            tracing::debug!(why = refusal.why, "a body cannot be read on");
                            site.stats.count_refused();
                            self.failed = Some((io::ErrorKind::InvalidData, refusal));
                        }
                    }
                }
            }
        }
    }

    fn keep(&mut self, input: &mut Buffer, count: usize) {
        self.waiting.extend_from_slice(&input.unread()[..count]);
        input.consume(count);
        self.received += count as u64;
        self.expects_continue = false; // it has not waited
    }

    /// Takes some of what waits, if there is any or there will be none.
    fn take(&mut self, into: &mut [u8]) -> Option<io::Result<usize>> {
        if !self.waiting.is_empty() {
            let count = into.len().min(self.waiting.len());
            self.waiting.copy_to_slice(&mut into[..count]);
            return Some(Ok(count));
        }
        self.end().map(|end| end.map(|()| 0))
    }

    /// Takes all that waits, if there is any or there will be none.
    fn take_piece(&mut self) -> Option<io::Result<Option<Bytes>>> {
        match self.waiting.is_empty() {
            false => Some(Ok(Some(self.waiting.split().freeze()))),
            true => self.end().map(|end| end.map(|()| None)),
        }
    }

    /// How it ended, with nothing left to be read.
    fn end(&mut self) -> Option<io::Result<()>> {
        match self.failed {
            _ if self.over => Some(Ok(())),
            Some((kind, why)) => {
                self.told = true;
                Some(Err(io::Error::new(kind, why)))
            }
            None => None,
        }
    }
}

fn gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

/// What came of looking for something to read.
struct Taken<T> {
    taken: Option<T>,
    /// The client is to be asked for more.
    asks: bool,
    expects_continue: bool,
}

impl Shared {
    /// Takes something by `take`; nothing, if there is no upload any more.
    fn take_some<T>(&self, take: impl FnOnce(&mut Upload) -> Option<T>) -> Option<Taken<T>> {
        let (taken, expects_continue, empty) = self.with_upload(|upload| {
            let taken = take(upload);
            let expects_continue = taken.is_none() && std::mem::take(&mut upload.expects_continue);
            (taken, expects_continue, upload.waiting.is_empty())
        })?;
        let asks = expects_continue || (empty && self.is_paused());
        Some(Taken { taken, asks, expects_continue })
    }

    /// Has the connection read on.
    fn ask_for_more(&self, expects_continue: bool) {
        let _ = self.reach(|conn| {
            if expects_continue {
                conn.write_slice(CONTINUE);
            }
            self.read_on(conn);
        });
    }
}

impl Source for Shared {
    fn trailers(&self) -> Option<Headers> {
        self.with_upload(|upload| upload.over.then(|| upload.trailers.clone())).flatten()
    }

    fn poll_piece(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let Some(taken) = self.take_some(Upload::take_piece) else {
            return Poll::Ready(if self.is_gone() { Err(gone()) } else { Ok(None) });
        };
        if taken.asks && self.is_starting() {
            // Until the connection can be reached.
            self.with_upload(|upload| upload.expects_continue |= taken.expects_continue);
            cx.waker().wake_by_ref();
        } else if taken.asks {
            self.ask_for_more(taken.expects_continue);
        }
        match taken.taken {
            Some(piece) => Poll::Ready(piece),
            None => {
                if !taken.asks || !self.is_starting() {
                    self.wake_later(cx.waker());
                }
                Poll::Pending
            }
        }
    }

    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let number = self.number();
        loop {
            let Some(Taken { taken, asks, expects_continue }) =
                self.take_some(|upload| upload.take(into))
            else {
                return if self.is_gone() { Err(gone()) } else { Ok(0) };
            };
            if asks {
                if self.is_starting() {
                    coracle_coro::yield_now(); // until the connection can be reached
                }
                self.ask_for_more(expects_continue);
            }
            if let Some(taken) = taken {
                return taken;
            }
            // Something may have come while this gave way.
            if self.with_upload(|upload| upload.is_awaited()) == Some(true) {
                self.wait()?;
                if self.number() != number {
                    return Err(io::ErrorKind::ConnectionReset.into()); // it is another request's turn
                }
            }
        }
    }

    fn number(&self) -> u32 {
        self.request_number()
    }
}
