//! From messages to frames.

use super::code::{Close, CloseCode};
use super::deflate::{Agreed, Deflater, deflate_alone};
use super::frame::{HEADER_BYTES_MAX, Header, Opcode, mask};
use super::{Message, Role};
use bytes::Bytes;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A frame, ready to be sent: what is in front of the payload, and the payload.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) head: SmallVec<[u8; HEADER_BYTES_MAX]>,
    pub(crate) payload: Bytes,
}

/// The payload of a message, as it is sent: in one frame or in several.
#[derive(Debug)]
pub(crate) struct Payload {
    text: bool,
    compressed: bool,
    bytes: Bytes,
}

impl Payload {
    pub(crate) fn new(
        message: Message,
        agreed: Option<&Agreed>,
        deflater: &mut Deflater,
    ) -> Payload {
        let text = message.is_text();
        let deflated = agreed.and_then(|agreed| deflater.deflate(agreed, message.as_bytes()));
        let compressed = deflated.is_some();
        let bytes = match (deflated, message) {
            (Some(deflated), _) => deflated.into(),
            (None, Message::Text(text)) => text.into_bytes().into(),
            (None, Message::Binary(bytes)) => bytes,
        };
        Payload { text, compressed, bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes between `begin` and `end` as a frame.
    pub(crate) fn frame(&self, role: Role, begin: usize, end: usize) -> Frame {
        let opcode = match (begin, self.text) {
            (0, true) => Opcode::Text,
            (0, false) => Opcode::Binary,
            _ => Opcode::Continuation,
        };
        let compressed = self.compressed && begin == 0;
        let last = end == self.bytes.len();
        frame(role, opcode, last, compressed, self.bytes.slice(begin..end))
    }
}

/// A frame with this payload, masked if it is a client's.
fn frame(role: Role, opcode: Opcode, last: bool, compressed: bool, payload: Bytes) -> Frame {
    let key = (role == Role::Client).then(new_mask);
    let header = Header { last, compressed, opcode, mask: key, len: payload.len() as u64 };
    let payload = match key {
        Some(key) => {
            let mut masked = Vec::from(payload);
            mask(&mut masked, key, 0);
            masked.into()
        }
        None => payload,
    };
    Frame { head: header.to_bytes(), payload }
}

/// A ping or a pong.
pub(crate) fn control(role: Role, opcode: Opcode, payload: &[u8]) -> Frame {
    frame(role, opcode, true, false, Bytes::copy_from_slice(payload))
}

/// A close, with its code if there is one.
pub(crate) fn close(role: Role, close: &Close) -> Frame {
    let mut payload = Vec::new();
    if close.code != CloseCode::NONE {
        payload.extend_from_slice(&close.code.as_u16().to_be_bytes());
        payload.extend_from_slice(close.reason.as_bytes());
    }
    frame(role, Opcode::Close, true, false, payload.into())
}

/// How many masks are made at a time.
const MASKS: usize = 64;

/// Four bytes that nobody can guess: who could might have a client send what looks like something else to those
/// between (RFC 6455, 10.3).
pub(super) fn new_mask() -> [u8; 4] {
    thread_local! {
        static SPARE: RefCell<(usize, [u8; 4 * MASKS])> = const { RefCell::new((0, [0; 4 * MASKS])) };
    }
    SPARE.with_borrow_mut(|(left, bytes)| {
        if *left == 0 {
            let filled =
                rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
            // Up to 256 bytes come whole or not at all.
            assert_eq!(filled.ok(), Some(bytes.len()), "getrandom does not fail for so few bytes");
            *left = MASKS;
        }
        *left -= 1;
        let key = &bytes[*left * 4..][..4];
        [key[0], key[1], key[2], key[3]]
    })
}

/// A message for many, encoded once: all of them are sent the same memory, compressed or not. Any thread.
///
/// ```
/// use coracle_http::ws::Encoded;
///
/// let news = Encoded::new("the tide is out");
/// let copy = news.clone(); // of a pointer
/// assert_eq!(copy.message().as_text(), Some("the tide is out"));
/// ```
#[derive(Clone)]
pub struct Encoded(Arc<Inner>);

struct Inner {
    message: Message,
    plain: OnceLock<Bytes>,
    /// Compressed without reference to anything else; `None` if that is not shorter.
    deflated: OnceLock<Option<Bytes>>,
}

impl Encoded {
    /// Takes a message.
    pub fn new(message: impl Into<Message>) -> Encoded {
        let (plain, deflated) = (OnceLock::new(), OnceLock::new());
        Encoded(Arc::new(Inner { message: message.into(), plain, deflated }))
    }

    /// What it says.
    pub fn message(&self) -> &Message {
        &self.0.message
    }

    /// The bytes that a server sends, and whether they are compressed.
    pub(crate) fn bytes(&self, agreed: Option<&Agreed>) -> (&Bytes, bool) {
        let long = |agreed: &&Agreed| self.0.message.len() >= agreed.least_bytes;
        if let Some(agreed) = agreed.filter(|agreed| agreed.takes_shared()).filter(long)
            && let Some(deflated) = self.deflated(agreed)
        {
            return (deflated, true);
        }
        (self.0.plain.get_or_init(|| self.join(false, self.0.message.as_bytes())), false)
    }

    fn deflated(&self, agreed: &Agreed) -> Option<&Bytes> {
        let deflate = || {
            let message = self.0.message.as_bytes();
            let deflated = deflate_alone(agreed.level, agreed.window_bits, message);
            (deflated.len() < message.len()).then(|| self.join(true, &deflated))
        };
        self.0.deflated.get_or_init(deflate).as_ref()
    }

    /// A whole frame in one piece.
    fn join(&self, compressed: bool, payload: &[u8]) -> Bytes {
        let opcode = if self.0.message.is_text() { Opcode::Text } else { Opcode::Binary };
        let mut bytes = Vec::with_capacity(payload.len() + HEADER_BYTES_MAX);
        let len = payload.len() as u64;
        let header = Header { last: true, compressed, opcode, mask: None, len };
        bytes.extend_from_slice(&header.to_bytes());
        bytes.extend_from_slice(payload);
        bytes.into()
    }
}

impl<M: Into<Message>> From<M> for Encoded {
    fn from(message: M) -> Encoded {
        Encoded::new(message)
    }
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Encoded").field(&self.0.message).finish()
    }
}
