//! From bytes to messages: the strict half of the framer. No I/O, no clock.
//!
//! ```text
//!   bytes ─► header ─┬─ control frame ─────────────────────────────► Ping, Pong, Close
//!                    └─ data frame ─► unmask ─► message so far ──┐
//!                         ▲  not the last, or not all of it      │ the last
//!                         └──────────────────────────────────────┴─► inflate ─► UTF-8 ─► Message
//! ```
//!
//! What is wrong is refused when it is seen, not when the message is whole: text that cannot become UTF-8 any more
//! is refused in its middle, and a frame that is too long before it is received.

use super::code::{Close, CloseCode, Violation};
use super::deflate::{Agreed, Inflater};
use super::frame::{Header, Opcode, mask};
use super::{Message, Role};

/// So much is allocated for a frame before any of it is there.
const TRUSTED_BYTES: u64 = 64 << 10;

/// Takes frames apart.
#[derive(Debug)]
pub(crate) struct Decoder {
    role: Role,
    limit_frame_bytes: u64,
    limit_message_bytes: usize,
    agreed: Option<Agreed>,
    inflater: Inflater,
    /// The data frame whose payload is under way.
    frame: Option<Frame>,
    /// The message that is under way: between two of its frames, too.
    begun: Option<Begun>,
    /// Its bytes, as far as they have come.
    data: Vec<u8>,
    /// How many of them are known to be UTF-8.
    checked: usize,
    /// The peer has said that it says no more.
    closed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    last: bool,
    mask: Option<[u8; 4]>,
    /// How much of its payload has come.
    offset: usize,
    /// How much is missing.
    left: u64,
}

#[derive(Debug, Clone, Copy)]
struct Begun {
    text: bool,
    compressed: bool,
}

/// What was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Message(Message),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    /// Nothing comes behind it.
    Close(Close),
}

impl Decoder {
    pub(crate) fn new(
        role: Role,
        limit_frame_bytes: usize,
        limit_message_bytes: usize,
        agreed: Option<Agreed>,
    ) -> Decoder {
        Decoder {
            role,
            limit_frame_bytes: limit_frame_bytes as u64,
            limit_message_bytes,
            agreed,
            inflater: Inflater::default(),
            frame: None,
            begun: None,
            data: Vec::new(),
            checked: 0,
            closed: false,
        }
    }

    /// Takes what it can of `input`: how much that was, and what was said by it, if something was. When nothing
    /// was said, it needs more than there is.
    pub(crate) fn decode(&mut self, input: &[u8]) -> Result<(usize, Option<Event>), Violation> {
        let mut used = 0;
        loop {
            if self.closed {
                return Ok((input.len(), None));
            }
            if self.frame.is_some() {
                let (taken, message) = self.take_payload(&input[used..])?;
                used += taken;
                if message.is_some() || self.frame.is_some() {
                    return Ok((used, message));
                }
            }
            let Some((header, len)) = Header::parse(&input[used..])? else {
                return Ok((used, None));
            };
            self.check_mask(&header)?;
            if header.opcode.is_control() {
                let (begin, end) = (used + len, used + len + header.len as usize);
                let Some(payload) = input.get(begin..end) else { return Ok((used, None)) };
                let mut payload = payload.to_vec();
                if let Some(key) = header.mask {
                    mask(&mut payload, key, 0);
                }
                return Ok((end, Some(self.control(&header, payload)?)));
            }
            self.begin_frame(&header)?;
            used += len;
        }
    }

    fn check_mask(&self, header: &Header) -> Result<(), Violation> {
        match (self.role, header.mask) {
            (Role::Server, None) => Err(Violation::protocol("a client masks its frames")),
            (Role::Client, Some(_)) => {
                Err(Violation::protocol("a server does not mask its frames"))
            }
            _ => Ok(()),
        }
    }

    fn begin_frame(&mut self, header: &Header) -> Result<(), Violation> {
        if header.compressed && (self.agreed.is_none() || header.opcode == Opcode::Continuation) {
            return Err(Violation::protocol("a reserved bit is set"));
        }
        match (header.opcode, self.begun) {
            (Opcode::Continuation, None) => {
                return Err(Violation::protocol("there is no message to be continued"));
            }
            (Opcode::Continuation, Some(_)) => {}
            (_, Some(_)) => {
                return Err(Violation::protocol("a message begins within another one"));
            }
            (opcode, None) => {
                let (text, compressed) = (opcode == Opcode::Text, header.compressed);
                self.begun = Some(Begun { text, compressed });
                self.checked = 0;
            }
        }
        if header.len > self.limit_frame_bytes {
            return Err(Violation::size("a frame is too big"));
        }
        let room = self.limit_message_bytes.saturating_sub(self.data.len());
        if header.len > room as u64 {
            return Err(Violation::size("a message is too big"));
        }
        self.data.reserve(header.len.min(TRUSTED_BYTES) as usize);
        self.frame =
            Some(Frame { last: header.last, mask: header.mask, offset: 0, left: header.len });
        Ok(())
    }

    /// Takes what is there of the payload under way: how much that was, and the message, if that is whole.
    fn take_payload(&mut self, input: &[u8]) -> Result<(usize, Option<Event>), Violation> {
        let Some(frame) = &mut self.frame else { return Ok((0, None)) };
        let count = usize::try_from(frame.left).unwrap_or(usize::MAX).min(input.len());
        let begin = self.data.len();
        self.data.extend_from_slice(&input[..count]);
        if let Some(key) = frame.mask {
            mask(&mut self.data[begin..], key, frame.offset);
        }
        frame.left -= count as u64;
        frame.offset += count;
        let whole = frame.left == 0;
        let last = whole && frame.last;
        if whole {
            self.frame = None;
        }
        if last {
            return Ok((count, Some(Event::Message(self.finish()?))));
        }
        self.check_text()?;
        Ok((count, None))
    }

    /// Checks text that is under way: a character may be missing its end, and nothing else.
    fn check_text(&mut self) -> Result<(), Violation> {
        if !self.begun.is_some_and(|begun| begun.text && !begun.compressed) {
            return Ok(());
        }
        match std::str::from_utf8(&self.data[self.checked..]) {
            Ok(_) => self.checked = self.data.len(),
            Err(error) if error.error_len().is_some() => return Err(NOT_UTF8),
            Err(error) => self.checked += error.valid_up_to(),
        }
        Ok(())
    }

    /// The message, which is whole.
    fn finish(&mut self) -> Result<Message, Violation> {
        let mut data = std::mem::take(&mut self.data);
        let begun = self.begun.take().unwrap_or(Begun { text: false, compressed: false });
        if begun.compressed
            && let Some(agreed) = &self.agreed
        {
            data = self.inflater.inflate(agreed, &data, self.limit_message_bytes)?;
        }
        match begun.text {
            true => String::from_utf8(data).map(Message::Text).map_err(|_| NOT_UTF8),
            false => Ok(Message::Binary(data.into())),
        }
    }

    fn control(&mut self, header: &Header, payload: Vec<u8>) -> Result<Event, Violation> {
        if header.compressed {
            return Err(Violation::protocol("a reserved bit is set"));
        }
        Ok(match header.opcode {
            Opcode::Ping => Event::Ping(payload),
            Opcode::Pong => Event::Pong(payload),
            _ => {
                let close = parse_close(&payload)?;
                self.closed = true;
                Event::Close(close)
            }
        })
    }
}

const NOT_UTF8: Violation = Violation::data("a text is not UTF-8");

/// What a close frame says.
fn parse_close(payload: &[u8]) -> Result<Close, Violation> {
    let (code, reason) = match payload {
        [] => return Ok(CloseCode::NONE.into()),
        [_] => return Err(Violation::protocol("a close code has two bytes")),
        [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
    };
    let code = CloseCode::from(code);
    if !code.can_be_sent() {
        return Err(Violation::protocol("a close code is none that can be sent"));
    }
    match std::str::from_utf8(reason) {
        Ok(reason) => Ok(Close { code, reason: reason.to_owned() }),
        Err(_) => Err(Violation::data("the reason of a close is not UTF-8")),
    }
}
