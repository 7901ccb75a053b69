//! HTTPS: a server whose connections shake hands first.
//!
//! ```text
//!   accepted ─► a seat for its address? ─► handshake ─► HTTP, as it was agreed upon (ALPN)
//!                    └─ no: closed            └─ fails, or takes too long: closed
//! ```

use crate::Server;
use crate::peer::Peer;
use crate::per_address::{Seat, Seated};
use crate::server::{self, Shared};
use crate::service::Service;
use coracle_net::{Address, Buffer, Conn, Protocol, Reason, ToAddresses};
use coracle_tls::{Secure, ServerTls, Session};
use std::io;
use std::sync::{Arc, OnceLock, Weak};

/// The protocols that a [`Server`] speaks above TLS, the best first
/// ([`ServerSettings::speaking`](coracle_tls::ServerSettings::speaking)).
pub const ALPN: [&str; 2] = ["h2", "http/1.1"];

/// What a client is told that speaks HTTP where TLS is spoken.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
    content-length: 48\r\nconnection: close\r\n\r\nthis port speaks HTTPS: use https:// in the URL\n";

/// How a server is entered.
#[derive(Default)]
pub(crate) struct Doors {
    tls: Option<ServerTls>,
    /// For those who listen without TLS, and are made before what they lead to.
    shared: Arc<OnceLock<Weak<Shared>>>,
}

impl Doors {
    pub(crate) fn tls(&self) -> Option<ServerTls> {
        self.tls.clone()
    }

    pub(crate) fn open(&self, shared: &Arc<Shared>) {
        let _ = self.shared.set(Arc::downgrade(shared));
    }
}

impl Server {
    /// Speaks TLS on the addresses it is bound to. Certificates are changed by
    /// [`replace`](ServerTls::replace), while it runs.
    ///
    /// ```
    /// use coracle_http::tls::{Identity, ServerSettings, ServerTls};
    /// use coracle_http::{self as http, Request, Server};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let identity = Identity::self_signed(["localhost"])?; // or Identity::from_files
    /// let tls = ServerTls::new(ServerSettings::from(identity).speaking(http::ALPN))?;
    /// let server = Server::bind("127.0.0.1:0")?.tls(&tls).loops(1);
    /// let running = server.start(|_: &Request<'_>| "ahoy\n")?;
    /// # running.stop();
    /// # running.join()
    /// # }
    /// ```
    #[must_use]
    pub fn tls(mut self, tls: &ServerTls) -> Server {
        self.secure.tls = Some(tls.clone());
        self
    }

    /// Listens on these addresses as well, and speaks plain HTTP there, whatever it does on the others:
    /// [`Https`](crate::middleware::Https) sends those who come there to TLS. Behind a proxy that
    /// [says so](Server::proxy_protocol), connections say for whom they are there, too.
    ///
    /// # Errors
    /// As [`bind`](Server::bind).
    pub fn plain(mut self, addresses: impl ToAddresses) -> io::Result<Server> {
        let door = Arc::clone(&self.secure.shared);
        let shared =
            move || door.get().and_then(Weak::upgrade).expect("it is open while it serves");
        self.inner = self.inner.service("plain", addresses, move |peer| {
            server::announced(&shared(), peer, server::begin_plain)
        })?;
        Ok(self)
    }
}

/// A connection of a server behind TLS, on the loop that runs.
pub(crate) fn connection(
    shared: &Shared,
    tls: &ServerTls,
    peer: &Address,
) -> impl Protocol + use<> {
    let service = shared.service();
    let secure = match shared.addresses.admit(peer) {
        Seat::None => None,
        seat => {
            let (service, at) = (service.clone(), peer.clone());
            let make = move |session: Arc<Session>| {
                Seated::new(service.h1(Peer::secure(&at, session)), seat)
            };
            Some(Secure::new(tls.layer().plain_answer(PLAIN), make).peer(peer))
        }
    };
    Entry { secure, service }
}

/// A connection until its handshake is done, or one for which there is no seat: it is not worth a handshake.
struct Entry<S> {
    secure: Option<S>,
    service: Service,
}

impl<S: Protocol> Protocol for Entry<S> {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        match &mut self.secure {
            Some(secure) => secure.on_open(conn),
            None => {
                self.service.note_turned_away(conn);
                conn.close();
                Ok(())
            }
        }
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        match &mut self.secure {
            Some(secure) => secure.on_data(conn, input),
            None => {
                input.take_all();
                Ok(())
            }
        }
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.secure.as_mut().map_or(Ok(()), |secure| secure.on_end(conn))
    }

    /// Who shakes hands has come to ask something, and may still do so once.
    fn on_shutdown(&mut self, _conn: &mut Conn<'_>) -> io::Result<()> {
        self.service.begin_to_stop();
        Ok(())
    }

    fn on_close(&mut self, reason: &Reason) {
        if let Some(secure) = &mut self.secure {
            secure.on_close(reason);
        }
    }
}
