//! Bytes that are put together to be sent.

use coracle_loop::demux::copy_short;
use std::fmt;

/// Room for most of what is put together.
const FIRST_BYTES: usize = 4 << 10;

/// Room that is kept for the next time. There is more only if there was more to be sent.
const KEPT_BYTES: usize = 64 << 10;

/// Bytes that are put together to be sent, and room behind them: what a protocol writes into in
/// [`Conn::write_with`](crate::Conn::write_with). Many short pieces are cheaper here than in a `Vec`.
///
/// ```
/// use coracle_net::WriteBuffer;
///
/// let mut out = WriteBuffer::default();
/// out.push(b"ship ");
/// out.push(b"ahoy");
/// assert_eq!((out.as_slice(), out.len()), (&b"ship ahoy"[..], 9));
/// ```
#[derive(Default)]
pub struct WriteBuffer {
    space: Vec<u8>,
    len: usize,
}

impl WriteBuffer {
    /// Adds bytes at the end.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
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

    /// Adds all of `other`, and leaves it empty. If nothing is here yet, the two change their memory, and nothing
    /// is copied.
    ///
    /// ```
    /// # use coracle_net::WriteBuffer;
    /// let (mut out, mut other) = (WriteBuffer::default(), b"ahoy".to_vec());
    /// out.append(&mut other);
    /// assert_eq!((out.as_slice(), other.len()), (&b"ahoy"[..], 0));
    /// ```
    #[inline]
    pub fn append(&mut self, other: &mut Vec<u8>) {
        if self.len == 0 {
            std::mem::swap(&mut self.space, other);
            self.len = self.space.len();
        } else {
            self.push(other);
        }
        other.clear();
    }

    /// What is there.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.space[..self.len]
    }

    /// How many bytes are there.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes away what is behind the first `len` bytes.
    #[inline]
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes it empty. Memory is kept, unless it was unusually much.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.space.capacity() > KEPT_BYTES {
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

impl fmt::Debug for WriteBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e1_what_is_written_is_kept_in_order_whatever_its_size() {
        let mut written = WriteBuffer::default();
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
        written.clear();
        let mut large = Vec::with_capacity(1 << 20);
        large.extend_from_slice(b"little, in much memory");
        written.append(&mut large);
        written.clear();
        assert_eq!(written.space.capacity(), 0, "nor is what was needed elsewhere");
    }

    #[test]
    fn e1_what_was_put_together_elsewhere_is_not_copied_if_nothing_is_before_it() {
        let (mut written, mut bytes) = (WriteBuffer::default(), b"ahoy".to_vec());
        let place = bytes.as_ptr();
        written.append(&mut bytes);
        assert_eq!((written.as_slice(), written.as_slice().as_ptr()), (&b"ahoy"[..], place));
        written.push(b", ");
        bytes.extend_from_slice(b"ship");
        written.append(&mut bytes);
        assert_eq!((written.as_slice(), bytes.len()), (&b"ahoy, ship"[..], 0));
        written.clear();
        bytes.extend_from_slice(b"again");
        written.append(&mut bytes);
        assert_eq!((written.as_slice(), bytes.len()), (&b"again"[..], 0));
    }
}
