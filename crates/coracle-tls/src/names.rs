//! Names of hosts in certificates, and those that are asked for.

/// Whether a name of a certificate is for `host`, which is in lower case. A star stands for one label, the first.
pub(crate) fn covers(name: &str, host: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(parent) => {
            host.split_once('.').is_some_and(|(first, rest)| !first.is_empty() && rest == parent)
        }
        None => name == host,
    }
}

/// The name in a `Host` field: without its port, in lower case, without a dot at the end.
pub(crate) fn host_name(host: &str) -> String {
    let name = match host.rfind(']') {
        Some(end) => &host[..=end], // an IPv6 address
        None => host.split(':').next().unwrap_or(host),
    };
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m2_star_is_one_label() {
        assert!(covers("example.org", "example.org"));
        assert!(!covers("example.org", "www.example.org"));
        assert!(covers("*.example.org", "www.example.org"));
        assert!(!covers("*.example.org", "example.org"));
        assert!(!covers("*.example.org", "a.b.example.org"));
        assert!(!covers("*.example.org", ".example.org"));
    }

    #[test]
    fn m2_hosts_are_names_without_ports() {
        assert_eq!(host_name("Example.org:443"), "example.org");
        assert_eq!(host_name("example.org."), "example.org");
        assert_eq!(host_name("[::1]:443"), "[::1]");
        assert_eq!(host_name(""), "");
    }
}
