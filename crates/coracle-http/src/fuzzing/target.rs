//! Entry for targets: what a request is for, in its four forms, beside a twin that splits text.

use crate::h1::head::{Parsed, parse};
use crate::h1::target;
use crate::{Method, OwnedRequest, Settings};
use std::net::Ipv6Addr;

/// Host, path and query.
type Parts = (Option<String>, String, Option<String>);

/// A target is what splitting it gives, or refused; and a head with it in its first line says the same.
///
/// # Panics
/// When it is not.
pub fn target(bytes: &[u8]) {
    for method in [Method::Get, Method::Options, Method::Connect] {
        let expected = split(method, bytes);
        let found = target::parse(method, bytes);
        assert_eq!(found.is_ok(), expected.is_some(), "{method} {}", bytes.escape_ascii());
        let mut request = OwnedRequest::blank();
        let head =
            [method.name().as_bytes(), b" ", bytes, b" HTTP/1.1\r\nHost: h\r\n\r\n"].concat();
        let parsed = parse(&head, &Settings::default(), &mut request);
        let Some((host, path, query)) = expected else {
            // Unless it is no target but several words, and more of a head.
            let one = bytes.iter().all(|byte| !byte.is_ascii_whitespace());
            assert!(!one || !matches!(parsed, Ok(Parsed::Whole(_))), "{}", head.escape_ascii());
            continue;
        };
        let Ok(Parsed::Whole(_)) = parsed else {
            assert!(
                bytes.len() > Settings::default().limit_target_bytes,
                "{}",
                head.escape_ascii()
            );
            continue;
        };
        let request = request.request();
        assert_eq!(request.host(), Some(host.as_deref().unwrap_or("h")));
        assert_eq!((request.path(), request.query()), (&path[..], query.as_deref()));
        let segments: Vec<String> = match path.strip_prefix('/') {
            None | Some("") => Vec::new(),
            Some(rest) => rest.split('/').map(decode).collect(),
        };
        assert_eq!(request.segments(), segments);
    }
}

/// Its parts, by splitting.
fn split(method: Method, bytes: &[u8]) -> Option<Parts> {
    let text = String::from_utf8(bytes.to_vec()).ok()?;
    if text.is_empty() || text.contains('#') || !text.chars().all(|c| c.is_ascii_graphic()) {
        return None;
    }
    let path_and_query = |text: &str| match text.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (text.to_owned(), None),
    };
    if method == Method::Connect {
        // Nobody but a proxy knows what to do with it: it is told as it came.
        return is_host(&text).then(|| (Some(text.clone()), text, None));
    }
    if text.starts_with('/') || (text == "*" && method == Method::Options) {
        let (path, query) = path_and_query(&text);
        return Some((None, path, query));
    }
    let (scheme, rest) = text.split_once("://")?;
    if !["http", "https"].contains(&&scheme.to_ascii_lowercase()[..]) {
        return None;
    }
    let host: String = rest.chars().take_while(|&c| c != '/' && c != '?').collect();
    let (path, query) = path_and_query(&rest[host.len()..]);
    let path = if path.is_empty() { "/".to_owned() } else { path };
    is_host(&host).then_some((Some(host), path, query))
}

fn is_host(text: &str) -> bool {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let Some((address, port)) = rest.split_once(']') else { return false };
            if address.parse::<Ipv6Addr>().is_err() {
                return false;
            }
            ("ipv6", port)
        }
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~%!$&'()*+,;=".contains(c);
    let port_fits = match port.strip_prefix(':') {
        None => port.is_empty(),
        Some(port) => {
            let digits = port.chars().all(|c| c.is_ascii_digit());
            digits && (1..=5).contains(&port.len()) && port.parse::<u16>().is_ok()
        }
    };
    !name.is_empty() && name.chars().all(allowed) && port_fits
}

/// A segment, with its escapes decoded.
fn decode(segment: &str) -> String {
    let (bytes, mut decoded, mut at) = (segment.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).filter(|two| two.iter().all(u8::is_ascii_hexdigit));
        match digits.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                decoded.push(byte);
                at += 3;
            }
            _ => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn j3_targets_are_what_splitting_them_gives(
            text in "(http://|HTTPS://|ftp://|[*:/?#@a%é \\[\\]]|%41|::1|:80|:65536|a.b){0,8}",
        ) {
            super::target(text.as_bytes());
        }
    }
}
