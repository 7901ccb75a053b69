//! The head of a request that is as plain as most are, read in one pass.
//!
//! A method that everybody knows, a path, `HTTP/1.1`, fields on lines of their own, each ending in CRLF. Whatever
//! is different, or not all there, or not to be taken, is left to the [slow way](super::head), which knows why:
//! here nothing is refused, and nothing is taken that the slow way would not take for the same.

use super::head::{Facts, Found, LIMIT_FIELDS};
use crate::headers::{Field, Text, is_token};
use crate::settings::Settings;
use crate::{Method, OwnedRequest, Version};

/// What is behind the target.
const VERSION: &[u8] = b" HTTP/1.1\r\n";

/// Looks for a plain head at the beginning of `bytes`, and puts it `into` a request that is blank, which it stays
/// if there is none.
#[inline]
pub(crate) fn read(bytes: &[u8], settings: &Settings, into: &mut OwnedRequest) -> Option<Facts> {
    let (method, name_len) = method(bytes)?;
    let target_at = name_len + 1;
    let path_end = target_at + path_len(&bytes[target_at..]);
    let target_end = match bytes.get(path_end) {
        Some(b'?') => path_end + query_len(&bytes[path_end..]),
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
    into.method_name = Text::between(0, name_len);
    into.version = Version::Http11;
    into.path = Text::between(target_at, path_end);
    into.query = (path_end < target_end).then(|| Text::between(path_end + 1, target_end));
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

/// How many of the first bytes can be in a path.
#[inline]
fn path_len(bytes: &[u8]) -> usize {
    let is_in = |byte: u8| byte.is_ascii_graphic() && byte != b'#' && byte != b'?';
    bytes.iter().position(|&byte| !is_in(byte)).unwrap_or(bytes.len())
}

/// How many of the first bytes can be in a query.
#[inline]
fn query_len(bytes: &[u8]) -> usize {
    let is_in = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    bytes.iter().position(|&byte| !is_in(byte)).unwrap_or(bytes.len())
}

/// Reads the fields, which begin `at` this place, to the empty line behind them.
#[inline]
fn fields(
    bytes: &[u8],
    mut at: usize,
    settings: &Settings,
    into: &mut OwnedRequest,
) -> Option<Facts> {
    let limit = settings.limit_headers.min(LIMIT_FIELDS);
    let mut found = Found::default();
    while !bytes[at..].starts_with(b"\r\n") {
        let name_len = bytes[at..].iter().position(|&byte| !is_token(byte))?;
        let colon = at + name_len;
        if name_len == 0 || bytes[colon] != b':' || into.headers.fields.len() == limit {
            return None;
        }
        let end = value_end(bytes, colon + 1);
        if !bytes[end..].starts_with(b"\r\n") {
            return None;
        }
        let value = bytes[colon + 1..end].trim_ascii_start();
        let value_at = end - value.len();
        let value = value.trim_ascii_end();
        found.note(&bytes[at..colon], value, bytes).ok()?;
        into.headers.fields.push(Field {
            name: Text::between(at, colon),
            value: Text::between(value_at, value_at + value.len()),
        });
        at = end + 2;
    }
    at += 2;
    if at > settings.limit_header_bytes {
        return None;
    }
    found.conclude(Version::Http11, at).ok()
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
