//! Fields behind the body of a response: what is known only when that is written.

use crate::{HeaderError, Headers};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// The fields behind the body of a response: a checksum, or the status of a gRPC call. Whoever writes the body has
/// a clone of them, and says what is in them when it knows.
///
/// ```
/// use coracle_http::{Body, Request, Response, Status, Trailers};
/// use std::io::Write;
///
/// fn app(_: &Request<'_>) -> Response {
///     let trailers = Trailers::new();
///     let later = trailers.clone();
///     let body = Body::stream(move |out| {
///         let count = out.write(b"ahoy\n")?;
///         later.insert("x-count", count.to_string()).map_err(std::io::Error::other)
///     });
///     Response::new(Status::OK).with_body(body).with_trailers(trailers)
/// }
/// # let _ = app;
/// ```
///
/// Over HTTP/2 they are always sent. Over HTTP/1.1 they are sent behind a body in chunks, one whose length is not
/// known, if the client says that it wants them (`TE: trailers`); otherwise they are left out.
#[derive(Clone, Default)]
pub struct Trailers(Rc<RefCell<Headers>>);

impl Trailers {
    /// No fields yet.
    pub fn new() -> Trailers {
        Trailers::default()
    }

    /// Sets a field.
    ///
    /// # Errors
    /// As [`Headers::insert`].
    pub fn insert(&self, name: &str, value: impl AsRef<[u8]>) -> Result<(), HeaderError> {
        self.0.borrow_mut().insert(name, value)
    }

    /// Puts these in the place of all of them.
    pub(crate) fn set(&self, fields: Headers) {
        *self.0.borrow_mut() = fields;
    }

    /// What is in them at this moment.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&Headers) -> T) -> T {
        f(&self.0.borrow())
    }
}

impl fmt::Debug for Trailers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with(|headers| f.debug_tuple("Trailers").field(headers).finish())
    }
}
