//! Row J4: how long a request may take in all, whatever it is that takes long.

use crate::client::Client;
use crate::harness::Harness;
use crate::http2_peer::{Peer, request};
use coracle_http::{App, IntoResponse, Request, Response, Settings};
use coracle_net::{Buffer, Conn};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(500);
const LARGE: usize = 50 << 20;

fn settings() -> Settings {
    Settings { request_timeout: Some(TIMEOUT), ..Settings::default() }
}

fn app(req: &Request<'_>) -> Response {
    match req.path() {
        "/slow" => {
            let _ = coracle_coro::sleep(Duration::from_secs(3600));
            "at last".into_response()
        }
        "/large" => vec![b'x'; LARGE].into_response(),
        "/echo" => Response::upgrade("echo", |conn: &mut Conn<'_>, input: &mut Buffer| {
            conn.write_slice(input.take_all());
            Ok(())
        }),
        _ => "ok".into_response(),
    }
}

fn client(h: &Harness, app: impl App) -> Client<'_> {
    Client::with(h, settings(), app)
}

/// Waits until the request of a client is late.
fn is_late(client: &Client<'_>) {
    client.h.run_until(&client.service, |service| service.stats().timed_out == 1);
}

pub(crate) fn j4_request_that_is_not_there_in_all_its_time_is_late(h: &Harness) {
    for begin in ["GET / HT", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"] {
        let client = client(h, app);
        let since = h.lp.now();
        client.send(begin);
        assert_eq!(client.refusal(), 408, "{begin:?}");
        assert!(h.lp.now() - since >= TIMEOUT - Duration::from_millis(10), "{begin:?}");
        assert_eq!(client.service.stats().timed_out, 1);
    }
}

pub(crate) fn j4_answer_that_is_not_there_in_all_its_time_is_cut(h: &Harness) {
    let client = client(h, app);
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    is_late(&client);
    assert_eq!(client.rest(), b"", "without a word");
}

pub(crate) fn j4_answer_that_is_not_taken_in_all_its_time_is_cut(h: &Harness) {
    let client = client(h, app);
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    is_late(&client);
    assert!(client.rest().len() < LARGE);
}

/// An answer that is small and waits behind others, too.
pub(crate) fn j4_last_answer_that_is_not_taken_in_all_its_time_is_cut(h: &Harness) {
    const REQUESTS: usize = 2_000;
    let client = client(h, |_: &Request<'_>| vec![b'x'; 10_000]);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(REQUESTS));
    is_late(&client);
    assert!(client.rest().len() < REQUESTS * 10_000);
}

/// In HTTP/2 it is one request of several.
pub(crate) fn j4_request_of_http_2_has_all_its_time_and_no_more(h: &Harness) {
    let mut peer = Peer::over(client(h, app), h2::client::Builder::new());
    let (response, _out) = peer.ask(request("POST", "/"), true);
    assert_eq!(peer.answer(response).expect("an answer").status, 408);
    assert_eq!(peer.client.service.stats().timed_out, 1);
    let since = h.lp.now();
    let (response, _) = peer.ask(request("GET", "/slow"), false);
    assert!(peer.answer(response).is_err_and(|error| error.is_reset()));
    assert!(h.lp.now() - since >= TIMEOUT - Duration::from_millis(10));
    // It takes its answer as slowly as it may, but not that slowly.
    let (response, _) = peer.ask(request("GET", "/large"), false);
    let mut body = peer.head(response).expect("a head").into_body();
    let lost = loop {
        match peer.until(|cx| body.poll_data(cx)) {
            Some(Ok(_)) => {} // and its window stays as it is
            end => break end,
        }
    };
    assert!(lost.is_some_and(|lost| lost.is_err_and(|error| error.is_reset())));
    drop(body);
    assert_eq!(peer.client.service.stats().timed_out, 3);
    assert_eq!(peer.get("/").text(), "ok", "the others go on");
}

/// Each request has its time; between them a connection has another.
pub(crate) fn j4_requests_in_time_go_on(h: &Harness) {
    let client = client(h, app);
    for _ in 0..5 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3));
        for _ in 0..3 {
            assert_eq!(client.answer().text(), "ok");
        }
        h.run_for(TIMEOUT * 2);
    }
    client.send("GET /");
    h.run_for(TIMEOUT - Duration::from_millis(100));
    client.send(" HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().text(), "ok");
    client.send("GET /echo HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(client.head().status, 101);
    h.run_for(TIMEOUT * 2);
    client.send("ahoy");
    assert_eq!(client.take(4), b"ahoy", "another protocol has its own times");
    assert_eq!(client.service.stats().timed_out, 0);
}
