//! TLS as a layer of connections.

use crate::engine::{Engine, missing_bytes};
use crate::{ServerTls, Session};
use coracle_net::{Buffer, Layer};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Encryption of one connection, by TLS. [`ServerTls::layer`](crate::ServerTls::layer) and
/// [`ClientTls::layer`](crate::ClientTls::layer) make one.
///
/// The end of the stream is the peer's `close_notify`. If the wire ends without one, the connection ends with
/// `UnexpectedEof`: something may be missing.
pub struct TlsLayer {
    engine: Engine,
    /// The begin of a record that came before this was a layer.
    begun: Vec<u8>,
    plain_answer: &'static [u8],
    ready: Option<Box<Ready>>,
}

/// Something to be called when the handshake is done.
type Ready = dyn FnOnce(&Arc<Session>);

impl TlsLayer {
    pub(crate) fn new(engine: Engine) -> TlsLayer {
        TlsLayer::going_on(engine, Vec::new())
    }

    /// One whose handshake may be over, and which has received this that is not a whole record.
    pub(crate) fn going_on(engine: Engine, begun: Vec<u8>) -> TlsLayer {
        TlsLayer { engine, begun, plain_answer: b"", ready: None }
    }

    /// What a client is told that does not speak TLS, but something in letters, as HTTP is.
    #[must_use]
    pub fn plain_answer(mut self, answer: &'static [u8]) -> TlsLayer {
        self.plain_answer = answer;
        self
    }

    /// Calls `callback` when the handshake is done. It is called inside the layer, where the connection cannot be
    /// reached: [defer](coracle_loop::Loop::defer) what concerns it.
    #[must_use]
    pub fn on_ready(mut self, callback: impl FnOnce(&Arc<Session>) + 'static) -> TlsLayer {
        self.ready = Some(Box::new(callback));
        self
    }

    /// What was agreed upon, once the handshake is done.
    pub fn session(&self) -> Option<&Arc<Session>> {
        self.engine.session()
    }

    /// The server that this is a connection of, if it asks clients who they are.
    pub(crate) fn asking(&self) -> Option<&ServerTls> {
        self.engine.asking()
    }

    /// How long the handshake of a server's connection may take.
    pub(crate) fn handshake_timeout(&self) -> Option<Duration> {
        self.engine.handshake_timeout()
    }
}

impl Layer for TlsLayer {
    fn receive(
        &mut self,
        wire: &mut Buffer,
        plain: &mut Buffer,
        reply: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut take = |piece: &[u8]| plain.extend_from_slice(piece);
        while !self.begun.is_empty() && !wire.is_empty() {
            let missing = missing_bytes(&self.begun).min(wire.len());
            self.begun.extend_from_slice(&wire.unread()[..missing]);
            wire.consume(missing);
            let received = self.engine.receive(&self.begun, &mut take, reply, self.plain_answer);
            self.begun.drain(..received.0);
            received.1?;
            if received.0 + missing == 0 {
                self.begun.clear(); // the peer has said the end before it
            }
        }
        let received = self.engine.receive(wire.unread(), &mut take, reply, self.plain_answer);
        let (taken, result) = received;
        wire.consume(taken);
        if let Some(session) = self.engine.session()
            && let Some(ready) = self.ready.take()
        {
            ready(session);
        }
        result
    }

    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
        self.engine.send(plain, wire)
    }

    fn is_ready(&self) -> bool {
        self.engine.is_ready()
    }

    fn end(&mut self, wire: &mut Vec<u8>) {
        self.engine.end(wire);
    }

    fn has_ended(&self) -> bool {
        self.engine.has_ended()
    }

    fn wire_ended(&mut self, _unread: usize) -> io::Result<()> {
        Err(self.engine.cut_off())
    }
}

impl fmt::Debug for TlsLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsLayer").field("session", &self.session()).finish_non_exhaustive()
    }
}
