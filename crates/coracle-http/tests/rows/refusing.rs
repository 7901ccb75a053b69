//! Rows J3 and J4: what a peer may not send, and the answer it gets. Each case closes the connection.

use crate::client::Client;
use crate::harness::Harness;
use coracle_http::{Request, Service, Settings};
use std::time::Duration;

fn ok(_: &Request<'_>) -> &'static str {
    "ok"
}

/// Sends `text` on a connection of its own: the status of the refusal.
fn refusal(h: &Harness, settings: &Settings, text: &str) -> u16 {
    let client = Client::with(h, settings.clone(), ok);
    // What follows must not be taken for a request.
    client.send(format!("{text}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"));
    let status = client.refusal();
    assert_eq!(client.service.stats().requests, 0, "{text:?}");
    assert_eq!(client.service.stats().refused, 1, "{text:?}");
    status
}

pub(crate) fn j3_what_can_be_read_in_two_ways_is_refused(h: &Harness) {
    let settings = Settings::default();
    let post = |fields: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    for (expected, text) in [
        (400, post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")),
        (400, post("Content-Length: 5\r\nContent-Length: 6\r\n")),
        (400, post("Content-Length: 5\r\nContent-Length: 5\r\n")),
        (400, post("Content-Length: +3\r\n")),
        (400, post("Content-Length: 0x3\r\n")),
        (400, post("Transfer-Encoding: chunked, chunked\r\n")),
        (501, post("Transfer-Encoding: xchunked\r\n")),
        (501, post("Transfer-Encoding: gzip, chunked\r\n")),
        (400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".into()),
        (400, post("Transfer-Encoding: chunked\r\n") + "0x3\r\nabc\r\n0\r\n\r\n"),
        (400, post("Transfer-Encoding: chunked\r\n") + "3\r\nabcd\r\n0\r\n\r\n"),
        (400, post("Transfer-Encoding: chunked\r\n") + "3\nabc\r\n0\r\n\r\n"),
        (400, post("Transfer-Encoding: chunked\r\n") + "0\r\nContent-Length: 3\r\n\r\n"),
        (400, post("Host : b\r\n")),
        (400, post("a: b\r\n c\r\n")),
        (400, post("a\r\n")),
        (400, post("Host: b\r\n")),
        (400, "GET / HTTP/1.1\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\nHost: a\n\n".into()),
        (400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n".into()),
        (400, "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n".into()),
        (400, "GET * HTTP/1.1\r\nHost: a\r\n\r\n".into()),
        (400, "GET / http/1.1\r\nHost: a\r\n\r\n".into()),
        (505, "GET / HTTP/2.0\r\nHost: a\r\n\r\n".into()),
        (417, post("Expect: the-unexpected\r\n")),
        (405, "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n".into()),
        (501, "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n".into()),
    ] {
        assert_eq!(refusal(h, &settings, &text), expected, "{text:?}");
    }
}

pub(crate) fn j3_refusal_comes_behind_the_answers_before_it(h: &Harness) {
    let client = Client::of(h, ok);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\n");
    assert_eq!(client.answer().text(), "ok");
    assert_eq!(client.refusal(), 400);
}

pub(crate) fn j4_limits_have_their_answers(h: &Harness) {
    let settings = Settings {
        limit_header_bytes: 1000,
        limit_headers: 10,
        limit_target_bytes: 100,
        limit_body_bytes: 20,
        limit_trailers: 2,
        limit_chunk_extension_bytes: 10,
        ..Settings::default()
    };
    let post = |fields: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    for (expected, text) in [
        (414, format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(100))),
        (431, post(&"a: b\r\n".repeat(10))),
        (431, post(&format!("a: {}\r\n", "b".repeat(1000)))),
        // The line is longer than a target may be, its target is not.
        (431, format!("GET /{} HTTP/1.1\r\na: {}\r\n\r\n", "a".repeat(95), "b".repeat(1000))),
        (431, format!("GET /{} HTTP/1.1\r\na: {}", "a".repeat(95), "b".repeat(1000))),
        (414, format!("GET /{} HTTP/1.1\r\na: {}", "a".repeat(100), "b".repeat(1000))),
        (501, format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "A".repeat(40))),
        (413, post("Content-Length: 21\r\n")),
        (413, post("Transfer-Encoding: chunked\r\n") + "15\r\n"),
        (413, post("Transfer-Encoding: chunked\r\n") + "14\r\n01234567890123456789\r\n1\r\n"),
        (400, post("Transfer-Encoding: chunked\r\n") + "1;0123456789\r\n"),
        (400, post("Transfer-Encoding: chunked\r\n") + "0\r\na:b\r\na:b\r\na:b\r\n\r\n"),
    ] {
        assert_eq!(refusal(h, &settings, &text), expected, "{text:?}");
    }
    let client = Client::with(h, settings.clone(), ok);
    client.send(format!("GET /{}", "a".repeat(1000)));
    assert_eq!(client.refusal(), 414, "its end is not awaited");
    let client = Client::with(h, settings, ok);
    client.send(post("Content-Length: 20\r\n") + "01234567890123456789");
    assert_eq!(client.answer().text(), "ok", "up to the limit");
}

pub(crate) fn j4_endless_head_is_not_received(h: &Harness) {
    let client = Client::of(h, ok);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n");
    client.send("a: b\r\n".repeat(10_000));
    assert_eq!(client.refusal(), 431);
}

pub(crate) fn j4_bodies_have_a_budget_together(h: &Harness) {
    let settings = Settings { limit_bodies_bytes: 1000, ..Settings::default() };
    let first = Client::with(h, settings, ok);
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n";
    first.send(head);
    first.send([b'x'; 800]);
    h.run_for(Duration::from_millis(1));
    let second = Client::to(h, &first.service);
    second.send(head);
    second.send([b'x'; 300]);
    let answer = second.answer();
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")));
    first.send([b'x'; 100]);
    assert_eq!(first.answer().text(), "ok");
    let third = Client::to(h, &first.service);
    third.send(head);
    third.send([b'x'; 900]);
    assert_eq!(third.answer().text(), "ok", "what was given back can be used again");
}

/// Short on real time, exact on simulated time.
fn short() -> Settings {
    Settings {
        header_timeout: Duration::from_millis(40),
        body_timeout: Duration::from_millis(40),
        idle_timeout: Duration::from_millis(80),
        min_body_rate: 1_000_000,
        ..Settings::default()
    }
}

pub(crate) fn j4_head_has_its_time(h: &Harness) {
    let client = Client::with(h, short(), ok);
    let begin = h.lp.now();
    client.send("GET / HT");
    assert_eq!(client.refusal(), 408);
    assert!(h.lp.now() - begin >= Duration::from_millis(30));
    assert_eq!(client.service.stats().timed_out, 1);
}

pub(crate) fn j4_head_that_drips_has_no_more_time(h: &Harness) {
    let client = Client::with(h, short(), ok);
    let begin = h.lp.now();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX: ");
    // Each byte comes in time for a limit that began anew with it; and some may come too late for anybody.
    for _ in 0..10 {
        h.run_for(Duration::from_millis(10));
        let payload = vec![b'x'].into();
        let send = coracle_loop::demux::Operation::Send { socket: client.socket, payload };
        let _ = h.operate(send).result;
    }
    assert_eq!(client.head().status, 408);
    if h.is_simulated() {
        assert!(h.lp.now() - begin < Duration::from_millis(150));
    }
}

pub(crate) fn j4_body_has_its_time(h: &Harness) {
    for fields in ["Content-Length: 100\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n5\r\nab"] {
        let client = Client::with(h, short(), ok);
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}"));
        assert_eq!(client.refusal(), 408);
        assert_eq!(client.service.stats().requests, 0);
    }
}

pub(crate) fn j4_idle_connection_is_closed(h: &Harness) {
    let client = Client::with(h, short(), ok);
    let begin = h.lp.now(); // it is not idle before that
    assert_eq!(client.get("/").text(), "ok");
    assert_eq!(client.rest(), b"", "without a word");
    assert!(h.lp.now() - begin >= Duration::from_millis(70));
    let silent = Client::with(h, short(), ok);
    assert_eq!(silent.rest(), b"", "nor was there one that never said anything");
}

/// Who has begun a request in the last moment is at the front of those who wait, and has more time than they.
pub(crate) fn j4_silent_connections_end_whatever_others_do(h: &Harness) {
    let settings = Settings::default();
    for (limit, asked) in [(settings.header_timeout, false), (settings.idle_timeout, true)] {
        for begin in ["G", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"] {
            let service = Service::new(ok, settings.clone()).expect("the settings make sense");
            let clients = [(); 3].map(|()| {
                let client = Client::to(h, &service);
                if asked {
                    assert_eq!(client.get("/").text(), "ok");
                }
                client
            });
            let since = h.lp.now();
            h.run_for(limit - Duration::from_secs(1));
            clients[0].send(begin);
            for client in &clients[1..] {
                assert_eq!(client.rest(), b"");
                let late = (h.lp.now() - since).saturating_sub(limit);
                assert!(late < Duration::from_secs(1), "{late:?}, asked: {asked}, {begin:?}");
            }
            assert_eq!(clients[0].refusal(), 408, "and that one in its own time");
        }
    }
}

pub(crate) fn j4_slow_handler_is_not_idle(h: &Harness) {
    let client = Client::with(h, short(), |_: &Request<'_>| {
        coracle_coro::sleep(Duration::from_millis(300)).expect("it is not cancelled");
        "at last"
    });
    assert_eq!(client.get("/").text(), "at last");
    assert_eq!(client.get("/").text(), "at last", "its idle time began with the answer");
}

pub(crate) fn j4_times_are_exact(h: &Harness) {
    let settings = Settings::default();
    let client = Client::of(h, ok);
    client.send("GET / HT");
    h.run_for(Duration::from_secs(5));
    let begin = h.lp.now();
    client.send("TP/1.1\r\n");
    assert_eq!(client.refusal(), 408);
    let late = h.lp.now() - begin;
    assert!(
        late <= settings.header_timeout - Duration::from_secs(5) + Duration::from_millis(200),
        "{late:?}"
    );
}

pub(crate) fn j4_body_that_drips_is_cut(h: &Harness) {
    let client = Client::of(h, ok);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    let begin = h.lp.now();
    let mut seconds = 0;
    loop {
        h.run_for(Duration::from_secs(1));
        let payload = vec![b'x'].into();
        let send = coracle_loop::demux::Operation::Send { socket: client.socket, payload };
        if h.operate(send).result.is_err() || seconds > 40 {
            break;
        }
        seconds += 1;
    }
    assert_eq!(client.head().status, 408);
    let time = h.lp.now() - begin;
    assert!(time > Duration::from_secs(20), "{time:?}");
    assert_eq!(client.service.stats().timed_out, 1);
}

pub(crate) fn j4_reader_that_drips_is_cut(h: &Harness) {
    let client = Client::of(h, |_: &Request<'_>| vec![b'x'; 50 << 20]);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // A byte a second: never silent for long, and never done.
    let mut seconds = 0;
    loop {
        h.run_for(Duration::from_secs(1));
        seconds += 1;
        let space = vec![0; 1].into();
        let receive = coracle_loop::demux::Operation::Receive { socket: client.socket, space };
        let received = h.operate(receive).result;
        if !matches!(received, Ok(coracle_loop::demux::Outcome::Count(1))) || seconds > 1000 {
            break;
        }
        if client.service.stats().timed_out > 0 {
            break;
        }
    }
    assert!(seconds < 300, "it was never cut");
}

pub(crate) fn j4_times_and_limits_may_be_endless(h: &Harness) {
    let settings = Settings {
        limit_target_bytes: usize::MAX,
        limit_method_bytes: usize::MAX,
        limit_body_bytes: u64::MAX,
        limit_bodies_bytes: usize::MAX,
        limit_chunk_extension_bytes: usize::MAX,
        limit_chunk_extensions_bytes: usize::MAX,
        limit_trailer_bytes: usize::MAX,
        limit_trailers: usize::MAX,
        limit_ahead_bytes: usize::MAX,
        header_timeout: Duration::MAX,
        body_timeout: Duration::MAX,
        min_body_rate: 1,
        idle_timeout: Duration::MAX,
        write_timeout: Duration::MAX,
        handler_timeout: Some(Duration::MAX),
        request_timeout: Some(Duration::MAX),
        drain: Duration::MAX,
        ..Settings::default()
    };
    let client = Client::with(h, settings, |req: &Request<'_>| vec![b'x'; req.body().len()]);
    client.send("POST / HT");
    h.run_for(Duration::from_millis(1));
    client.send("TP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc");
    h.run_for(Duration::from_millis(1));
    client.send("\r\n0\r\na: b\r\n\r\nGET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().text(), "xxx");
    assert_eq!(client.answer().text(), "");
    assert_eq!(client.rest(), b"");
}

pub(crate) fn j3_refused_head_has_no_body(h: &Harness) {
    for (text, expected) in [
        ("HEAD / HTTP/1.1\r\n\r\n", 400),
        ("HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n", 413),
        ("HEAD / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    ] {
        let client = Client::of(h, ok);
        client.send(text);
        assert_eq!(client.head().status, expected, "{text:?}");
        assert_eq!(client.rest(), b"", "{text:?}");
    }
}
