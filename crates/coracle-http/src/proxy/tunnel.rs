//! Two connections that are one: what comes after an upgrade, a WebSocket mostly.
//!
//! ```text
//!   client ──► Side ──► Side ──► upstream      each is a connection of the same loop; what one reads the other
//!          ◄──      ◄──      ◄──               writes, and whoever is read too fast is paused
//! ```
//!
//! Neither has a coroutine.

use super::upstream::InFlight;
use crate::client::link::Link;
use crate::client::stream::Stream;
use coracle_loop::Loop;
use coracle_loop::demux::Descriptor;
use coracle_net::{Buffer, Conn, ConnHandle, Protocol, Reason, Settings, attach};
use std::cell::{Cell, OnceCell};
use std::io;
use std::rc::Rc;

/// The half that faces the client: the upstream's joins it when it is opened.
pub(super) struct Tunnel {
    upstream: Option<Upstream>,
    side: Side,
}

/// Puts something on a connection.
type PutOn = Box<dyn FnOnce(&mut Conn<'_>)>;

/// A connection to the upstream, as it is taken over.
struct Upstream {
    descriptor: Descriptor,
    /// What puts TLS on it, if it is secure.
    secure: Option<PutOn>,
    unread: Vec<u8>,
}

struct Side {
    /// The other half, once it is there.
    other: Rc<OnceCell<ConnHandle>>,
    fate: Rc<Fate>,
    /// What is put on it when it is opened.
    secure: Option<PutOn>,
}

/// What the two halves share.
struct Fate {
    /// How many of the two directions have ended.
    ended: Cell<u8>,
    /// One of the two is gone. It cannot say so to the other while a callback of that one runs.
    gone: Cell<bool>,
    _in_flight: InFlight,
}

impl Tunnel {
    /// To a connection on which the answer was another protocol.
    ///
    /// # Errors
    /// It cannot be taken over.
    pub(super) fn new(link: Link, in_flight: InFlight) -> io::Result<Tunnel> {
        let (stream, mut unread) = link.into_parts();
        let (descriptor, secure) = match stream {
            Stream::Tcp(stream) => (stream.into_descriptor()?, None),
            Stream::Unix(stream) => (stream.into_descriptor()?, None),
            Stream::Secured(stream) => {
                let parts = stream.into_parts()?;
                unread.extend_from_slice(&parts.unread);
                (parts.socket.into_descriptor()?, Some(parts.secure))
            }
        };
        let fate = Fate { ended: Cell::new(0), gone: Cell::new(false), _in_flight: in_flight };
        let side = Side { other: Rc::default(), fate: Rc::new(fate), secure: None };
        Ok(Tunnel { upstream: Some(Upstream { descriptor, secure, unread }), side })
    }
}

impl Side {
    /// Does something with the other half. If that is its end, this is the end of both.
    fn with_other<T>(&self, conn: &mut Conn<'_>, f: impl FnOnce(&mut Conn<'_>) -> T) -> Option<T> {
        let result = self.other.get().and_then(|other| conn.with(other, f));
        if self.fate.gone.get() {
            conn.abort();
        }
        result
    }
}

impl Protocol for Tunnel {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        let Some(Upstream { descriptor, secure, unread }) = self.upstream.take() else {
            return Ok(());
        };
        conn.write_slice(&unread);
        let socket = conn.lp().adopt(descriptor)?;
        let settings = Settings { read_when_full: true, ..Settings::default() };
        let (other, fate) = (Rc::new(conn.handle().into()), Rc::clone(&self.side.fate));
        let facing = Side { other, fate, secure };
        let upstream = attach(conn.lp(), socket, settings, facing)?;
        let _ = self.side.other.set(upstream);
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        self.side.on_data(conn, input)
    }

    fn on_ready(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.side.on_ready(conn)
    }

    fn on_idle(&mut self, _: &mut Conn<'_>) -> io::Result<()> {
        Ok(())
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.side.on_end(conn)
    }

    fn on_close(&mut self, reason: &Reason) {
        self.side.on_close(reason);
    }
}

impl Protocol for Side {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        if let Some(secure) = self.secure.take() {
            secure(conn);
        }
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        let bytes = input.take_all();
        let room = self.with_other(conn, |other| {
            other.write_slice(bytes);
            other.writable()
        });
        match room {
            Some(true) => {}
            Some(false) => conn.pause(),
            None => conn.close(),
        }
        Ok(())
    }

    fn on_ready(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.with_other(conn, |other| other.resume());
        Ok(())
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.fate.ended.set(self.fate.ended.get() + 1);
        if self.fate.ended.get() < 2 {
            self.with_other(conn, |other| other.close_write());
        } else {
            self.with_other(conn, |other| other.close());
            conn.close();
        }
        Ok(())
    }

    fn on_close(&mut self, reason: &Reason) {
        let broken = !matches!(reason, Reason::Closed);
        self.fate.gone.set(broken);
        let (Some(lp), Some(other)) = (Loop::current(), self.other.get()) else { return };
        other.with(&lp, |other| if broken { other.abort() } else { other.close() });
    }
}
