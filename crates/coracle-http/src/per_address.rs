//! How many connections an address has, on all loops, and the end of those above its limit.
//!
//! ```text
//!   accepted ──► a seat for its address? ──yes──► HTTP, and the seat is free again when the connection is gone
//!                                        └─no───► turned away: 503 with Retry-After, and it is closed
//! ```

use crate::middleware::rate_limit::network;
use coracle_net::{Address, Buffer, Conn, Protocol, Reason};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections of each address that has any. An IPv6 address counts as its network of 64 bits.
#[derive(Debug)]
pub(crate) struct PerAddress {
    /// The greatest number there is, if there is none: then nobody is counted.
    limit: AtomicUsize,
    counts: Mutex<HashMap<u128, usize>>,
}

impl PerAddress {
    pub(crate) fn new(limit: Option<usize>) -> Arc<PerAddress> {
        let table = PerAddress { limit: AtomicUsize::new(0), counts: Mutex::default() };
        table.set_limit(limit);
        Arc::new(table)
    }

    /// For those who come from now on.
    pub(crate) fn set_limit(&self, limit: Option<usize>) {
        self.limit.store(limit.unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// A seat for a new connection.
    pub(crate) fn admit(self: &Arc<Self>, peer: &Address) -> Seat {
        self.seat(peer, self.limit.load(Ordering::Relaxed))
    }

    /// A seat for a connection that has one already, which it is about to give back.
    pub(crate) fn hold(self: &Arc<Self>, peer: &Address) -> Seat {
        self.seat(peer, usize::MAX)
    }

    /// A seat, unless `most` of them are taken. Who comes by a Unix socket is not counted: that is a proxy.
    fn seat(self: &Arc<Self>, peer: &Address, most: usize) -> Seat {
        let counts = self.limit.load(Ordering::Relaxed) != usize::MAX;
        let Some(peer) = peer.ip().filter(|_| counts) else { return Seat::Free };
        let network = network(Some(peer.ip()));
        let mut counts = self.lock();
        let count = counts.entry(network).or_insert(0);
        if *count >= most {
            return Seat::None;
        }
        *count += 1;
        Seat::Taken(Box::new(Taken { table: Arc::clone(self), network }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u128, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a new connection is given.
pub(crate) enum Seat {
    /// Nobody counts.
    Free,
    /// One of those that its address has.
    Taken(#[allow(dead_code)] Box<Taken>), // held for its end
    /// Its address has no more.
    None,
}

/// Given back when it is dropped.
pub(crate) struct Taken {
    table: Arc<PerAddress>,
    network: u128,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut counts = self.table.lock();
        if let Some(count) = counts.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.network);
            }
        }
    }
}

/// A connection in its seat, or another protocol in the seat of the one it has taken over. Who has none is turned
/// away when it is opened.
pub(crate) struct Seated<P> {
    inner: P,
    seat: Seat,
}

impl<P> Seated<P> {
    pub(crate) fn new(inner: P, seat: Seat) -> Seated<P> {
        Seated { inner, seat }
    }
}

impl<P: Protocol> Protocol for Seated<P> {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        match self.seat {
            Seat::None => {
                conn.turn_away();
                Ok(())
            }
            Seat::Free | Seat::Taken(_) => self.inner.on_open(conn),
        }
    }

    #[inline]
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        self.inner.on_data(conn, input)
    }

    #[inline]
    fn on_ready(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.inner.on_ready(conn)
    }

    fn on_idle(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.inner.on_idle(conn)
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.inner.on_end(conn)
    }

    fn on_shutdown(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.inner.on_shutdown(conn)
    }

    fn on_close(&mut self, reason: &Reason) {
        self.inner.on_close(reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(seat: &Seat) -> bool {
        matches!(seat, Seat::Taken(_))
    }

    #[test]
    fn q5_each_address_has_its_own_seats_and_gives_them_back() {
        let table = PerAddress::new(Some(2));
        let (one, other) = ("192.0.2.1:1".parse().unwrap(), "192.0.2.2:1".parse().unwrap());
        let (first, second) = (table.admit(&one), table.admit(&one));
        assert!(taken(&first) && taken(&second));
        assert!(matches!(table.admit(&one), Seat::None));
        assert!(taken(&table.admit(&other)));
        drop(first);
        assert!(taken(&table.admit(&one)));
        drop(second);
        assert!(table.lock().is_empty(), "who is gone is forgotten");
    }

    #[test]
    fn q5_limit_may_change() {
        let table = PerAddress::new(None);
        let address = "192.0.2.1:1".parse().unwrap();
        let free = table.admit(&address);
        assert!(matches!(free, Seat::Free));
        table.set_limit(Some(1));
        let first = table.admit(&address);
        assert!(taken(&first));
        assert!(matches!(table.admit(&address), Seat::None));
        table.set_limit(Some(2));
        let second = table.admit(&address);
        assert!(taken(&second));
        table.set_limit(Some(1));
        drop(second);
        assert!(matches!(table.admit(&address), Seat::None), "the first is still there");
        table.set_limit(None);
        assert!(matches!(table.admit(&address), Seat::Free));
        drop((free, first));
        assert!(table.lock().is_empty());
    }

    #[test]
    fn q5_networks_of_ipv6_are_one_and_mapped_addresses_are_ipv4() {
        let table = PerAddress::new(Some(1));
        let first = table.admit(&"[2001:db8::1]:1".parse().unwrap());
        assert!(taken(&first));
        assert!(matches!(table.admit(&"[2001:db8::ffff:2]:9".parse().unwrap()), Seat::None));
        assert!(taken(&table.admit(&"[2001:db8:0:1::1]:1".parse().unwrap())));
        let mapped = table.admit(&"[::ffff:192.0.2.1]:1".parse().unwrap());
        assert!(taken(&mapped));
        assert!(matches!(table.admit(&"192.0.2.1:1".parse().unwrap()), Seat::None));
    }

    #[test]
    fn q5_unix_sockets_are_not_counted() {
        let table = PerAddress::new(Some(0));
        assert!(matches!(table.admit(&"unix:/nowhere".parse().unwrap()), Seat::Free));
    }
}
