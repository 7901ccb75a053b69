//! What a script is told: the variables of RFC 3875, 4.1, built from nothing.

use super::script::Script;
use crate::middleware::User;
use crate::{Request, Version};
use coracle_net::Address;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Names and values. A value may be any bytes but NUL, which no request can have in it.
pub(crate) type Variables = Vec<(String, Vec<u8>)>;

/// What is told to all scripts of a directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Telling {
    pub(crate) extra: Vec<(String, String)>,
    pub(crate) authorization: bool,
    pub(crate) document_root: Option<PathBuf>,
    pub(crate) server_name: Option<String>,
    pub(crate) server_port: Option<u16>,
}

/// Fields of a request that no script is told: they concern the connection, or are told otherwise. `Proxy` would
/// be `HTTP_PROXY`, which programs take for the proxy that they are to use (CVE-2016-5385).
const UNTOLD: &[&str] = &[
    "connection",
    "content-length",
    "content-type",
    "expect",
    "keep-alive",
    "proxy",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The variables of a request for a script, whose body has so many bytes.
pub(crate) fn variables(
    req: &Request<'_>,
    script: &Script,
    body_bytes: Option<u64>,
    telling: &Telling,
) -> Variables {
    let mut all = Variables::with_capacity(32);
    let mut tell = |name: &str, value: &[u8]| all.push((name.to_owned(), value.to_vec()));
    tell("GATEWAY_INTERFACE", b"CGI/1.1");
    tell("SERVER_SOFTWARE", concat!("coracle/", env!("CARGO_PKG_VERSION")).as_bytes());
    let protocol = match req.version() {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => "HTTP/2.0",
    };
    tell("SERVER_PROTOCOL", protocol.as_bytes());
    let (host, port) =
        split_host(req.host().filter(|host| !host.is_empty()).unwrap_or("localhost"));
    tell("SERVER_NAME", telling.server_name.as_deref().unwrap_or(host).as_bytes());
    let (scheme, usual) = if req.is_secure() { ("https", 443) } else { ("http", 80) };
    let port = telling.server_port.or(port).unwrap_or(usual);
    tell("SERVER_PORT", port.to_string().as_bytes());
    tell("REQUEST_SCHEME", scheme.as_bytes());
    if req.is_secure() {
        tell("HTTPS", b"on");
    }
    tell("REQUEST_METHOD", req.method_name().as_bytes());
    let query = req.query().unwrap_or_default();
    tell("QUERY_STRING", query.as_bytes());
    let target = match req.query() {
        Some(query) => format!("{}?{query}", req.full_path()),
        None => req.full_path().to_owned(),
    };
    tell("REQUEST_URI", target.as_bytes());
    tell("SCRIPT_NAME", script.name.as_bytes());
    tell("SCRIPT_FILENAME", script.file.as_os_str().as_bytes());
    if !script.path_info.is_empty() {
        tell("PATH_INFO", script.path_info.as_bytes());
    }
    if let Some(root) = &telling.document_root {
        tell("DOCUMENT_ROOT", root.as_os_str().as_bytes());
        if !script.path_info.is_empty() {
            let path = root.join(&script.path_info[1..]); // it has no `..`
            tell("PATH_TRANSLATED", path.as_os_str().as_bytes());
        }
    }
    match req.peer() {
        Address::Ip(peer) => {
            tell("REMOTE_ADDR", peer.ip().to_canonical().to_string().as_bytes());
            tell("REMOTE_PORT", peer.port().to_string().as_bytes());
        }
        Address::Unix(_) => tell("REMOTE_ADDR", b"unix:"),
    }
    if let Some(user) = req.local::<User>() {
        tell("AUTH_TYPE", b"Basic");
        tell("REMOTE_USER", user.name().as_bytes());
    }
    if let Some(length) = body_bytes {
        tell("CONTENT_LENGTH", length.to_string().as_bytes());
    }
    if let Some(content_type) = req.headers().get_bytes("content-type") {
        tell("CONTENT_TYPE", content_type);
    }
    tell_fields(req, telling, &mut all);
    for (name, value) in &telling.extra {
        all.retain(|(other, _)| other != name);
        all.push((name.clone(), value.clone().into_bytes()));
    }
    all
}

/// The fields of the request, as `HTTP_…`. A name with an underscore would look like one with a hyphen: it is not
/// told, and nor is any that is not made of letters, digits and hyphens.
fn tell_fields(req: &Request<'_>, telling: &Telling, all: &mut Variables) {
    let first = all.len();
    for (name, value) in req.headers().iter() {
        let lower = name.to_ascii_lowercase();
        let plain = lower.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let told = plain && !UNTOLD.contains(&&*lower);
        if !told || (lower == "authorization" && !telling.authorization) {
            continue;
        }
        let name = format!("HTTP_{}", lower.to_ascii_uppercase().replace('-', "_"));
        match all[first..].iter_mut().find(|(other, _)| *other == name) {
            Some((_, before)) => {
                before.extend_from_slice(if lower == "cookie" { b"; " } else { b", " });
                before.extend_from_slice(value);
            }
            None => all.push((name, value.to_vec())),
        }
    }
}

/// A host, and the port behind it.
fn split_host(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port.parse().ok()),
        _ => (host, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OwnedRequest;

    fn script() -> Script {
        Script {
            file: PathBuf::from("/srv/cgi/a.sh"),
            name: "/cgi-bin/a.sh".to_owned(),
            path_info: "/x y".to_owned(),
        }
    }

    fn told(owned: &OwnedRequest, telling: &Telling) -> Vec<(String, String)> {
        let all = variables(&owned.request(), &script(), Some(3), telling);
        all.into_iter().map(|(name, value)| (name, String::from_utf8(value).unwrap())).collect()
    }

    fn get<'a>(all: &'a [(String, String)], name: &str) -> Option<&'a str> {
        let mut found = all.iter().filter(|(other, _)| other == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} is there twice");
        value
    }

    #[test]
    fn o1_variables_are_those_of_the_rfc() {
        let owned = OwnedRequest::new("POST", "/cgi-bin/a.sh/x%20y?a=b&c")
            .with_header("Host", "[::1]:8080")
            .and_then(|owned| owned.with_header("Content-Type", "text/plain"))
            .and_then(|owned| owned.with_header("Accept", "a"))
            .and_then(|owned| owned.with_header("accept", "b"))
            .unwrap()
            .with_peer("192.0.2.1:4711".parse().unwrap());
        let telling = Telling { document_root: Some("/srv/www".into()), ..Telling::default() };
        let all = told(&owned, &telling);
        for (name, value) in [
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("SERVER_NAME", "[::1]"),
            ("SERVER_PORT", "8080"),
            ("REQUEST_SCHEME", "http"),
            ("REQUEST_METHOD", "POST"),
            ("QUERY_STRING", "a=b&c"),
            ("REQUEST_URI", "/cgi-bin/a.sh/x%20y?a=b&c"),
            ("SCRIPT_NAME", "/cgi-bin/a.sh"),
            ("SCRIPT_FILENAME", "/srv/cgi/a.sh"),
            ("PATH_INFO", "/x y"),
            ("PATH_TRANSLATED", "/srv/www/x y"),
            ("REMOTE_ADDR", "192.0.2.1"),
            ("REMOTE_PORT", "4711"),
            ("CONTENT_LENGTH", "3"),
            ("CONTENT_TYPE", "text/plain"),
            ("HTTP_ACCEPT", "a, b"),
            ("HTTP_HOST", "[::1]:8080"),
        ] {
            assert_eq!(get(&all, name), Some(value), "{name}");
        }
        assert_eq!(get(&all, "HTTP_CONTENT_TYPE"), None);
        assert_eq!(get(&all, "HTTPS"), None, "which scripts take for TLS, whatever it says");
    }

    #[test]
    fn o1_no_field_becomes_a_variable_that_it_should_not_be() {
        let mut owned = OwnedRequest::new("GET", "/");
        for name in [
            "Proxy",
            "PROXY",
            "X_Real_IP",
            "X.Dot",
            "Content_Length",
            "Authorization",
            "Proxy-Authorization",
            "Transfer-Encoding",
            "Connection",
        ] {
            owned = owned.with_header(name, "evil").unwrap();
        }
        let all = told(&owned, &Telling::default());
        assert!(all.iter().all(|(_, value)| value != "evil"), "{all:?}");
        let telling = Telling { authorization: true, ..Telling::default() };
        let all = told(&owned, &telling);
        assert_eq!(get(&all, "HTTP_AUTHORIZATION"), Some("evil"));
        assert_eq!(all.iter().filter(|(_, value)| value == "evil").count(), 1);
    }

    #[test]
    fn o1_variables_of_ones_own_count_before_others() {
        let extra =
            vec![("HTTPS".to_owned(), "on".to_owned()), ("SERVER_PORT".into(), "443".into())];
        let all = told(&OwnedRequest::new("GET", "/"), &Telling { extra, ..Telling::default() });
        assert_eq!((get(&all, "HTTPS"), get(&all, "SERVER_PORT")), (Some("on"), Some("443")));
    }
}
