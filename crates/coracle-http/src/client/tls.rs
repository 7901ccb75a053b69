//! `https`: connections to servers by TLS, which two coroutines may use at once.
//!
//! ```text
//!   read  ◄── TlsStream ◄── Wire::came  ◄── received, when there is nothing to decrypt ──┐
//!   write ──►           ──► Wire::going ──► sent, by one at a time ──────────────────────┴─ socket
//! ```
//!
//! Nobody who waits has the `TlsStream`: it works on memory, and only the socket is waited for.

use super::stream::{Duplex, Parts, Secure, is_quiet};
use coracle_coro::net::TcpStream;
use coracle_coro::sync::Mutex;
use coracle_loop::Loop;
use coracle_tls::{ClientTls, TlsStream};
use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What is spoken above.
const ALPN: &str = "http/1.1";

/// How long a server that takes nothing any more is told the end.
const GOODBYE: Duration = Duration::from_secs(1);

/// How much is encrypted before it is sent.
const PIECE_BYTES: usize = 64 << 10;

/// How much is taken at a time of what nobody reads now.
const LOOK_BYTES: usize = 2 << 10;

/// Trust in whom the system trusts, for those who have not chosen.
///
/// # Errors
/// As [`Roots::system`](coracle_tls::Roots::system).
pub(super) fn usual() -> io::Result<Arc<dyn Secure>> {
    static SYSTEM: OnceLock<ClientTls> = OnceLock::new();
    let tls = match SYSTEM.get() {
        Some(tls) => tls,
        None => {
            let found = ClientTls::system()?;
            SYSTEM.get_or_init(|| found)
        }
    };
    Ok(Arc::new(tls.clone()))
}

/// Secures connections of a client or a proxy. HTTP/1.1 is spoken above, whatever else it speaks elsewhere.
impl Secure for ClientTls {
    fn secure(&self, stream: TcpStream, host: &str) -> io::Result<Rc<dyn Duplex>> {
        let wire = Rc::new(Wire::new(stream));
        let stream = self.speaking([ALPN]).connect(host, Reach(Rc::clone(&wire)))?;
        if let Some(other) = stream.session().alpn().filter(|&alpn| alpn != ALPN.as_bytes()) {
            let text = format!("the server speaks {} and not HTTP/1.1", other.escape_ascii());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        wire.is_shaken.set(true);
        let stream = RefCell::new(Some(stream));
        Ok(Rc::new(Secured { stream, wire, sending: Mutex::new(()) }))
    }
}

/// A connection whose handshake is done.
struct Secured {
    /// Until it is given up. Never borrowed by who waits.
    stream: RefCell<Option<TlsStream<Reach>>>,
    wire: Rc<Wire>,
    /// Held by who sends.
    sending: Mutex<()>,
}

/// What is on its way between a `TlsStream` and the socket.
struct Wire {
    socket: TcpStream,
    /// The handshake is done. Before, there is one coroutine, and it waits for the socket.
    is_shaken: Cell<bool>,
    came: RefCell<Vec<u8>>,
    has_ended: Cell<bool>,
    going: RefCell<Vec<u8>>,
}

/// A wire, as the `TlsStream` has it.
struct Reach(Rc<Wire>);

impl Wire {
    fn new(socket: TcpStream) -> Wire {
        Wire {
            socket,
            is_shaken: Cell::new(false),
            came: RefCell::default(),
            has_ended: Cell::new(false),
            going: RefCell::default(),
        }
    }

    /// Waits for more.
    fn receive(&self, space: &mut [u8]) -> io::Result<()> {
        let count = { &self.socket }.read(space)?;
        self.has_ended.set(count == 0);
        self.came.borrow_mut().extend_from_slice(&space[..count]);
        Ok(())
    }

    /// Sends what is going, and what is added to it meanwhile. By one at a time.
    fn send(&self) -> io::Result<()> {
        loop {
            let bytes = self.going.take();
            if bytes.is_empty() {
                return Ok(());
            }
            { &self.socket }.write_all(&bytes)?;
        }
    }
}

impl Read for Reach {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let wire = &self.0;
        if !wire.is_shaken.get() {
            return { &wire.socket }.read(space);
        }
        let mut came = wire.came.borrow_mut();
        if came.is_empty() && !wire.has_ended.get() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = space.len().min(came.len());
        space[..count].copy_from_slice(&came[..count]);
        came.drain(..count);
        Ok(count)
    }
}

impl Write for Reach {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.0.is_shaken.get() {
            return { &self.0.socket }.write(bytes);
        }
        self.0.going.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Secured {
    fn with<T>(&self, f: impl FnOnce(&mut TlsStream<Reach>) -> io::Result<T>) -> io::Result<T> {
        match &mut *self.stream.borrow_mut() {
            Some(stream) => f(stream),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Decrypts what has come; `None` if that is not enough.
    fn decrypt(&self, space: &mut [u8]) -> io::Result<Option<usize>> {
        match self.with(|stream| stream.read(space)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            count => count.map(Some),
        }
    }
}

impl Duplex for Secured {
    fn read(&self, space: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(count) = self.decrypt(space)? {
                return Ok(count);
            }
            // TLS itself may have something to answer. Who sends now sends that, too.
            if !self.wire.going.borrow().is_empty()
                && let Some(_turn) = self.sending.try_lock()
            {
                self.wire.send()?;
            }
            self.wire.receive(space)?;
        }
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let _turn = self.sending.lock()?;
        for piece in bytes.chunks(PIECE_BYTES) {
            self.with(|stream| stream.write_all(piece))?;
            self.wire.send()?;
        }
        Ok(())
    }

    fn close(&self) {
        let _ = self.wire.socket.close(); // it may be closed
    }

    /// What has come may be of TLS alone: a ticket for the next time, or other keys.
    fn is_quiet(&self) -> bool {
        let mut space = [0; LOOK_BYTES];
        loop {
            match self.decrypt(&mut space) {
                Ok(None) if is_quiet(&self.wire.socket) => return true,
                Ok(None) if self.wire.receive(&mut space).is_ok() => {}
                _ => return false,
            }
        }
    }

    fn into_parts(self: Rc<Self>) -> io::Result<Parts> {
        let shared = || io::Error::other("somebody else uses the connection");
        let secured = Rc::try_unwrap(self).map_err(|_| shared())?;
        let (mut unread, mut piece) = (Vec::new(), [0; LOOK_BYTES]);
        while let Some(count @ 1..) = secured.decrypt(&mut piece)? {
            unread.extend_from_slice(&piece[..count]);
        }
        secured.wire.send()?;
        let stream = secured.stream.take().ok_or_else(shared)?;
        let (_, layer, rest) = stream.into_layer();
        unread.extend_from_slice(&rest);
        let wire = Rc::clone(&secured.wire);
        drop(secured);
        let wire = Rc::try_unwrap(wire).map_err(|_| shared())?;
        let secure = Box::new(move |conn: &mut coracle_net::Conn<'_>| conn.push_layer(layer));
        Ok(Parts { socket: wire.socket, secure, unread })
    }
}

impl Drop for Secured {
    /// Says the end (RFC 9112, 9.8), and does not wait for the server's.
    fn drop(&mut self) {
        let Some(mut stream) = self.stream.take() else { return };
        let is_cut = !self.wire.going.borrow().is_empty(); // it could not be sent
        if is_cut || Loop::current().is_none() || stream.close().is_err() {
            return;
        }
        let wire = Rc::clone(&self.wire);
        drop(coracle_coro::spawn(move || coracle_coro::timeout(GOODBYE, || wire.send())));
    }
}
