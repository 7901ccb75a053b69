//! `Networks`: addresses that are trusted with something.

use coracle_net::Address;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// Addresses, by the networks they are in. With a comma or a space between them:
///
/// ```
/// use coracle_http::Networks;
///
/// let trusted: Networks = "127.0.0.1, 10.0.0.0/8, fd00::/8, unix".parse().unwrap();
/// assert!(trusted.contains(&"10.1.2.3:80".parse().unwrap()));
/// assert!(trusted.contains(&"unix:/run/front".parse().unwrap()));
/// assert!(!trusted.contains(&"192.0.2.1:80".parse().unwrap()));
/// assert!("10.0.0.0/33".parse::<Networks>().is_err());
/// ```
///
/// `unix` is whoever has connected by a Unix socket. IPv4 addresses that are written as IPv6 ones are IPv4
/// addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networks {
    /// Addresses of 128 bits, and how many of those count.
    networks: Vec<(u128, u32)>,
    unix: bool,
}

impl Networks {
    /// None at all.
    pub fn none() -> Networks {
        Networks::default()
    }

    /// Whether this address is one of them.
    pub fn contains(&self, address: &Address) -> bool {
        match address {
            Address::Ip(address) => self.contains_ip(address.ip()),
            Address::Unix(_) => self.unix,
        }
    }

    /// The same, without a port.
    pub fn contains_ip(&self, address: IpAddr) -> bool {
        let bits = bits(address);
        let differ = |(network, len): &(u128, u32)| (network ^ bits).checked_shr(128 - len);
        self.networks.iter().any(|network| differ(network).unwrap_or(0) == 0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.unix
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => Ipv6Addr::to_bits(address),
    }
}

impl FromStr for Networks {
    type Err = NetworksError;

    fn from_str(text: &str) -> Result<Networks, NetworksError> {
        let mut networks = Networks::none();
        for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
            if part.eq_ignore_ascii_case("unix") {
                networks.unix = true;
                continue;
            }
            let wrong = || NetworksError { part: part.to_owned() };
            let (address, len) = match part.split_once('/') {
                Some((address, len)) => (address, Some(len.parse::<u32>().map_err(|_| wrong())?)),
                None => (part, None),
            };
            let address: IpAddr = address.parse().map_err(|_| wrong())?;
            let width = if address.is_ipv4() { 32 } else { 128 };
            let len = len.unwrap_or(width);
            if len > width {
                return Err(wrong());
            }
            networks.networks.push((bits(address), 128 - width + len));
        }
        Ok(networks)
    }
}

/// Why a text is no list of networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworksError {
    part: String,
}

impl fmt::Display for NetworksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no network: write `192.0.2.1`, `10.0.0.0/8`, `fd00::/8` or `unix`",
            self.part
        )
    }
}

impl std::error::Error for NetworksError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn j15_networks_are_counted_in_bits() {
        let has = |networks: &str, address: &str| {
            networks.parse::<Networks>().unwrap().contains_ip(address.parse().unwrap())
        };
        assert!(has("0.0.0.0/0", "1.2.3.4") && !has("0.0.0.0/0", "::1"));
        assert!(has("::/0", "1.2.3.4") && has("::/0", "::1"));
        assert!(has("192.0.2.128/25", "192.0.2.255") && !has("192.0.2.128/25", "192.0.2.127"));
        assert!(has("192.0.2.1", "::ffff:192.0.2.1") && !has("192.0.2.1", "192.0.2.2"));
        assert!(has("2001:db8::/33", "2001:db8:7fff::1"));
        assert!(!has("2001:db8::/33", "2001:db8:8000::1"));
        assert!(has("10.0.0.1/8", "10.255.0.0"), "bits behind the network do not count");
        assert!(!has("", "127.0.0.1"));
        for wrong in ["a", "1.2.3", "1.2.3.4/", "1.2.3.4/33", "::/129", "1.2.3.4/-1", "1.2.3.4:80"]
        {
            assert!(wrong.parse::<Networks>().is_err(), "{wrong}");
        }
    }
}
