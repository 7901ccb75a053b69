//! The head of a request that is as plain as most are, read in one pass.
//!
//! A method that everybody knows, a path, `HTTP/1.1`, fields on lines of their own, each ending in CRLF. Whatever
//! is different, or not all there, or not to be taken, is left to the [slow way](super::head), which knows why:
//! here nothing is refused, and nothing is taken that the slow way would not take for the same.

use super::head::{Facts, Found, LIMIT_FIELDS};
use super::target::{NAME, span};
use crate::headers::{Field, TOKEN, Text};
use crate::settings::Settings;
use crate::{Method, OwnedRequest, Version};

/// What is behind the target.
const VERSION: &[u8] = b" HTTP/1.1\r\n";

/// What is behind this is not looked at, so that each place in a head is a number of 32 bits.
const LIMIT_BYTES: usize = u32::MAX as usize;

/// Looks for a plain head at the beginning of `bytes`, and puts it `into` a request that is blank, which it stays
/// if there is none.
#[inline(never)] // it needs all registers
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
#[inline(always)]
fn fields(bytes: &[u8], at: usize, settings: &Settings, into: &mut OwnedRequest) -> Option<Facts> {
    let limit = settings.limit_headers.min(LIMIT_FIELDS);
    let (mut found, mut count) = (Found::default(), 0);
    let mut rest = bytes.get(at..)?;
    while !rest.starts_with(b"\r\n") {
        if count == limit {
            return None;
        }
        let (name_len, skipped, value_len, next) = match host(rest) {
            Some((len, next)) => {
                found.note_name_of_host();
                (4, 1, len, next)
            }
            None => {
                let (name, behind) = rest.split_at_checked(span(rest, 0, &TOKEN))?;
                let line = behind.strip_prefix(b":")?;
                let (value, end) = line.split_at_checked(value_len(line))?;
                let (skipped, value) = trim(value);
                if name.is_empty() {
                    return None;
                }
                found.note(name, value, bytes).ok()?;
                (name.len(), skipped, value.len(), end.strip_prefix(b"\r\n")?)
            }
        };
        let at = bytes.len() - rest.len();
        let value_at = at + name_len + 1 + skipped;
        into.headers.fields.push(Field {
            name: place(at, at + name_len),
            value: place(value_at, value_at + value_len),
        });
        count += 1;
        rest = next;
    }
    let len = bytes.len() - rest.len() + 2;
    if len > settings.limit_header_bytes {
        return None;
    }
    found.conclude(Version::Http11, len).ok()
}

/// The field that every request has, as most write it: how long the name of the host is, and what is behind its
/// line.
#[inline(always)]
fn host(rest: &[u8]) -> Option<(usize, &[u8])> {
    let line = rest.strip_prefix(b"Host: ")?;
    let len = span(line, 0, &NAME);
    let next = line.get(len..)?.strip_prefix(b"\r\n")?;
    (len > 0).then_some((len, next))
}

/// A value without the blanks around it, and how many are before it.
#[inline]
fn trim(value: &[u8]) -> (usize, &[u8]) {
    let (mut rest, mut skipped) = (value, 0);
    while let [b' ' | b'\t', behind @ ..] = rest {
        rest = behind;
        skipped += 1;
    }
    while let [before @ .., b' ' | b'\t'] = rest {
        rest = before;
    }
    (skipped, rest)
}

/// How long the value is that begins here: up to the first control character that is no tab.
#[inline]
fn value_len(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    loop {
        if let Some((&eight, behind)) = rest.split_first_chunk() {
            let found = controls(u64::from_le_bytes(eight));
            if found == 0 {
                rest = behind;
                continue;
            }
            rest = &rest[found.trailing_zeros() as usize / 8..];
        } else {
            let end = rest.iter().position(u8::is_ascii_control).unwrap_or(rest.len());
            rest = &rest[end..];
        }
        match rest {
            [b'\t', behind @ ..] => rest = behind,
            _ => return bytes.len() - rest.len(),
        }
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
    fn j3_a_host_is_read_at_once_if_it_is_a_name_and_nothing_else() {
        assert_eq!(host(b"Host: a.b\r\nx: y"), Some((3, &b"x: y"[..])));
        for other in [
            "Host: \r\n",
            "Host:a\r\n",
            "Host:  a\r\n",
            "Host: a \r\n",
            "Host: a:80\r\n",
            "Host: a/b\r\n",
            "Host: [::1]\r\n",
            "Host: a\n",
            "Host: a\r",
            "Host: a",
            "Host: ",
            "host: a\r\n",
            "Hosts: a\r\n",
            "",
        ] {
            assert_eq!(host(other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn j3_values_end_at_control_characters_wherever_these_are() {
        for byte in 0..=255u8 {
            for place in 0..20 {
                let mut text = [b'~'; 20];
                text[place] = byte;
                text[19] = b'\n';
                let slow = |&byte: &u8| byte.is_ascii_control() && byte != b'\t';
                let expected = text.iter().position(slow).unwrap();
                assert_eq!(value_len(&text), expected, "{byte} at {place}");
            }
        }
    }
}
