//! Rows J1 and J4: clients that take their answers late, or hardly at all, while the connection comes to its end.

use crate::client::Client;
use crate::harness::Harness;
use coracle_http::{IntoResponse, Request, Response, Settings};
use coracle_loop::demux::sim::Faults;
use coracle_loop::demux::{Operation, Outcome};
use coracle_net::{Buffer, Conn, Protocol, attach};
use std::io;
use std::time::Duration;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const ANSWER_BYTES: usize = 20_000;

fn app(req: &Request<'_>) -> Response {
    match req.path() {
        "/last" => "the last".into_response(),
        _ => vec![b'x'; ANSWER_BYTES].into_response(),
    }
}

/// Asks until neither the client's side nor the server's takes any more of the answers: how many there are.
fn fill(client: &Client<'_>) -> usize {
    let mut asked = 0;
    loop {
        client.send(REQUEST);
        asked += 1;
        let service = &client.service;
        client.h.run_until(service, move |service| service.stats().requests == asked as u64);
        let unsent = || client.server.with(&client.h.lp, |conn| conn.unsent_bytes());
        if unsent() > Some(0) {
            // The kernel may only have been slow.
            client.h.run_for(Duration::from_millis(20));
            if unsent() > Some(0) {
                return asked;
            }
        }
    }
}

pub(crate) fn j1_answers_are_whole_however_late_they_are_read(h: &Harness) {
    let settings = || Settings { drain: Duration::from_millis(10), ..Settings::default() };
    for (last, status) in [
        ("GET /last HTTP/1.0\r\n\r\n", Some(200)),
        ("GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", Some(200)),
        ("GET /last HTTP/1.1\r\n\r\n", Some(400)),
        ("the end", None),
    ] {
        let client = Client::with(h, settings(), app);
        let asked = fill(&client);
        match last {
            "the end" => client.end(),
            request => client.send(request),
        }
        h.run_for(Duration::from_millis(100));
        for _ in 0..asked {
            assert_eq!(client.answer().body.len(), ANSWER_BYTES, "{last:?}");
        }
        if let Some(status) = status {
            assert_eq!(client.answer().status, status, "{last:?}");
        }
        assert_eq!(client.rest(), b"", "{last:?}");
    }
}

pub(crate) fn j1_half_a_body_and_the_end_is_not_waited_for(h: &Harness) {
    let client = Client::of(h, |req: &Request<'_>| {
        if req.path() == "/slow" {
            coracle_coro::sleep(Duration::from_millis(5)).expect("it is not cancelled");
        }
        req.path().to_owned()
    });
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send("POST /half HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab");
    client.end();
    assert_eq!(client.answer().text(), "/slow");
    assert_eq!(client.rest(), b"", "without a word");
    assert_eq!(client.service.stats().timed_out, 0);
}

pub(crate) fn j4_reader_that_drips_and_talks_is_cut_while_it_is_closed(h: &Harness) {
    let client = Client::of(h, app);
    fill(&client);
    client.send("GET /last HTTP/1.0\r\n\r\n");
    let mut seconds = 0;
    while client.service.stats().timed_out == 0 {
        h.run_for(Duration::from_secs(1));
        seconds += 1;
        assert!(seconds < 300, "it was never cut");
        let receive = Operation::Receive { socket: client.socket, space: vec![0; 1].into() };
        let received = h.operate(receive).result;
        let payload = vec![b'x'].into();
        let sent = h.operate(Operation::Send { socket: client.socket, payload }).result;
        if !matches!(received, Ok(Outcome::Count(1))) || sent.is_err() {
            break;
        }
    }
}

/// After how many seconds a client is cut that takes so many bytes a second of what it has been sent, and asks for
/// as much now and then.
fn asking_reader_cut_after(h: &Harness, bytes_per_second: usize) -> Option<u32> {
    let h = &h.simulated(Faults { least_room_bytes: 1, ..Faults::benign() });
    const PERIOD: u32 = 10;
    let answer_bytes = bytes_per_second * PERIOD as usize;
    let settings = Settings {
        write_timeout: Duration::from_secs(6),
        min_send_rate: 500,
        ..Settings::default()
    };
    let client = Client::with(h, settings, move |req: &Request<'_>| match req.path() {
        "/more" => vec![b'x'; answer_bytes],
        _ => vec![b'x'; ANSWER_BYTES],
    });
    fill(&client);
    for second in 1..=120 {
        if second % PERIOD == 0 {
            client.send("GET /more HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        h.run_for(Duration::from_secs(1));
        if client.service.stats().timed_out > 0 {
            return Some(second);
        }
        assert_eq!(h.receive(client.socket, bytes_per_second).len(), bytes_per_second);
    }
    None
}

pub(crate) fn j4_reader_that_drips_and_asks_is_cut(h: &Harness) {
    let after = asking_reader_cut_after(h, 400).expect("that is too slow");
    assert!(after <= 30, "{after}");
    assert_eq!(asking_reader_cut_after(h, 600), None, "that is fast enough");
}

/// A connection that is told at once that the server stops.
struct Stopped<P>(P);

impl<P: Protocol> Protocol for Stopped<P> {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.0.on_open(conn)?;
        self.0.on_shutdown(conn)
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        self.0.on_data(conn, input)
    }
}

/// The server stops while a request has begun, behind answers that were not taken yet.
pub(crate) fn j1_request_that_has_begun_is_answered_though_the_server_stops(h: &Harness) {
    let client = Client::of(h, app);
    // So much waits that the connection is told when it has been taken.
    const MORE: usize = 14;
    let asked = fill(&client) + MORE;
    client.send(REQUEST.repeat(MORE) + "GET /last HT");
    h.run_for(Duration::from_millis(20));
    let (service, (_, accepted)) = (&client.service, h.connection());
    let stopped = Stopped(service.connection(&"192.0.2.1:4712".parse().unwrap()));
    attach(&h.lp, accepted, service.connection_settings(), stopped).expect("attach");
    for _ in 0..asked {
        assert_eq!(client.answer().body.len(), ANSWER_BYTES);
    }
    client.send("TP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.text(), answer.header("connection")), ("the last", Some("close")));
    assert_eq!(client.rest(), b"");
}
