//! One frame: its header, and the mask over its payload. RFC 6455, 5.2.
//!
//! ```text
//!    0               1               2 …
//!   ┌─┬─┬─┬─┬───────┬─┬─────────────┬─────────────────────┬────────────────┬─────────┐
//!   │F│R│R│R│opcode │M│ length      │ 2 or 8 bytes of it, │ 4 bytes to mask│ payload │
//!   │I│S│S│S│       │A│ (7 bits)    │ if it is 126 or 127 │ with, if MASK  │         │
//!   │N│1│2│3│       │S│             │                     │                │         │
//!   └─┴─┴─┴─┴───────┴─┴─────────────┴─────────────────────┴────────────────┴─────────┘
//! ```

use super::code::Violation;
use smallvec::SmallVec;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    fn from_bits(bits: u8) -> Option<Opcode> {
        Some(match bits {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return None,
        })
    }

    pub(crate) fn is_control(self) -> bool {
        self as u8 >= 8
    }
}

/// A header has at most so many bytes.
pub(crate) const HEADER_BYTES_MAX: usize = 14;

/// So much has the payload of a control frame at most.
pub(crate) const LIMIT_CONTROL_BYTES: usize = 125;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) last: bool,
    /// The first reserved bit: of a message that is compressed.
    pub(crate) compressed: bool,
    pub(crate) opcode: Opcode,
    pub(crate) mask: Option<[u8; 4]>,
    pub(crate) len: u64,
}

impl Header {
    /// The header at the beginning of `bytes` and how long it is; `None` while it is not all there. What no frame
    /// may have, whoever sends it, is refused.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, Violation> {
        let &[first, second, ..] = bytes else { return Ok(None) };
        if first & 0b0011_0000 != 0 {
            return Err(Violation::protocol("a reserved bit is set"));
        }
        let Some(opcode) = Opcode::from_bits(first & 0x0f) else {
            return Err(Violation::protocol("an opcode is reserved"));
        };
        let (last, compressed) = (first & 0x80 != 0, first & 0x40 != 0);
        let short = second & 0x7f;
        if opcode.is_control() {
            if !last {
                return Err(Violation::protocol("a control frame is fragmented"));
            }
            if usize::from(short) > LIMIT_CONTROL_BYTES {
                return Err(Violation::protocol("a control frame is longer than 125 bytes"));
            }
        }
        let (len, mut end) = match short {
            126 => match bytes.get(2..4) {
                Some(&[a, b]) => (u64::from(u16::from_be_bytes([a, b])), 4),
                _ => return Ok(None),
            },
            127 => match bytes.get(2..10).and_then(|it| it.first_chunk()) {
                Some(long) => (u64::from_be_bytes(*long), 10),
                None => return Ok(None),
            },
            short => (u64::from(short), 2),
        };
        if len >> 63 != 0 {
            return Err(Violation::protocol("a length has its highest bit set"));
        }
        if (short == 126 && len < 126) || (short == 127 && len <= u64::from(u16::MAX)) {
            return Err(Violation::protocol("a length takes more bytes than it needs"));
        }
        let mut mask = None;
        if second & 0x80 != 0 {
            match bytes.get(end..end + 4).and_then(|it| it.first_chunk()) {
                Some(key) => mask = Some(*key),
                None => return Ok(None),
            }
            end += 4;
        }
        Ok(Some((Header { last, compressed, opcode, mask, len }, end)))
    }

    /// As it is sent.
    pub(crate) fn to_bytes(self) -> SmallVec<[u8; HEADER_BYTES_MAX]> {
        let bits = (u8::from(self.last) << 7) | (u8::from(self.compressed) << 6);
        let masked = u8::from(self.mask.is_some()) << 7;
        let mut bytes = SmallVec::new();
        bytes.push(bits | self.opcode as u8);
        match self.len {
            0..126 => bytes.push(masked | self.len as u8),
            126..=0xffff => {
                bytes.push(masked | 126);
                bytes.extend_from_slice(&(self.len as u16).to_be_bytes());
            }
            _ => {
                bytes.push(masked | 127);
                bytes.extend_from_slice(&self.len.to_be_bytes());
            }
        }
        if let Some(mask) = self.mask {
            bytes.extend_from_slice(&mask);
        }
        bytes
    }
}

/// Masks bytes, or takes the mask off: both are the same. `offset` is where in the payload they begin.
pub(crate) fn mask(bytes: &mut [u8], key: [u8; 4], offset: usize) {
    let mut key = u32::from_le_bytes(key).rotate_right((offset % 4) as u32 * 8);
    let wide = u64::from(key) | u64::from(key) << 32;
    let mut words = bytes.chunks_exact_mut(8);
    for word in &mut words {
        let masked = u64::from_le_bytes((&*word).try_into().unwrap_or_default()) ^ wide;
        word.copy_from_slice(&masked.to_le_bytes());
    }
    for byte in words.into_remainder() {
        *byte ^= key as u8;
        key = key.rotate_right(8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k1_mask_is_taken_off_wherever_a_payload_is_cut() {
        let key = [0x37, 0xfa, 0x21, 0x3d];
        let plain: Vec<u8> = (0..61).map(|n: u8| n.wrapping_mul(7)).collect();
        let slow = |from: usize, to: usize| -> Vec<u8> {
            (from..to).map(|at| plain[at] ^ key[at % 4]).collect()
        };
        for cut in 0..plain.len() {
            for end in cut..plain.len() {
                let mut piece = plain[cut..end].to_vec();
                mask(&mut piece, key, cut);
                assert_eq!(piece, slow(cut, end));
            }
        }
        // RFC 6455, 5.7: a masked "Hello".
        let mut hello = [0x7f, 0x9f, 0x4d, 0x51, 0x58];
        mask(&mut hello, key, 0);
        assert_eq!(&hello, b"Hello");
    }

    #[test]
    fn k1_headers_are_read_as_they_are_written() {
        for len in [0, 1, 125, 126, 127, 65_535, 65_536, (1 << 63) - 1] {
            for mask in [None, Some([1, 2, 3, 4])] {
                let header = Header {
                    last: true,
                    compressed: len % 2 == 0,
                    opcode: Opcode::Binary,
                    mask,
                    len,
                };
                let bytes = header.to_bytes();
                assert!(bytes.len() <= HEADER_BYTES_MAX);
                for end in 0..bytes.len() {
                    assert_eq!(Header::parse(&bytes[..end]), Ok(None), "{len} {end}");
                }
                assert_eq!(Header::parse(&bytes), Ok(Some((header, bytes.len()))));
            }
        }
    }

    #[test]
    fn k1_no_frame_has_such_a_header() {
        for (bytes, why) in [
            (&[0xa1, 0][..], "a reserved bit is set"),
            (&[0x91, 0], "a reserved bit is set"),
            (&[0x83, 0], "an opcode is reserved"),
            (&[0x8f, 0], "an opcode is reserved"),
            (&[0x09, 0], "a control frame is fragmented"),
            (&[0x88, 126], "a control frame is longer than 125 bytes"),
            (&[0x8a, 0xff], "a control frame is longer than 125 bytes"),
            (&[0x82, 126, 0, 125], "a length takes more bytes than it needs"),
            (&[0x82, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff], "a length takes more bytes than it needs"),
            (&[0x82, 127, 0x80, 0, 0, 0, 0, 1, 0, 0], "a length has its highest bit set"),
        ] {
            assert_eq!(Header::parse(bytes), Err(Violation::protocol(why)), "{bytes:x?}");
        }
    }
}
