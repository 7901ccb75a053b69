//! Row J13: what clients of HTTP/2 are slow with, and what becomes of their connections.

use crate::client::Client;
use crate::harness::Harness;
use crate::http2::{find, next_frame};
use crate::http2_ends::{CANCEL, goes_on, hello, long_then_short, post, quick};
use crate::http2_frames::{END_STREAM, PREFACE, frame, get, kind};
use coracle_http::{Body, Http2Settings, IntoResponse, Request, Settings, streaming};
use coracle_loop::demux::Operation;
use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::Duration;

/// So much of an answer is given to `h2` at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Takes an answer to its end, and says that it is there when it is asked: how many bytes came.
fn take_answer(client: &Client<'_>, stream: u32) -> usize {
    let mut received = 0;
    loop {
        let it = next_frame(client).expect("all of the answer");
        match (it.kind, it.stream) {
            (kind::PING, _) if it.flags == 0 => client.send(frame(kind::PING, 1, 0, &it.payload)),
            (kind::DATA, from) if from == stream => {
                received += it.payload.len();
                if it.flags & END_STREAM != 0 {
                    return received;
                }
            }
            _ => {}
        }
    }
}

/// Its last piece is about to be in a frame, which waits for room, and the window does not let pass all of it.
/// That cannot be taken back.
pub(crate) fn j13_end_of_an_answer_that_is_not_taken_back_is_not_left_for_ever(h: &Harness) {
    // Wherever the end of it is when there is no room.
    for pieces in 1..10 {
        let len = pieces * PIECE_BYTES + 40_000;
        let settings = Settings { idle_timeout: Duration::from_secs(3600), ..quick() };
        let client = Client::with(h, settings, move |_: &Request<'_>| vec![7; len]);
        hello(&client, (len - 20_000) as u32);
        client.send(get(1));
        let begin = h.lp.now();
        while client.service.stats().timed_out == 0 && h.lp.now() - begin < Duration::from_secs(5) {
            h.run_for(Duration::from_millis(50));
            let space = vec![0; 500].into();
            h.operate(Operation::Receive { socket: client.socket, space }).result.expect("bytes");
        }
        assert_eq!(client.service.stats().timed_out, 1);
        // Either it is reset, or all of them end.
        let mut rest = Vec::new();
        while !rest.ends_with(&CANCEL) && client.receive() {
            rest.extend(client.take_received());
        }
        assert!(h.lp.now() - begin < Duration::from_secs(10), "{pieces}");
    }
}

/// The end of it waits for room in no stream, but in `h2`.
pub(crate) fn j13_connection_is_idle_when_a_slow_answer_is_sent(h: &Harness) {
    // Wherever the end of it is when there is no room; of fewer pieces, all of them are sent from our side.
    for pieces in 5..10 {
        let len = pieces * PIECE_BYTES + 10;
        let settings = Settings { idle_timeout: Duration::from_millis(500), ..Settings::default() };
        let client = Client::with(h, settings, long_then_short(len));
        hello(&client, 1 << 30);
        client.send(get(1));
        h.run_for(Duration::from_secs(1));
        assert_eq!(take_answer(&client, 1), len);
        h.run_for(Duration::from_millis(300));
        goes_on(&client, 3);
    }
}

/// It is not read while it takes what was sent to it, so it cannot say that it is there.
pub(crate) fn j13_client_that_takes_its_answer_slowly_is_there(h: &Harness) {
    const LEN: usize = 9 << 20;
    let http2 = Http2Settings {
        ping_interval: Some(Duration::from_millis(50)),
        ping_timeout: Duration::from_millis(200),
        ..Http2Settings::default()
    };
    let body_timeout = Duration::from_millis(400); // it is looked at in quarters of this
    let settings = Settings { http2, body_timeout, ..Settings::default() };
    let client = Client::with(h, settings, long_then_short(LEN));
    hello(&client, 1 << 30);
    client.send(get(1));
    h.run_for(Duration::from_secs(1));
    assert_eq!(take_answer(&client, 1), LEN);
    goes_on(&client, 3);
}

/// Its handler goes on, whatever it does.
pub(crate) fn j13_body_of_a_stream_that_is_gone_gives_its_window_back(h: &Harness) {
    let is_over = Rc::new(Cell::new(false));
    let over = Rc::clone(&is_over);
    let app = streaming(move |_: &Request<'_>| -> io::Result<&'static str> {
        coracle_coro::sleep(Duration::from_secs(2))?;
        over.set(true);
        Ok("too late")
    });
    let http2 = Http2Settings { connection_window_bytes: 100_000, ..Http2Settings::default() };
    let client = Client::with(h, Settings { http2, ..Settings::default() }, app);
    hello(&client, 1_000);
    client.send(post(1));
    for _ in 0..4 {
        client.send(frame(kind::DATA, 0, 1, &[7; 15_000]));
    }
    h.run_for(Duration::from_millis(5));
    client.send(frame(kind::RST_STREAM, 0, 1, &8_u32.to_be_bytes()));
    let moved = 60_000_u32.to_be_bytes();
    let is_moved = |it: &crate::http2_frames::Frame| {
        (it.kind, it.stream, &it.payload[..]) == (kind::WINDOW_UPDATE, 0, &moved[..])
    };
    assert!(find(&client, is_moved).is_some());
    assert!(!is_over.get());
}

pub(crate) fn j13_pieces_of_an_answer_have_a_limit(h: &Harness) {
    for is_streamed in [false, true] {
        let http2 = Http2Settings { limit_send_bytes: 1_000, ..Http2Settings::default() };
        let settings = Settings { http2, ..Settings::default() };
        let client = Client::with(h, settings, move |_: &Request<'_>| match is_streamed {
            true => Body::stream(|out| out.write_all(&[7; 50_500])).into_response(),
            false => vec![7; 50_500].into_response(),
        });
        hello(&client, 1 << 30);
        client.send(get(1));
        let mut received = 0;
        while received < 50_500 {
            let data = find(&client, |it| it.kind == kind::DATA).expect("all of the answer");
            assert!(data.payload.len() <= 1_000, "{}", data.payload.len());
            received += data.payload.len();
        }
        assert_eq!(received, 50_500);
    }
}

/// All of it is with `h2` as soon as it is asked for.
pub(crate) fn j13_answer_that_is_not_taken_is_late_with_its_request(h: &Harness) {
    let request_timeout = Some(Duration::from_millis(200));
    let settings = Settings { request_timeout, ..Settings::default() };
    let client = Client::with(h, settings, long_then_short(10));
    hello(&client, 0);
    let begin = h.lp.now();
    client.send(get(1));
    assert_eq!(find(&client, |it| it.kind == kind::RST_STREAM).map(|it| it.stream), Some(1));
    assert!(h.lp.now() - begin < Duration::from_secs(3));
    goes_on(&client, 3);
    assert_eq!(client.service.stats().timed_out, 1);
}

/// So that it is known which requests can be asked again.
pub(crate) fn j13_idle_connection_ends_with_its_last_request(h: &Harness) {
    let settings = Settings { idle_timeout: Duration::from_millis(100), ..Settings::default() };
    let client = Client::with(h, settings, |_: &Request<'_>| "ok");
    client.send([PREFACE, &frame(kind::SETTINGS, 0, 0, b""), &get(1), &get(3)].concat());
    let last = find(&client, |it| it.kind == kind::GOAWAY).expect("a last word").payload;
    assert_eq!(last, [0, 0, 0, 3, 0, 0, 0, 0]);
    assert!(next_frame(&client).is_none());
}
