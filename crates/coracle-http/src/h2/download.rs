//! The body of an answer, on its way to hyper.
//!
//! ```text
//!   handler ──write──► pieces ──poll_frame──► hyper ──► frames, as far as the client's windows reach
//!      ▲ waits while too much is here
//! ```
//!
//! Hyper asks for a piece when it has handed on the one before it; until it is in frames it is
//! [counted](super::piece).

use super::piece::{Piece, Unsent};
use super::stream::Stream;
use crate::promise::Promise;
use crate::{Headers, Trailers};
use bytes::Bytes;
use coracle_coro::Coroutine;
use coracle_loop::Loop;
use http_body::{Frame, SizeHint};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// What is written little by little is sent in pieces of this size.
const PIECE_BYTES: usize = 16 << 10;

/// So much of a body is given to hyper at a time.
const LIMIT_PIECE_BYTES: usize = 64 << 10;

/// How much may wait for hyper: then whoever writes waits.
const LIMIT_WAITING_BYTES: usize = 64 << 10;

/// What hyper sends.
pub(super) struct Outgoing {
    stream: Rc<Stream>,
    rest: Rest,
    trailers: Option<Trailers>,
}

enum Rest {
    Bytes(Bytes),
    /// They come while it is sent.
    Pieces,
    Nothing,
}

/// What a handler has written, and whether hyper wants more.
#[derive(Default)]
pub(super) struct Download {
    pieces: RefCell<VecDeque<Bytes>>,
    waiting_bytes: Cell<usize>,
    ending: Cell<Ending>,
    /// Hyper's task, while it waits for a piece.
    hungry: Cell<Option<Waker>>,
    /// What hyper has of it, once it has been given something.
    unsent: OnceCell<Rc<Unsent>>,
    /// Who writes, while it waits for room.
    writer: Cell<Option<Coroutine>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Ending {
    #[default]
    Open,
    /// Everything was written.
    Whole,
    /// It is cut off.
    Cut,
}

impl Download {
    /// What hyper has of it and has not put into frames, if there is something.
    pub(super) fn unsent(&self) -> Option<&Rc<Unsent>> {
        self.unsent.get().filter(|unsent| !unsent.is_empty())
    }

    fn push(&self, piece: Bytes) {
        if !piece.is_empty() {
            self.waiting_bytes.set(self.waiting_bytes.get() + piece.len());
            self.pieces.borrow_mut().push_back(piece);
        }
    }

    fn feed_hungry(&self) {
        if let Some(waker) = self.hungry.take() {
            waker.wake();
        }
    }

    fn end(&self, ending: Ending) {
        if self.ending.get() == Ending::Open {
            self.ending.set(ending);
        }
        self.feed_hungry();
    }

    /// Nobody takes it any more.
    pub(super) fn abandon(&self) {
        if let Some(writer) = self.writer.take() {
            writer.unpark();
        }
    }

    fn take(&self) -> Option<Bytes> {
        let piece = self.pieces.borrow_mut().pop_front()?;
        self.waiting_bytes.set(self.waiting_bytes.get() - piece.len());
        if self.waiting_bytes.get() <= LIMIT_WAITING_BYTES / 2
            && let Some(writer) = self.writer.take()
        {
            writer.unpark();
        }
        Some(piece)
    }
}

impl Outgoing {
    /// Bytes that are there.
    pub(super) fn bytes(stream: &Rc<Stream>, bytes: Bytes, trailers: Option<Trailers>) -> Outgoing {
        Outgoing { stream: Rc::clone(stream), rest: Rest::Bytes(bytes), trailers }
    }

    /// What is written by an [`Outlet`] of the stream.
    pub(super) fn pieces(stream: &Rc<Stream>, trailers: Option<Trailers>) -> Outgoing {
        Outgoing { stream: Rc::clone(stream), rest: Rest::Pieces, trailers }
    }

    pub(super) fn nothing(stream: &Rc<Stream>) -> Outgoing {
        Outgoing { stream: Rc::clone(stream), rest: Rest::Nothing, trailers: None }
    }

    fn give(&self, piece: Bytes) -> Poll<Option<Result<Frame<Piece>, io::Error>>> {
        let now = Loop::current().map_or_else(Instant::now, |lp| lp.now());
        let unsent = self.stream.download.unsent.get_or_init(|| Unsent::new(now));
        let piece = unsent.piece(piece, now, self.stream.settings());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl http_body::Body for Outgoing {
    type Data = Piece;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, io::Error>>> {
        let this = &mut *self;
        match &mut this.rest {
            Rest::Bytes(bytes) => {
                let piece = bytes.split_to(bytes.len().min(LIMIT_PIECE_BYTES));
                if bytes.is_empty() {
                    this.rest = Rest::Nothing;
                }
                if !piece.is_empty() {
                    return this.give(piece);
                }
            }
            Rest::Pieces => {
                let download = &this.stream.download;
                if let Some(piece) = download.take() {
                    return this.give(piece);
                }
                match download.ending.get() {
                    Ending::Open => {
                        download.hungry.set(Some(cx.waker().clone()));
                        return Poll::Pending;
                    }
                    Ending::Whole => this.rest = Rest::Nothing,
                    Ending::Cut => {
                        let error = io::Error::other("the body is cut off");
                        return Poll::Ready(Some(Err(error)));
                    }
                }
            }
            Rest::Nothing => {}
        }
        let trailers = this.trailers.take().map(|trailers| trailers.with(Headers::to_map));
        let trailers = trailers.filter(|trailers| !trailers.is_empty());
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        let nothing = match &self.rest {
            Rest::Bytes(bytes) => bytes.is_empty(),
            Rest::Pieces => {
                let download = &self.stream.download;
                download.ending.get() == Ending::Whole && download.pieces.borrow().is_empty()
            }
            Rest::Nothing => true,
        };
        nothing && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.rest {
            Rest::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Rest::Pieces => SizeHint::default(),
            Rest::Nothing => SizeHint::with_exact(0),
        }
    }
}

impl Drop for Outgoing {
    /// Everything is handed on, or nobody takes it any more.
    fn drop(&mut self) {
        self.stream.be_gone();
    }
}

/// Where a body goes while it is written.
pub(super) struct Outlet<'a> {
    stream: &'a Stream,
    buffer: Vec<u8>,
    left: Promise,
}

impl Outlet<'_> {
    pub(super) fn new(stream: &Stream, promised: Option<u64>) -> Outlet<'_> {
        Outlet { stream, buffer: Vec::new(), left: Promise(promised) }
    }

    /// Says how it ended.
    pub(super) fn finish(mut self, written: io::Result<()>) -> io::Result<()> {
        let result = written.and_then(|()| self.left.finish());
        let ending = if result.is_ok() { Ending::Whole } else { Ending::Cut };
        if result.is_ok() {
            self.stream.download.push(std::mem::take(&mut self.buffer).into());
        }
        self.stream.download.end(ending);
        result
    }

    /// Hands a piece over, and waits until there is room for the next.
    fn send(&mut self, piece: Bytes) -> io::Result<()> {
        let download = &self.stream.download;
        download.push(piece);
        download.feed_hungry();
        while download.waiting_bytes.get() > LIMIT_WAITING_BYTES && !self.stream.is_gone() {
            download.writer.set(Some(coracle_coro::current()));
            let woken = coracle_coro::park();
            download.writer.take();
            woken?;
        }
        match self.stream.is_gone() {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => Ok(()),
        }
    }
}

impl Write for Outlet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.is_empty() && bytes.len() >= PIECE_BYTES {
            let bytes = &bytes[..bytes.len().min(LIMIT_PIECE_BYTES)];
            self.left.count(bytes.len())?;
            self.send(Bytes::copy_from_slice(bytes))?;
            return Ok(bytes.len());
        }
        let bytes = &bytes[..bytes.len().min(PIECE_BYTES - self.buffer.len())];
        self.left.count(bytes.len())?;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.buffer.is_empty() {
            true => Ok(()),
            false => {
                let piece = std::mem::take(&mut self.buffer);
                self.send(piece.into())
            }
        }
    }
}
