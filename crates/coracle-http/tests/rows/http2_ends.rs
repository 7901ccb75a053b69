//! Row J13: the ends of answers, which hyper has handed on and the client has not taken.

use crate::client::Client;
use crate::harness::Harness;
use crate::http2::{ENHANCE_YOUR_CALM, find, goaway, next_frame};
use crate::http2_frames::{END_STREAM, PREFACE, frame, get, kind};
use coracle_http::{Body, IntoResponse, Request, Settings};
use coracle_loop::demux::{Operation, Outcome};
use std::cell::Cell;
use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];

/// Begins, with windows of so many bytes for each answer, and of as much as there is for all of them.
fn hello(client: &Client<'_>, window: u32) {
    let settings = [&INITIAL_WINDOW_SIZE[..], &window.to_be_bytes()].concat();
    let settings = frame(kind::SETTINGS, 0, 0, &settings);
    let open = frame(kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
    client.send([PREFACE, &settings, &open].concat());
}

pub(crate) fn j13_client_that_ends_its_side_gets_answers_that_wait_for_room(h: &Harness) {
    // Wherever the end of it is when there is no room.
    for len in (8 << 20..9 << 20).step_by(100_000) {
        let client = Client::of(h, move |_: &Request<'_>| vec![7; len]);
        hello(&client, 1 << 30);
        client.send(get(1));
        client.end();
        h.run_for(Duration::from_millis(5));
        let (mut received, mut is_whole) = (0, false);
        while let Some(frame) = next_frame(&client) {
            if frame.kind == kind::DATA {
                received += frame.payload.len();
                is_whole |= frame.flags & END_STREAM != 0;
            }
        }
        assert_eq!((received, is_whole), (len, true));
    }
}

/// It cannot open its window any more, so nothing is waited for.
pub(crate) fn j13_client_that_ends_its_side_gets_what_its_window_lets_pass(h: &Harness) {
    for len in [10_000, 200_000] {
        let client = Client::of(h, move |_: &Request<'_>| vec![7; len]);
        hello(&client, 1_000);
        client.send(get(1));
        client.end();
        let data = find(&client, |it| it.kind == kind::DATA).expect("a part of the answer");
        assert_eq!(data.payload.len(), 1_000);
        assert!(find(&client, |it| it.kind == kind::DATA).is_none());
        assert_eq!(client.service.stats().timed_out, 0);
    }
}

/// It has all of its answer in our memory, and ends its side.
pub(crate) fn j4_client_of_http_2_that_drips_is_cut_while_it_is_closed(h: &Harness) {
    let client = Client::of(h, |_: &Request<'_>| vec![7; 200_000]);
    hello(&client, 1 << 30);
    client.send(get(1));
    client.end();
    let mut seconds = 0;
    while client.service.stats().timed_out == 0 {
        h.run_for(Duration::from_secs(1));
        seconds += 1;
        assert!(seconds < 300, "it was never cut");
        let receive = Operation::Receive { socket: client.socket, space: vec![0; 1].into() };
        if !matches!(h.operate(receive).result, Ok(Outcome::Count(1))) {
            break;
        }
    }
    assert_eq!(client.service.stats().timed_out, 1);
}

/// With times that pass quickly.
fn quick() -> Settings {
    Settings {
        write_timeout: Duration::from_millis(200),
        min_send_rate: 1 << 20,
        idle_timeout: Duration::from_secs(10),
        ..Settings::default()
    }
}

pub(crate) fn j13_end_of_an_answer_is_not_left_for_ever(h: &Harness) {
    let client = Client::with(h, quick(), |_: &Request<'_>| vec![7; 10_000]);
    hello(&client, 1);
    client.send(get(1));
    assert_eq!(goaway(&client), Some(ENHANCE_YOUR_CALM));
    assert_eq!(client.service.stats().timed_out, 1);
}

/// Whoever asks on the same connection, as others do for whom a proxy asks, has its answer.
pub(crate) fn j13_end_of_an_answer_that_is_left_takes_no_other_with_it(h: &Harness) {
    let (is_asked, may_answer) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let (asked, may) = (Rc::clone(&is_asked), Rc::clone(&may_answer));
    let client = Client::with(h, quick(), move |_: &Request<'_>| {
        if asked.replace(asked.get() + 1) == 0 {
            return vec![7; 10_000].into_response();
        }
        while !may.get() {
            coracle_coro::sleep(Duration::from_millis(5)).expect("it is not cancelled");
        }
        "ok".into_response()
    });
    hello(&client, 2);
    client.send([get(1), get(3)].concat());
    let told = find(&client, |it| matches!(it.kind, kind::GOAWAY | kind::RST_STREAM));
    assert!(told.is_some_and(|it| it.kind == kind::GOAWAY || it.stream == 1));
    // For as long as it takes.
    h.run_for(Duration::from_secs(1));
    assert_eq!(is_asked.get(), 2);
    may_answer.set(true);
    let answer = find(&client, |it| (it.kind, it.stream) == (kind::DATA, 3)).expect("an answer");
    assert_eq!((&answer.payload[..], answer.flags), (&b"ok"[..], END_STREAM));
    while next_frame(&client).is_some() {}
    assert_eq!(client.service.stats().timed_out, 1);
}

/// It goes on, so it is the only one that is reset.
pub(crate) fn j13_part_of_an_answer_is_not_left_for_ever(h: &Harness) {
    let app = |req: &Request<'_>| match req.header("x-endless") {
        None => "ok".into_response(),
        Some(_) => Body::stream(|out| {
            out.write_all(&[7; 10_000])?;
            out.flush()?;
            coracle_coro::sleep(Duration::from_secs(10))
        })
        .into_response(),
    };
    let client = Client::with(h, quick(), app);
    hello(&client, 2);
    let block = crate::http2_frames::fields(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "a"),
        ("x-endless", "yes"),
    ]);
    let flags = crate::http2_frames::END_HEADERS | END_STREAM;
    client.send(frame(kind::HEADERS, flags, 1, &block));
    assert_eq!(find(&client, |it| it.kind == kind::RST_STREAM).map(|it| it.stream), Some(1));
    client.send(get(3));
    let answer = find(&client, |it| (it.kind, it.stream) == (kind::DATA, 3)).expect("an answer");
    assert_eq!((&answer.payload[..], answer.flags), (&b"ok"[..], END_STREAM));
    assert_eq!(client.service.stats().timed_out, 1);
}
