//! TLS over anything that is read and written: a socket of a coroutine's, or of std's.

use crate::{Session, TlsLayer};
use coracle_net::{Buffer, Layer};
use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

/// How much is read from the socket at once, when nothing is on its way: who waits holds so much.
const FIRST_READ_BYTES: usize = 2 << 10;

/// The same when more is: a record and its head.
const READ_BYTES: usize = (16 << 10) + 256;

/// How much is encrypted before it is written to the socket.
const WRITE_BYTES: usize = 64 << 10;

/// A stream that is encrypted. [`ServerTls::accept`](crate::ServerTls::accept) and
/// [`ClientTls::connect`](crate::ClientTls::connect) make one, over `coracle::coro::net::TcpStream` or any other
/// that implements [`Read`] and [`Write`].
///
/// Reading ends (0 bytes) when the peer has said so; if the socket ends without that, the read fails with
/// `UnexpectedEof`. What is written is sent at once. Say the end by [`close`](TlsStream::close): dropping the
/// stream does not.
pub struct TlsStream<S> {
    socket: S,
    layer: TlsLayer,
    /// What came and is not a whole record.
    wire: Buffer,
    plain: Buffer,
    /// What is encrypted and not written, because the socket has failed before.
    out: Vec<u8>,
    /// How much to read next.
    ask: usize,
    closed: bool,
}

impl<S: Read + Write> TlsStream<S> {
    pub(crate) fn new(layer: TlsLayer, socket: S) -> io::Result<TlsStream<S>> {
        let (wire, plain) = (Buffer::new(), Buffer::new());
        let mut stream = TlsStream {
            socket,
            layer,
            wire,
            plain,
            out: Vec::new(),
            ask: FIRST_READ_BYTES,
            closed: false,
        };
        stream.decode()?;
        while !stream.layer.is_ready() {
            stream.fill()?;
        }
        Ok(stream)
    }

    /// What was agreed upon.
    pub fn session(&self) -> &Arc<Session> {
        self.layer.session().expect("the handshake is done")
    }

    /// The socket. What is read or written there is not encrypted.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// Says that nothing more will be written. The peer can still be read.
    ///
    /// # Errors
    /// Of the socket.
    pub fn close(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.closed, true) {
            self.layer.end(&mut self.out);
        }
        self.send()?;
        self.socket.flush()
    }

    /// Gets more from the socket and through the layer.
    fn fill(&mut self) -> io::Result<()> {
        let count = loop {
            match self.socket.read(self.wire.reserve(self.ask)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(count) => break count,
                Err(error) => {
                    self.wire.commit(0);
                    return Err(error);
                }
            }
        };
        self.wire.commit(count);
        self.ask = if count == self.ask { READ_BYTES } else { FIRST_READ_BYTES };
        if count == 0 {
            self.layer.wire_ended(self.wire.len())?;
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.decode()
    }

    fn decode(&mut self) -> io::Result<()> {
        let decoded = self.layer.receive(&mut self.wire, &mut self.plain, &mut self.out);
        if self.closed {
            self.out.clear(); // we have nothing more to say
        }
        let sent = self.send();
        decoded.and(sent)
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            match self.socket.write(&self.out) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) if count == self.out.len() => self.out.clear(),
                Ok(count) => _ = self.out.drain(..count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.out.capacity() > READ_BYTES {
            self.out = Vec::new();
        }
        Ok(())
    }
}

impl<S: Read + Write> Read for TlsStream<S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        while self.plain.is_empty() {
            if self.layer.has_ended() {
                return Ok(0);
            }
            self.plain = Buffer::new();
            if self.wire.is_empty() {
                self.wire = Buffer::new();
            }
            self.fill()?;
        }
        let count = buf.len().min(self.plain.len());
        buf[..count].copy_from_slice(&self.plain.unread()[..count]);
        self.plain.consume(count);
        Ok(count)
    }
}

impl<S: Read + Write> Write for TlsStream<S> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.send()?;
        let taken = self.layer.send(&buf[..buf.len().min(WRITE_BYTES)], &mut self.out)?;
        // Taken is taken, and cannot be told again: an error of the socket is told by the next call.
        match self.send() {
            Err(error) if taken == 0 => Err(error),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()?;
        self.socket.flush()
    }
}

impl<S> fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("session", &self.layer.session()).finish_non_exhaustive()
    }
}
