//! Heads on their way through: what is told to the next, and what was said to us only.

use super::settings::{HostPolicy, Settings};
use super::trailers;
use super::upstream::Upstream;
use crate::client::request::{write_field, write_length, write_line};
use crate::{Headers, Method, Request};
use coracle_net::Address;
use std::net::IpAddr;

/// How the body of a request is sent on: framed anew, whatever it came like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length(u64),
    Chunks,
}

/// Whether a field concerns one connection only (RFC 9110, 7.6.1), or says how a message is read. Also `Proxy`,
/// which no client has a reason to send and CGI takes for a setting.
pub(super) fn is_hop_by_hop(name: &[u8]) -> bool {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    match name.len() {
        2 => is(b"te"),
        5 => is(b"proxy"),
        6 => is(b"expect"),
        7 => is(b"upgrade") || is(b"trailer"),
        10 => is(b"connection") || is(b"keep-alive"),
        14 => is(b"content-length") || is(b"http2-settings"),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        18 => is(b"proxy-authenticate"),
        19 => is(b"proxy-authorization"),
        _ => false,
    }
}

/// The names that `Connection` lists besides its own.
fn named(headers: &Headers) -> Vec<&[u8]> {
    let mut names = Vec::new();
    for (name, value) in headers.raw() {
        if name.len() == 10 && name.eq_ignore_ascii_case(b"connection") {
            let tokens = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
            let known = |token: &[u8]| {
                [&b"close"[..], b"keep-alive", b"upgrade", b""]
                    .iter()
                    .any(|it| it.eq_ignore_ascii_case(token))
            };
            names.extend(tokens.filter(|token| !known(token)));
        }
    }
    names
}

/// Writes the head of a request, as the upstream gets it.
pub(super) fn write_request(
    out: &mut Vec<u8>,
    req: &Request<'_>,
    upstream: &Upstream,
    settings: &Settings,
    framing: Framing,
    upgrade: Option<&str>,
) {
    let path = req.path();
    out.extend_from_slice(req.method_name().as_bytes());
    out.push(b' ');
    if path != "*" {
        out.extend_from_slice(upstream.base().as_bytes());
    }
    out.extend_from_slice(path.as_bytes());
    if let Some(query) = req.query() {
        out.push(b'?');
        out.extend_from_slice(query.as_bytes());
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let host = match &settings.host {
        HostPolicy::Keep => req.host().unwrap_or(upstream.host()),
        HostPolicy::Upstream => upstream.host(),
        HostPolicy::Fixed(host) => host,
    };
    write_field(out, b"host", host.as_bytes());
    let named = named(req.headers());
    let is_trusted = settings.x_forwarded && is_trusted(req, settings);
    for (name, value) in req.headers().raw() {
        let dropped = is_hop_by_hop(name)
            || (name.len() == 4 && name.eq_ignore_ascii_case(b"host"))
            || (is_about_the_client(name) && !(is_trusted && is_handed_on(name)))
            || named.iter().any(|it| it.eq_ignore_ascii_case(name));
        // Which fields follow the chunks is for who gets these.
        let announces = framing == Framing::Chunks && name.eq_ignore_ascii_case(b"trailer");
        if !dropped || announces {
            write_field(out, name, value);
        }
    }
    write_client(out, req, settings);
    match framing {
        Framing::None if matches!(req.method(), Method::Post | Method::Put | Method::Patch) => {
            write_length(out, 0);
        }
        Framing::None => {}
        Framing::Length(len) => write_length(out, len),
        Framing::Chunks => write_field(out, b"transfer-encoding", b"chunked"),
    }
    if let Some(protocol) = upgrade {
        write_field(out, b"connection", b"upgrade");
        write_field(out, b"upgrade", protocol.as_bytes());
    } else if trailers::are_wanted(req) {
        // It is for each connection to say (RFC 9110, 10.1.4); what the client wants we want.
        write_field(out, b"te", b"trailers");
        write_field(out, b"connection", b"te");
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes a question about health.
pub(super) fn write_question(out: &mut Vec<u8>, path: &str, host: &str) {
    write_line(out, "GET", path);
    write_field(out, b"host", host.as_bytes());
    write_field(out, b"user-agent", concat!("coracle/", env!("CARGO_PKG_VERSION")).as_bytes());
    write_field(out, b"connection", b"close");
    out.extend_from_slice(b"\r\n");
}

/// Whether a field says who asks, and how: anybody can write that. Some read `_` as `-`, as CGI does.
pub(super) fn is_about_the_client(name: &[u8]) -> bool {
    let begins = |with: &[u8]| {
        let is = |byte: u8, other: u8| {
            byte.eq_ignore_ascii_case(&other) || (byte, other) == (b'_', b'-')
        };
        name.len() >= with.len() && name.iter().zip(with).all(|(&byte, &other)| is(byte, other))
    };
    begins(b"x-forwarded-") || (name.len() == 9 && (begins(b"forwarded") || begins(b"x-real-ip")))
}

/// Whether such a field of somebody who is trusted is handed on as it is. The others are said anew, or are none.
fn is_handed_on(name: &[u8]) -> bool {
    const ANEW: [&[u8]; 4] =
        [b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"];
    !name.contains(&b'_') && !ANEW.iter().any(|it| it.eq_ignore_ascii_case(name))
}

/// Whether the word of whoever asks is taken for who has asked it.
fn is_trusted(req: &Request<'_>, settings: &Settings) -> bool {
    !settings.trusted.is_empty() && settings.trusted.contains(req.peer())
}

/// Says who asks, and takes the word of those who are trusted for who has asked them.
fn write_client(out: &mut Vec<u8>, req: &Request<'_>, settings: &Settings) {
    if !settings.x_forwarded && !settings.forwarded {
        return;
    }
    let trusted = is_trusted(req, settings);
    let said = |name: &str| -> Option<String> {
        let all: Vec<&str> = req.headers().get_all(name).filter(|_| trusted).collect();
        (!all.is_empty()).then(|| all.join(", "))
    };
    let ip = match req.peer() {
        Address::Ip(address) => Some(address.ip().to_canonical()),
        Address::Unix(_) => None,
    };
    let host = req.host().unwrap_or_default();
    let came_by = if req.is_secure() { "https" } else { settings.scheme };
    if settings.x_forwarded {
        out.extend_from_slice(b"x-forwarded-for: ");
        if let Some(before) = said("x-forwarded-for") {
            out.extend_from_slice(before.as_bytes());
            out.extend_from_slice(b", ");
        }
        write_ip(out, ip);
        out.extend_from_slice(b"\r\n");
        match said("x-forwarded-host") {
            Some(host) => write_field(out, b"x-forwarded-host", host.as_bytes()),
            None if host.is_empty() => {}
            None => write_field(out, b"x-forwarded-host", host.as_bytes()),
        }
        let scheme = said("x-forwarded-proto");
        let scheme = scheme.as_deref().unwrap_or(came_by);
        write_field(out, b"x-forwarded-proto", scheme.as_bytes());
    }
    if settings.forwarded {
        let mut value = said("forwarded").map_or_else(String::new, |before| before + ", ");
        value.push_str(&match ip {
            Some(IpAddr::V4(ip)) => format!("for={ip}"),
            Some(IpAddr::V6(ip)) => format!("for=\"[{ip}]\""),
            None => "for=unknown".to_owned(),
        });
        if !host.is_empty() {
            value.push_str(&format!(";host=\"{host}\"")); // a host has no quotes in it
        }
        value.push_str(&format!(";proto={came_by}"));
        write_field(out, b"forwarded", value.as_bytes());
    }
}

fn write_ip(out: &mut Vec<u8>, ip: Option<IpAddr>) {
    use std::io::Write;
    let _ = match ip {
        Some(IpAddr::V4(ip)) => {
            let mut number = itoa::Buffer::new();
            for (at, octet) in ip.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                out.extend_from_slice(number.format(octet).as_bytes());
            }
            Ok(())
        }
        Some(IpAddr::V6(ip)) => write!(out, "{ip}"),
        None => out.write_all(b"unknown"),
    };
}

/// Removes what the upstream has said to us only. What is about the length stays: for HEAD it is all there is. So
/// does what fields follow the body, for who wants them.
pub(super) fn clean_response(headers: &mut Headers, wants_trailers: bool) {
    let named: Vec<Vec<u8>> = named(headers).into_iter().map(<[u8]>::to_vec).collect();
    let mut fields = std::mem::take(&mut headers.fields);
    fields.retain(|field| {
        let name = headers.resolve(field.name);
        let stays = name.eq_ignore_ascii_case(b"content-length")
            || (wants_trailers && name.eq_ignore_ascii_case(b"trailer"));
        let dropped =
            (is_hop_by_hop(name) && !stays) || named.iter().any(|it| it.eq_ignore_ascii_case(name));
        !dropped
    });
    headers.fields = fields;
}

/// Whether a path, or what somebody makes of it who decodes it, leads above itself.
pub(super) fn leads_up(path: &str) -> bool {
    // Most paths have no dot that a segment begins with.
    let suspicious = path.contains("/.") || path.contains('%') || path.contains('\\');
    suspicious && {
        let decoded = percent_encoding::percent_decode_str(path).collect::<Vec<u8>>();
        let mut segments = decoded.split(|&byte| byte == b'/' || byte == b'\\');
        segments.any(|segment| {
            let name = segment.split(|&byte| byte == b';').next().unwrap_or_default();
            name == b".."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OwnedRequest;

    fn told(settings: &Settings, fields: &[(&str, &str)], peer: &str, to: &str) -> String {
        let mut owned = OwnedRequest::new("GET", "/a?b").with_peer(peer.parse().unwrap());
        for (name, value) in fields {
            owned = owned.with_header(name, value).unwrap();
        }
        let mut out = Vec::new();
        let upstream = Upstream::parse(to).unwrap();
        write_request(&mut out, &owned.request(), &upstream, settings, Framing::None, None);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn j15_what_was_said_to_us_only_is_not_handed_on() {
        let fields = [
            ("Host", "a.example"),
            ("Connection", "keep-alive, X-Secret"),
            ("Keep-Alive", "5"),
            ("X-Secret", "1"),
            ("TE", "trailers"),
            ("Trailer", "x"),
            ("Upgrade", "x"),
            ("Proxy", "http://evil"),
            ("Proxy-Connection", "close"),
            ("Proxy-Authorization", "Basic x"),
            ("Expect", "100-continue"),
            ("Content-Length", "7"),
            ("X-Forwarded-For", "1.1.1.1"),
            ("X-Real-IP", "1.1.1.1"),
            ("Forwarded", "for=1.1.1.1"),
            ("X-Forwarded-Prefix", "/evil"),
            ("x-forwarded-ssl", "on"),
            ("X_Forwarded_For", "1.1.1.1"),
            ("X-Forwarded_Proto", "https"),
            ("X_Real-Ip", "1.1.1.1"),
            ("Accept", "*/*"),
        ];
        let text = told(&Settings::default(), &fields, "192.0.2.7:1", "http://b:81/base/");
        assert_eq!(
            text,
            "GET /base/a?b HTTP/1.1\r\nhost: a.example\r\nAccept: */*\r\nx-forwarded-for: 192.0.2.7\r\n\
             x-forwarded-host: a.example\r\nx-forwarded-proto: http\r\nte: trailers\r\nconnection: te\r\n\r\n"
        );
    }

    #[test]
    fn j15_only_who_is_trusted_says_who_asks() {
        let settings = Settings {
            forwarded: true,
            trusted: "192.0.2.0/24".parse().unwrap(),
            host: HostPolicy::Upstream,
            ..Settings::default()
        };
        let fields = [
            ("Host", "a"),
            ("X-Forwarded-For", "1.1.1.1"),
            ("X-Forwarded-For", "2.2.2.2"),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Port", "444"),
            ("X-Real-IP", "1.1.1.1"),
            ("X_Real_IP", "3.3.3.3"),
            ("Forwarded", "for=1.1.1.1"),
        ];
        let text = told(&settings, &fields, "192.0.2.7:1", "http://b:81");
        assert!(
            text.contains("\r\nX-Forwarded-Port: 444\r\nX-Real-IP: 1.1.1.1\r\nx-for"),
            "{text}"
        );
        assert!(text.contains("\r\nhost: b:81\r\n"), "{text}");
        assert!(text.contains("x-forwarded-for: 1.1.1.1, 2.2.2.2, 192.0.2.7\r\n"), "{text}");
        assert!(text.contains("x-forwarded-proto: https\r\n"), "{text}");
        let forwarded = "forwarded: for=1.1.1.1, for=192.0.2.7;host=\"a\";proto=http\r\n";
        assert!(text.contains(forwarded), "{text}");
        let text = told(&settings, &fields, "[2001:db8::1]:1", "http://b:81");
        assert!(!text.contains("444") && !text.contains("1.1.1.1"), "{text}");
        assert!(text.contains("x-forwarded-for: 2001:db8::1\r\n"), "{text}");
        assert!(
            text.contains("forwarded: for=\"[2001:db8::1]\";host=\"a\";proto=http\r\n"),
            "{text}"
        );
        assert!(text.contains("x-forwarded-proto: http\r\n"), "{text}");
    }

    #[test]
    fn j15_fields_of_an_answer_that_concern_one_connection_stay_there() {
        let mut headers = Headers::new();
        for (name, value) in [
            ("Connection", "close, X-Hop"),
            ("X-Hop", "1"),
            ("Transfer-Encoding", "chunked"),
            ("Proxy-Authenticate", "Basic"),
            ("Content-Length", "5"),
            ("Set-Cookie", "a=b"),
        ] {
            headers.append(name, value).unwrap();
        }
        headers.append("Trailer", "X-Sum").unwrap();
        for (wants_trailers, left) in [
            (true, &["Content-Length", "Set-Cookie", "Trailer"][..]),
            (false, &["Content-Length", "Set-Cookie"]),
        ] {
            clean_response(&mut headers, wants_trailers);
            let names: Vec<&str> = headers.iter().map(|(name, _)| name).collect();
            assert_eq!(names, left);
        }
    }

    #[test]
    fn n2_paths_do_not_lead_above_what_is_handed_on() {
        for path in
            ["/..", "/a/../b", "/%2e%2e/b", "/a/%2E./b", "/a/..%2fb", "/a\\..\\b", "/..;x/b"]
        {
            assert!(leads_up(path), "{path}");
        }
        for path in ["/", "/a..b", "/...", "/a/.b", "/%2e", "/a%2fb", "*"] {
            assert!(!leads_up(path), "{path}");
        }
    }
}
