//! The other side of a connection, in little memory: there may be very many of them.

use crate::OwnedRequest;
use coracle_net::Address;
use std::net::{SocketAddr, SocketAddrV4};
#[cfg(feature = "tls")]
use {coracle_tls::Session, std::sync::Arc};

/// An address, most of which are of six bytes; and what was agreed upon with it.
#[derive(Clone)]
pub(crate) enum Peer {
    V4(SocketAddrV4),
    Other(Box<Address>),
    #[cfg(feature = "tls")]
    Secure(Box<(Address, Arc<Session>)>),
}

/// Which HTTP the two sides have agreed upon, before either has said anything in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agreed {
    /// On none: what comes first tells.
    Nothing,
    #[cfg(feature = "tls")]
    Http1,
    #[cfg(feature = "tls")]
    Http2,
}

impl Peer {
    pub(crate) fn new(address: &Address) -> Peer {
        match address {
            Address::Ip(SocketAddr::V4(address)) => Peer::V4(*address),
            other => Peer::Other(Box::new(other.clone())),
        }
    }

    /// One with whom hands were shaken.
    #[cfg(feature = "tls")]
    pub(crate) fn secure(address: &Address, session: Arc<Session>) -> Peer {
        Peer::Secure(Box::new((address.clone(), session)))
    }

    /// Tells a request whose it is.
    #[inline(always)] // with every request
    pub(crate) fn tell(&self, request: &mut OwnedRequest) {
        match (self, &mut request.peer) {
            // Mostly so: there is nothing to be dropped.
            (Peer::V4(address), Address::Ip(SocketAddr::V4(place))) => *place = *address,
            _ => request.peer = self.address(),
        }
        #[cfg(feature = "tls")]
        if request.session.is_some() || self.session().is_some() {
            request.session = self.session().cloned();
        }
    }

    #[cfg(feature = "tls")]
    #[inline]
    fn session(&self) -> Option<&Arc<Session>> {
        match self {
            Peer::Secure(secure) => Some(&secure.1),
            Peer::V4(_) | Peer::Other(_) => None,
        }
    }

    /// What was agreed upon by TLS (ALPN).
    #[inline]
    pub(crate) fn agreed(&self) -> Agreed {
        #[cfg(feature = "tls")]
        if let Some(alpn) = self.session().and_then(|session| session.alpn()) {
            return if alpn == b"h2" { Agreed::Http2 } else { Agreed::Http1 };
        }
        Agreed::Nothing
    }

    #[inline]
    pub(crate) fn address(&self) -> Address {
        match self {
            Peer::V4(address) => Address::Ip(SocketAddr::V4(*address)),
            Peer::Other(address) => Address::clone(address),
            #[cfg(feature = "tls")]
            Peer::Secure(secure) => secure.0.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t6_a_request_is_told_whose_it_is_whoever_had_it_before() {
        let mut request = OwnedRequest::blank();
        for text in
            ["192.0.2.1:80", "192.0.2.2:81", "[2001:db8::1]:4711", "unix:@name", "192.0.2.3:82"]
        {
            let address: Address = text.parse().unwrap();
            Peer::new(&address).tell(&mut request);
            assert_eq!(request.peer.to_string(), address.to_string());
        }
    }

    #[test]
    fn t6_addresses_are_small_and_whole() {
        assert!(size_of::<Peer>() <= 16);
        for text in ["192.0.2.1:80", "[2001:db8::1]:4711", "unix:/run/coracle", "unix:@name"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(Peer::new(&address).address().to_string(), address.to_string());
        }
    }
}
