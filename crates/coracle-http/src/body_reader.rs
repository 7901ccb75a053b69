//! Reading the body of a request, piece by piece.

use crate::Headers;
use bytes::{Buf, Bytes};
use std::fmt;
use std::io::{self, Read};
use std::rc::Rc;

/// Reads a body as it comes. A read waits until there is something, and parks only the coroutine.
///
/// ```
/// use coracle_http::OwnedRequest;
/// use std::io::Read;
///
/// let owned = OwnedRequest::new("PUT", "/").with_body("ahoy");
/// let mut text = String::new();
/// owned.request().body_reader().read_to_string(&mut text).unwrap();
/// assert_eq!(text, "ahoy");
/// ```
pub struct BodyReader<'a>(Kind<'a>);

enum Kind<'a> {
    Buffered(&'a [u8]),
    Streamed(&'a dyn Source),
}

/// Where the pieces come from.
pub(crate) trait Source {
    /// Waits for some bytes, and puts them there; none at the end.
    fn read(&self, into: &mut [u8]) -> io::Result<usize>;

    /// The fields behind it, once all of it has come.
    fn trailers(&self) -> Option<Headers>;

    /// Which request of its connection it is of, now.
    fn number(&self) -> u32 {
        0
    }
}

impl<'a> BodyReader<'a> {
    pub(crate) fn buffered(bytes: &'a [u8]) -> BodyReader<'a> {
        BodyReader(Kind::Buffered(bytes))
    }

    pub(crate) fn streamed(source: &'a dyn Source) -> BodyReader<'a> {
        BodyReader(Kind::Streamed(source))
    }
}

/// A body that is read after the handler has returned.
pub(crate) enum KeptBody {
    Buffered(Bytes),
    /// And which request it is of: what comes later on the same connection is none of its business.
    Streamed(Rc<dyn Source>, u32),
}

impl Read for KeptBody {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            KeptBody::Buffered(bytes) => {
                let count = into.len().min(bytes.len());
                bytes.copy_to_slice(&mut into[..count]);
                Ok(count)
            }
            KeptBody::Streamed(source, number) if source.number() == *number => source.read(into),
            KeptBody::Streamed(..) => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
}

impl Read for BodyReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Buffered(bytes) => bytes.read(into),
            Kind::Streamed(source) => source.read(into),
        }
    }
}

impl fmt::Debug for BodyReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyReader").finish_non_exhaustive()
    }
}
