//! Two connections that are one: what one reads the other writes.

use crate::{Buffer, Conn, ConnHandle, Protocol, Reason, Settings};
use coracle_loop::Loop;
use std::cell::{Cell, OnceCell};
use std::fmt;
use std::io;
use std::rc::Rc;

/// One half of two connections of a loop that are one: a proxy's, mostly.
///
/// ```text
///   client ──► Relay ──► Relay ──► server      what one reads the other writes, and whoever is read too
///          ◄──       ◄──       ◄──             fast is paused
/// ```
///
/// The two directions know nothing of each other: each ends when its sender has ended, and both when one of the
/// connections breaks.
///
/// ```
/// use coracle_net::{Buffer, Conn, Connector, Protocol, Relay, Server, attach};
/// use std::io;
/// use std::net::SocketAddr;
///
/// /// Who has come in, until the server behind is reached.
/// struct Coming;
///
/// impl Protocol for Coming {
///     fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
///         conn.pause(); // until there is somebody to give it to
///         let client = conn.handle();
///         let server: SocketAddr = "127.0.0.1:9000".parse().map_err(io::Error::other)?;
///         Connector::to(vec![server]).connect(conn.lp(), move |lp, connected| {
///             let Ok(socket) = connected else {
///                 client.with(lp, |conn| conn.abort());
///                 return;
///             };
///             let (near, far) = Relay::facing(client.clone());
///             let server = attach(lp, socket, Relay::settings(), far).expect("they make sense");
///             near.join(server.clone());
///             let joined = client.with(lp, |conn| {
///                 conn.switch(near);
///                 conn.resume();
///             });
///             if joined.is_none() {
///                 server.with(lp, |conn| conn.abort()); // the client is gone
///             }
///         });
///         Ok(())
///     }
///
///     fn on_data(&mut self, _: &mut Conn<'_>, _: &mut Buffer) -> io::Result<()> {
///         Ok(()) // it waits for the relay
///     }
/// }
///
/// # fn main() -> io::Result<()> {
/// let server = Server::bind("127.0.0.1:0")?.settings(Relay::settings());
/// let running = server.loops(1).start(|_peer| Coming)?;
/// # running.handle().stop();
/// # running.join()
/// # }
/// ```
pub struct Relay {
    /// The other half, once it is there.
    other: OnceCell<ConnHandle>,
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

impl Relay {
    /// The half of a connection that is there, which is to be [joined](Relay::join), and that of the one to come.
    pub fn facing(near: ConnHandle) -> (Relay, Relay) {
        let fate = Rc::<Fate>::default();
        let far = Relay { other: near.into(), fate: Rc::clone(&fate) };
        (Relay { other: OnceCell::new(), fate }, far)
    }

    /// The other connection is there.
    pub fn join(&self, other: ConnHandle) {
        let _ = self.other.set(other);
    }

    /// How both connections have to behave: who does not read is still read.
    pub fn settings() -> Settings {
        Settings { read_when_full: true, ..Settings::default() }
    }

    /// Does something with the other half. If that is its end, this is the end of both.
    #[inline]
    fn with_other<T>(&self, conn: &mut Conn<'_>, f: impl FnOnce(&mut Conn<'_>) -> T) -> Option<T> {
        let result = self.other.get().and_then(|other| conn.with(other, f));
        if self.fate.gone.get() {
            conn.abort();
        }
        result
    }
}

impl Protocol for Relay {
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

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("other", &self.other).finish_non_exhaustive()
    }
}
