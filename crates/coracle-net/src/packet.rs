//! Something to be sent, whatever it is made of.

use crate::output::Mark;
use bytes::Bytes;
use coracle_loop::demux::{Handle, Memory};
use std::fmt;
use std::os::fd::OwnedFd;

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
    /// Bytes, and descriptors that go with the first of them.
    Descriptors {
        memory: Memory,
        descriptors: Vec<OwnedFd>,
    },
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

    /// Descriptors for a peer on a Unix socket, and bytes with which they come: at least one, and no more than 253
    /// descriptors. Ours are closed when they are sent.
    ///
    /// ```
    /// # use coracle_net::{Buffer, Conn, Packet};
    /// fn on_data(conn: &mut Conn<'_>, _: &mut Buffer) -> std::io::Result<()> {
    ///     let file = std::fs::File::open("/etc/hostname")?;
    ///     conn.write(Packet::descriptors("here is the file\n", vec![file.into()]));
    ///     Ok(())
    /// }
    /// # let _ = on_data;
    /// ```
    ///
    /// On other sockets they end the connection with an error, and on one with [layers](crate::Layer), too.
    ///
    /// # Panics
    /// When there are no bytes: then nothing would be sent.
    pub fn descriptors(bytes: impl Into<Bytes>, descriptors: Vec<OwnedFd>) -> Packet {
        let bytes: Bytes = bytes.into();
        assert!(!bytes.is_empty(), "descriptors travel with bytes, at least one");
        Packet(Kind::Descriptors { memory: bytes.into(), descriptors })
    }

    /// How many bytes are left to send.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Memory(memory) | Kind::Descriptors { memory, .. } => memory.len(),
            Kind::File { count, .. } => *count,
            Kind::Mark(_) => 0,
        }
    }

    /// Whether nothing is left to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn has_descriptors(&self) -> bool {
        matches!(self.0, Kind::Descriptors { .. })
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
