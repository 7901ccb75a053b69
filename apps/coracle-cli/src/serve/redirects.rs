//! Paths that have moved: from where, to where.

use coracle::http::{Headers, Request, Response, Status};

/// Those of a site. The first that fits counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Redirects(Vec<Redirect>);

/// One of them. With a `*` at its end, `from` is all paths that begin like this, and what follows takes the place
/// of the `*` in `to`.
#[derive(Debug, Clone)]
pub(super) struct Redirect {
    from: String,
    to: String,
    status: Status,
}

impl Redirect {
    /// # Errors
    /// `from` or `to` cannot be that, and why.
    pub(super) fn new(from: &str, to: &str, status: Status) -> Result<Redirect, Wrong> {
        if !from.starts_with('/') {
            return Err(Wrong::From("a path begins with a slash"));
        }
        if from.contains(['?', '#']) {
            return Err(Wrong::From("a path has no query: `?` and `#` cannot be in it"));
        }
        let stars = from.matches('*').count();
        if stars > 1 || (stars == 1 && !from.ends_with("/*")) {
            return Err(Wrong::From("a `*` stands only at the end, behind a slash: `/old/*`"));
        }
        let stars_to = to.matches('*').count();
        if stars_to > 1 || (stars_to == 1 && !to.ends_with("/*")) {
            return Err(Wrong::To("a `*` stands only at the end, behind a slash: `/new/*`"));
        }
        if stars_to > stars {
            return Err(Wrong::To("a `*` here needs one in `from`"));
        }
        if !(to.starts_with('/') || to.starts_with("https://") || to.starts_with("http://")) {
            return Err(Wrong::To("write a path, `/new`, or a URL, `https://example.org/new`"));
        }
        if to.starts_with("//") {
            return Err(Wrong::To("two slashes in front lead to another host: write `https://`"));
        }
        if to.contains(' ') || Headers::new().insert("location", to).is_err() {
            return Err(Wrong::To(
                "spaces, control characters and the like must be escaped: `%20`",
            ));
        }
        Ok(Redirect { from: from.to_owned(), to: to.to_owned(), status })
    }

    /// Where to, for this path.
    fn target(&self, path: &str) -> Option<String> {
        let Some(begin) = self.from.strip_suffix('*') else {
            return (self.from == path).then(|| self.to.clone());
        };
        let rest = path.strip_prefix(begin)?;
        let Some(to) = self.to.strip_suffix('*') else { return Some(self.to.clone()) };
        Some(match to {
            // Two slashes in front would lead to another host.
            "/" => format!("/{}", rest.trim_start_matches(['/', '\\'])),
            _ => format!("{to}{rest}"),
        })
    }
}

/// Which half of a redirect is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    From(&'static str),
    To(&'static str),
}

impl Redirects {
    pub(super) fn add(&mut self, redirect: Redirect) {
        self.0.push(redirect);
    }

    /// The answer to a request for what has moved. The query goes with it, unless there is another.
    pub(super) fn answer(&self, req: &Request<'_>) -> Option<Response> {
        let found = self.0.iter().find_map(|it| Some((it.target(req.path())?, it.status)));
        let (mut location, status) = found?;
        if let Some(query) = req.query().filter(|_| !location.contains('?')) {
            location.push('?');
            location.push_str(query);
        }
        Some(Response::new(status).with_header("location", location))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle::http::OwnedRequest;

    fn ask(from: &str, to: &str, target: &str) -> Option<String> {
        let mut redirects = Redirects::default();
        redirects.add(Redirect::new(from, to, Status::MOVED_PERMANENTLY).unwrap());
        let response = redirects.answer(&OwnedRequest::new("GET", target).request())?;
        assert_eq!(response.status(), Status::MOVED_PERMANENTLY);
        Some(response.headers().get("location").unwrap().to_owned())
    }

    #[test]
    fn q1_what_has_moved_is_found_where_it_is() {
        assert_eq!(ask("/old", "/new", "/old").as_deref(), Some("/new"));
        assert_eq!(ask("/old", "/new", "/old?a=1").as_deref(), Some("/new?a=1"));
        assert_eq!(ask("/old", "/new?b", "/old?a=1").as_deref(), Some("/new?b"));
        for other in ["/", "/older", "/old/", "/OLD", "/%6fld"] {
            assert_eq!(ask("/old", "/new", other), None, "{other}");
        }
        assert_eq!(ask("/old/*", "/new/*", "/old/a/b%20c").as_deref(), Some("/new/a/b%20c"));
        assert_eq!(ask("/old/*", "/new/*", "/old/").as_deref(), Some("/new/"));
        assert_eq!(ask("/old/*", "/new/*", "/old"), None);
        assert_eq!(ask("/old/*", "/gone", "/old/a").as_deref(), Some("/gone"));
        let moved = ask("/*", "https://example.org/*", "/a?b");
        assert_eq!(moved.as_deref(), Some("https://example.org/a?b"));
    }

    #[test]
    fn n2_no_path_leads_to_another_host() {
        for path in ["/old//evil.example", "/old/%2f/evil.example", "/old/\\evil.example"] {
            let to = ask("/old/*", "/*", path).unwrap();
            assert!(!to.starts_with("//") && !to.starts_with("/\\"), "{path}: {to}");
        }
        let to = ask("/*", "https://example.org/*", "/@evil.example").unwrap();
        assert_eq!(to, "https://example.org/@evil.example");
    }

    #[test]
    fn q1_redirects_that_cannot_be_are_refused() {
        let wrong = |from, to| Redirect::new(from, to, Status::FOUND).unwrap_err();
        for from in ["old", "", "*", "/a*", "/*/b", "/a?b", "/*/*"] {
            assert!(matches!(wrong(from, "/new"), Wrong::From(_)), "{from}");
        }
        for to in [
            "new",
            "",
            "//*",
            "//host/",
            "javascript:x",
            "/a b",
            "/a\r\nSet-Cookie: a=b",
            "/a*",
            "/new/*",
        ] {
            assert!(matches!(wrong("/old", to), Wrong::To(_)), "{to}");
        }
    }
}
