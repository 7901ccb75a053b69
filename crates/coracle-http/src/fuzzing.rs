//! What must be true of the parsers whatever they are given: for tests and fuzzers, and for nobody else.
//!
//! The decoder of chunks has a twin that is slow and obvious; heads that are taken are read again by somebody who
//! only knows lines. Both panic when they disagree.

mod apps;
mod cgi;
mod entries;
mod files;
mod reply;
mod target;
mod websocket;

#[cfg(test)]
pub(crate) use self::apps::parts;
pub use self::apps::{accept_encoding, cookies, multipart, pairs, path, values};
pub use self::cgi::{cgi_head, fastcgi};
pub use self::entries::{ENTRIES, Entry, enter};
pub use self::files::{conditions, ranges, site_path};
pub use self::reply::{proxy_header, reply};
pub use self::target::target;
pub use self::websocket::websocket;

use crate::h1::Framing;
use crate::h1::chunks::{Chunks, Piece};
use crate::h1::head::{Parsed, parse, parse_any};
use crate::h1::plain;
use crate::{Headers, OwnedRequest, Settings};

/// A body: its data, its trailers, what is behind it; or the status of the refusal, 0 if it is not all there.
type Decoded = Result<(Vec<u8>, Headers, Vec<u8>), u16>;

/// Looks at a head that may be anything.
///
/// # Panics
/// When a head is taken that a reader of lines understands differently.
pub fn head(bytes: &[u8]) {
    compare_with_slow_way(bytes, &Settings::default());
    let mut request = OwnedRequest::blank();
    let Ok(Parsed::Whole(facts)) = parse(bytes, &Settings::default(), &mut request) else { return };
    let taken = &bytes[..facts.len];
    // It is the same however it comes: a part of it is never refused, and never taken for all.
    for end in 0..taken.len().min(300) {
        let part = parse(&taken[..end], &Settings::default(), &mut OwnedRequest::blank());
        assert_eq!(part.ok(), Some(Parsed::Partial), "{}", taken[..end].escape_ascii());
    }
    let taken = taken.strip_prefix(b"\r\n").unwrap_or(taken);
    assert!(taken.ends_with(b"\r\n\r\n"));
    // Every byte is read as a character: nothing here looks at more than ASCII.
    let text: String = taken.iter().map(|&byte| char::from(byte)).collect();
    assert!(!text.replace("\r\n", "").contains(['\r', '\n', '\0']), "{text:?}");
    let lines: Vec<&str> = text.trim_end_matches("\r\n").split("\r\n").collect();
    let parts: Vec<&str> = lines[0].split(' ').collect();
    assert_eq!(parts.len(), 3, "{text:?}");
    assert!(["HTTP/1.0", "HTTP/1.1"].contains(&parts[2]), "{text:?}");
    assert_eq!(parts[0], request.request().method_name());
    assert!(parts[1].contains(request.request().path()) || request.request().path() == "/");
    assert_eq!(lines.len() - 1, request.headers.len(), "{text:?}");
    let named = |name: &str| named(&lines[1..], name);
    for (name, value) in request.headers.iter() {
        let value: String = value.iter().map(|&byte| char::from(byte)).collect();
        let values = named(name);
        assert!(values.contains(&bare(&value).to_ascii_lowercase()), "{name}: {value:?} {text:?}");
    }
    let (lengths, codings) = (named("content-length"), named("transfer-encoding"));
    match facts.framing {
        Framing::Chunked => assert!(lengths.is_empty() && codings == ["chunked"], "{text:?}"),
        Framing::Length(length) => {
            let told: Vec<_> = lengths.iter().map(|told| told.parse::<u64>()).collect(); // `08` is 8
            assert!(codings.is_empty() && told == [Ok(length)], "{text:?}");
        }
        Framing::None => {
            assert!(codings.is_empty(), "{text:?}");
            assert!(lengths.is_empty() || lengths[0].parse::<u64>() == Ok(0), "{text:?}");
        }
    }
}

/// The values of the fields of that name, in lower case.
fn named(lines: &[&str], name: &str) -> Vec<String> {
    let fields = lines.iter().filter_map(|line| line.split_once(':'));
    let ours = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    ours.map(|(_, value)| bare(value).to_ascii_lowercase()).collect()
}

/// A value without the spaces and tabs around it. Other characters are blank to `str::trim`, and not to HTTP.
fn bare(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}

/// What is plain is taken for the same by the slow way.
pub(crate) fn compare_with_slow_way(bytes: &[u8], settings: &Settings) {
    let (mut plain, mut slow) = (OwnedRequest::blank(), OwnedRequest::blank());
    let Some(facts) = plain::read(bytes, settings, &mut plain) else {
        assert!(plain.headers.is_empty() && plain.headers.text.is_empty());
        return;
    };
    let taken = parse_any(bytes, settings, &mut slow);
    assert_eq!(taken.ok(), Some(Parsed::Whole(facts)), "{}", bytes.escape_ascii());
    let parts = |it: &OwnedRequest| {
        let req = it.request();
        let (method, query) = (req.method_name().to_owned(), req.query().map(str::to_owned));
        let target = (req.method(), method, req.path().to_owned(), query, it.host.is_some());
        let fields = it.headers.raw().map(|(name, value)| (name.to_vec(), value.to_vec()));
        (target, req.version(), fields.collect::<Vec<_>>(), it.headers.text.clone())
    };
    assert_eq!(parts(&plain), parts(&slow));
}

/// Looks at a body in chunks that may be anything, as it comes in pieces of `step` bytes.
///
/// # Panics
/// When it depends on the pieces what it is, or when it is not what the grammar says.
pub fn chunks(body: &[u8], step: usize) {
    let settings = Settings::default();
    let data = |decoded: Decoded| decoded.ok().map(|(data, ..)| data);
    let fast = data(decode(body, step.max(1), &settings));
    let whole = data(decode(body, usize::MAX / 2, &settings));
    assert_eq!(fast, whole, "{:?}", body.escape_ascii().to_string());
    let slow = decode_slowly(body, &settings);
    assert_eq!(fast, slow, "{:?}", body.escape_ascii().to_string());
}

/// Decodes a body that comes in pieces of `step` bytes: its data, its trailers, what is left behind it.
pub(crate) fn decode(body: &[u8], step: usize, settings: &Settings) -> Decoded {
    let (mut chunks, mut trailers, mut data) = (Chunks::default(), Headers::new(), Vec::new());
    let (mut input, mut fed) = (Vec::new(), 0);
    loop {
        match chunks.next(&input, settings.limit_body_bytes, settings, &mut trailers) {
            Err(refusal) => return Err(refusal.status.as_u16()),
            Ok(Piece::Data { skip, len }) => {
                assert!(len > 0);
                data.extend_from_slice(&input[skip..skip + len]);
                input.drain(..skip + len);
            }
            Ok(Piece::End { skip }) => {
                input.drain(..skip);
                input.extend_from_slice(&body[fed..]);
                return Ok((data, trailers, input));
            }
            Ok(Piece::More { skip }) => {
                input.drain(..skip);
                if fed == body.len() {
                    return Err(0);
                }
                let end = body.len().min(fed + step);
                input.extend_from_slice(&body[fed..end]);
                fed = end;
            }
        }
    }
}

/// The same, slow and obvious: by the grammar of RFC 9112, 7.1, on the whole body.
fn decode_slowly(body: &[u8], settings: &Settings) -> Option<Vec<u8>> {
    let mut rest = body;
    let (mut data, mut extensions) = (Vec::new(), 0);
    let line = |rest: &mut &[u8]| -> Option<Vec<u8>> {
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let line = rest[..end].to_vec();
        *rest = &rest[end + 2..];
        (!line.iter().any(|&byte| byte == b'\r' || byte == b'\n')).then_some(line)
    };
    loop {
        let text = line(&mut rest)?;
        let (size, extension) = match text.iter().position(|&byte| byte == b';') {
            Some(at) => text.split_at(at),
            None => (&text[..], &b""[..]),
        };
        // A quoted string may have more than ASCII in it (RFC 9110, 5.6.4), and no control character.
        let plain = extension.iter().all(|&byte| byte == b'\t' || (byte >= 32 && byte != 127));
        extensions += extension.len();
        if !plain
            || extension.len() > settings.limit_chunk_extension_bytes
            || extensions > settings.limit_chunk_extensions_bytes
            || !(1..=16).contains(&size.len())
            || !size.iter().all(u8::is_ascii_hexdigit)
        {
            return None;
        }
        let size = usize::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
        if size == 0 {
            break;
        }
        if data.len() + size > settings.limit_body_bytes as usize {
            return None;
        }
        data.extend_from_slice(rest.get(..size)?);
        rest = rest[size..].strip_prefix(b"\r\n")?;
    }
    let (behind, mut trailers) = (rest, 0);
    loop {
        let text = line(&mut rest)?;
        if text.is_empty() {
            let bytes = behind.len() - rest.len();
            let fits = trailers <= settings.limit_trailers && bytes <= settings.limit_trailer_bytes;
            return (fits || trailers == 0).then_some(data);
        }
        trailers += 1;
        let colon = text.iter().position(|&byte| byte == b':')?;
        let (name, value) = text.split_at(colon);
        let token = !name.is_empty() && name.iter().all(|&byte| crate::headers::is_token(byte));
        if !token || !value.iter().all(|&byte| crate::headers::is_value(byte)) {
            return None;
        }
        const FRAMING: [&str; 9] = [
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
        if FRAMING.iter().any(|it| name.eq_ignore_ascii_case(it.as_bytes())) {
            return None;
        }
    }
}
