//! A name for each request, by which it is found again.

use super::{Middleware, Next};
use crate::{Request, Response};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many characters an id that a client sends may have.
const LIMIT_ID_BYTES: usize = 64;

const HEADER: &str = "x-request-id";

/// Gives each request an id: a number of the process and one of the request. It is in the answer (`X-Request-Id`),
/// in the access log, and in a span of `tracing` around the handler.
///
/// ```
/// use coracle_http::middleware::RequestIds;
/// use coracle_http::{App, OwnedRequest, Router};
///
/// let app = Router::new(()).with(RequestIds::new()).get("/", |_, req| req.id().unwrap().to_string());
/// let response = app.call(&OwnedRequest::new("GET", "/").request());
/// assert_eq!(response.headers().get("x-request-id").map(str::as_bytes), response.body().as_bytes());
/// ```
#[derive(Debug)]
pub struct RequestIds {
    process: u64,
    next: AtomicU64,
    accepting: bool,
}

/// As it is left with a request.
struct RequestId(Rc<str>);

impl RequestIds {
    /// Ids of this process, whatever clients send.
    pub fn new() -> RequestIds {
        // Keys of hash maps are random; that is enough for a number which need not be secret.
        let process = RandomState::new().build_hasher().finish();
        RequestIds { process, next: AtomicU64::new(1), accepting: false }
    }

    /// A request that has an id keeps it: for servers behind a proxy that gives them. It is taken if it has at
    /// most 64 characters: letters, digits and `-_.`.
    #[must_use]
    pub fn accepting(mut self) -> RequestIds {
        self.accepting = true;
        self
    }

    fn id(&self, req: &Request<'_>) -> Rc<str> {
        if self.accepting
            && let Some(id) = req.header(HEADER).filter(|id| is_id(id))
        {
            return id.into();
        }
        format!("{:016x}-{:x}", self.process, self.next.fetch_add(1, Ordering::Relaxed)).into()
    }
}

impl Default for RequestIds {
    fn default() -> RequestIds {
        RequestIds::new()
    }
}

fn is_id(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !text.is_empty() && text.len() <= LIMIT_ID_BYTES && text.bytes().all(good)
}

impl Middleware for RequestIds {
    fn handle(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        let id = self.id(req);
        req.set_local(RequestId(Rc::clone(&id)));
        let span = tracing::info_span!("request", id = &*id);
        let response = coracle_coro::in_span(&span, || next.run(req));
        response.with_header(HEADER, &*id)
    }

    fn refuse(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        self.handle(req, next)
    }
}

impl Request<'_> {
    /// The id of the request, if a [`RequestIds`](crate::middleware::RequestIds) gave it one.
    pub fn id(&self) -> Option<Rc<str>> {
        self.local::<RequestId>().map(|id| Rc::clone(&id.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{App, OwnedRequest, Router};

    fn ask(ids: RequestIds, sent: Option<&str>) -> String {
        let app = Router::new(()).with(ids).get("/", |_, _| "");
        let mut request = OwnedRequest::new("GET", "/");
        if let Some(sent) = sent {
            request = request.with_header(HEADER, sent).unwrap();
        }
        app.call(&request.request()).headers().get(HEADER).unwrap().to_owned()
    }

    #[test]
    fn j14_ids_differ() {
        let app = Router::new(()).with(RequestIds::new()).get("/", |_, _| "");
        let ask = || {
            let response = app.call(&OwnedRequest::new("GET", "/").request());
            response.headers().get(HEADER).unwrap().to_owned()
        };
        let mut ids: Vec<String> = (0..100).map(|_| ask()).collect();
        assert!(ids.iter().all(|id| is_id(id)), "{}", ids[0]);
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 100);
    }

    #[test]
    fn j14_ids_of_clients_are_taken_only_if_asked_for_and_harmless() {
        assert_eq!(ask(RequestIds::new().accepting(), Some("Abc-1_2.3")), "Abc-1_2.3");
        assert_ne!(ask(RequestIds::new(), Some("Abc")), "Abc");
        for bad in ["", "a b", "a\"b", "é", &"x".repeat(65), "a\tb"] {
            assert_ne!(ask(RequestIds::new().accepting(), Some(bad)), bad);
        }
    }
}
