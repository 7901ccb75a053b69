//! The page for who serves a directory that has no index: what coracle is, and the facts of this server.

use crate::options::count;
use coracle::demux::Backend;
use coracle::http::{Html, IntoResponse, Response};
use std::sync::{Arc, OnceLock};

/// Everything but the facts. It needs nothing from elsewhere.
const PAGE: &str = include_str!("welcome.html");

/// The page allows itself its own style and its own picture, and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What is true of this server, once it runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) backend: Backend,
    pub(super) loops: usize,
    pub(super) processes: Option<u32>,
}

/// The page, and the facts when they are known.
#[derive(Debug, Clone, Default)]
pub(super) struct Welcome(Arc<OnceLock<Facts>>);

impl Welcome {
    /// The server runs.
    pub(super) fn set(&self, facts: Facts) {
        let _ = self.0.set(facts);
    }

    /// The answer. It is made anew each time: nobody looks at it often.
    pub(super) fn page(&self) -> Response {
        Html(self.text())
            .into_response()
            .with_header("content-security-policy", POLICY)
            .with_header("x-content-type-options", "nosniff")
            .with_header("referrer-policy", "no-referrer")
            .with_header("cache-control", "no-store")
    }

    fn text(&self) -> String {
        let facts = self.0.get();
        let backend = facts.map_or("a loop".to_owned(), |facts| facts.backend.to_string());
        let about = facts.map_or("", |facts| about(facts.backend));
        let loops = facts.map_or(String::new(), |facts| count(facts.loops, "loop"));
        let processes = match facts.and_then(|facts| facts.processes) {
            Some(processes) => format!("in each of {}", count(processes as usize, "process")),
            None => "one thread each, nothing shared".to_owned(),
        };
        PAGE.replace("{{version}}", env!("CARGO_PKG_VERSION"))
            .replace("{{backend}}", &backend)
            .replace("{{about}}", about)
            .replace("{{loops}}", &loops)
            .replace("{{processes}}", &processes)
    }
}

/// A backend in a few words.
fn about(backend: Backend) -> &'static str {
    match backend {
        Backend::Uring => "the kernel does the work, and says when it is done",
        Backend::Epoll => "the kernel says when, the loop does the work",
        Backend::Poll => "poll(2), which is everywhere",
        Backend::Select => "select(2), which was first",
        _ => "a kernel of its own",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r2_the_page_shows_the_facts_and_needs_nothing_from_elsewhere() {
        let welcome = Welcome::default();
        welcome.set(Facts { backend: Backend::Epoll, loops: 3, processes: None });
        let text = welcome.text();
        for fact in ["epoll", "3 loops", env!("CARGO_PKG_VERSION")] {
            assert!(text.contains(fact), "{fact}");
        }
        assert!(!text.contains("{{"), "everything is filled in");
        for elsewhere in ["src=", "@import", "url(", "<script", "<iframe", "<img", "//"] {
            assert!(!text.contains(elsewhere), "{elsewhere}");
        }
        let mut links = text.match_indices("href=\"").map(|(at, begin)| &text[at + begin.len()..]);
        assert!(links.all(|link| link.starts_with("data:")), "it links to nothing");
    }

    #[test]
    fn r2_the_page_is_there_before_the_facts_are() {
        assert!(!Welcome::default().text().contains("{{"));
    }
}
