//! The reverse proxy: what the client sees, what the upstream sees, and what becomes of what goes wrong.

use crate::client::Client;
use crate::harness::Harness;
use crate::peers::{Script, counted, deaf, held, listening, nobody, overheard, run, scripted};
use coracle_coro::sleep;
use coracle_http::middleware::etag;
use coracle_http::proxy::{Balance, HealthCheck, HostPolicy, ProxyVersion, Settings};
use coracle_http::{
    App, Body, IntoResponse, Proxy, Request, Response, Router, Status, Trailers, streaming, ws,
};
use coracle_loop::Loop;
use coracle_net::Address;
use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const NEVER: Duration = Duration::from_secs(3600);

fn patient() -> Settings {
    Settings {
        connect_timeout: NEVER,
        head_timeout: NEVER,
        body_timeout: NEVER,
        ..Settings::default()
    }
}

fn to(addresses: &[&Address]) -> Proxy {
    with(addresses, patient())
}

fn with(addresses: &[&Address], settings: Settings) -> Proxy {
    let urls: Vec<String> = addresses.iter().map(|address| format!("http://{address}")).collect();
    Proxy::to(urls.iter().map(String::as_str)).unwrap().settings(settings).unwrap()
}

/// Says what it was asked.
fn mirror(req: &Request<'_>) -> Response {
    let fields: Vec<String> = req
        .headers()
        .iter()
        .map(|(name, value)| format!("{}={}", name.to_ascii_lowercase(), value.escape_ascii()))
        .collect();
    let query = req.query().map_or_else(String::new, |query| format!("?{query}"));
    let body = String::from_utf8_lossy(req.body());
    format!("{} {}{query}\n{}\n{body}", req.method_name(), req.path(), fields.join(";"))
        .into_response()
        .with_header("x-from", "upstream")
}

pub(crate) fn j15_request_is_handed_on_and_its_connection_kept(h: &Harness) {
    let (upstream, accepted) = counted(h, mirror);
    let client = Client::of(h, Router::new(()).mount("/api", to(&[&upstream])));
    for _ in 0..3 {
        let answer = client.get("/api/posts?page=2");
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-from"), Some("upstream"));
        let text = answer.text();
        assert!(text.starts_with("GET /posts?page=2\nhost=a;x-forwarded-for=192.0.2.1;"), "{text}");
        assert!(text.contains("x-forwarded-host=a;x-forwarded-proto=http"), "{text}");
    }
    client.send("POST /api/ HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nahoy");
    let answer = client.answer();
    assert!(answer.text().contains("content-length=4") && answer.text().ends_with("\nahoy"));
    client.send("POST /api/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nahoy\r\n0\r\n\r\n");
    let answer = client.answer();
    assert!(
        answer.text().contains("transfer-encoding=chunked") && answer.text().ends_with("\nahoy")
    );
    assert_eq!(accepted.get(), 1, "one connection for all of them");
}

pub(crate) fn j15_head_and_answers_without_a_body_pass(h: &Harness) {
    let upstream = listening(h, |req: &Request<'_>| -> Response {
        match req.path() {
            "/none" => Status::NO_CONTENT.into_response(),
            "/same" => Response::new(Status::NOT_MODIFIED).with_header("etag", "\"1\""),
            "/stream" => Body::stream(|out| out.write_all(b"ahoy")).into_response(),
            _ => "ahoy\n".into_response(),
        }
    });
    let client = Client::of(h, to(&[&upstream]));
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert_eq!((head.status, head.header("content-length")), (200, Some("5")));
    client.send("HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert_eq!((head.status, head.header("content-length")), (200, None), "{head:?}");
    assert_eq!(client.get("/none").status, 204);
    let same = client.get("/same");
    assert_eq!((same.status, same.header("etag")), (304, Some("\"1\"")));
    assert_eq!(client.get("/").text(), "ahoy\n", "all on one connection");
}

pub(crate) fn j15_large_bodies_are_streamed_both_ways(h: &Harness) {
    // The echo begins to answer before it has read everything.
    let upstream = listening(
        h,
        streaming(|req: &Request<'_>| {
            let mut body = req.owned_body_reader();
            Body::stream(move |out| io::copy(&mut body, out).map(drop))
        }),
    );
    let front = listening(h, to(&[&upstream]));
    run(h, move || {
        use io::Read;
        const COUNT: u64 = 1_000_000;
        let client = coracle_http::Client::new();
        for exact in [false, true] {
            let reader = io::repeat(b'x').take(COUNT);
            let request = client.post(&format!("http://{front}/"));
            let mut answer = match exact {
                true => request.body_reader_exact(COUNT, reader),
                false => request.body_reader(reader),
            }
            .send()
            .unwrap();
            assert_eq!(io::copy(&mut answer, &mut io::sink()).unwrap(), COUNT);
        }
    });
    let large = vec![7; 300_000];
    let whole = large.clone();
    let upstream = listening(h, move |_: &Request<'_>| whole.clone());
    let client = Client::of(h, to(&[&upstream]));
    for _ in 0..2 {
        assert!(client.get("/").body == large);
    }
}

pub(crate) fn j15_what_comes_slowly_is_handed_on_at_once(h: &Harness) {
    let (inlet, outlet) = coracle_coro::sync::channel::<()>(1);
    let upstream = listening(h, move |_: &Request<'_>| {
        let outlet = outlet.clone();
        Body::stream(move |out| {
            out.write_all(b"one")?;
            out.flush()?;
            let _ = outlet.recv();
            out.write_all(b"two")
        })
    });
    let client = Client::of(h, to(&[&upstream]));
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    assert_eq!(client.take_until("one\r\n"), "3\r\none\r\n"); // while the upstream waits
    inlet.try_send(()).unwrap();
    assert_eq!(client.chunks(), b"two");
}

pub(crate) fn j15_heads_are_cleaned_both_ways(h: &Harness) {
    let answer = "HTTP/1.1 200 OK\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n\
        Proxy-Authenticate: Basic\r\nUpgrade: h2c\r\nX-End: 2\r\nContent-Length: 2\r\n\r\nok";
    let (upstream, _, heard) = overheard(h, vec![Script::answer(answer)]);
    let settings = Settings { host: HostPolicy::Fixed("b.example".into()), ..patient() };
    let client = Client::of(h, with(&[&upstream], settings));
    client.send(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Secret, close\r\nX-Secret: 1\r\nTE: trailers\r\n\
         Proxy: x\r\nProxy-Authorization: x\r\nX-Forwarded-For: 6.6.6.6\r\nAccept: */*\r\n\r\n",
    );
    let answer = client.answer();
    assert_eq!((answer.text(), answer.header("x-end")), ("ok", Some("2")));
    for gone in ["x-hop", "keep-alive", "proxy-authenticate", "upgrade"] {
        assert_eq!(answer.header(gone), None, "{answer:?}");
    }
    assert_eq!(answer.header("connection"), Some("close"), "as the client wished");
    let heard = heard.borrow().to_ascii_lowercase();
    assert_eq!(
        heard,
        "get / http/1.1\r\nhost: b.example\r\naccept: */*\r\nx-forwarded-for: 192.0.2.1\r\n\
         x-forwarded-host: a\r\nx-forwarded-proto: http\r\nte: trailers\r\nconnection: te\r\n\r\n"
    );
}

pub(crate) fn j15_trailers_go_both_ways(h: &Harness) {
    // An upstream of ours, which sends them to who asks for them.
    let upstream = listening(
        h,
        streaming(|req: &Request<'_>| {
            let (mut body, size) = (req.body_reader(), req.path().len());
            let count = io::copy(&mut body, &mut io::sink())?;
            let heard = req.trailers().iter().map(|(name, value)| {
                format!("{}={}", name.to_ascii_lowercase(), value.escape_ascii())
            });
            let heard: Vec<String> = heard.collect();
            let announced = req.header("trailer").unwrap_or("none").to_owned();
            let trailers = Trailers::new();
            let told = trailers.clone();
            let body = Body::stream(move |out| {
                out.write_all(&vec![b'x'; if size > 1 { 300_000 } else { 3 }])?;
                told.insert("x-heard", format!("{count} {announced} {}", heard.join(";")))
                    .and_then(|()| told.insert("set-cookie", "a=b"))
                    .map_err(io::Error::other)
            });
            let response = Response::new(Status::OK).with_header("trailer", "x-heard");
            Ok::<_, io::Error>(response.with_body(body).with_trailers(trailers))
        }),
    );
    let client = Client::of(h, to(&[&upstream]));
    let heard = "5 X-Sum x-sum=42";
    for (path, size) in [("/", 3), ("/large", 300_000)] {
        for te in ["TE: trailers\r\n", ""] {
            client.send(format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\n{te}Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                 5\r\nahoy!\r\n0\r\nX-Sum: 42\r\nAuthorization: x\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n"
            ));
            if te.is_empty() {
                let answer = client.answer(); // and nothing is behind it
                assert_eq!((answer.body.len(), answer.header("trailer")), (size, None));
                continue;
            }
            let head = client.head();
            assert_eq!(head.header("trailer"), Some("x-heard"));
            let mut count = 0;
            loop {
                let line = client.take_until("\r\n");
                let len = usize::from_str_radix(line.trim_end(), 16).expect("the size of a chunk");
                if len == 0 {
                    break;
                }
                count += len;
                client.take_until(&format!("{}\r\n", "x".repeat(len)));
            }
            assert_eq!(count, size);
            let behind = client.take_until("\r\n\r\n");
            assert_eq!(behind, format!("x-heard: {heard}\r\n\r\n"), "and no cookie");
        }
    }
}

pub(crate) fn j15_trailers_that_say_how_to_read_a_message_are_a_502(h: &Harness) {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nContent-Length: 5\r\n\r\n";
    let (upstream, _) = scripted(h, vec![Script::answer(answer)]);
    let client = Client::of(h, to(&[&upstream]));
    client.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n");
    assert_eq!(client.answer().status, 502);
}

pub(crate) fn j15_answers_that_are_none_are_a_502(h: &Harness) {
    let wrong = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nahoy!",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        "HTTP/1.1 200 OK\nA: b\n\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nahoy", // and the end
        "ahoy\r\n\r\n",
    ];
    let (upstream, asked) = scripted(h, wrong.iter().map(|text| Script::answer(text)).collect());
    let client = Client::of(h, to(&[&upstream]));
    for text in wrong {
        let answer = client.get("/");
        assert_eq!(answer.status, 502, "{text:?}: {answer:?}");
        assert!(answer.text().starts_with("the server behind this one"), "{answer:?}");
    }
    assert_eq!(asked.get() as usize, wrong.len(), "none was asked twice");
}

pub(crate) fn j15_answer_that_breaks_off_is_cut(h: &Harness) {
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{}", "x".repeat(20_000));
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nahoy\r\n";
    for (answer, abort) in [(&*long, false), (&*long, true), (chunks, false), (chunks, true)] {
        let (upstream, held) = held(h, vec![Script::answer(answer).open()]);
        let client = Client::of(h, to(&[&upstream]));
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(client.head().status, 200);
        match answer == chunks {
            true => assert_eq!(client.take_until("ahoy\r\n"), "4\r\nahoy\r\n"),
            false => assert_eq!(client.take(20_000).len(), 20_000),
        }
        held.borrow()[0].with(&h.lp, |conn| {
            if abort {
                let _ = conn.set_option(coracle_net::SocketOption::ResetOnClose(true));
            }
            conn.abort();
        });
        assert_eq!(client.rest(), b"", "neither more of it, nor an end");
    }
    // This one ends with its connection.
    let (upstream, _) = scripted(h, vec![Script::answer("HTTP/1.1 200 OK\r\n\r\nahoy")]);
    let client = Client::of(h, to(&[&upstream]));
    assert_eq!(client.get("/").text(), "ahoy");
}

/// What is left of an answer that nobody wants any more is not the answer to the next request.
pub(crate) fn j15_half_read_answer_is_nobody_elses(h: &Harness) {
    let long = |head: &str| {
        let length = "Content-Length: 100000\r\n\r\n";
        format!("HTTP/1.1 {head}\r\n{length}{}", "x".repeat(20_000))
    };
    let good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for (answer, status) in [("205 Reset Content", 205), ("200 OK\r\nETag: \"1\"", 304)] {
        let scripts = vec![Script::answer(&long(answer)).open(), Script::answer(good)];
        let (upstream, _) = scripted(h, scripts);
        let proxy = to(&[&upstream]);
        let client = Client::of(h, Router::new(()).with(etag).mount("/", proxy));
        client.send("GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"1\"\r\n\r\n");
        assert_eq!(client.head().status, status);
        let next = Client::to(h, &client.service).get("/");
        assert_eq!((next.status, next.text()), (200, "ok"), "behind a {status}");
    }
    // The same where nobody is cancelled because the client is gone: its handler is told by a write.
    let upstream = listening(h, |req: &Request<'_>| -> Response {
        match req.path() {
            "/ok" => "ok".into_response(),
            _ => Body::stream(|out| {
                loop {
                    out.write_all(&[b'x'; 1000])?;
                    out.flush()?;
                    sleep(MS)?;
                }
            })
            .into_response(),
        }
    });
    let proxy = Rc::new(to(&[&upstream]));
    let inner = Rc::clone(&proxy);
    let client = Client::of(h, move |req: &Request<'_>| inner.call(req));
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    client.server.with(&h.lp, |conn| conn.abort());
    h.run_until(&proxy, |proxy| proxy.upstreams()[0].in_flight() == 0);
    let next = Client::to(h, &client.service).get("/ok");
    assert_eq!((next.status, next.text()), (200, "ok"));
}

pub(crate) fn j15_body_where_there_is_none_is_not_the_next_answer(h: &Harness) {
    let good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for (method, answer) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ] {
        let scripts = vec![Script::answer(answer).open(), Script::answer(good)];
        let (upstream, held) = held(h, scripts);
        let front = listening(h, to(&[&upstream]));
        run(h, move || {
            let (client, url) = (coracle_http::Client::new(), format!("http://{front}/"));
            drop(client.request(method, &url).send().unwrap());
            let lp = Loop::current().unwrap();
            held.borrow()[0].with(&lp, |conn| conn.write("ahoy!"));
            sleep(100 * MS).unwrap();
            let next = client.get(&url).send().unwrap();
            assert_eq!((next.status(), &*next.text().unwrap()), (Status::OK, "ok"), "{answer:?}");
        });
    }
}

pub(crate) fn j15_upstream_that_is_not_there_is_a_502_or_another(h: &Harness) {
    let client = Client::of(h, to(&[&nobody()]));
    let answer = client.get("/");
    assert_eq!(
        (answer.status, answer.text()),
        (502, "the server behind this one cannot be reached\n")
    );
    let upstream = listening(h, |_: &Request<'_>| "ahoy\n");
    let proxy = Rc::new(to(&[&nobody(), &upstream]));
    let client = Client::of(h, Rc::clone(&proxy));
    for _ in 0..10 {
        assert_eq!(client.get("/").text(), "ahoy\n");
    }
    // After a few failures it is left alone.
    assert_eq!((proxy.upstreams()[0].failed(), proxy.upstreams()[1].requests()), (3, 10));
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nahoy");
    assert_eq!(client.answer().status, 200);
}

pub(crate) fn j15_only_what_may_be_is_tried_again(h: &Harness) {
    for (method, status) in [("GET", 200), ("PUT", 200), ("POST", 502)] {
        let (broken, asked) = scripted(h, vec![Script::answer("")]);
        let good = listening(h, |_: &Request<'_>| "ahoy\n");
        let client = Client::of(h, to(&[&broken, &good]));
        client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"));
        assert_eq!(client.answer().status, status, "{method}");
        assert_eq!(asked.get(), 1, "{method}");
    }
    // A connection that was closed meanwhile is not the upstream's fault.
    let good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let (upstream, asked) = scripted(h, (0..5).map(|_| Script::answer(good)).collect());
    let proxy = Rc::new(to(&[&upstream]));
    let front = listening(h, Rc::clone(&proxy));
    // A simulated kernel may take its time to tell that a connection has ended.
    let once = if h.is_simulated() { "GET" } else { "POST" };
    run(h, move || {
        let client = coracle_http::Client::new();
        for method in ["GET", once, "GET", once] {
            let answer = client.request(method, &format!("http://{front}/")).body("x").send();
            assert_eq!(answer.unwrap().status(), 200, "{method}");
            sleep(20 * MS).unwrap();
        }
    });
    assert_eq!((asked.get(), proxy.upstreams()[0].failed()), (4, 0));
}

pub(crate) fn j15_what_takes_too_long_is_a_504(h: &Harness) {
    let upstream = listening(h, |_: &Request<'_>| sleep(NEVER).map(|()| "late"));
    let settings = Settings { head_timeout: 30 * MS, ..patient() };
    let client = Client::of(h, with(&[&upstream], settings));
    let answer = client.get("/");
    assert_eq!(answer.status, 504);
    // The same for a body that is streamed to it.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n");
    client.send(vec![b'x'; 20_000]);
    assert_eq!(client.answer().status, 504);
}

pub(crate) fn j15_upload_that_is_not_taken_is_a_504(h: &Harness) {
    let settings = Settings { body_timeout: 50 * MS, ..patient() };
    let front = listening(h, with(&[&deaf(h)], settings));
    run(h, move || {
        let client = coracle_http::Client::new();
        // More than all buffers hold.
        let answer = client.post(&format!("http://{front}/")).body(vec![b'x'; 10 << 20]).send();
        assert_eq!(answer.unwrap().status(), 504);
    });
}

pub(crate) fn j15_answer_may_begin_before_the_upload_ends(h: &Harness) {
    // It begins at once, and goes on for longer than a head may take.
    let upstream = listening(
        h,
        streaming(|req: &Request<'_>| {
            let mut body = req.owned_body_reader();
            Body::stream(move |out| {
                out.write_all(b"begin")?;
                out.flush()?;
                io::copy(&mut body, &mut io::sink())?;
                for _ in 0..30 {
                    sleep(10 * MS)?;
                    out.write_all(b"more")?;
                    out.flush()?;
                }
                Ok(())
            })
        }),
    );
    let settings = Settings { head_timeout: 30 * MS, ..patient() };
    let client = Client::of(h, with(&[&upstream], settings));
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n");
    assert_eq!(client.head().status, 200);
    assert_eq!(client.take_until("begin\r\n"), "5\r\nbegin\r\n");
    client.send(vec![b'x'; 20_000]);
    assert_eq!(client.chunks().len(), 30 * 4);
}

pub(crate) fn j15_nobody_to_ask_is_a_503(h: &Harness) {
    let upstream = listening(h, |_: &Request<'_>| "ahoy\n");
    let proxy = Rc::new(to(&[&upstream]));
    let client = Client::of(h, Rc::clone(&proxy));
    assert_eq!(client.get("/").status, 200);
    proxy.upstreams()[0].drain();
    let answer = client.get("/");
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")));
    proxy.upstreams()[0].restore();
    assert_eq!(client.get("/").status, 200);
}

pub(crate) fn j15_drained_upstream_ends_what_it_has_begun(h: &Harness) {
    let (inlet, outlet) = coracle_coro::sync::channel::<()>(1);
    let slow = listening(h, move |_: &Request<'_>| {
        outlet.recv().map(|()| "slow").map_err(io::Error::other)
    });
    let other = listening(h, |_: &Request<'_>| "other");
    let proxy = Rc::new(to(&[&slow, &other]));
    let first = Client::of(h, Rc::clone(&proxy));
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    h.run_until(&proxy, |proxy| proxy.upstreams()[0].in_flight() == 1);
    proxy.upstreams()[0].drain();
    let second = Client::of(h, Rc::clone(&proxy));
    for _ in 0..3 {
        assert_eq!(second.get("/").text(), "other");
    }
    inlet.try_send(()).unwrap();
    assert_eq!(first.answer().text(), "slow");
    assert_eq!(proxy.upstreams()[0].in_flight(), 0);
}

pub(crate) fn j15_requests_go_to_who_has_the_least(h: &Harness) {
    let slow = listening(h, |_: &Request<'_>| sleep(NEVER).map(|()| "slow"));
    let quick = listening(h, |_: &Request<'_>| "quick");
    let settings = Settings { balance: Balance::LeastConnections, ..patient() };
    let proxy = Rc::new(with(&[&slow, &quick], settings));
    let first = Client::of(h, Rc::clone(&proxy));
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    h.run_until(&proxy, |proxy| proxy.upstreams()[0].in_flight() == 1);
    let second = Client::of(h, Rc::clone(&proxy));
    for _ in 0..5 {
        assert_eq!(second.get("/").text(), "quick");
    }
}

pub(crate) fn j15_health_is_asked_for(h: &Harness) {
    let well = Rc::new(Cell::new(false));
    let now = Rc::clone(&well);
    let upstream = listening(h, move |req: &Request<'_>| match req.path() {
        "/health" if !now.get() => Status::SERVICE_UNAVAILABLE.into_response(),
        _ => "ahoy\n".into_response(),
    });
    let health =
        HealthCheck { path: "/health".into(), interval: 10 * MS, ..HealthCheck::default() };
    let proxy = Rc::new(with(&[&upstream], Settings { health: Some(health), ..patient() }));
    let client = Client::of(h, Rc::clone(&proxy));
    assert_eq!(client.get("/").status, 200, "before anybody has asked");
    h.run_until(&proxy, |proxy| !proxy.upstreams()[0].is_well());
    assert_eq!(client.get("/").status, 503);
    well.set(true);
    h.run_until(&proxy, |proxy| proxy.upstreams()[0].is_well());
    assert_eq!(client.get("/").status, 200);
}

pub(crate) fn j15_client_that_is_gone_cancels_what_it_asked(h: &Harness) {
    let ended = Rc::new(Cell::new(false));
    let note = Rc::clone(&ended);
    let upstream = listening(h, move |req: &Request<'_>| -> Response {
        if req.path() == "/ok" {
            return "ok".into_response();
        }
        let note = Rc::clone(&note);
        Body::stream(move |out| {
            let result = loop {
                if let Err(error) = out.write_all(b"more").and_then(|()| out.flush()) {
                    break Err(error);
                }
                if let Err(error) = sleep(MS) {
                    break Err(error);
                }
            };
            note.set(true);
            result
        })
        .into_response()
    });
    let proxy = Rc::new(to(&[&upstream]));
    let client = Client::of(h, Rc::clone(&proxy));
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    client.server.with(&h.lp, |conn| conn.abort());
    h.run_until(&ended, |ended| ended.get());
    h.run_until(&proxy, |proxy| proxy.upstreams()[0].in_flight() == 0);
    assert_eq!(Client::to(h, &client.service).get("/ok").text(), "ok");
}

pub(crate) fn j15_upload_that_breaks_off_is_not_whole_for_the_upstream(h: &Harness) {
    let told = Rc::new(RefCell::new(None));
    let note = Rc::clone(&told);
    let upstream = listening(
        h,
        streaming(move |req: &Request<'_>| {
            let read = io::copy(&mut req.body_reader(), &mut io::sink());
            *note.borrow_mut() = Some(read.is_ok());
            "read"
        }),
    );
    let client = Client::of(h, to(&[&upstream]));
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nahoy!\r\n");
    client.end();
    h.run_until(&told, |told| told.borrow().is_some());
    assert_eq!(*told.borrow(), Some(false));
}

pub(crate) fn j15_refusal_before_the_body_is_handed_back(h: &Harness) {
    let refuses = "HTTP/1.1 413 Payload Too Large\r\nContent-Length: 3\r\n\r\nno\n";
    let (upstream, _) = scripted(h, vec![Script::answer(refuses).open()]);
    let client = Client::of(h, to(&[&upstream]));
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nbegin");
    let answer = client.answer();
    assert_eq!((answer.status, answer.text()), (413, "no\n"));
}

pub(crate) fn n2_path_that_leads_up_is_refused(h: &Harness) {
    let (upstream, accepted) = counted(h, mirror);
    let client = Client::of(h, Router::new(()).mount("/api", to(&[&upstream])));
    for path in ["/api/../secret", "/api/%2e%2e/secret", "/api/a/..%2f..%2fsecret"] {
        assert_eq!(client.get(path).status, 400, "{path}");
    }
    assert_eq!(accepted.get(), 0);
}

pub(crate) fn j15_websockets_pass(h: &Harness) {
    let upstream = listening(h, |req: &Request<'_>| {
        ws::upgrade(req).subprotocols(["b"]).run(|ws: &ws::WebSocket| {
            ws.send("welcome")?;
            for message in ws {
                ws.send(message?)?;
            }
            Ok(())
        })
    });
    let proxy = Rc::new(to(&[&upstream]));
    let front = listening(h, Rc::clone(&proxy));
    run(h, move || {
        let ws =
            ws::Client::new("ws://a/ws").unwrap().at(front).subprotocols(["b"]).connect().unwrap();
        assert_eq!(ws.subprotocol(), Some("b"));
        assert_eq!(ws.recv().unwrap(), Some("welcome".into()));
        for size in [0, 5, 300_000] {
            ws.send(vec![1; size]).unwrap();
            assert!(ws.recv().unwrap() == Some(vec![1; size].into()));
        }
        ws.close(ws::CloseCode::NORMAL).unwrap();
    });
    h.run_until(&proxy, |proxy| proxy.upstreams()[0].in_flight() == 0);
    // One that is refused is answered like anything else.
    let upstream = listening(h, |_: &Request<'_>| Status::FORBIDDEN);
    let client = Client::of(h, to(&[&upstream]));
    client.send("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
    assert_eq!(client.answer().status, 403);
    // Another protocol is not even asked for.
    let upstream = listening(h, mirror);
    let client = Client::of(h, to(&[&upstream]));
    client.send(
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\
         Connection: upgrade, http2-settings\r\n\r\n",
    );
    let answer = client.answer();
    assert!(answer.status == 200 && !answer.text().contains("h2c"), "{answer:?}");
    assert!(!answer.text().contains("http2-settings"), "{answer:?}");
}

pub(crate) fn j15_upstream_is_told_for_whom_by_the_proxy_protocol(h: &Harness) {
    let good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let (upstream, _, heard) = overheard(h, vec![Script::answer(good), Script::answer(good)]);
    let settings = Settings { send_proxy: Some(ProxyVersion::V1), ..patient() };
    let client = Client::of(h, with(&[&upstream], settings));
    for _ in 0..2 {
        assert_eq!(client.get("/").text(), "ok");
        let said = heard.take();
        assert!(said.starts_with("PROXY TCP4 192.0.2.1 127.0.0.1 4711 "), "{said}");
        assert!(said.contains("\r\nGET / HTTP/1.1\r\n"), "{said}");
    }
}

pub(crate) fn j15_health_is_asked_for_behind_a_proxy_header(h: &Harness) {
    // That says: a connection of the proxy's own.
    for (version, header) in [
        (ProxyVersion::V1, "PROXY UNKNOWN\r\n"),
        (ProxyVersion::V2, "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"),
    ] {
        let good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let scripts = vec![
            Script::answer(good).until("\r\nhost: a\r\n"),
            Script::answer(good).until("GET /health"),
        ];
        let (upstream, asked, heard) = overheard(h, scripts);
        let health =
            HealthCheck { path: "/health".into(), interval: 10 * MS, ..HealthCheck::default() };
        let settings = Settings { health: Some(health), send_proxy: Some(version), ..patient() };
        let client = Client::of(h, with(&[&upstream], settings));
        assert_eq!(client.get("/").text(), "ok");
        heard.take();
        h.run_until(&asked, |asked| asked.get() == 2);
        let said = heard.take();
        assert!(said.starts_with(&format!("{header}GET /health HTTP/1.1\r\n")), "{said:?}");
    }
}

pub(crate) fn j15_without_descriptors_requests_fail_and_others_go_on(h: &Harness) {
    h.succeed_in_child(|| {
        let upstream = listening(h, |_: &Request<'_>| "ahoy\n");
        let client = Client::of(h, to(&[&upstream]));
        let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        // The number of the next descriptor is the first that may not be.
        let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
        let none = rustix::process::Rlimit { current: Some(next as u64), maximum: before.maximum };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, none).unwrap();
        assert_eq!(client.get("/").status, 502);
        rustix::process::setrlimit(rustix::process::Resource::Nofile, before).unwrap();
        assert_eq!(client.get("/").status, 200);
    });
}
