//! Rows J10, J11 and J14: templates, and what is done around an app.

use crate::client::Client;
use crate::harness::Harness;
use coracle_http::middleware::{
    AccessLog, Compression, ErrorPages, LogFormat, RateLimit, RequestIds, catch_panics, etag,
};
use coracle_http::{Body, IntoResponse, Request, Router, Templates, context, inline};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) fn j10_template_is_rendered_and_escaped(h: &Harness) {
    let mut templates = Templates::new();
    templates.add("a.html", "<p>{{ query }}</p>").expect("it is one");
    let app = Router::new(templates).get("/", |templates, req| {
        let query = req.query_pairs()?.get("q").map(str::to_owned);
        templates.render("a.html", context! { query })
    });
    let client = Client::of(h, app);
    let answer = client.get("/?q=%3Cscript%3E");
    assert_eq!(answer.text(), "<p>&lt;script&gt;</p>");
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
}

fn ask(client: &Client<'_>, method: &str, target: &str, header: &str) {
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n"));
}

pub(crate) fn j11_answers_are_compressed(h: &Harness) {
    let app = Router::new(())
        .with(Compression::new())
        .with(etag)
        .get("/", |_, _| "ahoy ".repeat(1000))
        .get("/large", |_, _| "ahoy ".repeat(100_000));
    let client = Client::of(h, app);
    for (coding, magic) in
        [("gzip", &[0x1f, 0x8b][..]), ("zstd", &[0x28, 0xb5, 0x2f, 0xfd]), ("br", &[])]
    {
        for target in ["/", "/large"] {
            ask(&client, "GET", target, &format!("Accept-Encoding: {coding}"));
            let answer = client.answer();
            assert_eq!(answer.header("content-encoding"), Some(coding));
            assert_eq!(answer.header("vary"), Some("accept-encoding"));
            assert!(
                answer.body.starts_with(magic) && answer.body.len() < 4000,
                "{coding} {target}"
            );
            let length = answer.body.len().to_string();
            ask(&client, "HEAD", target, &format!("Accept-Encoding: {coding}"));
            assert_eq!(
                client.head().header("content-length"),
                Some(length.as_str()),
                "as that of GET"
            );
            let tag = answer.header("etag").expect("it has one");
            ask(
                &client,
                "GET",
                target,
                &format!("Accept-Encoding: {coding}\r\nIf-None-Match: {tag}"),
            );
            assert_eq!(client.answer().status, 304);
        }
    }
    assert_eq!(client.get("/").text().len(), 5000, "for who does not ask");
}

pub(crate) fn j11_handler_on_the_loop_does_not_wait_for_compression(h: &Harness) {
    let app = Router::new(()).with(Compression::new()).get("/", |_, _| "ahoy ".repeat(100_000));
    let client = Client::of(h, inline(app));
    ask(&client, "GET", "/", "Accept-Encoding: gzip");
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("content-encoding")), (200, Some("gzip")));
    assert_eq!(client.service.stats().panics, 0);
}

pub(crate) fn j11_stream_is_compressed_and_flushed(h: &Harness) {
    let app = Router::new(()).with(Compression::new()).get("/", |_, _| {
        let body = Body::stream(|out| {
            out.write_all(&b"first ".repeat(50))?;
            out.flush()?;
            coracle_coro::sleep(Duration::from_millis(1))?;
            out.write_all(&b"second ".repeat(50))
        });
        body.into_response().with_header("content-type", "text/plain")
    });
    let client = Client::of(h, app);
    ask(&client, "GET", "/", "Accept-Encoding: gzip");
    let answer = client.answer();
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
    assert!(
        answer.body.starts_with(&[0x1f, 0x8b]) && answer.body.len() < 200,
        "{}",
        answer.body.len()
    );
    assert_eq!(client.get("/").text(), "first ".repeat(50) + &"second ".repeat(50));
}

/// A file in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Memory {
    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().expect("no panic").clone();
        String::from_utf8(bytes).expect("text").lines().map(str::to_owned).collect()
    }
}

pub(crate) fn j14_answers_are_logged_when_they_are_written(h: &Harness) {
    let memory = Memory::default();
    let log = AccessLog::to_writer(memory.clone(), LogFormat::Combined);
    let app = Router::new(())
        .with(RequestIds::new())
        .with(log.clone())
        .get("/a", |_, _| "ahoy")
        .get("/stream", |_, _| {
            Body::stream(|out| {
                out.write_all(b"12345")?;
                coracle_coro::sleep(Duration::from_millis(1))?;
                out.write_all(b"67890")
            })
        });
    let client = Client::of(h, app);
    ask(&client, "GET", "/a?b", "User-Agent: \"quoted\"");
    assert!(client.answer().header("x-request-id").is_some());
    assert_eq!(client.get("/stream").text(), "1234567890");
    ask(&client, "HEAD", "/a", "X: y");
    client.head();
    log.flush();
    let lines = memory.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines[0].starts_with("192.0.2.1 - - [")
            && lines[0].ends_with("\"GET /a?b HTTP/1.1\" 200 4 \"-\" \"\\\"quoted\\\"\""),
        "{lines:?}"
    );
    assert!(lines[1].contains("\"GET /stream HTTP/1.1\" 200 10 "), "{lines:?}");
    assert!(lines[2].contains("\"HEAD /a HTTP/1.1\" 200 0 "), "{lines:?}");
}

pub(crate) fn j14_panic_is_logged_and_has_a_page(h: &Harness) {
    let memory = Memory::default();
    let log = AccessLog::to_writer(memory.clone(), LogFormat::Common);
    let app = Router::new(())
        .with(log.clone())
        .with(ErrorPages::new())
        .with(catch_panics)
        .get("/", |_, _| -> String { std::panic::resume_unwind(Box::new("on purpose")) });
    let client = Client::of(h, app);
    ask(&client, "GET", "/", "Accept: text/html");
    let answer = client.answer();
    assert_eq!(answer.status, 500);
    assert!(answer.text().contains("<h1>500 Internal Server Error</h1>"), "{}", answer.text());
    ask(&client, "GET", "/none", "Accept: application/json");
    assert_eq!(client.answer().text(), r#"{"status":404,"error":"404 Not Found"}"#);
    log.flush();
    let lines = memory.lines();
    assert!(lines[0].contains(" 500 ") && lines[1].contains(" 404 "), "{lines:?}");
    assert_eq!(client.service.stats().panics, 0, "it did not come so far");
}

pub(crate) fn j14_rate_is_limited_by_address(h: &Harness) {
    let app = Router::new(())
        .with(RateLimit::every(Duration::from_secs(3600)).burst(3))
        .get("/", |_, _| "ahoy");
    let client = Client::of(h, app);
    let statuses: Vec<u16> = (0..5).map(|_| client.get("/").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    let wait: u64 =
        client.get("/").header("retry-after").expect("it says so").parse().expect("seconds");
    assert!((3000..=3600).contains(&wait), "{wait}");
}

pub(crate) fn j14_rate_is_exact(h: &Harness) {
    let app = Router::new(())
        .with(RateLimit::every(Duration::from_secs(10)))
        .get("/", |_: &(), _: &Request<'_>| "ahoy");
    let client = Client::of(h, app);
    assert_eq!(client.get("/").status, 200);
    assert_eq!(client.get("/").status, 429);
    h.run_for(Duration::from_secs(9));
    assert_eq!(client.get("/").status, 429);
    h.run_for(Duration::from_secs(2));
    assert_eq!(client.get("/").status, 200);
}
