//! URLs: what a request is for, and where it is sent.

use super::place::{At, Place};
use coracle_net::Address;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::fmt;
use std::io;

/// What a server or a careless user may write, and a request must not have.
const UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'`').add(b'\\');

/// A URL that begins with `http` or `https`, in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) secure: bool,
    /// As the header says it: with a port, if that is not the usual one.
    pub(crate) host: String,
    /// Without the port; an IPv6 address has brackets.
    pub(crate) name: String,
    pub(crate) port: u16,
    /// Path and query.
    pub(crate) target: String,
}

impl Url {
    /// # Errors
    /// `InvalidInput`: it is no such URL.
    pub(crate) fn parse(url: &str) -> io::Result<Url> {
        let wrong =
            |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{url:?}: {why}"));
        let begin = url.split('#').next().unwrap_or_default(); // the rest is not the server's business
        let Some((scheme, rest)) = begin.split_once("://") else {
            return Err(wrong("it is no URL: write http://HOST:PORT/PATH or https://HOST/PATH"));
        };
        let (secure, usual) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return Err(wrong("a URL begins with http:// or https://")),
        };
        let end = rest.find(['/', '?', '\\']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err(wrong("it names a user: say that by basic_auth"));
        }
        if crate::h1::target::check_host(authority.as_bytes()).is_err() {
            return Err(wrong("what is behind :// is no host: write http://HOST:PORT/PATH"));
        }
        let (name, port) = match authority.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => {
                (name, port.parse().map_err(|_| wrong("its port is no number up to 65535"))?)
            }
            _ => (authority, usual),
        };
        if port == 0 {
            return Err(wrong("its port is 0, which is none"));
        }
        let name = name.to_ascii_lowercase();
        let host = if port == usual { name.clone() } else { format!("{name}:{port}") };
        let target = utf8_percent_encode(target, UNSAFE).to_string();
        let target = if target.starts_with('/') { target } else { format!("/{target}") };
        Ok(Url { secure, host, name, port, target })
    }

    /// Where a server of this says that what was asked for is (RFC 3986, 5).
    ///
    /// # Errors
    /// As [`parse`](Url::parse).
    pub(crate) fn join(&self, location: &str) -> io::Result<Url> {
        let location = location.split('#').next().unwrap_or_default();
        let colon = location.find(':').filter(|&at| {
            let scheme = &location.as_bytes()[..at];
            let letter =
                |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
            scheme.first().is_some_and(u8::is_ascii_alphabetic) && scheme.iter().all(letter)
        });
        if colon.is_some() {
            return Url::parse(location);
        }
        let scheme = if self.secure { "https" } else { "http" };
        if location.starts_with("//") {
            return Url::parse(&format!("{scheme}:{location}"));
        }
        let path = self.target.split('?').next().unwrap_or_default();
        let target = match location {
            "" => self.target.clone(),
            _ if location.starts_with('?') => format!("{path}{location}"),
            _ => {
                let (to, query) = match location.split_once('?') {
                    Some((to, query)) => (to, Some(query)),
                    None => (location, None),
                };
                let base = path.rfind('/').map_or("/", |at| &path[..=at]);
                let whole = if to.starts_with('/') { to.to_owned() } else { format!("{base}{to}") };
                let plain = without_dots(&whole);
                query.map_or_else(|| plain.clone(), |query| format!("{plain}?{query}"))
            }
        };
        Ok(Url { target: utf8_percent_encode(&target, UNSAFE).to_string(), ..self.clone() })
    }

    /// Whether both are of the same server, as far as secrets are concerned.
    pub(crate) fn is_same_origin(&self, other: &Url) -> bool {
        (self.secure, &self.host, self.port) == (other.secure, &other.host, other.port)
    }

    /// Where it is sent, unless somebody knows better.
    pub(crate) fn place(&self, at: Option<&Address>) -> Place {
        Place {
            at: match at {
                Some(address) => At::Address(address.clone()),
                None => At::Name(format!("{}:{}", self.name, self.port)),
            },
            secure: self.secure.then(|| self.name.clone()),
        }
    }
}

/// A path without its `.` and `..` (RFC 3986, 5.2.4).
fn without_dots(path: &str) -> String {
    let mut segments = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        match part {
            ".." => {
                segments.pop();
            }
            "." => {}
            _ => {
                segments.push(part);
                continue;
            }
        }
        if last {
            segments.push("");
        }
    }
    format!("/{}", segments.join("/"))
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http{}://{}{}", if self.secure { "s" } else { "" }, self.host, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn j12_urls_have_a_scheme_a_host_and_a_target() {
        let cases = [
            ("http://a", "http://a/"),
            ("HTTP://A.b:80/c?d#e", "http://a.b/c?d"),
            ("http://a:8080?x", "http://a:8080/?x"),
            ("https://[::1]:8443/", "https://[::1]:8443/"),
            ("https://[::1]", "https://[::1]/"),
            ("http://a/b c\"ä", "http://a/b%20c%22%C3%A4"),
        ];
        for (text, told) in cases {
            assert_eq!(Url::parse(text).unwrap().to_string(), told, "{text}");
        }
        for wrong in [
            "",
            "a",
            "ftp://a/",
            "http://",
            "http:///b",
            "http://u@a/",
            "http://a:x/",
            "http://a:0/",
            "http://a:99999/",
            "http://a b/",
            "http://a\r\nb/",
            "javascript:x",
            "http://a\\@b/x",
        ] {
            let kind = Url::parse(wrong).map(|url| url.to_string()).map_err(|error| error.kind());
            if wrong != "http://a\\@b/x" {
                assert_eq!(kind, Err(io::ErrorKind::InvalidInput), "{wrong}");
            } else {
                assert_eq!(kind.unwrap(), "http://a/%5C@b/x"); // never the host b
            }
        }
    }

    #[test]
    fn j12_what_is_no_url_is_told_with_what_is_wanted() {
        for (url, told) in [
            ("", "\"\": it is no URL: write http://HOST:PORT/PATH or https://HOST/PATH"),
            ("b:80", "\"b:80\": it is no URL: write http://HOST:PORT/PATH or https://HOST/PATH"),
            ("ftp://b/", "\"ftp://b/\": a URL begins with http:// or https://"),
            (
                "http:///b",
                "\"http:///b\": what is behind :// is no host: write http://HOST:PORT/PATH",
            ),
            ("http://b:0/", "\"http://b:0/\": its port is 0, which is none"),
        ] {
            assert_eq!(Url::parse(url).map(drop).unwrap_err().to_string(), told);
        }
    }

    #[test]
    fn j12_locations_are_relative_to_what_was_asked_for() {
        let base = Url::parse("http://a:81/b/c/d?q").unwrap();
        for (location, told) in [
            ("https://x/y", "https://x/y"),
            ("//x/y", "http://x/y"),
            ("/y?z#w", "http://a:81/y?z"),
            ("y", "http://a:81/b/c/y"),
            ("./y/.", "http://a:81/b/c/y/"),
            ("../y", "http://a:81/b/y"),
            ("../../../../y", "http://a:81/y"),
            ("..", "http://a:81/b/"),
            ("?z=../x", "http://a:81/b/c/d?z=../x"),
            ("", "http://a:81/b/c/d?q"),
            ("y:z", "error"),
            ("./y:z", "http://a:81/b/c/y:z"),
            ("javascript:alert(1)", "error"),
            ("/a b\\c", "http://a:81/a%20b%5Cc"),
        ] {
            let joined = base.join(location).map_or_else(|_| "error".into(), |url| url.to_string());
            assert_eq!(joined, told, "{location}");
        }
    }
}
