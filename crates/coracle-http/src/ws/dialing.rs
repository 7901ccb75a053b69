//! The protocol of a connection on which a WebSocket was asked for, until that is answered.

use super::line::Line;
use super::wire::Wire;
use super::{Handle, Handler, Role, Settings, extension, handshake};
use crate::Headers;
use coracle_coro::Coroutine;
use coracle_net::{Buffer, Conn, Protocol, Reason};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// So long may the head of an answer be, and so many fields may it have.
const LIMIT_ANSWER_BYTES: usize = 16 << 10;
const LIMIT_ANSWER_FIELDS: usize = 64;

/// Where a callback leaves something for a coroutine that waits for it.
pub(super) struct Slot<T>(RefCell<State<T>>);

enum State<T> {
    Empty(Option<Coroutine>),
    Full(io::Result<T>),
    /// It was taken, or nobody waits any more.
    Over,
}

impl<T> Slot<T> {
    pub(super) fn new() -> Rc<Slot<T>> {
        Rc::new(Slot(RefCell::new(State::Empty(None))))
    }

    /// Puts it there; gives it back if nobody wants it.
    pub(super) fn put(&self, value: io::Result<T>) -> Result<(), io::Result<T>> {
        let mut state = self.0.borrow_mut();
        match &mut *state {
            State::Empty(waiting) => {
                let waiting = waiting.take();
                *state = State::Full(value);
                drop(state);
                waiting.iter().for_each(Coroutine::unpark);
                Ok(())
            }
            State::Full(_) | State::Over => Err(value),
        }
    }

    /// Waits for it.
    pub(super) fn wait(&self) -> io::Result<T> {
        loop {
            let state = self.0.replace(State::Over);
            match state {
                State::Full(value) => return value,
                State::Over => return Err(io::ErrorKind::BrokenPipe.into()),
                State::Empty(_) => {}
            }
            self.0.replace(State::Empty(Some(coracle_coro::current())));
            if let Err(error) = coracle_coro::park() {
                // What has come meanwhile is not lost.
                return match self.0.replace(State::Over) {
                    State::Full(value) => value,
                    State::Empty(_) | State::Over => Err(error),
                };
            }
        }
    }
}

/// Asks for a WebSocket, and looks at the answer.
pub(super) struct Dialing<H> {
    request: Vec<u8>,
    key: String,
    subprotocols: Vec<String>,
    settings: Settings,
    /// Until it is switched to; and whether it hears all in order.
    handler: Option<H>,
    in_order: bool,
    answer: Rc<Slot<Handle>>,
}

impl<H: Handler> Dialing<H> {
    pub(super) fn new(
        host: &str,
        target: &str,
        headers: &Headers,
        subprotocols: Vec<String>,
        settings: Settings,
        (handler, in_order): (H, bool),
        answer: Rc<Slot<Handle>>,
    ) -> Dialing<H> {
        let key = handshake::new_key();
        let version = handshake::VERSION;
        let mut request = format!(
            "GET {target} HTTP/1.1\r\nhost: {host}\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
             sec-websocket-version: {version}\r\nsec-websocket-key: {key}\r\n"
        )
        .into_bytes();
        let mut field = |name: &str, value: &[u8]| {
            request.extend_from_slice(name.as_bytes());
            request.extend_from_slice(b": ");
            request.extend_from_slice(value);
            request.extend_from_slice(b"\r\n");
        };
        if !subprotocols.is_empty() {
            field("sec-websocket-protocol", subprotocols.join(", ").as_bytes());
        }
        if let Some(deflate) = &settings.deflate {
            field("sec-websocket-extensions", extension::offer(deflate).as_bytes());
        }
        headers.iter().for_each(|(name, value)| field(name, value));
        request.extend_from_slice(b"\r\n");
        Dialing { request, key, subprotocols, settings, handler: Some(handler), in_order, answer }
    }

    /// What came of it: the line, when the answer is there and is right, and how long the answer is.
    fn look(&self, input: &[u8]) -> Result<Option<(usize, Arc<Line>)>, String> {
        let mut fields = [httparse::EMPTY_HEADER; LIMIT_ANSWER_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let parsed = response.parse(input);
        let len = match parsed.map_err(|error| format!("the answer is not HTTP: {error}"))? {
            httparse::Status::Complete(len) => len,
            httparse::Status::Partial if input.len() > LIMIT_ANSWER_BYTES => {
                return Err("the answer has too long a head".into());
            }
            httparse::Status::Partial => return Ok(None),
        };
        if response.code != Some(101) {
            let reason = response.reason.unwrap_or_default().escape_debug();
            return Err(format!("it was answered {} {reason}", response.code.unwrap_or_default()));
        }
        let mut headers = Headers::new();
        for field in response.headers.iter() {
            let wrong = |_| format!("the answer has a wrong field: {}", field.name.escape_debug());
            headers.append(field.name, field.value).map_err(wrong)?;
        }
        if !headers.has_token("upgrade", "websocket") || !headers.has_token("connection", "upgrade")
        {
            return Err("the answer is another protocol".into());
        }
        let one = |name: &str| {
            let mut values = headers.get_all(name);
            values.next().filter(|_| values.next().is_none()).map(str::to_owned)
        };
        if one("sec-websocket-accept") != Some(handshake::answer_to(&self.key)) {
            return Err("the answer is not to the key that was sent".into());
        }
        let subprotocol = one("sec-websocket-protocol");
        let offered = subprotocol.as_ref().is_some_and(|name| self.subprotocols.contains(name));
        if headers.contains("sec-websocket-protocol") && !offered {
            return Err("the answer has a sub-protocol that was not offered".into());
        }
        let extensions = headers.get_all("sec-websocket-extensions");
        let agreed = extension::accepted(extensions, self.settings.deflate.as_ref())?;
        let subprotocol = subprotocol.map(String::into_boxed_str);
        let settings = self.settings.clone();
        let line = Line::new(Role::Client, settings, agreed, subprotocol, self.in_order);
        Ok(Some((len, line)))
    }
}

impl<H: Handler> Protocol for Dialing<H> {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        conn.write(std::mem::take(&mut self.request));
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        match self.look(input.unread()) {
            Ok(None) => {}
            Ok(Some((len, line))) => {
                let Some(handler) = self.handler.take() else { return Ok(()) };
                input.consume(len);
                let handle = Handle::new(conn.handle(), conn.lp().handle(), Arc::clone(&line));
                line.open(conn);
                if self.answer.put(Ok(handle)).is_err() {
                    conn.abort(); // nobody waits for it any more
                }
                conn.switch(Wire::new(line, handler));
            }
            Err(why) => {
                let _ = self.answer.put(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
                conn.abort();
            }
        }
        Ok(())
    }

    fn on_close(&mut self, reason: &Reason) {
        let (kind, text) = match reason {
            // TLS has an opinion about the server, or the kernel about the connection.
            Reason::Failed(error) => (error.kind(), error.to_string()),
            _ => {
                let text = format!("the connection ended before there was an answer: {reason}");
                (io::ErrorKind::UnexpectedEof, text)
            }
        };
        let _ = self.answer.put(Err(io::Error::new(kind, text)));
    }
}
