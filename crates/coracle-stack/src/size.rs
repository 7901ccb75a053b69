//! How large a stack is: one of a few sizes, so that a stack given back fits the next who asks.

use std::fmt;
use std::io;

/// The smallest stack, as a power of two: 64 KiB.
const SMALLEST: u32 = 16;

/// The largest stack that can be asked for. It is address space, of which a process has 128 TiB; memory is
/// only used where a stack is touched.
pub const LIMIT_STACK_BYTES: usize = 1 << 30;

/// How large a stack is: a power of two from 64 KiB to 1 GiB.
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
/// assert_eq!(StackSize::default().bytes(), 256 << 10);
/// assert!(StackSize::at_least(usize::MAX).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackSize(u8);

impl StackSize {
    /// How many sizes there are.
    pub(crate) const COUNT: usize = (LIMIT_STACK_BYTES.ilog2() - SMALLEST + 1) as usize;

    /// 64 KiB: for code that is known, and calls no foreign libraries.
    pub const SMALL: StackSize = StackSize(0);

    /// The smallest size of `bytes` or more.
    ///
    /// # Errors
    /// `InvalidInput` for more than [`LIMIT_STACK_BYTES`].
    pub fn at_least(bytes: usize) -> io::Result<StackSize> {
        if bytes > LIMIT_STACK_BYTES {
            let text =
                format!("cannot use a stack of {bytes} bytes: the limit is {LIMIT_STACK_BYTES}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let power = bytes.next_power_of_two().ilog2().max(SMALLEST);
        Ok(StackSize((power - SMALLEST) as u8))
    }

    /// How many bytes a stack of this size has, its guard region not counted.
    pub const fn bytes(self) -> usize {
        1 << (SMALLEST + self.0 as u32)
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

/// 256 KiB: enough for a TLS handshake, an SQL query and a panic with a backtrace, also in debug builds.
impl Default for StackSize {
    fn default() -> StackSize {
        StackSize(2)
    }
}

/// `256 KiB`, `8 MiB`.
impl fmt::Display for StackSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() >> 10 {
            kib if kib < 1024 => write!(f, "{kib} KiB"),
            kib => write!(f, "{} MiB", kib >> 10),
        }
    }
}
