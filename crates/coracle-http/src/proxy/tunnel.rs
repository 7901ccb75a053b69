//! What comes after an upgrade, a WebSocket mostly: the client's connection and the upstream's are one. Neither
//! has a coroutine.

use super::upstream::InFlight;
use crate::client::link::Link;
use crate::client::stream::Stream;
use coracle_loop::demux::Descriptor;
use coracle_net::{Buffer, Conn, Protocol, Reason, Relay, attach};
use std::io;

/// The half that faces the client: the upstream's joins it when it is opened.
pub(super) struct Tunnel {
    upstream: Option<Upstream>,
    /// Once it is opened.
    relay: Option<Relay>,
    _in_flight: InFlight,
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

/// The upstream's connection, when it is opened; then it is a [`Relay`].
struct Facing {
    secure: Option<PutOn>,
    relay: Option<Relay>,
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
        let upstream = Some(Upstream { descriptor, secure, unread });
        Ok(Tunnel { upstream, relay: None, _in_flight: in_flight })
    }
}

impl Protocol for Tunnel {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        let Some(Upstream { descriptor, secure, unread }) = self.upstream.take() else {
            return Ok(());
        };
        conn.write_slice(&unread);
        let socket = conn.lp().adopt(descriptor)?;
        let (near, far) = Relay::facing(conn.handle());
        let facing = Facing { secure, relay: Some(far) };
        let upstream = attach(conn.lp(), socket, Relay::settings(), facing)?;
        if conn.with(&upstream, |_| ()).is_none() {
            conn.abort(); // it is gone already, and could not say so in this callback
        }
        near.join(upstream);
        self.relay = Some(near);
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        self.relay.as_mut().map_or(Ok(()), |relay| relay.on_data(conn, input))
    }

    fn on_ready(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.relay.as_mut().map_or(Ok(()), |relay| relay.on_ready(conn))
    }

    fn on_idle(&mut self, _: &mut Conn<'_>) -> io::Result<()> {
        Ok(())
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.relay.as_mut().map_or(Ok(()), |relay| relay.on_end(conn))
    }

    fn on_close(&mut self, reason: &Reason) {
        if let Some(relay) = &mut self.relay {
            relay.on_close(reason);
        }
    }
}

impl Protocol for Facing {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        if let Some(secure) = self.secure.take() {
            secure(conn);
        }
        if let Some(relay) = self.relay.take() {
            conn.switch(relay);
        }
        Ok(())
    }

    fn on_data(&mut self, _: &mut Conn<'_>, _: &mut Buffer) -> io::Result<()> {
        Ok(()) // it waits for the relay
    }
}
