//! Sending clients to HTTPS, and telling browsers to stay there.

use super::{Middleware, Next};
use crate::{IntoResponse, Redirect, Request, Response, Status};
use std::time::Duration;

/// Redirects requests that come without TLS (308), and has browsers remember that there is TLS here, if it is told
/// how long (`Strict-Transport-Security`, RFC 6797).
///
/// ```
/// use coracle_http::middleware::Https;
/// use coracle_http::{App, OwnedRequest, Router};
///
/// let app = Router::new(()).with(Https::new().port(8443)).get("/", |_, _| "ahoy\n");
/// let request = OwnedRequest::new("GET", "/a?b").with_header("Host", "example.org:8080").unwrap();
/// let response = app.call(&request.request());
/// assert_eq!(response.status().as_u16(), 308);
/// assert_eq!(response.headers().get("location"), Some("https://example.org:8443/a?b"));
/// ```
///
/// What is below `/.well-known/acme-challenge/` is not redirected: authorities look there before there is a
/// certificate.
#[derive(Debug, Clone)]
pub struct Https {
    redirect: bool,
    port: u16,
    hsts: Option<String>,
}

impl Https {
    /// To the usual port, 443.
    pub fn new() -> Https {
        Https { redirect: true, port: 443, hsts: None }
    }

    /// To this port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Https {
        self.port = port;
        self
    }

    /// Redirects nobody: only those who come by TLS are told something.
    #[must_use]
    pub fn without_redirect(mut self) -> Https {
        self.redirect = false;
        self
    }

    /// Browsers are to come by TLS, whatever a link says, for so long; and to all hosts below this one, if
    /// `subdomains`. They cannot be told otherwise before that: begin with minutes.
    #[must_use]
    pub fn hsts(mut self, max_age: Duration, subdomains: bool) -> Https {
        let below = if subdomains { "; includeSubDomains" } else { "" };
        self.hsts = Some(format!("max-age={}{below}", max_age.as_secs()));
        self
    }

    fn redirected(&self, req: &Request<'_>) -> Response {
        let Some(host) = req.host().and_then(name) else {
            return (Status::BAD_REQUEST, "use https, and say which host\n").into_response();
        };
        let path = if req.full_path().starts_with('/') { req.full_path() } else { "/" };
        let query = req.query().map_or_else(String::new, |query| format!("?{query}"));
        let port = if self.port == 443 { String::new() } else { format!(":{}", self.port) };
        Redirect::permanent(format!("https://{host}{port}{path}{query}")).into_response()
    }
}

impl Default for Https {
    fn default() -> Https {
        Https::new()
    }
}

/// The host without its port, if there is nothing in it that has no place in a URL.
fn name(host: &str) -> Option<&str> {
    let name = match host.rfind(']') {
        Some(end) => &host[..=end],
        None => host.split(':').next().unwrap_or(host),
    };
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~[]:".contains(&byte);
    (!name.is_empty() && name.bytes().all(good)).then_some(name)
}

impl Middleware for Https {
    fn handle(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        if req.is_secure() {
            let mut response = next.run(req);
            if let Some(hsts) = &self.hsts {
                response.headers_mut().remove("strict-transport-security");
                let told = response.headers_mut().append("strict-transport-security", hsts);
                debug_assert!(told.is_ok());
            }
            return response;
        }
        let is_challenge = req.full_path().starts_with("/.well-known/acme-challenge/");
        if self.redirect && !is_challenge {
            return self.redirected(req);
        }
        next.run(req)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{App, OwnedRequest, Router};

    fn ask(https: Https, target: &str, host: Option<&str>) -> Response {
        let app = Router::new(()).with(https).any("/{*all}", |_, _| "ahoy");
        let mut request = OwnedRequest::new("GET", target);
        if let Some(host) = host {
            request = request.with_header("host", host).unwrap();
        }
        app.call(&request.request())
    }

    #[test]
    fn m1_who_comes_without_tls_is_sent_to_it() {
        let place = |host| {
            let response = ask(Https::new(), "/a%20b/c?d=e&f", Some(host));
            assert_eq!(response.status(), Status::PERMANENT_REDIRECT);
            response.headers().get("location").unwrap().to_owned()
        };
        assert_eq!(place("example.org"), "https://example.org/a%20b/c?d=e&f");
        assert_eq!(place("example.org:80"), "https://example.org/a%20b/c?d=e&f");
        assert_eq!(place("[::1]:80"), "https://[::1]/a%20b/c?d=e&f");
        let challenge = ask(Https::new(), "/.well-known/acme-challenge/x", Some("example.org"));
        assert_eq!(challenge.status(), Status::OK);
        assert_eq!(
            ask(Https::new().without_redirect(), "/a", Some("a.example")).status(),
            Status::OK
        );
    }

    #[test]
    fn m1_hosts_that_are_none_are_not_redirected_to() {
        for host in [None, Some(""), Some("a b"), Some("evil.example/x"), Some("a@b"), Some(":80")]
        {
            assert_eq!(ask(Https::new(), "/", host).status(), Status::BAD_REQUEST, "{host:?}");
        }
    }

    #[test]
    fn m1_hsts_is_not_told_without_tls() {
        let https = Https::new().hsts(Duration::from_secs(60), true);
        let response = ask(https, "/", Some("example.org"));
        assert!(!response.headers().contains("strict-transport-security"));
    }
}
