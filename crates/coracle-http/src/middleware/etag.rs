//! Answers that the client has already: `ETag`, `If-None-Match`, `If-Match`, `If-Modified-Since` (RFC 9110, 13).

use super::Next;
use crate::body::{Kept, Kind};
use crate::files::conditional::{Tag, any_tag};
use crate::{Body, Headers, IntoResponse, Method, Request, Response, Status};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// Gives answers to GET that are in memory an `ETag`, if they have none, and answers 304 when the client says that
/// it has them, and 412 when it wants another.
///
/// ```
/// use coracle_http::middleware::etag;
/// use coracle_http::{App, OwnedRequest, Router, Status};
///
/// let app = Router::new(()).with(etag).get("/", |_, _| "ahoy\n");
/// let first = app.call(&OwnedRequest::new("GET", "/").request());
/// let tag = first.headers().get("etag").unwrap();
///
/// let again = OwnedRequest::new("GET", "/").with_header("If-None-Match", tag).unwrap();
/// let second = app.call(&again.request());
/// assert_eq!((second.status(), second.body().len()), (Status::NOT_MODIFIED, Some(0)));
/// ```
///
/// The handler has run all the same: it saves the network, not the work.
pub fn etag(req: &Request<'_>, next: Next<'_>) -> Response {
    let mut response = next.run(req);
    let asks = matches!(req.method(), Method::Get | Method::Head);
    if !asks || response.status() != Status::OK {
        return response;
    }
    if !response.headers().contains("etag")
        && let Some(bytes) = response.body().as_bytes()
    {
        let digest = Sha256::digest(bytes);
        let tag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(&digest[..16]));
        response = response.with_header("etag", tag);
    }
    match precondition(req.headers(), response.headers()) {
        Precondition::Holds => response,
        Precondition::NotModified => not_modified(response),
        Precondition::Failed => Status::PRECONDITION_FAILED.into_response(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precondition {
    Holds,
    NotModified,
    Failed,
}

/// What a GET comes to that is only for a certain state, in the order of RFC 9110, 13.2.2.
pub(crate) fn precondition(asked: &Headers, has: &Headers) -> Precondition {
    let tag = has.get("etag");
    let opaque = tag.map(|tag| tag.strip_prefix("W/").unwrap_or(tag)).unwrap_or_default();
    let date = |headers: &Headers, name| {
        headers.get(name).and_then(|value| httpdate::parse_http_date(value).ok())
    };
    let modified = date(has, "last-modified");
    if asked.contains("if-match") {
        // A weak one of ours has no quote in front, and so is none of theirs.
        let strong = |other: &Tag<'_>| other.is_strongly(tag.unwrap_or_default());
        if !lists(asked, "if-match", strong) {
            return Precondition::Failed;
        }
    } else if let (Some(since), Some(modified)) = (date(asked, "if-unmodified-since"), modified)
        && modified > since
    {
        return Precondition::Failed;
    }
    if asked.contains("if-none-match") {
        let weak = |other: &Tag<'_>| other.is_weakly(opaque);
        if lists(asked, "if-none-match", weak) {
            return Precondition::NotModified;
        }
    } else if let (Some(since), Some(modified)) = (date(asked, "if-modified-since"), modified)
        && modified <= since
    {
        return Precondition::NotModified;
    }
    Precondition::Holds
}

/// Whether a tag in the lists of this name fits.
fn lists(headers: &Headers, name: &str, fits: impl Fn(&Tag<'_>) -> bool) -> bool {
    headers.get_all(name).any(|value| any_tag(value.as_bytes(), &fits))
}

/// The same without its body and what describes that (RFC 9110, 15.4.5).
fn not_modified(mut response: Response) -> Response {
    response.set_status(Status::NOT_MODIFIED);
    let body = response.take_body();
    let is_stream = matches!(body.0, Kind::Stream { .. });
    let kept = Kept::new(response.headers(), is_stream, body.len());
    response.set_body(Body(Kind::Kept(Box::new(kept))));
    for name in
        ["content-type", "content-length", "content-encoding", "content-language", "content-range"]
    {
        response.headers_mut().remove(name);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{App, OwnedRequest, Router};

    fn ask(method: &str, headers: &[(&str, &str)]) -> Response {
        let app = Router::new(())
            .with(etag)
            .get("/", |_, _| "ahoy")
            .post("/", |_, _| "ahoy")
            .nest("/own", |own| {
                own.get("/", |_, _| {
                    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
                    "ahoy"
                        .into_response()
                        .with_header("ETag", "W/\"a\"")
                        .with_header("Last-Modified", date)
                })
            })
            .get("/stream", |_, _| crate::Body::stream(|_| Ok(())));
        let (method, path) = method.split_once(' ').unwrap();
        let mut request = OwnedRequest::new(method, path);
        for (name, value) in headers {
            request = request.with_header(name, value).unwrap();
        }
        app.call(&request.request())
    }

    #[test]
    fn j14_the_same_body_has_the_same_tag() {
        let tag = ask("GET /", &[]).headers().get("etag").unwrap().to_owned();
        assert_eq!(tag.len(), 24, "128 bits in base64, in quotes");
        assert_eq!(ask("HEAD /", &[]).headers().get("etag"), Some(tag.as_str()));
        assert_eq!(ask("POST /", &[]).headers().get("etag"), None);
        assert_eq!(ask("GET /none", &[]).headers().get("etag"), None);
        assert_eq!(ask("GET /stream", &[]).headers().get("etag"), None);
        let many = format!("\"x\", W/{tag}");
        for value in [&tag, &format!("W/{tag}"), &many, "*"] {
            let response = ask("GET /", &[("if-none-match", value)]);
            assert_eq!(response.status(), Status::NOT_MODIFIED, "{value}");
            assert!(response.body().is_empty() && !response.headers().contains("content-type"));
            assert!(response.headers().contains("etag"));
        }
        for value in ["\"x\"", "", "x", tag.trim_matches('"'), "\"x", "W/\"\""] {
            assert_eq!(ask("GET /", &[("if-none-match", value)]).status(), Status::OK, "{value}");
        }
        assert_eq!(ask("GET /", &[("if-match", &tag)]).status(), Status::OK);
        assert_eq!(ask("GET /", &[("if-match", "*")]).status(), Status::OK);
        assert_eq!(ask("GET /", &[("if-match", "\"x\"")]).status(), Status::PRECONDITION_FAILED);
        assert_eq!(
            ask("GET /", &[("if-match", &format!("W/{tag}"))]).status(),
            Status::PRECONDITION_FAILED
        );
    }

    #[test]
    fn j14_tags_come_before_dates() {
        let (old, new) = ("Sun, 06 Nov 1994 08:49:36 GMT", "Sun, 06 Nov 1994 08:49:37 GMT");
        let status = |headers: &[(&str, &str)]| ask("GET /own", headers).status().as_u16();
        assert_eq!(status(&[("if-modified-since", new)]), 304);
        assert_eq!(status(&[("if-modified-since", old)]), 200);
        assert_eq!(status(&[("if-modified-since", "yesterday")]), 200);
        assert_eq!(status(&[("if-modified-since", new), ("if-none-match", "\"b\"")]), 200);
        assert_eq!(status(&[("if-modified-since", old), ("if-none-match", "\"a\"")]), 304);
        assert_eq!(status(&[("if-unmodified-since", old)]), 412);
        assert_eq!(status(&[("if-unmodified-since", new)]), 200);
        assert_eq!(
            status(&[("if-match", "W/\"a\"")]),
            412,
            "a weak tag is never the same to the byte"
        );
    }
}
