//! What a load may be put on, and how large it may be.

use coracle::demux::Address;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Descriptors that are not connections: standard streams, and a few for each loop.
const DESCRIPTORS_RESERVED: usize = 64;

/// Refuses a server that is somebody else's, most likely.
pub(super) fn check_near(address: &Address) -> io::Result<()> {
    match address.ip() {
        Some(ip) if !is_near(ip.ip()) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{address} is neither on this machine nor in a private network: load on somebody else's server is \
                 an attack; if it is yours, say --anywhere"
            ),
        )),
        _ => Ok(()),
    }
}

/// Whether an address is this machine's, or of a network that is not the Internet.
fn is_near(ip: IpAddr) -> bool {
    let near_v4 = |ip: Ipv4Addr| {
        ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified()
    };
    let near_v6 = |ip: Ipv6Addr| {
        ip.is_loopback()
            || ip.is_unique_local()
            || ip.is_unicast_link_local()
            || ip.is_unspecified()
    };
    match ip.to_canonical() {
        IpAddr::V4(ip) => near_v4(ip),
        IpAddr::V6(ip) => near_v6(ip),
    }
}

/// Refuses what cannot be done for want of descriptors, before half of it is done.
pub(super) fn check_descriptors(connections: usize) -> io::Result<()> {
    let limit = coracle::net::raise_descriptor_limit().unwrap_or(u64::MAX);
    let needed = (connections + DESCRIPTORS_RESERVED) as u64;
    if needed <= limit {
        return Ok(());
    }
    let text = format!(
        "{connections} connections need {needed} descriptors, and this process may have {limit}: \
         raise the hard limit (ulimit -Hn {needed}), or ask for fewer --connections"
    );
    Err(io::Error::new(io::ErrorKind::QuotaExceeded, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_is_loopback_private_and_link_local() {
        for near in [
            "127.0.0.1",
            "127.9.9.9",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.1.1",
            "0.0.0.0",
            "::1",
            "::",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(is_near(near.parse().unwrap()), "{near}");
        }
        for far in [
            "8.8.8.8",
            "172.15.255.255",
            "172.32.0.1",
            "192.169.0.1",
            "11.0.0.1",
            "100.64.0.1",
            "2001:db8::1",
            "::ffff:8.8.8.8",
            "ff02::1",
            "255.255.255.255",
        ] {
            assert!(!is_near(far.parse().unwrap()), "{far}");
        }
    }
}
