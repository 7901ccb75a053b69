//! The protocol of a connection that is a WebSocket: from bytes to callbacks.

use super::handler::{Handler, Peer};
use super::line::{Last, Line, Phase, cut};
use super::{Close, CloseCode, Decoder, End, Event};
use coracle_net::{Buffer, Conn, Protocol, Reason, TokenBucket};
use std::io;
use std::sync::Arc;

/// A WebSocket, as the loop has it.
pub(super) struct Wire<H> {
    line: Arc<Line>,
    decoder: Decoder,
    handler: H,
    /// How many control frames may come. `None` until the first.
    controls: Option<Box<TokenBucket>>,
    /// The handler was told that it is over.
    told: bool,
}

impl<H: Handler> Wire<H> {
    pub(super) fn new(line: Arc<Line>, handler: H) -> Wire<H> {
        let settings = &line.settings;
        let (frame, message) = (settings.limit_frame_bytes, settings.limit_message_bytes);
        let decoder = Decoder::new(line.role, frame, message, line.agreed);
        Wire { line, decoder, handler, controls: None, told: false }
    }

    /// Calls the handler; its error closes the socket.
    fn call(
        &mut self,
        conn: &mut Conn<'_>,
        callback: impl FnOnce(&mut H, &mut Peer<'_>) -> io::Result<()>,
    ) {
        let mut peer = Peer { conn: conn.reborrow(), line: &self.line };
        if let Err(error) = callback(&mut self.handler, &mut peer) {
            if self.line.phase() == Phase::Open {
                tracing::error!("a handler of a WebSocket failed: {error}");
            }
            self.line.close(conn, CloseCode::INTERNAL_ERROR.into());
        }
    }

    /// Does what was said.
    fn event(&mut self, conn: &mut Conn<'_>, event: Event) {
        match event {
            Event::Message(message) => {
                if self.line.phase() == Phase::Open {
                    self.call(conn, |handler, peer| handler.on_message(peer, message));
                }
            }
            Event::Close(close) => {
                self.line.hear_last(conn, Last::Closed(close));
                self.tell_end();
            }
            Event::Ping(payload) => {
                if self.may_control(conn) {
                    self.line.pong(conn, &payload);
                }
            }
            Event::Pong(payload) => {
                if self.may_control(conn) && self.line.phase() == Phase::Open {
                    self.call(conn, |handler, peer| handler.on_pong(peer, &payload));
                }
            }
        }
    }

    /// Whether the peer has not sent too many of them; then that is all it has said.
    fn may_control(&mut self, conn: &mut Conn<'_>) -> bool {
        let (now, rate) = (conn.lp().now(), u64::from(self.line.settings.limit_controls));
        let new = || Box::new(TokenBucket::new(rate, rate, now));
        let bucket = self.controls.get_or_insert_with(new);
        if bucket.available(now) == 0 {
            self.fail(conn, Close::new(CloseCode::POLICY, "too many pings"));
            return false;
        }
        bucket.take(1);
        true
    }

    fn fail(&mut self, conn: &mut Conn<'_>, close: Close) {
        tracing::debug!(code = close.code.as_u16(), why = close.reason, "a WebSocket is refused");
        self.line.hear_last(conn, Last::Broken(close));
        self.tell_end();
    }

    /// Tells the handler that it is over, once.
    fn tell_end(&mut self) {
        if let Some(end) = self.line.end()
            && !std::mem::replace(&mut self.told, true)
        {
            self.handler.on_close(&end);
        }
    }
}

/// How much memory an idle WebSocket has, beside its connection and its handler.
#[cfg(test)]
pub(super) fn idle_bytes() -> usize {
    size_of::<Wire<()>>() + size_of::<Line>()
}

impl<H: Handler> Protocol for Wire<H> {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.line.open(conn);
        self.line.await_word(conn);
        self.call(conn, |handler, peer| handler.on_open(peer));
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        self.line.heard(conn);
        while !input.is_empty() && !self.line.is_paused() {
            if self.line.phase() == Phase::Over || self.line.has_last() {
                input.take_all();
                break;
            }
            match self.decoder.decode(input.unread()) {
                Ok((used, event)) => {
                    input.consume(used);
                    match event {
                        Some(event) => self.event(conn, event),
                        None => break,
                    }
                }
                Err(violation) => self.fail(conn, violation.close()),
            }
        }
        Ok(())
    }

    fn on_ready(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.line.wake();
        if self.line.phase() == Phase::Open {
            self.call(conn, |handler, peer| handler.on_ready(peer));
        }
        Ok(())
    }

    fn on_idle(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        if self.line.silent(conn) {
            self.line.over(End::Silent);
            cut(conn);
        }
        Ok(())
    }

    /// Whoever ends its side without a close will not answer one either.
    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        if self.line.has_last() {
            return Ok(()); // whoever has closed may hear our last words
        }
        self.line.over(End::Lost("the peer has ended the stream".into()));
        self.tell_end();
        conn.close();
        Ok(())
    }

    fn on_shutdown(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        if self.line.phase() == Phase::Open {
            self.call(conn, |handler, peer| handler.on_shutdown(peer));
        }
        Ok(())
    }

    fn on_close(&mut self, reason: &Reason) {
        self.line.over(End::Lost(reason.to_string()));
        self.tell_end();
    }
}
