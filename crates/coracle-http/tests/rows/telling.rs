//! Row J14: what is refused before an app is asked is logged like any answer, and has the error pages of the app.

use crate::client::{Answer, Client};
use crate::harness::Harness;
use coracle_http::middleware::{AccessLog, ErrorPages, LogFormat, Next, RequestIds, around};
use coracle_http::{
    App, Body, IntoResponse, Plan, Refusal, Request, Response, Router, Settings, Status, inline,
};
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A log in memory.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// All lines, without the time that is in them: `192.0.2.1 "GET / HTTP/1.1" 200 2`.
    fn take(&self, log: &AccessLog) -> Vec<String> {
        log.flush();
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
        let plain = |line: &str| {
            let (peer, rest) = line.split_once(" - - [").expect("a peer");
            format!("{peer} {}", rest.split_once("] ").expect("a time").1)
        };
        text.lines().map(plain).collect()
    }
}

fn logged(app: impl App) -> (impl App, AccessLog, Lines) {
    let lines = Lines::default();
    let log = AccessLog::to_writer(lines.clone(), LogFormat::Common);
    (around(log.clone(), app), log, lines)
}

fn ok(_: &Request<'_>) -> &'static str {
    "ok"
}

fn limited() -> Settings {
    Settings {
        limit_header_bytes: 1000,
        limit_headers: 10,
        limit_target_bytes: 100,
        limit_body_bytes: 20,
        ..Settings::default()
    }
}

/// The answer to something that is refused, and the end behind it.
fn refused(client: &Client<'_>) -> Answer {
    let answer = client.answer();
    assert_eq!(answer.header("connection"), Some("close"), "{answer:?}");
    assert_eq!(client.rest(), b"");
    answer
}

pub(crate) fn j14_refused_requests_are_in_the_access_log(h: &Harness) {
    let fields = |line: &str, fields: &str| format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let post = |more: &str| fields("POST /up?x=1", more);
    for (text, status, known) in [
        ("\0\r\n\r\n".to_owned(), 400, "- - -"),
        ("\r\n\r\n".to_owned(), 400, "- - -"),
        (fields("GET /a b", ""), 400, "GET /a -"),
        (fields("GET /a#b", ""), 400, "GET - -"),
        (fields("GET a", ""), 400, "GET - -"),
        (fields(&format!("GET /{}", "a".repeat(100)), ""), 414, "GET - -"),
        (fields(&format!("{} /", "A".repeat(40)), ""), 501, "- - -"),
        ("GET /a?b HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(), 505, "GET /a?b -"),
        ("GET /a HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), 400, "GET /a HTTP/1.0"),
        (fields("GET /a", "bad name: x\r\n"), 400, "GET /a HTTP/1.1"),
        (fields("GET /a", &"a: b\r\n".repeat(10)), 431, "GET /a HTTP/1.1"),
        (fields("GET /a", &format!("a: {}\r\n", "b".repeat(1000))), 431, "GET /a HTTP/1.1"),
        (fields("GET /a", "Expect: more\r\n"), 417, "GET /a HTTP/1.1"),
        (fields("TRACE /a", ""), 501, "TRACE /a HTTP/1.1"),
        (post("Content-Length: 21\r\n"), 413, "POST /up?x=1 HTTP/1.1"),
        (post("Transfer-Encoding: chunked\r\n") + "x\r\n", 400, "POST /up?x=1 HTTP/1.1"),
        (post("Transfer-Encoding: gzip\r\n"), 501, "POST /up?x=1 HTTP/1.1"),
    ] {
        let (app, log, lines) = logged(ok);
        let client = Client::with(h, limited(), app);
        client.send(&text);
        let answer = refused(&client);
        assert_eq!(answer.status, status, "{text:?}");
        let bytes = answer.body.len();
        assert!(bytes > 0);
        let line = format!("192.0.2.1 \"{known}\" {status} {bytes}");
        assert_eq!(lines.take(&log), [line], "{text:?}");
    }
    // One that is served, and a HEAD that is not.
    let (app, log, lines) = logged(ok);
    let client = Client::with(h, limited(), app);
    assert_eq!(client.get("/a").status, 200);
    client.send("HEAD /b HTTP/1.1\r\n\r\n");
    assert_eq!(client.head().status, 400);
    assert_eq!(client.rest(), b"");
    let expected = ["192.0.2.1 \"GET /a HTTP/1.1\" 200 2", "192.0.2.1 \"HEAD /b HTTP/1.1\" 400 0"];
    assert_eq!(lines.take(&log), expected);
}

pub(crate) fn j14_late_requests_are_in_the_access_log(h: &Harness) {
    let timeout = Duration::from_millis(40);
    let settings = Settings {
        header_timeout: timeout,
        body_timeout: timeout,
        min_body_rate: 1_000_000,
        ..limited()
    };
    for (text, known) in [
        ("GET /a HT", "- - -"),
        ("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab", "POST /up HTTP/1.1"),
    ] {
        let (app, log, lines) = logged(ok);
        let client = Client::with(h, settings.clone(), app);
        client.send(text);
        let answer = refused(&client);
        assert_eq!(answer.status, 408, "{text:?}");
        let line = format!("192.0.2.1 \"{known}\" 408 {}", answer.body.len());
        assert_eq!(lines.take(&log), [line], "{text:?}");
    }
}

pub(crate) fn j14_refused_requests_have_error_pages(h: &Harness) {
    let pages = || {
        ErrorPages::new()
            .page(Status::BAD_REQUEST, |message| format!("<b>{message}</b>"))
            .page(Status::REQUEST_TIMEOUT, |_| "<b>late</b>".to_owned())
            .page(Status::PAYLOAD_TOO_LARGE, |_| "<b>large</b>".to_owned())
    };
    let page = |text: &str| {
        let client = Client::with(h, limited(), around(pages(), inline(ok)));
        client.send(text);
        let answer = refused(&client);
        let kind = answer.header("content-type").unwrap_or_default().to_owned();
        (answer.status, kind, answer.text().to_owned())
    };
    let html = "text/html; charset=utf-8".to_owned();
    // What is known of the head says what is wanted.
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 21\r\n";
    let asking = format!("{post}Accept: text/html\r\n\r\n");
    assert_eq!(page(&asking), (413, html.clone(), "<b>large</b>".into()));
    let asking = format!("{post}Accept: application/json\r\n\r\n");
    let json = r#"{"status":413,"error":"the body is too large"}"#;
    assert_eq!(page(&asking), (413, "application/json".into(), json.into()));
    assert_eq!(page(&format!("{post}\r\n")).2, "the body is too large\n", "nothing is wanted");
    // Nothing is known: there is a page for it, or there is none.
    let wrong = "GET / HTTP/1.1\r\nHost : a\r\nAccept: text/plain\r\n\r\n";
    let (status, kind, text) = page(wrong);
    assert_eq!((status, kind), (400, html.clone()));
    assert!(text.starts_with("<b>a header field has no proper name"), "{text}");
    assert_eq!(page("GET / HT"), (408, html, "<b>late</b>".into()));
    let (status, kind, text) = page("GET / HTTP/2.0\r\n\r\n");
    assert_eq!((status, text.as_str()), (505, "this server speaks HTTP/1.1\n"));
    assert!(kind.starts_with("text/plain"), "{kind}");
}

/// Says whether it was asked for an answer or for a refusal.
struct Witness(&'static str);

impl coracle_http::middleware::Middleware for Witness {
    fn handle(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        next.run(req).with_header(self.0, "handled")
    }

    fn refuse(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        next.run(req).with_header(self.0, "refused")
    }
}

pub(crate) fn j14_middlewares_of_the_route_see_a_refusal(h: &Harness) {
    fn closed(_: &Request<'_>, _: Next<'_>) -> Status {
        Status::UNAUTHORIZED // whoever asks; but who is refused does not ask
    }
    let nest =
        |nest: Router<()>| nest.with(Witness("x-nest")).with(closed).post("/up", |_, _| "up");
    let mounted = around(Witness("x-mounted"), ok);
    let app = Router::new(())
        .with(RequestIds::new())
        .with(Witness("x-all"))
        .nest("/nest", nest)
        .mount("/mounted", mounted);
    let service = coracle_http::Service::new(app, limited()).expect("a service");
    let told = |text: &str| {
        let client = Client::to(h, &service);
        client.send(text);
        let answer = client.answer();
        let told = |name: &str| answer.header(name).unwrap_or("-").to_owned();
        assert!(answer.header("x-request-id").is_some(), "{answer:?}");
        (answer.status, ["x-all", "x-nest", "x-mounted"].map(told))
    };
    let post = |path: &str, length: usize| {
        let body = "x".repeat(length);
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let (handled, refused, none) = ("handled", "refused", "-");
    let all = |told: [&str; 3]| told.map(str::to_owned);
    assert_eq!(told(&post("/nest/up", 1)), (401, all([handled, handled, none])));
    assert_eq!(told(&post("/nest/up", 21)), (413, all([refused, refused, none])));
    assert_eq!(told(&post("/mounted/x", 1)), (200, all([handled, none, handled])));
    assert_eq!(told(&post("/mounted/x", 21)), (413, all([refused, none, refused])));
    assert_eq!(told(&post("/none", 21)), (413, all([refused, none, none])));
    assert_eq!(told("?\r\n\r\n"), (400, all([refused, none, none])));
}

pub(crate) fn j14_handler_that_panics_is_in_the_access_log_and_has_an_error_page(h: &Harness) {
    fn app(req: &Request<'_>) -> &'static str {
        assert_ne!(req.path(), "/panic", "as it should");
        "ok"
    }
    let page = |_: &str| "<b>broken</b>".to_owned();
    for on_the_loop in [false, true] {
        let pages = ErrorPages::new().page(Status::INTERNAL_SERVER_ERROR, page);
        let app: Rc<dyn App> = match on_the_loop {
            true => Rc::new(inline(around(pages, app))),
            false => Rc::new(around(pages, app)),
        };
        let (app, log, lines) = logged(app);
        let client = Client::of(h, app);
        client.send("GET /panic HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n");
        let answer = client.answer();
        assert_eq!((answer.status, answer.text()), (500, "<b>broken</b>"));
        assert_eq!(answer.header("connection"), None, "it was not the client's fault");
        assert_eq!(client.get("/").text(), "ok", "on the same connection");
        let expected =
            ["192.0.2.1 \"GET /panic HTTP/1.1\" 500 13", "192.0.2.1 \"GET / HTTP/1.1\" 200 2"];
        assert_eq!(lines.take(&log), expected);
    }
}

pub(crate) fn j14_what_finds_no_stack_is_logged_once(h: &Harness) {
    let none = coracle_stack::Settings { limit_stacks: 0, ..coracle_stack::Settings::default() };
    coracle_coro::set_stacks(&h.lp, none).expect("there were no coroutines");
    let stream = |_: &Request<'_>| Body::stream(|out| out.write_all(b"in pieces"));
    for on_the_loop in [false, true] {
        for method in ["GET", "HEAD"] {
            let app: Rc<dyn App> = match on_the_loop {
                true => Rc::new(inline(stream)),
                false => Rc::new(stream),
            };
            let (app, log, lines) = logged(app);
            let client = Client::of(h, app);
            client.send(format!("{method} /a HTTP/1.1\r\nHost: a\r\n\r\n"));
            let head = client.head();
            assert_eq!((head.status, head.header("retry-after")), (503, Some("5")));
            let body = client.rest();
            let told = String::from_utf8_lossy(&body);
            assert_eq!(told.contains("request"), method == "GET", "{method} {told:?}");
            assert_eq!(body.is_empty(), method == "HEAD", "{method} {told:?}");
            // What was answered on the loop was logged then, before anybody knew.
            let status = if on_the_loop { 200 } else { 503 };
            let bytes = if on_the_loop { 0 } else { body.len() };
            let line = format!("192.0.2.1 \"{method} /a HTTP/1.1\" {status} {bytes}");
            assert_eq!(lines.take(&log), [line]);
        }
    }
}

/// Refuses as it is told to.
struct Refusing<F>(F);

impl<F: Fn(&Request<'_>) -> Response + 'static> App for Refusing<F> {
    fn call(&self, _: &Request<'_>) -> Response {
        "ok".into_response()
    }

    fn plan(&self, req: &Request<'_>) -> Plan {
        assert_ne!(req.path(), "/panic", "as it should");
        Plan::default()
    }

    fn refuse(&self, req: &Request<'_>, refusal: &Refusal) -> Response {
        assert!(refusal.status().is_client_error() && !refusal.why().is_empty());
        (self.0)(req)
    }
}

pub(crate) fn j14_app_that_cannot_refuse_is_left_out(h: &Harness) {
    let told = |refuse: fn(&Request<'_>) -> Response| {
        let client = Client::of(h, Refusing(refuse));
        client.send("GET / HTTP/1.1\r\n\r\n");
        let answer = refused(&client);
        assert_eq!(client.service.stats().refused, 1);
        (answer.status, answer.text().to_owned(), client.service.stats().panics)
    };
    assert_eq!(told(|_| (Status::IM_A_TEAPOT, "no").into_response()), (418, "no".into(), 0));
    let plain = "there is no Host\n".to_owned();
    assert_eq!(told(|_| panic!("as it should")), (400, plain.clone(), 1));
    assert_eq!(told(|_| Body::stream(|_| Ok(())).into_response()), (400, plain.clone(), 0));
    assert_eq!(told(|_| Status::CONTINUE.into_response()), (400, plain.clone(), 0));
    // Nothing may wait.
    let waiting = |_: &Request<'_>| {
        coracle_coro::sleep(Duration::from_secs(1)).expect("it is not cancelled");
        "slept".into_response()
    };
    assert_eq!(told(waiting), (400, plain, 1));
}
