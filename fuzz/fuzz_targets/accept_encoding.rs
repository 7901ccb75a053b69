//! `Accept-Encoding`: what is chosen is the best of what is accepted.
#![no_main]

use coracle_http::{AcceptEncoding, Coding};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|value: &[u8]| {
    let peer = AcceptEncoding::parse([value]);
    let Some(chosen) = peer.choose(&Coding::ALL) else { return };
    let quality = peer.quality(chosen);
    assert!((1..=1000).contains(&quality));
    assert!(Coding::ALL.iter().all(|&other| peer.quality(other) <= quality));
    // Two fields are one list.
    let (front, behind) = match value.iter().position(|&byte| byte == b',') {
        Some(at) => (&value[..at], &value[at + 1..]),
        None => (value, &b""[..]),
    };
    assert_eq!(AcceptEncoding::parse([front, behind]), peer);
});
