//! Fields behind a body on their way through: which of them may be handed on. RFC 9110, 6.5.1.

use super::head::{is_about_the_client, is_hop_by_hop};
use crate::{Headers, Request};

/// What whoever merges them with the head would be led astray by: it says how a message is read, where it goes,
/// who asks and may ask, what becomes of an answer, or what a body is.
const NEVER: &[&str] = &[
    "age",
    "authentication-info",
    "authorization",
    "cache-control",
    "content-encoding",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "expires",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authentication-info",
    "range",
    "retry-after",
    "set-cookie",
    "vary",
    "www-authenticate",
];

/// Whether a client wants the trailers of an answer. Over HTTP/1.0 there are none.
pub(super) fn are_wanted(req: &Request<'_>) -> bool {
    req.version() != crate::Version::Http10 && req.headers().has_token("te", "trailers")
}

/// Those that may be handed on.
pub(super) fn allowed(trailers: &Headers) -> Headers {
    let mut allowed = Headers::new();
    for (name, value) in trailers.iter() {
        let is_never = is_hop_by_hop(name.as_bytes())
            || is_about_the_client(name.as_bytes())
            || NEVER.iter().any(|it| it.eq_ignore_ascii_case(name));
        if !is_never {
            let _ = allowed.append(name, value); // it was read, so it can be sent
        }
    }
    allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn j15_trailers_that_would_change_a_message_are_not_handed_on() {
        let mut trailers = Headers::new();
        for name in NEVER {
            trailers.append(&name.to_ascii_uppercase(), "x").unwrap();
        }
        for name in [
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "TE",
            "Trailer",
            "Expect",
            "Proxy-Authorization",
            "X-Forwarded-For",
            "Forwarded",
            "Grpc-Status",
            "X-Checksum",
            "ETag",
        ] {
            trailers.append(name, "x").unwrap();
        }
        let trailers = allowed(&trailers);
        let names: Vec<&str> = trailers.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["Grpc-Status", "X-Checksum", "ETag"]);
    }
}
