//! Entries for the parsers of applications: forms with files, cookies, queries, paths, values of headers.

use super::bare;
use crate::files::conditional::{Tag, any_tag};
use crate::middleware::basic_auth;
use crate::multipart::MultipartLimits;
use crate::multipart::parser::{Event, Parser, PartHead, Refused};
use crate::{AcceptEncoding, Coding, MediaType, Pairs, SessionKey, Sessions, cookies, path};
use std::borrow::Cow;

/// A form with files comes to the same in pieces of any size, and to what splitting it at its boundary gives.
///
/// # Panics
/// When it does not.
pub fn multipart(body: &[u8], sizes: &[usize]) {
    let whole = parts(body, MultipartLimits::default(), &[usize::MAX]);
    assert_eq!(parts(body, MultipartLimits::default(), sizes), whole, "in pieces");
    match (whole, split(body)) {
        (Ok(parts), Some(expected)) => {
            let parts: Vec<Vec<u8>> = parts.into_iter().map(|(_, data)| data).collect();
            assert_eq!(parts, expected);
        }
        // The twin does not look into heads, and has no limits.
        (Err(Refused::Head | Refused::NoName), _) => {}
        (Err(why), _) if why.is_too_much() => {}
        (Err(_), None) => {}
        (ours, twins) => panic!("{}: {ours:?} and {twins:?}", body.escape_ascii()),
    }
}

/// All that is in a body, or why it is refused: part by part, its head and its data. The boundary is `b`.
pub(crate) type Parts = Result<Vec<(PartHead, Vec<u8>)>, Refused>;

/// Pushes pieces of these sizes, over and over.
pub(crate) fn parts(body: &[u8], limits: MultipartLimits, sizes: &[usize]) -> Parts {
    let mut parser = Parser::new("b", limits)?;
    let mut parts: Vec<(PartHead, Vec<u8>)> = Vec::new();
    let mut rest = body;
    let mut sizes = sizes.iter().cycle();
    loop {
        match parser.next()? {
            Event::Part(head) => parts.push((head, Vec::new())),
            Event::Data(data) => parts.last_mut().expect("a part").1.extend_from_slice(data),
            Event::PartEnd => {}
            Event::End => return Ok(parts),
            Event::More if rest.is_empty() => return parser.finish().map(|()| parts),
            Event::More => {
                let size = sizes.next().copied().unwrap_or(usize::MAX).clamp(1, rest.len());
                parser.push(&rest[..size]);
                rest = &rest[size..];
            }
        }
    }
}

/// The data of the parts of a whole body, by splitting it at the boundary.
fn split(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    let text = [b"\r\n", body].concat();
    let delimiter = b"\r\n--b";
    let mut pieces: Vec<Vec<u8>> = vec![Vec::new()];
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(delimiter) {
            pieces.push(Vec::new());
            at += delimiter.len();
        } else {
            pieces.last_mut()?.push(text[at]);
            at += 1;
        }
    }
    let mut pieces = pieces.into_iter();
    if !pieces.next()?.is_empty() {
        return None;
    }
    let mut parts = Vec::new();
    for piece in pieces {
        if piece.starts_with(b"--") {
            return Some(parts);
        }
        if !piece.starts_with(b"\r\n") {
            return None;
        }
        // A part without data may end with its head, the empty line of which is that of the boundary.
        let whole = [&piece[..], b"\r\n"].concat();
        let end = (0..whole.len() - 3).find(|at| whole[*at..].starts_with(b"\r\n\r\n"))?;
        parts.push(piece.get(end + 4..).unwrap_or_default().to_vec());
    }
    None
}

/// Cookies are what going byte by byte finds; and a session that we have not signed is none.
///
/// # Panics
/// When they are not.
pub fn cookies(value: &str) {
    let mut expected = Vec::new();
    let mut piece = String::new();
    for character in value.chars().chain([';']) {
        if character != ';' {
            piece.push(character);
            continue;
        }
        let taken = std::mem::take(&mut piece);
        let Some(at) = taken.find('=') else { continue };
        let name = bare(&taken[..at]).to_owned();
        let mut value = bare(&taken[at + 1..]).to_owned();
        if value.len() >= 2 && value.starts_with('"') && value.ends_with('"') {
            value.pop();
            value.remove(0);
        }
        if !name.is_empty() {
            expected.push((name, value));
        }
    }
    let found = cookies::parse(value).map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(found.collect::<Vec<_>>(), expected);

    let sessions = Sessions::new("s", SessionKey::new([7; 32]).expect("a key"));
    let request = crate::OwnedRequest::new("GET", "/").with_header("cookie", &format!("s={value}"));
    if let Ok(request) = request {
        assert_eq!(sessions.read::<serde_json::Value>(&request.request()), None);
    }
}

/// The pairs of a query, written and read again, are the same pairs.
///
/// # Panics
/// When they are not.
pub fn pairs(text: &[u8]) {
    let Ok(pairs) = Pairs::parse(text) else { return };
    let mut written = form_urlencoded::Serializer::new(String::new());
    written.extend_pairs(pairs.iter());
    let written = written.finish();
    assert_eq!(Pairs::parse(&written).expect("as many as before"), pairs);
}

/// A path in which escapes are decoded has the same segments, each decoded once.
///
/// # Panics
/// When it has not.
pub fn path(path: &str) {
    let comparable = path::comparable(path);
    let ours = comparable.split('/').map(path::value);
    let plain = path.split('/').map(|segment| {
        let decoded = percent_encoding::percent_decode_str(segment).decode_utf8_lossy();
        decoded.into_owned()
    });
    // A path without escapes is not touched.
    assert!(matches!(comparable, Cow::Owned(_)) == path.contains('%'));
    assert_eq!(ours.collect::<Vec<_>>(), plain.collect::<Vec<_>>());
}

/// Values of headers: whatever they are, there is an end to what is found in them, and it is in them.
///
/// # Panics
/// When it is not.
pub fn values(value: &str) {
    any_tag(value.as_bytes(), |tag| {
        if let Tag::Strong(tag) | Tag::Weak(tag) = tag {
            let tag = std::str::from_utf8(tag).expect("it is a part of a text");
            assert!(value.contains(tag) && tag.len() >= 2);
        }
        false
    });
    if let Some((name, password)) = basic_auth::credentials(value) {
        assert!(!name.contains(':') && !format!("{name}{password}").contains(char::is_control));
    }
    if let Some(kind) = MediaType::parse(value) {
        let _ = (kind.is_json(), kind.param("boundary"));
    }
}

/// A coding that is chosen is the best of those that are accepted; and two fields are one list.
///
/// # Panics
/// When it is not.
pub fn accept_encoding(value: &[u8]) {
    let peer = AcceptEncoding::parse([value]);
    let (front, behind) = match value.iter().position(|&byte| byte == b',') {
        Some(at) => (&value[..at], &value[at + 1..]),
        None => (value, &b""[..]),
    };
    assert_eq!(AcceptEncoding::parse([front, behind]), peer);
    let Some(chosen) = peer.choose(&Coding::ALL) else { return };
    let quality = peer.quality(chosen);
    assert!((1..=1000).contains(&quality));
    assert!(Coding::ALL.iter().all(|&other| peer.quality(other) <= quality));
    let value = String::from_utf8_lossy(value).to_ascii_lowercase();
    assert!(value.contains(chosen.name()) || value.contains('*'), "nobody has asked for it");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn j8_entries_of_the_fuzzer_hold_for_anything(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
            text in any::<String>(),
        ) {
            super::multipart(&bytes, &[3, 1]);
            super::pairs(&bytes);
            super::cookies(&text);
            super::path(&text);
            super::values(&text);
            super::accept_encoding(&bytes);
        }
    }
}
