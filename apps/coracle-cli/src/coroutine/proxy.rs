//! `coracle proxy --style coroutine`.
//!
//! ```text
//!   client ──► forward ──► upstream        a coroutine for each direction: it reads here and writes there;
//!          ◄── forward ◄──                 whoever is slow makes it wait, and so the one it reads from
//! ```

use super::{Service, Space, Stop, Stream};
use crate::proxy::{CONNECT_TIMEOUT, cause};
use coracle::coro::net::{TcpStream, UnixStream};
use coracle::demux::Address;
use coracle::{scope, timeout};
use std::io::{self, Read};
use std::sync::Arc;

/// Continues every connection to another address.
#[derive(Clone)]
pub(crate) struct Proxy {
    to: Arc<[Address]>,
}

/// A connection to the other server.
enum Upstream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Proxy {
    pub(crate) fn to(addresses: Vec<Address>) -> Proxy {
        Proxy { to: addresses.into() }
    }
}

impl Service for Proxy {
    fn serve<S: Stream>(&self, client: S, stop: &Stop) -> io::Result<()> {
        match timeout(CONNECT_TIMEOUT, || connect(&self.to)) {
            Ok(Upstream::Tcp(upstream)) => {
                upstream.set_nodelay(true)?;
                relay(&client, &upstream, stop)
            }
            Ok(Upstream::Unix(upstream)) => relay(&client, &upstream, stop),
            Err(error) => {
                if !stop.has_begun() {
                    tracing::warn!("{error}");
                }
                client.break_off();
                Err(error)
            }
        }
    }
}

/// Both directions, each until its end. What goes wrong with one is the end of both.
fn relay(client: &impl Stream, upstream: &impl Stream, stop: &Stop) -> io::Result<()> {
    let break_off = |_: &io::Error| {
        client.break_off();
        upstream.break_off();
    };
    scope(|scope| {
        scope.spawn(|| forward(client, upstream, stop).inspect_err(break_off));
        forward(upstream, client, stop).inspect_err(break_off)
    })
}

/// One direction: what `from` sends goes to `to`, and so does its end.
fn forward(from: &impl Stream, to: &impl Stream, stop: &Stop) -> io::Result<()> {
    let (mut from, mut to) = (from.read_ahead()?, to.share()?);
    let mut space = Space::new();
    loop {
        match from.read(space.get()) {
            Ok(0) => return to.end().or_else(|error| stop.again(error, || to.end())),
            Ok(count) => {
                stop.write_all(&mut to, &space.get()[..count])?;
                space.used(count);
            }
            Err(error) => return stop.finish(error, &mut from, &to, &mut space),
        }
    }
}

/// The first of the addresses that answers.
fn connect(to: &[Address]) -> io::Result<Upstream> {
    let mut failures = Vec::new();
    for address in to {
        let connected = match address {
            Address::Ip(ip) => TcpStream::connect(ip).map(Upstream::Tcp),
            Address::Unix(unix) => UnixStream::connect_addr(unix).map(Upstream::Unix),
        };
        match connected {
            Ok(upstream) => return Ok(upstream),
            Err(error) => failures.push(format!("{address}: {}", cause(&error))),
        }
    }
    Err(io::Error::other(format!("cannot connect to {}", failures.join("; "))))
}
