//! The head of a response, as the side that asked receives it, and where its body ends.
//!
//! As strict as [`head`](super::head) is with requests: a response that can be read in two ways is refused,
//! because whoever is behind us may read it in the other one.

use super::chunks::{Chunks, Piece};
use super::head::{Found, LIMIT_FIELDS};
use super::{Framing, Refusal};
use crate::headers::{Field, Text};
use crate::settings::Settings;
use crate::{Headers, Method, Status};
use httparse::{Error, Header, Response};
use std::mem::MaybeUninit;

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// It is not all there.
    Partial,
    Whole(Facts),
}

/// What follows from a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    /// How many bytes it has.
    pub(crate) len: usize,
    pub(crate) status: Status,
    pub(crate) end: End,
    /// Whether the server lets us ask more.
    pub(crate) keep_alive: bool,
}

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// There is no body.
    None,
    /// After so many bytes; at least one.
    Length(u64),
    /// By its chunks.
    Chunked,
    /// It is that of the connection.
    Close,
}

/// Looks for the head of a response at the beginning of `bytes`: the one to a request by `method`. The fields of a
/// whole one are put `into` headers that are empty.
pub(crate) fn parse(
    bytes: &[u8],
    settings: &Settings,
    method: Method,
    into: &mut Headers,
) -> Result<Parsed, Refusal> {
    let mut space = [const { MaybeUninit::<Header<'_>>::uninit() }; LIMIT_FIELDS];
    let fields = &mut space[..settings.limit_headers.min(LIMIT_FIELDS)];
    let mut response = Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        fields,
    );
    match parsed {
        Ok(httparse::Status::Complete(len)) if len <= settings.limit_header_bytes => {
            examine(&bytes[..len], &response, method, into).map(Parsed::Whole)
        }
        Ok(httparse::Status::Partial) if bytes.len() <= settings.limit_header_bytes => {
            // It takes empty lines and bare line feeds: neither is the beginning of a response.
            match bytes {
                [b'\r' | b'\n', ..] => Err(Refusal::bad("it begins with an empty line")),
                _ => Ok(Parsed::Partial),
            }
        }
        Ok(_) => Err(Refusal::bad("its head is too large")),
        Err(error) => Err(Refusal::bad(match error {
            Error::TooManyHeaders => "it has too many header fields",
            Error::HeaderName => "a header field has no proper name, or a line is folded",
            Error::HeaderValue => "the value of a header field has a control character in it",
            Error::NewLine => "a line ends in something else than CRLF",
            Error::Version => "it is not HTTP/1",
            Error::Status => "its status is not one",
            Error::Token => "its first line is not that of a response",
        })),
    }
}

/// Looks at a head again that httparse has taken.
fn examine(
    bytes: &[u8],
    response: &Response<'_, '_>,
    method: Method,
    into: &mut Headers,
) -> Result<Facts, Refusal> {
    const LINE_END: Refusal = Refusal::bad("a line ends in something else than CRLF");
    if !bytes.starts_with(b"HTTP/1.") {
        return Err(Refusal::bad("it begins with an empty line"));
    }
    let code = response.code.filter(|code| (100..600).contains(code));
    let status = code.and_then(|code| Status::from_u16(code).ok());
    let status = status.ok_or(Refusal::bad("its status is not one"))?;
    let modern = response.version != Some(0);
    into.text.extend_from_slice(bytes);
    let place = |text: &[u8]| text.as_ptr() as usize - bytes.as_ptr() as usize;
    let mut found = Found::default();
    for header in &*response.headers {
        let (start, name) = (place(header.name.as_bytes()), header.name.as_bytes());
        if bytes[..start].last_chunk() != Some(b"\r\n") {
            return Err(LINE_END);
        }
        found.note_of_response(name, header.value, bytes)?;
        let value = header.value.trim_ascii();
        let at = if value.is_empty() { start } else { place(value) };
        into.fields.push(Field {
            name: Text::between(start, start + name.len()),
            value: Text::between(at, at + value.len()),
        });
    }
    if bytes.last_chunk() != Some(b"\r\n\r\n") {
        return Err(LINE_END);
    }
    let (framing, keep_alive) = found.framing(modern)?;
    let bodiless = method == Method::Head
        || status.is_informational()
        || matches!(status, Status::NO_CONTENT | Status::NOT_MODIFIED);
    let end = match framing {
        _ if bodiless => End::None,
        Framing::Chunked => End::Chunked,
        Framing::Length(length) => End::Length(length),
        Framing::None if found.has_length() => End::None,
        Framing::None => End::Close,
    };
    Ok(Facts { len: bytes.len(), status, end, keep_alive: keep_alive && end != End::Close })
}

/// The body of a response, while it comes.
#[derive(Debug)]
pub(crate) struct Incoming {
    end: End,
    chunks: Chunks,
    /// How much has come.
    received: u64,
    limit_body_bytes: u64,
}

impl Incoming {
    /// # Errors
    /// Its length is known, and too much.
    pub(crate) fn new(end: End, limit_body_bytes: u64) -> Result<Incoming, Refusal> {
        match end {
            End::Length(length) if length > limit_body_bytes => Err(TOO_LARGE),
            _ => Ok(Incoming { end, chunks: Chunks::default(), received: 0, limit_body_bytes }),
        }
    }

    /// How long it is, if that is known.
    pub(crate) fn len(&self) -> Option<u64> {
        match self.end {
            End::None => Some(0),
            End::Length(length) => Some(length),
            End::Chunked | End::Close => None,
        }
    }

    /// Looks at what comes next. Trailers are added to `trailers`.
    pub(crate) fn next(
        &mut self,
        input: &[u8],
        settings: &Settings,
        trailers: &mut Headers,
    ) -> Result<Piece, Refusal> {
        let plain = |len| match len {
            0 => Piece::More { skip: 0 },
            len => Piece::Data { skip: 0, len },
        };
        let piece = match self.end {
            End::None => Piece::End { skip: 0 },
            End::Length(length) if self.received == length => Piece::End { skip: 0 },
            End::Length(length) => {
                let left = usize::try_from(length - self.received).unwrap_or(usize::MAX);
                plain(left.min(input.len()))
            }
            End::Chunked => self.chunks.next(input, self.limit_body_bytes, settings, trailers)?,
            End::Close => plain(input.len()),
        };
        if let Piece::Data { len, .. } = piece {
            self.note(len)?;
        }
        Ok(piece)
    }

    /// How much may still come of a body that is as it is; nothing if there are chunks.
    pub(crate) fn plain_left(&self) -> u64 {
        match self.end {
            End::None | End::Chunked => 0,
            End::Length(length) => length - self.received,
            End::Close => u64::MAX,
        }
    }

    /// Notes that so much of it has come, without being looked at by [`next`](Incoming::next): no more than is
    /// [left](Incoming::plain_left).
    pub(crate) fn note(&mut self, count: usize) -> Result<(), Refusal> {
        self.received += count as u64;
        match self.received > self.limit_body_bytes {
            true => Err(TOO_LARGE),
            false => Ok(()),
        }
    }

    /// The connection has ended before [`next`](Incoming::next) has told an end: whether that is the end of the
    /// body.
    pub(crate) fn ends_with_connection(&self) -> bool {
        self.end == End::Close
    }
}

/// More than whoever asked wants.
pub(crate) const TOO_LARGE: Refusal =
    Refusal::new(Status::PAYLOAD_TOO_LARGE, "its body is too large");

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, method: Method) -> Result<Option<(u16, End, bool)>, &'static str> {
        let mut headers = Headers::new();
        match parse(text.as_bytes(), &Settings::default(), method, &mut headers) {
            Ok(Parsed::Partial) => Ok(None),
            Ok(Parsed::Whole(facts)) => {
                assert_eq!(facts.len, text.len());
                Ok(Some((facts.status.as_u16(), facts.end, facts.keep_alive)))
            }
            Err(refusal) => Err(refusal.why),
        }
    }

    fn get(text: &str) -> Result<Option<(u16, End, bool)>, &'static str> {
        read(&format!("HTTP/1.1 {text}\r\n\r\n"), Method::Get)
    }

    #[test]
    fn j12_end_of_a_body_is_found_in_one_way() {
        let cases = [
            ("200 OK\r\nContent-Length: 5", End::Length(5), true),
            ("200 OK\r\nContent-Length: 0", End::None, true),
            ("200\r\nTransfer-Encoding: chunked", End::Chunked, true),
            ("200 \r\nTransfer-Encoding: Chunked\r\nConnection: close", End::Chunked, false),
            ("200 OK", End::Close, false),
            ("204 No Content", End::None, true),
            ("204 No Content\r\nContent-Length: 7", End::None, true),
            ("304 Not Modified\r\nContent-Length: 7", End::None, true),
            ("100 Continue", End::None, true),
            ("101 Switching Protocols\r\nUpgrade: a\r\nConnection: upgrade", End::None, true),
            ("200 OK\r\nContent-Length: 5\r\nConnection: keep-alive, close", End::Length(5), false),
        ];
        for (text, end, keep_alive) in cases {
            let (_, found, keeps) = get(text).unwrap().unwrap();
            assert_eq!((found, keeps), (end, keep_alive), "{text}");
        }
        let head = read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Method::Head);
        assert_eq!(head, Ok(Some((200, End::None, true))));
        let old = read("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", Method::Get);
        assert_eq!(old, Ok(Some((200, End::Length(5), false))));
        let kept = "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: Keep-Alive\r\n\r\n";
        assert_eq!(read(kept, Method::Get), Ok(Some((200, End::Length(5), true))));
    }

    #[test]
    fn j12_what_can_be_read_in_two_ways_is_refused() {
        for text in [
            "200 OK\r\nContent-Length: 5\r\nContent-Length: 5",
            "200 OK\r\nContent-Length: 5\r\nContent-Length: 6",
            "200 OK\r\nContent-Length: 5, 5",
            "200 OK\r\nContent-Length: +5",
            "200 OK\r\nContent-Length: 0x5",
            "200 OK\r\nContent-Length: ",
            "200 OK\r\nContent-Length: 9223372036854775808",
            "200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
            "200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "200 OK\r\nTransfer-Encoding: chunked, chunked",
            "200 OK\r\nTransfer-Encoding: gzip, chunked",
            "200 OK\r\nTransfer-Encoding: identity",
            "204 No Content\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
            "200 OK\r\nContent-Length : 5",
            "200 OK\r\nA: b\r\n c",
            "200 OK\nContent-Length: 5",
            "200 OK\r\nA: b\nC: d",
            "200 OK\r\nA: b\0",
            "099 Low",
            "600 High",
            "20 Short",
            "2000 Long",
        ] {
            assert!(get(text).is_err(), "{text:?}: {:?}", get(text));
        }
        for text in [
            "\r\nHTTP/1.1 200 OK\r\n\r\n",
            "\nHTTP/1.1 200 OK\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.2 200 OK\r\n\r\n",
            "http/1.1 200 OK\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "ICY 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\n\n",
            "HTTP/1.1 200 OK\r\n\n",
        ] {
            assert!(read(text, Method::Get).is_err(), "{text:?}");
        }
    }

    #[test]
    fn j12_a_head_that_does_not_end_is_refused() {
        let mut text = b"HTTP/1.1 200 OK\r\nA: ".to_vec();
        let settings = Settings { limit_header_bytes: 1000, ..Settings::default() };
        let parse = |text: &[u8]| {
            parse(text, &settings, Method::Get, &mut Headers::new()).map_err(|it| it.why)
        };
        assert_eq!(parse(&text), Ok(Parsed::Partial));
        text.resize(1000, b'b');
        assert_eq!(parse(&text), Ok(Parsed::Partial));
        text.push(b'b');
        assert_eq!(parse(&text), Err("its head is too large"));
    }
}
