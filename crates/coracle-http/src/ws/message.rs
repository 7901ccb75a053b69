//! What is said over a WebSocket.

use bytes::Bytes;
use std::fmt;

/// A message, whole.
///
/// ```
/// use coracle_http::ws::Message;
///
/// let message = Message::from("ahoy");
/// assert_eq!(message.as_text(), Some("ahoy"));
/// assert_eq!(message.as_bytes(), b"ahoy");
/// assert_eq!(Message::from(vec![1, 2, 3]).as_text(), None);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum Message {
    /// Text.
    Text(String),
    /// Bytes.
    Binary(Bytes),
}

impl Message {
    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Message::Text(text) => Some(text),
            Message::Binary(_) => None,
        }
    }

    /// The bytes, whatever it is.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Message::Text(text) => text.as_bytes(),
            Message::Binary(bytes) => bytes,
        }
    }

    /// Whether it is text.
    pub fn is_text(&self) -> bool {
        matches!(self, Message::Text(_))
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Message {
        Message::Text(text.to_owned())
    }
}

impl From<String> for Message {
    fn from(text: String) -> Message {
        Message::Text(text)
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Message {
        Message::Binary(bytes.into())
    }
}

impl From<&[u8]> for Message {
    fn from(bytes: &[u8]) -> Message {
        Message::Binary(Bytes::copy_from_slice(bytes))
    }
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Message {
        Message::Binary(bytes)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Text(text) => write!(f, "Text({text:?})"),
            Message::Binary(bytes) => write!(f, "Binary({} bytes)", bytes.len()),
        }
    }
}
