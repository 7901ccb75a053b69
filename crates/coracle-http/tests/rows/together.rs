//! Row J1: requests that came together are handled by one coroutine, and cannot tell.

use crate::client::Client;
use crate::harness::Harness;
use coracle_coro::{Coroutine, CoroutineId, coroutine_local, current, may_wait, sleep};
use coracle_http::{App, Body, IntoResponse, Plan, Refusal, Request, Response};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(2);

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

pub(crate) fn j1_requests_that_came_together_need_one_coroutine(h: &Harness) {
    let ids: Rc<RefCell<Vec<CoroutineId>>> = Rc::default();
    let seen = Rc::clone(&ids);
    let client = Client::of(h, move |req: &Request<'_>| {
        seen.borrow_mut().push(current().id());
        if req.path() == "/waits" {
            sleep(MOMENT).expect("it is not cancelled");
        }
        req.path().to_owned()
    });
    let targets = ["/a", "/b", "/waits", "/c", "/d"];
    client.send(targets.map(get).concat());
    for target in targets {
        assert_eq!(client.answer().text(), target);
    }
    let ids = ids.borrow();
    assert!(ids[0] == ids[1] && ids[1] == ids[2], "{ids:?}");
    assert!(
        ids[2] != ids[3] && ids[3] == ids[4],
        "who has waited is done with its request: {ids:?}"
    );
}

pub(crate) fn j1_coroutine_that_others_know_handles_one_request(h: &Harness) {
    let known: Rc<RefCell<Vec<Coroutine>>> = Rc::default();
    let keep = Rc::clone(&known);
    let client = Client::of(h, move |req: &Request<'_>| {
        keep.borrow().iter().for_each(|other| other.unpark()); // which is over
        keep.borrow_mut().push(current());
        let waited = coracle_coro::timeout(MOMENT, coracle_coro::park);
        format!("{} {}", req.path(), waited.is_err())
    });
    let keep = Rc::clone(&known);
    let quick = Client::of(h, move |_: &Request<'_>| {
        keep.borrow_mut().push(current());
        "quick"
    });
    quick.send(get("/").repeat(10));
    (0..10).for_each(|_| assert_eq!(quick.answer().text(), "quick"));
    let ids: HashSet<_> = known.borrow().iter().map(|it| it.id()).collect();
    assert_eq!(ids.len(), 10, "a handle is that of one request");
    client.send(["/a", "/b", "/c"].map(get).concat());
    for target in ["/a", "/b", "/c"] {
        assert_eq!(client.answer().text(), format!("{target} true"), "nobody wakes it");
    }
}

coroutine_local! {
    static USER: Cell<u32> = Cell::new(0);
}

pub(crate) fn j1_locals_are_those_of_one_request(h: &Harness) {
    let client = Client::of(h, |req: &Request<'_>| {
        let before = USER.with(|user| user.replace(7));
        format!("{} {before}", req.path())
    });
    client.send(["/a", "/b", "/c"].map(get).concat());
    for target in ["/a", "/b", "/c"] {
        assert_eq!(client.answer().text(), format!("{target} 0"));
    }
}

/// Whose plans and refusals look for what handlers have left.
struct Looks;

impl App for Looks {
    fn call(&self, req: &Request<'_>) -> Response {
        USER.with(|user| user.set(7));
        req.path().to_owned().into_response()
    }

    fn plan(&self, _: &Request<'_>) -> Plan {
        assert_eq!(USER.with(Cell::get), 0, "this is another request");
        Plan::default()
    }

    fn refuse(&self, _: &Request<'_>, _: &Refusal) -> Response {
        USER.with(Cell::get).to_string().into_response()
    }
}

pub(crate) fn j1_locals_are_not_seen_by_what_is_asked_of_the_next_request(h: &Harness) {
    let client = Client::of(h, Looks);
    client.send([&get("/a"), &get("/b"), "GET / HTTP/9.9\r\n\r\n"].concat());
    for expected in ["/a", "/b", "0"] {
        assert_eq!(client.answer().text(), expected);
    }
}

/// Each path is another kind of request.
struct Mixed;

impl App for Mixed {
    fn call(&self, req: &Request<'_>) -> Response {
        match req.path() {
            "/inline" => assert!(!may_wait(), "it is called on the loop"),
            "/waits" => sleep(MOMENT).expect("it is not cancelled"),
            "/panics" => std::panic::resume_unwind(Box::new("on purpose")),
            "/streams" => {
                let write = |out: &mut coracle_http::BodyWriter<'_>| out.write_all(b"/streams");
                return Body::stream(write).into_response();
            }
            _ => {}
        }
        [req.path().as_bytes(), req.body()].concat().into_response()
    }

    fn plan(&self, req: &Request<'_>) -> Plan {
        assert!(!may_wait(), "it is asked on the loop, or as if");
        match req.path() {
            "/inline" => Plan::default().inline(),
            "/cancelled" => Plan::default().cancel_when_gone(),
            "/plan-waits" => {
                let _ = sleep(MOMENT); // a panic
                Plan::default()
            }
            _ => Plan::default(),
        }
    }
}

pub(crate) fn j1_requests_of_all_kinds_are_answered_in_order(h: &Harness) {
    let client = Client::of(h, Mixed);
    let kinds = ["/quick", "/inline", "/waits", "/streams", "/cancelled", "/post", "/panics"];
    let request = |target: &str| match target {
        "/post" => "POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab".to_owned(),
        _ => get(target),
    };
    // Each behind each.
    let pairs = kinds.iter().flat_map(|first| kinds.iter().flat_map(move |next| [*first, *next]));
    let targets: Vec<&str> = pairs.collect();
    client.send(targets.iter().map(|target| request(target)).collect::<String>());
    for target in targets {
        let answer = client.answer();
        match target {
            "/panics" => assert_eq!(answer.status, 500),
            "/post" => assert_eq!(answer.text(), "/postab"),
            _ => assert_eq!(answer.text(), target),
        }
    }
    client.send([get("/quick"), get("/plan-waits")].concat());
    assert_eq!((client.answer().text(), client.answer().status), ("/quick", 500));
    assert_eq!(client.rest(), b"");
}

pub(crate) fn j1_what_is_refused_behind_others_is_refused_after_them(h: &Harness) {
    let client = Client::of(h, Mixed);
    client.send([&get("/a"), &get("/b"), "GET / HTTP/9.9\r\n\r\n", &get("/c")].concat());
    assert_eq!((client.answer().text(), client.answer().text()), ("/a", "/b"));
    assert_eq!(client.answer().status, 505);
    assert_eq!(client.rest(), b"", "and nothing behind it is a request");
}

pub(crate) fn j1_last_request_behind_others_is_the_last(h: &Harness) {
    for last in
        ["GET /last HTTP/1.0\r\n\r\n", "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"]
    {
        let client = Client::of(h, |req: &Request<'_>| req.path().to_owned());
        client.send([&get("/a"), &get("/b"), last, &get("/c")].concat());
        for expected in ["/a", "/b", "/last"] {
            assert_eq!(client.answer().text(), expected);
        }
        assert_eq!(client.rest(), b"", "after {last:?}");
    }
}
