//! What a request asks for.

use std::fmt;

/// The method of a request. Methods that are not listed here are [`Other`](Method::Other);
/// [`Request::method_name`](crate::Request::method_name) has their name.
///
/// ```
/// use coracle_http::Method::{self, *};
///
/// assert_eq!(Method::from_name("GET"), Get);
/// assert_eq!(Method::from_name("get"), Other); // names of methods are case-sensitive
/// assert_eq!(Post.name(), "POST");
/// assert!(Put.is_idempotent() && !Put.is_safe());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Give me a representation of it.
    Get,
    /// What would `Get` say, without the body?
    Head,
    /// Do something with this.
    Post,
    /// Let it be this.
    Put,
    /// Change it by this.
    Patch,
    /// Let it be gone.
    Delete,
    /// What can be done with it?
    Options,
    /// Say what you received. Never reaches an app: a server refuses it.
    Trace,
    /// Be a tunnel. Never reaches an app: a server that is no proxy refuses it.
    Connect,
    /// Something else.
    Other,
}

impl Method {
    /// The method of this name.
    pub fn from_name(name: &str) -> Method {
        Method::from_bytes(name.as_bytes())
    }

    pub(crate) fn from_bytes(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"PATCH" => Method::Patch,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        }
    }

    /// Its name; `*` for [`Other`](Method::Other), which has many.
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
            Method::Trace => "TRACE",
            Method::Connect => "CONNECT",
            Method::Other => "*",
        }
    }

    /// Whether it only asks, and changes nothing.
    pub fn is_safe(self) -> bool {
        matches!(self, Method::Get | Method::Head | Method::Options | Method::Trace)
    }

    /// Whether doing it twice is doing it once.
    pub fn is_idempotent(self) -> bool {
        self.is_safe() || matches!(self, Method::Put | Method::Delete)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
