//! What is the same about operations wherever they are started.

use coracle_loop::Loop;
use coracle_loop::demux::{Handle, Operation};
use rustix::io::Errno;
use std::io;

/// Closes something, and does not wait for it.
pub(crate) fn close(lp: &Loop, handle: Handle) {
    lp.operate(Operation::Close { handle }, |_, _| ());
}

/// Whether an operation ended because it was cancelled.
pub(crate) fn is_cancelled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::CANCELED.raw_os_error())
}
