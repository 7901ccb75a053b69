//! Row J4: bodies that come a byte a second, wherever in them that is: never silent for long, and never done.

use crate::client::Client;
use crate::harness::Harness;
use coracle_http::{App, IntoResponse, Plan, Request, Response, Settings};
use coracle_loop::demux::sim::Faults;
use coracle_loop::demux::{Operation, Outcome};
use std::io::{self, Read};
use std::time::Duration;

/// Longer than any default lets them go on.
const PATIENCE_SECONDS: u32 = 120;

/// Reads the body, all at once or while it comes.
struct Count {
    streamed: bool,
}

impl App for Count {
    fn call(&self, req: &Request<'_>) -> Response {
        let count = || -> io::Result<String> {
            let mut body = Vec::new();
            req.body_reader().read_to_end(&mut body)?;
            Ok(body.len().to_string())
        };
        count().into_response()
    }

    fn plan(&self, _: &Request<'_>) -> Plan {
        if self.streamed { Plan::default().streamed() } else { Plan::default() }
    }
}

/// A client that takes so many bytes a second of a large answer, through a kernel that says that there is room
/// when half of its buffer is free: after how many seconds it was cut, if it was.
fn reader_cut_after(h: &Harness, bytes_per_second: usize) -> Option<u32> {
    let h = &h.simulated(Faults { least_room_bytes: 32 << 10, ..Faults::benign() });
    let write_timeout = Duration::from_secs(6);
    let settings = Settings { write_timeout, min_send_rate: 500, ..Settings::default() };
    let client = Client::with(h, settings, |_: &Request<'_>| vec![b'x'; 1 << 20]);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    for second in 1..=PATIENCE_SECONDS {
        h.run_for(Duration::from_secs(1));
        if client.service.stats().timed_out > 0 {
            return Some(second);
        }
        let taken = h.receive(client.socket, bytes_per_second).len();
        assert_eq!(taken, bytes_per_second, "second {second}");
    }
    None
}

pub(crate) fn j4_reader_that_is_slow_and_steady_is_not_cut(h: &Harness) {
    assert_eq!(reader_cut_after(h, 600), None, "there is room for more after 54 seconds only");
    let after = reader_cut_after(h, 400).expect("that is too slow");
    assert!((5..=14).contains(&after), "{after}: when it is looked at for the second time");
}

/// Sends `begin` at once and a byte of `rest` a second, over and over: after how many it was cut, with 408.
fn cut_after(h: &Harness, streamed: bool, begin: &str, rest: &str) -> u32 {
    let client = Client::of(h, Count { streamed });
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{begin}"));
    let mut seconds = 0;
    for byte in rest.bytes().cycle() {
        h.run_for(Duration::from_secs(1));
        seconds += 1;
        let send = Operation::Send { socket: client.socket, payload: vec![byte].into() };
        if client.service.stats().timed_out > 0 || h.operate(send).result.is_err() {
            break;
        }
        assert!(seconds < PATIENCE_SECONDS, "it is never cut: {begin:?}, streamed: {streamed}");
    }
    assert_eq!(client.head().status, 408, "{begin:?}, streamed: {streamed}");
    assert_eq!(client.service.stats().timed_out, 1, "{begin:?}, streamed: {streamed}");
    seconds
}

fn is_cut(h: &Harness, begin: &str, rest: &str) {
    for streamed in [false, true] {
        let seconds = cut_after(h, streamed, begin, rest);
        assert!((20..30).contains(&seconds), "{begin:?}, streamed: {streamed}: {seconds} s");
    }
}

/// Its end must not wait behind what the kernel still has for it: that would go on for as long as it drips.
pub(crate) fn j4_reader_that_is_cut_is_reset(h: &Harness) {
    let client = Client::of(h, |_: &Request<'_>| vec![b'x'; 50 << 20]);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let receive = |bytes: usize| {
        h.operate(Operation::Receive { socket: client.socket, space: vec![0; bytes].into() }).result
    };
    let mut seconds = 0;
    while client.service.stats().timed_out == 0 {
        h.run_for(Duration::from_secs(1));
        seconds += 1;
        assert!(seconds < 300, "it was never cut");
        if receive(1).is_err() {
            break;
        }
    }
    // Whatever is left to read, there is no end behind it that could be taken for that of the answer.
    loop {
        match receive(1 << 16) {
            Ok(Outcome::Count(0)) => panic!("it ends as if nothing had happened"),
            Ok(_) => {}
            Err(error) => return assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
    }
}

pub(crate) fn j4_bodies_that_drip_are_cut(h: &Harness) {
    is_cut(h, "Content-Length: 100000\r\n\r\n", "x");
    is_cut(h, "Transfer-Encoding: chunked\r\n\r\nfff\r\n", "x");
}

pub(crate) fn j4_small_chunks_that_drip_are_cut(h: &Harness) {
    is_cut(h, "Transfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n");
}

pub(crate) fn j4_chunk_extensions_that_drip_are_cut(h: &Harness) {
    is_cut(h, "Transfer-Encoding: chunked\r\n\r\n5;a=", "x");
}

pub(crate) fn j4_trailers_that_drip_are_cut(h: &Harness) {
    is_cut(h, "Transfer-Encoding: chunked\r\n\r\n5\r\nahoy!\r\n0\r\n", "A: b\r\n");
    is_cut(h, "Transfer-Encoding: chunked\r\n\r\n0\r\nX-Slow: ", "x");
}
