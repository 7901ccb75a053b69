//! Received bytes that nobody has used yet.
//!
//! ```text
//!        consumed        unread               room
//!   ├───────────────┼───────────────┼╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┤
//!                 start            end
//! ```
//!
//! Whoever reads takes from the front, in the units of its protocol: a line, so many bytes, all there is. What it
//! leaves stays for the next time, so a protocol needs no buffer of its own for half a message.
//!
//! A buffer that nothing waits in owns no memory: bytes just received lie in memory lent by the loop, and only
//! what is left of them after a callback is copied. A thousand idle connections have a thousand empty buffers.

use bytes::{Bytes, BytesMut};
use coracle_loop::demux::Lent;
use memchr::memmem;
use std::fmt;

/// An allocation larger than this is given back once all of it has been read.
const KEEP_BYTES: usize = 16 << 10;

/// Bytes waiting to be read, in the order in which they came.
///
/// ```
/// use coracle_net::Buffer;
///
/// let mut input = Buffer::from(b"HELO sea\r\nDATA 4\nahoy".to_vec());
/// assert_eq!(input.take_line(), Some(&b"HELO sea"[..]));
/// assert_eq!(input.take_line(), Some(&b"DATA 4"[..]));
/// assert_eq!(input.take_exact(4), Some(&b"ahoy"[..]));
/// assert_eq!(input.take_line(), None); // nothing there: wait for more
/// ```
#[derive(Default)]
pub struct Buffer {
    store: Store,
    /// Where the unread bytes begin.
    start: usize,
    /// How far behind `start` a delimiter was looked for in vain: bytes that come one by one are searched once.
    searched: usize,
    /// Which delimiter that was.
    sought: u64,
    /// Room that was reserved behind the bytes and not committed.
    reserved: usize,
}

/// Where the bytes are.
enum Store {
    Owned(BytesMut),
    /// In memory of the loop's, until the callback returns.
    Lent(Lent),
}

impl Default for Store {
    fn default() -> Store {
        Store::Owned(BytesMut::new())
    }
}

impl Buffer {
    /// An empty buffer, without memory.
    pub fn new() -> Buffer {
        Buffer::default()
    }

    // --- Reading ---------------------------------------------------------------------------------------

    /// Everything that has not been read.
    #[inline]
    pub fn unread(&self) -> &[u8] {
        &self.stored()[self.start..]
    }

    /// How many bytes have not been read.
    #[inline]
    pub fn len(&self) -> usize {
        self.unread().len()
    }

    /// Whether there is nothing to read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.unread().is_empty()
    }

    /// Reads `count` bytes without looking at them.
    ///
    /// # Panics
    /// When there are fewer.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.len(), "consumed {count} bytes of {}", self.len());
        self.start += count;
        self.searched = 0;
    }

    /// Reads everything.
    ///
    /// ```
    /// # use coracle_net::Buffer;
    /// let mut input = Buffer::from(b"ahoy".to_vec());
    /// assert_eq!(input.take_all(), b"ahoy");
    /// assert!(input.is_empty());
    /// ```
    #[inline]
    pub fn take_all(&mut self) -> &[u8] {
        let end = self.stored().len();
        let start = std::mem::replace(&mut self.start, end);
        self.searched = 0;
        &self.stored()[start..]
    }

    /// Reads exactly `count` bytes, or none while there are fewer.
    ///
    /// ```
    /// # use coracle_net::Buffer;
    /// let mut input = Buffer::from(b"12345".to_vec());
    /// assert_eq!(input.take_exact(3), Some(&b"123"[..]));
    /// assert_eq!(input.take_exact(3), None);
    /// assert_eq!(input.unread(), b"45"); // they stay until the third is there
    /// ```
    #[inline]
    pub fn take_exact(&mut self, count: usize) -> Option<&[u8]> {
        (count <= self.len()).then(|| self.take(count))
    }

    /// Reads a line: what is before the next `\n`, without it and without a `\r` before it. `None` while there is
    /// no whole line.
    ///
    /// A peer that never ends its line is stopped by the connection's limit of input, not here.
    pub fn take_line(&mut self) -> Option<&[u8]> {
        let line = self.take_until(b"\n")?;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Reads what is before the next `delimiter`, and the delimiter, which is left out. `None` while it is not
    /// there.
    ///
    /// ```
    /// # use coracle_net::Buffer;
    /// let mut input = Buffer::from(b"head\r\n\r\nbody".to_vec());
    /// assert_eq!(input.take_until(b"\r\n\r\n"), Some(&b"head"[..]));
    /// assert_eq!(input.unread(), b"body");
    /// ```
    ///
    /// # Panics
    /// When `delimiter` is empty.
    pub fn take_until(&mut self, delimiter: &[u8]) -> Option<&[u8]> {
        assert!(!delimiter.is_empty(), "a delimiter has at least one byte");
        // What was searched for something else has not been searched for this.
        let sought = identity(delimiter);
        if std::mem::replace(&mut self.sought, sought) != sought {
            self.searched = 0;
        }
        // It may have begun in what was searched before.
        let from = self.searched.saturating_sub(delimiter.len() - 1);
        let unread = &self.unread()[from..];
        let found = match delimiter {
            [byte] => memchr::memchr(*byte, unread),
            _ => memmem::find(unread, delimiter),
        };
        let Some(at) = found else {
            self.searched = self.len();
            return None;
        };
        let len = from + at;
        let taken = self.take(len + delimiter.len());
        Some(&taken[..len])
    }

    /// Reads `count` bytes, or all when there are fewer, as bytes of the caller's own. They are handed over
    /// without a copy where the buffer owns them.
    ///
    /// ```
    /// # use coracle_net::Buffer;
    /// let mut input = Buffer::from(b"one and two".to_vec());
    /// let one = input.take_bytes(3);
    /// drop(input);
    /// assert_eq!(one, "one");
    /// ```
    pub fn take_bytes(&mut self, count: usize) -> Bytes {
        let count = count.min(self.len());
        match &mut self.store {
            Store::Owned(bytes) => {
                let _ = bytes.split_to(self.start);
                self.start = 0;
                self.searched = 0;
                bytes.split_to(count).freeze()
            }
            Store::Lent(_) => Bytes::copy_from_slice(self.take(count)),
        }
    }

    #[inline]
    fn take(&mut self, count: usize) -> &[u8] {
        let start = self.start;
        self.consume(count);
        &self.stored()[start..start + count]
    }

    /// Everything there is, read or not, without what was only reserved.
    #[inline]
    fn stored(&self) -> &[u8] {
        match &self.store {
            Store::Owned(bytes) => &bytes[..bytes.len() - self.reserved],
            Store::Lent(lent) => lent,
        }
    }

    // --- Writing ---------------------------------------------------------------------------------------

    /// Adds bytes at the end.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.own().extend_from_slice(bytes);
    }

    /// Makes room for `count` bytes behind those that are there. What is written into it becomes part of the
    /// buffer by [`commit`](Buffer::commit).
    ///
    /// ```
    /// # use coracle_net::Buffer;
    /// let mut input = Buffer::new();
    /// input.reserve(8)[..4].copy_from_slice(b"ahoy"); // as a decoder would
    /// assert!(input.is_empty());
    /// input.commit(4);
    /// assert_eq!(input.unread(), b"ahoy");
    /// ```
    pub fn reserve(&mut self, count: usize) -> &mut [u8] {
        let bytes = self.own();
        let end = bytes.len();
        bytes.resize(end + count, 0);
        self.reserved = count;
        match &mut self.store {
            Store::Owned(bytes) => &mut bytes[end..],
            Store::Lent(_) => unreachable!("owned since `own`"),
        }
    }

    /// Makes the first `count` bytes of what was [reserved](Buffer::reserve) part of the buffer, and gives up the
    /// rest.
    ///
    /// # Panics
    /// When less was reserved.
    pub fn commit(&mut self, count: usize) {
        assert!(count <= self.reserved, "committed {count} bytes of {} reserved", self.reserved);
        self.reserved -= count;
        self.own();
    }

    /// The memory of our own, with the bytes in it and nothing behind them.
    fn own(&mut self) -> &mut BytesMut {
        if let Store::Lent(lent) = &self.store {
            let bytes = BytesMut::from(&lent[self.start..]);
            self.store = Store::Owned(bytes);
            self.start = 0;
        }
        let Store::Owned(bytes) = &mut self.store else { unreachable!("made above") };
        bytes.truncate(bytes.len() - std::mem::take(&mut self.reserved));
        bytes
    }

    /// Bytes that the loop lends for the length of a callback, and nothing else.
    #[inline]
    pub(crate) fn lent(lent: Lent) -> Buffer {
        Buffer { store: Store::Lent(lent), start: 0, searched: 0, sought: 0, reserved: 0 }
    }

    /// Takes in bytes that the loop lends for the length of a callback. Where nothing waits they are not copied.
    #[inline(always)] // on the way of every message, and it has other callers
    pub(crate) fn receive(&mut self, lent: Lent) {
        if self.is_empty() {
            self.store = Store::Lent(lent);
            self.start = 0;
            self.searched = 0;
            self.reserved = 0;
        } else {
            self.extend_from_slice(&lent);
        }
    }

    /// The callback is over: copies what it left, and gives back what it has not.
    #[inline(always)] // as above
    pub(crate) fn settle(&mut self) {
        match &mut self.store {
            Store::Lent(lent) if self.start == lent.len() => *self = Buffer::new(),
            Store::Lent(_) => drop(self.own()),
            Store::Owned(bytes) => {
                // Moving the rest to the front costs no more than reading what was before it.
                if self.start == bytes.len() && bytes.capacity() > KEEP_BYTES {
                    *self = Buffer::new();
                } else if self.start * 2 >= bytes.len() {
                    let _ = bytes.split_to(self.start);
                    self.start = 0;
                }
            }
        }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        let store = Store::Owned(BytesMut::from(Bytes::from(bytes)));
        Buffer { store, start: 0, searched: 0, sought: 0, reserved: 0 }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:?})", Bytes::copy_from_slice(self.unread()))
    }
}

/// A number for a delimiter: its bytes and length if it is short, else a hash (FNV-1a). Delimiters come from
/// programs, not from peers.
fn identity(delimiter: &[u8]) -> u64 {
    if delimiter.len() < 8 {
        return delimiter
            .iter()
            .fold(delimiter.len() as u64, |sum, &byte| sum << 8 | u64::from(byte));
    }
    let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    delimiter.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e5_what_was_searched_for_one_delimiter_is_searched_for_another() {
        let mut input = Buffer::from(b"a,b".to_vec());
        assert_eq!(input.take_line(), None);
        assert_eq!(input.take_until(b","), Some(&b"a"[..]));
        assert_eq!(input.take_until(b"\r\n\r\n"), None);
        input.extend_from_slice(b"\r\n\r\nc");
        assert_eq!(input.take_until(b"\r\n\r\n"), Some(&b"b"[..]));
    }
}
