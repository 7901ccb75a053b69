//! On which loop a new connection lives. It stays there.

use crate::stats::ServiceStats;
use coracle_loop::demux::Address;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// How a server with several loops spreads its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// Each loop listens by itself (`SO_REUSEPORT`), and the kernel spreads connections by a hash of their
    /// addresses. The cheapest: no connection is ever handed over. Unix sockets, which cannot do that, share one
    /// socket.
    #[default]
    ReusePort,
    /// One loop accepts, and hands connections to all in turn: the most even with few connections.
    RoundRobin,
    /// One loop accepts, and hands each connection to the loop that has the fewest.
    LeastConnections,
    /// One loop accepts, and all connections from one address (not port) go to the same loop.
    Hash,
}

/// Chooses loops, one connection after the other.
pub(crate) struct Chooser {
    placement: Placement,
    /// The counters of each loop, which know how many connections it has.
    loops: Vec<Arc<ServiceStats>>,
    next: usize,
    hasher: RandomState,
}

impl Chooser {
    pub(crate) fn new(placement: Placement, loops: Vec<Arc<ServiceStats>>) -> Chooser {
        Chooser { placement, loops, next: 0, hasher: RandomState::new() }
    }

    /// The index of the loop for a connection from `peer`.
    pub(crate) fn choose(&mut self, peer: &Address) -> usize {
        match self.placement {
            Placement::ReusePort | Placement::RoundRobin => {
                self.next = (self.next + 1) % self.loops.len();
                self.next
            }
            Placement::LeastConnections => self.least(),
            Placement::Hash => {
                let hash = match peer {
                    Address::Ip(address) => self.hasher.hash_one(address.ip()),
                    other => self.hasher.hash_one(other.to_string()),
                };
                (hash % self.loops.len() as u64) as usize
            }
        }
    }

    /// The connection is on its way to the loop that was chosen.
    pub(crate) fn give(&self, index: usize) {
        self.loops[index].given.add(1);
    }

    /// Those that were handed over and have not arrived count too; those that are over, or never began, do not.
    fn least(&self) -> usize {
        let load = |stats: &ServiceStats| {
            stats.given.get().saturating_sub(stats.closed.get() + stats.unopened.get())
        };
        (0..self.loops.len()).min_by_key(|&index| load(&self.loops[index])).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn loops(count: usize) -> Vec<Arc<ServiceStats>> {
        (0..count).map(|_| Arc::default()).collect()
    }

    fn peer(text: &str) -> Address {
        Address::Ip(text.parse::<SocketAddr>().expect("an address"))
    }

    #[test]
    fn g1_round_robin_takes_turns() {
        let mut chooser = Chooser::new(Placement::RoundRobin, loops(3));
        let mut counts = [0; 3];
        for _ in 0..300 {
            counts[chooser.choose(&peer("10.0.0.1:1"))] += 1;
        }
        assert_eq!(counts, [100; 3]);
    }

    #[test]
    fn g1_least_connections_fills_up_who_has_lost_some() {
        let stats = loops(2);
        let mut chooser = Chooser::new(Placement::LeastConnections, stats.clone());
        let mut place = || {
            let index = chooser.choose(&peer("10.0.0.1:1"));
            chooser.give(index);
            index
        };
        let first: Vec<usize> = (0..10).map(|_| place()).collect();
        assert_eq!(first.iter().sum::<usize>(), 5);
        stats[1].closed.add(4); // nearly all of the second loop's five
        stats[1].unopened.add(1); // and one that it turned away
        let next: Vec<usize> = (0..5).map(|_| place()).collect();
        assert_eq!(next, [1; 5]);
    }

    #[test]
    fn g1_hash_keeps_an_address_on_its_loop_and_uses_all() {
        let mut chooser = Chooser::new(Placement::Hash, loops(4));
        let home = chooser.choose(&peer("10.0.0.1:1"));
        assert!((2..100).all(|port| chooser.choose(&peer(&format!("10.0.0.1:{port}"))) == home));
        let mut used = [false; 4];
        for last in 0..=255 {
            used[chooser.choose(&peer(&format!("10.0.0.{last}:1")))] = true;
        }
        assert_eq!(used, [true; 4]);
    }
}
