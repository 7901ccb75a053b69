//! Pages in the place of bare errors.

use super::{Middleware, Next};
use crate::escape::escaped;
use crate::{Html, IntoResponse, Json, MediaType, Request, Response, Status};
use std::collections::BTreeMap;
use std::fmt;

/// So long a text is taken to be a message; what is longer is an answer of its own.
const LIMIT_MESSAGE_BYTES: usize = 1024;

/// Makes pages of errors (400 and above) whose answer is a line of plain text or nothing, as those of
/// [`Status`] and [`Problem`](crate::Problem) are: HTML for browsers, JSON for who prefers it, else the text.
///
/// ```
/// use coracle_http::middleware::ErrorPages;
/// use coracle_http::{App, Html, OwnedRequest, Router, Status};
///
/// let pages = ErrorPages::new().page(Status::NOT_FOUND, |_| "<h1>Here be dragons</h1>".to_owned());
/// let app = Router::new(()).with(pages);
///
/// let request = OwnedRequest::new("GET", "/whale").with_header("Accept", "text/html").unwrap();
/// let response = app.call(&request.request());
/// assert_eq!(response.status(), Status::NOT_FOUND);
/// assert_eq!(response.body().as_bytes(), Some(&b"<h1>Here be dragons</h1>"[..]));
/// ```
///
/// Requests that the server refuses have them, too. If their header was not understood, so that it is not known
/// what the client prefers, [a page of one's own](ErrorPages::page) is sent, and else the text.
#[derive(Default)]
pub struct ErrorPages {
    pages: BTreeMap<u16, Box<Page>>,
}

type Page = dyn Fn(&str) -> String + Send + Sync;

impl ErrorPages {
    /// A plain page for all errors.
    pub fn new() -> ErrorPages {
        ErrorPages::default()
    }

    /// This page, HTML, for this status. It is given the message for the client, escaped, and may leave it out.
    #[must_use]
    pub fn page(
        mut self,
        status: Status,
        page: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> ErrorPages {
        self.pages.insert(status.as_u16(), Box::new(page));
        self
    }

    fn html(&self, status: Status, message: &str) -> String {
        let message = escaped(message);
        if let Some(page) = self.pages.get(&status.as_u16()) {
            return page(&message);
        }
        let title =
            format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default());
        let message = if message == title { String::new() } else { format!("<p>{message}</p>\n") };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>body {{ font: 1.2rem/1.5 system-ui, sans-serif; max-width: 40rem; \
             margin: 20vh auto; padding: 0 1rem }}</style>\n<h1>{title}</h1>\n{message}</html>\n"
        )
    }
}

impl Middleware for ErrorPages {
    fn handle(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        let preference = preference(req.header("accept").unwrap_or_default());
        self.dress(next.run(req), preference)
    }

    fn refuse(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        let response = next.run(req);
        let preference = match req.header("accept") {
            // Nobody knows what the client would like: a page that was made for this is for everybody.
            None if !req.is_whole() && self.pages.contains_key(&response.status().as_u16()) => {
                Preference::Html
            }
            accept => preference(accept.unwrap_or_default()),
        };
        self.dress(response, preference)
    }
}

impl ErrorPages {
    /// Makes a page of an error that is none.
    fn dress(&self, mut response: Response, preference: Preference) -> Response {
        let status = response.status();
        let Some(message) = message(&response) else { return response };
        let page = match preference {
            Preference::Text => return response,
            Preference::Html => Html(self.html(status, &message)).into_response(),
            Preference::Json => {
                Json(Told { status: status.as_u16(), error: &message }).into_response()
            }
        };
        // What else the answer says stays: `Allow`, `Retry-After`, `WWW-Authenticate`.
        response.headers_mut().remove("content-type");
        if let Some(kind) = page.headers().get("content-type") {
            response = response.with_header("content-type", kind);
        }
        let mut page = page;
        response.set_body(page.take_body());
        super::vary::add(&mut response, "accept");
        response
    }
}

impl fmt::Debug for ErrorPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.pages.keys()).finish()
    }
}

#[derive(serde::Serialize)]
struct Told<'a> {
    status: u16,
    error: &'a str,
}

/// What a bare error says to the client; none if it is an answer of its own.
fn message(response: &Response) -> Option<String> {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return None;
    }
    let kind = response.headers().get("content-type").and_then(MediaType::parse);
    if response.headers().contains("content-type")
        && !kind.is_some_and(|kind| kind.is("text/plain"))
    {
        return None;
    }
    let bytes = response.body().as_bytes().filter(|bytes| bytes.len() <= LIMIT_MESSAGE_BYTES)?;
    let text = String::from_utf8_lossy(bytes).trim_end().to_owned();
    if text.is_empty() {
        return Some(format!(
            "{} {}",
            status.as_u16(),
            status.canonical_reason().unwrap_or_default()
        ));
    }
    Some(text)
}

#[derive(Debug, PartialEq, Eq)]
enum Preference {
    Html,
    Json,
    Text,
}

/// What the first of the kinds we have is, in the order in which the client names them. Browsers begin with HTML.
fn preference(accept: &str) -> Preference {
    for kind in accept.split(',').filter_map(MediaType::parse) {
        if kind.is("text/html") || kind.is("application/xhtml+xml") {
            return Preference::Html;
        }
        if kind.is_json() {
            return Preference::Json;
        }
        if kind.is("text/plain") {
            return Preference::Text;
        }
    }
    Preference::Text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{App, OwnedRequest, Problem, Router};

    fn ask(path: &str, accept: &str) -> (u16, String, String) {
        let app = Router::new(())
            .with(ErrorPages::new().page(Status::CONFLICT, |message| format!("<b>{message}</b>")))
            .get("/ok", |_, _| "ok")
            .get("/xss", |_, _| Problem::new(Status::BAD_REQUEST, "<script>\"'&"))
            .get("/conflict", |_, _| Problem::new(Status::CONFLICT, "a<b"))
            .get("/own", |_, _| (Status::GONE, Html("gone")))
            .get("/json", |_, _| (Status::GONE, Json(1)))
            .get("/long", |_, _| (Status::GONE, "x".repeat(2000)));
        let request = OwnedRequest::new("GET", path).with_header("accept", accept).unwrap();
        let response = app.call(&request.request());
        let text = String::from_utf8_lossy(response.body().as_bytes().unwrap()).into_owned();
        (
            response.status().as_u16(),
            response.headers().get("content-type").unwrap_or("").to_owned(),
            text,
        )
    }

    const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

    #[test]
    fn j14_browsers_get_a_page_and_others_what_they_want() {
        let (status, kind, text) = ask("/none", BROWSER);
        assert_eq!((status, kind.as_str()), (404, "text/html; charset=utf-8"));
        assert!(text.contains("<h1>404 Not Found</h1>") && !text.contains("<p>"));
        let (_, kind, text) = ask("/none", "application/json");
        assert_eq!(
            (kind.as_str(), text.as_str()),
            ("application/json", r#"{"status":404,"error":"404 Not Found"}"#)
        );
        assert_eq!(ask("/none", "*/*").2, "404 Not Found\n");
        assert_eq!(ask("/none", "").2, "404 Not Found\n");
        assert_eq!(
            ask("/conflict", BROWSER),
            (409, "text/html; charset=utf-8".into(), "<b>a&lt;b</b>".into())
        );
    }

    #[test]
    fn j14_messages_are_escaped() {
        let (_, _, text) = ask("/xss", BROWSER);
        assert!(text.contains("<p>&lt;script&gt;&quot;&#39;&amp;</p>"), "{text}");
        assert_eq!(ask("/xss", "application/json").2, r#"{"status":400,"error":"<script>\"'&"}"#);
    }

    #[test]
    fn j14_answers_of_their_own_stay() {
        assert_eq!(ask("/ok", BROWSER).2, "ok");
        assert_eq!(ask("/own", BROWSER).2, "gone");
        assert_eq!(ask("/json", BROWSER).2, "1");
        assert_eq!(ask("/long", BROWSER).2.len(), 2000);
    }

    #[test]
    fn j14_what_else_an_error_says_stays() {
        let app = Router::new(()).with(ErrorPages::new()).post("/", |_, _| "");
        let request = OwnedRequest::new("GET", "/").with_header("accept", BROWSER).unwrap();
        let response = app.call(&request.request());
        assert_eq!(response.headers().get("allow"), Some("POST, OPTIONS"));
        assert_eq!(response.headers().get("vary"), Some("accept"));
    }
}
