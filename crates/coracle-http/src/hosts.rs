//! Virtual hosts: which app answers, by the host that was asked.

use crate::{App, IntoResponse, Plan, Refusal, Request, Response, Status};
use std::fmt;
use std::sync::Arc;

/// An app for each host.
///
/// ```
/// use coracle_http::{App, Hosts, OwnedRequest, Request, Status};
///
/// fn site(_: &Request<'_>) -> &'static str {
///     "the site\n"
/// }
///
/// let app = Hosts::new()
///     .host("example.org", site)
///     .host("*.example.org", |req: &Request<'_>| format!("the site of {}\n", req.host().unwrap()));
///
/// let ask = |host: &str| {
///     let request = OwnedRequest::new("GET", "/").with_header("Host", host).unwrap();
///     app.call(&request.request())
/// };
/// assert_eq!(ask("Example.org:8080").body().as_bytes(), Some(&b"the site\n"[..]));
/// assert_eq!(ask("ahab.example.org").body().as_bytes(), Some(&b"the site of ahab.example.org\n"[..]));
/// assert_eq!(ask("example.com").status(), Status::MISDIRECTED_REQUEST);
/// ```
///
/// Names are compared without case, port and final dot; a `*` is one label or several, and what is longer counts
/// before what is shorter. A host that nobody is for is answered with 421, unless there is an
/// [`otherwise`](Hosts::otherwise).
#[derive(Default)]
pub struct Hosts {
    exact: Vec<(String, Arc<dyn App + Send + Sync>)>,
    /// By what follows the `*`, dot included; the longest first.
    wild: Vec<(String, Arc<dyn App + Send + Sync>)>,
    otherwise: Option<Arc<dyn App + Send + Sync>>,
}

impl Hosts {
    /// No hosts yet.
    pub fn new() -> Hosts {
        Hosts::default()
    }

    /// Requests for this host, or for all hosts that end like this (`*.example.org`), are answered by `app`.
    ///
    /// # Panics
    /// When there is an app for it already, or the name has a port, a path or a `*` elsewhere.
    #[must_use]
    pub fn host(mut self, name: &str, app: impl App + Send + Sync) -> Hosts {
        let (list, plain) = match name.strip_prefix('*') {
            Some(end) => (&mut self.wild, end),
            None => (&mut self.exact, name),
        };
        let is_wild = plain.len() != name.len();
        let good = !plain.is_empty()
            && is_wild == plain.starts_with('.')
            && !plain.contains(['/', '*', ' ']);
        assert!(good && bare(plain) == plain.to_ascii_lowercase(), "{name:?} is no name of a host");
        let plain = plain.to_ascii_lowercase();
        assert!(
            list.iter().all(|(other, _)| *other != plain),
            "there are two apps for the host {name:?}"
        );
        let at = list.partition_point(|(other, _)| other.len() >= plain.len());
        list.insert(at, (plain, Arc::new(app)));
        self
    }

    /// Requests for all other hosts, and those that name none, are answered by `app`.
    #[must_use]
    pub fn otherwise(mut self, app: impl App + Send + Sync) -> Hosts {
        self.otherwise = Some(Arc::new(app));
        self
    }

    fn find(&self, req: &Request<'_>) -> Option<&(dyn App + Send + Sync)> {
        let otherwise = self.otherwise.as_deref();
        let Some(host) = req.host() else { return otherwise };
        let host = bare(host);
        let exact = self.exact.iter().find(|(name, _)| *name == host);
        let is_below = |end: &str| host.len() > end.len() && host.ends_with(end);
        let found = exact.or_else(|| self.wild.iter().find(|(end, _)| is_below(end)));
        found.map(|(_, app)| &**app).or(otherwise)
    }
}

impl App for Hosts {
    fn call(&self, req: &Request<'_>) -> Response {
        match self.find(req) {
            Some(app) => app.call(req),
            None => Status::MISDIRECTED_REQUEST.into_response(),
        }
    }

    fn plan(&self, req: &Request<'_>) -> Plan {
        self.find(req).map_or_else(Plan::default, |app| app.plan(req))
    }

    fn refuse(&self, req: &Request<'_>, refusal: &Refusal) -> Response {
        match self.find(req) {
            Some(app) => app.refuse(req, refusal),
            None => refusal.into_response(),
        }
    }
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = self.exact.iter().map(|(name, _)| name.clone());
        let wild = self.wild.iter().map(|(end, _)| format!("*{end}"));
        f.debug_list().entries(exact.chain(wild)).finish()
    }
}

/// A host in lower case, without its port and without the dot of the root: `Example.ORG.:80` is `example.org`.
pub(crate) fn bare(host: &str) -> String {
    let name = match host.rfind(']') {
        // An IPv6 address has colons of its own.
        Some(end) => &host[..=end],
        None => host.split(':').next().unwrap_or_default(),
    };
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OwnedRequest;

    fn named(name: &'static str) -> impl App + Send + Sync {
        move |_: &Request<'_>| name
    }

    fn ask(hosts: &Hosts, host: Option<&str>) -> String {
        let mut request = OwnedRequest::new("GET", "/");
        if let Some(host) = host {
            request = request.with_header("host", host).unwrap();
        }
        let response = hosts.call(&request.request());
        format!(
            "{} {}",
            response.status().as_u16(),
            response.body().as_bytes().unwrap().escape_ascii()
        )
    }

    #[test]
    fn j7_the_app_is_chosen_by_the_host() {
        let hosts = Hosts::new()
            .host("*.example.org", named("wild"))
            .host("*.b.example.org", named("longer"))
            .host("a.example.org", named("exact"))
            .host("[::1]", named("six"));
        for (host, expected) in [
            ("a.example.org", "200 exact"),
            ("A.EXAMPLE.ORG", "200 exact"),
            ("a.example.org.:8080", "200 exact"),
            ("c.example.org", "200 wild"),
            ("x.y.example.org", "200 wild"),
            ("x.b.example.org", "200 longer"),
            ("b.example.org", "200 wild"),
            ("[::1]:80", "200 six"),
            ("[::1]", "200 six"),
        ] {
            assert_eq!(ask(&hosts, Some(host)), expected, "{host}");
        }
        for host in ["example.org", "evilexample.org", ".example.org", "", "a.example.org.evil.com"]
        {
            assert!(ask(&hosts, Some(host)).starts_with("421"), "{host}");
        }
        assert!(ask(&hosts, None).starts_with("421"));
        let hosts = hosts.otherwise(named("other"));
        assert_eq!(ask(&hosts, None), "200 other");
        assert_eq!(ask(&hosts, Some("evil.com")), "200 other");
    }

    #[test]
    #[should_panic(expected = "no name of a host")]
    fn j7_a_host_with_a_port_is_refused() {
        let _ = Hosts::new().host("example.org:80", named(""));
    }
}
