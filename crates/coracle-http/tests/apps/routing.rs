//! Rows J6 and J7: which handler answers.

use crate::client::Client;
use crate::harness::Harness;
use coracle_http::middleware::Next;
use coracle_http::{Hosts, IntoResponse, Plan, Request, Response, Router, Settings};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

struct Blog {
    posts: Vec<&'static str>,
}

impl Blog {
    fn show(&self, req: &Request<'_>) -> Option<String> {
        let id: usize = req.param("id")?.parse().ok()?;
        Some(format!("{} by {}", self.posts.get(id)?, req.route()?))
    }

    fn create(&self, req: &Request<'_>) -> String {
        format!("{} bytes", req.body().len())
    }
}

fn inner(req: &Request<'_>) -> String {
    format!("{} of {}", req.path(), req.full_path())
}

fn blog() -> Router<Blog> {
    Router::new(Blog { posts: vec!["Call me Ishmael."] })
        .get("/posts/{id}", Blog::show)
        .post("/posts", Blog::create)
        .mount("/mounted", inner)
}

pub(crate) fn j6_routes_have_params_methods_and_names(h: &Harness) {
    let client = Client::of(h, blog());
    assert_eq!(client.get("/posts/0").text(), "Call me Ishmael. by /posts/{id}");
    assert_eq!(client.get("/posts/%30?x=y").text(), "Call me Ishmael. by /posts/{id}");
    for target in ["/posts/1", "/posts/x", "/posts/", "/nothing", "/posts/0/"] {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
    client.send("DELETE /posts/0 HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    client.send("POST /posts HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nahoy");
    assert_eq!(client.answer().text(), "4 bytes");
    assert_eq!(client.get("/mounted/a/b").text(), "/a/b of /mounted/a/b");
    client.send("GET http://b.example/mounted/c HTTP/1.1\r\nHost: b.example\r\n\r\n");
    assert_eq!(client.answer().text(), "/c of /mounted/c");
}

pub(crate) fn j6_head_and_options_are_answered(h: &Harness) {
    let client = Client::of(h, blog());
    client.send("HEAD /posts/0 HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert_eq!((head.status, head.header("content-length")), (200, Some("31")));
    client.send("OPTIONS /posts HTTP/1.1\r\nHost: a\r\n\r\n");
    let options = client.answer();
    assert_eq!((options.status, options.header("allow")), (204, Some("POST, OPTIONS")));
    client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(matches!(client.answer().status, 200 | 204));
    assert_eq!(client.get("/posts/0").status, 200, "and the connection goes on");
}

pub(crate) fn j6_route_has_its_plan(h: &Harness) {
    fn upload(_: &(), req: &Request<'_>) -> io::Result<String> {
        assert!(req.body().is_empty(), "it is not in memory");
        let bytes = io::copy(&mut req.body_reader(), &mut io::sink())?;
        Ok(format!("{bytes} bytes"))
    }
    let app = Router::new(())
        .post("/small", |_, req| format!("{} bytes", req.body().len()))
        .put("/large/{name}", upload)
        .planned(Plan::default().streamed().limit_body_bytes(1 << 20));
    let settings = Settings { limit_body_bytes: 100, ..Settings::default() };
    let client = Client::with(h, settings.clone(), app);
    let body = vec![b'x'; 200_000];
    client.send(format!(
        "PUT /large/a HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    client.send(&body);
    assert_eq!(client.answer().text(), "200000 bytes");
    client.send("POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n");
    assert_eq!(client.refusal(), 413);
}

pub(crate) fn j6_middleware_may_wait_and_see_the_answer(h: &Harness) {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let slow = move |req: &Request<'_>, next: Next<'_>| -> Response {
        if coracle_coro::sleep(Duration::from_millis(1)).is_err() {
            return coracle_http::Status::SERVICE_UNAVAILABLE.into_response();
        }
        let response = next.run(req);
        counter.fetch_add(usize::from(response.status().as_u16()), Ordering::Relaxed);
        response.with_header("x-seen", "yes")
    };
    let app = Router::new(()).with(slow).get("/", |_, _| "ahoy");
    let client = Client::of(h, app);
    assert_eq!(client.get("/").header("x-seen"), Some("yes"));
    assert_eq!(client.get("/none").header("x-seen"), Some("yes"));
    assert_eq!(seen.load(Ordering::Relaxed), 604);
}

pub(crate) fn j7_hosts_have_their_apps(h: &Harness) {
    let app = Hosts::new()
        .host("a.example", |_: &Request<'_>| "a")
        .host("*.example", Router::new(()).get("/", |_, _| "wild"));
    let client = Client::of(h, app);
    let ask = |target: &str, host: &str| {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.answer()
    };
    assert_eq!(ask("/", "A.example:8080").text(), "a");
    assert_eq!(ask("/", "b.example").text(), "wild");
    assert_eq!(ask("http://a.example/", "a.example").text(), "a");
    assert_eq!(ask("/", "c.org").status, 421);
}
