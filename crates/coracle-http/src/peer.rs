//! The other side of a connection, in little memory: there may be very many of them.

use coracle_net::Address;
use std::net::{SocketAddr, SocketAddrV4};

/// An address. Most are of six bytes.
pub(crate) enum Peer {
    V4(SocketAddrV4),
    Other(Box<Address>),
}

impl Peer {
    pub(crate) fn new(address: &Address) -> Peer {
        match address {
            Address::Ip(SocketAddr::V4(address)) => Peer::V4(*address),
            other => Peer::Other(Box::new(other.clone())),
        }
    }

    #[inline]
    pub(crate) fn address(&self) -> Address {
        match self {
            Peer::V4(address) => Address::Ip(SocketAddr::V4(*address)),
            Peer::Other(address) => Address::clone(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t6_addresses_are_small_and_whole() {
        assert!(size_of::<Peer>() <= 16);
        for text in ["192.0.2.1:80", "[2001:db8::1]:4711", "unix:/run/coracle", "unix:@name"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(Peer::new(&address).address().to_string(), address.to_string());
        }
    }
}
