//! The body of a response, whatever it is made of.

use crate::Headers;
use crate::per_address::Seat;
use crate::shared_file::SharedFile;
use crate::stopping::Stopping;
use bytes::Bytes;
use coracle_net::Conn;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// How much of a file is read at once, where it has to pass through the program.
const PIECE_BYTES: u64 = 64 << 10;

/// The body of a response: bytes that are there, a file, or something that is written while it is sent.
///
/// ```
/// use coracle_http::Body;
///
/// assert_eq!(Body::from("ahoy").len(), Some(4));
/// assert_eq!(Body::from(vec![0; 10]).len(), Some(10));
///
/// // Written while it is sent: whoever writes waits while the client does not read.
/// let counted = Body::stream(|out| {
///     use std::io::Write;
///     for i in 0..1_000_000 {
///         writeln!(out, "{i}")?;
///     }
///     Ok(())
/// });
/// assert_eq!(counted.len(), None);
/// ```
pub struct Body(pub(crate) Kind);

/// Writes a body.
pub(crate) type Writer = Box<dyn FnOnce(&mut BodyWriter<'_>) -> io::Result<()>>;

/// Puts another protocol in place, in the seat that its connection has among those of its address.
pub(crate) type Switch = Box<dyn FnOnce(&mut Conn<'_>, Option<Seat>)>;

pub(crate) enum Kind {
    Static(&'static [u8]),
    Bytes(Bytes),
    Vec(Vec<u8>),
    File {
        file: Arc<SharedFile>,
        offset: u64,
        len: u64,
    },
    Stream {
        writer: Writer,
        len: Option<u64>,
    },
    /// No body: another protocol takes over.
    Upgrade(Switch),
    /// No body: the client has it already.
    Kept(#[cfg_attr(not(feature = "compression"), allow(dead_code))] Box<Kept>),
}

/// Of a body that is not sent again, what others ask of one: what it would be depends on that.
#[cfg_attr(not(feature = "compression"), allow(dead_code))] // without it nobody asks
pub(crate) struct Kept {
    /// Nothing if it has a coding already.
    pub(crate) content_type: Option<Box<str>>,
    pub(crate) is_stream: bool,
    pub(crate) len: Option<u64>,
}

impl Kept {
    /// A body with these header fields.
    pub(crate) fn new(headers: &Headers, is_stream: bool, len: Option<u64>) -> Kept {
        let is_coded = headers.contains("content-encoding");
        let content_type = headers.get("content-type").filter(|_| !is_coded).map(Into::into);
        Kept { content_type, is_stream, len }
    }
}

impl Body {
    /// No body.
    pub fn empty() -> Body {
        Body(Kind::Static(b""))
    }

    /// What `writer` writes, while it is sent. It runs in the coroutine of the request, after the handler has
    /// returned. An error it returns closes the connection: the client sees that the body is not whole.
    pub fn stream(writer: impl FnOnce(&mut BodyWriter<'_>) -> io::Result<()> + 'static) -> Body {
        Body(Kind::Stream { writer: Box::new(writer), len: None })
    }

    /// As [`stream`](Body::stream), when it is known how much it will be. Too little or too much is an error.
    pub fn stream_exact(
        len: u64,
        writer: impl FnOnce(&mut BodyWriter<'_>) -> io::Result<()> + 'static,
    ) -> Body {
        Body(Kind::Stream { writer: Box::new(writer), len: Some(len) })
    }

    /// `len` bytes of an open file, from `offset` on, which do not pass through the program. A file that turns out
    /// to be shorter closes the connection.
    pub fn file(file: File, offset: u64, len: u64) -> Body {
        Body::shared_file(SharedFile::new(file), offset, len)
    }

    pub(crate) fn shared_file(file: Arc<SharedFile>, offset: u64, len: u64) -> Body {
        Body(Kind::File { file, offset, len })
    }

    /// A file that passes through the program; anything else as it is.
    pub(crate) fn through_the_program(self) -> Body {
        match self.0 {
            Kind::File { file, offset, len } => {
                Body::stream_exact(len, move |out| copy(&file, offset..offset + len, out))
            }
            other => Body(other),
        }
    }

    /// How many bytes it has, if that is known.
    pub fn len(&self) -> Option<u64> {
        match &self.0 {
            Kind::Static(bytes) => Some(bytes.len() as u64),
            Kind::Bytes(bytes) => Some(bytes.len() as u64),
            Kind::Vec(bytes) => Some(bytes.len() as u64),
            Kind::File { len, .. } => Some(*len),
            Kind::Stream { len, .. } => *len,
            Kind::Upgrade(_) | Kind::Kept(_) => Some(0),
        }
    }

    /// Whether it is known to be empty.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Its bytes, if they are in memory.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Kind::Static(bytes) => Some(bytes),
            Kind::Bytes(bytes) => Some(bytes),
            Kind::Vec(bytes) => Some(bytes),
            Kind::Kept(_) => Some(b""),
            Kind::File { .. } | Kind::Stream { .. } | Kind::Upgrade(_) => None,
        }
    }
}

/// Writes a stretch of a file, piece by piece; the disk is waited for elsewhere.
pub(crate) fn copy(
    file: &Arc<SharedFile>,
    part: Range<u64>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut at = part.start;
    while at < part.end {
        let count = (part.end - at).min(PIECE_BYTES) as usize;
        let file = Arc::clone(file);
        let piece = coracle_coro::offload(move || {
            let mut piece = vec![0; count];
            file.file().read_exact_at(&mut piece, at).map(|()| piece)
        })??;
        out.write_all(&piece)?;
        at += count as u64;
    }
    Ok(())
}

impl Default for Body {
    fn default() -> Body {
        Body::empty()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Body {
        Body(Kind::Static(text.as_bytes()))
    }
}

impl From<&'static [u8]> for Body {
    fn from(bytes: &'static [u8]) -> Body {
        Body(Kind::Static(bytes))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Body(Kind::Vec(text.into_bytes()))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Body(Kind::Vec(bytes))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body(Kind::Bytes(bytes))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0, self.len()) {
            (Kind::File { len, .. }, _) => write!(f, "Body({len} bytes of a file)"),
            (_, Some(len)) => write!(f, "Body({len} bytes)"),
            (_, None) => write!(f, "Body(stream)"),
        }
    }
}

/// Where a body is written while it is sent. A write waits while too much waits for the client.
pub struct BodyWriter<'a> {
    out: &'a mut dyn Write,
    /// Of the server, if it is one that sends it.
    stopping: Option<&'a Stopping>,
}

impl<'a> BodyWriter<'a> {
    /// Writes to somewhere else: for tests of a body, and for whoever changes one on its way.
    pub fn new(out: &'a mut dyn Write) -> BodyWriter<'a> {
        BodyWriter { out, stopping: None }
    }

    /// Writes to a client of a server, or to what leads there.
    pub(crate) fn of(stopping: Option<&'a Stopping>, out: &'a mut dyn Write) -> BodyWriter<'a> {
        BodyWriter { out, stopping }
    }

    /// Whether its server is about to stop.
    pub(crate) fn stopping(&self) -> Option<&'a Stopping> {
        self.stopping
    }
}

impl Write for BodyWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    /// Sends what was written so far.
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl fmt::Debug for BodyWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyWriter").finish_non_exhaustive()
    }
}
