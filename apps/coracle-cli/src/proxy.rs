//! `coracle proxy`: every connection is continued to another address, in both directions.
//!
//! ```text
//!   client ──► Side ──► Side ──► upstream        each is a connection of the same loop; what one reads the other
//!          ◄──      ◄──      ◄──                 writes, and whoever is read too fast is paused
//! ```
//!
//! The two directions know nothing of each other: a client that does not read is still read, until what it sends
//! is too fast for the upstream.

use coracle::Loop;
use coracle::demux::Address;
use coracle::net::{
    Buffer, CapacitySettings, Conn, ConnHandle, Connector, Protocol, Reason, Settings, attach,
};
use std::cell::{Cell, OnceCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// How long the other server may take to accept.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How both connections behave.
pub(crate) fn settings() -> Settings {
    Settings { read_when_full: true, ..Settings::default() }
}

/// What a client's connection needs: a second one, to the server.
pub(crate) fn capacity() -> CapacitySettings {
    CapacitySettings::new().descriptors_per_connection(2)
}

/// One half of a proxied connection.
pub(crate) struct Side {
    upstream: Option<Vec<Address>>,
    /// The other half, once it is there.
    other: Rc<OnceCell<ConnHandle>>,
    fate: Rc<Fate>,
}

/// What the two halves share.
#[derive(Default)]
struct Fate {
    /// How many of the two directions have ended.
    ended: Cell<u8>,
    /// One of the two is gone. It cannot say so to the other while a callback of that one runs.
    gone: Cell<bool>,
}

impl Side {
    /// The half that faces a client, for a server at one of the addresses `to`.
    pub(crate) fn facing_client(to: Vec<Address>) -> Side {
        Side { upstream: Some(to), other: Rc::default(), fate: Rc::default() }
    }

    /// Does something with the other half. If that is its end, this is the end of both.
    fn with_other<T>(&self, conn: &mut Conn<'_>, f: impl FnOnce(&mut Conn<'_>) -> T) -> Option<T> {
        let result = self.other.get().and_then(|other| conn.with(other, f));
        if self.fate.gone.get() {
            conn.abort();
        }
        result
    }
}

impl Protocol for Side {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        let Some(upstream) = self.upstream.take() else { return Ok(()) };
        conn.pause(); // until there is somebody to give it to
        let client = conn.handle();
        let (other, fate) = (Rc::clone(&self.other), Rc::clone(&self.fate));
        Connector::to(upstream).timeout(CONNECT_TIMEOUT).connect(
            conn.lp(),
            move |lp, connected| {
                let socket = match connected {
                    Ok(socket) => socket,
                    Err(error) => {
                        tracing::warn!("{error}");
                        client.with(lp, |conn| conn.abort());
                        return;
                    }
                };
                let side = Side { upstream: None, other: Rc::new(client.clone().into()), fate };
                let server = attach(lp, socket, settings(), side);
                let server = server.expect("these settings make sense");
                let _ = other.set(server.clone());
                if client.with(lp, |conn| conn.resume()).is_none() {
                    server.with(lp, |conn| conn.abort()); // the client is gone
                }
            },
        );
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

/// An error as part of a sentence: without its number, and without a capital letter.
pub(crate) fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}
