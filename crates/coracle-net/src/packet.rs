//! Something to be sent, whatever it is made of.

use crate::output::Mark;
use bytes::Bytes;
use coracle_loop::demux::{Handle, Memory};
use std::fmt;

/// What one `write` sends, as a whole: nothing else of the connection's goes between its bytes.
///
/// Made from what a program has: bytes of its own (moved, not copied), shared bytes (counted, not copied), or
/// something borrowed (copied).
///
/// ```
/// use coracle_net::Packet;
///
/// assert_eq!(Packet::from("ahoy").len(), 4);
/// assert_eq!(Packet::from(vec![0; 10]).len(), 10);
/// assert_eq!(Packet::from(bytes::Bytes::from_static(b"shared")).len(), 6);
/// ```
pub struct Packet(pub(crate) Kind);

pub(crate) enum Kind {
    Memory(Memory),
    File {
        file: Handle,
        offset: u64,
        count: usize,
    },
    /// Not to be sent: to be called when everything before it was.
    Mark(Mark),
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packet({} bytes)", self.len())
    }
}

impl Packet {
    /// `count` bytes of an open file from `offset` on, which do not pass through the program.
    pub fn file(file: Handle, offset: u64, count: usize) -> Packet {
        Packet(Kind::File { file, offset, count })
    }

    /// How many bytes are left to send.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Memory(memory) => memory.len(),
            Kind::File { count, .. } => *count,
            Kind::Mark(_) => 0,
        }
    }

    /// Whether nothing is left to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.0, Kind::Memory(_))
    }
}

impl From<Vec<u8>> for Packet {
    fn from(bytes: Vec<u8>) -> Packet {
        Packet(Kind::Memory(bytes.into()))
    }
}

impl From<String> for Packet {
    fn from(text: String) -> Packet {
        text.into_bytes().into()
    }
}

impl From<Bytes> for Packet {
    fn from(bytes: Bytes) -> Packet {
        Packet(Kind::Memory(bytes.into()))
    }
}

impl From<&[u8]> for Packet {
    fn from(bytes: &[u8]) -> Packet {
        bytes.to_vec().into()
    }
}

impl<const N: usize> From<&[u8; N]> for Packet {
    fn from(bytes: &[u8; N]) -> Packet {
        bytes[..].into()
    }
}

impl From<&str> for Packet {
    fn from(text: &str) -> Packet {
        text.as_bytes().into()
    }
}
