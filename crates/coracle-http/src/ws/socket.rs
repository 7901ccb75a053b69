//! A WebSocket in a coroutine: messages as an iterator, and sending that waits.
//!
//! The connection goes on in callbacks; what is said waits in an inbox, which is short: whoever does not take what
//! is there is not sent more.

use super::handler::{Handler, Peer, checked};
use super::line::{FRAGMENT_BYTES, Line, Phase};
use super::{Close, CloseCode, Encoded, End, Handle, Message};
use coracle_loop::Loop;
use coracle_net::Conn;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// So many messages, and so many bytes of them, wait until they are taken; then the peer is not heard.
const LIMIT_INBOX: usize = 16;
const LIMIT_INBOX_BYTES: usize = 64 << 10;

/// A WebSocket, for a coroutine. Loop thread only; what waits, waits in its coroutine only.
///
/// ```
/// use coracle_http::ws::WebSocket;
/// use std::io;
///
/// fn shout(ws: &WebSocket) -> io::Result<()> {
///     for message in ws {
///         match message?.as_text() {
///             Some("bye") => break,
///             Some(text) => ws.send(text.to_uppercase())?,
///             None => ws.send("only words, please")?,
///         }
///     }
///     Ok(())
/// }
/// # let _ = shout;
/// ```
///
/// When its last owner is gone it is closed (1000).
#[derive(Clone)]
pub struct WebSocket {
    owner: Rc<Owner>,
}

/// Whoever has one of these has the socket: closed when the last is gone.
struct Owner {
    line: Arc<Line>,
    inbox: Rc<Inbox>,
}

/// What was said and not taken.
#[derive(Default)]
pub(super) struct Inbox {
    messages: RefCell<VecDeque<Message>>,
    bytes: std::cell::Cell<usize>,
}

impl Inbox {
    fn is_full(&self) -> bool {
        self.messages.borrow().len() >= LIMIT_INBOX || self.bytes.get() >= LIMIT_INBOX_BYTES
    }

    fn push(&self, message: Message) {
        self.bytes.set(self.bytes.get() + message.len());
        self.messages.borrow_mut().push_back(message);
    }

    fn pop(&self) -> Option<Message> {
        let message = self.messages.borrow_mut().pop_front()?;
        self.bytes.set(self.bytes.get() - message.len());
        Some(message)
    }
}

/// Puts what is said into an inbox.
pub(super) struct Mailbox {
    pub(super) inbox: Rc<Inbox>,
    /// What is done when the socket is there.
    pub(super) start: Option<Box<dyn FnOnce(WebSocket)>>,
}

impl Handler for Mailbox {
    fn on_open(&mut self, peer: &mut Peer<'_>) -> io::Result<()> {
        if let Some(start) = self.start.take() {
            start(WebSocket::new(Arc::clone(peer.line), Rc::clone(&self.inbox)));
        }
        Ok(())
    }

    fn on_message(&mut self, peer: &mut Peer<'_>, message: Message) -> io::Result<()> {
        self.inbox.push(message);
        if self.inbox.is_full() {
            peer.pause();
        }
        peer.line.wake();
        Ok(())
    }
}

impl WebSocket {
    pub(super) fn new(line: Arc<Line>, inbox: Rc<Inbox>) -> WebSocket {
        WebSocket { owner: Rc::new(Owner { line, inbox }) }
    }

    /// Waits for the next message; `None` when it was closed in order, by either side.
    ///
    /// # Errors
    /// - `InvalidData`: the peer has broken the rules, and was told so.
    /// - `TimedOut`: the peer does not answer pings.
    /// - `ConnectionReset`: the connection is gone, and nobody had closed it.
    /// - `ECANCELED`, and `TimedOut` too: as for all waits. The socket can be used on.
    pub fn recv(&self) -> io::Result<Option<Message>> {
        let Owner { line, inbox } = &*self.owner;
        loop {
            if let Some(message) = inbox.pop() {
                if line.is_paused() && !inbox.is_full() {
                    line.reach(|conn| line.resume(conn));
                }
                return Ok(Some(message));
            }
            if line.has_last() {
                line.reach(|conn| line.take_last(conn));
            }
            match line.end() {
                Some(End::Closed(_)) => return Ok(None),
                Some(end) => return Err(end.to_error()),
                None if line.phase() != Phase::Open => return Ok(None), // we say and hear no more
                None => line.wait()?,
            }
        }
    }

    /// Sends a message; waits while too much waits for the peer. One of more than a mebibyte goes in several
    /// frames.
    ///
    /// # Errors
    /// `BrokenPipe` if it is closed; else as [`recv`](WebSocket::recv).
    pub fn send(&self, message: impl Into<Message>) -> io::Result<()> {
        let message = message.into();
        let line = &self.owner.line;
        if message.len() > FRAGMENT_BYTES {
            return self.send_fragments(message);
        }
        self.with_room(false, |conn| line.send(conn, message))
    }

    /// Sends a message that many are sent, which was encoded once.
    ///
    /// # Errors
    /// As [`send`](WebSocket::send).
    pub fn send_encoded(&self, message: &Encoded) -> io::Result<()> {
        self.with_room(false, |conn| self.owner.line.send_encoded(conn, message))
    }

    /// Asks the peer to show that it is there, by a ping of at most 125 bytes. That is done by itself, too, when
    /// nothing was heard of it for a [while](super::Settings::ping_interval).
    ///
    /// # Errors
    /// `InvalidInput` if there are too many bytes; `BrokenPipe` if it is closed.
    pub fn ping(&self, payload: &[u8]) -> io::Result<()> {
        self.reach(|conn| self.owner.line.ping(conn, payload))
    }

    /// Says that nothing more is said, and waits until the peer has said the same, or its
    /// [time](super::Settings::close_timeout) is over. What it says meanwhile is not heard any more.
    ///
    /// # Errors
    /// As [`recv`](WebSocket::recv).
    ///
    /// # Panics
    /// When the code is none that [can be sent](CloseCode::can_be_sent).
    pub fn close(&self, close: impl Into<Close>) -> io::Result<()> {
        let (line, close) = (&self.owner.line, checked(close.into()));
        line.reach(|conn| line.close(conn, close));
        loop {
            match line.end() {
                Some(End::Closed(_)) => return Ok(()),
                Some(end) => return Err(end.to_error()),
                None => line.wait()?,
            }
        }
    }

    /// Whether messages can be sent: nobody has closed it.
    pub fn is_open(&self) -> bool {
        self.owner.line.phase() == Phase::Open
    }

    /// How it has ended, if it has.
    pub fn end(&self) -> Option<End> {
        self.owner.line.end()
    }

    /// The sub-protocol that was agreed on.
    pub fn subprotocol(&self) -> Option<&str> {
        self.owner.line.subprotocol.as_deref()
    }

    /// A name for this WebSocket that can be kept and sent to other threads.
    pub fn handle(&self) -> Handle {
        let line = &self.owner.line;
        let lp = Loop::current().expect("a WebSocket is used on its loop");
        let conn = line.conn().expect("it was opened").clone();
        Handle::new(conn, lp.handle(), Arc::clone(line))
    }

    /// Two halves, for a reader and a writer that are coroutines of their own.
    ///
    /// ```
    /// use coracle_coro::{race, sync::Receiver};
    /// use coracle_http::ws::WebSocket;
    /// use std::io;
    ///
    /// fn relay(ws: &WebSocket, news: &Receiver<String>) -> io::Result<()> {
    ///     let (receiver, sender) = ws.split();
    ///     let reading = || receiver.into_iter().try_for_each(|message| message.map(drop));
    ///     let writing = || news.iter().try_for_each(|text| sender.send(text));
    ///     race(reading, writing) // when one ends, so does the other
    /// }
    /// # let _ = relay;
    /// ```
    pub fn split(&self) -> (Receiver, Sender) {
        (Receiver(self.clone()), Sender(self.clone()))
    }

    /// Messages, one after the other, until it is closed. An error is the last item.
    pub fn messages(&self) -> Messages<'_> {
        Messages { ws: self, over: false }
    }

    /// The connection, for a moment.
    fn reach(&self, f: impl FnOnce(&mut Conn<'_>) -> io::Result<()>) -> io::Result<()> {
        let line = &self.owner.line;
        line.reach(f).unwrap_or_else(|| Err(line.closed_error()))
    }

    /// Calls `f` with the connection when there is room, and nobody is in the middle of a message; or, `amid` one
    /// of ours, when there is room.
    fn with_room<T>(
        &self,
        amid: bool,
        f: impl FnOnce(&mut Conn<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let line = &self.owner.line;
        let mut f = Some(f);
        loop {
            let done = line.reach(|conn| {
                let free = conn.writable() && (amid || line.may_send());
                let f = f.take_if(|_| free || line.phase() != Phase::Open)?;
                Some(f(conn)) // if it is closed, that is what it says
            });
            match done {
                None => return Err(line.closed_error()),
                Some(Some(result)) => return result,
                Some(None) => line.wait()?,
            }
        }
    }

    /// Sends a long message piece by piece. One that cannot be sent to its end is the end of the socket.
    fn send_fragments(&self, message: Message) -> io::Result<()> {
        let line = &self.owner.line;
        let payload = self.with_room(false, |_| line.begin_fragments(message))?;
        let mut next = Some(0);
        while let Some(begin) = next {
            match self.with_room(true, |conn| line.send_fragment(conn, &payload, begin)) {
                Ok(then) => next = then,
                Err(error) => {
                    self.close_later(CloseCode::INTERNAL_ERROR.into());
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Begins to close it, and does not wait.
    pub(super) fn close_later(&self, close: Close) {
        self.owner.close_later(close);
    }
}

impl Owner {
    fn close_later(&self, close: Close) {
        if self.line.phase() != Phase::Open {
            return;
        }
        // It may be in a callback of its own right now.
        if let Some(lp) = Loop::current() {
            let line = Arc::clone(&self.line);
            lp.defer(move |_| {
                line.reach(|conn| line.close(conn, close)); // or it is gone
            });
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.close_later(CloseCode::NORMAL.into());
    }
}

impl<'a> IntoIterator for &'a WebSocket {
    type Item = io::Result<Message>;
    type IntoIter = Messages<'a>;

    fn into_iter(self) -> Messages<'a> {
        self.messages()
    }
}

/// The messages of a [`WebSocket`], as they come.
#[derive(Debug)]
pub struct Messages<'a> {
    ws: &'a WebSocket,
    over: bool,
}

impl Iterator for Messages<'_> {
    type Item = io::Result<Message>;

    fn next(&mut self) -> Option<io::Result<Message>> {
        if self.over {
            return None;
        }
        let next = self.ws.recv().transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// The half of a WebSocket that hears. See [`WebSocket::split`].
#[derive(Debug)]
pub struct Receiver(WebSocket);

/// The half of a WebSocket that speaks. See [`WebSocket::split`].
#[derive(Debug, Clone)]
pub struct Sender(WebSocket);

impl Receiver {
    /// As [`WebSocket::recv`].
    ///
    /// # Errors
    /// As there.
    pub fn recv(&self) -> io::Result<Option<Message>> {
        self.0.recv()
    }
}

impl<'a> IntoIterator for &'a Receiver {
    type Item = io::Result<Message>;
    type IntoIter = Messages<'a>;

    fn into_iter(self) -> Messages<'a> {
        self.0.messages()
    }
}

impl Sender {
    /// As [`WebSocket::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&self, message: impl Into<Message>) -> io::Result<()> {
        self.0.send(message)
    }

    /// As [`WebSocket::send_encoded`].
    ///
    /// # Errors
    /// As there.
    pub fn send_encoded(&self, message: &Encoded) -> io::Result<()> {
        self.0.send_encoded(message)
    }

    /// As [`WebSocket::close`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn close(&self, close: impl Into<Close>) -> io::Result<()> {
        self.0.close(close)
    }
}

impl fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocket").field("line", &self.owner.line).finish_non_exhaustive()
    }
}
