//! Row T6 and what handlers may do: wait, panic, be cancelled, be written in another style, hand over the
//! connection.

use crate::client::Client;
use crate::harness::Harness;
use coracle_http::{
    App, Body, IntoResponse, Plan, Request, Responder, Response, Service, Settings, Status,
    asynchronous, callback, inline, streaming,
};
use coracle_loop::Loop;
use coracle_net::{Buffer, Conn};
use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

pub(crate) fn t6_handlers_that_wait_do_not_hold_each_other_up(h: &Harness) {
    let most = Rc::new(Cell::new(0));
    let running = Rc::new(Cell::new(0));
    let (peak, now) = (Rc::clone(&most), Rc::clone(&running));
    let app = move |_: &Request<'_>| {
        now.set(now.get() + 1);
        peak.set(peak.get().max(now.get()));
        coracle_coro::sleep(Duration::from_millis(20)).expect("it is not cancelled");
        now.set(now.get() - 1);
        "rested"
    };
    let service = Service::new(app, Settings::default()).expect("a service");
    let clients: Vec<_> = (0..50).map(|_| Client::to(h, &service)).collect();
    clients.iter().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    clients.iter().for_each(|client| assert_eq!(client.answer().text(), "rested"));
    assert!(most.get() > 1, "they wait together");
}

pub(crate) fn t6_idle_connection_holds_no_stack(h: &Harness) {
    let client = Client::of(h, |_: &Request<'_>| "ok");
    assert_eq!(client.get("/").text(), "ok");
    let counted = Rc::new(Cell::new(None));
    let note = Rc::clone(&counted);
    h.lp.defer(move |_| note.set(Some(coracle_coro::coroutines().len())));
    h.run_until(&counted, |counted| counted.get().is_some());
    assert_eq!(counted.get(), Some(0));
}

pub(crate) fn t6_handlers_talk_to_each_other(h: &Harness) {
    let (sender, receiver) = coracle_coro::sync::channel::<String>(1);
    let app = move |req: &Request<'_>| match req.path() {
        "/wait" => receiver.recv().unwrap_or_else(|_| "nobody".into()),
        _ => {
            sender.send("from the other".into()).expect("somebody waits");
            "told".into()
        }
    };
    let service = Service::new(app, Settings::default()).expect("a service");
    let (waiting, telling) = (Client::to(h, &service), Client::to(h, &service));
    waiting.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(telling.get("/tell").text(), "told");
    assert_eq!(waiting.answer().text(), "from the other");
}

pub(crate) fn t6_panic_of_a_handler_is_a_500(h: &Harness) {
    let client = Client::of(h, |req: &Request<'_>| {
        match req.path() {
            "/late" => coracle_coro::sleep(Duration::from_millis(1)).expect("it is not cancelled"),
            "/fine" => return "fine",
            _ => {}
        }
        std::panic::resume_unwind(Box::new("on purpose"))
    });
    for target in ["/now", "/late"] {
        assert_eq!(client.get(target).status, 500);
        assert_eq!(client.get("/fine").text(), "fine", "the connection goes on");
    }
    assert_eq!(client.service.stats().panics, 2);
}

struct Planned<F>(F);

impl<F: Fn(&Request<'_>) -> Response + 'static> App for Planned<F> {
    fn call(&self, req: &Request<'_>) -> Response {
        (self.0)(req)
    }

    fn plan(&self, req: &Request<'_>) -> Plan {
        match req.path() {
            "/cancel" => Plan::default().cancel_when_gone(),
            "/panic" => std::panic::resume_unwind(Box::new("on purpose")),
            "/small" => Plan::default().limit_body_bytes(1),
            _ => Plan::default(),
        }
    }
}

pub(crate) fn t6_panic_of_a_plan_is_a_500(h: &Harness) {
    let client = Client::of(h, Planned(|_: &Request<'_>| "ok".into_response()));
    client.send("GET /panic HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.refusal(), 500);
}

pub(crate) fn j4_plan_has_its_own_limit(h: &Harness) {
    let client = Client::of(h, Planned(|_: &Request<'_>| "ok".into_response()));
    client.send("POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!(client.refusal(), 413);
}

pub(crate) fn t6_handler_of_a_client_that_is_gone_runs_on_or_is_cancelled(h: &Harness) {
    for (path, expected) in [("/run-on", "slept"), ("/cancel", "cancelled")] {
        let seen = Rc::new(RefCell::new(None));
        let note = Rc::clone(&seen);
        let client = Client::of(
            h,
            Planned(move |_: &Request<'_>| {
                let slept = coracle_coro::sleep(Duration::from_millis(100));
                *note.borrow_mut() = Some(if slept.is_ok() { "slept" } else { "cancelled" });
                "for nobody".into_response()
            }),
        );
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        h.run_for(Duration::from_millis(1));
        client.server.with(&h.lp, |conn| conn.abort());
        h.run_until(&seen, |seen| seen.borrow().is_some());
        assert_eq!(*seen.borrow(), Some(expected));
        h.run_for(Duration::from_millis(1));
        assert_eq!(client.service.stats().dropped, 1, "and is counted");
    }
}

pub(crate) fn t6_handler_has_its_time(h: &Harness) {
    let settings =
        Settings { handler_timeout: Some(Duration::from_millis(10)), ..Settings::default() };
    let client = Client::with(h, settings, |_: &Request<'_>| {
        match coracle_coro::sleep(Duration::from_secs(100)) {
            Ok(()) => Status::OK,
            Err(error) => match error.kind() {
                std::io::ErrorKind::TimedOut => Status::GATEWAY_TIMEOUT,
                _ => Status::INTERNAL_SERVER_ERROR,
            },
        }
    });
    assert_eq!(client.get("/").status, 504);
}

pub(crate) fn t2_handlers_in_three_styles(h: &Harness) {
    let future = Client::of(
        h,
        asynchronous(async |req: &Request<'_>| {
            coracle_coro::future::sleep(Duration::from_millis(1)).await;
            format!("future {}", req.path())
        }),
    );
    assert_eq!(future.get("/a").text(), "future /a");

    let here = Client::of(h, inline(|req: &Request<'_>| format!("inline {}", req.path())));
    assert_eq!(here.get("/b").text(), "inline /b");
    let streams = inline(|_: &Request<'_>| Body::stream(|out| out.write_all(b"in pieces")));
    assert_eq!(Client::of(h, streams).get("/").text(), "in pieces", "a body has a coroutine");
    let waits = Client::of(
        h,
        inline(|_: &Request<'_>| {
            let _ = coracle_coro::sleep(Duration::from_millis(1));
            "unreachable"
        }),
    );
    assert_eq!(waits.get("/").status, 500, "there is no coroutine that could wait");

    let later = Client::of(
        h,
        callback(|req: &Request<'_>, responder: Responder| {
            let (path, mut responder) = (req.path().to_owned(), Some(responder));
            if path == "/never" {
                return;
            }
            let lp = Loop::current().expect("a loop");
            lp.after(Duration::from_millis(1), move |_| {
                if let Some(responder) = responder.take() {
                    responder.send(format!("later {path}"));
                }
            });
        }),
    );
    assert_eq!(later.get("/c").text(), "later /c");
    assert_eq!(later.get("/never").status, 500, "an answer that was dropped");
}

pub(crate) fn j15_connection_is_handed_to_another_protocol(h: &Harness) {
    for slow in [false, true] {
        let client = Client::of(h, move |req: &Request<'_>| {
            if slow {
                coracle_coro::sleep(Duration::from_millis(1)).expect("it is not cancelled");
            }
            if req.path() != "/shout" {
                return "plain".into_response();
            }
            Response::upgrade("shout", |conn: &mut Conn<'_>, input: &mut Buffer| {
                let loud = input.take_all().to_ascii_uppercase();
                conn.write(loud);
                Ok(())
            })
        });
        let ask =
            |path: &str, fields: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let upgrade = "Connection: keep-alive, Upgrade\r\nUpgrade: shout\r\n";
        client.send(ask("/other", upgrade));
        assert_eq!(client.answer().text(), "plain", "an upgrade that nobody knows is ignored");
        client.send(ask("/shout", upgrade) + "ahoy");
        let head = client.head();
        assert_eq!((head.status, head.header("upgrade")), (101, Some("shout")));
        assert_eq!(head.header("connection"), Some("upgrade"));
        assert_eq!(client.take(4), b"AHOY", "bytes behind the request are not a request");
        client.send("GET / HTTP/1.1");
        assert_eq!(client.take(14), b"GET / HTTP/1.1");

        let client = Client::of(h, |_: &Request<'_>| {
            Response::upgrade("shout", |_: &mut Conn<'_>, _: &mut Buffer| Ok(()))
        });
        client.send(ask("/", ""));
        assert_eq!(client.refusal(), 426, "it has not asked for it");
    }
}

pub(crate) fn j15_switch_has_no_length(h: &Harness) {
    let client = Client::of(h, |_: &Request<'_>| {
        Response::upgrade("shout", |_: &mut Conn<'_>, _: &mut Buffer| Ok(()))
            .with_header("Content-Length", "5")
            .with_header("Transfer-Encoding", "chunked")
            .with_header("Connection", "close")
            .with_header("X-Kept", "yes")
    });
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n");
    let head = client.head();
    assert_eq!((head.status, head.header("x-kept")), (101, Some("yes")));
    assert_eq!(head.header("connection"), Some("upgrade"));
    assert_eq!((head.header("content-length"), head.header("transfer-encoding")), (None, None));
}

pub(crate) fn j3_wrong_header_of_a_handler_is_not_sent(h: &Harness) {
    let client = Client::of(h, |_: &Request<'_>| {
        "ok".into_response().with_header("Location", "/\r\nSet-Cookie: admin=1\r\n\r\n<script>")
    });
    let answer = client.get("/");
    assert_eq!((answer.status, answer.header("set-cookie"), answer.body.len()), (500, None, 0));
    assert_eq!(answer.header("location"), None);
}

pub(crate) fn t6_handler_without_a_stack_is_a_503(h: &Harness) {
    let one = coracle_stack::Settings { limit_stacks: 1, ..coracle_stack::Settings::default() };
    coracle_coro::set_stacks(&h.lp, one).expect("there were no coroutines");
    let settings = Settings { limit_bodies_bytes: 10, ..Settings::default() };
    let open = Rc::new(Cell::new(false));
    let gate = Rc::clone(&open);
    let app = move |req: &Request<'_>| {
        while req.path() == "/wait" && !gate.get() {
            coracle_coro::sleep(Duration::from_millis(1)).expect("it is not cancelled");
        }
        "ok"
    };
    let first = Client::with(h, settings, app);
    first.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    h.run_until(&first.service, |service| service.stats().requests > 0);
    // Each has more than half of what bodies may have.
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabcdef";
    for _ in 0..3 {
        let other = Client::to(h, &first.service);
        other.send(post);
        let answer = other.answer();
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")));
        assert!(answer.text().contains("request"), "not for the body: {}", answer.text());
        assert_eq!(other.rest(), b"");
    }
    open.set(true);
    assert_eq!(first.answer().text(), "ok");
    first.send(post);
    assert_eq!(first.answer().text(), "ok", "there is a stack again");

    // A body that is written has a coroutine, too, even if its handler has none.
    open.set(false);
    let requests = first.service.stats().requests;
    first.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    h.run_until(&first.service, move |service| service.stats().requests > requests);
    let streams = inline(|_: &Request<'_>| Body::stream(|out| out.write_all(b"in pieces")));
    let streaming = Client::of(h, streams);
    streaming.send(post);
    assert_eq!(streaming.refusal(), 503);
    open.set(true);
    assert_eq!(first.answer().text(), "ok");
}

pub(crate) fn j15_body_is_never_given_to_another_protocol(h: &Harness) {
    for reads in [true, false] {
        let app = streaming(move |req: &Request<'_>| {
            if reads {
                let mut all = Vec::new();
                req.body_reader().read_to_end(&mut all).expect("it comes");
            }
            Response::upgrade("shout", |conn: &mut Conn<'_>, input: &mut Buffer| {
                let loud = input.take_all().to_ascii_uppercase();
                conn.write(loud);
                Ok(())
            })
        });
        let client = Client::of(h, app);
        client.send(
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\
             Content-Length: 4\r\n\r\n",
        );
        h.run_for(Duration::from_millis(1));
        if reads {
            client.send("bodyahoy");
            assert_eq!(client.head().status, 101);
            assert_eq!(client.take(4), b"AHOY");
        } else {
            assert_eq!(client.refusal(), 400);
        }
    }
}

pub(crate) fn j2_handler_cannot_answer_something_that_is_no_answer(h: &Harness) {
    let client = Client::of(h, |req: &Request<'_>| {
        let status: u16 = req.path()[1..].parse().expect("a number");
        Response::new(Status::from_u16(status).expect("a status")).with_body("a body")
    });
    for status in [100, 101, 103, 199] {
        assert_eq!(client.get(&format!("/{status}")).status, 500, "{status}");
    }
    assert_eq!(client.get("/200").text(), "a body", "the framing is whole");
}
