//! Whether a page is of the same origin as what its browser asks for.

/// Whether a page of `origin` (what a browser says in `Origin`) may ask for something of this `host`.
///
/// Who came to us by TLS has a page by https. Without, somebody in front may have taken TLS off, so only the hosts
/// are compared.
pub(crate) fn is_same(origin: &str, host: Option<&str>, is_secure: bool) -> bool {
    let (Some((scheme, theirs)), Some(host)) = (origin.split_once("://"), host) else {
        return false;
    };
    theirs.eq_ignore_ascii_case(host) && (scheme.eq_ignore_ascii_case("https") || !is_secure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn j9_origins_are_compared_by_host_and_below_tls_by_scheme() {
        for (origin, plain, secure) in [
            ("https://a.example", true, true),
            ("https://A.example", true, true),
            ("http://a.example", true, false),
            ("https://a.example:8080", false, false),
            ("https://b.example", false, false),
            ("https://a.example.b.example", false, false),
            ("null", false, false),
            ("a.example", false, false),
            ("", false, false),
        ] {
            assert_eq!(is_same(origin, Some("a.example"), false), plain, "{origin}");
            assert_eq!(is_same(origin, Some("a.example"), true), secure, "{origin}");
            assert!(!is_same(origin, None, false));
        }
    }
}
