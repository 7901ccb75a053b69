//! The header of what a script says, out of bytes: no I/O, no clock, and strict.
//!
//! ```text
//!   Status: 201 Created␊        ──► what is meant for us: the status, where to go, how long it is
//!   Content-Type: text/plain␊   ──► what is meant for the client
//!   Connection: close␊          ──► what is nobody's business but the server's: dropped
//!   ␊                           ──► the end; the rest is the body
//! ```
//!
//! The same for CGI (RFC 3875, 6) and FastCGI; and for scripts that write a status line of HTTP before it
//! (`nph-…`, RFC 3875, 5).

use crate::headers::{is_token, is_value};
use crate::{Headers, Status};
use std::fmt;

/// How long a header may be, with the empty line behind it.
pub(crate) const LIMIT_HEAD_BYTES: usize = 64 << 10;

/// How many fields it may have.
pub(crate) const LIMIT_HEAD_FIELDS: usize = 128;

/// What a script is to begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Fields, one of which is `Content-Type`, `Status` or `Location`.
    Cgi,
    /// A status line of HTTP, then fields.
    Nph,
}

/// A header, understood.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(crate) status: Option<Status>,
    pub(crate) location: Option<String>,
    pub(crate) content_length: Option<u64>,
    /// What is left for the client.
    pub(crate) headers: Headers,
}

/// Why a header cannot be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeadError(&'static str);

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Collects what a script says until its header is whole.
pub(crate) struct HeadReader {
    style: Style,
    bytes: Vec<u8>,
    /// No line ends before this.
    seen: usize,
}

impl HeadReader {
    pub(crate) fn new(style: Style) -> HeadReader {
        HeadReader { style, bytes: Vec::new(), seen: 0 }
    }

    /// Takes what has come; when the header is whole, that and what has come of the body.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Option<(Head, Vec<u8>)>, HeadError> {
        self.bytes.extend_from_slice(bytes);
        match find_end(&self.bytes, self.seen) {
            Some((end, behind)) if behind <= LIMIT_HEAD_BYTES => {
                let body = self.bytes.split_off(behind);
                Ok(Some((parse(self.style, &self.bytes[..end])?, body)))
            }
            None if self.bytes.len() < LIMIT_HEAD_BYTES => {
                self.seen = self.bytes.len();
                Ok(None)
            }
            _ => Err(HeadError("its header is longer than 64 KiB")),
        }
    }

    /// Whether anything has come at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Where the empty line begins, and where the body does.
fn find_end(bytes: &[u8], from: usize) -> Option<(usize, usize)> {
    let is_line_start = |at: usize| at == 0 || bytes[at - 1] == b'\n';
    memchr::memchr_iter(b'\n', &bytes[from..]).map(|at| from + at).find_map(|at| {
        if is_line_start(at) {
            Some((at, at + 1))
        } else {
            (bytes[at - 1] == b'\r' && is_line_start(at - 1)).then_some((at - 1, at + 1))
        }
    })
}

/// Reads the lines before the empty one.
fn parse(style: Style, lines: &[u8]) -> Result<Head, HeadError> {
    let mut head = Head::default();
    let mut lines = lines.split_inclusive(|&byte| byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    });
    if style == Style::Nph {
        head.status = Some(status_line(lines.next().unwrap_or_default())?);
    }
    let mut has_type = false;
    for (number, line) in lines.enumerate() {
        if number == LIMIT_HEAD_FIELDS {
            return Err(HeadError("its header has more than 128 fields"));
        }
        let (name, value) = field(line)?;
        match &*name.to_ascii_lowercase() {
            "status" => {
                if head.status.is_some() {
                    return Err(HeadError("it has two statuses"));
                }
                head.status = Some(status(value)?);
            }
            "location" => {
                let text = std::str::from_utf8(value).ok();
                let text = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
                let Some(text) = text.filter(|text| !text.is_empty()) else {
                    return Err(HeadError("its Location is no URL: escape what is not ASCII by %"));
                };
                if head.location.replace(text.to_owned()).is_some() {
                    return Err(HeadError("it has two fields Location"));
                }
            }
            "content-length" => {
                if head.content_length.replace(length(value)?).is_some() {
                    return Err(HeadError("it has two fields Content-Length"));
                }
            }
            "transfer-encoding" if style == Style::Nph => {
                return Err(HeadError("it has a Transfer-Encoding: leave that to the server"));
            }
            // How the answer is sent is the server's business.
            "connection" | "keep-alive" | "proxy-connection" | "te" | "trailer"
            | "transfer-encoding" | "upgrade" => {}
            lower => {
                if lower == "content-type" && std::mem::replace(&mut has_type, true) {
                    return Err(HeadError("it has two fields Content-Type"));
                }
                let kept = head.headers.append(name, value);
                kept.map_err(|_| HeadError("a field cannot be sent"))?;
            }
        }
    }
    if !has_type && head.status.is_none() && head.location.is_none() {
        return Err(HeadError(
            "its header has no Content-Type, Status or Location: begin with `Content-Type: text/plain` and \
             an empty line",
        ));
    }
    Ok(head)
}

fn field(line: &[u8]) -> Result<(&str, &[u8]), HeadError> {
    let Some(colon) = memchr::memchr(b':', line) else {
        return Err(HeadError("a line of its header is no `Name: value`, and not empty either"));
    };
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    if name.is_empty() || !name.iter().copied().all(is_token) {
        return Err(HeadError("a line of its header does not begin with the name of a field"));
    }
    if !value.iter().copied().all(is_value) {
        return Err(HeadError("a field of its header has a control character in it"));
    }
    Ok((std::str::from_utf8(name).unwrap_or_default(), value))
}

/// `201`, or `201 Created`.
fn status(value: &[u8]) -> Result<Status, HeadError> {
    const WRONG: HeadError = HeadError("its status is none: write `Status: 404 Not Found`");
    let digits = value.split(|&byte| byte == b' ').next().unwrap_or_default();
    if digits.len() != 3 {
        return Err(WRONG);
    }
    let status = Status::from_bytes(digits).map_err(|_| WRONG)?;
    match status.as_u16() {
        200..=599 => Ok(status),
        _ => Err(HeadError("its status is no answer: those are 200 to 599")),
    }
}

/// `HTTP/1.1 201 Created`.
fn status_line(line: &[u8]) -> Result<Status, HeadError> {
    const WRONG: HeadError = HeadError(
        "it does not begin with a status line: a script named nph-… writes `HTTP/1.1 200 OK` first",
    );
    let rest = line.strip_prefix(b"HTTP/1.").ok_or(WRONG)?;
    match rest {
        [b'0' | b'1', b' ', rest @ ..] => status(rest),
        _ => Err(WRONG),
    }
}

fn length(value: &[u8]) -> Result<u64, HeadError> {
    const WRONG: HeadError = HeadError("its Content-Length is no number");
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(WRONG);
    }
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).ok_or(WRONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Head, Vec<u8>), HeadError> {
        let whole = HeadReader::new(Style::Cgi).feed(text.as_bytes())?;
        Ok(whole.expect("it is whole"))
    }

    #[test]
    fn o1_header_is_understood_with_either_line_end() {
        for end in ["\n", "\r\n"] {
            let text =
                "Status: 404 Not here|content-type: text/x|Set-Cookie: a|Set-Cookie: b||body|\n";
            let (head, body) = read(&text.replace('|', end)).unwrap();
            assert_eq!(head.status, Some(Status::NOT_FOUND));
            assert_eq!(head.headers.get("Content-Type"), Some("text/x"));
            assert_eq!(head.headers.get_all("set-cookie").count(), 2);
            assert!(!head.headers.contains("status"));
            assert_eq!(body, format!("body{end}\n").as_bytes());
        }
    }

    #[test]
    fn o1_header_says_where_to_go_and_how_long_it_is() {
        let (head, _) = read("Location: /a?b\nContent-Length: 12\nConnection: close\n\n").unwrap();
        assert_eq!(head.location.as_deref(), Some("/a?b"));
        assert_eq!((head.content_length, head.status), (Some(12), None));
        assert!(head.headers.is_empty());
    }

    #[test]
    fn o1_malformed_headers_are_refused() {
        for text in [
            "\n",
            "no colon\n\n",
            "Content-Type: a\n folded\n\n",
            "Content-Type : a\n\n",
            ": a\n\n",
            "Content-Type: a\nContent-Type: b\n\n",
            "Status: 20\n\n",
            "Status: 2000\n\n",
            "Status: 100\n\n",
            "Status: abc\n\n",
            "Status: 200\nStatus: 200\n\n",
            "Location: a b\n\n",
            "Location:\n\n",
            "Location: /\nLocation: /\n\n",
            "Status: 200\nContent-Length: -1\n\n",
            "Status: 200\nContent-Length: 99999999999999999999\n\n",
            "Status: 200\nContent-Length: 1\nContent-Length: 1\n\n",
            "Content-Type: a\0b\n\n",
            "Content-Type: a\rb\n\n",
            "X-Only: this\n\n",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
        let many = "A: b\n".repeat(LIMIT_HEAD_FIELDS);
        assert!(read(&format!("Status: 200\n{many}\n")).is_err());
    }

    #[test]
    fn o1_header_that_does_not_end_is_refused_at_its_limit() {
        let mut reader = HeadReader::new(Style::Cgi);
        let mut fed = 0;
        let refused = loop {
            match reader.feed(b"X: yyyyyyyyyyyy\n") {
                Ok(whole) => assert!(whole.is_none()),
                Err(error) => break error,
            }
            fed += 16;
        };
        assert!(fed < LIMIT_HEAD_BYTES, "{refused}");
    }

    #[test]
    fn o1_status_line_of_http_is_understood_where_it_belongs() {
        let read = |text: &str| HeadReader::new(Style::Nph).feed(text.as_bytes());
        let (head, body) = read("HTTP/1.0 201 Made\r\nServer: me\r\n\r\nbody").unwrap().unwrap();
        assert_eq!((head.status, &*body), (Some(Status::CREATED), &b"body"[..]));
        assert_eq!(head.headers.get("server"), Some("me"));
        for text in [
            "Status: 200\n\n",
            "HTTP/2 200\n\n",
            "HTTP/1.1 200\nTransfer-Encoding: chunked\n\n",
            "\n",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
