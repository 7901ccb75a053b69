//! What a handler answers.

use crate::body::Kind;
use crate::headers::{Field, Text};
use crate::per_address::{Seat, Seated};
use crate::{Body, Headers, Status, Trailers};
use coracle_net::{Conn, Protocol};
use std::fmt;

/// An answer: a status, header fields, and a body.
///
/// ```
/// use coracle_http::{Response, Status};
///
/// let response = Response::new(Status::CREATED)
///     .with_header("Location", "/posts/7")
///     .with_body("it is there\n");
/// assert_eq!(response.headers().get("location"), Some("/posts/7"));
/// ```
///
/// A server adds what the protocol needs: `Content-Length` or `Transfer-Encoding`, `Connection`, `Date`.
pub struct Response {
    status: Status,
    headers: Headers,
    body: Body,
    trailers: Option<Trailers>,
}

impl Response {
    /// An answer without header fields and body.
    pub fn new(status: Status) -> Response {
        Response { status, headers: Headers::new(), body: Body::empty(), trailers: None }
    }

    /// A 200 with a body of this type.
    #[inline]
    pub(crate) fn typed(content_type: &'static str, body: Body) -> Response {
        let mut headers = Headers::new();
        headers.push_static("content-type", content_type);
        Response { status: Status::OK, headers, body, trailers: None }
    }

    /// Hands the connection to another protocol, which gets what the client sends from here on: the answer to a
    /// request that asked for it (`Connection: upgrade`). One that did not is answered with 426.
    ///
    /// ```
    /// use coracle_http::{IntoResponse, Request, Response, Status};
    /// use coracle_net::{Buffer, Conn};
    ///
    /// fn app(req: &Request<'_>) -> Response {
    ///     if !req.headers().has_token("upgrade", "echo") {
    ///         return Status::UPGRADE_REQUIRED.into_response();
    ///     }
    ///     Response::upgrade("echo", |conn: &mut Conn<'_>, input: &mut Buffer| {
    ///         conn.write(input.take_all());
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn upgrade(name: &str, protocol: impl Protocol) -> Response {
        let switch = move |conn: &mut Conn<'_>, seat: Option<Seat>| match seat {
            Some(seat) => conn.switch(Seated::new(protocol, seat)),
            None => conn.switch(protocol),
        };
        Response::new(Status::SWITCHING_PROTOCOLS)
            .with_body(Body(Kind::Upgrade(Box::new(switch))))
            .with_header("upgrade", name)
    }

    /// Its content type, if that is of the program's source and there is nothing else to be said of a 200.
    #[inline]
    pub(crate) fn only_type(&self) -> Option<&'static str> {
        match (self.status, self.headers.fields.as_slice()) {
            (
                Status::OK,
                [Field { name: Text::Static("content-type"), value: Text::Static(value) }],
            ) => Some(value),
            _ => None,
        }
    }

    /// What came of it.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Says something else came of it.
    pub fn set_status(&mut self, status: Status) {
        self.status = status;
    }

    /// The header fields.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The header fields, to be changed.
    pub fn headers_mut(&mut self) -> &mut Headers {
        &mut self.headers
    }

    /// The body.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Takes the body out, and leaves an empty one.
    pub fn take_body(&mut self) -> Body {
        std::mem::take(&mut self.body)
    }

    /// Puts another body in its place.
    pub fn set_body(&mut self, body: impl Into<Body>) {
        self.body = body.into();
    }

    /// With this header field, in the place of all of that name.
    ///
    /// A field that cannot be sent, because of a line end in it for example, is a mistake of the program: nothing
    /// of the response is sent, but a 500 in its place, and the log says why. Who puts in what others say checks
    /// by [`Headers::insert`], which returns the error.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl AsRef<[u8]>) -> Response {
        match self.headers.insert(name, value) {
            Ok(()) => self,
            Err(error) => {
                tracing::error!("a response is replaced by a 500: {error}");
                Response::new(Status::INTERNAL_SERVER_ERROR)
            }
        }
    }

    /// With this body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Body>) -> Response {
        self.body = body.into();
        self
    }

    /// With these fields behind its body.
    #[must_use]
    pub fn with_trailers(mut self, trailers: Trailers) -> Response {
        self.trailers = Some(trailers);
        self
    }

    /// The fields behind its body, if it has any.
    pub fn trailers(&self) -> Option<&Trailers> {
        self.trailers.as_ref()
    }

    /// With this status.
    #[must_use]
    pub fn with_status(mut self, status: Status) -> Response {
        self.status = status;
        self
    }

    pub(crate) fn into_parts(self) -> (Status, Headers, Body) {
        (self.status, self.headers, self.body)
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .field("body", &self.body)
            .finish()
    }
}
