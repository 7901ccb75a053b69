//! The connection as `h2` has it: a handshake at first, then requests.

use super::piece::Piece;
use super::pipe::Pipe;
use crate::Settings;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

pub(super) type Request = (http::Request<RecvStream>, SendResponse<Piece>);

pub(super) struct Session {
    state: State,
    /// The server stops, which is said as soon as hands are shaken.
    stops: bool,
    asks: bool,
}

#[allow(clippy::large_enum_variant)] // it is in a box, and soon it is only the larger
enum State {
    Handshake(Box<Handshake<Pipe, Piece>>),
    Open(Connection<Pipe, Piece>, Option<PingPong>),
}

impl Session {
    pub(super) fn new(pipe: Pipe, settings: &Settings) -> Session {
        let http2 = &settings.http2;
        // A field counts as 32 bytes more than it has there (RFC 9113, 6.5.2).
        let header = settings.limit_header_bytes + 32 * settings.limit_headers;
        let mut builder = Builder::new();
        builder
            .max_header_list_size(u32::try_from(header).unwrap_or(u32::MAX))
            .max_concurrent_streams(http2.limit_streams)
            .max_pending_accept_reset_streams(http2.limit_resets as usize)
            .max_local_error_reset_streams(Some(http2.limit_resets as usize))
            .initial_window_size(http2.stream_window_bytes)
            .initial_connection_window_size(http2.connection_window_bytes);
        let handshake = Box::new(builder.handshake(pipe));
        let asks = http2.ping_interval.is_some();
        Session { state: State::Handshake(handshake), stops: false, asks }
    }

    /// Reads and writes what there is. Ready with the next request, or with none when it is over.
    ///
    /// Nobody is woken by it: whoever does something with a handle of `h2`'s has it polled afterwards.
    pub(super) fn poll(&mut self) -> Poll<Option<Result<Request, h2::Error>>> {
        let cx = &mut Context::from_waker(Waker::noop());
        loop {
            match &mut self.state {
                State::Open(connection, _) => return connection.poll_accept(cx),
                State::Handshake(handshake) => {
                    let mut connection = match ready!(Pin::new(handshake).poll(cx)) {
                        Ok(connection) => connection,
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    };
                    if self.stops {
                        connection.graceful_shutdown();
                    }
                    let pings = if self.asks { connection.ping_pong() } else { None };
                    self.state = State::Open(connection, pings);
                }
            }
        }
    }

    /// Has it say that it takes no more requests, and end when those that are under way are answered.
    pub(super) fn end_gracefully(&mut self) {
        match &mut self.state {
            State::Handshake(_) => self.stops = true,
            State::Open(connection, _) => connection.graceful_shutdown(),
        }
    }

    /// Has it end at once, and say so.
    pub(super) fn end(&mut self) {
        if let State::Open(connection, _) = &mut self.state {
            connection.abrupt_shutdown(Reason::NO_ERROR);
        }
    }

    /// Asks the client whether it is there; false if that cannot be asked yet. If it was asked before and has not
    /// answered, that question stands.
    pub(super) fn ask(&mut self) -> bool {
        let State::Open(_, Some(pings)) = &mut self.state else { return false };
        let _ = pings.poll_pong(&mut Context::from_waker(Waker::noop()));
        let _ = pings.send_ping(Ping::opaque());
        true
    }
}
