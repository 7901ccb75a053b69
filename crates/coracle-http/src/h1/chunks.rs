//! Bodies in chunks: where the data is, and where the end.
//!
//! ```text
//!   5 ; extension ␍␊  a h o y ! ␍␊   0 ␍␊   Trailer: value ␍␊   ␍␊
//!   └── Size ──────┘ └ Data ──┘└┘   └Size┘ └─ Trailers ──────────┘
//!                          DataEnd
//! ```
//!
//! A line that is not whole is left where it is, and looked at again when there is more: it is short, or refused.

use super::Refusal;
use crate::settings::Settings;
use crate::{Headers, Status};

/// Fields that say how a message is read: behind a body it is too late for them.
const FRAMING: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Longer numbers than this would not fit.
const LIMIT_DIGITS: usize = 16;

/// Where in a body we are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chunks {
    state: State,
    /// How much data there was and is announced.
    total: u64,
    extension_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Size,
    Data(u64),
    DataEnd,
    Trailers,
    End,
}

/// What comes next. The first `skip` bytes of the input are ours, and done with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Then more is needed.
    More { skip: usize },
    /// Then there are `len` bytes of data.
    Data { skip: usize, len: usize },
    /// That was the body.
    End { skip: usize },
}

impl Chunks {
    /// Looks at what comes next. Trailers are added to `trailers`.
    pub(crate) fn next(
        &mut self,
        input: &[u8],
        limit_body_bytes: u64,
        settings: &Settings,
        trailers: &mut Headers,
    ) -> Result<Piece, Refusal> {
        let mut skip = 0;
        loop {
            let rest = &input[skip..];
            match self.state {
                State::Size => match self.size(rest, settings)? {
                    None => return Ok(Piece::More { skip }),
                    Some((len, 0)) => {
                        skip += len;
                        self.state = State::Trailers;
                    }
                    Some((len, size)) => {
                        skip += len;
                        self.total = self.total.saturating_add(size);
                        if self.total > limit_body_bytes {
                            return Err(Refusal::new(
                                Status::PAYLOAD_TOO_LARGE,
                                "the body is too large",
                            ));
                        }
                        self.state = State::Data(size);
                    }
                },
                State::Data(_) if rest.is_empty() => return Ok(Piece::More { skip }),
                State::Data(left) => {
                    let len = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    self.state = match left - len as u64 {
                        0 => State::DataEnd,
                        left => State::Data(left),
                    };
                    return Ok(Piece::Data { skip, len });
                }
                State::DataEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        skip += 2;
                        self.state = State::Size;
                    }
                    [] | [b'\r'] => return Ok(Piece::More { skip }),
                    _ => return Err(Refusal::bad("a chunk is longer than it said")),
                },
                State::Trailers => match read_trailers(rest, settings, trailers)? {
                    None => return Ok(Piece::More { skip }),
                    Some(len) => {
                        self.state = State::End;
                        return Ok(Piece::End { skip: skip + len });
                    }
                },
                State::End => return Ok(Piece::End { skip }),
            }
        }
    }

    /// The line before a chunk: its length, and the size it tells.
    fn size(&mut self, input: &[u8], settings: &Settings) -> Result<Option<(usize, u64)>, Refusal> {
        const WRONG: Refusal = Refusal::bad("the size of a chunk is not a number");
        let digits = input.iter().take(LIMIT_DIGITS + 1);
        let digits = digits.take_while(|byte| byte.is_ascii_hexdigit()).count();
        if digits > LIMIT_DIGITS || (digits == 0 && !input.is_empty()) {
            return Err(WRONG);
        }
        let rest = &input[digits..];
        // Extensions are let pass, and nobody looks at them.
        let allowed = settings.limit_chunk_extension_bytes;
        let end = match rest {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => 0,
            [b';', ..] => {
                let within = &rest[..rest.len().min(allowed + 2)];
                let end = within.iter().position(|&byte| !crate::headers::is_value(byte));
                match end.map(|end| (end, &rest[end..])) {
                    None if rest.len() > allowed + 1 => {
                        return Err(Refusal::bad("the extensions of a chunk are too long"));
                    }
                    None | Some((_, [b'\r'])) => return Ok(None),
                    Some((end, [b'\r', b'\n', ..])) => end,
                    Some(_) => return Err(WRONG),
                }
            }
            _ => return Err(WRONG),
        };
        self.extension_bytes += end;
        if end > allowed || self.extension_bytes > settings.limit_chunk_extensions_bytes {
            return Err(Refusal::bad("the extensions of the chunks are too long"));
        }
        let size = std::str::from_utf8(&input[..digits]).map_err(|_| WRONG)?;
        let size = u64::from_str_radix(size, 16).map_err(|_| WRONG)?;
        Ok(Some((digits + end + 2, size)))
    }
}

/// The fields behind the last chunk, up to and with the empty line: how many bytes that are.
fn read_trailers(
    input: &[u8],
    settings: &Settings,
    trailers: &mut Headers,
) -> Result<Option<usize>, Refusal> {
    match input {
        [b'\r', b'\n', ..] => return Ok(Some(2)),
        [] | [b'\r'] => return Ok(None),
        _ => {}
    }
    let mut space = [httparse::EMPTY_HEADER; super::head::LIMIT_FIELDS];
    let fields = settings.limit_trailers.min(space.len());
    let parsed = httparse::parse_headers(input, &mut space[..fields]);
    let (len, fields) = match parsed {
        Ok(httparse::Status::Complete(complete)) => complete,
        Ok(httparse::Status::Partial) if input.len() <= settings.limit_trailer_bytes => {
            return Ok(None);
        }
        Ok(httparse::Status::Partial) => return Err(Refusal::bad("the trailers are too large")),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Refusal::bad("there are too many trailers"));
        }
        Err(_) => return Err(Refusal::bad("a trailer is not a header field")),
    };
    if len > settings.limit_trailer_bytes {
        return Err(Refusal::bad("the trailers are too large"));
    }
    let bytes = &input[..len];
    if !ends_lines_properly(bytes) {
        return Err(Refusal::bad("a line ends in something else than CRLF"));
    }
    for field in fields {
        if FRAMING.iter().any(|name| name.eq_ignore_ascii_case(field.name)) {
            return Err(Refusal::bad("a trailer says how to read the message"));
        }
        if trailers.append(field.name, field.value).is_err() {
            return Err(Refusal::bad("a trailer is not a header field"));
        }
    }
    Ok(Some(len))
}

/// Whether each line feed follows a carriage return.
fn ends_lines_properly(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', bytes).all(|at| at > 0 && bytes[at - 1] == b'\r')
}
