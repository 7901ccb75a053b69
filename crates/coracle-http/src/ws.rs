//! WebSocket (RFC 6455), server and client, with permessage-deflate (RFC 7692).
//!
//! A handler turns a request into a WebSocket; what it says from then on is a plain function, in a coroutine:
//!
//! ```no_run
//! use coracle_http::{self as http, IntoResponse, Request, Response, Status, ws};
//! use std::io;
//!
//! fn main() -> io::Result<()> {
//!     http::serve("127.0.0.1:8080", app)
//! }
//!
//! fn app(req: &Request<'_>) -> Response {
//!     match req.segments() {
//!         ["ws"] => ws::upgrade(req).run(echo),
//!         _ => Status::NOT_FOUND.into_response(),
//!     }
//! }
//!
//! fn echo(ws: &ws::WebSocket) -> io::Result<()> {
//!     for message in ws {
//!         ws.send(message?)?; // waits while the peer does not read
//!     }
//!     Ok(()) // it is closed, by the peer or by us
//! }
//! ```
//!
//! Or it is a value that is called when something is said ([`Handler`]): then a socket that is idle has no stack,
//! and there may be very many. Pings are answered, silent peers are asked and let go, closes are answered, and
//! whoever breaks the rules is told by which code, in both styles.
//!
//! | | |
//! |---|---|
//! | [`upgrade`] | from a request to a WebSocket: sub-protocols, origins, limits |
//! | [`WebSocket`] | in a coroutine: `for message in ws`, [`send`](WebSocket::send); two halves |
//! | [`Handler`], [`Peer`] | in callbacks |
//! | [`Handle`], [`Encoded`], [`Room`] | from any thread; to many, encoded once |
//! | [`Client`], [`connect`] | the other side |

mod client;
mod code;
mod decoder;
mod deflate;
mod dialing;
mod encoder;
mod extension;
mod frame;
mod handle;
mod handler;
mod handshake;
mod line;
mod room;
mod round;
mod settings;
mod socket;
#[cfg(test)]
mod tests;
mod upgrade;
mod wire;

mod message;

pub use client::{Client, connect};
pub use code::{Close, CloseCode};
pub use encoder::Encoded;
pub use handle::Handle;
pub use handler::{Handler, Peer};
pub use message::Message;
pub use room::Room;
pub use settings::{Deflate, Settings, WhenFull};
pub use socket::{Messages, Receiver, Sender, WebSocket};
pub use upgrade::{Origins, Upgrade, upgrade};

pub(crate) use decoder::{Decoder, Event};

/// The framer as such, for who tries it with anything.
pub(crate) mod fuzzing {
    pub(crate) use super::decoder::{Decoder, Event};
    pub(crate) use super::deflate::{Agreed, Deflater};
    pub(crate) use super::encoder::Payload;
    pub(crate) use super::{Message, Role};
}

use std::fmt;
use std::io;

/// Which side we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Client,
}

/// How a WebSocket has ended.
///
/// ```
/// use coracle_http::ws::{CloseCode, End};
///
/// assert_eq!(End::Silent.code(), CloseCode::LOST);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// In order. This is what the peer said, at first or as an answer.
    Closed(Close),
    /// The peer has broken the rules, and was told so.
    Broken(Close),
    /// The peer did not answer a ping in time.
    Silent,
    /// The connection is gone, and nobody had closed it.
    Lost(String),
}

impl End {
    /// It as a number: [`CloseCode::LOST`] if nobody has said one.
    pub fn code(&self) -> CloseCode {
        match self {
            End::Closed(close) | End::Broken(close) => close.code,
            End::Silent | End::Lost(_) => CloseCode::LOST,
        }
    }

    /// It as an error of whoever waits for something to be said.
    pub(crate) fn to_error(&self) -> io::Error {
        let kind = match self {
            End::Closed(_) => io::ErrorKind::BrokenPipe,
            End::Broken(_) => io::ErrorKind::InvalidData,
            End::Silent => io::ErrorKind::TimedOut,
            End::Lost(_) => io::ErrorKind::ConnectionReset,
        };
        io::Error::new(kind, self.to_string())
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Closed(close) => write!(f, "the WebSocket was closed ({close})"),
            End::Broken(close) => write!(f, "the peer of a WebSocket broke a rule ({close})"),
            End::Silent => f.write_str("the peer of a WebSocket has not answered a ping in time"),
            End::Lost(why) => write!(f, "a WebSocket was not closed but lost: {why}"),
        }
    }
}
