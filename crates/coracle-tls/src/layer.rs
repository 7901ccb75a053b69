//! TLS between the bytes of a socket and those of a protocol, without I/O.
//!
//! ```text
//!   wire ─► whole records ─► rustls ─► plain          one record at a time until the handshake is done
//!                              │ reply
//!   wire ◄───────────────────  rustls ◄─ plain        records of 16 KiB, straight into what is sent
//! ```
//!
//! rustls gets whole records only. So what waits for its end waits in the connection's own buffer, where it counts,
//! and what rustls has in its buffers between two of them is little.

use crate::ServerTls;
use crate::server::{Current, Underway};
use crate::{Session, identity::wrong};
use coracle_net::{Buffer, Layer};
use rustls::{ClientConnection, Connection, ServerConnection};
use std::fmt;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

/// How many bytes a peer may send before the handshake is done. Chains of certificates have some.
const LIMIT_HANDSHAKE_BYTES: usize = 64 << 10;

/// In how many records. A peer that cuts what it says into bytes is not waited for.
const LIMIT_HANDSHAKE_RECORDS: usize = 64;

/// The longest record there is: RFC 5246 6.2.3 (TLS 1.3 has shorter ones).
const LIMIT_RECORD_BYTES: usize = (16 << 10) + 2048;

/// The head of a record: its kind, a version, its length.
const HEAD_BYTES: usize = 5;

/// After how much is decrypted it is seen whether the protocol still wants more.
const PIECE_BYTES: usize = 64 << 10;

/// Encryption of one connection, by TLS. [`ServerTls::layer`] and [`ClientTls::layer`](crate::ClientTls::layer)
/// make one.
///
/// The end of the stream is the peer's `close_notify`. If the wire ends without one, the connection ends with
/// `UnexpectedEof`: something may be missing.
pub struct TlsLayer {
    state: State,
    /// The peer has said that nothing more comes.
    ended: bool,
    handshake: Option<Box<Handshake>>,
    session: Option<Arc<Session>>,
}

enum State {
    /// A server whose client has said nothing.
    Silent(ServerTls, Arc<Current>),
    Open(Box<Connection>),
    /// It has failed.
    Over,
}

/// What is wanted until the handshake is done.
#[derive(Default)]
struct Handshake {
    bytes: usize,
    records: usize,
    server: Option<Arc<Current>>,
    underway: Option<Underway>,
    plain_answer: &'static [u8],
    ready: Option<Box<dyn FnOnce(&Arc<Session>)>>,
}

impl TlsLayer {
    pub(crate) fn server(tls: ServerTls, current: Arc<Current>) -> TlsLayer {
        TlsLayer::new(State::Silent(tls, current))
    }

    pub(crate) fn client(connection: ClientConnection) -> TlsLayer {
        TlsLayer::new(State::Open(Box::new(Connection::Client(connection))))
    }

    fn new(state: State) -> TlsLayer {
        TlsLayer { state, ended: false, handshake: Some(Box::default()), session: None }
    }

    /// What a client is told that does not speak TLS, but something in letters, as HTTP is.
    #[must_use]
    pub fn plain_answer(mut self, answer: &'static [u8]) -> TlsLayer {
        if let Some(handshake) = &mut self.handshake {
            handshake.plain_answer = answer;
        }
        self
    }

    /// Calls `callback` when the handshake is done. It is called inside the layer, where the connection cannot be
    /// reached: [defer](coracle_loop::Loop::defer) what concerns it.
    #[must_use]
    pub fn on_ready(mut self, callback: impl FnOnce(&Arc<Session>) + 'static) -> TlsLayer {
        if let Some(handshake) = &mut self.handshake {
            handshake.ready = Some(Box::new(callback));
        }
        self
    }

    /// What was agreed upon, once the handshake is done.
    pub fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    /// How long the handshake of a server's connection may take.
    pub(crate) fn handshake_timeout(&self) -> Option<Duration> {
        match &self.state {
            State::Silent(_, current) => Some(current.settings.handshake_timeout),
            State::Open(_) | State::Over => None,
        }
    }

    /// The connection, from the first byte of the client on.
    fn open(&mut self, wire: &Buffer, reply: &mut Vec<u8>) -> io::Result<Option<&mut Connection>> {
        if let State::Silent(tls, current) = &self.state {
            let Some(&first) = wire.unread().first() else { return Ok(None) };
            let handshake = self.handshake.get_or_insert_default();
            if first != CONTENT_HANDSHAKE {
                if first.is_ascii_alphabetic() {
                    reply.extend_from_slice(handshake.plain_answer);
                }
                self.state = State::Over;
                return Err(wrong("the client does not speak TLS"));
            }
            if whole_record(wire.unread())?.is_none() {
                return Ok(None); // it costs nothing yet
            }
            let Some(underway) = tls.begin_handshake(current.settings.limit_handshakes) else {
                self.state = State::Over;
                return Err(io::Error::other(
                    "there are too many handshakes under way (limit_handshakes)",
                ));
            };
            let connection = ServerConnection::new(Arc::clone(&current.config));
            let connection =
                connection.map_err(|error| wrong(format!("TLS cannot begin: {error}")))?;
            handshake.underway = Some(underway);
            handshake.server = Some(Arc::clone(current));
            self.state = State::Open(Box::new(Connection::Server(connection)));
        }
        match &mut self.state {
            State::Open(connection) => Ok(Some(connection)),
            State::Silent(..) | State::Over => Err(wrong("TLS is over")),
        }
    }

    /// The first record of `wire`: decrypted, acted upon, and behind `plain` if it is for the protocol.
    fn take_record(&mut self, len: usize, wire: &mut Buffer, plain: &mut Buffer) -> io::Result<()> {
        let State::Open(connection) = &mut self.state else { return Ok(()) };
        if let Some(handshake) = &mut self.handshake {
            handshake.bytes += len;
            handshake.records += 1;
            if handshake.bytes > LIMIT_HANDSHAKE_BYTES
                || handshake.records > LIMIT_HANDSHAKE_RECORDS
            {
                return Err(wrong("the peer's handshake is too long, or in too many pieces"));
            }
        }
        let mut record = &wire.unread()[..len];
        while !record.is_empty() {
            connection.read_tls(&mut record)?;
            let now = connection.process_new_packets().map_err(told)?;
            if now.plaintext_bytes_to_read() > 0 {
                take_plain(connection, plain)?;
            }
            self.ended |= now.peer_has_closed();
        }
        wire.consume(len);
        Ok(())
    }

    /// The handshake is done: notes what it has led to, and lets go of what it needed.
    fn finish_handshake(&mut self) {
        let State::Open(connection) = &mut self.state else { return };
        if connection.is_handshaking() {
            return;
        }
        let Some(handshake) = self.handshake.take() else { return };
        let Handshake { server, ready, .. } = *handshake;
        let names = server.map(|server| Arc::clone(&server.names));
        let session = Arc::new(Session::of(connection, names));
        if let Some(ready) = ready {
            ready(&session);
        }
        self.session = Some(session);
    }

    /// Adds what rustls has to send to `out`.
    fn flush(&mut self, out: &mut Vec<u8>) {
        if let State::Open(connection) = &mut self.state {
            flush(connection, out);
        }
    }
}

/// The kind of record that a handshake begins with.
const CONTENT_HANDSHAKE: u8 = 22;

/// How long the first record is, if all of it is there.
fn whole_record(wire: &[u8]) -> io::Result<Option<usize>> {
    let Some(&[kind, major, _, high, low]) = wire.first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    if !(20..=24).contains(&kind) || major != 3 || len > LIMIT_RECORD_BYTES {
        return Err(wrong("what the peer sends is not TLS"));
    }
    Ok((wire.len() >= HEAD_BYTES + len).then_some(HEAD_BYTES + len))
}

fn take_plain(connection: &mut Connection, plain: &mut Buffer) -> io::Result<()> {
    let mut reader = connection.reader();
    loop {
        let len = match reader.fill_buf() {
            Ok([]) => return Ok(()),
            Ok(piece) => {
                plain.extend_from_slice(piece);
                piece.len()
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        reader.consume(len);
    }
}

fn flush(connection: &mut Connection, out: &mut Vec<u8>) {
    while connection.wants_write() {
        // A vector takes everything.
        if !connection.write_tls(out).is_ok_and(|written| written > 0) {
            break;
        }
    }
}

/// The error of rustls, as one of I/O.
fn told(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Layer for TlsLayer {
    fn receive(
        &mut self,
        wire: &mut Buffer,
        plain: &mut Buffer,
        reply: &mut Vec<u8>,
    ) -> io::Result<()> {
        if self.open(wire, reply)?.is_none() {
            return Ok(());
        }
        let enough = plain.len() + PIECE_BYTES;
        let mut result = Ok(true);
        while !self.ended && plain.len() < enough && result.is_ok() {
            result = whole_record(wire.unread()).and_then(|len| match len {
                Some(len) => self.take_record(len, wire, plain).map(|()| true),
                None => Ok(false),
            });
            if self.handshake.is_some() {
                self.finish_handshake();
            }
            if matches!(result, Ok(false)) {
                break;
            }
        }
        self.flush(reply); // an alert too, if it has failed
        if result.is_err() {
            self.state = State::Over;
            self.handshake = None;
        }
        result.map(drop)
    }

    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
        let State::Open(connection) = &mut self.state else { return Ok(0) };
        if connection.is_handshaking() {
            return Ok(0);
        }
        let taken = connection.writer().write(plain)?;
        flush(connection, wire);
        Ok(taken)
    }

    fn is_ready(&self) -> bool {
        match &self.state {
            State::Open(connection) => !connection.is_handshaking(),
            State::Silent(..) | State::Over => false,
        }
    }

    fn end(&mut self, wire: &mut Vec<u8>) {
        if let State::Open(connection) = &mut self.state {
            connection.send_close_notify();
            flush(connection, wire);
        }
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn wire_ended(&mut self, unread: usize) -> io::Result<()> {
        if matches!(self.state, State::Silent(..)) && unread == 0 {
            return Ok(()); // somebody has looked whether there is anybody
        }
        let what = match self.session {
            Some(_) => {
                "the peer ended the connection without saying so by TLS (close_notify): something may be missing"
            }
            None => "the peer ended the connection in the middle of the handshake",
        };
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
    }
}

impl fmt::Debug for TlsLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsLayer").field("session", &self.session).finish_non_exhaustive()
    }
}
