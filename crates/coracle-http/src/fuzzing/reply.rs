//! What must be true of answers, and of what proxies say of a connection, beside twins that split text.

use super::{bare, decode_slowly, named};
use crate::h1::chunks::Piece;
use crate::h1::reply::{End, Incoming, Parsed, parse};
use crate::proxy_protocol;
use crate::{Headers, Method, Settings};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Looks at an answer that may be anything, as it comes in pieces of `step` bytes. `step` also says what was
/// asked.
///
/// # Panics
/// When it is understood differently by somebody who only knows lines, or depends on the pieces.
pub fn reply(bytes: &[u8], step: usize) {
    let method = if step.is_multiple_of(2) { Method::Get } else { Method::Head };
    let settings = Settings::default();
    let mut headers = Headers::new();
    let Ok(Parsed::Whole(facts)) = parse(bytes, &settings, method, &mut headers) else { return };
    let (taken, rest) = bytes.split_at(facts.len);
    for end in 0..taken.len().min(300) {
        let part = parse(&taken[..end], &settings, method, &mut Headers::new());
        assert_eq!(part.ok(), Some(Parsed::Partial), "{}", taken[..end].escape_ascii());
    }
    // Every byte is read as a character: nothing here looks at more than ASCII.
    let text: String = taken.iter().map(|&byte| char::from(byte)).collect();
    assert!(text.ends_with("\r\n\r\n"), "{text:?}");
    assert!(!text.replace("\r\n", "").contains(['\r', '\n', '\0']), "{text:?}");
    let lines: Vec<&str> = text.trim_end_matches("\r\n").split("\r\n").collect();
    let version = &lines[0][..8];
    assert!(["HTTP/1.0", "HTTP/1.1"].contains(&version), "{text:?}");
    assert_eq!(lines[0][8..12], format!(" {}", facts.status.as_u16()), "{text:?}");
    assert_eq!(lines.len() - 1, headers.len(), "{text:?}");
    let named = |name: &str| named(&lines[1..], name);
    let (lengths, codings) = (named("content-length"), named("transfer-encoding"));
    let told: Vec<Option<u64>> = lengths.iter().map(|told| told.parse().ok()).collect();
    let bodiless = method == Method::Head || matches!(facts.status.as_u16(), 100..=199 | 204 | 304);
    let expected = match (&told[..], &codings[..]) {
        _ if bodiless => End::None,
        ([], []) => End::Close,
        ([Some(0)], []) => End::None,
        ([Some(length)], []) => End::Length(*length),
        ([], [coding]) if coding == "chunked" => End::Chunked,
        _ => panic!("it can be read in two ways: {text:?}"),
    };
    assert_eq!(facts.end, expected, "{text:?}");
    let listed: Vec<String> = named("connection")
        .iter()
        .flat_map(|value| value.split(',').map(|token| bare(token).to_owned()).collect::<Vec<_>>())
        .collect();
    let says = |token: &str| listed.iter().any(|it| it == token);
    let keeps = !says("close") && (version == "HTTP/1.1" || says("keep-alive"));
    assert_eq!(facts.keep_alive, keeps && expected != End::Close, "{text:?}");
    let fast = body(facts.end, rest, step.max(1), &settings);
    let slow = match facts.end {
        End::None => Some(Vec::new()),
        End::Close => Some(rest.to_vec()),
        End::Length(length) => {
            usize::try_from(length).ok().and_then(|length| rest.get(..length)).map(<[u8]>::to_vec)
        }
        End::Chunked => decode_slowly(rest, &settings),
    };
    assert_eq!(fast, slow, "{}", bytes.escape_ascii());
}

/// The body of an answer that comes in pieces, and then the connection ends; nothing if it is not whole.
fn body(end: End, bytes: &[u8], step: usize, settings: &Settings) -> Option<Vec<u8>> {
    let mut incoming = Incoming::new(end, u64::MAX).ok()?;
    let limit = settings.limit_body_bytes;
    if end == End::Chunked {
        incoming = Incoming::new(end, limit).ok()?;
    }
    let (mut input, mut fed, mut data) = (Vec::new(), 0, Vec::new());
    let mut trailers = Headers::new();
    loop {
        match incoming.next(&input, settings, &mut trailers).ok()? {
            Piece::Data { skip, len } => {
                data.extend_from_slice(&input[skip..skip + len]);
                input.drain(..skip + len);
            }
            Piece::End { .. } => return Some(data),
            Piece::More { skip } => {
                input.drain(..skip);
                if fed == bytes.len() {
                    return incoming.ends_with_connection().then_some(data);
                }
                let next = bytes.len().min(fed + step);
                input.extend_from_slice(&bytes[fed..next]);
                fed = next;
            }
        }
    }
}

/// Looks at what a proxy says of a connection, which may be anything.
///
/// # Panics
/// When a slow reader understands it differently, or a part of it is taken for all.
pub fn proxy_header(bytes: &[u8]) {
    use proxy_protocol::Parsed;
    let fast = match proxy_protocol::parse(bytes) {
        Ok(Parsed::Whole { len, source }) => Some((len, source)),
        Ok(Parsed::Partial) | Err(_) => None,
    };
    assert_eq!(fast, read_slowly(bytes), "{}", bytes.escape_ascii());
    if let Some((len, _)) = fast {
        for end in 0..len.min(300) {
            let part = proxy_protocol::parse(&bytes[..end]);
            assert_eq!(part, Ok(Parsed::Partial), "{}", bytes[..end].escape_ascii());
        }
    }
}

/// The same by the words of its specification.
fn read_slowly(bytes: &[u8]) -> Option<(usize, Option<SocketAddr>)> {
    if let Some(rest) = bytes.strip_prefix(b"\r\n\r\n\0\r\nQUIT\n") {
        let len = usize::from(*rest.get(2)?) * 256 + usize::from(*rest.get(3)?);
        if len + 16 > proxy_protocol::LIMIT_BYTES {
            return None;
        }
        let told = rest.get(4..4 + len)?;
        let port =
            |at: usize| Some(u16::from(*told.get(at)?) * 256 + u16::from(*told.get(at + 1)?));
        let (is_local, is_remote) = (rest[0] == 0x20, rest[0] == 0x21);
        let source = match rest[1] {
            _ if !is_local && !is_remote => return None,
            0x00 => None,
            0x11 | 0x12 | 0x21 | 0x22 | 0x31 | 0x32 if is_local => None,
            0x11 | 0x12 => {
                let ip: [u8; 4] = told.get(..4)?.try_into().ok()?;
                let _target = told.get(..12)?;
                Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port(8)?))
                    .filter(|_| rest[1] == 0x11)
            }
            0x21 | 0x22 => {
                let ip: [u8; 16] = told.get(..16)?.try_into().ok()?;
                let _target = told.get(..36)?;
                Some(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)), port(32)?))
                    .filter(|_| rest[1] == 0x21)
            }
            0x31 | 0x32 => told.get(..216).map(|_| None)?,
            _ => return None,
        };
        return Some((16 + len, source));
    }
    let at = bytes.iter().position(|&byte| byte == b'\n')?;
    let line = std::str::from_utf8(&bytes[..=at]).ok()?.strip_suffix("\r\n")?;
    if at + 1 > 107 {
        return None;
    }
    if line == "PROXY UNKNOWN" || line.starts_with("PROXY UNKNOWN ") {
        return Some((at + 1, None));
    }
    let words: Vec<&str> = line.split(' ').collect();
    let ["PROXY", kind, source, target, from, to] = words[..] else { return None };
    let ip = |text: &str| -> Option<IpAddr> {
        let ip: IpAddr = text.parse().ok()?;
        (ip.is_ipv4() == (kind == "TCP4") && ["TCP4", "TCP6"].contains(&kind)).then_some(ip)
    };
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| port.to_string() == text);
    ip(target)?;
    port(to)?;
    Some((at + 1, Some(SocketAddr::new(ip(source)?, port(from)?))))
}
