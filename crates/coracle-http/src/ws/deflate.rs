//! Messages, compressed: DEFLATE without its last four bytes, which are always the same. RFC 7692, 7.2.
//!
//! A side that begins anew with each message borrows the compressor of its thread for the length of a call; only
//! one that refers to earlier messages has one of its own.

use super::code::Violation;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use std::cell::RefCell;
use std::fmt;

/// What ends a block that is flushed; not sent.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// The largest window, which everybody may use unless it was agreed otherwise.
pub(crate) const LARGEST_WINDOW: u8 = 15;

/// What both sides have agreed on, as seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// How far back what we send may refer, as a power of two: from 9 to 15.
    pub(crate) window_bits: u8,
    /// Whether what we send may refer to earlier messages.
    pub(crate) keeps_own: bool,
    /// Whether what the peer sends may.
    pub(crate) keeps_theirs: bool,
    pub(crate) level: u32,
    pub(crate) least_bytes: usize,
}

impl Agreed {
    /// Whether what is compressed once for everybody can be read here.
    pub(crate) fn takes_shared(&self) -> bool {
        self.window_bits == LARGEST_WINDOW
    }
}

thread_local! {
    static COMPRESS: RefCell<Option<(u32, u8, Compress)>> = const { RefCell::new(None) };
    static DECOMPRESS: RefCell<Option<Decompress>> = const { RefCell::new(None) };
}

/// Compresses a message that refers to no other.
pub(crate) fn deflate_alone(level: u32, window_bits: u8, message: &[u8]) -> Vec<u8> {
    COMPRESS.with_borrow_mut(|slot| {
        let compress = match slot {
            Some((old_level, bits, compress)) if (*old_level, *bits) == (level, window_bits) => {
                compress.reset();
                compress
            }
            slot => {
                let compress = new_compress(level, window_bits);
                &mut slot.insert((level, window_bits, compress)).2
            }
        };
        deflate(compress, message)
    })
}

fn new_compress(level: u32, window_bits: u8) -> Compress {
    Compress::new_with_window_bits(Compression::new(level), false, window_bits)
}

/// Compresses what one side sends.
#[derive(Default)]
pub(crate) struct Deflater {
    kept: Option<Box<Compress>>,
    /// The peer was sent something that is not known here: nothing may refer beyond it.
    astray: bool,
}

impl Deflater {
    /// The message, compressed; `None` if it is better sent as it is.
    pub(crate) fn deflate(&mut self, agreed: &Agreed, message: &[u8]) -> Option<Vec<u8>> {
        if message.len() < agreed.least_bytes {
            return None;
        }
        if !agreed.keeps_own {
            let bytes = deflate_alone(agreed.level, agreed.window_bits, message);
            return (bytes.len() < message.len()).then_some(bytes);
        }
        let new = || Box::new(new_compress(agreed.level, agreed.window_bits));
        let compress = self.kept.get_or_insert_with(new);
        if std::mem::take(&mut self.astray) {
            compress.reset();
        }
        Some(deflate(compress, message))
    }

    /// The peer was sent a compressed message that was not compressed here.
    pub(crate) fn go_astray(&mut self) {
        self.astray = true;
    }
}

fn deflate(compress: &mut Compress, message: &[u8]) -> Vec<u8> {
    if message.is_empty() {
        return vec![0]; // with the tail, an empty block
    }
    let mut out = Vec::with_capacity(message.len() / 2 + 64);
    let mut rest = message;
    loop {
        let before = compress.total_in();
        let status = compress.compress_vec(rest, &mut out, FlushCompress::Sync);
        rest = &rest[(compress.total_in() - before) as usize..];
        debug_assert!(matches!(status, Ok(Status::Ok | Status::BufError)), "{status:?}");
        // All is flushed only if there was room for more.
        if rest.is_empty() && out.len() < out.capacity() {
            break;
        }
        out.reserve(rest.len() / 2 + 64);
    }
    debug_assert!(out.ends_with(&TAIL));
    out.truncate(out.len() - TAIL.len());
    out
}

/// Decompresses what the other side sends.
#[derive(Default)]
pub(crate) struct Inflater {
    kept: Option<Box<Decompress>>,
}

impl Inflater {
    /// The message, of at most `limit` bytes.
    pub(crate) fn inflate(
        &mut self,
        agreed: &Agreed,
        bytes: &[u8],
        limit: usize,
    ) -> Result<Vec<u8>, Violation> {
        if agreed.keeps_theirs {
            let decompress = self.kept.get_or_insert_with(|| Box::new(Decompress::new(false)));
            return inflate(decompress, bytes, limit);
        }
        DECOMPRESS.with_borrow_mut(|slot| {
            let decompress = slot.get_or_insert_with(|| Decompress::new(false));
            decompress.reset(false);
            inflate(decompress, bytes, limit)
        })
    }
}

fn inflate(decompress: &mut Decompress, bytes: &[u8], limit: usize) -> Result<Vec<u8>, Violation> {
    const BROKEN: Violation = Violation::data("a compressed message is broken");
    let mut out = Vec::new();
    let mut ended = false;
    for mut rest in [bytes, &TAIL] {
        if ended {
            break; // its last block said that it was the last, and nothing is behind it
        }
        loop {
            if out.len() == out.capacity() {
                let more = out.len().max(2 * bytes.len() + 64).min(1 << 20);
                out.reserve_exact(more.min(limit + 1 - out.len()));
            }
            let (taken, given) = (decompress.total_in(), out.len());
            let status = decompress.decompress_vec(rest, &mut out, FlushDecompress::Sync);
            let status = status.map_err(|_| BROKEN)?;
            let taken = (decompress.total_in() - taken) as usize;
            rest = &rest[taken..];
            if out.len() > limit {
                return Err(Violation::size("a message is too big when it is decompressed"));
            }
            if status == Status::StreamEnd {
                // What it may refer to ends here, too.
                decompress.reset(false);
                ended = rest.is_empty();
                if ended {
                    break;
                }
                continue;
            }
            let full = out.len() == out.capacity();
            if rest.is_empty() && !full {
                break;
            }
            if taken == 0 && out.len() == given && !full {
                return Err(BROKEN);
            }
        }
    }
    Ok(out)
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflater").field("kept", &self.kept.is_some()).finish()
    }
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflater").field("kept", &self.kept.is_some()).finish()
    }
}
