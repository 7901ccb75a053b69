//! Where a connection reads to: a little beside its state, and more for who has more to say.

/// On a stack it fits into the first page, beside what is there anyway: so an idle connection occupies one page.
const SMALL_BYTES: usize = 2 << 10;

const LARGE_BYTES: usize = 64 << 10;

/// The space of one connection, or of one direction of it.
pub(crate) struct Space {
    small: [u8; SMALL_BYTES],
    /// Made once, when the small one was full.
    large: Vec<u8>,
}

impl Space {
    #[inline]
    pub(crate) fn new() -> Space {
        Space { small: [0; SMALL_BYTES], large: Vec::new() }
    }

    #[inline]
    pub(crate) fn get(&mut self) -> &mut [u8] {
        if self.large.is_empty() { &mut self.small } else { &mut self.large }
    }

    /// So many bytes of it were used, and are done with: when that was all there is, there is more room from now
    /// on, and nothing in it. Says whether that is so.
    #[inline]
    pub(crate) fn used(&mut self, count: usize) -> bool {
        let full = count >= SMALL_BYTES && self.large.is_empty();
        if full {
            self.large = vec![0; LARGE_BYTES];
        }
        full
    }
}
