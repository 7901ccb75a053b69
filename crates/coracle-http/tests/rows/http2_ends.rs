//! Row J13: how streams end that do not end well: answers that the client does not take, bodies that it cuts off.

use crate::client::Client;
use crate::harness::Harness;
use crate::http2::{find, goaway, next_frame};
use crate::http2_frames::{END_HEADERS, END_STREAM, PREFACE, fields, frame, get, kind};
use coracle_http::{Body, Http2Settings, IntoResponse, Request, Settings, Trailers, streaming};
use coracle_loop::demux::{Operation, Outcome};
use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::time::Duration;

const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
pub(crate) const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// Windows of so many bytes for each answer.
fn windows(bytes: u32) -> Vec<u8> {
    let settings = [&INITIAL_WINDOW_SIZE[..], &bytes.to_be_bytes()].concat();
    frame(kind::SETTINGS, 0, 0, &settings)
}

/// A POST whose body follows.
pub(crate) fn post(stream: u32) -> Vec<u8> {
    let block =
        fields(&[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")]);
    frame(kind::HEADERS, END_HEADERS, stream, &block)
}

/// Asks for something else on the same connection, and gets it.
pub(crate) fn goes_on(client: &Client<'_>, stream: u32) {
    let open = frame(kind::WINDOW_UPDATE, 0, stream, &100_u32.to_be_bytes());
    client.send([get(stream), open].concat());
    let answer = find(client, |it| (it.kind, it.stream) == (kind::DATA, stream));
    assert_eq!(answer.expect("an answer").payload, b"ok");
}

/// Begins, with windows of so many bytes for each answer, and of as much as there is for all of them.
pub(crate) fn hello(client: &Client<'_>, window: u32) {
    let settings = windows(window);
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
pub(crate) fn quick() -> Settings {
    Settings {
        write_timeout: Duration::from_millis(200),
        min_send_rate: 1 << 20,
        idle_timeout: Duration::from_secs(10),
        ..Settings::default()
    }
}

/// A long answer to the first who asks, a short one to the others.
pub(crate) fn long_then_short(len: usize) -> impl Fn(&Request<'_>) -> Vec<u8> {
    let is_first = Cell::new(true);
    move |_| if is_first.replace(false) { vec![7; len] } else { b"ok".to_vec() }
}

pub(crate) fn j13_end_of_an_answer_is_not_left_for_ever(h: &Harness) {
    for window in [0, 1] {
        for len in [1, 10_000, 200_000] {
            if len <= window {
                continue;
            }
            let client = Client::with(h, quick(), long_then_short(len as usize));
            hello(&client, window);
            client.send(get(1));
            let reset = find(&client, |it| it.kind == kind::RST_STREAM).expect("a reset");
            assert_eq!((reset.stream, &reset.payload[..]), (1, &CANCEL[..]));
            goes_on(&client, 3);
            assert_eq!(client.service.stats().timed_out, 1);
        }
    }
}

pub(crate) fn j13_answer_whose_window_shrinks_is_not_left_for_ever(h: &Harness) {
    let client = Client::with(h, quick(), long_then_short(10_000));
    hello(&client, 1_000);
    client.send(get(1));
    let data = find(&client, |it| it.kind == kind::DATA).expect("a part of the answer");
    assert_eq!(data.payload.len(), 1_000);
    // It is 1,000 bytes below nothing, and then 500.
    let open = frame(kind::WINDOW_UPDATE, 0, 1, &500_u32.to_be_bytes());
    client.send([windows(0), open].concat());
    let next = find(&client, |it| matches!(it.kind, kind::DATA | kind::RST_STREAM));
    assert_eq!(next.map(|it| (it.kind, it.stream)), Some((kind::RST_STREAM, 1)));
    goes_on(&client, 3);
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
    assert_eq!(told.map(|it| (it.kind, it.stream)), Some((kind::RST_STREAM, 1)));
    // For as long as it takes.
    h.run_for(Duration::from_secs(1));
    assert_eq!(is_asked.get(), 2);
    may_answer.set(true);
    let answer = find(&client, |it| (it.kind, it.stream) == (kind::DATA, 3)).expect("an answer");
    assert_eq!((&answer.payload[..], answer.flags), (&b"ok"[..], END_STREAM));
    goes_on(&client, 5);
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
    let block = fields(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "a"),
        ("x-endless", "yes"),
    ]);
    let flags = END_HEADERS | END_STREAM;
    client.send(frame(kind::HEADERS, flags, 1, &block));
    assert_eq!(find(&client, |it| it.kind == kind::RST_STREAM).map(|it| it.stream), Some(1));
    client.send(get(3));
    let answer = find(&client, |it| (it.kind, it.stream) == (kind::DATA, 3)).expect("an answer");
    assert_eq!((&answer.payload[..], answer.flags), (&b"ok"[..], END_STREAM));
    assert_eq!(client.service.stats().timed_out, 1);
}

/// Its handler goes on, whatever it does, and so do the others.
pub(crate) fn j13_stream_that_is_late_is_reset_while_its_handler_reads(h: &Harness) {
    let told = Rc::new(Cell::new(None));
    let tell = Rc::clone(&told);
    let app = streaming(move |req: &Request<'_>| -> io::Result<&'static str> {
        if req.method() == coracle_http::Method::Get {
            return Ok("ok");
        }
        let read = req.body_reader().read_to_end(&mut Vec::new());
        tell.set(read.err().map(|error| error.kind()));
        coracle_coro::sleep(Duration::from_secs(10))?;
        Ok("too late")
    });
    let request_timeout = Some(Duration::from_millis(200));
    let client = Client::with(h, Settings { request_timeout, ..Settings::default() }, app);
    hello(&client, 1_000);
    client.send([post(1), frame(kind::DATA, 0, 1, b"half")].concat());
    let reset = find(&client, |it| it.kind == kind::RST_STREAM).expect("a reset");
    assert_eq!((reset.stream, &reset.payload[..]), (1, &CANCEL[..]));
    goes_on(&client, 3);
    assert_eq!(told.take(), Some(io::ErrorKind::TimedOut));
    assert_eq!(client.service.stats().timed_out, 1);
}

/// Whatever reason it gives: `NO_ERROR`, too.
pub(crate) fn j13_body_that_is_taken_back_is_not_whole(h: &Harness) {
    for reason in [0_u32, 8] {
        for is_streamed in [false, true] {
            let told = Rc::new(RefCell::new(Vec::new()));
            let tell = Rc::clone(&told);
            let app = move |req: &Request<'_>| -> io::Result<&'static str> {
                if req.method() == coracle_http::Method::Get {
                    return Ok("ok");
                }
                let read = req.body_reader().read_to_end(&mut Vec::new());
                tell.borrow_mut().push(read.map_err(|error| error.kind()));
                Ok("nobody hears this")
            };
            let client = match is_streamed {
                true => Client::of(h, streaming(app)),
                false => Client::of(h, app),
            };
            hello(&client, 1_000);
            client.send([post(1), frame(kind::DATA, 0, 1, b"half")].concat());
            h.run_for(Duration::from_millis(5));
            client.send(frame(kind::RST_STREAM, 0, 1, &reason.to_be_bytes()));
            goes_on(&client, 3);
            let cut = Err(io::ErrorKind::UnexpectedEof);
            assert_eq!(*told.borrow(), if is_streamed { vec![cut] } else { vec![] });
        }
    }
}

/// It is asked after a while, and has to say so in time.
pub(crate) fn j13_client_that_is_not_there_is_noticed(h: &Harness) {
    let http2 = Http2Settings {
        ping_interval: Some(Duration::from_millis(50)),
        ping_timeout: Duration::from_millis(100),
        ..Http2Settings::default()
    };
    let client = Client::with(h, Settings { http2, ..Settings::default() }, |_: &Request<'_>| "ok");
    hello(&client, 1_000);
    client.send(get(1));
    for _ in 0..3 {
        let ping = find(&client, |it| (it.kind, it.flags) == (kind::PING, 0)).expect("a ping");
        client.send(frame(kind::PING, 1, 0, &ping.payload));
    }
    goes_on(&client, 3);
    assert!(find(&client, |it| (it.kind, it.flags) == (kind::PING, 0)).is_some());
    assert_eq!(goaway(&client), Some(0));
}

pub(crate) fn j13_connect_is_refused(h: &Harness) {
    let client = Client::of(h, |_: &Request<'_>| "ok");
    hello(&client, 1_000);
    let block = fields(&[(":method", "CONNECT"), (":authority", "a:443")]);
    client.send(frame(kind::HEADERS, END_HEADERS, 1, &block));
    let answer = find(&client, |it| (it.kind, it.stream) == (kind::HEADERS, 1));
    // A status that is not in HPACK's table: the name is, and the value is written out.
    let block = answer.expect("an answer").payload;
    assert!(block[0] == 0x48 || block[0] == 0x08, "{block:?}");
    let reset = find(&client, |it| it.kind == kind::RST_STREAM).expect("no more is wanted");
    assert_eq!((reset.stream, &reset.payload[..]), (1, &[0; 4][..]));
    goes_on(&client, 3);
}

pub(crate) fn j13_trailers_of_one_connection_are_left_out(h: &Harness) {
    let mut peer = crate::http2_peer::Peer::of(h, |_: &Request<'_>| {
        let trailers = Trailers::new();
        for name in ["connection", "te", "keep-alive", "x-kept"] {
            trailers.insert(name, "yes").expect("a field");
        }
        "ahoy".into_response().with_trailers(trailers)
    });
    let answer = peer.get("/");
    let trailers = answer.trailers.expect("trailers");
    assert_eq!(trailers.keys().collect::<Vec<_>>(), ["x-kept"]);
}
