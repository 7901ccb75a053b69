//! What the running callback writes, until it returns and all of it is sent together.
//!
//! There is one for all connections of a loop: it is empty between callbacks, so a connection that waits has no
//! memory for output, and an answer is written where the last one was, in the processor's cache.

use crate::WriteBuffer;
use crate::link::Link;
use std::cell::{Cell, RefCell};

/// What the callback that runs has written, and of which connection it is: others may be written to meanwhile.
pub(crate) struct Scratch {
    /// Compared, and not followed.
    owner: Cell<*const Link>,
    pub(crate) written: RefCell<WriteBuffer>,
    /// Memory for what cannot be written there, because of what waits to be sent before it.
    pub(crate) spare: RefCell<WriteBuffer>,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch {
            owner: Cell::new(std::ptr::null()),
            written: RefCell::default(),
            spare: RefCell::default(),
        }
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
        let is_empty = self.written.borrow().is_empty();
        let written = if is_empty { WriteBuffer::default() } else { self.written.take() };
        f();
        self.owner.set(owner);
        if !is_empty {
            self.written.replace(written);
        }
    }
}
