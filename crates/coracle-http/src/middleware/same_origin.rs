//! Refusing what another site has a browser do.
//!
//! A page of another site can make a browser send a form here, with the cookies it has for us. Browsers say so: in
//! `Sec-Fetch-Site`, all of them since 2023, and before that in `Origin`. Requests that no browser made have
//! neither.

use super::{Middleware, Next};
use crate::{IntoResponse, Method, Problem, Request, Response, Status, origin};

/// Refuses requests that change something (not GET, HEAD or OPTIONS) and come from a page of another site, with
/// 403.
///
/// ```
/// use coracle_http::middleware::SameOrigin;
/// use coracle_http::{App, OwnedRequest, Router, Status};
///
/// let app = Router::new(()).with(SameOrigin::new()).post("/transfer", |_, _| "done\n");
/// let ask = |site: &str| {
///     let request = OwnedRequest::new("POST", "/transfer").with_header("Sec-Fetch-Site", site).unwrap();
///     app.call(&request.request()).status()
/// };
/// assert_eq!(ask("same-origin"), Status::OK);
/// assert_eq!(ask("cross-site"), Status::FORBIDDEN);
/// ```
///
/// It takes the place of tokens in forms.
#[derive(Debug, Default)]
pub struct SameOrigin {
    trusted: Vec<String>,
}

impl SameOrigin {
    /// Only pages of the same origin.
    pub fn new() -> SameOrigin {
        SameOrigin::default()
    }

    /// And pages of this one: `https://admin.example.org`.
    #[must_use]
    pub fn trust(mut self, origin: impl Into<String>) -> SameOrigin {
        self.trusted.push(origin.into());
        self
    }

    fn allows(&self, req: &Request<'_>) -> bool {
        if matches!(req.method(), Method::Get | Method::Head | Method::Options) {
            return true;
        }
        let origin = req.header("origin");
        if origin.is_some_and(|origin| self.trusted.iter().any(|trusted| trusted == origin)) {
            return true;
        }
        if req.headers().contains("sec-fetch-site") {
            return matches!(req.header("sec-fetch-site"), Some("same-origin" | "none"));
        }
        if !req.headers().contains("origin") {
            return true; // no browser
        }
        // A browser of before.
        origin.is_some_and(|origin| origin::is_same(origin, req.host(), req.is_secure()))
    }
}

impl Middleware for SameOrigin {
    fn handle(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        if self.allows(req) {
            return next.run(req);
        }
        let outward = "this was asked for by a page of another site";
        Problem::new(Status::FORBIDDEN, outward).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{App, OwnedRequest, Router};

    #[test]
    fn j9_another_site_cannot_use_the_session() {
        let app =
            Router::new(()).with(SameOrigin::new().trust("https://b.example")).any("/", |_, _| "");
        let ask = |method: &str, headers: &[(&str, &str)]| {
            let mut request =
                OwnedRequest::new(method, "/").with_header("host", "a.example").unwrap();
            for (name, value) in headers {
                request = request.with_header(name, value).unwrap();
            }
            app.call(&request.request()).status() == Status::OK
        };
        let site = "sec-fetch-site";
        for (allowed, headers) in [
            (true, &[][..]),
            (true, &[(site, "same-origin")]),
            (true, &[(site, "none")]),
            (false, &[(site, "same-site")]),
            (false, &[(site, "cross-site")]),
            (false, &[(site, "")]),
            (false, &[(site, "cross-site"), ("origin", "https://a.example")]),
            (true, &[(site, "cross-site"), ("origin", "https://b.example")]),
            (true, &[("origin", "https://a.example")]),
            (false, &[("origin", "https://evil.example")]),
            (false, &[("origin", "null")]),
            (false, &[("origin", "https://b.example.evil")]),
            (false, &[("origin", "https://a.example:8080")]),
        ] {
            for method in ["POST", "PUT", "DELETE", "PATCH", "PURGE"] {
                assert_eq!(ask(method, headers), allowed, "{method} {headers:?}");
            }
            assert!(ask("GET", headers) && ask("HEAD", headers));
        }
    }
}
