//! A WebSocket client made of bytes, as simple as can be: it can also do what no client may.

use crate::client::{Answer, Client};
use crate::harness::Harness;
use coracle_http::ws::{self, Message, Peer, Settings, WebSocket};
use coracle_http::{App, Request, Response, Service};
use std::io;

pub(crate) const TEXT: u8 = 0x81;
pub(crate) const BINARY: u8 = 0x82;
pub(crate) const CLOSE: u8 = 0x88;
pub(crate) const PING: u8 = 0x89;
pub(crate) const PONG: u8 = 0x8a;

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

pub(crate) struct Ws<'a> {
    pub(crate) client: Client<'a>,
}

/// A request for a WebSocket, with more fields.
pub(crate) fn request(fields: &str) -> String {
    format!(
        "GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{fields}\r\n"
    )
}

/// A frame of a client: its first byte, and its payload.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        len @ 0..126 => bytes.push(0x80 | len as u8),
        len @ 126..=0xffff => {
            bytes.push(0x80 | 126);
            bytes.extend((len as u16).to_be_bytes());
        }
        len => {
            bytes.push(0x80 | 127);
            bytes.extend((len as u64).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes
}

impl<'a> Ws<'a> {
    /// Connected to an app that takes it.
    pub(crate) fn open(h: &'a Harness, app: impl App) -> Ws<'a> {
        Ws::ask(Client::of(h, app), "").0
    }

    pub(crate) fn to(h: &'a Harness, service: &Service) -> Ws<'a> {
        Ws::ask(Client::to(h, service), "").0
    }

    /// Asks for it, with more fields; and the answer.
    pub(crate) fn ask(client: Client<'a>, fields: &str) -> (Ws<'a>, Answer) {
        client.send(request(fields));
        let answer = client.head();
        assert_eq!(answer.status, 101, "{answer:?}");
        assert_eq!(answer.header("upgrade"), Some("websocket"));
        assert_eq!(answer.header("connection"), Some("upgrade"));
        assert_eq!(answer.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        (Ws { client }, answer)
    }

    pub(crate) fn send(&self, first: u8, payload: impl AsRef<[u8]>) {
        self.client.send(frame(first, payload.as_ref()));
    }

    /// Sends bytes in pieces of this size.
    pub(crate) fn chop(&self, bytes: &[u8], size: usize) {
        bytes.chunks(size).for_each(|piece| self.client.send(piece));
    }

    /// The next frame: its first byte and its payload.
    pub(crate) fn frame(&self) -> (u8, Vec<u8>) {
        let begin = self.client.take(2);
        assert_eq!(begin.len(), 2, "the stream ended");
        let number =
            |bytes: Vec<u8>| bytes.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
        let len = match begin[1] {
            126 => number(self.client.take(2)),
            127 => number(self.client.take(8)),
            len @ 0..126 => usize::from(len),
            _ => panic!("a server does not mask"),
        };
        let payload = self.client.take(len);
        assert_eq!(payload.len(), len, "the stream ended");
        (begin[0], payload)
    }

    /// The next frame must be this one.
    pub(crate) fn expect(&self, first: u8, payload: impl AsRef<[u8]>) {
        let (got, bytes) = self.frame();
        let payload = payload.as_ref();
        assert_eq!(got, first, "{}", bytes.escape_ascii());
        let same = bytes == payload;
        assert!(same, "{} bytes, expected {}", bytes.len(), payload.len());
    }

    /// The next frame must be a close of this code, and the end of the stream must follow.
    pub(crate) fn expect_close(&self, code: u16) {
        let (first, payload) = self.frame();
        assert_eq!(first, CLOSE, "{}", payload.escape_ascii());
        let got = match payload[..] {
            [] => 1005,
            [high, low, ..] => u16::from_be_bytes([high, low]),
            [_] => panic!("half a code"),
        };
        assert_eq!(got, code, "{}", payload.escape_ascii());
        self.expect_end();
    }

    pub(crate) fn expect_end(&self) {
        assert_eq!(self.client.rest(), b"", "nothing follows");
    }

    /// Closes it, and sees that answered.
    pub(crate) fn close(&self) {
        self.send(CLOSE, 1000u16.to_be_bytes());
        self.expect_close(1000);
    }
}

/// An echo, in a coroutine or in callbacks, with settings.
#[derive(Clone)]
pub(crate) struct Echo {
    pub(crate) callbacks: bool,
    pub(crate) settings: Settings,
}

/// Both styles, with what is usual.
pub(crate) fn echoes() -> [Echo; 2] {
    [false, true].map(|callbacks| Echo { callbacks, settings: Settings::default() })
}

pub(crate) fn echo(ws: &WebSocket) -> io::Result<()> {
    for message in ws {
        ws.send(message?)?;
    }
    Ok(())
}

impl App for Echo {
    fn call(&self, req: &Request<'_>) -> Response {
        let upgrade = ws::upgrade(req).settings(self.settings.clone());
        match self.callbacks {
            true => upgrade.handle(|peer: &mut Peer<'_>, message: Message| peer.send(message)),
            false => upgrade.run(echo),
        }
    }
}
