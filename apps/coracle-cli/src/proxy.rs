//! `coracle proxy`: every connection is continued to another address, in both directions.

use coracle::demux::Address;
use coracle::net::{Buffer, CapacitySettings, Conn, Connector, Protocol, Relay, attach};
use std::io;
use std::time::Duration;

/// How long the other server may take to accept.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What a client's connection needs: a second one, to the server.
pub(crate) fn capacity() -> CapacitySettings {
    CapacitySettings::new().descriptors_per_connection(2)
}

/// A client's connection, until the server behind is reached; then it is a [`Relay`].
pub(crate) struct Coming {
    upstream: Vec<Address>,
}

impl Coming {
    /// For a server at one of the addresses `to`.
    pub(crate) fn to(upstream: Vec<Address>) -> Coming {
        Coming { upstream }
    }
}

impl Protocol for Coming {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        conn.pause(); // until there is somebody to give it to
        let client = conn.handle();
        let upstream = std::mem::take(&mut self.upstream);
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
                let (near, far) = Relay::facing(client.clone());
                let server = attach(lp, socket, Relay::settings(), far);
                let server = server.expect("these settings make sense");
                near.join(server.clone());
                let joined = client.with(lp, |conn| {
                    conn.switch(near);
                    conn.resume();
                });
                if joined.is_none() {
                    server.with(lp, |conn| conn.abort()); // the client is gone
                }
            },
        );
        Ok(())
    }

    fn on_data(&mut self, _: &mut Conn<'_>, _: &mut Buffer) -> io::Result<()> {
        Ok(()) // it waits for the relay
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
