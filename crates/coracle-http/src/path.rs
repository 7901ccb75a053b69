//! A path with its escapes decoded as far as that does not change what its segments are.
//!
//! `/%61bout` and `/about` are the same path, `/a%2Fb` and `/a/b` are not. So a router looks for a path in which
//! everything is decoded but what would become a slash or an escape; those two are decoded in the values it finds.

use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// The path to look for. A percent sign in it is the beginning of `%2F` or `%25`, and nothing else.
pub(crate) fn comparable(path: &str) -> Cow<'_, str> {
    if memchr::memchr(b'%', path.as_bytes()).is_none() {
        return Cow::Borrowed(path);
    }
    let mut text = String::with_capacity(path.len());
    for (index, segment) in path.split('/').enumerate() {
        if index > 0 {
            text.push('/');
        }
        for character in percent_decode_str(segment).decode_utf8_lossy().chars() {
            match character {
                '/' => text.push_str("%2F"),
                '%' => text.push_str("%25"),
                other => text.push(other),
            }
        }
    }
    Cow::Owned(text)
}

/// A piece of a [comparable] path, with the last two escapes decoded.
pub(crate) fn value(piece: &str) -> String {
    piece.replace("%2F", "/").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn j6_escapes_do_not_change_where_a_path_leads() {
        assert_eq!(comparable("/%61bout"), "/about");
        assert_eq!(comparable("/a%2fb"), "/a%2Fb");
        assert_eq!(comparable("/a%252fb"), "/a%252fb");
        assert_eq!(comparable("/%C3%BCber"), "/über");
        assert_eq!(comparable("/100%"), "/100%25");
        assert_eq!(comparable("/%%32F"), "/%252F");
        assert_eq!(value("%252F"), "%2F", "decoded once, not twice");
    }

    proptest! {
        /// Segment by segment, the value is what decoding the segment by itself gives.
        #[test]
        fn j6_segments_are_decoded_once(path in "(/[a%25Ff/é]{0,6}){0,4}") {
            crate::fuzzing::path(&path);
        }
    }
}
