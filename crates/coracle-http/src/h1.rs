//! HTTP/1 as such: bytes to requests, responses to bytes. No sockets, no time, no waiting.
//!
//! There is one policy, and it is strict: what RFC 9112 lets a server be lenient about is refused here, because
//! whoever is lenient about it reads a message differently from the proxy in front of it. What arrives, and the
//! answer it gets, is a table in docs/reference/http.md; each of its lines is a test.

pub(crate) mod answer;
pub(crate) mod chunks;
pub(crate) mod head;
pub(crate) mod lead;
pub(crate) mod plain;
pub(crate) mod reply;
pub(crate) mod target;

pub(crate) use crate::refusal::Refusal;

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is no body.
    None,
    /// After so many bytes; at least one.
    Length(u64),
    /// By its chunks.
    Chunked,
}

#[cfg(test)]
mod tests;
