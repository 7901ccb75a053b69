//! Reading the body of a request, piece by piece.

use crate::Headers;
use bytes::{Buf, Bytes};
use std::fmt;
use std::io::{self, Read};
use std::rc::Rc;
use std::task::{Context, Poll};

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
    Kept(Bytes),
    /// The body of a request that may be over: that of the next is not its business.
    Streamed {
        source: Rc<dyn Source>,
        number: u32,
    },
}

/// Where the pieces come from.
pub(crate) trait Source {
    /// Waits for some bytes, and puts them there; none at the end.
    fn read(&self, into: &mut [u8]) -> io::Result<usize>;

    /// Bytes that have come; none at the end.
    #[cfg_attr(not(feature = "tower"), allow(dead_code))]
    fn poll_piece(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>>;

    /// The fields behind it, once all of it has come.
    fn trailers(&self) -> Option<Headers>;

    /// Which request of its connection it is of, now; where each has a source of its own, always the same.
    fn number(&self) -> u32 {
        0
    }
}

impl<'a> BodyReader<'a> {
    pub(crate) fn buffered(bytes: &'a [u8]) -> BodyReader<'a> {
        BodyReader(Kind::Buffered(bytes))
    }

    pub(crate) fn kept(bytes: Bytes) -> BodyReader<'a> {
        BodyReader(Kind::Kept(bytes))
    }

    pub(crate) fn streamed(source: &Rc<dyn Source>) -> BodyReader<'a> {
        BodyReader(Kind::Streamed { source: Rc::clone(source), number: source.number() })
    }

    /// Tells the fields behind the body, for who asks when all of it was read.
    pub(crate) fn late_trailers(&self) -> impl Fn() -> Headers + use<> {
        let streamed = match &self.0 {
            Kind::Streamed { source, number } => Some((Rc::clone(source), *number)),
            Kind::Buffered(_) | Kind::Kept(_) => None,
        };
        move || {
            let of_this = streamed.as_ref().filter(|(source, number)| source.number() == *number);
            of_this.and_then(|(source, _)| source.trailers()).unwrap_or_default()
        }
    }
}

impl Read for BodyReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Buffered(bytes) => bytes.read(into),
            Kind::Kept(bytes) => bytes.reader().read(into),
            Kind::Streamed { source, number } if source.number() == *number => source.read(into),
            Kind::Streamed { .. } => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
}

impl fmt::Debug for BodyReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyReader").finish_non_exhaustive()
    }
}
