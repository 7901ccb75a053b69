//! What `h2` takes for a socket: two buffers in memory, between it and the connection.
//!
//! ```text
//!   Conn ──on_data──► input ──poll_read──►  h2
//!   Conn ◄──write──── output ◄─poll_write── h2     nothing is taken while the connection has no room
//! ```
//!
//! It keeps no wakers: whoever puts something in or takes something out polls `h2` afterwards.

use super::watch::Boundary;
use coracle_net::{Buffer, Conn};
use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much is taken from `h2` before it is given to the connection.
const LIMIT_OUTPUT_BYTES: usize = 64 << 10;

/// How much may wait for `h2`: then the connection is not read.
pub(super) const LIMIT_INPUT_BYTES: usize = 64 << 10;

/// More memory than this is not kept for the next bytes.
const KEEP_BYTES: usize = 16 << 10;

/// The end that `h2` has.
pub(super) struct Pipe(pub(super) Rc<Buffers>);

#[derive(Default)]
pub(super) struct Buffers {
    /// What has come, where it was received; what `h2` leaves of it is copied.
    input: RefCell<Buffer>,
    /// Nothing more comes.
    ended: Cell<bool>,
    /// What `h2` has written, in [memory](Buffers::set_memory) that is there while it is polled.
    output: RefCell<Vec<u8>>,
    boundary: RefCell<Boundary>,
    /// The connection has no room.
    full: Cell<bool>,
    /// There is something that was not taken.
    refused: Cell<bool>,
}

impl Buffers {
    /// Bytes have come. True if they are lent, until [`keep`](Buffers::keep); else they are added to what was
    /// kept.
    pub(super) fn lend(&self, bytes: &mut Buffer) -> bool {
        let mut input = self.input.borrow_mut();
        let is_lent = input.is_empty();
        match is_lent {
            true => *input = std::mem::take(bytes),
            false => input.extend_from_slice(bytes.take_all()),
        }
        is_lent
    }

    /// Keeps what was not read of them.
    pub(super) fn keep(&self) {
        let lent = self.input.take();
        if !lent.is_empty() {
            self.input.borrow_mut().extend_from_slice(lent.unread());
        }
    }

    /// How much waits for `h2`.
    pub(super) fn unread(&self) -> usize {
        self.input.borrow().len()
    }

    /// Nothing more comes. True if that was known.
    pub(super) fn end(&self) -> bool {
        self.ended.replace(true)
    }

    /// Notes whether the connection has room. True if it has for something that was not taken.
    pub(super) fn set_full(&self, full: bool) -> bool {
        self.full.set(full);
        !full && self.refused.replace(false)
    }

    /// Memory to write into, for what is written from now on; gives back what there was.
    pub(super) fn set_memory(&self, memory: Vec<u8>) -> Vec<u8> {
        self.output.replace(memory)
    }

    /// Gives the connection what was written: how much that was.
    pub(super) fn flush(&self, conn: &mut Conn<'_>) -> usize {
        let mut output = self.output.borrow_mut();
        let count = output.len();
        if count > KEEP_BYTES {
            conn.write(std::mem::take(&mut *output));
        } else if count > 0 {
            conn.write_with(|out| out.append(&mut output));
        }
        count
    }

    /// Whether there is something that was not taken.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.get()
    }

    /// Whether something can be put between what `h2` has written and what it will write.
    pub(super) fn is_between_frames(&self) -> bool {
        self.boundary.borrow().is_between_frames()
    }

    fn has_room(&self, output: &[u8]) -> bool {
        let room = !self.full.get() && output.len() < LIMIT_OUTPUT_BYTES;
        if !room {
            self.refused.set(true);
        }
        room
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let buffers = &self.0;
        let mut input = buffers.input.borrow_mut();
        let unread = input.unread();
        if unread.is_empty() {
            return if buffers.ended.get() { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let count = unread.len().min(space.remaining());
        space.put_slice(&unread[..count]);
        input.consume(count);
        if input.is_empty() {
            *input = Buffer::new(); // nothing is kept for what comes next
        }
        Poll::Ready(Ok(()))
    }
}

/// Slices are not taken together: all is copied anyway, and then `h2` puts small bodies behind their heads itself.
impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut output = self.0.output.borrow_mut();
        if !self.0.has_room(&output) {
            return Poll::Pending;
        }
        make_room(&mut output, bytes.len());
        output.extend_from_slice(bytes);
        self.0.boundary.borrow_mut().pass(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    /// What was written is on its way: whoever polls gives it to the connection.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// It is over then, and the connection is closed behind what it has written.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Where much is written, more follows.
fn make_room(output: &mut Vec<u8>, count: usize) {
    if output.len() + count > KEEP_BYTES {
        let missing = (LIMIT_OUTPUT_BYTES + KEEP_BYTES).saturating_sub(output.len());
        output.reserve(count.max(missing));
    }
}
