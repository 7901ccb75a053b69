//! How large a stack is: one of a few sizes, so that a stack given back fits the next who asks.

use std::fmt;
use std::io;

/// The largest stack that can be asked for. It is address space, of which a process has 128 TiB; memory is
/// only used where a stack is touched.
pub const LIMIT_STACK_BYTES: usize = 1 << 30;

/// How large a stack is, as its user sees it: 64, 128, 192 or 256 KiB, and from there on a power of two up to
/// 1 GiB. The [guard](crate::Guard) below it, of 64 KiB, is not part of it.
///
/// The default is 192 KiB, so that a stack and its guard have 256 KiB together, and nearly eight of them one page
/// table.
///
/// This is address space. Memory is used a page at a time, as the stack grows into it; what a page table
/// costs is in the [introduction](crate#what-a-stack-costs).
///
/// ```
/// use coracle_stack::StackSize;
///
/// let size = StackSize::at_least(300_000)?;
/// assert_eq!(size.bytes(), 512 << 10);
/// assert_eq!(size.to_string(), "512 KiB");
/// assert_eq!(StackSize::default().bytes(), 192 << 10);
/// assert!(StackSize::at_least(usize::MAX).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackSize(u8);

/// What each of them has, smallest first.
const BYTES: [usize; StackSize::COUNT] = {
    let mut bytes = [64 << 10, 128 << 10, 192 << 10, 256 << 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut rank = 4;
    while rank < StackSize::COUNT {
        bytes[rank] = 2 * bytes[rank - 1];
        rank += 1;
    }
    assert!(bytes[StackSize::COUNT - 1] == LIMIT_STACK_BYTES, "the last is the largest");
    bytes
};

impl StackSize {
    /// How many sizes there are.
    pub(crate) const COUNT: usize = 16;

    /// 64 KiB: for code that is known, and calls no foreign libraries.
    pub const SMALL: StackSize = StackSize(0);

    /// The smallest size of `bytes` or more.
    ///
    /// # Errors
    /// `InvalidInput` for more than [`LIMIT_STACK_BYTES`].
    pub fn at_least(bytes: usize) -> io::Result<StackSize> {
        match BYTES.iter().position(|size| *size >= bytes) {
            Some(rank) => Ok(StackSize(rank as u8)),
            None => {
                let text = format!(
                    "cannot use a stack of {bytes} bytes: the limit is {LIMIT_STACK_BYTES}"
                );
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    }

    /// How many bytes a stack of this size has, its guard region not counted.
    #[inline]
    pub const fn bytes(self) -> usize {
        BYTES[self.0 as usize]
    }

    /// Its place among all sizes, smallest first.
    pub(crate) const fn rank(self) -> usize {
        self.0 as usize
    }

    /// The size with this place.
    pub(crate) const fn of_rank(rank: usize) -> StackSize {
        assert!(rank < StackSize::COUNT, "sizes are counted");
        StackSize(rank as u8)
    }
}

/// 192 KiB: enough for a TLS handshake, an SQL query and a panic with a backtrace, also in debug builds.
impl Default for StackSize {
    fn default() -> StackSize {
        StackSize(2)
    }
}

/// `192 KiB`, `8 MiB`.
impl fmt::Display for StackSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() >> 10 {
            kib if kib < 1024 => write!(f, "{kib} KiB"),
            kib => write!(f, "{} MiB", kib >> 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::GUARD_BYTES;

    #[test]
    fn every_size_is_the_least_for_itself_and_too_small_for_more() {
        for rank in 0..StackSize::COUNT {
            let size = StackSize::of_rank(rank);
            assert_eq!(StackSize::at_least(size.bytes()).unwrap(), size);
            assert_eq!(StackSize::at_least(size.bytes() - 1).unwrap(), size);
            let more = StackSize::at_least(size.bytes() + 1);
            assert_eq!(more.ok().map(StackSize::rank), BYTES.get(rank + 1).map(|_| rank + 1));
        }
        assert_eq!(StackSize::at_least(0).unwrap(), StackSize::SMALL);
    }

    #[test]
    fn s60_a_default_stack_and_its_guard_have_256_kib_together() {
        assert_eq!(StackSize::default().bytes() + GUARD_BYTES, 256 << 10);
    }
}
