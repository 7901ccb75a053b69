//! The keys by which both sides see that the other means a WebSocket. RFC 6455, 4.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// Of the protocol, whatever the key.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The only version there is.
pub(super) const VERSION: &str = "13";

/// Whether it is what a client says: 16 bytes in base64.
pub(super) fn is_key(key: &str) -> bool {
    STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16)
}

/// What a server answers to this key.
pub(super) fn answer_to(key: &str) -> String {
    let mut hash = Sha1::new();
    hash.update(key.as_bytes());
    hash.update(GUID);
    STANDARD.encode(hash.finalize())
}

/// A key that was not used before.
pub(super) fn new_key() -> String {
    let bytes: [[u8; 4]; 4] = std::array::from_fn(|_| super::encoder::new_mask());
    STANDARD.encode(bytes.as_flattened())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k1_keys_are_answered_as_the_rfc_does() {
        assert_eq!(answer_to("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let (one, two) = (new_key(), new_key());
        assert!(is_key(&one) && is_key(&two) && one != two);
        for wrong in ["", "dGhl", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZSE="] {
            assert!(!is_key(wrong), "{wrong}");
        }
    }
}
