//! How a WebSocket ends: a number, and perhaps a few words.

use std::fmt;

/// Why a WebSocket is closed, as a number: RFC 6455, 7.4, and IANA's list.
///
/// ```
/// use coracle_http::ws::CloseCode;
///
/// assert_eq!(CloseCode::TOO_BIG.as_u16(), 1009);
/// assert!(CloseCode::from(4000).can_be_sent()); // 4000 to 4999 are an application's own
/// assert!(!CloseCode::LOST.can_be_sent()); // it is what one says of a peer that said nothing
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// 1000: everything was said.
    pub const NORMAL: CloseCode = CloseCode(1000);
    /// 1001: a server stops, or somebody leaves a page.
    pub const GOING_AWAY: CloseCode = CloseCode(1001);
    /// 1002: the peer does not keep to the protocol.
    pub const PROTOCOL_ERROR: CloseCode = CloseCode(1002);
    /// 1003: a kind of message that is not understood.
    pub const UNSUPPORTED: CloseCode = CloseCode(1003);
    /// 1005: closed without a number. Never sent.
    pub const NONE: CloseCode = CloseCode(1005);
    /// 1006: gone without being closed. Never sent.
    pub const LOST: CloseCode = CloseCode(1006);
    /// 1007: a message that is not what it says, as text that is not UTF-8.
    pub const INVALID_DATA: CloseCode = CloseCode(1007);
    /// 1008: something is against the rules here.
    pub const POLICY: CloseCode = CloseCode(1008);
    /// 1009: a message is too big.
    pub const TOO_BIG: CloseCode = CloseCode(1009);
    /// 1010: a client misses an extension.
    pub const EXTENSION_MISSING: CloseCode = CloseCode(1010);
    /// 1011: something went wrong inside.
    pub const INTERNAL_ERROR: CloseCode = CloseCode(1011);
    /// 1012: the service starts anew.
    pub const RESTART: CloseCode = CloseCode(1012);
    /// 1013: try again later.
    pub const TRY_AGAIN: CloseCode = CloseCode(1013);

    /// The number.
    pub const fn as_u16(self) -> u16 {
        self.0
    }

    /// Whether it may be in a message. Those that may not are what an end is called that nobody has said.
    pub const fn can_be_sent(self) -> bool {
        matches!(self.0, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

impl From<u16> for CloseCode {
    fn from(code: u16) -> CloseCode {
        CloseCode(code)
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a peer says when it closes: a code, and a reason for people, which may be empty.
///
/// ```
/// use coracle_http::ws::{Close, CloseCode};
///
/// let close = Close::new(CloseCode::from(4001), "the game is over");
/// assert_eq!(close.to_string(), "4001: the game is over");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    /// The number. [`CloseCode::NONE`] if there was none.
    pub code: CloseCode,
    /// The words: at most 123 bytes of them.
    pub reason: String,
}

/// So long may a reason be: a control frame has 125 bytes, and two are the code.
pub(crate) const LIMIT_REASON_BYTES: usize = 123;

impl Close {
    /// A code and a reason. What is too long of it is cut off.
    pub fn new(code: CloseCode, reason: impl Into<String>) -> Close {
        let mut reason = reason.into();
        if reason.len() > LIMIT_REASON_BYTES {
            let mut end = LIMIT_REASON_BYTES;
            while !reason.is_char_boundary(end) {
                end -= 1;
            }
            reason.truncate(end);
        }
        Close { code, reason }
    }
}

impl From<CloseCode> for Close {
    fn from(code: CloseCode) -> Close {
        Close { code, reason: String::new() }
    }
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason.as_str() {
            "" => self.code.fmt(f),
            reason => write!(f, "{}: {}", self.code, reason.escape_debug()),
        }
    }
}

/// What a peer does that it must not, and how it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) code: CloseCode,
    pub(crate) why: &'static str,
}

impl Violation {
    pub(crate) const fn protocol(why: &'static str) -> Violation {
        Violation { code: CloseCode::PROTOCOL_ERROR, why }
    }

    pub(crate) const fn data(why: &'static str) -> Violation {
        Violation { code: CloseCode::INVALID_DATA, why }
    }

    pub(crate) const fn size(why: &'static str) -> Violation {
        Violation { code: CloseCode::TOO_BIG, why }
    }

    pub(crate) fn close(self) -> Close {
        Close::new(self.code, self.why)
    }
}
