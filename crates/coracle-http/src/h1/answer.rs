//! The head of a response, as bytes.

use crate::date::Line;
use crate::into_response::may_have_body;
use crate::{Headers, Method, Status};
use coracle_net::WriteBuffer;

/// What is to be known of the request, and of the connection, to write the head of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) method: Method,
    /// Whether the client knows chunks.
    pub(crate) modern: bool,
    pub(crate) keep_alive: bool,
    pub(crate) date: &'a Line,
}

/// What follows the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    /// Nothing, whatever the body is.
    Nothing,
    /// The body as it is.
    Plain,
    /// The body in chunks.
    Chunks,
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) follow: Follow,
    /// Whether the connection can be used again.
    pub(crate) keep_alive: bool,
}

/// Writes the head of a response whose body has `len` bytes, if that is known.
pub(crate) fn write_head(
    out: &mut WriteBuffer,
    context: &Context<'_>,
    status: Status,
    headers: &Headers,
    len: Option<u64>,
) -> Written {
    let mut keep_alive = context.keep_alive;
    let (mut has_date, mut length_field, mut upgrade) = (false, None, false);
    write_status(out, status);
    for field in &headers.fields {
        let (name, value) = (headers.resolve(field.name), headers.resolve(field.value));
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"date") => has_date = true,
            7 if name.eq_ignore_ascii_case(b"upgrade") => upgrade = true,
            10 if name.eq_ignore_ascii_case(b"connection") => {
                // Framing is ours, but a handler may want to see the client go.
                keep_alive &= !headers.has_token("connection", "close");
                continue;
            }
            10 if name.eq_ignore_ascii_case(b"keep-alive") => continue,
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                length_field = Some(value);
                continue;
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => continue,
            _ => {}
        }
        write_field(out, name, value);
    }
    if !has_date {
        out.push(context.date);
    }
    let is_head = context.method == Method::Head;
    let follow = if !may_have_body(status) {
        // 304 may tell what 200 would have had, if the handler knows.
        match (status, length_field) {
            (Status::NOT_MODIFIED, Some(length)) => write_field(out, b"content-length", length),
            (Status::RESET_CONTENT, _) => write_field(out, b"content-length", b"0"),
            _ => {}
        }
        Follow::Nothing
    } else {
        match (len, length_field) {
            // Asked for the head only, a handler need not make the body.
            (Some(0), Some(length)) if is_head => write_field(out, b"content-length", length),
            (Some(len), _) => {
                out.push(b"content-length: ");
                out.push(itoa::Buffer::new().format(len).as_bytes());
                out.push(b"\r\n");
            }
            (None, _) if context.modern => write_field(out, b"transfer-encoding", b"chunked"),
            (None, _) => keep_alive = false, // the end of the connection is the end of the body
        }
        match len {
            _ if is_head => Follow::Nothing,
            None if context.modern => Follow::Chunks,
            _ => Follow::Plain,
        }
    };
    match (keep_alive, context.modern) {
        // What concerns only this connection is named (RFC 9110, 7.8): a 426 says what there is.
        (true, true) if upgrade => out.push(b"connection: upgrade\r\n"),
        (true, true) => {}
        (true, false) => out.push(b"connection: keep-alive\r\n"),
        (false, _) if upgrade => out.push(b"connection: close, upgrade\r\n"),
        (false, _) => out.push(b"connection: close\r\n"),
    }
    out.push(b"\r\n");
    Written { follow, keep_alive }
}

fn write_status(out: &mut WriteBuffer, status: Status) {
    match status {
        Status::OK => out.push(b"HTTP/1.1 200 OK\r\n"),
        _ => {
            out.push(b"HTTP/1.1 ");
            out.push(status.as_str().as_bytes());
            out.push(b" ");
            out.push(status.canonical_reason().unwrap_or("Unknown").as_bytes());
            out.push(b"\r\n");
        }
    }
}

#[inline]
pub(crate) fn write_field(out: &mut WriteBuffer, name: &[u8], value: &[u8]) {
    out.push(name);
    out.push(b": ");
    out.push(value);
    out.push(b"\r\n");
}

/// Writes the line before a chunk of `len` bytes.
pub(crate) fn write_chunk_head(out: &mut Vec<u8>, len: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        out.push(DIGITS[len >> (digit * 4) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes what ends a body in chunks: the last one, and the fields behind it.
pub(crate) fn write_last_chunk(out: &mut Vec<u8>, trailers: &Headers) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers.iter() {
        // What says how long a message is cannot be behind it.
        if !["content-length", "transfer-encoding", "connection", "trailer"]
            .iter()
            .any(|it| name.eq_ignore_ascii_case(it))
        {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }
    out.extend_from_slice(b"\r\n");
}
