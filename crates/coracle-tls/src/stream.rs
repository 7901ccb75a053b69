//! TLS over anything that is read and written: a socket of a coroutine's, or of std's.

use crate::engine::Engine;
use crate::{Session, TlsLayer};
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
    engine: Engine,
    /// What came and is not a whole record.
    wire: Vec<u8>,
    /// What is decrypted, of which so much was read.
    plain: Vec<u8>,
    read: usize,
    /// What is encrypted and not written, because the socket has failed before.
    out: Vec<u8>,
    /// How much to ask the socket for next.
    ask: usize,
    closed: bool,
}

impl<S: Read + Write> TlsStream<S> {
    pub(crate) fn new(engine: Engine, socket: S) -> io::Result<TlsStream<S>> {
        let mut stream = TlsStream {
            socket,
            engine,
            wire: Vec::new(),
            plain: Vec::new(),
            read: 0,
            out: Vec::new(),
            ask: FIRST_READ_BYTES,
            closed: false,
        };
        stream.decode()?;
        while !stream.engine.is_ready() {
            stream.fill()?;
        }
        Ok(stream)
    }

    /// What was agreed upon.
    pub fn session(&self) -> &Arc<Session> {
        self.engine.session().expect("the handshake is done")
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
            self.engine.end(&mut self.out);
        }
        self.send()?;
        self.socket.flush()
    }

    /// Gives up the stream: its socket, a layer that goes on with what was agreed upon, for a connection on that
    /// socket, and what came and was not read. What is still to be sent must have been
    /// [flushed](Write::flush).
    ///
    /// ```
    /// use coracle_net::{Buffer, Conn, Layered, attach};
    /// # use coracle_tls::{ClientSettings, ClientTls, Identity, Roots, ServerTls};
    /// # use std::io::{Read, Write};
    /// # use std::net::{TcpListener, TcpStream};
    /// use std::os::fd::OwnedFd;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let identity = Identity::self_signed(["localhost"])?;
    /// # let tls = ClientTls::new(ClientSettings::trusting(Roots::identity(&identity)?))?;
    /// # let server = ServerTls::new(identity)?;
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let address = listener.local_addr()?;
    /// # let serving = std::thread::spawn(move || {
    /// #     let mut stream = server.accept(listener.accept()?.0)?;
    /// #     stream.write_all(b"welcome\n")?;
    /// #     let mut question = [0; 5];
    /// #     stream.read_exact(&mut question)?;
    /// #     assert_eq!(&question, b"ahoy?");
    /// #     stream.write_all(b"ahoy!")?;
    /// #     stream.close()
    /// # });
    /// // Hands are shaken and the first words exchanged in blocking code …
    /// let mut stream = tls.connect("localhost", TcpStream::connect(address)?)?;
    /// let mut welcome = [0; 8];
    /// stream.read_exact(&mut welcome)?;
    /// stream.write_all(b"ahoy?")?;
    /// stream.flush()?;
    ///
    /// // … and the rest is for callbacks, encrypted as before.
    /// let (socket, layer, unread) = stream.into_layer();
    /// assert!(unread.is_empty()); // or it is what the protocol begins with
    /// let lp = coracle_loop::Loop::new()?;
    /// let socket = lp.adopt(OwnedFd::from(socket))?;
    /// let hear = |conn: &mut Conn<'_>, input: &mut Buffer| {
    ///     if input.len() == 5 {
    ///         assert_eq!(input.unread(), b"ahoy!");
    ///         conn.lp().stop();
    ///     }
    ///     Ok(())
    /// };
    /// attach(&lp, socket, coracle_net::Settings::default(), Layered::new(layer, hear))?;
    /// lp.run()?;
    /// # serving.join().unwrap()
    /// # }
    /// ```
    pub fn into_layer(mut self) -> (S, TlsLayer, Vec<u8>) {
        let unread = self.plain.split_off(self.read);
        (self.socket, TlsLayer::going_on(self.engine, self.wire), unread)
    }

    /// Gets more from the socket, and decrypts it.
    fn fill(&mut self) -> io::Result<()> {
        let before = self.wire.len();
        self.wire.resize(before + self.ask, 0);
        let got = loop {
            match self.socket.read(&mut self.wire[before..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                got => break got,
            }
        };
        self.wire.truncate(before + *got.as_ref().unwrap_or(&0));
        match got? {
            0 => return Err(self.engine.cut_off()),
            count => self.ask = if count == self.ask { READ_BYTES } else { FIRST_READ_BYTES },
        }
        self.decode()
    }

    fn decode(&mut self) -> io::Result<()> {
        let plain = &mut self.plain;
        let mut take = |piece: &[u8]| plain.extend_from_slice(piece);
        let before = self.out.len();
        let (taken, decoded) = self.engine.receive(&self.wire, &mut take, &mut self.out, b"");
        self.wire.drain(..taken);
        if self.closed {
            self.out.truncate(before); // we have nothing more to say
        }
        match self.send() {
            // Who reads gets what was received: that the answer to it did not go out is told to who writes.
            Err(_) if self.read < self.plain.len() || self.engine.has_ended() => decoded,
            sent => decoded.and(sent),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            match self.socket.write(&self.out) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => _ = self.out.drain(..count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        shrink(&mut self.out);
        Ok(())
    }
}

/// Gives back what a stream that waits need not have.
fn shrink(buffer: &mut Vec<u8>) {
    if buffer.is_empty() && buffer.capacity() > FIRST_READ_BYTES {
        *buffer = Vec::new();
    }
}

impl<S: Read + Write> Read for TlsStream<S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        while self.read == self.plain.len() {
            if self.engine.has_ended() {
                return Ok(0);
            }
            self.plain.clear();
            self.read = 0;
            if self.ask == FIRST_READ_BYTES {
                shrink(&mut self.plain);
                shrink(&mut self.wire);
            }
            self.fill()?;
        }
        let unread = &self.plain[self.read..];
        let count = buf.len().min(unread.len());
        buf[..count].copy_from_slice(&unread[..count]);
        self.read += count;
        Ok(count)
    }
}

impl<S: Read + Write> Write for TlsStream<S> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.send()?;
        let taken = self.engine.send(&buf[..buf.len().min(WRITE_BYTES)], &mut self.out)?;
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
        f.debug_struct("TlsStream").field("session", &self.engine.session()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientSettings, ClientTls, Identity, Roots, ServerTls};
    use std::os::unix::net::UnixStream;

    #[test]
    fn m1_stream_goes_where_its_socket_goes() {
        fn is_send<T: Send>() {}
        is_send::<TlsStream<std::net::TcpStream>>();
    }

    /// A socket that may have no room for now.
    struct Narrow {
        socket: UnixStream,
        is_full: bool,
    }

    impl Read for Narrow {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.socket.read(buf)
        }
    }

    impl Write for Narrow {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            match self.is_full {
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => self.socket.write(buf),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn m4_what_was_written_is_sent_though_the_close_fails_first() {
        let identity = Identity::self_signed(["localhost"]).unwrap();
        let roots = Roots::identity(&identity).unwrap();
        let client = ClientTls::new(ClientSettings::trusting(roots)).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (leave, gone) = std::sync::mpsc::channel::<()>();
        let server = std::thread::spawn(move || {
            let mut stream = ServerTls::new(identity).unwrap().accept(theirs).unwrap();
            stream.write_all(b"ahoy").unwrap();
            gone.recv().unwrap_err(); // nobody is there to hear what this side answers to the close
            let mut all = Vec::new();
            stream.read_to_end(&mut all).map(|_| all)
        });
        let socket = Narrow { socket: ours, is_full: false };
        let mut stream = client.connect("localhost", socket).unwrap();
        stream.socket.is_full = true;
        assert_eq!(stream.write(b"the last words").unwrap(), 14);
        assert!(stream.close().is_err());
        let mut greeting = [0; 4];
        while stream.read(&mut greeting).is_err() {} // which tries to send, too
        assert_eq!(&greeting, b"ahoy");
        stream.socket.is_full = false;
        stream.close().unwrap();
        drop(stream);
        drop(leave);
        assert_eq!(server.join().unwrap().unwrap(), b"the last words");
    }
}
