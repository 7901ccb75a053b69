//! Row K5: server-sent events.

use crate::client::Client;
use crate::harness::Harness;
use coracle_coro::sleep;
use coracle_http::Request;
use coracle_http::sse::{self, Event, EventStream};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Asks for events, with more fields; the head is looked at, and the chunks are left.
fn ask(client: &Client<'_>, fields: &str) {
    client.send(format!("GET /events HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    let answer = client.head();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
}

pub(crate) fn k5_events_are_streamed_with_their_names(h: &Harness) {
    let gate = Rc::new(Cell::new(false));
    let door = Rc::clone(&gate);
    let client = Client::of(h, move |_: &Request<'_>| {
        let door = Rc::clone(&door);
        sse::stream(move |events| {
            events.send(Event::data("one\ntwo").id("1").event("tick").retry(1500 * MS))?;
            let wrong = events.send(Event::data("x").id("a\nb")).unwrap_err();
            assert_eq!(wrong.kind(), io::ErrorKind::InvalidInput);
            while !door.get() {
                sleep(MS)?;
            }
            events.send(Event::data("three"))
        })
    });
    ask(&client, "");
    // It is there before the next happens.
    let first = "id: 1\nevent: tick\nretry: 1500\ndata: one\ndata: two\n\n";
    assert_eq!(client.take_until("\n\n"), format!("{:x}\r\n{first}", first.len()));
    assert_eq!(client.take(2), b"\r\n");
    gate.set(true);
    assert_eq!(client.chunks(), b"data: three\n\n");
    // And the connection goes on.
    ask(&client, "");
}

pub(crate) fn k5_client_comes_back_with_the_last_id(h: &Harness) {
    let client = Client::of(h, |req: &Request<'_>| {
        let from = req.last_event_id().and_then(|id| id.parse().ok()).map_or(0, |id: u32| id + 1);
        sse::stream(move |events| {
            (from..3).try_for_each(|n| events.send(Event::data(format!("{n}")).id(n.to_string())))
        })
    });
    for (fields, expected) in [
        ("", "id: 0\ndata: 0\n\nid: 1\ndata: 1\n\nid: 2\ndata: 2\n\n"),
        ("Last-Event-ID: 1\r\n", "id: 2\ndata: 2\n\n"),
        ("Last-Event-ID: \r\n", "id: 0\ndata: 0\n\nid: 1\ndata: 1\n\nid: 2\ndata: 2\n\n"),
        ("Last-Event-ID: 2\r\n", ""),
    ] {
        ask(&client, fields);
        assert_eq!(client.chunks(), expected.as_bytes(), "{fields}");
    }
}

pub(crate) fn k5_producer_waits_for_a_client_that_does_not_read(h: &Harness) {
    const EVENTS: usize = 320;
    const SIZE: usize = 64 << 10;
    let sent = Rc::new(Cell::new(0));
    let count = Rc::clone(&sent);
    let client = Client::of(h, move |_: &Request<'_>| {
        let count = Rc::clone(&count);
        sse::stream(move |events| {
            for number in 0..EVENTS {
                events.send(Event::data("x".repeat(SIZE)))?;
                count.set(number + 1);
            }
            Ok(())
        })
    });
    client.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
    let still = |h: &Harness| {
        let before = sent.get();
        h.run_for(10 * MS);
        sent.get() == before && before > 0
    };
    while !still(h) {}
    assert!(sent.get() < EVENTS, "it waits");
    assert_eq!(client.head().status, 200);
    assert_eq!(client.chunks().len(), EVENTS * (SIZE + 8));
}

pub(crate) fn k5_producer_of_a_client_that_is_gone_is_cancelled(h: &Harness) {
    let ended = Rc::new(RefCell::new(None));
    let note = Rc::clone(&ended);
    let client = Client::of(h, move |_: &Request<'_>| {
        let note = Rc::clone(&note);
        let events = sse::stream(move |events| {
            events.send(Event::data("first"))?;
            let slept = sleep(Duration::from_secs(100_000));
            *note.borrow_mut() = Some(slept.as_ref().is_err_and(coracle_coro::is_cancelled));
            slept
        });
        events.keep_alive(5 * MS)
    });
    ask(&client, "");
    client.take_until("data: first\n\n");
    client.server.with(&h.lp, |conn| conn.abort());
    h.run_until(&ended, |ended| ended.borrow().is_some());
    assert_eq!(*ended.borrow(), Some(true));
}

pub(crate) fn k5_events_out_of_a_channel_end_with_it(h: &Harness) {
    let (sender, receiver) = coracle_coro::sync::channel(4);
    let client = Client::of(h, move |_: &Request<'_>| EventStream::from(receiver.clone()));
    ask(&client, "");
    sender.try_send(Event::data("one")).expect("there is room");
    client.take_until("data: one\n\n");
    assert_eq!(client.take(2), b"\r\n");
    sender.try_send(Event::comment("nothing")).expect("there is room");
    drop(sender);
    assert_eq!(client.chunks(), b": nothing\n\n");
}

pub(crate) fn k5_silence_is_broken_by_a_comment(h: &Harness) {
    let client = Client::of(h, |_: &Request<'_>| {
        sse::stream(|events| {
            sleep(Duration::from_secs(40))?;
            events.send(Event::data("at last"))
        })
    });
    let begin = h.lp.now();
    ask(&client, "");
    for period in 1..=2 {
        assert_eq!(client.take_until("\r\n:\n\n\r\n"), "3\r\n:\n\n\r\n");
        let passed = (h.lp.now() - begin).as_secs();
        assert!((15 * period..15 * period + 2).contains(&passed), "{passed}");
    }
    assert_eq!(client.chunks(), b"data: at last\n\n");
}
