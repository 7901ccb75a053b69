//! Memory that the kernel may use until an operation's final completion.
//!
//! io_uring reads and writes user memory *after* `submit` has returned, so an operation owns what the
//! kernel may touch and the completion gives it back:
//!
//! ```text
//!  caller ──Payload──► submit ──► in flight: the seam owns it, the kernel may touch it
//!     ▲                                                │
//!     └──────── Completion::payload ◄── final completion
//! ```
//!
//! A parked coroutine is the one caller that cannot go away before its completion; it may lend plain
//! slices through the `unsafe` constructors instead of giving up ownership.
#![allow(unsafe_code)]

use bytes::{Buf, Bytes};
use std::fmt;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// One stretch of bytes, owned by an operation while it is in flight.
///
/// ```
/// use coracle_demux::Memory;
///
/// let mut memory = Memory::from(b"hello, coracle".to_vec());
/// memory.advance(7);                       // seven bytes were sent
/// assert_eq!(memory.as_slice(), b"coracle");
/// assert_eq!(memory.into_vec(), b"hello, coracle"); // the allocation comes back whole
/// ```
pub struct Memory(Kind);

enum Kind {
    /// The bytes from `start` on.
    Owned {
        bytes: Vec<u8>,
        start: usize,
    },
    Shared(Bytes),
    Borrowed {
        start: NonNull<u8>,
        len: usize,
        writable: bool,
    },
}

// SAFETY: owned and shared bytes are `Send`. Borrowed ones are a pointer that one operation holds alone and
// whose target its owner promised to leave alone; which thread works on it meanwhile makes no difference.
unsafe impl Send for Memory {}

impl Memory {
    /// Lends `bytes` to the kernel for one sending operation, without a copy.
    ///
    /// # Safety
    /// `bytes` must stay alive and unchanged until the operation's final completion has been taken
    /// from the seam. Only a parked coroutine can promise that.
    pub unsafe fn borrowed(bytes: &[u8]) -> Memory {
        let len = bytes.len();
        Memory(Kind::Borrowed { start: NonNull::from(bytes).cast(), len, writable: false })
    }

    /// Lends `space` to the kernel for one receiving operation, without a copy.
    ///
    /// # Safety
    /// `space` must stay alive and must not be looked at or changed until the operation's final
    /// completion has been taken from the seam. Only a parked coroutine can promise that.
    pub unsafe fn borrowed_mut(space: &mut [u8]) -> Memory {
        let len = space.len();
        Memory(Kind::Borrowed { start: NonNull::from(space).cast(), len, writable: true })
    }

    /// The bytes still to be sent, or the space still to be filled.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Kind::Owned { bytes, start } => &bytes[*start..],
            Kind::Shared(bytes) => bytes,
            // SAFETY: whoever made this keeps the slice alive and, while it is lent, unchanged;
            // `advance` never leaves its bounds.
            Kind::Borrowed { start, len, .. } => unsafe {
                std::slice::from_raw_parts(start.as_ptr(), *len)
            },
        }
    }

    /// The space to be filled, or `None` when this memory is only for sending.
    #[inline]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        match &mut self.0 {
            Kind::Owned { bytes, start } => Some(&mut bytes[*start..]),
            Kind::Shared(_) | Kind::Borrowed { writable: false, .. } => None,
            Kind::Borrowed { start, len, writable: true } => {
                // SAFETY: made from a `&mut [u8]` whose owner promised not to touch it meanwhile, and
                // `&mut self` makes this the only view; bounds as above.
                Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), *len) })
            }
        }
    }

    /// Whether it may be filled: shared memory, and what was borrowed for sending, may not.
    pub fn is_writable(&self) -> bool {
        matches!(self.0, Kind::Owned { .. } | Kind::Borrowed { writable: true, .. })
    }

    /// Adds `bytes` behind those that are there, if it owns them and has no more than `limit` then; else nothing,
    /// and says so.
    ///
    /// ```
    /// use coracle_demux::Memory;
    ///
    /// let mut memory = Memory::from(b"one".to_vec());
    /// assert!(memory.append(b", two", 10));
    /// assert!(!memory.append(b", three", 10));
    /// assert_eq!(memory.as_slice(), b"one, two");
    /// ```
    pub fn append(&mut self, bytes: &[u8], limit: usize) -> bool {
        match &mut self.0 {
            Kind::Owned { bytes: owned, .. } if owned.len() + bytes.len() <= limit => {
                owned.extend_from_slice(bytes);
                true
            }
            _ => false,
        }
    }

    /// How many bytes are left.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether no byte is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Skips `count` bytes that have been sent or filled.
    ///
    /// # Panics
    /// When `count` is more than [`len`](Memory::len).
    #[inline]
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "advanced past the end of an operation's memory");
        match &mut self.0 {
            Kind::Owned { start, .. } => *start += count,
            Kind::Shared(bytes) => bytes.advance(count),
            Kind::Borrowed { start, len, .. } => {
                // SAFETY: `count` is at most `len`, so this stays within the slice or at its end.
                *start = unsafe { start.add(count) };
                *len -= count;
            }
        }
    }

    /// The allocation, for its next use; an empty vector when the memory was shared or borrowed.
    #[inline]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Kind::Owned { bytes, .. } => bytes,
            Kind::Shared(_) | Kind::Borrowed { .. } => Vec::new(),
        }
    }
}

impl Default for Memory {
    /// No bytes.
    fn default() -> Memory {
        Memory::from(Vec::new())
    }
}

impl From<Vec<u8>> for Memory {
    /// Owned bytes. For a receive, the vector's *length* is the space that may be filled.
    #[inline]
    fn from(bytes: Vec<u8>) -> Memory {
        Memory(Kind::Owned { bytes, start: 0 })
    }
}

impl From<Bytes> for Memory {
    /// Shared bytes, only for sending: one allocation may be in flight on many descriptors.
    fn from(bytes: Bytes) -> Memory {
        Memory(Kind::Shared(bytes))
    }
}

impl From<&'static [u8]> for Memory {
    fn from(bytes: &'static [u8]) -> Memory {
        Memory::from(Bytes::from_static(bytes))
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.0 {
            Kind::Owned { .. } => "owned",
            Kind::Shared(_) => "shared",
            Kind::Borrowed { .. } => "borrowed",
        };
        write!(f, "Memory({kind}, {} bytes)", self.len())
    }
}

/// Space that a parked coroutine lends for one receive: where it is, in two words.
///
/// ```
/// use coracle_demux::{Memory, Space};
///
/// let mut bytes = [0; 16];
/// // SAFETY: it is not touched before the space is gone.
/// let space = unsafe { Space::borrowed(&mut bytes) }.unwrap();
/// assert_eq!(Memory::from(space).len(), 16);
/// ```
#[derive(Debug)]
pub struct Space {
    start: NonNull<u8>,
    len: NonZeroUsize,
}

impl Space {
    /// Lends `space` to the kernel for one receive, without a copy. `None` if it is empty.
    ///
    /// # Safety
    /// As [`Memory::borrowed_mut`].
    #[inline]
    pub unsafe fn borrowed(space: &mut [u8]) -> Option<Space> {
        let len = NonZeroUsize::new(space.len())?;
        Some(Space { start: NonNull::from(space).cast(), len })
    }

    /// How many bytes there is room for.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }

    /// Where it begins, and how many bytes there is room for.
    #[inline]
    pub(crate) fn parts(&self) -> (*mut u8, usize) {
        (self.start.as_ptr(), self.len.get())
    }

    /// The space to be filled.
    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: made from a `&mut [u8]` whose owner promised not to touch it meanwhile, and `&mut self` makes
        // this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len.get()) }
    }
}

/// The last three arguments of an accept4(2): addresses that its caller, a parked coroutine, has lent.
#[derive(Debug, Clone, Copy)]
pub struct AcceptPlace {
    address: usize,
    len: usize,
    flags: i32,
}

impl AcceptPlace {
    /// Where the address and its length go, and how the new socket is to be.
    ///
    /// # Safety
    /// Both are null, or as accept4(2) demands until the operation's final completion has been taken from the
    /// seam. Only a parked coroutine can promise that.
    pub unsafe fn new(address: *mut u8, len: *mut u32, flags: i32) -> AcceptPlace {
        AcceptPlace { address: address.expose_provenance(), len: len.expose_provenance(), flags }
    }

    pub(crate) fn parts(self) -> (*mut u8, *mut u32, i32) {
        let len = std::ptr::with_exposed_provenance_mut(self.len);
        (std::ptr::with_exposed_provenance_mut(self.address), len, self.flags)
    }
}

impl From<Space> for Memory {
    #[inline]
    fn from(space: Space) -> Memory {
        Memory(Kind::Borrowed { start: space.start, len: space.len.get(), writable: true })
    }
}

/// What an operation carries: nothing, one stretch of memory, or several to be sent as one.
///
/// ```
/// use coracle_demux::{Memory, Payload};
///
/// let mut payload = Payload::Many(vec![
///     Memory::from(&b"HTTP/1.1 200 OK\r\n\r\n"[..]),
///     Memory::from(b"hello".to_vec()),
/// ]);
/// payload.advance(21);
/// assert_eq!(payload.len(), 3);
/// ```
#[derive(Debug, Default)]
#[repr(u8)] // a tag of its own: most completions carry nothing, and should be dropped by one comparison
pub enum Payload {
    /// The operation carried no memory.
    #[default]
    Nothing,
    /// One stretch.
    One(Memory),
    /// Several stretches, sent in order by one call.
    Many(Vec<Memory>),
}

impl Payload {
    /// How many bytes are left in all stretches.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Payload::Nothing => 0,
            Payload::One(memory) => memory.len(),
            Payload::Many(list) => list.iter().map(Memory::len).sum(),
        }
    }

    /// Whether no byte is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Skips `count` bytes that have been sent.
    ///
    /// # Panics
    /// When `count` is more than [`len`](Payload::len).
    #[inline]
    pub fn advance(&mut self, mut count: usize) {
        match self {
            Payload::Nothing => assert_eq!(count, 0, "advanced past the end of an empty payload"),
            Payload::One(memory) => memory.advance(count),
            Payload::Many(list) => {
                for memory in list {
                    let step = count.min(memory.len());
                    memory.advance(step);
                    count -= step;
                }
                assert_eq!(count, 0, "advanced past the end of a payload");
            }
        }
    }

    /// The allocation of a [`Payload::One`], for its next use; else an empty vector.
    #[inline]
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Payload::One(memory) => memory.into_vec(),
            Payload::Nothing | Payload::Many(_) => Vec::new(),
        }
    }
}

impl<T: Into<Memory>> From<T> for Payload {
    #[inline]
    fn from(memory: T) -> Payload {
        Payload::One(memory.into())
    }
}

/// Copies a message to where there is as much room. A short one takes two moves or three, which may overlap, and
/// no call.
///
/// ```
/// let mut room = [0; 9];
/// coracle_demux::copy_short(&mut room, b"ship ahoy");
/// assert_eq!(&room, b"ship ahoy");
/// ```
///
/// # Panics
/// When the lengths differ.
#[inline(always)]
pub fn copy_short(to: &mut [u8], from: &[u8]) {
    let len = from.len();
    if (1..=3).contains(&len) {
        assert_eq!(to.len(), len);
        to[0] = from[0];
        to[len / 2] = from[len / 2];
        to[len - 1] = from[len - 1];
    } else if (4..=7).contains(&len) {
        assert_eq!(to.len(), len);
        to[..4].copy_from_slice(&from[..4]);
        to[len - 4..].copy_from_slice(&from[len - 4..]);
    } else if (8..=16).contains(&len) {
        assert_eq!(to.len(), len);
        to[..8].copy_from_slice(&from[..8]);
        to[len - 8..].copy_from_slice(&from[len - 8..]);
    } else if (17..=32).contains(&len) {
        assert_eq!(to.len(), len);
        to[..16].copy_from_slice(&from[..16]);
        to[len - 16..].copy_from_slice(&from[len - 16..]);
    } else {
        to.copy_from_slice(from);
    }
}
