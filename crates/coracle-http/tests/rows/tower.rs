//! Row T9: services of tower's, on this loop, beside handlers of our own.

use crate::client::Client;
use crate::harness::Harness;
use crate::http2_peer::{Peer, request};
use bytes::Bytes;
use coracle_http::tower::RequestBody;
use coracle_http::{Request, Router};
use http::{HeaderMap, HeaderValue};
use http_body::{Body as _, Frame};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

type Asked = http::Request<RequestBody>;
type Answered = io::Result<http::Response<AnyBody>>;
type AnyBody = Pin<Box<dyn http_body::Body<Data = Bytes, Error = io::Error>>>;
type Answering = Pin<Box<dyn Future<Output = Answered>>>;

/// A service that is a function.
#[derive(Clone)]
struct Function(fn(Asked) -> Answering);

impl tower_service::Service<Asked> for Function {
    type Response = http::Response<AnyBody>;
    type Error = io::Error;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Asked) -> Answering {
        (self.0)(request)
    }
}

/// A body that is another one, piece by piece and in upper case; and its trailers.
struct Loud(RequestBody);

impl http_body::Body for Loud {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let loud = |frame: Frame<Bytes>| frame.map_data(|data| data.to_ascii_uppercase().into());
        Pin::new(&mut self.0).poll_frame(cx).map(|frame| frame.map(|frame| frame.map(loud)))
    }
}

/// Bytes that are there.
struct Whole(Option<Bytes>);

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}

fn text(text: String) -> http::Response<AnyBody> {
    http::Response::new(Box::pin(Whole(Some(text.into()))))
}

fn app() -> Router<()> {
    let service = Function(|mut asked| {
        Box::pin(async move {
            match asked.uri().path() {
                "/loud" => Ok(http::Response::new(Box::pin(Loud(asked.into_body())) as AnyBody)),
                "/count" => {
                    let mut count = 0;
                    let body = asked.body_mut();
                    while let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
                    {
                        count += frame?.data_ref().map_or(0, Bytes::len);
                    }
                    Ok(text(count.to_string()))
                }
                "/slow" => {
                    coracle_coro::future::sleep(Duration::from_millis(20)).await;
                    Ok(text("late".into()))
                }
                "/wrong" => Err(io::Error::other("as it is meant to")),
                _ => {
                    let peer = asked.extensions().get::<coracle_net::Address>();
                    let peer = peer.map_or_else(String::new, ToString::to_string);
                    Ok(text(format!("{} {} {peer}", asked.method(), asked.uri())))
                }
            }
        })
    });
    Router::new(()).get("/", |_: &(), _: &Request<'_>| "ours").mount_service("/api", service)
}

pub(crate) fn t9_service_is_mounted_beside_handlers(h: &Harness) {
    let client = Client::of(h, app());
    assert_eq!(client.get("/").text(), "ours");
    assert_eq!(client.get("/api/a/b?c=d").text(), "GET /a/b?c=d 192.0.2.1:4711");
    assert_eq!(client.get("/api/slow").text(), "late");
    assert_eq!(client.get("/api/wrong").status, 500);
    assert_eq!(client.get("/elsewhere").status, 404);
    let mut peer = Peer::of(h, app());
    assert_eq!(peer.get("/").text(), "ours");
    assert_eq!(peer.get("/api/a/b?c=d").text(), "GET /a/b?c=d 192.0.2.1:4711");
    assert_eq!(peer.get("/api/slow").text(), "late");
    assert_eq!(peer.get("/api/wrong").status, 500);
}

/// What `http::Uri` does not take must not be taken for another target.
pub(crate) fn t9_target_that_a_service_cannot_be_told_is_refused(h: &Harness) {
    let client = Client::of(h, app());
    for target in ["/api/items?q=\"x\"", "/api/<b>", "/api/`", "/api?<>"] {
        let answer = client.get(target);
        assert_eq!(answer.status, 400, "{target}: {answer:?}");
    }
    assert_eq!(client.get("/api/%3Cb%3E?q=%22").text(), "GET /%3Cb%3E?q=%22 192.0.2.1:4711");
}

pub(crate) fn t9_service_reads_bodies_as_they_come(h: &Harness) {
    let client = Client::of(h, app());
    let body = "x".repeat(700_000);
    client.send(format!(
        "POST /api/count HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        body.len()
    ));
    assert_eq!(client.head().status, 100);
    client.send(&body);
    assert_eq!(client.answer().text(), "700000");
    client.send("POST /api/count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nah");
    h.run_for(Duration::from_millis(1));
    client.send("oy\r\n0\r\n\r\n");
    assert_eq!(client.answer().text(), "4");
    let mut peer = Peer::of(h, app());
    assert_eq!(peer.post("/api/count", body).text(), "700000");
}

pub(crate) fn t9_service_answers_while_it_is_asked(h: &Harness) {
    let client = Client::of(h, app());
    client.send(
        "POST /api/loud HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nahoy\r\n",
    );
    assert_eq!(client.head().status, 200);
    assert_eq!(client.take_until("\r\nAHOY\r\n"), "4\r\nAHOY\r\n");
    client.send("3\r\nyes\r\n0\r\n\r\n");
    assert_eq!(client.chunks(), b"YES");

    let mut peer = Peer::of(h, app());
    let (response, mut out) = peer.ask(request("POST", "/api/loud"), true);
    out.send_data("ahoy".into(), false).expect("a body");
    let mut body = peer.head(response).expect("a head").into_body();
    let piece = peer.until(|cx| body.poll_data(cx)).expect("a piece").expect("no error");
    assert_eq!(piece, "AHOY");
    out.send_data("yes".into(), false).expect("a body");
    let mut trailers = HeaderMap::new();
    trailers.insert("sum", HeaderValue::from_static("7"));
    out.send_trailers(trailers.clone()).expect("trailers");
    assert_eq!(peer.body(body).expect("the rest"), (b"YES".to_vec(), Some(trailers)));
}
