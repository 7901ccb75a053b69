//! What the running callback writes, until it returns and all of it is sent together.
//!
//! There is one for all connections of a loop: it is empty between callbacks, so a connection that waits has no
//! memory for output, and an answer is written where the last one was, in the processor's cache.

use crate::link::Link;
use coracle_loop::demux::copy_short;
use std::cell::{Cell, RefCell};

/// Room for the answers of most callbacks.
const FIRST_BYTES: usize = 4 << 10;

/// Room that is kept for the next callback. There is more only if more was written by the last.
const KEPT_BYTES: usize = 64 << 10;

/// What the callback that runs has written, and of which connection it is: others may be written to meanwhile.
pub(crate) struct Scratch {
    /// Compared, and not followed.
    owner: Cell<*const Link>,
    pub(crate) written: RefCell<Written>,
}

/// Bytes, and room behind them.
#[derive(Default)]
pub(crate) struct Written {
    space: Vec<u8>,
    len: usize,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch { owner: Cell::new(std::ptr::null()), written: RefCell::default() }
    }
}

impl Scratch {
    /// A callback of `link`'s begins to write.
    #[inline]
    pub(crate) fn begin(&self, link: &Link) {
        self.owner.set(link);
    }

    #[inline]
    pub(crate) fn is_of(&self, link: &Link) -> bool {
        std::ptr::eq(self.owner.get(), link)
    }

    /// Runs `f` with an empty one; what is written so far stays with whom it is of.
    #[inline]
    pub(crate) fn aside(&self, f: impl FnOnce()) {
        let owner = self.owner.get();
        // Mostly nothing is; then both use the same memory, and none is allocated.
        let is_empty = self.written.borrow().len() == 0;
        let written = if is_empty { Written::default() } else { self.written.take() };
        f();
        self.owner.set(owner);
        if !is_empty {
            self.written.replace(written);
        }
    }
}

impl Written {
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        match self.space.get_mut(self.len..end) {
            Some(room) => copy_short(room, bytes),
            None => self.push_with_more_room(end, bytes),
        }
        self.len = end;
    }

    #[cold]
    fn push_with_more_room(&mut self, end: usize, bytes: &[u8]) {
        self.space.resize(end.next_power_of_two().max(FIRST_BYTES), 0);
        self.space[self.len..end].copy_from_slice(bytes);
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.space[..self.len]
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.len > KEPT_BYTES {
            self.shrink();
        }
        self.len = 0;
    }

    /// Gives back what an unusually long answer has needed.
    #[cold]
    fn shrink(&mut self) {
        self.space = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e1_what_is_written_is_kept_in_order_whatever_its_size() {
        let mut written = Written::default();
        let mut expected = Vec::new();
        for size in (0..40).chain([4095, 4096, 4097, 100_000]) {
            let bytes: Vec<u8> = (0..size).map(|at| (at + expected.len()) as u8).collect();
            written.push(&bytes);
            expected.extend_from_slice(&bytes);
            assert_eq!((written.as_slice(), written.len()), (&expected[..], expected.len()));
        }
        written.clear();
        assert_eq!(written.as_slice(), b"");
        assert_eq!(written.space.capacity(), 0, "what was needed once is not kept for ever");
        written.push(&[0; 60_000]);
        written.clear();
        assert_eq!(written.space.len(), KEPT_BYTES, "what is needed often is");
        written.push(b"again");
        assert_eq!(written.as_slice(), b"again");
    }
}
