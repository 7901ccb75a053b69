//! A body that is sent while its answer is awaited, and may still be sent while that comes.
//!
//! It has a coroutine of its own, so that a server may answer before it has read everything, as one does that
//! refuses it, or answer with what it reads.

use super::stream::Stream;
use crate::Headers;
use crate::h1::answer::{write_chunk_head, write_last_chunk};
use coracle_coro::JoinHandle;
use std::cell::{Cell, RefCell};
use std::io::{self, Read};
use std::rc::Rc;
use std::time::Duration;

/// How much is sent at a time.
const PIECE_BYTES: usize = 16 << 10;

/// Room for the line before a chunk, which is written when it is known how long the chunk is.
const CHUNK_HEAD: usize = 8;

/// What is to be sent.
pub(crate) struct Source {
    pub(crate) reader: Box<dyn Read>,
    /// How much it is; in chunks if that is not known.
    pub(crate) len: Option<u64>,
    /// What follows the chunks, asked for behind the last.
    pub(crate) trailers: Box<dyn FnOnce() -> Headers>,
}

/// One that is under way.
pub(crate) struct Upload {
    outcome: Rc<RefCell<Option<Outcome>>>,
    /// Whether the answer has begun.
    answered: Rc<Cell<bool>>,
    sending: JoinHandle<()>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Outcome {
    Sent,
    /// It was sent, and no answer has come in time. The connection is closed.
    Unanswered,
    /// It could not be read. The connection is closed.
    Unread(io::Error),
    /// It could not be sent. There may be an answer all the same, for as long as one may take; not if the server
    /// just takes nothing any more. Then the connection is closed.
    Unsent(io::Error),
}

impl Upload {
    /// Sends what is in `source`. Each piece has `body_timeout` to be taken, and the answer `head_timeout` to
    /// begin when all of it is sent.
    pub(crate) fn start(
        stream: Stream,
        source: Source,
        body_timeout: Duration,
        head_timeout: Duration,
    ) -> Upload {
        let (outcome, answered) = (Rc::new(RefCell::new(None)), Rc::new(Cell::new(false)));
        let (note, is_answered) = (Rc::clone(&outcome), Rc::clone(&answered));
        let sending = coracle_coro::spawn(move || {
            let sent = pump(&stream, source, body_timeout);
            let is_unread = matches!(sent, Outcome::Unread(_));
            let is_stuck =
                matches!(&sent, Outcome::Unsent(error) if error.kind() == io::ErrorKind::TimedOut);
            *note.borrow_mut() = Some(sent);
            let wait = || is_stuck || coracle_coro::sleep(head_timeout).is_ok();
            if is_unread || (!is_answered.get() && wait() && !is_answered.get()) {
                if let Some(outcome @ Outcome::Sent) = &mut *note.borrow_mut() {
                    *outcome = Outcome::Unanswered;
                }
                stream.close();
            }
        });
        Upload { outcome, answered, sending }
    }

    /// The answer has begun: nobody waits for that any more. Whether all of the body is sent.
    pub(crate) fn answered(&self) -> bool {
        self.answered.set(true);
        if self.outcome.borrow().is_some() {
            self.sending.cancel(); // it only waits
        }
        matches!(*self.outcome.borrow(), Some(Outcome::Sent))
    }

    /// Why there is no answer, if that is known better here: what was told of the connection is `error`.
    pub(crate) fn explain(&self, error: io::Error) -> Result<io::Error, io::Error> {
        match self.outcome.take() {
            Some(Outcome::Unread(why)) => Err(why),
            Some(Outcome::Unanswered) => Ok(io::ErrorKind::TimedOut.into()),
            Some(Outcome::Unsent(why)) => Ok(why),
            Some(Outcome::Sent) | None => Ok(error),
        }
    }
}

impl Drop for Upload {
    /// Nobody needs it any more.
    fn drop(&mut self) {
        self.sending.cancel();
    }
}

fn pump(stream: &Stream, mut source: Source, timeout: Duration) -> Outcome {
    let chunked = source.len.is_none();
    let mut left = source.len;
    let head = if chunked { CHUNK_HEAD } else { 0 };
    let mut piece = vec![0; head + PIECE_BYTES + 2];
    let send = |bytes: &[u8]| coracle_coro::timeout(timeout, || stream.write_all(bytes));
    loop {
        let room = left.map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES as u64) as usize);
        if room == 0 {
            return Outcome::Sent;
        }
        let count = match source.reader.read(&mut piece[head..head + room]) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Outcome::Unread(error),
        };
        if count == 0 {
            if let Some(left) = left {
                let text = format!("{left} bytes are missing of the length that was promised");
                return Outcome::Unread(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
            let mut end = Vec::new();
            write_last_chunk(&mut end, &(source.trailers)());
            return send(&end).map_or_else(Outcome::Unsent, |()| Outcome::Sent);
        }
        let (mut start, mut end) = (head, head + count);
        if chunked {
            let mut line = Vec::with_capacity(CHUNK_HEAD);
            write_chunk_head(&mut line, count);
            start = head - line.len();
            piece[start..head].copy_from_slice(&line);
            piece[end..end + 2].copy_from_slice(b"\r\n");
            end += 2;
        }
        left = left.map(|left| left - count as u64);
        if let Err(error) = send(&piece[start..end]) {
            return Outcome::Unsent(error);
        }
    }
}
