//! The client: what it sends, what it takes, and what becomes of what goes wrong.

use crate::harness::Harness;
use crate::peers::{Script, deaf, held, listening, run, scripted};
use coracle_coro::sleep;
use coracle_http::client::{Client, Settings};
use coracle_http::{
    App, Body, Headers, IntoResponse, Method, Redirect, Request, Response, Status, streaming,
};
use coracle_loop::Loop;
use coracle_net::{Address, ConnHandle};
use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const NEVER: Duration = Duration::from_secs(3600);

/// A client that tries once, and waits.
fn patient() -> Settings {
    Settings {
        connect_timeout: NEVER,
        head_timeout: NEVER,
        body_timeout: NEVER,
        limit_attempts: 1,
        retry_pause: MS,
        ..Settings::default()
    }
}

fn client() -> Client {
    Client::with(patient()).expect("the settings make sense")
}

fn url(address: &Address, path: &str) -> String {
    format!("http://{address}{path}")
}

/// Says what it was asked.
fn mirror() -> impl App {
    |req: &Request<'_>| -> Response {
        let fields: Vec<String> = req
            .headers()
            .iter()
            .map(|(name, value)| format!("{}={}", name.to_ascii_lowercase(), value.escape_ascii()))
            .collect();
        let query = req.query().map_or_else(String::new, |query| format!("?{query}"));
        let body = String::from_utf8_lossy(req.body());
        let line = format!("{} {}{query}", req.method_name(), req.path());
        format!("{line}\n{}\n{body}", fields.join(";")).into_response()
    }
}

pub(crate) fn j12_request_is_answered_and_its_connection_kept(h: &Harness) {
    let (address, accepted) = crate::peers::counted(h, mirror());
    run(h, move || {
        let client = client();
        for _ in 0..3 {
            let answer = client.get(&url(&address, "/a?b")).header("X-A", "1").send().unwrap();
            assert_eq!(answer.status(), Status::OK);
            let host = address.to_string();
            let text = answer.text().unwrap();
            assert!(text.starts_with("GET /a?b\n"), "{text}");
            assert!(text.contains(&format!("host={host};user-agent=coracle/")), "{text}");
            assert!(text.contains("x-a=1") && !text.contains("content-length"), "{text}");
        }
        let answer = client.post(&url(&address, "/")).body("ahoy").send().unwrap();
        let text = answer.text().unwrap();
        assert!(text.contains("content-length=4") && text.ends_with("\nahoy"), "{text}");
        let answer = client.head(&url(&address, "/")).send().unwrap();
        assert_eq!(answer.text().unwrap(), "", "HEAD has no body");
        assert!(
            client
                .post(&url(&address, "/"))
                .send()
                .unwrap()
                .text()
                .unwrap()
                .contains("content-length=0")
        );
    });
    assert_eq!(accepted.get(), 1, "one connection for all of them");
}

pub(crate) fn j12_json_forms_and_passwords(h: &Harness) {
    let address = listening(h, mirror());
    run(h, move || {
        let client = client();
        let to = url(&address, "/");
        let pairs = [("a", "1 2"), ("b", "ä&")];
        let text = client.post(&to).form(&pairs).send().unwrap().text().unwrap();
        assert!(text.ends_with("\na=1+2&b=%C3%A4%26"), "{text}");
        assert!(text.contains("content-type=application/x-www-form-urlencoded"), "{text}");
        let text = client.put(&to).json(&pairs).send().unwrap().text().unwrap();
        assert!(text.ends_with("[[\"a\",\"1 2\"],[\"b\",\"\u{e4}&\"]]"), "{text}");
        let text = client.get(&to).basic_auth("ahab", "whale").send().unwrap().text().unwrap();
        assert!(text.contains("authorization=Basic YWhhYjp3aGFsZQ=="), "{text}");
    });
    let address = listening(h, |_: &Request<'_>| coracle_http::Json(vec![1, 2, 3]));
    run(h, move || {
        let answer = client().get(&url(&address, "/")).send().unwrap();
        assert_eq!(answer.json::<Vec<u32>>().unwrap(), [1, 2, 3]);
    });
}

pub(crate) fn j12_what_cannot_be_sent_is_refused(h: &Harness) {
    run(h, || {
        let client = client();
        let to = "http://127.0.0.1:1/";
        let refused = [
            client.get("gopher://a/").send(),
            client.get(to).header("X-A", "a\r\nX-B: b").send(),
            client.get(to).header("Content-Length", "5").send(),
            client.get(to).header("Transfer-Encoding", "chunked").send(),
            client.request("GET /x", to).send(),
            client.request("CONNECT", to).send(),
            client.get("http://user@127.0.0.1:1/").send(),
        ];
        for error in refused.map(|sent| sent.expect_err("it is refused")) {
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        let error =
            client.get("https://127.0.0.1:1/").at("127.0.0.1:1".parse::<Address>().unwrap());
        let error = error.send().expect_err("nobody can");
        assert!(
            matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::ConnectionRefused),
            "{error}"
        );
        let error = client.get(to).send().expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    });
}

pub(crate) fn j12_bodies_are_streamed_both_ways(h: &Harness) {
    // The echo begins to answer before it has read everything.
    let address = listening(
        h,
        streaming(|req: &Request<'_>| {
            let mut body = req.owned_body_reader();
            Body::stream(move |out| io::copy(&mut body, out).map(drop))
        }),
    );
    run(h, move || {
        const COUNT: u64 = 1_000_000;
        for exact in [false, true] {
            let reader = io::repeat(b'x').take(COUNT);
            let request = client().post(&url(&address, "/"));
            let mut answer = match exact {
                true => request.body_reader_exact(COUNT, reader),
                false => request.body_reader(reader),
            }
            .send()
            .unwrap();
            let count = io::copy(&mut answer, &mut io::sink()).unwrap();
            assert_eq!(count, COUNT);
        }
        let large = vec![7; 300_000];
        let answer = client().put(&url(&address, "/")).body(large.clone()).send().unwrap();
        assert!(answer.bytes().unwrap() == large);
        // What was promised is kept.
        let short = client().post(&url(&address, "/")).body_reader_exact(10, &b"short"[..]);
        let error = short.send().and_then(|answer| answer.bytes()).expect_err("it is too short");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
    });
}

pub(crate) fn j12_trailers_come_and_go(h: &Harness) {
    let address = listening(h, |req: &Request<'_>| {
        format!("{} {:?}", String::from_utf8_lossy(req.body()), req.trailers().get("x-sum"))
    });
    run(h, move || {
        let mut trailers = Headers::new();
        trailers.insert("X-Sum", "42").unwrap();
        let request = client().post(&url(&address, "/")).body_reader(&b"ahoy"[..]);
        let text = request.trailers(trailers).send().unwrap().text().unwrap();
        assert_eq!(text, "ahoy Some(\"42\")");
    });
    let chunks =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nahoy\r\n0\r\nX-Sum: 7\r\n\r\n";
    let (address, _) = scripted(h, vec![Script::answer(chunks)]);
    run(h, move || {
        let mut answer = client().get(&url(&address, "/")).send().unwrap();
        assert!(answer.trailers().is_empty());
        let mut text = String::new();
        answer.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), answer.trailers().get("x-sum")), ("ahoy", Some("7")));
    });
}

pub(crate) fn j12_redirects_are_followed_by_their_rules(h: &Harness) {
    let elsewhere = listening(h, mirror());
    let there = url(&elsewhere, "/there");
    let address = listening(h, move |req: &Request<'_>| -> Response {
        let status = req.path().trim_start_matches('/').parse::<u16>();
        match status.ok().and_then(|status| Status::from_u16(status).ok()) {
            Some(status) => Response::new(status).with_header("location", "../end?x"),
            None if req.path() == "/loop" => Redirect::to("/loop").into_response(),
            None if req.path() == "/away" => Redirect::temporary(there.clone()).into_response(),
            None if req.path() == "/wrong" => Redirect::to("javascript:x").into_response(),
            None => mirror().call(req),
        }
    });
    run(h, move || {
        let client = client();
        let ask = |method: &str, path: &str| {
            let request = client.request(method, &url(&address, path)).body("ahoy");
            let request = request.header("Content-Type", "text/plain");
            request.send().unwrap().text().unwrap()
        };
        for (method, status, told) in [
            ("GET", 301, "GET"),
            ("POST", 301, "GET"),
            ("POST", 302, "GET"),
            ("PUT", 302, "PUT"),
            ("POST", 303, "GET"),
            ("PUT", 303, "GET"),
            ("POST", 307, "POST"),
            ("DELETE", 308, "DELETE"),
        ] {
            let text = ask(method, &format!("/{status}"));
            assert!(text.starts_with(&format!("{told} /end?x\n")), "{method} {status}: {text}");
            let kept = told == method && status != 303;
            assert_eq!(text.ends_with("\nahoy"), kept, "{method} {status}: {text}");
            assert_eq!(text.contains("content-type=text/plain"), kept, "{method} {status}: {text}");
        }
        // Secrets are for their own host.
        let request = client.get(&url(&address, "/away")).basic_auth("a", "b");
        let text =
            request.header("Cookie", "c=d").header("X-A", "1").send().unwrap().text().unwrap();
        assert!(text.contains("/there") && text.contains("x-a=1"), "{text}");
        assert!(!text.contains("authorization") && !text.contains("cookie"), "{text}");
        let request = client.get(&url(&address, "/303")).basic_auth("a", "b");
        assert!(request.send().unwrap().text().unwrap().contains("authorization"));
        for path in ["/loop", "/wrong"] {
            let error = client.get(&url(&address, path)).send().expect_err("it leads nowhere");
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        }
        // A body that is gone cannot be sent again: the answer is the redirect.
        let request = client.post(&url(&address, "/307")).body_reader(&b"ahoy"[..]);
        assert_eq!(request.send().unwrap().status(), 307);
        for (method, status, told) in [("GET", 302, 302), ("GET", 303, 200), ("POST", 301, 200)] {
            let request = client.request(method, &url(&address, &format!("/{status}")));
            let answer = request.body_reader(&b"ahoy"[..]).send().unwrap();
            assert_eq!(answer.status(), told, "{method} {status}");
        }
        let never = Client::with(Settings { limit_redirects: 0, ..patient() }).unwrap();
        assert_eq!(never.get(&url(&address, "/301")).send().unwrap().status(), 301);
    });
}

pub(crate) fn j12_answers_that_can_be_read_in_two_ways_are_refused(h: &Harness) {
    let wrong = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nahoy!",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nahoy!!\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        "HTTP/1.1 200 OK\nA: b\n\n",
        "SSH-2.0-OpenSSH\r\n",
    ];
    let scripts = wrong.iter().map(|text| Script::answer(text)).collect();
    let (address, _) = scripted(h, scripts);
    run(h, move || {
        for text in wrong {
            let sent = client().get(&url(&address, "/")).send();
            let error = sent.and_then(|answer| answer.bytes()).expect_err(text);
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{text:?}: {error}");
        }
    });
}

pub(crate) fn j12_end_of_a_body_is_found(h: &Harness) {
    let cases = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nahoy", Some("ahoy")),
        ("HTTP/1.1 200 OK\r\n\r\nahoy", Some("ahoy")), // to the end of the connection
        ("HTTP/1.0 200 OK\r\n\r\nahoy", Some("ahoy")),
        (
            "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            Some("ok"),
        ),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", Some("")),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", Some("")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nahoy", None),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nahoy\r\n", None),
    ];
    let scripts = cases.iter().map(|(text, _)| Script::answer(text)).collect();
    let (address, _) = scripted(h, scripts);
    run(h, move || {
        for (text, body) in cases {
            let read = client().get(&url(&address, "/")).send().and_then(|answer| answer.text());
            match body {
                Some(body) => assert_eq!(read.unwrap(), body, "{text:?}"),
                None => assert_eq!(read.unwrap_err().kind(), ErrorKind::UnexpectedEof, "{text:?}"),
            }
        }
    });
}

pub(crate) fn j12_body_that_breaks_off_stays_so(h: &Harness) {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nahoy";
    let (address, _) = scripted(h, vec![Script::answer(half)]);
    run(h, move || {
        let mut answer = client().get(&url(&address, "/")).send().unwrap();
        let mut text = Vec::new();
        for _ in 0..3 {
            let error = answer.read_to_end(&mut text).expect_err("it has not come to its end");
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
        }
        assert_eq!(text, b"ahoy");
    });
}

pub(crate) fn j12_what_nobody_asked_for_ends_a_connection(h: &Harness) {
    // A second answer behind the first is not the answer to the next request.
    let double = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\noneHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo";
    let other = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright";
    let (address, _) = scripted(h, vec![Script::answer(double).open(), Script::answer(other)]);
    run(h, move || {
        let client = client();
        assert_eq!(client.get(&url(&address, "/")).send().unwrap().text().unwrap(), "one");
        assert_eq!(client.get(&url(&address, "/")).send().unwrap().text().unwrap(), "right");
    });
}

pub(crate) fn j12_stale_connection_is_replaced(h: &Harness) {
    let good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    // The server closes each behind an answer that does not say so.
    let scripts = (0..6).map(|_| Script::answer(good)).collect();
    let (address, asked) = scripted(h, scripts);
    // A simulated kernel may take its time to tell that a connection has ended.
    let once = if h.is_simulated() { "GET" } else { "POST" };
    run(h, move || {
        let client = client();
        for method in ["GET", once, "GET", "PUT", once] {
            let request = client.request(method, &url(&address, "/")).body("x");
            assert_eq!(request.send().unwrap().text().unwrap(), "ok", "{method}");
            sleep(20 * MS).unwrap(); // it is closed meanwhile, or not yet
        }
    });
    assert_eq!(asked.get(), 5, "none was asked twice");
}

pub(crate) fn j12_only_what_may_be_is_tried_again(h: &Harness) {
    let good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let settings = Settings { limit_attempts: 3, ..patient() };
    let client = Client::with(settings).unwrap();
    for (method, again) in [("GET", true), ("PUT", true), ("POST", false)] {
        let scripts = vec![Script::answer(""), Script::answer(""), Script::answer(good)];
        let (address, asked) = scripted(h, scripts);
        let client = client.clone();
        run(h, move || {
            let answer = client.request(method, &url(&address, "/")).body("x").send();
            match again {
                true => assert_eq!(answer.unwrap().text().unwrap(), "ok", "{method}"),
                false => assert_eq!(answer.unwrap_err().kind(), ErrorKind::UnexpectedEof),
            }
        });
        assert_eq!(asked.get(), if again { 3 } else { 1 }, "{method}");
    }
    // Not when something of the answer has come.
    let (address, asked) = scripted(h, vec![Script::answer("HTTP/1.1 2"), Script::answer(good)]);
    run(h, move || {
        let error = client.get(&url(&address, "/")).send().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
    });
    assert_eq!(asked.get(), 1);
}

pub(crate) fn j12_what_takes_too_long_is_an_error(h: &Harness) {
    let address = listening(h, |req: &Request<'_>| -> Response {
        match req.path() {
            "/head" => {
                let _ = sleep(NEVER);
                Status::OK.into_response()
            }
            _ => Body::stream(|out| {
                out.write_all(b"begin")?;
                out.flush()?;
                sleep(NEVER)
            })
            .into_response(),
        }
    });
    run(h, move || {
        let slow = |settings: Settings, path: &str| {
            let client = Client::with(settings).unwrap();
            let answer = client.get(&url(&address, path)).send();
            answer.and_then(|answer| answer.text()).expect_err("it takes too long").kind()
        };
        let some = 30 * MS;
        assert_eq!(
            slow(Settings { head_timeout: some, ..patient() }, "/head"),
            ErrorKind::TimedOut
        );
        assert_eq!(
            slow(Settings { body_timeout: some, ..patient() }, "/body"),
            ErrorKind::TimedOut
        );
        for path in ["/head", "/body"] {
            let settings = Settings { timeout: Some(some), ..patient() };
            assert_eq!(slow(settings, path), ErrorKind::TimedOut, "{path}");
        }
    });
}

pub(crate) fn j12_upload_that_is_not_taken_is_an_error(h: &Harness) {
    let address = deaf(h);
    run(h, move || {
        let client = Client::with(Settings { body_timeout: 50 * MS, ..patient() }).unwrap();
        // More than all buffers hold.
        let sent = client.post(&url(&address, "/")).body(vec![b'x'; 10 << 20]).send();
        assert_eq!(sent.expect_err("nobody takes it").kind(), ErrorKind::TimedOut);
    });
}

pub(crate) fn j12_answers_have_limits(h: &Harness) {
    let address = listening(h, |req: &Request<'_>| -> Response {
        match req.path() {
            "/long" => vec![b'x'; 2000].into_response(),
            "/chunks" => Body::stream(|out| out.write_all(&[b'x'; 2000])).into_response(),
            _ => "ok".into_response().with_header("x-long", "x".repeat(2000)),
        }
    });
    run(h, move || {
        let settings = Settings { limit_body_bytes: 1000, limit_header_bytes: 1000, ..patient() };
        let client = Client::with(settings).unwrap();
        for (path, kind) in [
            ("/long", ErrorKind::FileTooLarge),
            ("/chunks", ErrorKind::FileTooLarge),
            ("/head", ErrorKind::InvalidData),
        ] {
            let answer = client.get(&url(&address, path)).send();
            let error = answer.and_then(|answer| answer.bytes()).expect_err(path);
            assert_eq!(error.kind(), kind, "{path}: {error}");
        }
        let answer = client.get(&url(&address, "/long")).limit_body_bytes(2000).send().unwrap();
        assert_eq!(answer.bytes().unwrap().len(), 2000);
    });
}

pub(crate) fn j12_body_waits_until_it_is_wanted(h: &Harness) {
    let address = listening(h, |req: &Request<'_>| format!("{} bytes", req.body().len()));
    let refuses = "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n";
    let (refusing, _) = scripted(h, vec![Script::answer(refuses).until("\r\n\r\n").open()]);
    let late = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let (silent, _) = scripted(h, vec![Script::answer(late).until("\r\n\r\nahoy")]);
    // It says that it wants it in more pieces than there may be answers before the answer.
    let script = Script::answer("").then(late);
    let (dripping, held) = held(h, vec![script]);
    let drip = Cell::new(0);
    h.lp.every(MS, move |lp| {
        let rest = b"HTTP/1.1 100 Continue\r\nX-Long: not all of it comes at once\r\n\r\n";
        if let (Some(handle), Some(byte)) = (held.borrow().first(), rest.get(drip.get())) {
            drip.set(drip.get() + 1);
            handle.with(lp, |conn| conn.write_slice(&[*byte]));
        }
    });
    run(h, move || {
        let client = Client::with(Settings { continue_timeout: NEVER, ..patient() }).unwrap();
        for size in [4, 100_000] {
            let request = client.post(&url(&address, "/")).body(vec![1; size]).expect_continue();
            assert_eq!(request.send().unwrap().text().unwrap(), format!("{size} bytes"));
        }
        let request = client.post(&url(&refusing, "/")).body("ahoy").expect_continue();
        assert_eq!(request.send().unwrap().status(), 417);
        let request = client.post(&url(&dripping, "/")).body("ahoy\r\n\r\n").expect_continue();
        assert_eq!(request.send().unwrap().text().unwrap(), "ok");
        // One that says nothing gets it after a moment.
        let client = Client::with(Settings { continue_timeout: 20 * MS, ..patient() }).unwrap();
        let request = client.post(&url(&silent, "/")).body("ahoy").expect_continue();
        assert_eq!(request.send().unwrap().text().unwrap(), "ok");
    });
}

pub(crate) fn j12_server_may_answer_before_the_body_was_sent(h: &Harness) {
    // It reads nothing of the body, and goes.
    let refuses = "HTTP/1.1 413 Payload Too Large\r\nContent-Length: 3\r\n\r\nno\n";
    let (address, _) = scripted(h, vec![Script::answer(refuses).until("\r\n\r\n").open()]);
    run(h, move || {
        let endless = io::repeat(b'x');
        let answer = client().post(&url(&address, "/")).body_reader(endless).send().unwrap();
        assert_eq!(answer.status(), 413);
        assert_eq!(answer.text().unwrap(), "no\n");
    });
}

pub(crate) fn j12_cancelled_request_hears_of_it(h: &Harness) {
    let begun = Rc::new(Cell::new(false));
    let note = Rc::clone(&begun);
    let address = listening(h, move |_: &Request<'_>| {
        note.set(true);
        sleep(NEVER).map(|()| "it is over")
    });
    let error = run(h, move || {
        let asking =
            coracle_coro::spawn(move || client().get(&url(&address, "/")).send().map(drop));
        while !begun.get() {
            sleep(MS).unwrap();
        }
        asking.cancel();
        asking.join().expect("it does not panic").expect_err("it is cancelled")
    });
    assert!(coracle_coro::is_cancelled(&error), "{error}");
}

pub(crate) fn j12_compressed_answers_are_decoded(h: &Harness) {
    let plain = "there she blows ".repeat(1000);
    let text = plain.clone();
    let app = move |_: &Request<'_>| text.clone();
    let compressing = coracle_http::middleware::Compression::new();
    let address = listening(h, coracle_http::middleware::around(compressing, app));
    run(h, move || {
        let client = client();
        for coding in ["gzip", "br", "zstd"] {
            let request = client.get(&url(&address, "/")).header("Accept-Encoding", coding);
            let answer = request.send().unwrap();
            assert_eq!(answer.header("content-encoding"), Some(coding));
            assert_eq!(answer.text().unwrap(), plain, "{coding}");
        }
        let answer = client.get(&url(&address, "/")).send().unwrap();
        assert!(answer.header("content-encoding").is_some(), "it is asked for");
        // What it becomes counts.
        let answer = client.get(&url(&address, "/")).limit_body_bytes(1000).send().unwrap();
        assert_eq!(answer.bytes().unwrap_err().kind(), ErrorKind::FileTooLarge);
        let whole = Client::with(Settings { compression: false, ..patient() }).unwrap();
        let answer = whole.get(&url(&address, "/")).send().unwrap();
        assert_eq!(answer.header("content-encoding"), None);
        assert_eq!(answer.text().unwrap(), plain);
    });
}

pub(crate) fn j12_connections_are_bounded_and_waited_for(h: &Harness) {
    let (address, accepted) =
        crate::peers::counted(h, |_: &Request<'_>| sleep(5 * MS).map(|()| "ok"));
    run(h, move || {
        let client = Client::with(Settings { limit_connections: 2, ..patient() }).unwrap();
        let asking: Vec<_> = (0..10)
            .map(|_| {
                let (client, to) = (client.clone(), url(&address, "/"));
                coracle_coro::spawn(move || client.get(&to).send()?.text())
            })
            .collect();
        for one in asking {
            assert_eq!(one.join().unwrap().unwrap(), "ok");
        }
    });
    assert!(accepted.get() <= 2, "{}", accepted.get());
}

pub(crate) fn j12_method_of_the_answer_is_that_of_the_request(h: &Harness) {
    assert!(Method::Get.is_idempotent());
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
    let next = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let (address, _) = scripted(h, vec![Script::answer(head).then(next)]);
    run(h, move || {
        let client = client();
        assert_eq!(client.head(&url(&address, "/")).send().unwrap().bytes().unwrap(), b"");
        assert_eq!(client.get(&url(&address, "/")).send().unwrap().text().unwrap(), "ok");
    });
}

/// Each client has its own idea of how long, on the same loop.
pub(crate) fn j12_idle_connections_are_closed_by_their_own_time(h: &Harness) {
    let good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let (address, held) =
        held(h, vec![Script::answer(good).then(""), Script::answer(good).then("")]);
    let clients = run(h, move || {
        [3600, 1].map(|seconds| {
            let idle_timeout = Duration::from_secs(seconds);
            let client = Client::with(Settings { idle_timeout, ..patient() }).unwrap();
            assert_eq!(client.get(&url(&address, "/")).send().unwrap().text().unwrap(), "ok");
            client
        })
    });
    let (lp, held) = (h.lp.clone(), Rc::clone(&held));
    h.run_until(&held, move |held| !is_open(&lp, &held.borrow()[1]));
    assert!(is_open(&h.lp, &held.borrow()[0]), "the other has an hour");
    drop(clients);
}

fn is_open(lp: &Loop, conn: &ConnHandle) -> bool {
    conn.with(lp, |_| ()).is_some()
}
