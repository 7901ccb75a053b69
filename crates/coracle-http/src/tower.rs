//! Services of tower's as apps: what is written for hyper, such as an `axum::Router`, beside handlers of our own.
//!
//! ```
//! use coracle_http::{Request, Router, tower};
//! # use std::{convert::Infallible, future::{Ready, ready}, task::{Context, Poll}};
//! #
//! # #[derive(Clone)]
//! # struct Ahoy;
//! #
//! # impl tower_service::Service<http::Request<tower::RequestBody>> for Ahoy {
//! #     type Response = http::Response<String>;
//! #     type Error = Infallible;
//! #     type Future = Ready<Result<http::Response<String>, Infallible>>;
//! #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> { Poll::Ready(Ok(())) }
//! #     fn call(&mut self, _: http::Request<tower::RequestBody>) -> Self::Future {
//! #         ready(Ok(http::Response::new("ahoy".into())))
//! #     }
//! # }
//! # let service = Ahoy; // as an `axum::Router` is one
//! let app = Router::new(()).get("/", |_: &(), _: &Request<'_>| "ours").mount_service("/api", service);
//! # let _ = app;
//! ```
//!
//! A service runs in the coroutine of its request, which polls its future. It need not be `Send`, and nothing of
//! it leaves the loop. Bodies are read and written while they come, both ways at once if it wants to; trailers,
//! too. What a service asks of a runtime must be this loop's: what calls `tokio::spawn`, or sleeps by tokio's
//! clock, does not find one.
//!
//! Who asks is in the extensions of the request, as an [`Address`](coracle_net::Address). A target that an
//! `http::Uri` cannot hold, such as one with a `<` in it, is a bad request (400) here.

use crate::body_reader::Source;
use crate::{
    App, Body, BodyWriter, IntoResponse, Plan, Refusal, Request, Response, Status, Trailers,
    Version,
};
use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, Write};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tower_service::Service;

/// A service as an app. See [`Router::mount_service`](crate::Router::mount_service).
pub fn app<S>(service: S) -> ServiceApp<S> {
    ServiceApp(service)
}

/// See [`app`].
#[derive(Debug, Clone)]
pub struct ServiceApp<S>(S);

type BoxError = Box<dyn Error + Send + Sync>;

impl<S, B> App for ServiceApp<S>
where
    S: Service<http::Request<RequestBody>, Response = http::Response<B>> + Clone + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    fn call(&self, req: &Request<'_>) -> Response {
        let (request, feed) = match request_of(req) {
            Ok(request) => request,
            Err(refusal) => return refusal.into_response(),
        };
        let mut service = self.0.clone();
        let called = async move {
            poll_fn(|cx| service.poll_ready(cx)).await?;
            service.call(request).await
        };
        match coracle_coro::block_on(feeding(feed.as_ref(), called)) {
            Ok(Ok(response)) => response_of(response, feed),
            Ok(Err(error)) => {
                let error: BoxError = error.into();
                tracing::error!("a service failed: {error}");
                Status::INTERNAL_SERVER_ERROR.into_response()
            }
            Err(error) => error.into_response(), // it may not wait any longer
        }
    }

    fn plan(&self, _: &Request<'_>) -> Plan {
        Plan::default().streamed()
    }
}

/// The request as a service has it. What `http` cannot hold is refused: it must not become another one.
fn request_of(req: &Request<'_>) -> Result<(http::Request<RequestBody>, Option<Feed>), Refusal> {
    const NO_METHOD: Refusal = Refusal::bad("the method has a byte that it cannot have");
    const NO_TARGET: Refusal =
        Refusal::bad("the target has a byte that must be percent-encoded here");
    let (body, feed) = match &req.stream {
        None => (RequestBody(Kind::Whole(req.body_bytes())), None),
        Some(source) => {
            let pipe = Arc::<Pipe>::default();
            let feed = Feed { source: Rc::clone(source), pipe: Arc::clone(&pipe) };
            (RequestBody(Kind::Coming(pipe)), Some(feed))
        }
    };
    let mut request = http::Request::new(body);
    *request.method_mut() =
        http::Method::from_bytes(req.method_name().as_bytes()).map_err(|_| NO_METHOD)?;
    let target = match req.query() {
        Some(query) => format!("{}?{query}", req.path()),
        None => req.path().to_owned(),
    };
    *request.uri_mut() = target.parse().map_err(|_| NO_TARGET)?;
    *request.version_mut() = match req.version() {
        Version::Http10 => http::Version::HTTP_10,
        Version::Http11 => http::Version::HTTP_11,
        Version::Http2 => http::Version::HTTP_2,
    };
    *request.headers_mut() = req.headers().to_map();
    request.extensions_mut().insert(req.peer().clone());
    Ok((request, feed))
}

fn response_of<B>(response: http::Response<B>, feed: Option<Feed>) -> Response
where
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = response.into_parts();
    let mut answer = Response::new(parts.status);
    *answer.headers_mut() = (&parts.headers).into();
    let mut body = Box::pin(body);
    // Most are one piece, which is there.
    let first = match body.is_end_stream() {
        true => return answer,
        false => body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop())),
    };
    let mut first = match first {
        Poll::Ready(None) => return answer,
        Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
            Ok(mut data) if body.is_end_stream() => {
                return answer.with_body(data.copy_to_bytes(data.remaining()));
            }
            Ok(data) => Some(Frame::data(data)),
            Err(frame) => Some(frame),
        },
        Poll::Ready(Some(Err(error))) => {
            let error: BoxError = error.into();
            tracing::error!("a service failed: {error}");
            return Status::INTERNAL_SERVER_ERROR.into_response();
        }
        Poll::Pending => None,
    };
    let trailers = Trailers::new();
    let later = trailers.clone();
    let written =
        first.as_ref().and_then(Frame::data_ref).map_or(0, |data| data.remaining() as u64);
    let len = body.size_hint().exact().map(|rest| rest + written);
    let write = move |out: &mut BodyWriter<'_>| {
        loop {
            let frame = match first.take() {
                Some(frame) => frame,
                None => match next_frame(&mut body, feed.as_ref(), out)? {
                    Some(frame) => frame.map_err(|error| io::Error::other(error.into()))?,
                    None => return Ok(()),
                },
            };
            match frame.into_data() {
                Ok(mut data) => {
                    while data.has_remaining() {
                        let count = out.write(data.chunk())?;
                        data.advance(count);
                    }
                }
                Err(frame) => {
                    for (name, value) in &frame.into_trailers().unwrap_or_default() {
                        later.insert(name.as_str(), value).map_err(io::Error::other)?;
                    }
                }
            }
        }
    };
    let body = match len {
        Some(len) => Body::stream_exact(len, write),
        None => Body::stream(write),
    };
    answer.with_body(body).with_trailers(trailers)
}

/// A piece of a body, or why there is none.
type FrameOf<B> = Result<Frame<<B as http_body::Body>::Data>, <B as http_body::Body>::Error>;

/// What comes next of a body; while it is waited for, what was written before it is sent.
fn next_frame<B: http_body::Body>(
    body: &mut Pin<Box<B>>,
    feed: Option<&Feed>,
    out: &mut BodyWriter<'_>,
) -> io::Result<Option<FrameOf<B>>> {
    match body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(frame) => Ok(frame),
        Poll::Pending => {
            out.flush()?;
            let frame = poll_fn(|cx| body.as_mut().poll_frame(cx));
            coracle_coro::block_on(feeding(feed, frame))
        }
    }
}

/// `future`, while the body of the request is read for whoever waits for it.
async fn feeding<F: Future>(feed: Option<&Feed>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        loop {
            let polled = match feed {
                Some(feed) => feed.polling(cx, |cx| future.as_mut().poll(cx)),
                None => future.as_mut().poll(cx),
            };
            if polled.is_ready() || !feed.is_some_and(|feed| feed.poll(cx)) {
                return polled;
            }
        }
    })
    .await
}

/// The body of a request, as a service has it. It may be sent elsewhere, and be read as long as the request lasts.
pub struct RequestBody(Kind);

enum Kind {
    Whole(Bytes),
    Coming(Arc<Pipe>),
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.0 {
            Kind::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Coming(pipe) => pipe.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_empty(),
            Kind::Coming(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Coming(_) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").finish_non_exhaustive()
    }
}

/// Between the request, which stays on its loop, and whoever reads its body. One piece is in it at most.
#[derive(Default)]
struct Pipe(Mutex<State>);

#[derive(Default)]
struct State {
    next: Option<io::Result<Bytes>>,
    trailers: Option<HeaderMap>,
    ended: bool,
    /// Who waits for a piece.
    hungry: Option<Waker>,
    /// Who feeds it; nobody, while that polls.
    feeder: Option<Waker>,
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut state = self.lock();
        if let Some(next) = state.next.take() {
            return Poll::Ready(Some(next.map(Frame::data)));
        }
        if state.ended {
            return Poll::Ready(
                state.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
            );
        }
        state.hungry = Some(cx.waker().clone());
        let feeder = state.feeder.take();
        drop(state);
        feeder.into_iter().for_each(Waker::wake);
        Poll::Pending
    }

    fn put(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let hungry = state.hungry.take();
        drop(state);
        hungry.into_iter().for_each(Waker::wake);
    }
}

/// What the coroutine of the request feeds the pipe from.
struct Feed {
    source: Rc<dyn Source>,
    pipe: Arc<Pipe>,
}

impl Feed {
    /// Polls something that may read the body: it need not tell us that it is hungry.
    fn polling<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.pipe.lock().feeder = None;
        poll(cx)
    }

    /// True if there was something for who is hungry.
    fn poll(&self, cx: &mut Context<'_>) -> bool {
        let mut state = self.pipe.lock();
        state.feeder = Some(cx.waker().clone());
        if state.hungry.is_none() {
            return false;
        }
        drop(state);
        let Poll::Ready(piece) = self.source.poll_piece(cx) else { return false };
        self.pipe.put(|state| match piece {
            Ok(Some(piece)) => state.next = Some(Ok(piece)),
            Ok(None) => {
                let trailers = self.source.trailers().filter(|trailers| !trailers.is_empty());
                state.trailers = trailers.map(|trailers| trailers.to_map());
                state.ended = true;
            }
            Err(error) => {
                state.next = Some(Err(error));
                state.ended = true;
            }
        });
        true
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.pipe.put(|state| {
            if !state.ended {
                state.next = Some(Err(io::Error::other("the request is over")));
                state.ended = true;
            }
        });
    }
}
