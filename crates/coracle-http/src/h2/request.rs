//! From what `h2` has of a request to what a handler sees: as strict as HTTP/1 is here.

use crate::h1::head::Facts;
use crate::h1::{Framing, Refusal, target};
use crate::headers::{Field, Text};
use crate::{Headers, Method, OwnedRequest, Settings, Status, Version};
use http::{HeaderMap, HeaderValue, header};

/// Fills `into`, which is blank, with the head of a request that has a body or not.
pub(super) fn read_head<B>(
    request: &http::Request<B>,
    has_body: bool,
    settings: &Settings,
    into: &mut OwnedRequest,
) -> Result<Facts, Refusal> {
    into.be_unknown();
    into.version = Version::Http2;
    into.headers.text.clear();
    let name = request.method().as_str();
    if name.len() > settings.limit_method_bytes {
        return Err(Refusal::new(Status::NOT_IMPLEMENTED, "the method's name is too long"));
    }
    let method = Method::from_bytes(name.as_bytes());
    into.method_name = keep(&mut into.headers, name.as_bytes());
    into.method = method;
    let fields = request.headers();
    let found = Found::among(fields);
    read_target(request.uri(), &found, method, settings, into)?;
    into.known = crate::owned_request::Known::Begin;
    let framing = read_fields(fields, &found, has_body, settings, into)?;
    into.known = crate::owned_request::Known::Whole;
    let expects_continue = found.expects_continue;
    Ok(Facts { len: 0, framing, keep_alive: true, expects_continue, upgrade: false })
}

/// The fields that mean something to a server, found by looking at each once: to look one up costs more.
#[derive(Default)]
struct Found<'a> {
    host: Option<&'a HeaderValue>,
    hosts: usize,
    has_cookie: bool,
    expects_continue: bool,
    expects_else: bool,
    length: Option<&'a HeaderValue>,
    lengths: usize,
}

impl Found<'_> {
    fn among(fields: &HeaderMap) -> Found<'_> {
        let mut found = Found::default();
        for (name, value) in fields {
            match *name {
                header::HOST => {
                    found.host.get_or_insert(value);
                    found.hosts += 1;
                }
                header::COOKIE => found.has_cookie = true,
                header::EXPECT => {
                    let is_continue = value.as_bytes().eq_ignore_ascii_case(b"100-continue");
                    found.expects_continue |= is_continue;
                    found.expects_else |= !is_continue;
                }
                header::CONTENT_LENGTH => {
                    found.length.get_or_insert(value);
                    found.lengths += 1;
                }
                _ => {}
            }
        }
        found
    }
}

/// The path, the query and the host.
fn read_target(
    uri: &http::Uri,
    found: &Found<'_>,
    method: Method,
    settings: &Settings,
    into: &mut OwnedRequest,
) -> Result<(), Refusal> {
    const HOSTS_DIFFER: Refusal = Refusal::bad(":authority and Host are not the same");
    let target = uri.path_and_query().map_or("", |target| target.as_str());
    if target.len() > settings.limit_target_bytes {
        return Err(Refusal::new(Status::URI_TOO_LONG, "the target is too long"));
    }
    if method != Method::Connect {
        target::parse(method, target.as_bytes())?;
        let start = into.headers.text.len();
        into.headers.text.extend_from_slice(target.as_bytes());
        into.set_target(start, start + target.len());
    }
    let host = found.host.map(|host| host.as_bytes());
    let authority = uri.authority().map(|authority| authority.as_str().as_bytes());
    if found.hosts > 1 {
        return Err(Refusal::bad("there is more than one Host"));
    }
    match (authority, host) {
        (None, None) => return Err(Refusal::bad("there is no Host")),
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            return Err(HOSTS_DIFFER);
        }
        (Some(authority), _) => {
            target::check_host(authority)?;
            let host = keep(&mut into.headers, authority);
            into.host = Some(host);
        }
        (None, Some(host)) => target::check_host(host)?,
    }
    Ok(())
}

/// The fields, and what follows from them for the body.
fn read_fields(
    fields: &HeaderMap,
    found: &Found<'_>,
    has_body: bool,
    settings: &Settings,
    into: &mut OwnedRequest,
) -> Result<Framing, Refusal> {
    const TOO_LARGE: Refusal =
        Refusal::new(Status::REQUEST_HEADER_FIELDS_TOO_LARGE, "the header is too large");
    let headers = &mut into.headers;
    if let Some(host) = into.host.filter(|_| found.host.is_none()) {
        headers.fields.push(Field { name: Text::Static("host"), value: host });
    }
    if found.has_cookie {
        // They may come one by one, to be compressed better (RFC 9113, 8.2.3).
        let start = headers.text.len();
        for (index, cookie) in fields.get_all(header::COOKIE).iter().enumerate() {
            headers.text.extend_from_slice(if index == 0 { b"" } else { b"; " });
            headers.text.extend_from_slice(cookie.as_bytes());
        }
        let value = Text::between(start, headers.text.len());
        headers.fields.push(Field { name: Text::Static("cookie"), value });
    }
    for (name, value) in fields {
        if name == header::COOKIE {
            continue;
        }
        let name = keep(headers, name.as_str().as_bytes());
        let value = keep(headers, value.as_bytes().trim_ascii());
        headers.fields.push(Field { name, value });
    }
    if headers.fields.len() > settings.limit_headers
        || headers.text.len() > settings.limit_header_bytes
    {
        return Err(TOO_LARGE);
    }
    if found.expects_else {
        return Err(Refusal::new(Status::EXPECTATION_FAILED, "only 100-continue can be expected"));
    }
    if found.lengths > 1 {
        return Err(Refusal::bad("there is more than one Content-Length"));
    }
    // That it is a number, and the right one, is seen where the frames are.
    let length = found.length.and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
    Ok(match length {
        _ if !has_body => Framing::None,
        Some(length @ 1..) => Framing::Length(length),
        _ => Framing::Chunked,
    })
}

/// The fields behind a body.
pub(super) fn read_trailers(fields: &HeaderMap, settings: &Settings) -> Result<Headers, Refusal> {
    let headers = Headers::from(fields);
    if headers.len() > settings.limit_trailers || headers.text.len() > settings.limit_trailer_bytes
    {
        return Err(Refusal::bad("there are too many fields behind the body"));
    }
    Ok(headers)
}

fn keep(headers: &mut Headers, bytes: &[u8]) -> Text {
    let start = headers.text.len();
    headers.text.extend_from_slice(bytes);
    Text::between(start, headers.text.len())
}
