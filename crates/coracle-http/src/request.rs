//! What a handler is given.

use crate::body_reader::Source;
use crate::matched::Matched;
use crate::owned_request::{Known, Version};
use crate::{App, BodyReader, Headers, Method, OwnedRequest, Response};
use coracle_net::Address;
use smallvec::SmallVec;
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;

/// A request, as a handler sees it. It borrows from an [`OwnedRequest`], which lives as long as the handler runs.
///
/// ```
/// use coracle_http::{Method, OwnedRequest};
///
/// let owned = OwnedRequest::new("POST", "/posts/7%2F8/edit?draft=1")
///     .with_header("Accept", "text/html")
///     .unwrap()
///     .with_body("ahoy");
/// let req = owned.request();
/// assert_eq!(req.method(), Method::Post);
/// assert_eq!(req.path(), "/posts/7%2F8/edit"); // as it came
/// assert_eq!(req.segments(), ["posts", "7/8", "edit"]); // decoded, one by one
/// assert_eq!(req.query(), Some("draft=1"));
/// assert_eq!(req.header("accept"), Some("text/html"));
/// assert_eq!(req.body(), b"ahoy");
/// ```
pub struct Request<'a> {
    owned: &'a OwnedRequest,
    segments: OnceCell<SmallVec<[&'a str; 8]>>,
    /// Mostly none, so that there is nothing to be dropped.
    locals: RefCell<Option<Vec<Rc<dyn Any>>>>,
    pub(crate) matched: OnceCell<Matched<'a>>,
    /// How many segments of the path are the business of whoever has mounted the app.
    above: Cell<usize>,
    pub(crate) stream: Option<Rc<dyn Source>>,
    /// The app that all requests come to, if there is a server.
    pub(crate) whole: Option<&'a dyn App>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(owned: &'a OwnedRequest) -> Request<'a> {
        Request {
            owned,
            segments: OnceCell::new(),
            locals: RefCell::default(),
            matched: OnceCell::new(),
            above: Cell::new(0),
            stream: None,
            whole: None,
        }
    }

    /// What is asked for.
    pub fn method(&self) -> Method {
        self.owned.method
    }

    /// The method as it came: the only way to tell one [`Other`](Method::Other) from another.
    pub fn method_name(&self) -> &'a str {
        self.owned.text(self.owned.method_name)
    }

    /// Which HTTP the client speaks.
    pub fn version(&self) -> Version {
        self.owned.version
    }

    /// The version, if that is known of a request that is refused.
    pub(crate) fn known_version(&self) -> Option<Version> {
        (self.owned.known != Known::Little).then_some(self.owned.version)
    }

    /// Whether its head was understood, all of it.
    pub(crate) fn is_whole(&self) -> bool {
        self.owned.known == Known::Whole
    }

    /// The path, as it came: with its escapes, and without the query. `*` for `OPTIONS *`. In an app that is
    /// [mounted](crate::Router::mount) somewhere, the path below that.
    pub fn path(&self) -> &'a str {
        let mut path = self.full_path();
        for _ in 0..self.above.get() {
            let rest = path.get(1..).unwrap_or("");
            path = memchr::memchr(b'/', rest.as_bytes()).map_or("", |at| &rest[at..]);
        }
        if path.is_empty() { "/" } else { path }
    }

    /// The whole path, wherever the app is mounted.
    pub fn full_path(&self) -> &'a str {
        self.owned.text(self.owned.path)
    }

    /// The path in its parts, decoded one by one: `/a/b%2Fc` is `["a", "b/c"]`, `/` is `[]`, and `/a/` is
    /// `["a", ""]`. What is not UTF-8 becomes U+FFFD.
    pub fn segments(&self) -> &[&'a str] {
        let segments = self.segments.get_or_init(|| self.owned.decoded().segments().collect());
        match segments.get(self.above.get()..) {
            // What is below `/files` in `/files/` is `/`.
            Some([""]) if self.above.get() > 0 => &[],
            below => below.unwrap_or_default(),
        }
    }

    /// Calls `inner` with the path that is below the next `segments` of it.
    pub(crate) fn below<R>(&self, segments: usize, inner: impl FnOnce() -> R) -> R {
        struct Restore<'c>(&'c Cell<usize>, usize);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.set(self.1);
            }
        }
        let above = self.above.get();
        let _restore = Restore(&self.above, above);
        self.above.set(above + segments);
        inner()
    }

    /// What is behind the question mark, as it came.
    pub fn query(&self) -> Option<&'a str> {
        self.owned.query.map(|query| self.owned.text(query))
    }

    /// The host, and perhaps a port, that was asked: of the target if it names one, else of the header `Host`.
    pub fn host(&self) -> Option<&'a str> {
        self.owned.host.map(|host| self.owned.text(host)).or_else(|| self.header("host"))
    }

    /// The value of the first header field of this name.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.owned.headers.get(name)
    }

    /// All header fields.
    pub fn headers(&self) -> &'a Headers {
        &self.owned.headers
    }

    /// The fields behind a chunked body, kept apart from those before it. None until the body has been read.
    pub fn trailers(&self) -> &'a Headers {
        if let Some(trailers) = self.stream.as_ref().and_then(|stream| stream.trailers()) {
            return self.owned.late_trailers.get_or_init(|| Box::new(trailers));
        }
        &self.owned.trailers
    }

    /// The whole body. Empty in a route that [streams](crate::Plan::streamed), whose body is read by
    /// [`body_reader`](Request::body_reader).
    pub fn body(&self) -> &'a [u8] {
        &self.owned.body
    }

    /// The same, for who keeps it.
    #[cfg(feature = "tower")]
    pub(crate) fn body_bytes(&self) -> bytes::Bytes {
        self.owned.body.clone()
    }

    /// The body, piece by piece, as it comes; a read waits for it.
    pub fn body_reader(&self) -> BodyReader<'_> {
        match &self.stream {
            Some(source) => BodyReader::streamed(source),
            None => BodyReader::buffered(&self.owned.body),
        }
    }

    /// What the whole app answers in the place of this request: a GET for `target`, or a HEAD, without a body.
    /// `None` where there is no server, or where `target` is none.
    pub(crate) fn ask_for(&self, target: &str) -> Option<Response> {
        let whole = self.whole?;
        if !target.starts_with('/') || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let method = if self.method() == Method::Head { "HEAD" } else { "GET" };
        let mut owned = OwnedRequest::new(method, target);
        for (name, value) in self.headers().iter() {
            let of_body = ["expect", "range", "transfer-encoding"]
                .contains(&&*name.to_ascii_lowercase())
                || name.len() > 8 && name[..8].eq_ignore_ascii_case("content-")
                || name.len() > 3 && name[..3].eq_ignore_ascii_case("if-");
            if !of_body {
                owned.headers.append(name, value).ok()?;
            }
        }
        if let Some(host) = self.host() {
            owned.headers.insert("host", host).ok()?; // that of the target, if it had one
        }
        owned.version = self.version();
        owned.peer = self.peer().clone();
        #[cfg(feature = "tls")]
        owned.session.clone_from(&self.owned.session);
        let mut request = owned.request();
        request.whole = Some(whole);
        request.locals = RefCell::new(self.locals.borrow().clone());
        Some(whole.call(&request))
    }

    /// The same, to be kept: for an answer that is written while the body is read, by
    /// [`Body::stream`](crate::Body::stream), or for another coroutine.
    ///
    /// ```
    /// use coracle_http::{Body, Request, streaming};
    ///
    /// let echo = streaming(|req: &Request<'_>| {
    ///     let mut body = req.owned_body_reader();
    ///     Body::stream(move |out| std::io::copy(&mut body, out).map(drop))
    /// });
    /// # let _ = echo;
    /// ```
    ///
    /// The connection is closed behind an answer that begins before its request has come.
    pub fn owned_body_reader(&self) -> BodyReader<'static> {
        match &self.stream {
            Some(source) => BodyReader::streamed(source),
            None => BodyReader::kept(self.owned.body.clone()),
        }
    }

    /// Who asks.
    pub fn peer(&self) -> &'a Address {
        &self.owned.peer
    }

    /// What was agreed upon with the client by TLS: its certificate, the name it has asked for, the version.
    /// `None`: it came without.
    ///
    /// ```no_run
    /// # use coracle_http::Request;
    /// fn app(req: &Request<'_>) -> String {
    ///     match req.tls().and_then(|tls| tls.peer_subject()) {
    ///         Some(subject) => format!("ahoy, {subject}\n"),
    ///         None => "who is there?\n".into(),
    ///     }
    /// }
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(&self) -> Option<&'a coracle_tls::Session> {
        self.owned.session.as_deref()
    }

    /// Whether it came by TLS, to this server.
    pub fn is_secure(&self) -> bool {
        #[cfg(feature = "tls")]
        {
            self.owned.session.is_some()
        }
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Leaves something with the request, for whoever looks at it later: what a middleware found out, for the
    /// handler. One of each type; the last one counts.
    ///
    /// ```
    /// # use coracle_http::OwnedRequest;
    /// struct User(String);
    ///
    /// # let owned = OwnedRequest::new("GET", "/");
    /// # let req = owned.request();
    /// req.set_local(User("ahab".into()));
    /// assert_eq!(req.local::<User>().unwrap().0, "ahab");
    /// assert!(req.local::<u32>().is_none());
    /// ```
    pub fn set_local<T: 'static>(&self, value: T) {
        let mut locals = self.locals.borrow_mut();
        locals.get_or_insert_default().push(Rc::new(value));
    }

    /// What was [left](Request::set_local) with the request.
    pub fn local<T: 'static>(&self) -> Option<Rc<T>> {
        let locals = self.locals.borrow();
        locals.iter().flatten().rev().find_map(|local| Rc::clone(local).downcast().ok())
    }

    /// A copy that can be kept.
    pub fn to_owned(&self) -> OwnedRequest {
        self.owned.clone()
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method_name())
            .field("path", &self.path())
            .field("query", &self.query())
            .field("headers", self.headers())
            .field("body_bytes", &self.body().len())
            .finish_non_exhaustive()
    }
}
