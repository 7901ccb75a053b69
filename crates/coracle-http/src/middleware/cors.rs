//! Letting pages of other sites ask (the Fetch standard, 3.2).

use super::{Middleware, Next, vary};
use crate::{Method, Request, Response, Status};
use std::time::Duration;

/// Tells browsers which pages of other sites may see the answers.
///
/// ```
/// use coracle_http::middleware::Cors;
/// use coracle_http::{App, OwnedRequest, Router};
///
/// let cors = Cors::new().origin("https://app.example.org").methods(["GET", "PUT"]).headers(["content-type"]);
/// let app = Router::new(()).with(cors).get("/", |_, _| "ahoy\n");
///
/// let request = OwnedRequest::new("GET", "/").with_header("Origin", "https://app.example.org").unwrap();
/// let response = app.call(&request.request());
/// assert_eq!(response.headers().get("access-control-allow-origin"), Some("https://app.example.org"));
/// ```
///
/// It allows browsers, and forbids nothing: who must not change anything is kept off by
/// [`SameOrigin`](super::SameOrigin), or by a log-in.
#[derive(Debug, Default)]
pub struct Cors {
    origins: Vec<String>,
    any_origin: bool,
    methods: String,
    headers: String,
    exposed: String,
    credentials: bool,
    max_age: Option<Duration>,
}

impl Cors {
    /// No other site.
    pub fn new() -> Cors {
        Cors::default()
    }

    /// Pages of this origin: `https://app.example.org`.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<String>) -> Cors {
        self.origins.push(origin.into());
        self
    }

    /// Pages of every origin.
    ///
    /// # Panics
    /// Together with [`credentials`](Cors::credentials): any page in the world could then use the log-ins of your
    /// users.
    #[must_use]
    pub fn any_origin(mut self) -> Cors {
        self.any_origin = true;
        self.check();
        self
    }

    /// With these methods, beside GET, HEAD and POST, which need no permission.
    #[must_use]
    pub fn methods<'m>(mut self, methods: impl IntoIterator<Item = &'m str>) -> Cors {
        self.methods = methods.into_iter().collect::<Vec<_>>().join(", ");
        self
    }

    /// With these header fields.
    #[must_use]
    pub fn headers<'h>(mut self, names: impl IntoIterator<Item = &'h str>) -> Cors {
        self.headers = names.into_iter().collect::<Vec<_>>().join(", ");
        self
    }

    /// And they may see these header fields of the answer.
    #[must_use]
    pub fn expose<'h>(mut self, names: impl IntoIterator<Item = &'h str>) -> Cors {
        self.exposed = names.into_iter().collect::<Vec<_>>().join(", ");
        self
    }

    /// With the cookies of the user.
    ///
    /// # Panics
    /// Together with [`any_origin`](Cors::any_origin).
    #[must_use]
    pub fn credentials(mut self) -> Cors {
        self.credentials = true;
        self.check();
        self
    }

    /// Browsers need not ask again for so long.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Cors {
        self.max_age = Some(age);
        self
    }

    fn check(&self) {
        let both = self.any_origin && self.credentials;
        assert!(
            !both,
            "any page in the world could use the log-ins of your users: name the origins"
        );
    }

    /// What the field `Access-Control-Allow-Origin` says to this origin.
    fn allowed<'o>(&self, origin: Option<&'o str>) -> Option<&'o str> {
        if self.any_origin {
            return origin.map(|_| "*");
        }
        origin.filter(|origin| self.origins.iter().any(|other| other == origin))
    }

    fn allow(&self, response: Response, origin: Option<&str>) -> Response {
        let mut response = response;
        if !self.any_origin {
            vary::add(&mut response, "origin");
        }
        let Some(allowed) = self.allowed(origin) else { return response };
        let response = response.with_header("access-control-allow-origin", allowed);
        if self.credentials {
            return response.with_header("access-control-allow-credentials", "true");
        }
        response
    }

    /// The answer to the question whether one may ask.
    fn preflight(&self, origin: Option<&str>) -> Response {
        let mut response = self.allow(Response::new(Status::NO_CONTENT), origin);
        if self.allowed(origin).is_none() {
            return response;
        }
        if !self.methods.is_empty() {
            response = response.with_header("access-control-allow-methods", &self.methods);
        }
        if !self.headers.is_empty() {
            response = response.with_header("access-control-allow-headers", &self.headers);
        }
        if let Some(age) = self.max_age {
            response = response.with_header("access-control-max-age", age.as_secs().to_string());
        }
        response
    }
}

impl Middleware for Cors {
    fn handle(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        let origin = req.header("origin");
        let asks = req.headers().contains("access-control-request-method");
        if req.method() == Method::Options && origin.is_some() && asks {
            return self.preflight(origin);
        }
        let response = self.allow(next.run(req), origin);
        if self.allowed(origin).is_some() && !self.exposed.is_empty() {
            return response.with_header("access-control-expose-headers", &self.exposed);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{App, OwnedRequest, Router};

    fn ask(cors: Cors, method: &str, origin: Option<&str>, preflight: bool) -> Response {
        let app = Router::new(()).with(cors).get("/", |_, _| "ahoy");
        let mut request = OwnedRequest::new(method, "/");
        if let Some(origin) = origin {
            request = request.with_header("origin", origin).unwrap();
        }
        if preflight {
            request = request.with_header("access-control-request-method", "PUT").unwrap();
        }
        app.call(&request.request())
    }

    const A: &str = "https://a.example";

    #[test]
    fn j6_only_named_origins_are_allowed() {
        let cors = || Cors::new().origin(A).credentials().expose(["x-y"]);
        let response = ask(cors(), "GET", Some(A), false);
        assert_eq!(response.headers().get("access-control-allow-origin"), Some(A));
        assert_eq!(response.headers().get("access-control-allow-credentials"), Some("true"));
        assert_eq!(response.headers().get("access-control-expose-headers"), Some("x-y"));
        assert_eq!(response.headers().get("vary"), Some("origin"));
        for other in [None, Some("https://a.example.evil"), Some("null"), Some("https://A.example")]
        {
            let response = ask(cors(), "GET", other, false);
            assert_eq!(response.status(), Status::OK);
            assert!(!response.headers().contains("access-control-allow-origin"));
            assert_eq!(
                response.headers().get("vary"),
                Some("origin"),
                "a cache must not mix them up"
            );
        }
    }

    #[test]
    fn j6_a_preflight_is_answered_without_the_app() {
        let cors = || Cors::new().any_origin().methods(["PUT"]).max_age(Duration::from_secs(60));
        let response = ask(cors(), "OPTIONS", Some(A), true);
        assert_eq!(response.status(), Status::NO_CONTENT);
        assert_eq!(response.headers().get("access-control-allow-origin"), Some("*"));
        assert_eq!(response.headers().get("access-control-allow-methods"), Some("PUT"));
        assert_eq!(response.headers().get("access-control-max-age"), Some("60"));
        assert!(!response.headers().contains("allow"));
        let plain = ask(cors(), "OPTIONS", Some(A), false);
        assert_eq!(
            plain.headers().get("allow"),
            Some("GET, HEAD, OPTIONS"),
            "no question of a browser's"
        );
        let refused = ask(Cors::new().methods(["PUT"]), "OPTIONS", Some(A), true);
        assert!(!refused.headers().contains("access-control-allow-methods"));
    }

    #[test]
    #[should_panic(expected = "any page in the world")]
    fn j6_every_page_with_credentials_is_refused() {
        let _ = Cors::new().credentials().any_origin();
    }
}
