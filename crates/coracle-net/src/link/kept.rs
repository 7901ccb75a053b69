//! What a connection has received and not read: a buffer, and no memory at all while there is nothing.

use crate::Buffer;
use std::cell::Cell;

/// The place of that buffer, in a connection that mostly has none.
#[derive(Default)]
pub(super) struct Kept(Cell<Option<Box<Buffer>>>);

impl Kept {
    /// How much is there.
    #[inline]
    pub(super) fn len(&self) -> usize {
        let kept = self.0.take();
        let len = kept.as_ref().map_or(0, |kept| kept.len());
        self.0.set(kept);
        len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes it out.
    pub(super) fn take(&self) -> Buffer {
        self.0.take().map_or_else(Buffer::new, |kept| *kept)
    }

    /// Keeps this in the place of what was there. If all of it was read, its memory goes.
    pub(super) fn put(&self, buffer: Buffer) {
        self.0.set((!buffer.is_empty()).then(|| Box::new(buffer)));
    }

    /// Has something added to it.
    pub(super) fn add(&self, give: impl FnOnce(&mut Buffer)) {
        let mut kept = self.0.take().unwrap_or_default();
        give(&mut kept);
        self.0.set(Some(kept).filter(|kept| !kept.is_empty()));
    }
}
