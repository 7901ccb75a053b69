//! Parts out of bytes, without reading or writing anything (RFC 2046, 5.1; RFC 7578).
//!
//! ```text
//!   --boundary␍␊                       Preamble ──► Boundary
//!   Content-Disposition: …␍␊           Head
//!   ␍␊                                 EmptyLine
//!   the data, whatever it is           Data
//!   ␍␊--boundary␍␊                     Boundary ──► Head, the next part
//!   …
//!   ␍␊--boundary--                     Boundary ──► End; what follows is ignored
//! ```
//!
//! Bytes are pushed in, of any number at a time, and events are taken out until there are no more. At most one
//! head and what was pushed last are kept. A line that begins like the boundary is the boundary: if something else
//! follows there than a line end or two dashes, it is refused.

use super::MultipartLimits;
use crate::headers::is_token;
use memchr::memmem;
use std::fmt;

/// So long a boundary may be (RFC 2046, 5.1.1).
const LIMIT_BOUNDARY_BYTES: usize = 70;

/// So many header fields a part may have. Browsers send two.
const LIMIT_PART_FIELDS: usize = 16;

pub(crate) struct Parser {
    /// `␍␊--boundary`
    delimiter: Vec<u8>,
    finder: memmem::Finder<'static>,
    limits: MultipartLimits,
    bytes: Vec<u8>,
    /// Where of `bytes` nobody has looked yet.
    at: usize,
    state: State,
    parts: usize,
    part_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Preamble,
    Boundary,
    Head,
    EmptyLine,
    Data,
    End,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event<'p> {
    /// A part begins.
    Part(PartHead),
    /// Some of its data.
    Data(&'p [u8]),
    /// All of its data has come.
    PartEnd,
    /// All parts have come.
    End,
    /// More bytes are needed.
    More,
}

/// What a part says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PartHead {
    pub(crate) name: String,
    pub(crate) file_name: Option<String>,
    pub(crate) content_type: Option<String>,
}

/// Why a body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Boundary,
    Preamble,
    Delimiter,
    HeadTooLong,
    Head,
    NoName,
    TooManyParts,
    PartTooLong,
    Truncated,
}

impl Refused {
    /// Whether it is too much, rather than wrong.
    pub(crate) fn is_too_much(self) -> bool {
        matches!(self, Refused::HeadTooLong | Refused::TooManyParts | Refused::PartTooLong)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Boundary => "the boundary is none",
            Refused::Preamble => "it does not begin with the boundary",
            Refused::Delimiter => "something follows a boundary on its line",
            Refused::HeadTooLong => "the header of a part is too long",
            Refused::Head => "the header of a part is none",
            Refused::NoName => "a part has no name",
            Refused::TooManyParts => "it has too many parts",
            Refused::PartTooLong => "a part is too long",
            Refused::Truncated => "it ends before its last boundary",
        })
    }
}

impl Parser {
    pub(crate) fn new(boundary: &str, limits: MultipartLimits) -> Result<Parser, Refused> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
        let good =
            (1..=LIMIT_BOUNDARY_BYTES).contains(&boundary.len()) && boundary.bytes().all(allowed);
        if !good || boundary.ends_with(' ') {
            return Err(Refused::Boundary);
        }
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        Ok(Parser {
            finder: memmem::Finder::new(&delimiter).into_owned(),
            delimiter,
            limits,
            // The first boundary may be at the beginning, as if a line had ended before it.
            bytes: b"\r\n".to_vec(),
            at: 0,
            state: State::Preamble,
            parts: 0,
            part_bytes: 0,
        })
    }

    /// More bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        if self.state != State::End {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// What they mean. After an error there is nothing more to ask.
    pub(crate) fn next(&mut self) -> Result<Event<'_>, Refused> {
        loop {
            match self.state {
                State::Preamble => match self.finder.find(&self.bytes[self.at..]) {
                    Some(0) => self.pass(self.delimiter.len(), State::Boundary),
                    // Nobody sends a preamble, and what is in it is lost.
                    Some(_) => return Err(Refused::Preamble),
                    None if self.rest().len() >= self.delimiter.len() => {
                        return Err(Refused::Preamble);
                    }
                    None => return Ok(Event::More),
                },
                State::Boundary => match self.rest() {
                    // The line end begins the head, so that an empty one ends like any other.
                    [b'\r', b'\n', ..] => {
                        self.parts += 1;
                        if self.parts > self.limits.limit_parts {
                            return Err(Refused::TooManyParts);
                        }
                        self.state = State::Head;
                    }
                    [b'-', b'-', ..] => {
                        self.at = self.bytes.len();
                        self.state = State::End;
                    }
                    [] | [b'\r' | b'-'] => return Ok(Event::More),
                    _ => return Err(Refused::Delimiter),
                },
                State::Head => {
                    let limit = self.limits.limit_head_bytes;
                    let rest = self.rest();
                    let end = memmem::find(&rest[..rest.len().min(limit + 4)], b"\r\n\r\n");
                    let Some(end) = end else {
                        return if rest.len() >= limit + 4 {
                            Err(Refused::HeadTooLong)
                        } else {
                            Ok(Event::More)
                        };
                    };
                    if self.finder.find(&rest[..end]).is_some() {
                        return Err(Refused::Head); // to others it would be another part
                    }
                    let head = parse_head(&rest[..end])?;
                    self.part_bytes = 0;
                    self.pass(end + 2, State::EmptyLine);
                    return Ok(Event::Part(head));
                }
                // A part without data: the line end of the empty line may be that of the boundary, too.
                State::EmptyLine => {
                    let rest = self.rest();
                    if rest.starts_with(&self.delimiter) {
                        self.pass(self.delimiter.len(), State::Boundary);
                        return Ok(Event::PartEnd);
                    }
                    if self.delimiter.starts_with(rest) {
                        return Ok(Event::More);
                    }
                    self.pass(2, State::Data);
                }
                State::Data => return self.data(),
                State::End => return Ok(Event::End),
            }
        }
    }

    /// No more bytes will come.
    pub(crate) fn finish(&self) -> Result<(), Refused> {
        if self.state == State::End { Ok(()) } else { Err(Refused::Truncated) }
    }

    fn data(&mut self) -> Result<Event<'_>, Refused> {
        let rest = &self.bytes[self.at..];
        let len = match self.finder.find(rest) {
            Some(0) => {
                self.pass(self.delimiter.len(), State::Boundary);
                return Ok(Event::PartEnd);
            }
            Some(len) => len,
            // The end may be the beginning of a boundary.
            None => rest.len() - begun(rest, &self.delimiter),
        };
        if len == 0 {
            return Ok(Event::More);
        }
        self.part_bytes += len as u64;
        if self.part_bytes > self.limits.limit_part_bytes {
            return Err(Refused::PartTooLong);
        }
        let start = self.at;
        self.at += len;
        Ok(Event::Data(&self.bytes[start..start + len]))
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    fn pass(&mut self, count: usize, state: State) {
        self.at += count;
        self.state = state;
    }
}

impl fmt::Debug for Parser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parser")
            .field("state", &self.state)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

/// How many bytes at the end of `text` could be the beginning of `delimiter`.
fn begun(text: &[u8], delimiter: &[u8]) -> usize {
    let longest = text.len().min(delimiter.len() - 1);
    let tail = &text[text.len() - longest..];
    // It begins with a line end, which is nowhere else in it.
    let at = memchr::memrchr(b'\r', tail);
    at.map_or(0, |at| if delimiter.starts_with(&tail[at..]) { tail.len() - at } else { 0 })
}

/// The fields of a part: each after a line end, without the empty line.
fn parse_head(text: &[u8]) -> Result<PartHead, Refused> {
    let mut head = PartHead::default();
    let mut has_name = false;
    let Some(text) = text.strip_prefix(b"\r\n") else {
        return if text.is_empty() { Err(Refused::NoName) } else { Err(Refused::Head) };
    };
    let text = String::from_utf8_lossy(text);
    for (index, line) in text.split("\r\n").enumerate() {
        let is_text = line.chars().all(|c| c == '\t' || !c.is_ascii_control());
        let (name, value) = line.split_once(':').ok_or(Refused::Head)?;
        if index == LIMIT_PART_FIELDS || !is_text || name.is_empty() || !name.bytes().all(is_token)
        {
            return Err(Refused::Head);
        }
        let value = value.trim_matches([' ', '\t']);
        if name.eq_ignore_ascii_case("content-disposition") {
            let (kind, params) = value.split_once(';').ok_or(Refused::NoName)?;
            if has_name || !kind.trim_matches([' ', '\t']).eq_ignore_ascii_case("form-data") {
                return Err(Refused::Head);
            }
            for (name, value) in disposition(params)? {
                if name.eq_ignore_ascii_case("name") {
                    head.name = value;
                    has_name = true;
                } else if name.eq_ignore_ascii_case("filename") {
                    head.file_name = Some(value);
                }
            }
        } else if name.eq_ignore_ascii_case("content-type") {
            head.content_type = Some(value.to_owned());
        }
    }
    if has_name { Ok(head) } else { Err(Refused::NoName) }
}

/// `name="a"; filename="b"`, as browsers write it: a quote inside is `%22`, or `\"` from other clients; a
/// backslash before anything else is one.
fn disposition(text: &str) -> Result<Vec<(&str, String)>, Refused> {
    let mut params = Vec::new();
    let mut rest = text.trim_matches([' ', '\t']);
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or(Refused::Head)?;
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(Refused::Head);
        }
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted_value(quoted).ok_or(Refused::Head)?,
            None => {
                let (value, _) = after.split_once(';').unwrap_or((after, ""));
                (value.trim_matches([' ', '\t']).to_owned(), &after[value.len()..])
            }
        };
        params.push((name, value));
        let after = after.trim_start_matches([' ', '\t']);
        rest = match after.strip_prefix(';') {
            Some(next) => next.trim_start_matches([' ', '\t']),
            None if after.is_empty() => after,
            None => return Err(Refused::Head),
        };
    }
    Ok(params)
}

fn quoted_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value.replace("%22", "\""), &text[at + 1..])),
            '\\' if characters.peek().is_some_and(|(_, next)| *next == '"') => {
                value.push('"');
                characters.next();
            }
            other => value.push(other),
        }
    }
    None
}
