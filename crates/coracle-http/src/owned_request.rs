//! A request and the memory it is in.
//!
//! A handler sees a [`Request`], which borrows from this. A connection fills one and gives it to the coroutine
//! that runs the handler, and afterwards it is used again for the next request.

use crate::headers::Text;
use crate::{HeaderError, Headers, Method, Request};
use bytes::Bytes;
use coracle_net::Address;
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

/// A request that owns what it consists of. Servers make them from what they receive; tests make them by hand, and
/// call a handler without a server:
///
/// ```
/// use coracle_http::{IntoResponse, Method::*, OwnedRequest, Request, Response, Status};
///
/// fn app(req: &Request<'_>) -> Response {
///     match (req.method(), req.segments()) {
///         (Get, ["hello", name]) => format!("hello, {name}\n").into_response(),
///         _ => Status::NOT_FOUND.into_response(),
///     }
/// }
///
/// let request = OwnedRequest::new("GET", "/hello/J%C3%BCrgen");
/// let response = app(&request.request());
/// assert_eq!(response.status(), Status::OK);
/// assert_eq!(response.body().as_bytes(), Some("hello, Jürgen\n".as_bytes()));
/// ```
#[derive(Clone)]
pub struct OwnedRequest {
    pub(crate) known: Known,
    pub(crate) method: Method,
    pub(crate) version: Version,
    /// The fields, and in their text the method's name and the target.
    pub(crate) headers: Headers,
    pub(crate) method_name: Text,
    pub(crate) path: Text,
    pub(crate) query: Option<Text>,
    pub(crate) host: Option<Text>,
    pub(crate) body: Bytes,
    pub(crate) trailers: Headers,
    /// Those of a body that the handler reads while it comes.
    pub(crate) late_trailers: OnceCell<Box<Headers>>,
    pub(crate) peer: Address,
    /// What was agreed upon with it, if it came by TLS.
    #[cfg(feature = "tls")]
    pub(crate) session: Option<std::sync::Arc<coracle_tls::Session>>,
    pub(crate) decoded: OnceCell<Decoded>,
}

/// How much is known of a request: not everything, if it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Whole,
    /// The first line, and some of its fields.
    Begin,
    /// Perhaps a method, perhaps a path.
    Little,
}

/// Which HTTP a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2
    Http2,
}

/// The segments of a path, with their escapes decoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Decoded {
    text: String,
    ends: SmallVec<[u32; 8]>,
}

impl OwnedRequest {
    /// A request for `target`, a path and perhaps a query, without header fields and body.
    ///
    /// # Panics
    /// When the target has a byte in it that cannot be in one, or does not begin with a slash. Write `%20` for a
    /// space.
    pub fn new(method: &str, target: &str) -> OwnedRequest {
        assert!(target.starts_with('/'), "a path begins with a slash: {target:?}");
        assert!(target.bytes().all(|byte| byte.is_ascii_graphic()), "escape it by %: {target:?}");
        let mut request = OwnedRequest::blank();
        request.method = Method::from_name(method);
        let text = &mut request.headers.text;
        text.extend_from_slice(method.as_bytes());
        text.extend_from_slice(target.as_bytes());
        request.method_name = Text::between(0, method.len());
        request.set_target(method.len(), method.len() + target.len());
        request
    }

    /// Nothing yet, to be filled.
    pub(crate) fn blank() -> OwnedRequest {
        OwnedRequest {
            known: Known::Whole,
            method: Method::Get,
            version: Version::Http11,
            headers: Headers::new(),
            method_name: Text::Static("GET"),
            path: Text::Static("/"),
            query: None,
            host: None,
            body: Bytes::new(),
            trailers: Headers::new(),
            late_trailers: OnceCell::new(),
            peer: Address::Ip(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
            #[cfg(feature = "tls")]
            session: None,
            decoded: OnceCell::new(),
        }
    }

    /// Forgets its first line, as that of a request which has none.
    #[cold]
    pub(crate) fn be_unknown(&mut self) {
        self.known = Known::Little;
        self.method = Method::Other;
        self.method_name = Text::Static("-");
        self.path = Text::Static("-");
        (self.query, self.host) = (None, None);
        self.version = Version::Http11;
    }

    /// Takes the target, path and query, to be at this place of the headers' text.
    pub(crate) fn set_target(&mut self, start: usize, end: usize) {
        let target = &self.headers.text[start..end];
        match target.iter().position(|&byte| byte == b'?') {
            Some(at) => {
                self.path = Text::between(start, start + at);
                self.query = Some(Text::between(start + at + 1, end));
            }
            None => {
                self.path = Text::between(start, end);
                self.query = None;
            }
        }
    }

    /// With one more header field.
    ///
    /// # Errors
    /// As [`Headers::append`].
    pub fn with_header(mut self, name: &str, value: &str) -> Result<OwnedRequest, HeaderError> {
        self.headers.append(name, value)?;
        Ok(self)
    }

    /// With a body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> OwnedRequest {
        self.body = body.into();
        self
    }

    /// As if it had come from there.
    #[must_use]
    pub fn with_peer(mut self, peer: Address) -> OwnedRequest {
        self.peer = peer;
        self
    }

    /// The request, as a handler sees it.
    pub fn request(&self) -> Request<'_> {
        Request::new(self)
    }

    pub(crate) fn text(&self, text: Text) -> &str {
        // Targets, methods and hosts are ASCII: the parser lets nothing else through.
        std::str::from_utf8(self.headers.resolve(text)).unwrap_or_default()
    }

    pub(crate) fn decoded(&self) -> &Decoded {
        self.decoded.get_or_init(|| Decoded::new(self.text(self.path)))
    }
}

impl fmt::Debug for OwnedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request().fmt(f)
    }
}

impl Text {
    pub(crate) fn between(start: usize, end: usize) -> Text {
        let narrow = |number| u32::try_from(number).expect("a head is smaller than 4 GiB");
        Text::At { start: narrow(start), len: narrow(end - start) }
    }
}

impl Decoded {
    fn new(path: &str) -> Decoded {
        let mut decoded = Decoded::default();
        let Some(path) = path.strip_prefix('/').filter(|path| !path.is_empty()) else {
            return decoded;
        };
        for segment in path.split('/') {
            let segment = percent_encoding::percent_decode_str(segment).decode_utf8_lossy();
            decoded.text.push_str(&segment);
            decoded.ends.push(decoded.text.len() as u32);
        }
        decoded
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.text[start as usize..end as usize])
    }
}
