//! The head of a request that is as plain as most are, read in one pass.
//!
//! A method that everybody knows, a path, `HTTP/1.1`, fields on lines of their own, each ending in CRLF. Whatever
//! is different, or not all there, or not to be taken, is left to the [slow way](super::head), which knows why:
//! here nothing is refused, and nothing is taken that the slow way would not take for the same.

use super::head::{Facts, Found, LIMIT_FIELDS};
use crate::headers::{Field, TOKEN, Text};
use crate::settings::Settings;
use crate::{Method, OwnedRequest, Version};

/// What is behind the target.
const VERSION: &[u8] = b" HTTP/1.1\r\n";

/// What is behind this is not looked at, so that each place in a head is a number of 32 bits.
const LIMIT_BYTES: usize = u32::MAX as usize;

/// Looks for a plain head at the beginning of `bytes`, and puts it `into` a request that is blank, which it stays
/// if there is none.
#[inline]
pub(crate) fn read(bytes: &[u8], settings: &Settings, into: &mut OwnedRequest) -> Option<Facts> {
    let bytes = &bytes[..bytes.len().min(LIMIT_BYTES)];
    let (method, name_len) = method(bytes)?;
    let target_at = name_len + 1;
    let path_end = span(bytes, target_at, &PATH);
    let target_end = match bytes.get(path_end) {
        Some(b'?') => span(bytes, path_end, &QUERY),
        _ => path_end,
    };
    if bytes.get(target_at) != Some(&b'/')
        || !bytes[target_end..].starts_with(VERSION)
        || name_len > settings.limit_method_bytes
        || target_end - target_at > settings.limit_target_bytes
    {
        return None;
    }
    let Some(facts) = fields(bytes, target_end + VERSION.len(), settings, into) else {
        into.headers.fields.clear();
        return None;
    };
    into.headers.text.extend_from_slice(&bytes[..facts.len]);
    into.method = method;
    into.method_name = place(0, name_len);
    into.version = Version::Http11;
    into.path = place(target_at, path_end);
    into.query = (path_end < target_end).then(|| place(path_end + 1, target_end));
    into.host = None;
    Some(facts)
}

/// A method that everybody knows, and how long its name is; a space follows.
#[inline]
fn method(bytes: &[u8]) -> Option<(Method, usize)> {
    if bytes.starts_with(b"GET ") {
        return Some((Method::Get, 3)); // most of all
    }
    let len = bytes.iter().take(8).position(|&byte| byte == b' ')?;
    match Method::from_bytes(&bytes[..len]) {
        Method::Connect | Method::Other => None,
        method => Some((method, len)),
    }
}

/// A place within the first [`LIMIT_BYTES`].
#[inline]
fn place(start: usize, end: usize) -> Text {
    Text::At { start: start as u32, len: (end - start) as u32 }
}

/// Where the bytes of a kind end that begin `at` this place.
#[inline]
fn span(bytes: &[u8], mut at: usize, kind: &[bool; 256]) -> usize {
    while let Some(&byte) = bytes.get(at)
        && kind[usize::from(byte)]
    {
        at += 1;
    }
    at
}

/// The bytes that can be in a path.
static PATH: [bool; 256] = {
    let mut table = QUERY;
    table[b'?' as usize] = false;
    table
};

/// The bytes that can be in a query.
static QUERY: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_graphic() && byte as u8 != b'#';
        byte += 1;
    }
    table
};

/// Reads the fields, which begin `at` this place, to the empty line behind them.
#[inline]
fn fields(
    bytes: &[u8],
    mut at: usize,
    settings: &Settings,
    into: &mut OwnedRequest,
) -> Option<Facts> {
    let limit = settings.limit_headers.min(LIMIT_FIELDS);
    let (mut found, mut count) = (Found::default(), 0);
    while !bytes[at..].starts_with(b"\r\n") {
        let colon = match bytes[at..].starts_with(b"Host:") {
            true => at + 4, // which all of them have
            false => span(bytes, at, &TOKEN),
        };
        if colon == at || bytes.get(colon) != Some(&b':') || count == limit {
            return None;
        }
        let line_end = value_end(bytes, colon + 1);
        if !bytes[line_end..].starts_with(b"\r\n") {
            return None;
        }
        let (mut start, mut end) = (colon + 1, line_end);
        while start < end && is_blank(bytes[start]) {
            start += 1;
        }
        while start < end && is_blank(bytes[end - 1]) {
            end -= 1;
        }
        found.note(&bytes[at..colon], &bytes[start..end], bytes).ok()?;
        into.headers.fields.push(Field { name: place(at, colon), value: place(start, end) });
        count += 1;
        at = line_end + 2;
    }
    at += 2;
    if at > settings.limit_header_bytes {
        return None;
    }
    found.conclude(Version::Http11, at).ok()
}

/// What may be around a value.
#[inline]
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Where the value that begins there ends: at the first control character that is no tab.
#[inline]
fn value_end(bytes: &[u8], mut at: usize) -> usize {
    loop {
        let rest = &bytes[at..];
        let step = match rest.first_chunk() {
            Some(&eight) => match controls(u64::from_le_bytes(eight)) {
                0 => {
                    at += 8;
                    continue;
                }
                found => found.trailing_zeros() as usize / 8,
            },
            None => rest.iter().position(u8::is_ascii_control).unwrap_or(rest.len()),
        };
        at += step;
        if bytes.get(at) != Some(&b'\t') {
            return at;
        }
        at += 1;
    }
}

/// The highest bit of each of eight bytes that is a control character. Bytes behind the first may be marked, too,
/// because of what is borrowed from them.
#[inline]
fn controls(bytes: u64) -> u64 {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    let below = |bytes: u64, limit: u64| bytes.wrapping_sub(EACH * limit) & !bytes & (EACH * 0x80);
    below(bytes, 0x20) | below(bytes ^ (EACH * 0x7f), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn j3_values_end_at_control_characters_wherever_these_are() {
        for byte in 0..=255u8 {
            for place in 0..20 {
                let mut text = [b'~'; 20];
                text[place] = byte;
                text[19] = b'\n';
                let slow = |&byte: &u8| byte.is_ascii_control() && byte != b'\t';
                let expected = text.iter().position(slow).unwrap();
                assert_eq!(value_end(&text, 0), expected, "{byte} at {place}");
            }
        }
    }
}
