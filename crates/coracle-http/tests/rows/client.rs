//! A client in plain operations, and the service it talks to, on the same loop.

use crate::harness::Harness;
use coracle_http::{App, Service, Settings};
use coracle_loop::demux::{Address, Handle, Operation, Outcome};
use coracle_net::{ConnHandle, attach};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::cell::RefCell;
use std::net::Shutdown;

pub(crate) struct Client<'a> {
    pub(crate) h: &'a Harness,
    pub(crate) socket: Handle,
    pub(crate) service: Service,
    pub(crate) server: ConnHandle,
    /// What was received and not read.
    unread: RefCell<Vec<u8>>,
}

/// An answer, taken apart by rules that are as simple as can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

impl<'a> Client<'a> {
    /// A client of an app, with a connection to it.
    pub(crate) fn of(h: &'a Harness, app: impl App) -> Client<'a> {
        Client::with(h, Settings::default(), app)
    }

    pub(crate) fn with(h: &'a Harness, settings: Settings, app: impl App) -> Client<'a> {
        Client::to(h, &Service::new(app, settings).expect("the settings make sense"))
    }

    pub(crate) fn to(h: &'a Harness, service: &Service) -> Client<'a> {
        Client::between(h, service, h.connection())
    }

    /// The same by sockets that keep what was sent apart: a receive gets what one send has sent. Not simulated.
    #[allow(dead_code)] // not in all suites
    pub(crate) fn by_packets(h: &'a Harness, service: &Service) -> Client<'a> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let pair = socketpair(family, kind, SocketFlags::CLOEXEC, None).expect("a pair");
        let [socket, accepted] = [pair.0, pair.1].map(|end| h.lp.adopt(end).expect("adopt"));
        Client::between(h, service, (socket, accepted))
    }

    fn between(
        h: &'a Harness,
        service: &Service,
        (socket, accepted): (Handle, Handle),
    ) -> Client<'a> {
        let peer: Address = "192.0.2.1:4711".parse().expect("an address");
        let settings = service.connection_settings();
        let server = attach(&h.lp, accepted, settings, service.connection(&peer)).expect("attach");
        Client { h, socket, service: service.clone(), server, unread: RefCell::default() }
    }

    pub(crate) fn send(&self, bytes: impl AsRef<[u8]>) {
        self.h.send(self.socket, bytes.as_ref());
    }

    /// A GET, and its answer.
    pub(crate) fn get(&self, target: &str) -> Answer {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.answer()
    }

    /// Ends our side.
    pub(crate) fn end(&self) {
        let operation = Operation::Shutdown { socket: self.socket, how: Shutdown::Write };
        self.h.operate(operation).result.expect("shutdown");
    }

    /// Receives something; false at the end of the stream, however it came to it.
    pub(crate) fn receive(&self) -> bool {
        let space = vec![0; 64 << 10].into();
        let finished = self.h.operate(Operation::Receive { socket: self.socket, space });
        let Ok(Outcome::Count(count @ 1..)) = finished.result else { return false };
        self.unread.borrow_mut().extend_from_slice(&finished.payload.into_vec()[..count]);
        true
    }

    /// Takes `count` bytes, or what there is before the end.
    pub(crate) fn take(&self, count: usize) -> Vec<u8> {
        while self.unread.borrow().len() < count && self.receive() {}
        let mut unread = self.unread.borrow_mut();
        let count = count.min(unread.len());
        unread.drain(..count).collect()
    }

    /// How much was received and not taken.
    #[allow(dead_code)] // not in all suites
    pub(crate) fn received(&self) -> usize {
        self.unread.borrow().len()
    }

    /// Takes what was received already.
    #[allow(dead_code)] // not in all suites
    pub(crate) fn take_received(&self) -> Vec<u8> {
        self.unread.take()
    }

    /// Takes what is before the end of the stream.
    pub(crate) fn rest(&self) -> Vec<u8> {
        while self.receive() {}
        self.unread.take()
    }

    /// Takes up to and with `end`.
    pub(crate) fn take_until(&self, end: &str) -> String {
        loop {
            let unread = self.unread.borrow();
            let found = unread.windows(end.len()).position(|window| window == end.as_bytes());
            drop(unread);
            if let Some(at) = found {
                return String::from_utf8(self.take(at + end.len())).expect("text");
            }
            assert!(self.receive(), "the stream ended before {end:?}: {:?}", self.unread);
        }
    }

    /// The next answer: to anything but a HEAD.
    pub(crate) fn answer(&self) -> Answer {
        let mut answer = self.head();
        answer.body = if let Some(length) = answer.header("content-length") {
            let length = length.parse().expect("a number");
            let body = self.take(length);
            assert_eq!(body.len(), length, "the stream ended too early");
            body
        } else if answer.header("transfer-encoding") == Some("chunked") {
            self.chunks()
        } else if matches!(answer.status, 100..200 | 204 | 304) {
            Vec::new()
        } else {
            self.rest()
        };
        answer
    }

    /// The head of the next answer, and no body.
    pub(crate) fn head(&self) -> Answer {
        let head = self.take_until("\r\n\r\n");
        let status = head.strip_prefix("HTTP/1.1 ").expect("a status line");
        let status = status[..3].parse().expect("a status");
        Answer { status, head, body: Vec::new() }
    }

    /// A body in chunks, to its end.
    pub(crate) fn chunks(&self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.take_until("\r\n");
            let size = usize::from_str_radix(line.trim_end(), 16).expect("a size");
            body.extend_from_slice(&self.take(size));
            assert_eq!(self.take(2), b"\r\n");
            if size == 0 {
                return body;
            }
        }
    }

    /// The answer to something that is refused: its status. The connection ends behind it.
    pub(crate) fn refusal(&self) -> u16 {
        let answer = self.answer();
        assert_eq!(answer.header("connection"), Some("close"), "{answer:?}");
        assert_eq!(self.rest(), b"", "nothing follows");
        answer.status
    }
}
