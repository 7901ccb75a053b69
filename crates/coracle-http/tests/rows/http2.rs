//! Row J13: HTTP/2, to an app that does not know of it.

use crate::client::Client;
use crate::harness::Harness;
use crate::http2_frames::{END_HEADERS, END_STREAM, Frame, PREFACE, fields, frame, get, kind};
use crate::http2_peer::{Peer, request};
use bytes::Bytes;
use coracle_http::{
    App, Body, Http2Settings, IntoResponse, Plan, Request, Response, Settings, Status, Trailers,
    inline, streaming,
};
use h2::client::ResponseFuture;
use http::{HeaderMap, HeaderValue};
use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::time::Duration;

pub(crate) const ENHANCE_YOUR_CALM: u32 = 0xb;
const PROTOCOL_ERROR: u32 = 1;

fn hello(client: &Client<'_>) {
    client.send(crate::http2_frames::hello());
}

pub(crate) fn next_frame(client: &Client<'_>) -> Option<Frame> {
    crate::http2_frames::next(|count| client.take(count))
}

/// The next frame of which this is so.
pub(crate) fn find(client: &Client<'_>, is_it: impl Fn(&Frame) -> bool) -> Option<Frame> {
    std::iter::from_fn(|| next_frame(client)).find(is_it)
}

/// The code of the `GOAWAY` that the connection ends with, if it does with one.
pub(crate) fn goaway(client: &Client<'_>) -> Option<u32> {
    let mut code = None;
    while let Some(frame) = next_frame(client) {
        if frame.kind == kind::GOAWAY {
            code = frame.payload[4..8].try_into().ok().map(u32::from_be_bytes);
        }
    }
    code
}

fn ok(_: &Request<'_>) -> &'static str {
    "ok"
}

pub(crate) fn j13_request_is_the_same_as_one_of_http_1(h: &Harness) {
    let mut peer = Peer::of(h, |req: &Request<'_>| {
        let host = (req.host().unwrap_or("-"), req.header("host").unwrap_or("-"));
        let cookie = req.header("cookie").unwrap_or("-");
        let (version, peer) = (req.version(), req.peer());
        let (path, query) = (req.path(), req.query().unwrap_or("-"));
        format!("{version:?} {host:?} {path} {query} {:?} {cookie} {peer}", req.segments())
    });
    let mut request = request("GET", "/a/b%20c?d=e");
    for cookie in ["a=1", "b=2; c=3"] {
        request.headers_mut().append("cookie", HeaderValue::from_static(cookie));
    }
    let answer = peer.request(request);
    assert_eq!(answer.status, 200);
    let host = r#"("a.example", "a.example")"#;
    let told = format!(r#"Http2 {host} /a/b%20c d=e ["a", "b c"] a=1; b=2; c=3 192.0.2.1:4711"#);
    assert_eq!(answer.text(), told);
    assert_eq!(answer.header("content-length"), Some(told.len().to_string().as_str()));
    assert!(answer.header("date").is_some_and(|date| date.ends_with("GMT")));
}

pub(crate) fn j13_requests_of_a_connection_do_not_wait_for_each_other(h: &Harness) {
    let mut peer = Peer::of(h, |req: &Request<'_>| {
        if req.path() == "/slow" {
            coracle_coro::sleep(Duration::from_millis(200)).expect("nobody cancels");
        }
        req.path().to_owned()
    });
    let (slow, _) = peer.ask(request("GET", "/slow"), false);
    let begin = h.lp.now();
    for number in 0..20 {
        let target = format!("/{number}");
        assert_eq!(peer.get(&target).text(), target);
    }
    assert_eq!(peer.answer(slow).expect("an answer").text(), "/slow");
    assert!(h.lp.now() - begin >= Duration::from_millis(190));
    assert_eq!(peer.client.service.stats().requests, 21);
}

pub(crate) fn j13_bodies_go_both_ways(h: &Harness) {
    let mut peer = Peer::of(h, |req: &Request<'_>| req.body().to_vec());
    assert_eq!(peer.post("/", "ahoy").text(), "ahoy");
    assert_eq!(peer.post("/", "").text(), "");
    let large: Vec<u8> = (0..700_000_u32).map(|n| (n % 251) as u8).collect();
    assert!(peer.post("/", large.clone()).body == large);
}

pub(crate) fn j13_trailers_go_both_ways(h: &Harness) {
    let app = |req: &Request<'_>| {
        let trailers = Trailers::new();
        let (body, sum) =
            (req.body().to_vec(), req.trailers().get("sum").unwrap_or("-").to_owned());
        let later = trailers.clone();
        let body = Body::stream(move |out| {
            out.write_all(&body)?;
            later.insert("sum-was", sum).map_err(io::Error::other)
        });
        Response::new(Status::OK).with_body(body).with_trailers(trailers)
    };
    for is_streamed in [false, true] {
        let read = move |req: &Request<'_>| -> io::Result<Response> {
            let mut owned = req.to_owned();
            if is_streamed {
                let mut body = Vec::new();
                req.body_reader().read_to_end(&mut body)?;
                owned = owned.with_body(body);
                let sum = req.trailers().get("sum").unwrap_or("-").to_owned();
                let response = app(&owned.request());
                let trailers = response.trailers().cloned().unwrap_or_default();
                trailers.insert("streamed-sum", sum).map_err(io::Error::other)?;
                return Ok(response);
            }
            Ok(app(&owned.request()))
        };
        let mut peer = match is_streamed {
            true => Peer::of(h, streaming(read)),
            false => Peer::of(h, read),
        };
        let (response, mut out) = peer.ask(request("POST", "/"), true);
        out.send_data(Bytes::from_static(b"ahoy"), false).expect("a body");
        let mut trailers = HeaderMap::new();
        trailers.insert("sum", HeaderValue::from_static("7"));
        out.send_trailers(trailers).expect("trailers");
        let answer = peer.answer(response).expect("an answer");
        assert_eq!(answer.text(), "ahoy");
        let trailers = answer.trailers.expect("trailers");
        let name = if is_streamed { "streamed-sum" } else { "sum-was" };
        assert_eq!(trailers.get(name).map(HeaderValue::as_bytes), Some(&b"7"[..]));
    }
}

pub(crate) fn j13_some_answers_have_no_body(h: &Harness) {
    let mut peer = Peer::of(h, |req: &Request<'_>| match req.path() {
        "/304" => Response::new(Status::NOT_MODIFIED).with_header("content-length", "7"),
        "/204" => Response::new(Status::NO_CONTENT).with_body("never"),
        "/stream" => Body::stream(|out| out.write_all(b"never")).into_response(),
        _ => "ahoy".into_response(),
    });
    let answer = peer.request(request("HEAD", "/"));
    assert_eq!((answer.header("content-length"), answer.text()), (Some("4"), ""));
    let answer = peer.request(request("HEAD", "/stream"));
    assert_eq!((answer.status, answer.header("content-length"), answer.text()), (200, None, ""));
    let answer = peer.get("/304");
    assert_eq!((answer.status, answer.header("content-length")), (304, Some("7")));
    let answer = peer.get("/204");
    assert_eq!((answer.status, answer.text()), (204, ""));
    assert_eq!(peer.get("/").text(), "ahoy");
}

pub(crate) fn j13_fields_of_one_connection_are_left_out(h: &Harness) {
    let mut peer = Peer::of(h, |_: &Request<'_>| {
        ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te"]
            .into_iter()
            .fold("ahoy".into_response(), |response, name| response.with_header(name, "x-kept"))
            .with_header("x-kept", "yes")
    });
    let answer = peer.get("/");
    let mut names: Vec<_> = answer.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "content-type", "date", "x-kept"]);
}

pub(crate) fn j13_limits_have_their_answers(h: &Harness) {
    let settings = Settings {
        limit_headers: 10,
        limit_header_bytes: 2000,
        limit_target_bytes: 100,
        limit_body_bytes: 1000,
        ..Settings::default()
    };
    let mut peer = Peer::with(h, settings, ok);
    let mut many = request("GET", "/");
    for number in 0..11 {
        let name = format!("x-{number}").parse::<http::HeaderName>().expect("a name");
        many.headers_mut().insert(name, HeaderValue::from_static("1"));
    }
    assert_eq!(peer.request(many).status, 431);
    let mut large = request("GET", "/");
    large.headers_mut().insert("x", "y".repeat(2100).parse().expect("a value"));
    assert_eq!(peer.request(large).status, 431);
    let mut larger = request("GET", "/");
    larger.headers_mut().insert("x", "y".repeat(4000).parse().expect("a value"));
    assert_eq!(peer.request(larger).status, 431);
    assert_eq!(peer.get(&format!("/{}", "a".repeat(100))).status, 414);
    assert_eq!(peer.post("/", vec![0; 1001]).status, 413);
    let mut said = request("POST", "/");
    said.headers_mut().insert("content-length", HeaderValue::from_static("1001"));
    let (response, _out) = peer.ask(said, true);
    assert_eq!(peer.answer(response).expect("an answer").status, 413);
    let mut expects = request("GET", "/");
    expects.headers_mut().insert("expect", HeaderValue::from_static("a miracle"));
    assert_eq!(peer.request(expects).status, 417);
    assert_eq!(peer.request(request("TRACE", "/")).status, 501);
    // The connection goes on.
    assert_eq!(peer.get("/").text(), "ok");
    assert_eq!(peer.client.service.stats().requests, 1);
    // What is far too large is not even read.
    let mut huge = request("GET", "/");
    huge.headers_mut().insert("x", "y".repeat(20_000).parse().expect("a value"));
    let (response, _) = peer.ask(huge, false);
    let error = peer.answer(response).expect_err("no answer");
    assert_eq!(error.reason(), Some(h2::Reason::ENHANCE_YOUR_CALM));
}

pub(crate) fn j13_host_is_there_and_one(h: &Harness) {
    let client = Client::of(h, ok);
    hello(&client);
    let base = [(":method", "GET"), (":scheme", "http"), (":path", "/")];
    let cases: [(&[(&str, &str)], &str); 4] = [
        (&[], "400"),
        (&[(":authority", "a"), ("host", "b")], "400"),
        (&[(":authority", "u@a")], "400"),
        (&[("host", "a")], "200"),
    ];
    for (number, (more, status)) in cases.into_iter().enumerate() {
        let stream = number as u32 * 2 + 1;
        let block = fields(&[&base[..], more].concat());
        client.send(frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block));
        let answer = find(&client, |it| (it.kind, it.stream) == (kind::HEADERS, stream));
        let block = answer.expect("an answer").payload;
        // In HPACK's table, 8 is `:status: 200` and 12 is 400.
        assert_eq!(block[0], if status == "200" { 0x88 } else { 0x8c }, "{more:?}");
    }
}

pub(crate) fn j13_malformed_requests_are_reset(h: &Harness) {
    let client = Client::of(h, ok);
    hello(&client);
    let base = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    let cases: [&[(&str, &str)]; 2] = [&[("connection", "close")], &[("te", "gzip")]];
    for (number, more) in cases.into_iter().enumerate() {
        let stream = number as u32 * 2 + 1;
        let block = fields(&[&base[..], more].concat());
        client.send(frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block));
        let answer = find(&client, |it| it.stream == stream || it.kind == kind::GOAWAY);
        let answer = answer.expect("an answer");
        assert_eq!(answer.kind, kind::RST_STREAM, "{more:?}");
        assert_eq!(answer.payload, PROTOCOL_ERROR.to_be_bytes());
    }
    client.send(get(21));
    let answer = find(&client, |it| (it.kind, it.stream) == (kind::HEADERS, 21));
    assert!(answer.is_some(), "the connection goes on");
}

pub(crate) fn j13_body_is_written_while_it_is_sent(h: &Harness) {
    let written = Rc::new(Cell::new(0));
    let count = Rc::clone(&written);
    let mut peer = Peer::of(h, move |_: &Request<'_>| {
        let count = Rc::clone(&count);
        Body::stream(move |out| {
            for _ in 0..1000 {
                out.write_all(&[7; 4096])?;
                count.set(count.get() + 4096);
            }
            Ok(())
        })
    });
    let (response, _) = peer.ask(request("GET", "/"), false);
    let body = peer.head(response).expect("an answer").into_body();
    h.run_for(Duration::from_millis(50));
    assert!(written.get() < 512 << 10, "it waits for its client: {}", written.get());
    let (bytes, _) = peer.body(body).expect("a body");
    assert_eq!((bytes.len(), written.get()), (4_096_000, 4_096_000));
}

pub(crate) fn j13_body_is_read_while_it_comes(h: &Harness) {
    let read = Rc::new(Cell::new(0));
    let count = Rc::clone(&read);
    let go_on = Rc::new(Cell::new(false));
    let may = Rc::clone(&go_on);
    let app = streaming(move |req: &Request<'_>| -> io::Result<String> {
        while !may.get() {
            coracle_coro::sleep(Duration::from_millis(1))?;
        }
        let mut piece = [0; 1000];
        let mut body = req.body_reader();
        loop {
            match body.read(&mut piece)? {
                0 => return Ok(format!("{}", count.get())),
                got => count.set(count.get() + got),
            }
        }
    });
    let settings = Settings { limit_body_bytes: 4 << 20, ..Settings::default() };
    let window = settings.http2.stream_window_bytes as usize;
    let mut peer = Peer::with(h, settings, app);
    let (response, mut out) = peer.ask(request("POST", "/"), true);
    out.reserve_capacity(2 << 20);
    out.send_data(vec![7; 2 << 20].into(), true).expect("a body");
    for _ in 0..20 {
        peer.flush();
        h.run_for(Duration::from_millis(2));
    }
    assert_eq!((read.get(), out.capacity()), (0, 0), "it waits for its reader");
    assert!(window < 2 << 20);
    go_on.set(true);
    let answer = peer.answer(response).expect("an answer");
    assert_eq!(answer.text(), (2 << 20).to_string());
}

pub(crate) fn j13_body_is_sent_when_it_is_wanted(h: &Harness) {
    /// What the server says before its answer, if it does.
    fn told(peer: &mut Peer<'_>, response: &mut ResponseFuture) -> Option<u16> {
        let told = peer.until(|cx| response.poll_informational(cx));
        told.map(|told| told.expect("no error").status().as_u16())
    }
    let expecting = |length: &'static str| {
        let mut expecting = request("POST", "/");
        expecting.headers_mut().insert("expect", HeaderValue::from_static("100-Continue"));
        expecting.headers_mut().insert("content-length", HeaderValue::from_static(length));
        expecting
    };
    let echo = |req: &Request<'_>| io::read_to_string(req.body_reader());
    let settings = Settings { limit_body_bytes: 10, ..Settings::default() };
    let apps: [Rc<dyn App>; 2] = [Rc::new(echo), Rc::new(streaming(echo))];
    for app in apps {
        let mut peer = Peer::with(h, settings.clone(), app);
        let (mut response, mut out) = peer.ask(expecting("4"), true);
        assert_eq!(told(&mut peer, &mut response), Some(100));
        out.send_data("ahoy".into(), true).expect("a body");
        assert_eq!(peer.answer(response).expect("an answer").text(), "ahoy");
        // Who does not wait is not told.
        let (mut response, mut out) = peer.ask(expecting("4"), true);
        out.send_data("ahoy".into(), true).expect("a body");
        assert_eq!(told(&mut peer, &mut response), None);
        assert_eq!(peer.answer(response).expect("an answer").text(), "ahoy");
        // Nobody takes so much: that is the answer.
        let (mut response, _out) = peer.ask(expecting("11"), true);
        assert_eq!(told(&mut peer, &mut response), None);
        assert_eq!(peer.answer(response).expect("an answer").status, 413);
    }
}

pub(crate) fn j13_files_and_large_answers_are_whole(h: &Harness) {
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 253) as u8).collect();
    let path = std::env::temp_dir().join(format!("coracle-h2-{}", std::process::id()));
    let path = path.with_extension(h.lp.backend().to_string());
    std::fs::write(&path, &bytes).expect("a file");
    let (file, whole) = (path.clone(), bytes.clone());
    let mut peer = Peer::of(h, move |req: &Request<'_>| match req.path() {
        "/file" => {
            let file = std::fs::File::open(&file).expect("the file");
            Body::file(file, 1000, 2_000_000).into_response()
        }
        _ => whole.clone().into_response(),
    });
    assert!(peer.get("/").body == bytes);
    let answer = peer.get("/file");
    assert_eq!(answer.header("content-length"), Some("2000000"));
    assert!(answer.body == bytes[1000..2_001_000]);
    std::fs::remove_file(path).expect("it was there");
}

pub(crate) fn j13_body_that_breaks_off_is_reset(h: &Harness) {
    let mut peer = Peer::of(h, |req: &Request<'_>| match req.path() {
        "/short" => Body::stream_exact(10, |out| out.write_all(b"short")).into_response(),
        "/panic" => Body::stream(|_| panic!("as it is meant to")).into_response(),
        _ => "ok".into_response(),
    });
    for target in ["/short", "/panic"] {
        let (response, _) = peer.ask(request("GET", target), false);
        assert!(peer.answer(response).is_err_and(|error| error.is_reset()), "{target}");
    }
    assert_eq!(peer.get("/").text(), "ok");
}

pub(crate) fn j13_handlers_of_all_styles_and_their_panics(h: &Harness) {
    let mut peer = Peer::of(h, |_: &Request<'_>| -> &'static str { panic!("as it is meant to") });
    assert_eq!(peer.get("/").status, 500);
    let mut peer = Peer::of(h, inline(|req: &Request<'_>| req.body().to_vec()));
    assert_eq!(peer.post("/", "ahoy").text(), "ahoy");
    let mut peer =
        Peer::of(h, inline(|_: &Request<'_>| Body::stream(|out| out.write_all(b"ahoy"))));
    assert_eq!(peer.get("/").text(), "ahoy");
    let app = coracle_http::asynchronous(async |req: &Request<'_>| {
        coracle_coro::future::sleep(Duration::from_millis(1)).await;
        req.path().to_owned()
    });
    assert_eq!(Peer::of(h, app).get("/later").text(), "/later");
    // Another protocol cannot take over.
    let mut peer = Peer::of(h, |_: &Request<'_>| {
        Response::upgrade("echo", |_: &mut coracle_net::Conn<'_>, _: &mut coracle_net::Buffer| {
            Ok(())
        })
    });
    assert_eq!(peer.get("/").status, 426);
}

pub(crate) fn j13_request_that_is_taken_back_ends_its_handler(h: &Harness) {
    struct Patient(Rc<RefCell<Option<io::Result<()>>>>);
    impl coracle_http::App for Patient {
        fn call(&self, _: &Request<'_>) -> Response {
            let ended = coracle_coro::sleep(Duration::from_secs(3600));
            *self.0.borrow_mut() = Some(ended);
            "nobody reads it".into_response()
        }
        fn plan(&self, _: &Request<'_>) -> Plan {
            Plan::default().cancel_when_gone()
        }
    }
    let ended = Rc::new(RefCell::new(None));
    let mut peer = Peer::of(h, Patient(Rc::clone(&ended)));
    let (response, mut out) = peer.ask(request("POST", "/"), true);
    out.send_data(Bytes::new(), false).expect("nothing");
    drop(response);
    drop(out); // resets it
    let (response, _) = peer.ask(request("GET", "/"), false);
    peer.flush();
    h.run_for(Duration::from_millis(20));
    drop(response);
    peer.flush();
    h.run_until(&ended, |ended| ended.borrow().is_some());
    assert!(ended.borrow().as_ref().is_some_and(|ended| ended.is_err()));
}

pub(crate) fn j13_client_that_ends_its_side_gets_its_answers(h: &Harness) {
    let client = Client::of(h, |_: &Request<'_>| {
        coracle_coro::sleep(Duration::from_millis(20)).map(|()| "late")
    });
    hello(&client);
    client.send(get(1));
    client.end();
    let mut data = Vec::new();
    while let Some(frame) = find(&client, |it| it.kind == kind::DATA) {
        data.extend(frame.payload);
    }
    assert_eq!(data, b"late");
}

pub(crate) fn j13_number_of_requests_can_be_limited(h: &Harness) {
    let settings = Settings { limit_requests: 2, ..Settings::default() };
    let mut peer = Peer::with(h, settings, ok);
    assert_eq!(peer.get("/").text(), "ok");
    assert_eq!(peer.get("/").text(), "ok");
    peer.end().expect("no error");
}

pub(crate) fn j13_streams_have_a_limit(h: &Harness) {
    let http2 = Http2Settings { limit_streams: 2, ..Http2Settings::default() };
    let settings = Settings { http2, ..Settings::default() };
    let client = Client::with(h, settings, |_: &Request<'_>| {
        coracle_coro::sleep(Duration::from_secs(3600)).map(|()| "never")
    });
    hello(&client);
    client.send([get(1), get(3), get(5)].concat());
    let refusal = find(&client, |it| it.kind == kind::RST_STREAM).expect("a refusal");
    const REFUSED_STREAM: u32 = 7;
    assert_eq!((refusal.stream, refusal.payload), (5, REFUSED_STREAM.to_be_bytes().to_vec()));
}

pub(crate) fn j13_upgrade_to_h2c_is_not_followed(h: &Harness) {
    let client = Client::of(h, ok);
    client.send(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n",
    );
    assert_eq!(client.answer().text(), "ok");
    assert_eq!(client.get("/").text(), "ok");
}

pub(crate) fn j13_preface_may_come_in_pieces_or_not_be_wanted(h: &Harness) {
    let client = Client::of(h, ok);
    for piece in PREFACE.chunks(5) {
        client.send(piece);
        h.run_for(Duration::from_millis(1));
    }
    client.send([frame(kind::SETTINGS, 0, 0, b""), get(1)].concat());
    assert!(find(&client, |it| it.kind == kind::DATA).is_some());
    let http2 = Http2Settings { prior_knowledge: false, ..Http2Settings::default() };
    let client = Client::with(h, Settings { http2, ..Settings::default() }, ok);
    client.send(PREFACE);
    assert_eq!(client.refusal(), 505);
}

// --- Floods and slow clients -----------------------------------------------------------------------------

/// What a client hears that sends `flood` for ever: sent in pieces, until the server does not listen any more.
fn flooded(h: &Harness, flood: impl Fn(u32) -> Vec<u8>) -> Option<u32> {
    let client = Client::of(h, ok);
    hello(&client);
    for round in 0..20 {
        let numbers = round * 500..(round + 1) * 500;
        client.send(numbers.flat_map(&flood).collect::<Vec<_>>());
        h.run_for(Duration::from_millis(1));
    }
    goaway(&client)
}

pub(crate) fn j13_floods_are_stopped(h: &Harness) {
    const NO_ERROR: [u8; 4] = [0; 4];
    let cancel = |stream| frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    // Rapid reset (CVE-2023-44487).
    let reset = flooded(h, |n| [get(n * 2 + 1), cancel(n * 2 + 1)].concat());
    assert_eq!(reset, Some(ENHANCE_YOUR_CALM), "rapid reset");
    let settings = flooded(h, |_| frame(kind::SETTINGS, 0, 0, b""));
    assert_eq!(settings, Some(ENHANCE_YOUR_CALM), "settings");
    let pings = flooded(h, |_| frame(kind::PING, 0, 0, &[0; 8]));
    assert_eq!(pings, Some(ENHANCE_YOUR_CALM), "pings");
    let priorities = flooded(h, |_| frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 1]));
    assert_eq!(priorities, Some(ENHANCE_YOUR_CALM), "priorities");
    let updates = flooded(h, |_| frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]));
    assert_eq!(updates, Some(ENHANCE_YOUR_CALM), "window updates");
    let unknown = flooded(h, |_| frame(99, 0, 0, &NO_ERROR));
    assert_eq!(unknown, Some(ENHANCE_YOUR_CALM), "unknown frames");
}

pub(crate) fn j13_header_without_end_is_not_received(h: &Harness) {
    let client = Client::of(h, ok);
    hello(&client);
    client.send(frame(kind::HEADERS, END_STREAM, 1, &fields(&[(":method", "GET")])));
    let more = fields(&[("x-name", "value"); 500]);
    for _ in 0..200 {
        let payload = frame(kind::CONTINUATION, 0, 1, &more).into();
        let send = coracle_loop::demux::Operation::Send { socket: client.socket, payload };
        if h.operate(send).result.is_err() {
            break;
        }
    }
    assert_eq!(goaway(&client), Some(ENHANCE_YOUR_CALM));
    assert_eq!(client.service.stats().requests, 0);
}

pub(crate) fn j13_nonsense_ends_the_connection(h: &Harness) {
    let upper = fields(&[(":method", "GET"), ("Upper", "case")]);
    let unknown = fields(&[(":method", "GET"), (":new", "one")]);
    let cases: [(&str, Vec<u8>); 7] = [
        ("a field of HTTP/2's own that there is not", {
            frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &unknown)
        }),
        ("a name in upper case", frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &upper)),
        ("DATA on no stream", frame(kind::DATA, 0, 0, b"x")),
        ("HEADERS on an even stream", {
            let mut headers = get(1);
            headers[8] = 2;
            headers
        }),
        ("a PING of seven bytes", frame(kind::PING, 0, 0, &[0; 7])),
        ("a frame above the limit", frame(kind::DATA, 0, 1, &vec![0; 20_000])),
        ("HPACK that is none", frame(kind::HEADERS, END_HEADERS, 1, &[0xff; 20])),
    ];
    for (what, bytes) in cases {
        let client = Client::of(h, ok);
        hello(&client);
        client.send(bytes);
        assert!(goaway(&client).is_some_and(|code| code != 0), "{what}");
    }
}

/// The same, with times that pass quickly.
fn quick(settings: impl FnOnce(&mut Settings)) -> Settings {
    let short = Duration::from_millis(100);
    let mut all = Settings { header_timeout: short, ..Settings::default() };
    settings(&mut all);
    all
}

pub(crate) fn j13_silent_connection_is_closed(h: &Harness) {
    // It says nothing after its preface.
    let client = Client::with(h, quick(|_| ()), ok);
    hello(&client);
    assert_eq!(goaway(&client), Some(0));
    // It asks nothing any more; what it says meanwhile does not count.
    let settings = quick(|it| it.idle_timeout = Duration::from_millis(300));
    let mut peer = Peer::with(h, settings, ok);
    assert_eq!(peer.get("/").text(), "ok");
    peer.end().expect("no error");
    // Half a header.
    let client = Client::with(h, quick(|it| it.idle_timeout = Duration::from_secs(3600)), ok);
    hello(&client);
    client.send(get(1));
    client.send(frame(kind::HEADERS, END_STREAM, 3, &fields(&[(":method", "GET")])));
    assert_eq!(goaway(&client), Some(ENHANCE_YOUR_CALM));
    assert_eq!(client.service.stats().timed_out, 1);
    // Half a frame of a header, beside an answer that goes on.
    let client = Client::with(h, quick(|_| ()), |_: &Request<'_>| {
        coracle_coro::sleep(Duration::from_secs(10)).map(|()| "late")
    });
    hello(&client);
    client.send(get(1));
    client.send(&get(3)[..20]);
    assert_eq!(goaway(&client), Some(ENHANCE_YOUR_CALM));
    assert_eq!(client.service.stats().timed_out, 1);
}

pub(crate) fn j13_body_has_its_time(h: &Harness) {
    let settings = quick(|it| it.body_timeout = Duration::from_millis(100));
    let mut peer = Peer::with(h, settings.clone(), ok);
    let (response, _out) = peer.ask(request("POST", "/"), true);
    assert_eq!(peer.answer(response).expect("an answer").status, 408);
    assert_eq!(peer.client.service.stats().timed_out, 1, "it is late once");
    let app = streaming(|req: &Request<'_>| -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        req.body_reader().read_to_end(&mut body)?;
        Ok(body)
    });
    let mut peer = Peer::with(h, settings, app);
    let (response, _out) = peer.ask(request("POST", "/"), true);
    assert_eq!(peer.answer(response).expect("an answer").status, 408);
}

pub(crate) fn j13_client_that_opens_no_window_is_not_waited_for(h: &Harness) {
    for is_streamed in [false, true] {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(0);
        let settings = quick(|it| {
            it.write_timeout = Duration::from_millis(200);
            it.min_send_rate = 1 << 20;
        });
        let client = Client::with(h, settings, move |_: &Request<'_>| match is_streamed {
            true => Body::stream(|out| out.write_all(&[7; 1 << 20])).into_response(),
            false => vec![7; 1 << 20].into_response(),
        });
        let mut peer = Peer::over(client, builder);
        let (response, _) = peer.ask(request("GET", "/"), false);
        let body = peer.head(response).expect("a head").into_body();
        assert!(peer.body(body).is_err_and(|error| error.is_reset()));
        assert_eq!(peer.client.service.stats().timed_out, 1);
    }
}
