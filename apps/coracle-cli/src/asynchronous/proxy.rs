//! `coracle proxy --style async`.

use super::stop::Stopping;
use super::{Service, forward};
use crate::proxy::{CONNECT_TIMEOUT, cause};
use coracle::demux::Address;
use coracle::future::net::{ReadHalf, TcpStream, UnixStream, WriteHalf};
use coracle::future::timeout;
use std::io;
use std::sync::Arc;

/// Continues every connection to another address.
#[derive(Clone)]
pub(crate) struct Proxy {
    to: Arc<[Address]>,
}

impl Proxy {
    pub(crate) fn to(addresses: Vec<Address>) -> Proxy {
        Proxy { to: addresses.into() }
    }
}

impl Service for Proxy {
    async fn serve(&self, reader: ReadHalf, writer: WriteHalf, stop: &Stopping) -> io::Result<()> {
        let connected = stop.unless_begun(timeout(CONNECT_TIMEOUT, connect(&self.to))).await;
        let Some(connected) = connected else { return Ok(()) };
        let (from_upstream, to_upstream) =
            connected.and_then(|it| it).inspect_err(|error| tracing::warn!("{error}"))?;
        // What goes wrong with one direction is the end of both.
        let there = forward(reader, to_upstream, stop);
        futures::try_join!(there, forward(from_upstream, writer, stop))?;
        Ok(())
    }
}

/// The first of the addresses that answers.
async fn connect(to: &[Address]) -> io::Result<(ReadHalf, WriteHalf)> {
    let mut failures = Vec::new();
    for address in to {
        let connected = match address {
            Address::Ip(ip) => connect_tcp(*ip).await.map(TcpStream::split),
            Address::Unix(unix) => {
                UnixStream::connect_addr((**unix).clone()).await.map(UnixStream::split)
            }
        };
        match connected {
            Ok(upstream) => return Ok(upstream),
            Err(error) => failures.push(format!("{address}: {}", cause(&error))),
        }
    }
    Err(io::Error::other(format!("cannot connect to {}", failures.join("; "))))
}

async fn connect_tcp(address: std::net::SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
