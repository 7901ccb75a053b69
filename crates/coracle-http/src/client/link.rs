//! A connection to a server, on which one request is asked after the other.

use super::stream::Stream;
use crate::h1::Refusal;
use crate::h1::chunks::Piece;
use crate::h1::reply::{self, End, Facts, Incoming, Parsed};
use crate::{Headers, Method, Settings, Status};
use coracle_loop::Loop;
use std::io;
use std::time::{Duration, Instant};

/// So much is received at a time.
const INPUT_BYTES: usize = 16 << 10;

/// More memory than this is not kept for the next request.
const KEEP_BYTES: usize = 32 << 10;

/// So many answers may come that only say that the answer is to come.
const LIMIT_INTERIM: u32 = 32;

/// A connection that was used a moment ago is still there, most likely.
const FRESH: Duration = Duration::from_secs(1);

/// What a server of TLS says to who does not speak it: the begin of an alert.
const TLS_ALERT: &[u8] = &[21, 3];

pub(crate) struct Link {
    pub(crate) stream: Stream,
    /// What was received, and which part of it was not read.
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// How much of that is known to be of the body.
    ready: usize,
    /// Where a request is put together.
    pub(crate) out: Vec<u8>,
    /// Whether anything of the answer has come.
    answering: bool,
    /// Whether the answer has no body though it says how long that is: one may come that nobody asked for.
    is_suspect: bool,
    /// Whether it was asked before.
    pub(crate) used: bool,
    since: Option<Instant>,
}

impl Link {
    pub(crate) fn new(stream: Stream) -> Link {
        Link {
            stream,
            input: Vec::new(),
            start: 0,
            end: 0,
            ready: 0,
            out: Vec::new(),
            answering: false,
            is_suspect: false,
            used: false,
            since: None,
        }
    }

    /// Whether it can be asked again. What was used a moment ago is not looked at, unless `careful` is wanted, or
    /// its answer gives reason to be.
    pub(crate) fn is_alive(&self, careful: bool) -> bool {
        let fresh = self.since.is_some_and(|since| now().saturating_duration_since(since) < FRESH);
        (fresh && !careful) || self.stream.is_quiet()
    }

    /// An answer is over, and the next request may come: whether it may.
    pub(crate) fn rest(&mut self) -> bool {
        self.used = true;
        self.answering = false;
        self.since = (!self.is_suspect).then(now);
        if self.out.capacity() > KEEP_BYTES {
            self.out = Vec::new();
        }
        self.start == self.end // else something came that nobody has asked for
    }

    /// Whether anything of the answer has come.
    pub(crate) fn is_answering(&self) -> bool {
        self.answering
    }

    /// Sends what was put together.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent
    }

    fn unread(&self) -> &[u8] {
        &self.input[self.start..self.end]
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Waits for more; false at the end of the stream.
    fn receive(&mut self) -> io::Result<bool> {
        if self.start > 0 && self.end == self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.input.len() {
            self.input.resize(self.end + INPUT_BYTES, 0);
        }
        let count = self.stream.read(&mut self.input[self.end..])?;
        self.end += count;
        self.answering |= count > 0;
        Ok(count > 0)
    }

    /// Waits for the head of an answer: one that is final, or a 101.
    pub(crate) fn receive_head(
        &mut self,
        method: Method,
        settings: &Settings,
        headers: &mut Headers,
    ) -> io::Result<Facts> {
        for _ in 0..LIMIT_INTERIM {
            let facts = self.receive_any_head(method, settings, headers)?;
            if !facts.status.is_informational() || facts.status == Status::SWITCHING_PROTOCOLS {
                return Ok(facts);
            }
            headers.clear();
        }
        Err(wrong(Refusal::bad("it only says that it is to come")))
    }

    /// Waits for the head of an answer, whichever it is.
    pub(crate) fn receive_any_head(
        &mut self,
        method: Method,
        settings: &Settings,
        headers: &mut Headers,
    ) -> io::Result<Facts> {
        loop {
            if self.start < self.end {
                if self.unread().starts_with(TLS_ALERT) {
                    return Err(wrong(Refusal::bad("it is TLS: use https:// in the URL")));
                }
                let parsed = reply::parse(self.unread(), settings, method, headers);
                match parsed.map_err(wrong)? {
                    Parsed::Whole(facts) => {
                        self.consume(facts.len);
                        let says_more = |name: &&str| headers.get(name).is_some_and(|it| it != "0");
                        self.is_suspect = facts.end == End::None
                            && ["content-length", "transfer-encoding"].iter().any(says_more);
                        return Ok(facts);
                    }
                    Parsed::Partial => {}
                }
            }
            if !self.receive()? {
                let text = match self.start < self.end {
                    true => "the connection ended in the middle of an answer",
                    false => "the connection ended before an answer",
                };
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
        }
    }

    /// Waits for the head of an answer, and leaves it there if it is the final one. None if the connection ends.
    pub(crate) fn peek_head(
        &mut self,
        method: Method,
        settings: &Settings,
    ) -> io::Result<Option<Facts>> {
        let mut interim = 0;
        while interim < LIMIT_INTERIM {
            let parsed = match self.start < self.end {
                true => reply::parse(self.unread(), settings, method, &mut Headers::new()),
                false => Ok(Parsed::Partial),
            };
            match parsed.map_err(wrong)? {
                Parsed::Whole(facts) if facts.status.is_informational() => {
                    self.consume(facts.len);
                    interim += 1;
                    if facts.status == Status::CONTINUE {
                        return Ok(Some(facts));
                    }
                }
                Parsed::Whole(facts) => return Ok(Some(facts)),
                Parsed::Partial if self.receive()? => {}
                Parsed::Partial => return Ok(None),
            }
        }
        Err(wrong(Refusal::bad("it only says that it is to come")))
    }

    /// Looks for more of a body in what has come.
    fn advance_body(
        &mut self,
        incoming: &mut Incoming,
        settings: &Settings,
        trailers: &mut Headers,
    ) -> io::Result<Buffered> {
        if self.ready > 0 {
            return Ok(Buffered::Data);
        }
        match incoming.next(self.unread(), settings, trailers).map_err(wrong)? {
            Piece::More { skip } => {
                self.consume(skip);
                Ok(Buffered::More)
            }
            Piece::End { skip } => {
                self.consume(skip);
                Ok(Buffered::End)
            }
            Piece::Data { skip, len } => {
                self.consume(skip);
                self.ready = len;
                Ok(Buffered::Data)
            }
        }
    }

    /// Adds what of a body has come already to `whole`, without waiting; true if that was its end. No more than
    /// `limit` bytes are added.
    pub(crate) fn take_body(
        &mut self,
        incoming: &mut Incoming,
        settings: &Settings,
        trailers: &mut Headers,
        whole: &mut Vec<u8>,
        limit: usize,
    ) -> io::Result<bool> {
        loop {
            match self.advance_body(incoming, settings, trailers)? {
                Buffered::End => return Ok(true),
                Buffered::More => return Ok(false),
                Buffered::Data if whole.len() >= limit => return Ok(false),
                Buffered::Data => {
                    let count = self.ready.min(limit - whole.len());
                    whole.extend_from_slice(&self.unread()[..count]);
                    self.ready -= count;
                    self.consume(count);
                }
            }
        }
    }

    /// Waits for some of a body; none at its end.
    pub(crate) fn read_body(
        &mut self,
        incoming: &mut Incoming,
        settings: &Settings,
        trailers: &mut Headers,
        into: &mut [u8],
    ) -> io::Result<usize> {
        loop {
            match self.advance_body(incoming, settings, trailers)? {
                Buffered::End => return Ok(0),
                Buffered::Data => {
                    let count = self.ready.min(into.len());
                    into[..count].copy_from_slice(&self.unread()[..count]);
                    self.ready -= count;
                    self.consume(count);
                    return Ok(count);
                }
                // A large piece of a plain body need not be kept here first.
                Buffered::More if into.len() > INPUT_BYTES && incoming.plain_left() > 0 => {
                    let left = usize::try_from(incoming.plain_left()).unwrap_or(usize::MAX);
                    let room = into.len().min(left);
                    let count = self.stream.read(&mut into[..room])?;
                    if count == 0 && !incoming.ends_with_connection() {
                        return Err(cut_off());
                    }
                    incoming.note(count).map_err(wrong)?;
                    return Ok(count);
                }
                Buffered::More if self.receive()? => {}
                Buffered::More if incoming.ends_with_connection() => return Ok(0),
                Buffered::More => return Err(cut_off()),
            }
        }
    }

    /// Whether more of a body can be taken without waiting.
    pub(crate) fn has_body(
        &mut self,
        incoming: &mut Incoming,
        settings: &Settings,
        trailers: &mut Headers,
    ) -> bool {
        matches!(self.advance_body(incoming, settings, trailers), Ok(Buffered::Data))
    }

    /// What has come and was not read.
    pub(crate) fn into_parts(self) -> (Stream, Vec<u8>) {
        let unread = self.unread().to_vec();
        (self.stream, unread)
    }
}

/// What was found of a body.
enum Buffered {
    Data,
    End,
    More,
}

/// Whether a connection has ended, for whatever reason.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
    )
}

fn cut_off() -> io::Error {
    let text = "the connection ended in the middle of a body";
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

/// By the clock of the loop.
pub(crate) fn now() -> Instant {
    Loop::current().map_or_else(Instant::now, |lp| lp.now())
}

/// An answer that cannot be read, as an error.
pub(crate) fn wrong(refusal: Refusal) -> io::Error {
    let kind = match refusal.status == Status::PAYLOAD_TOO_LARGE {
        true => io::ErrorKind::FileTooLarge,
        false => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, format!("the answer cannot be read: {}", refusal.why))
}
