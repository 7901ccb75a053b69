//! What a request is for: the target of its first line, and its host (RFC 9112, 3.2).

use super::Refusal;
use crate::Method;
use std::ops::Range;

/// A target, in its parts: places in its bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Path and query; empty where an absolute form has no path.
    pub(crate) path_and_query: Range<usize>,
    /// The host that an absolute form names.
    pub(crate) host: Option<Range<usize>>,
}

/// Takes a target apart.
pub(crate) fn parse(method: Method, target: &[u8]) -> Result<Target, Refusal> {
    const WRONG: Refusal = Refusal::bad("the target has a character in it that must be escaped");
    if !target.iter().all(|&byte| (b'!'..=b'~').contains(&byte) && byte != b'#') {
        return Err(WRONG);
    }
    let whole = 0..target.len();
    match target {
        [b'/', ..] if method != Method::Connect => Ok(Target { path_and_query: whole, host: None }),
        b"*" if method == Method::Options => Ok(Target { path_and_query: whole, host: None }),
        _ if method == Method::Connect => {
            check_host(target)?;
            Ok(Target { path_and_query: 0..0, host: Some(whole) })
        }
        _ => parse_absolute(target),
    }
}

fn parse_absolute(target: &[u8]) -> Result<Target, Refusal> {
    const WRONG: Refusal =
        Refusal::bad("the target is neither a path nor an http or https address");
    let colon = memchr::memchr(b':', target).ok_or(WRONG)?;
    let (scheme, rest) = target.split_at(colon);
    let known = scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https");
    if !known || !rest.starts_with(b"://") {
        return Err(WRONG);
    }
    let start = colon + 3;
    let rest = &target[start..];
    let end = rest.iter().position(|&byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    check_host(&rest[..end])?;
    let path_and_query = start + end..target.len();
    Ok(Target { path_and_query, host: Some(start..start + end) })
}

/// Whether this is a host, and perhaps a port (RFC 3986, 3.2.2), and nothing else.
pub(crate) fn check_host(host: &[u8]) -> Result<(), Refusal> {
    const WRONG: Refusal = Refusal::bad("the host is not one");
    let end = if host.first() == Some(&b'[') {
        let end = memchr::memchr(b']', host).ok_or(WRONG)?;
        let address = std::str::from_utf8(&host[1..end]).map_err(|_| WRONG)?;
        address.parse::<std::net::Ipv6Addr>().map_err(|_| WRONG)?;
        end + 1
    } else {
        span(host, 0, &NAME)
    };
    match &host[end..] {
        _ if end == 0 => Err(WRONG),
        [] => Ok(()),
        [b':', port @ ..] if is_port(port) => Ok(()),
        [b':', ..] => Err(Refusal::bad("the port of the host is not one")),
        _ => Err(WRONG),
    }
}

fn is_port(port: &[u8]) -> bool {
    let mut number = 0u32;
    for &digit in port {
        number = number * 10 + u32::from(digit.wrapping_sub(b'0'));
        if !digit.is_ascii_digit() || number > 65_535 {
            return false;
        }
    }
    (1..=5).contains(&port.len())
}

/// Where the bytes of a kind end that begin `at` this place.
#[inline]
pub(super) fn span(bytes: &[u8], mut at: usize, kind: &[bool; 256]) -> usize {
    while let Some(&byte) = bytes.get(at)
        && kind[usize::from(byte)]
    {
        at += 1;
    }
    at
}

/// The bytes that the name of a host may have.
pub(super) static NAME: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 256 {
        let other =
            matches!(byte as u8, b'-' | b'.' | b'_' | b'~' | b'%' | b'!' | b'$' | b'&' | b'\'')
                || matches!(byte as u8, b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=');
        table[byte] = (byte as u8).is_ascii_alphanumeric() || other;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(method: Method, target: &str) -> Option<(&str, Option<&str>)> {
        let found = parse(method, target.as_bytes()).ok()?;
        Some((&target[found.path_and_query], found.host.map(|host| &target[host])))
    }

    #[test]
    fn j3_targets_have_four_forms() {
        use Method::*;
        assert_eq!(parts(Get, "/a?b"), Some(("/a?b", None)));
        assert_eq!(parts(Get, "http://a.b:80/c?d"), Some(("/c?d", Some("a.b:80"))));
        assert_eq!(parts(Get, "HTTPS://[::1]"), Some(("", Some("[::1]"))));
        assert_eq!(parts(Get, "http://a?b"), Some(("?b", Some("a"))));
        assert_eq!(parts(Options, "*"), Some(("*", None)));
        assert_eq!(parts(Connect, "a.b:443"), Some(("", Some("a.b:443"))));
        for (method, target) in [
            (Get, "*"),
            (Get, "a.b:80"),
            (Get, "a/b"),
            (Get, "ftp://a/"),
            (Get, "http:/a"),
            (Get, "http://"),
            (Get, "http:///a"),
            (Get, "http://u@a/"),
            (Get, "http://a:x/"),
            (Get, "/a#b"),
            (Get, "/a\u{e4}"),
            (Get, "/a\u{7f}"),
            (Get, "/a b"),
            (Get, ""),
            (Connect, "/"),
            (Connect, "http://a/"),
        ] {
            assert_eq!(parts(method, target), None, "{method} {target}");
        }
    }

    #[test]
    fn j3_hosts_are_names_or_addresses_with_a_port_perhaps() {
        for host in ["a", "a.b:1", "127.0.0.1:65535", "[::1]", "[::1]:80", "xn--a-0.b", "_x.y"] {
            assert!(check_host(host.as_bytes()).is_ok(), "{host}");
        }
        for host in [
            "", ":80", "a:", "a:b", "a:65536", "a:123456", "a/b", "u@a", "a b", "[::1", "[a]",
            "[::1]x", "a:1:2", "a\0",
        ] {
            assert!(check_host(host.as_bytes()).is_err(), "{host}");
        }
    }
}
