//! Row J1: connections that are kept, and those that are not; requests in a row.

use crate::client::Client;
use crate::harness::Harness;
use coracle_http::{IntoResponse, Method, Request, Response, Settings};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

fn path(req: &Request<'_>) -> String {
    req.path().to_owned()
}

pub(crate) fn j1_connection_is_kept(h: &Harness) {
    let client = Client::of(h, path);
    for target in ["/a", "/b", "/c"] {
        let answer = client.get(target);
        assert_eq!((answer.status, answer.text()), (200, target));
        assert_eq!(answer.header("connection"), None);
        assert_eq!(answer.header("content-length"), Some("2"), "exactly");
        assert!(answer.header("date").is_some_and(|date| date.ends_with(" GMT")));
    }
    assert_eq!(client.service.stats().requests, 3);
}

pub(crate) fn j1_http_1_0_ends_with_its_answer(h: &Harness) {
    let client = Client::of(h, path);
    client.send("GET /old HTTP/1.0\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.text(), answer.header("connection")), ("/old", Some("close")));
    assert_eq!(client.rest(), b"");
}

pub(crate) fn j1_http_1_0_is_kept_when_it_asks(h: &Harness) {
    let client = Client::of(h, path);
    for _ in 0..2 {
        client.send("GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let answer = client.answer();
        assert_eq!((answer.text(), answer.header("connection")), ("/old", Some("keep-alive")));
    }
}

pub(crate) fn j1_close_is_honoured_and_nothing_behind_it_is_a_request(h: &Harness) {
    let client = Client::of(h, path);
    client.send(
        "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    let answer = client.answer();
    assert_eq!((answer.text(), answer.header("connection")), ("/a", Some("close")));
    assert_eq!(client.rest(), b"");
    assert_eq!(client.service.stats().requests, 1);
}

pub(crate) fn j1_handler_may_have_the_connection_closed(h: &Harness) {
    let client =
        Client::of(h, |_: &Request<'_>| "bye".into_response().with_header("Connection", "close"));
    let answer = client.get("/");
    assert_eq!((answer.text(), answer.header("connection")), ("bye", Some("close")));
    assert_eq!(client.rest(), b"");
}

pub(crate) fn j1_pipelined_requests_are_answered_in_order(h: &Harness) {
    let client = Client::of(h, path);
    let requests: String =
        (0..50).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.send(requests);
    for n in 0..50 {
        assert_eq!(client.answer().text(), format!("/{n}"));
    }
}

pub(crate) fn j1_pipelined_requests_wait_for_a_slow_one(h: &Harness) {
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&order);
    let client = Client::of(h, move |req: &Request<'_>| {
        if req.path() == "/slow" {
            coracle_coro::sleep(Duration::from_millis(5)).expect("it is not cancelled");
        }
        seen.borrow_mut().push(req.path().to_owned());
        req.path().to_owned()
    });
    let targets = ["/slow", "/a", "/slow", "/b", "/c"];
    client.send(targets.map(|it| format!("GET {it} HTTP/1.1\r\nHost: a\r\n\r\n")).concat());
    for target in targets {
        assert_eq!(client.answer().text(), target);
    }
    assert_eq!(*order.borrow(), targets, "one at a time");
}

pub(crate) fn j1_what_follows_a_slow_request_is_received_up_to_a_limit(h: &Harness) {
    let settings = Settings { limit_ahead_bytes: 1000, ..Settings::default() };
    let open = Rc::new(Cell::new(false));
    let gate = Rc::clone(&open);
    let client = Client::with(h, settings, move |req: &Request<'_>| {
        while !gate.get() {
            coracle_coro::sleep(Duration::from_millis(1)).expect("it is not cancelled");
        }
        req.path().len().to_string()
    });
    // Far more than is received while the first waits, and less than sockets take.
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(999));
    client.send(long.repeat(30));
    h.run_for(Duration::from_millis(20));
    open.set(true);
    for _ in 0..30 {
        assert_eq!(client.answer().text(), "1000");
    }
    assert_eq!(client.get("/").text(), "1");
}

pub(crate) fn j1_client_that_asks_and_does_not_read_is_not_answered_on(h: &Harness) {
    let asked = Rc::new(Cell::new(0));
    let count = Rc::clone(&asked);
    let client = Client::of(h, move |_: &Request<'_>| {
        count.set(count.get() + 1);
        vec![b'x'; 10_000]
    });
    const REQUESTS: usize = 2_000;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(REQUESTS));
    let mut before = usize::MAX;
    while before != asked.get() {
        before = asked.get();
        h.run_for(Duration::from_millis(20));
    }
    let waiting = client.server.with(&h.lp, |conn| conn.output_bytes()).expect("it is there");
    assert!(waiting < 1 << 20, "{waiting} bytes wait");
    for _ in 0..REQUESTS {
        assert_eq!(client.answer().body.len(), 10_000);
    }
    assert_eq!(asked.get(), REQUESTS);
    assert_eq!(client.get("/").body.len(), 10_000, "and it goes on");
}

pub(crate) fn j1_request_may_come_byte_by_byte(h: &Harness) {
    let client = Client::of(h, |req: &Request<'_>| [req.path().as_bytes(), req.body()].concat());
    for byte in b"\r\nPOST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" {
        client.send([*byte]);
    }
    assert_eq!(client.answer().text(), "/xabc");
}

pub(crate) fn j1_half_closed_client_gets_all_its_answers(h: &Harness) {
    for slow in [false, true] {
        let client = Client::of(h, move |req: &Request<'_>| {
            if slow {
                coracle_coro::sleep(Duration::from_millis(3)).expect("it is not cancelled");
            }
            req.path().to_owned()
        });
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n");
        client.end();
        assert_eq!((client.answer().text(), client.answer().text()), ("/a", "/b"));
        assert_eq!(client.rest(), b"");
    }
}

/// The end comes while requests wait only for room: they have been asked all the same.
pub(crate) fn j1_half_closed_client_gets_answers_that_wait_for_room(h: &Harness) {
    const REQUESTS: usize = 200;
    for slow in [false, true] {
        let client = Client::of(h, move |_: &Request<'_>| {
            if slow {
                coracle_coro::sleep(Duration::from_millis(1)).expect("it is not cancelled");
            }
            vec![b'x'; 10_000]
        });
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(REQUESTS));
        client.end();
        for n in 0..REQUESTS {
            assert_eq!(client.answer().body.len(), 10_000, "answer {n}, slow: {slow}");
        }
        assert_eq!(client.rest(), b"");
    }
}

pub(crate) fn j1_half_a_request_and_the_end_is_no_request(h: &Harness) {
    for part in ["GET / HT", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab"] {
        let client = Client::of(h, path);
        client.send(part);
        client.end();
        assert_eq!(client.rest(), b"");
        assert_eq!(client.service.stats().requests, 0);
    }
}

pub(crate) fn j1_requests_of_a_connection_can_be_limited(h: &Harness) {
    let client = Client::with(h, Settings { limit_requests: 2, ..Settings::default() }, path);
    assert_eq!(client.get("/a").header("connection"), None);
    assert_eq!(client.get("/b").header("connection"), Some("close"));
    assert_eq!(client.rest(), b"");
}

pub(crate) fn j1_methods_are_told_apart(h: &Harness) {
    let client = Client::of(h, |req: &Request<'_>| -> Response {
        match req.method() {
            Method::Get => "get".into_response(),
            Method::Options => format!("options {}", req.path()).into_response(),
            Method::Other => format!("other {}", req.method_name()).into_response(),
            method => method.name().into_response(),
        }
    });
    assert_eq!(client.get("/").text(), "get");
    client.send("BREW /pot HTTP/1.1\r\nHost: a\r\n\r\nOPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((client.answer().text(), client.answer().text()), ("other BREW", "options *"));
}
