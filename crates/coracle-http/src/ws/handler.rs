//! WebSockets in callbacks: one value for each, and the loop calls it.

use super::line::{Line, Phase};
use super::{Close, Encoded, End, Handle, Message};
use crate::ws::CloseCode;
use coracle_net::Conn;
use std::fmt;
use std::io;
use std::sync::Arc;

/// One WebSocket's side of a conversation, in callbacks: what [`coracle_net::Protocol`] is for bytes. Its state is
/// `self`. A socket on which nothing is said has no stack, and no memory but this value and some hundred bytes.
///
/// ```
/// use coracle_http::ws::{self, Message, Peer};
/// use coracle_http::{Request, Response};
/// use std::io;
///
/// struct Echo;
///
/// impl ws::Handler for Echo {
///     fn on_message(&mut self, peer: &mut Peer<'_>, message: Message) -> io::Result<()> {
///         peer.send(message)
///     }
/// }
///
/// fn app(req: &Request<'_>) -> Response {
///     ws::upgrade(req).handle(Echo)
/// }
/// ```
///
/// All callbacks of a socket run on its loop, one at a time; nothing in them may wait. An error they return closes
/// it (1011), a panic cuts it. Neither touches any other.
pub trait Handler: 'static {
    /// It is there.
    fn on_open(&mut self, _peer: &mut Peer<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Something was said.
    fn on_message(&mut self, peer: &mut Peer<'_>, message: Message) -> io::Result<()>;

    /// A [ping](Peer::ping) was answered, or the peer says that it is there of its own accord. Those that keep
    /// watch over the connection are told, too: their payload is empty.
    fn on_pong(&mut self, _peer: &mut Peer<'_>, _payload: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// What waited to be sent is mostly gone: [`Peer::writable`] is true again.
    fn on_ready(&mut self, _peer: &mut Peer<'_>) -> io::Result<()> {
        Ok(())
    }

    /// The server is about to stop. Closes the socket (1001), unless this does something else.
    fn on_shutdown(&mut self, peer: &mut Peer<'_>) -> io::Result<()> {
        peer.close(CloseCode::GOING_AWAY);
        Ok(())
    }

    /// It is over. Nothing is called after this.
    fn on_close(&mut self, _end: &End) {}
}

/// A function is a handler that has only [`on_message`](Handler::on_message).
impl<F> Handler for F
where
    F: FnMut(&mut Peer<'_>, Message) -> io::Result<()> + 'static,
{
    fn on_message(&mut self, peer: &mut Peer<'_>, message: Message) -> io::Result<()> {
        self(peer, message)
    }
}

/// The other side, as a handler sees it for the length of a callback.
pub struct Peer<'a> {
    pub(super) conn: Conn<'a>,
    pub(super) line: &'a Arc<Line>,
}

impl Peer<'_> {
    /// Sends a message: when the callback returns, as far as the peer has room, and the rest when it has. Whoever
    /// has much to say looks whether there is room ([`writable`](Peer::writable)).
    ///
    /// # Errors
    /// It is closed, by the peer or by us.
    pub fn send(&mut self, message: impl Into<Message>) -> io::Result<()> {
        self.line.send(&mut self.conn, message.into())
    }

    /// Sends a message that many are sent, which was encoded once.
    ///
    /// # Errors
    /// It is closed. That too much waits for the peer is no error:
    /// [`Settings::when_full`](super::Settings::when_full) says what becomes of it then.
    pub fn send_encoded(&mut self, message: &Encoded) -> io::Result<()> {
        self.line.send_encoded(&mut self.conn, message)
    }

    /// Asks the peer to answer with the same bytes, at most 125: [`on_pong`](Handler::on_pong).
    ///
    /// # Errors
    /// It is closed, or there are too many bytes.
    pub fn ping(&mut self, payload: &[u8]) -> io::Result<()> {
        self.line.ping(&mut self.conn, payload)
    }

    /// Says that nothing more is said. What the peer says until it answers is not told any more, and then
    /// [`on_close`](Handler::on_close) is called.
    ///
    /// # Panics
    /// When the code is none that [can be sent](CloseCode::can_be_sent).
    pub fn close(&mut self, close: impl Into<Close>) {
        self.line.close(&mut self.conn, checked(close.into()));
    }

    /// Ends the connection without a word.
    pub fn abort(&mut self) {
        self.conn.abort();
    }

    /// Whether there is room for more; if not, [`on_ready`](Handler::on_ready) is called when there is.
    pub fn writable(&self) -> bool {
        self.conn.writable()
    }

    /// How many bytes wait to be sent.
    pub fn output_bytes(&self) -> usize {
        self.conn.output_bytes()
    }

    /// Hears no more, until [`resume`](Peer::resume).
    pub fn pause(&mut self) {
        self.line.pause(&mut self.conn);
    }

    /// Hears again.
    pub fn resume(&mut self) {
        self.line.resume(&mut self.conn);
    }

    /// Whether messages can be sent: nobody has closed it.
    pub fn is_open(&self) -> bool {
        self.line.phase() == Phase::Open
    }

    /// The sub-protocol that was agreed on.
    pub fn subprotocol(&self) -> Option<&str> {
        self.line.subprotocol.as_deref()
    }

    /// A name for this WebSocket that can be kept and sent to other threads.
    pub fn handle(&self) -> Handle {
        Handle::new(self.conn.handle(), self.conn.lp().handle(), Arc::clone(self.line))
    }

    /// The connection under it: its addresses, its loop. What is written there is no message.
    pub fn conn(&mut self) -> Conn<'_> {
        self.conn.reborrow()
    }
}

/// A close that can be sent.
///
/// # Panics
/// When it is none.
pub(super) fn checked(close: Close) -> Close {
    let sendable = close.code.can_be_sent() || close.code == CloseCode::NONE;
    assert!(sendable, "{} is no code that can be sent", close.code);
    Close::new(close.code, close.reason)
}

impl fmt::Debug for Peer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}
