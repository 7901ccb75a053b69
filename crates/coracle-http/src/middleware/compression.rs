//! Answers that are shorter on the wire: gzip, brotli, zstd, as the client likes.

use super::{Middleware, Next, vary};
use crate::body::{Kept, Kind};
use crate::files::conditional::{Tag, any_tag};
use crate::shared_file::SharedFile;
use crate::{
    AcceptEncoding, Body, BodyWriter, Coding, Headers, MediaType, Request, Response, Status,
};
use bytes::Bytes;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

/// Shorter answers are not worth it.
const LEAST_BYTES: u64 = 256;

/// Longer ones are compressed on a thread of the worker pool, in the meantime of which others are served.
const OFFLOAD_BYTES: usize = 32 << 10;

/// Longer ones, in memory or in a file, are sent as they are: each client would have them compressed anew.
const LIMIT_COMPRESSED_BYTES: u64 = 64 << 20;

/// So many files at most are compressed while they are sent; each needs its encoder's memory for as long as its
/// client takes. The others are sent as they are.
const LIMIT_COMPRESSED_FILES: usize = 128;

/// So much of a file is compressed at a time.
const PIECE_BYTES: u64 = 128 << 10;

/// A window of 128 KiB in zstd and 64 KiB in brotli, so that a stream costs no megabytes.
const ZSTD_WINDOW: u32 = 17;
const BROTLI_WINDOW: u32 = 16;

/// In the order we like them, where the client does not care: zstd takes the least time.
const CODINGS: [Coding; 3] = [Coding::Zstd, Coding::Br, Coding::Gzip];

/// Compresses answers that are text, by gzip, brotli or zstd, if the client can read them.
///
/// ```
/// use coracle_http::middleware::Compression;
/// use coracle_http::{App, OwnedRequest, Router};
///
/// let app = Router::new(()).with(Compression::new()).get("/", |_, _| "ahoy ".repeat(1000));
/// let request = OwnedRequest::new("GET", "/").with_header("Accept-Encoding", "gzip, br").unwrap();
/// let response = app.call(&request.request());
/// assert_eq!(response.headers().get("content-encoding"), Some("br"));
/// assert!(response.body().len().unwrap() < 100);
/// ```
///
/// What is left as it is: bodies of fewer than 256 bytes or more than 64 MiB, parts (`Content-Range`), what is
/// coded already or says `Cache-Control: no-transform`, and all that is not text: images, archives. Streams are
/// compressed while they are written; a flush goes through. Files that are too large to be in memory are
/// compressed while they are sent, on threads of the worker pool, and not faster than the client takes them, 128
/// at most at a time: each time anew, so compress beforehand what is asked for often.
///
/// An `ETag` becomes a weak one for who takes compressed answers, in a 304 as in the 200 that it stands for. Put
/// [`etag`](fn@super::etag) inside, or compare tags weakly.
///
/// A page that shows both a secret and what others wrote tells the secret by its length, when it is compressed
/// (the attack is called BREACH). Leave such routes out.
#[derive(Debug, Clone)]
pub struct Compression {
    least_bytes: u64,
    /// One for each file that is being compressed, and one for us.
    files: Arc<()>,
}

impl Compression {
    /// All that is text, from 256 bytes on.
    pub fn new() -> Compression {
        Compression { least_bytes: LEAST_BYTES, files: Arc::default() }
    }

    /// All that is text, from so many bytes on.
    #[must_use]
    pub fn from_bytes(mut self, bytes: u64) -> Compression {
        self.least_bytes = bytes;
        self
    }

    fn is_worth_it(&self, response: &Response) -> bool {
        let status = response.status();
        let headers = response.headers();
        let is_plain = status.is_success() || status.is_client_error() || status.is_server_error();
        let has_body = status != Status::NO_CONTENT && status != Status::RESET_CONTENT;
        let is_whole = status != Status::PARTIAL_CONTENT && !headers.contains("content-range");
        let is_coded = headers.contains("content-encoding");
        is_plain
            && has_body
            && is_whole
            && !is_coded
            && may_be_changed(headers)
            && headers.get("content-type").is_some_and(is_text)
            && self.takes(response.body())
    }

    /// The same of an answer that is not sent again.
    fn was_worth_it(&self, kept: &Kept, headers: &Headers) -> bool {
        let is_text = kept.content_type.as_deref().is_some_and(is_text);
        is_text && may_be_changed(headers) && self.takes_length(kept.is_stream, kept.len)
    }

    /// Whether the body is of a kind and a length that is compressed.
    fn takes(&self, body: &Body) -> bool {
        match &body.0 {
            Kind::Static(_) | Kind::Bytes(_) | Kind::Vec(_) | Kind::File { .. } => {
                self.takes_length(false, body.len())
            }
            Kind::Stream { len, .. } => self.takes_length(true, *len),
            Kind::Upgrade(_) | Kind::Kept(_) => false,
        }
    }

    fn takes_length(&self, is_stream: bool, len: Option<u64>) -> bool {
        match len {
            Some(len) => len >= self.least_bytes && (is_stream || len <= LIMIT_COMPRESSED_BYTES),
            None => is_stream,
        }
    }

    /// What is not sent again is told as if it were: by its tag, and by what that depends on (RFC 9110, 15.4.5).
    fn tell_of_kept(&self, req: &Request<'_>, response: &mut Response) {
        let is_coded = match &response.body().0 {
            Kind::Kept(kept) if !self.was_worth_it(kept, response.headers()) => return,
            Kind::Kept(_) => choose(req).is_some(),
            // A handler says so by itself, and does not say of what. The client knows which one it has.
            _ => has_coded(req.headers(), response.headers()),
        };
        vary::add(response, "accept-encoding");
        if is_coded {
            weaken(response);
        }
    }
}

/// What the client likes best.
fn choose(req: &Request<'_>) -> Option<Coding> {
    AcceptEncoding::parse(req.headers().get_all("accept-encoding")).choose(&CODINGS)
}

fn may_be_changed(headers: &Headers) -> bool {
    !headers.has_token("cache-control", "no-transform")
}

/// Whether the client has what has this tag, but compressed.
fn has_coded(asked: &Headers, has: &Headers) -> bool {
    let Some(tag) = has.get("etag") else { return false };
    let is_ours = |other: &Tag<'_>| matches!(other, Tag::Weak(other) if *other == tag.as_bytes());
    asked.get_all("if-none-match").any(|list| any_tag(list.as_bytes(), is_ours))
}

impl Default for Compression {
    fn default() -> Compression {
        Compression::new()
    }
}

impl Middleware for Compression {
    fn handle(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        let mut response = next.run(req);
        match response.status() {
            Status::NOT_MODIFIED => self.tell_of_kept(req, &mut response),
            // The whole would have depended on it.
            Status::PRECONDITION_FAILED | Status::PARTIAL_CONTENT => {
                vary::add(&mut response, "accept-encoding");
            }
            _ => {}
        }
        if !self.is_worth_it(&response) {
            return response;
        }
        vary::add(&mut response, "accept-encoding");
        let Some(coding) = choose(req) else { return response };
        // Whether or not it becomes shorter: another time it might.
        weaken(&mut response);
        let body = match response.take_body().0 {
            Kind::Static(bytes) => whole(coding, Bytes::from_static(bytes)),
            Kind::Bytes(bytes) => whole(coding, bytes),
            Kind::Vec(bytes) => whole(coding, bytes.into()),
            Kind::Stream { writer, .. } => Ok(Body::stream(move |out| stream(coding, writer, out))),
            Kind::File { file, offset, len }
                if Arc::strong_count(&self.files) <= LIMIT_COMPRESSED_FILES =>
            {
                let one = Arc::clone(&self.files);
                Ok(Body::stream(move |out| {
                    let _one = one;
                    self::file(coding, file, offset, len, out)
                }))
            }
            other => Err(Body(other)),
        };
        match body {
            Ok(body) => response.set_body(body),
            Err(body) => {
                response.set_body(body);
                return response;
            }
        }
        response.headers_mut().remove("content-length");
        response.headers_mut().remove("accept-ranges");
        response.headers_mut().insert_static("content-encoding", coding.name());
        response
    }
}

/// The same to whoever reads it, but not to the byte.
fn weaken(response: &mut Response) {
    if let Some(tag) = response.headers().get("etag").filter(|tag| tag.starts_with('"')) {
        let weak = format!("W/{tag}");
        // It was a value, and still is.
        let _ = response.headers_mut().insert("etag", weak);
    }
}

/// Compresses what is there; gives it back if that does not make it shorter, or nobody has time for it.
fn whole(coding: Coding, bytes: Bytes) -> Result<Body, Body> {
    let input = bytes.clone();
    let compress = move || -> io::Result<Vec<u8>> {
        let mut out = Vec::with_capacity(input.len() / 3);
        let mut encoder = Encoder::new(coding, &mut out)?;
        encoder.write_all(&input)?;
        encoder.finish()?;
        Ok(out)
    };
    let compressed = if bytes.len() < OFFLOAD_BYTES || !coracle_coro::may_wait() {
        compress()
    } else {
        coracle_coro::offload(compress).and_then(|compressed| compressed)
    };
    match compressed {
        Ok(compressed) if compressed.len() < bytes.len() => Ok(Body::from(compressed)),
        _ => Err(Body::from(bytes)),
    }
}

fn stream(coding: Coding, writer: crate::body::Writer, out: &mut BodyWriter<'_>) -> io::Result<()> {
    let stopping = out.stopping();
    let mut encoder = Encoder::new(coding, out)?;
    writer(&mut BodyWriter::of(stopping, &mut encoder))?;
    encoder.finish()
}

/// Compresses a file while it is sent: a piece is read and compressed on a thread of the worker pool when what
/// came of the one before is on its way.
fn file(
    coding: Coding,
    file: Arc<SharedFile>,
    offset: u64,
    len: u64,
    out: &mut BodyWriter<'_>,
) -> io::Result<()> {
    let compressed = Compressed::default();
    let mut work = Some(Work { encoder: Encoder::new(coding, compressed.clone())?, file });
    for at in (0..len).step_by(PIECE_BYTES as usize) {
        let count = (len - at).min(PIECE_BYTES) as usize;
        work = Some(elsewhere(work.take(), move |mut work| {
            let mut piece = vec![0; count];
            // If it has become shorter, that is an error, and the answer is cut off.
            work.file.file().read_exact_at(&mut piece, offset + at)?;
            work.encoder.write_all(&piece)?;
            Ok(work)
        })?);
        out.write_all(&compressed.take())?;
    }
    elsewhere(work, |work| work.encoder.finish())?;
    out.write_all(&compressed.take())
}

/// Does something with `work` on a thread of the worker pool, or here if nobody may wait for that.
fn elsewhere<T: Send + 'static>(
    work: Option<Work>,
    task: impl FnOnce(Work) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let Some(work) = work else { return Err(io::ErrorKind::Other.into()) };
    match coracle_coro::may_wait() {
        true => coracle_coro::offload(move || task(work))?,
        false => task(work),
    }
}

/// A file that is being compressed.
struct Work {
    encoder: Encoder<Compressed>,
    file: Arc<SharedFile>,
}

/// What came of it and is not sent yet.
#[derive(Clone, Default)]
struct Compressed(Arc<Mutex<Vec<u8>>>);

impl Compressed {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Compressed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Encoder<W: Write> {
    Gzip(flate2::write::GzEncoder<W>),
    Brotli(Box<brotli::CompressorWriter<Remembering<W>>>),
    Zstd(zstd::Encoder<'static, W>),
}

impl<W: Write> Encoder<W> {
    fn new(coding: Coding, out: W) -> io::Result<Encoder<W>> {
        Ok(match coding {
            Coding::Gzip => {
                Encoder::Gzip(flate2::write::GzEncoder::new(out, flate2::Compression::new(6)))
            }
            Coding::Br => {
                let out = Remembering { out, error: None };
                let quality = 4;
                Encoder::Brotli(Box::new(brotli::CompressorWriter::new(
                    out,
                    8 << 10,
                    quality,
                    BROTLI_WINDOW,
                )))
            }
            Coding::Zstd => {
                let mut encoder = zstd::Encoder::new(out, 3)?;
                encoder.window_log(ZSTD_WINDOW)?;
                Encoder::Zstd(encoder)
            }
        })
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Encoder::Gzip(encoder) => encoder.finish().map(drop),
            Encoder::Brotli(encoder) => encoder.into_inner().error.map_or(Ok(()), Err),
            Encoder::Zstd(encoder) => encoder.finish().map(drop),
        }
    }
}

/// Keeps an error, for who is not told: brotli writes its end, and says nothing of what becomes of it.
struct Remembering<W> {
    out: W,
    error: Option<io::Error>,
}

impl<W: Write> Write for Remembering<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self.out.write(bytes) {
            Ok(0) if !bytes.is_empty() => Err(io::ErrorKind::WriteZero.into()),
            written => written,
        };
        if let Err(error) = &written
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.error = Some(io::Error::new(error.kind(), error.to_string()));
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Encoder::Gzip(encoder) => encoder.write(bytes),
            Encoder::Brotli(encoder) => encoder.write(bytes),
            Encoder::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoder::Gzip(encoder) => encoder.flush(),
            Encoder::Brotli(encoder) => encoder.flush(),
            Encoder::Zstd(encoder) => encoder.flush(),
        }
    }
}

/// Whether a media type is of a kind that becomes shorter.
fn is_text(value: &str) -> bool {
    const OTHERS: [&str; 7] = [
        "application/javascript",
        "application/json",
        "application/manifest+json",
        "application/wasm",
        "application/xml",
        "application/x-ndjson",
        "image/svg+xml",
    ];
    let Some(kind) = MediaType::parse(value) else { return false };
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // Events are small and come one by one; a proxy that buffers compressed streams would hold them back.
    let text = essence.starts_with("text/") && essence != "text/event-stream";
    text || kind.is_json() || essence.ends_with("+xml") || OTHERS.contains(&essence.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middleware::etag;
    use crate::{App, IntoResponse, OwnedRequest, Router};
    use std::io::Read;

    fn decoded(coding: &str, bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        match coding {
            "gzip" => flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap(),
            "br" => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut plain).unwrap(),
            "zstd" => zstd::Decoder::new(bytes).unwrap().read_to_end(&mut plain).unwrap(),
            other => panic!("{other}"),
        };
        plain
    }

    fn bytes(response: &mut Response) -> Vec<u8> {
        let body = response.take_body();
        if let Some(bytes) = body.as_bytes() {
            return bytes.to_vec();
        }
        let Kind::Stream { writer, .. } = body.0 else { panic!("a stream") };
        let mut all = Vec::new();
        writer(&mut BodyWriter::new(&mut all)).unwrap();
        all
    }

    fn ask(path: &str, accepted: &str) -> Response {
        ask_if(path, accepted, None)
    }

    fn ask_if(path: &str, accepted: &str, none_match: Option<&str>) -> Response {
        let long = |_: &(), _: &Request<'_>| "ahoy ".repeat(1000);
        let typed = |kind: &'static str| {
            move |_: &(), _: &Request<'_>| {
                long(&(), &OwnedRequest::new("GET", "/").request())
                    .into_response()
                    .with_header("content-type", kind)
            }
        };
        let app = Router::new(())
            .with(Compression::new())
            .with(etag)
            .get("/text", long)
            .get("/huge", |_, _| "ahoy ".repeat(100_000))
            .get("/short", |_, _| "ahoy")
            .get("/png", typed("image/png"))
            .get("/json", typed("application/problem+json"))
            .get("/svg", typed("image/svg+xml; charset=utf-8"))
            .get("/events", typed("text/event-stream"))
            .get("/coded", move |_, _| {
                "ahoy ".repeat(1000).into_response().with_header("Content-Encoding", "x")
            })
            .get("/part", move |_, _| (Status::PARTIAL_CONTENT, "ahoy ".repeat(1000)))
            .get("/keep", move |_, _| {
                "ahoy ".repeat(1000).into_response().with_header("Cache-Control", "no-transform")
            })
            .get("/random", |_, _| {
                let mut state = 1_u32;
                let noise = std::iter::repeat_with(|| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                });
                noise
                    .take(1000)
                    .collect::<Vec<u8>>()
                    .into_response()
                    .with_header("content-type", "text/plain")
            })
            .get("/stream", |_, _| {
                Body::stream(|out| {
                    for _ in 0..1000 {
                        out.write_all(b"ahoy ")?;
                    }
                    out.flush()
                })
                .into_response()
                .with_header("content-type", "text/plain")
                .with_header("etag", "\"stream\"")
            })
            .get("/own", |_, req| {
                let tags = req.header("if-none-match").unwrap_or_default();
                let answer = match any_tag(tags.as_bytes(), |tag| tag.is_weakly("\"own\"")) {
                    true => Status::NOT_MODIFIED.into_response(),
                    false => "ahoy ".repeat(1000).into_response(),
                };
                answer.with_header("etag", "\"own\"")
            });
        let mut request =
            OwnedRequest::new("GET", path).with_header("accept-encoding", accepted).unwrap();
        if let Some(tags) = none_match {
            request = request.with_header("if-none-match", tags).unwrap();
        }
        app.call(&request.request())
    }

    #[test]
    fn j11_answers_are_compressed_by_what_the_client_likes() {
        for coding in ["gzip", "br", "zstd"] {
            for (path, plain) in [
                ("/text", 5000),
                ("/stream", 5000),
                ("/json", 5000),
                ("/svg", 5000),
                ("/huge", 500_000),
            ] {
                let mut response = ask(path, coding);
                assert_eq!(response.headers().get("content-encoding"), Some(coding), "{path}");
                assert_eq!(response.headers().get("vary"), Some("accept-encoding"));
                let body = bytes(&mut response);
                assert!(body.len() < plain / 20, "{path} {coding}: {}", body.len());
                assert_eq!(
                    decoded(coding, &body),
                    "ahoy ".repeat(plain / 5).as_bytes(),
                    "{path} {coding}"
                );
            }
        }
    }

    #[test]
    fn j11_what_is_not_worth_it_stays() {
        for path in ["/short", "/png", "/events", "/coded", "/keep", "/none"] {
            let response = ask(path, "gzip");
            assert_ne!(response.headers().get("content-encoding"), Some("gzip"), "{path}");
            assert!(!response.headers().contains("vary"), "{path}");
        }
        let response = ask("/part", "gzip");
        assert_eq!(response.headers().get("content-encoding"), None);
        assert_eq!(response.headers().get("vary"), Some("accept-encoding"), "as of the whole");
        let mut response = ask("/random", "gzip");
        assert_eq!(response.headers().get("content-encoding"), None);
        assert_eq!(bytes(&mut response).len(), 1000);
        let response = ask("/text", "gzip;q=0");
        assert_eq!(response.headers().get("content-encoding"), None);
        assert_eq!(
            response.headers().get("vary"),
            Some("accept-encoding"),
            "a cache must not mix them up"
        );
    }

    #[test]
    fn j11_what_was_not_sent_depends_on_the_coding_too() {
        for (name, value, status) in [
            ("if-none-match", "*", Status::NOT_MODIFIED),
            ("if-match", "\"x\"", Status::PRECONDITION_FAILED),
        ] {
            let app = Router::new(())
                .with(Compression::new())
                .with(etag)
                .get("/text", |_, _| "ahoy ".repeat(1000));
            let request = OwnedRequest::new("GET", "/text").with_header(name, value).unwrap();
            let response = app.call(&request.request());
            assert_eq!(response.status(), status);
            assert_eq!(response.headers().get("vary"), Some("accept-encoding"), "{status}");
        }
    }

    #[test]
    fn j11_several_fields_are_one_list() {
        let app = Router::new(()).with(Compression::new()).get("/", |_, _| "ahoy ".repeat(1000));
        let request = OwnedRequest::new("GET", "/")
            .with_header("accept-encoding", "deflate")
            .and_then(|request| request.with_header("accept-encoding", "gzip"))
            .unwrap();
        assert_eq!(request.request().headers().get_all("accept-encoding").count(), 2);
        let response = app.call(&request.request());
        assert_eq!(response.headers().get("content-encoding"), Some("gzip"));
    }

    #[test]
    fn j11_an_end_that_is_not_taken_is_an_error() {
        for coding in CODINGS {
            let ahoy = || -> crate::body::Writer { Box::new(|out| out.write_all(b"ahoy")) };
            let mut all = Vec::new();
            stream(coding, ahoy(), &mut BodyWriter::new(&mut all)).unwrap();
            let mut less = vec![0_u8; all.len() - 1];
            let result = stream(coding, ahoy(), &mut BodyWriter::new(&mut &mut less[..]));
            assert!(result.is_err(), "{coding:?}");
        }
    }

    /// What a client and the caches before it go by: the tag, and what else it depends on.
    fn told(response: &Response) -> [Option<String>; 2] {
        ["etag", "vary"].map(|name| response.headers().get(name).map(str::to_owned))
    }

    #[test]
    fn j11_a_304_is_told_as_its_200_would_be() {
        let paths = ["/text", "/huge", "/short", "/png", "/coded", "/keep", "/random", "/stream"];
        for path in paths {
            for accepted in ["gzip", "br", "identity", "gzip;q=0"] {
                let whole = ask(path, accepted);
                assert_eq!(whole.status(), Status::OK);
                let tag = whole.headers().get("etag").unwrap();
                let opaque = tag.trim_start_matches("W/");
                for tags in [opaque, &format!("W/{opaque}"), &format!("\"x\", {tag}"), "*"] {
                    let kept = ask_if(path, accepted, Some(tags));
                    assert_eq!(kept.status(), Status::NOT_MODIFIED, "{path} {tags}");
                    assert!(
                        kept.body().is_empty() && kept.headers().get("content-encoding").is_none()
                    );
                    assert_eq!(told(&kept), told(&whole), "{path} for {accepted}, who has {tags}");
                }
                let other = ask_if(path, accepted, Some("\"x\", W/\"y\""));
                assert_eq!((other.status(), told(&other)), (Status::OK, told(&whole)));
            }
        }
        let tag = |accepted| told(&ask("/text", accepted))[0].clone().unwrap();
        assert!(tag("gzip").starts_with("W/\""), "what is compressed is not the same to the byte");
        assert!(tag("identity").starts_with('"'));
    }

    #[test]
    fn j11_a_304_of_a_handler_has_the_tag_that_the_client_has() {
        for (accepted, tag) in [("gzip", "W/\"own\""), ("identity", "\"own\"")] {
            let whole = ask("/own", accepted);
            assert_eq!(told(&whole)[0].as_deref(), Some(tag));
            let kept = ask_if("/own", accepted, Some(tag));
            assert_eq!((kept.status(), told(&kept)), (Status::NOT_MODIFIED, told(&whole)));
        }
    }

    #[test]
    fn j11_a_flush_goes_through() {
        for coding in CODINGS {
            struct Seen(Vec<u8>, usize);
            impl Write for Seen {
                fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                    self.0.extend_from_slice(bytes);
                    Ok(bytes.len())
                }
                fn flush(&mut self) -> io::Result<()> {
                    self.1 = self.0.len();
                    Ok(())
                }
            }
            let mut seen = Seen(Vec::new(), 0);
            {
                let mut encoder = Encoder::new(coding, &mut seen).unwrap();
                encoder.write_all(b"first").unwrap();
                encoder.flush().unwrap();
                std::mem::forget(encoder); // as if the rest never came
            }
            assert!(seen.1 > 0, "{coding:?}: it was passed on, flush and all");
            let mut plain = [0; 5];
            match coding {
                Coding::Gzip => {
                    flate2::read::GzDecoder::new(&seen.0[..]).read_exact(&mut plain).unwrap()
                }
                Coding::Br => {
                    brotli::Decompressor::new(&seen.0[..], 4096).read_exact(&mut plain).unwrap()
                }
                Coding::Zstd => {
                    zstd::Decoder::new(&seen.0[..]).unwrap().read_exact(&mut plain).unwrap()
                }
            }
            assert_eq!(&plain, b"first", "{coding:?}");
        }
    }

    #[test]
    fn j11_an_error_of_the_writer_or_the_client_ends_the_stream() {
        for coding in CODINGS {
            let failing: crate::body::Writer = Box::new(|_| Err(io::Error::other("no more")));
            let mut all = Vec::new();
            let error = stream(coding, failing, &mut BodyWriter::new(&mut all)).unwrap_err();
            assert_eq!(error.to_string(), "no more");
            let endless: crate::body::Writer = Box::new(|out| {
                let mut state = 1_u32;
                loop {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    out.write_all(&state.to_be_bytes())?;
                }
            });
            let mut little = [0_u8; 100];
            assert!(stream(coding, endless, &mut BodyWriter::new(&mut &mut little[..])).is_err());
        }
    }
}
