//! `--placement`: on which loop a new connection lives, in the words of the command line and of the configuration.

use clap::ValueEnum;
use coracle::net;
use serde::Deserialize;

/// [`net::Placement`], as it is written.
#[derive(ValueEnum, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Placement {
    /// Each loop listens by itself, and the kernel spreads connections by chance: the cheapest.
    ReusePort,
    /// One loop accepts, and hands connections to all in turn: the most even.
    RoundRobin,
    /// One loop accepts, and hands each connection to the loop that has the fewest.
    LeastConnections,
    /// One loop accepts, and all connections from one address go to the same loop.
    Hash,
}

impl From<Placement> for net::Placement {
    fn from(placement: Placement) -> net::Placement {
        match placement {
            Placement::ReusePort => net::Placement::ReusePort,
            Placement::RoundRobin => net::Placement::RoundRobin,
            Placement::LeastConnections => net::Placement::LeastConnections,
            Placement::Hash => net::Placement::Hash,
        }
    }
}
