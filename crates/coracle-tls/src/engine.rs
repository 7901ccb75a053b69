//! TLS between two sequences of bytes, without I/O: what the layer and the stream have in common.
//!
//! ```text
//!   wire ─► whole records ─► rustls ─► plain          one record at a time, counted until the handshake is done
//!                              │ reply
//!   wire ◄──────────────────  rustls ◄─ plain         records of 16 KiB
//! ```
//!
//! rustls gets whole records only. So what waits for its end waits with who has received it, where it counts, and
//! what rustls has in its buffers between two of them is little.

use crate::identity::wrong;
use crate::server::{Current, Underway};
use crate::strangers::Stranger;
use crate::{ServerTls, Session};
use rustls::{ClientConnection, Connection, ServerConnection};
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

/// The kind of record that a handshake begins with.
const CONTENT_HANDSHAKE: u8 = 22;

/// What is told to a client that asks for a name that nobody here has (RFC 6066, 3): a fatal alert, whose record
/// is plain, since nothing was agreed upon. rustls would say that access is denied.
const UNRECOGNIZED_NAME: &[u8] = &[21, 3, 3, 0, 2, 2, 112];

/// After how much that came it is seen whether more is wanted.
const PIECE_BYTES: usize = 64 << 10;

/// How much rustls keeps to receive into, whatever comes.
const KEPT_BYTES: usize = 4 << 10;

/// One side of a connection.
pub(crate) struct Engine {
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
    /// Counted until this is dropped.
    _underway: Option<Underway>,
}

impl Engine {
    pub(crate) fn server(tls: ServerTls, current: Arc<Current>) -> Engine {
        Engine::new(State::Silent(tls, current))
    }

    pub(crate) fn client(connection: ClientConnection) -> Engine {
        Engine::new(State::Open(Box::new(Connection::Client(connection))))
    }

    fn new(state: State) -> Engine {
        Engine { state, ended: false, handshake: Some(Box::default()), session: None }
    }

    /// What was agreed upon, once the handshake is done.
    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    /// The server that this is a connection of, if it asks clients who they are.
    pub(crate) fn asking(&self) -> Option<&ServerTls> {
        match &self.state {
            State::Silent(tls, current) if current.asks_clients() => Some(tls),
            State::Silent(..) | State::Open(_) | State::Over => None,
        }
    }

    /// How long the handshake of a server's connection may take.
    pub(crate) fn handshake_timeout(&self) -> Option<Duration> {
        match &self.state {
            State::Silent(_, current) => Some(current.settings.handshake_timeout),
            State::Open(_) | State::Over => None,
        }
    }

    /// Takes whole records of `wire`, gives what they say to `plain`, and adds what is to be answered to `reply`.
    /// Says how much it took. A client that speaks no TLS, but in letters, is told `plain_answer`.
    pub(crate) fn receive(
        &mut self,
        wire: &[u8],
        plain: &mut dyn FnMut(&[u8]),
        reply: &mut Vec<u8>,
        plain_answer: &[u8],
    ) -> (usize, io::Result<()>) {
        let mut taken = 0;
        let mut result = self.open(wire, reply, plain_answer);
        let mut more = matches!(result, Ok(true));
        while more && !self.ended && taken < PIECE_BYTES {
            result = whole_record(&wire[taken..]).and_then(|record| match record {
                Some(record) => {
                    self.take_record(record, plain)?;
                    taken += record.len();
                    Ok(true)
                }
                None => Ok(false),
            });
            if self.handshake.is_some() {
                result = result.and_then(|more| self.finish_handshake().map(|()| more));
            }
            more = matches!(result, Ok(true));
        }
        if result.is_err()
            && let Some(name) = self.refused_name()
        {
            reply.extend_from_slice(UNRECOGNIZED_NAME);
            result = Err(wrong(format!("the client asks for {name}, which is no name of ours")));
        } else if let State::Open(connection) = &mut self.state {
            flush(connection, reply); // an alert too, if it has failed
            if taken > KEPT_BYTES {
                // It gives back what a long record took when it is about to read the next one.
                let _ = connection.read_tls(&mut Nothing);
            }
        }
        if result.is_err() {
            self.state = State::Over;
            self.handshake = None;
        }
        (taken, result.map(drop))
    }

    /// Whether there is a connection: from the first record of the client on.
    fn open(&mut self, wire: &[u8], reply: &mut Vec<u8>, plain_answer: &[u8]) -> io::Result<bool> {
        let (tls, current) = match &self.state {
            State::Silent(tls, current) => (tls, current),
            State::Open(_) => return Ok(true),
            State::Over => return Err(wrong("TLS is over")),
        };
        match wire.first() {
            None => return Ok(false),
            Some(&CONTENT_HANDSHAKE) => {}
            Some(other) => {
                if other.is_ascii_alphabetic() {
                    reply.extend_from_slice(plain_answer);
                }
                return Err(wrong("the client does not speak TLS"));
            }
        }
        if whole_record(wire)?.is_none() {
            return Ok(false); // it costs nothing yet
        }
        let Some(underway) = tls.begin_handshake(current.settings.limit_handshakes) else {
            let text = "there are too many handshakes under way (limit_handshakes)";
            return Err(io::Error::other(text));
        };
        let connection = ServerConnection::new(Arc::clone(&current.config));
        let connection = connection.map_err(|error| wrong(format!("TLS cannot begin: {error}")))?;
        let handshake = self.handshake.get_or_insert_default();
        handshake._underway = Some(underway);
        handshake.server = Some(Arc::clone(current));
        self.state = State::Open(Box::new(Connection::Server(connection)));
        Ok(true)
    }

    /// One record: decrypted, acted upon, and given to `plain` if it is for the protocol.
    fn take_record(&mut self, record: &[u8], plain: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let State::Open(connection) = &mut self.state else { return Ok(()) };
        if let Some(handshake) = &mut self.handshake {
            handshake.bytes += record.len();
            handshake.records += 1;
            if handshake.bytes > LIMIT_HANDSHAKE_BYTES
                || handshake.records > LIMIT_HANDSHAKE_RECORDS
            {
                return Err(wrong("the peer's handshake is too long, or in too many pieces"));
            }
        }
        let mut left = record;
        while !left.is_empty() {
            connection.read_tls(&mut left)?;
            let now = match connection.process_new_packets() {
                Ok(now) => now,
                Err(error) => return Err(told(error, connection)),
            };
            if now.plaintext_bytes_to_read() > 0 {
                take_plain(connection, plain)?;
            }
            self.ended |= now.peer_has_closed();
        }
        Ok(())
    }

    /// The name for which a client is refused.
    fn refused_name(&self) -> Option<&str> {
        let State::Open(connection) = &self.state else { return None };
        let Connection::Server(connection) = &**connection else { return None };
        let server = self.handshake.as_ref()?.server.as_ref()?;
        let name = connection.server_name()?;
        (server.settings.refuse_unknown_names && !server.names.has(name)).then_some(name)
    }

    /// If the handshake is done: notes what it has led to, and lets go of what it needed.
    fn finish_handshake(&mut self) -> io::Result<()> {
        let State::Open(connection) = &self.state else { return Ok(()) };
        if connection.is_handshaking() {
            return Ok(());
        }
        let server = self.handshake.take().and_then(|handshake| handshake.server);
        if let Some(server) = &server {
            server.check_resumed(connection).map_err(|error| told(error, connection))?;
        }
        let names = server.map(|server| Arc::clone(&server.names));
        self.session = Some(Arc::new(Session::of(connection, names)));
        Ok(())
    }

    /// Encrypts some of `plain`, behind `wire`; says how much. Nothing before the handshake is done.
    pub(crate) fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
        let State::Open(connection) = &mut self.state else { return Ok(0) };
        if connection.is_handshaking() {
            return Ok(0);
        }
        let taken = connection.writer().write(plain)?;
        flush(connection, wire);
        Ok(taken)
    }

    /// Whether the handshake is done.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(&self.state, State::Open(connection) if !connection.is_handshaking())
    }

    /// Says the end.
    pub(crate) fn end(&mut self, wire: &mut Vec<u8>) {
        if let State::Open(connection) = &mut self.state {
            connection.send_close_notify();
            flush(connection, wire);
        }
    }

    /// Whether the peer has said the end.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Why the wire must not end now, though it has.
    pub(crate) fn cut_off(&self) -> io::Error {
        let what = match self.session {
            Some(_) => {
                "the peer ended the connection without saying so by TLS (close_notify): something may be missing"
            }
            None => "the peer ended the connection in the middle of the handshake",
        };
        io::Error::new(io::ErrorKind::UnexpectedEof, what)
    }
}

/// The first record, if all of it is there.
fn whole_record(wire: &[u8]) -> io::Result<Option<&[u8]>> {
    let Some(&[kind, major, _, high, low]) = wire.first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    if !(20..=24).contains(&kind) || major != 3 || len > LIMIT_RECORD_BYTES {
        return Err(match wire.starts_with(b"HTTP/") {
            true => wrong("the peer speaks plain HTTP here, and not TLS: use http:// in the URL"),
            false => wrong("what the peer sends is not TLS"),
        });
    }
    Ok(wire.get(..HEAD_BYTES + len))
}

/// How much is missing of a record of which there is not all: of its head first.
pub(crate) fn missing_bytes(begun: &[u8]) -> usize {
    let head = HEAD_BYTES.saturating_sub(begun.len());
    match (head, begun) {
        (0, [_, _, _, high, low, body @ ..]) => {
            usize::from(u16::from_be_bytes([*high, *low])).saturating_sub(body.len())
        }
        _ => head,
    }
}

fn take_plain(connection: &mut Connection, plain: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let mut reader = connection.reader();
    loop {
        let len = match reader.fill_buf() {
            Ok([]) => return Ok(()),
            Ok(piece) => {
                plain(piece);
                piece.len()
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        reader.consume(len);
    }
}

/// Adds what rustls has to send to `out`.
fn flush(connection: &mut Connection, out: &mut Vec<u8>) {
    while connection.wants_write() {
        // A vector takes everything.
        if !connection.write_tls(out).is_ok_and(|written| written > 0) {
            break;
        }
    }
}

/// A socket that has nothing now.
struct Nothing;

impl io::Read for Nothing {
    fn read(&mut self, _buf: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// The error of rustls on our side of a connection, as one of I/O; with what to do about it, if that is known.
fn told(error: rustls::Error, ours: &Connection) -> io::Error {
    use rustls::CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext,
        NotValidYet, NotValidYetContext, UnknownIssuer,
    };
    let is_server = matches!(ours, Connection::Server(_));
    let why = match &error {
        rustls::Error::InvalidCertificate(why) => why,
        rustls::Error::NoCertificatesPresented if is_server => {
            return Stranger::error("the client shows no certificate, and has to".to_owned());
        }
        _ => return io::Error::new(io::ErrorKind::InvalidData, error),
    };
    let hint = match why {
        // Another one of the same name has signed it.
        UnknownIssuer | BadSignature if is_server => {
            "nobody who is trusted has signed it: whom to trust is said by `client_roots` in coracle.toml, by \
             `ClientCertificates` in Rust"
        }
        UnknownIssuer | BadSignature => {
            "nobody who is trusted has signed it: if you trust it, or who has signed it, say so by `roots` of the \
             proxy in coracle.toml, by `Roots` in Rust"
        }
        NotValidForName | NotValidForNameContext { .. } => "it is for another host",
        Expired | ExpiredContext { .. } => {
            "it is too old: it has to be renewed, or a clock is wrong"
        }
        NotValidYet | NotValidYetContext { .. } => "it is not valid yet, or a clock is wrong",
        _ if format!("{why:?}").contains("CaUsedAsEndEntity") => {
            "it is that of an authority (CA:TRUE), and cannot be that of a server or a client as well"
        }
        _ => "it is not accepted",
    };
    let text = format!("the certificate of the peer: {hint} ({error})");
    if is_server { Stranger::error(text) } else { wrong(text) }
}
