//! A client of HTTP/2 that is not ours, `h2`'s, talking through the operations of a [`Client`].

use crate::client::Client;
use crate::harness::Harness;
use bytes::Bytes;
use coracle_http::{App, Settings};
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(crate) struct Peer<'a> {
    pub(crate) client: Client<'a>,
    wire: Wire,
    connection: Option<Connection<Wire, Bytes>>,
    pub(crate) requests: SendRequest<Bytes>,
    /// How the connection ended.
    pub(crate) ended: Option<Result<(), h2::Error>>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }
}

impl<'a> Peer<'a> {
    pub(crate) fn of(h: &'a Harness, app: impl App) -> Peer<'a> {
        Peer::with(h, Settings::default(), app)
    }

    pub(crate) fn with(h: &'a Harness, settings: Settings, app: impl App) -> Peer<'a> {
        Peer::over(Client::with(h, settings, app), Builder::new())
    }

    /// A peer with settings of its own.
    pub(crate) fn over(client: Client<'a>, builder: Builder) -> Peer<'a> {
        let wire = Wire::default();
        let mut handshake = pin!(builder.handshake(wire.clone()));
        let Poll::Ready(made) = handshake.as_mut().poll(&mut context()) else {
            panic!("writing the preface needs no answer")
        };
        let (requests, connection) = made.expect("a handshake");
        Peer { client, wire, connection: Some(connection), requests, ended: None }
    }

    /// Lets frames pass until `poll` is ready.
    pub(crate) fn until<T>(&mut self, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        loop {
            if let Poll::Ready(value) = poll(&mut context()) {
                return value;
            }
            self.pass();
        }
    }

    /// Sends what there is to be sent; else receives something.
    pub(crate) fn pass(&mut self) {
        self.poll();
        let output = std::mem::take(&mut self.wire.0.borrow_mut().output);
        if !output.is_empty() {
            return self.client.send(output);
        }
        let came = self.client.receive();
        let mut wire = self.wire.0.borrow_mut();
        wire.input.extend(self.client.take_received());
        wire.ended |= !came;
        drop(wire);
        self.poll();
    }

    /// Sends what there is to be sent.
    pub(crate) fn flush(&mut self) {
        self.poll();
        let output = std::mem::take(&mut self.wire.0.borrow_mut().output);
        self.client.send(output);
    }

    fn poll(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        if let Poll::Ready(ended) = Pin::new(connection).poll(&mut context()) {
            self.ended = Some(ended);
            self.connection = None;
        }
    }

    /// Lets frames pass until the server has ended the connection.
    pub(crate) fn end(&mut self) -> Result<(), h2::Error> {
        while self.ended.is_none() {
            self.pass();
        }
        self.ended.take().expect("it ended")
    }

    /// Asks for something that has a body or not.
    pub(crate) fn ask(
        &mut self,
        request: Request<()>,
        has_body: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let mut requests = self.requests.clone();
        self.until(|cx| requests.poll_ready(cx)).expect("there is room");
        requests.send_request(request, !has_body).expect("a request")
    }

    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.request(request("GET", target))
    }

    pub(crate) fn request(&mut self, request: Request<()>) -> Answer {
        let (response, _) = self.ask(request, false);
        self.answer(response).expect("an answer")
    }

    pub(crate) fn post(&mut self, target: &str, body: impl Into<Bytes>) -> Answer {
        let (response, mut out) = self.ask(request("POST", target), true);
        out.send_data(body.into(), true).expect("a body");
        self.answer(response).expect("an answer")
    }

    /// The head of an answer, and its body.
    pub(crate) fn head(
        &mut self,
        mut response: ResponseFuture,
    ) -> Result<http::Response<RecvStream>, h2::Error> {
        self.until(|cx| Pin::new(&mut response).poll(cx))
    }

    pub(crate) fn answer(&mut self, response: ResponseFuture) -> Result<Answer, h2::Error> {
        let (parts, body) = self.head(response)?.into_parts();
        let (body, trailers) = self.body(body)?;
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body, trailers })
    }

    pub(crate) fn body(
        &mut self,
        mut body: RecvStream,
    ) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.until(|cx| body.poll_data(cx)) {
            let piece = piece?;
            body.flow_control().release_capacity(piece.len()).expect("it was there");
            bytes.extend_from_slice(&piece);
        }
        Ok((bytes, self.until(|cx| body.poll_trailers(cx))?))
    }
}

pub(crate) fn request(method: &str, target: &str) -> Request<()> {
    let uri = format!("http://a.example{target}");
    Request::builder().method(method).uri(uri).body(()).expect("a request")
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Two buffers that are taken for a socket.
#[derive(Clone, Default)]
struct Wire(Rc<RefCell<Buffers>>);

#[derive(Default)]
struct Buffers {
    input: VecDeque<u8>,
    output: Vec<u8>,
    ended: bool,
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut wire = self.0.borrow_mut();
        if wire.input.is_empty() {
            return if wire.ended { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let count = space.remaining().min(wire.input.len());
        let bytes: Vec<u8> = wire.input.drain(..count).collect();
        space.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
