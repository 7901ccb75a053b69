//! The body of an answer, on its way to `h2`.
//!
//! ```text
//!   handler ──write──► pieces ──hand_on──► h2 ──► frames, as far as the client's windows reach
//!      ▲ waits while too much is here
//! ```
//!
//! `h2` is given a piece when the one before it is in frames; until then it is [counted](super::piece).

use super::piece::Unsent;
use super::stream::Stream;
use crate::promise::Promise;
use crate::{Settings, Trailers};
use bytes::Bytes;
use coracle_coro::Coroutine;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::rc::Rc;

/// What is written little by little is sent in pieces of this size.
const PIECE_BYTES: usize = 16 << 10;

/// No more of a body is given to `h2` at a time, but perhaps [less](crate::Http2Settings::limit_send_bytes).
const LIMIT_PIECE_BYTES: usize = 64 << 10;

/// How much may wait for `h2`: then whoever writes waits.
const LIMIT_WAITING_BYTES: usize = 64 << 10;

/// What is left of a body, and of what follows it.
#[derive(Default)]
pub(super) struct Download {
    /// Of one whose bytes are there.
    bytes: RefCell<Bytes>,
    /// Of one that is written: what was written.
    pieces: RefCell<VecDeque<Bytes>>,
    waiting_bytes: Cell<usize>,
    ending: Cell<Ending>,
    trailers: RefCell<Option<Trailers>>,
    /// What `h2` has of it, once it has been given something.
    pub(super) unsent: OnceCell<Rc<Unsent>>,
    /// Who writes, while it waits for room.
    writer: Cell<Option<Coroutine>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Ending {
    /// More may be written.
    #[default]
    Open,
    /// Everything is here.
    Whole,
    /// It is cut off.
    Cut,
}

/// What `h2` is to be given next.
pub(super) enum Next {
    /// A piece; the last of all, if that is so.
    Piece(Bytes, bool),
    Trailers(Trailers),
    /// It was cut off.
    Cut,
    /// Nothing yet.
    Wait,
}

impl Download {
    /// What `h2` has of it and has not put into frames, if there is something.
    pub(super) fn unsent(&self) -> Option<&Rc<Unsent>> {
        self.unsent.get().filter(|unsent| !unsent.is_empty())
    }

    /// The body is this, and nothing is written.
    pub(super) fn set_bytes(&self, bytes: Bytes, trailers: Option<Trailers>) {
        self.bytes.replace(bytes);
        self.trailers.replace(trailers);
        self.ending.set(Ending::Whole);
    }

    /// The body is what an [`Outlet`] of the stream writes.
    pub(super) fn set_trailers(&self, trailers: Option<Trailers>) {
        self.trailers.replace(trailers);
    }

    /// What comes next, if `h2` is to be given more.
    pub(super) fn next(&self, settings: &Settings) -> Next {
        match self.take(settings.http2.limit_send_bytes.min(LIMIT_PIECE_BYTES)) {
            Some(piece) => {
                let is_last = self.ending.get() == Ending::Whole
                    && self.bytes.borrow().is_empty()
                    && self.pieces.borrow().is_empty()
                    && !self.has_trailers();
                Next::Piece(piece, is_last)
            }
            None => match self.ending.get() {
                Ending::Open => Next::Wait,
                Ending::Cut => Next::Cut,
                Ending::Whole => match self.trailers.take() {
                    Some(trailers) if !trailers.with(|fields| fields.is_empty()) => {
                        Next::Trailers(trailers)
                    }
                    _ => Next::Piece(Bytes::new(), true),
                },
            },
        }
    }

    fn has_trailers(&self) -> bool {
        let trailers = self.trailers.borrow();
        trailers.as_ref().is_some_and(|trailers| trailers.with(|fields| !fields.is_empty()))
    }

    fn take(&self, limit: usize) -> Option<Bytes> {
        let mut bytes = self.bytes.borrow_mut();
        if !bytes.is_empty() {
            let count = bytes.len().min(limit);
            return Some(bytes.split_to(count));
        }
        let mut pieces = self.pieces.borrow_mut();
        let first = pieces.front_mut()?;
        let piece = first.split_to(first.len().min(limit));
        if first.is_empty() {
            pieces.pop_front();
        }
        drop(pieces);
        self.waiting_bytes.set(self.waiting_bytes.get() - piece.len());
        if self.waiting_bytes.get() <= LIMIT_WAITING_BYTES / 2 {
            self.wake_writer(); // there is room
        }
        Some(piece)
    }

    fn push(&self, piece: Bytes) {
        if !piece.is_empty() {
            self.waiting_bytes.set(self.waiting_bytes.get() + piece.len());
            self.pieces.borrow_mut().push_back(piece);
        }
    }

    /// Whoever writes need not wait any more.
    pub(super) fn wake_writer(&self) {
        if let Some(writer) = self.writer.take() {
            writer.unpark();
        }
    }
}

/// Where a body goes while it is written.
pub(super) struct Outlet<'a> {
    stream: &'a Rc<Stream>,
    buffer: Vec<u8>,
    left: Promise,
}

impl Outlet<'_> {
    pub(super) fn new(stream: &Rc<Stream>, promised: Option<u64>) -> Outlet<'_> {
        Outlet { stream, buffer: Vec::new(), left: Promise(promised) }
    }

    /// Says how it ended.
    pub(super) fn finish(mut self, written: io::Result<()>) -> io::Result<()> {
        let result = written.and_then(|()| self.left.finish());
        let download = &self.stream.download;
        match result.is_ok() {
            true => {
                download.push(std::mem::take(&mut self.buffer).into());
                download.ending.set(Ending::Whole);
            }
            false => download.ending.set(Ending::Cut),
        }
        self.stream.hand_on();
        result
    }

    /// Hands a piece over, and waits until there is room for the next.
    fn send(&mut self, piece: Bytes) -> io::Result<()> {
        let download = &self.stream.download;
        download.push(piece);
        self.stream.hand_on();
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
