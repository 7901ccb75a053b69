//! Where small sends wait, copied, until all of them are handed to the kernel: the quay.
//!
//! ```text
//!   try_send ──copy──► │ load │ load │ load │          │ ──► the kernel, one after the other
//!                      └──────────── used ──┘ ◄─ empty ┘
//! ```
//!
//! Whoever sends keeps its bytes and goes on at once, as after send(2). How the loads leave, and what becomes of
//! one that finds no room, is each backend's own.

use crate::memory::copy_short;
use crate::operation::Handle;

/// How much one send carries. Larger ones are worth an operation of their own.
pub(crate) const LIMIT_BYTES: usize = 4096;

/// How much waits to be handed over; beyond that it is handed over early. It stays in the cache.
const QUAY_BYTES: usize = 64 << 10;

/// The sends that are handed over next.
pub(crate) struct Quay {
    /// Never grows: the kernel may know addresses in it.
    bytes: Box<[u8]>,
    used: usize,
    loads: Vec<Load>,
    /// How often it was emptied. A descriptor that was loaded at this number has a load on it.
    voyage: u64,
}

/// One send.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) socket: Handle,
    start: u32,
    len: u32,
}

impl Load {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }
}

impl Quay {
    pub(crate) fn new() -> Quay {
        let bytes = vec![0; QUAY_BYTES].into_boxed_slice();
        Quay { bytes, used: 0, loads: Vec::new(), voyage: 1 }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.loads.is_empty()
    }

    /// Its loads, in the order they came.
    #[inline]
    pub(crate) fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// The bytes of a load.
    #[inline]
    pub(crate) fn bytes(&self, load: &Load) -> &[u8] {
        &self.bytes[load.start as usize..][..load.len()]
    }

    /// How many bytes of a socket wait.
    pub(crate) fn bytes_of(&self, socket: Handle) -> usize {
        self.loads.iter().filter(|load| load.socket == socket).map(Load::len).sum()
    }

    /// When this is: what is loaded now leaves with the voyage of this number.
    #[inline]
    pub(crate) fn voyage(&self) -> u64 {
        self.voyage
    }

    /// Whether so many bytes fit.
    #[inline]
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        bytes <= QUAY_BYTES - self.used
    }

    /// Copies `bytes`, if there is room, and shows the copy.
    #[inline(always)]
    pub(crate) fn load(&mut self, socket: Handle, bytes: &[u8]) -> Option<&[u8]> {
        let start = self.used;
        let copy = self.bytes.get_mut(start..start + bytes.len())?;
        copy_short(copy, bytes);
        self.used = start + bytes.len();
        self.loads.push(Load { socket, start: start as u32, len: bytes.len() as u32 });
        Some(copy)
    }

    /// Undoes the last [`load`](Quay::load).
    pub(crate) fn take_back(&mut self) {
        if let Some(load) = self.loads.pop() {
            self.used = load.start as usize;
        }
    }

    /// All of them were handed over, and are over.
    #[inline]
    pub(crate) fn empty(&mut self) {
        self.voyage += 1;
        self.used = 0;
        self.loads.clear();
    }
}
