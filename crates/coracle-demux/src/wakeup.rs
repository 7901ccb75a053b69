//! How another thread ends a wait: an eventfd, else a pipe, else a pair of sockets.
//!
//! All three are descriptors the backend waits for beside everything else. Where the wait is
//! edge-triggered an eventfd need never be read: each write is a new edge and 2⁶⁴ of them do not happen.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::Arc;

/// What a wake-up is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeupKind {
    /// A counter in the kernel: one descriptor, eight bytes.
    Eventfd,
    /// A pipe: two descriptors, on every Unix.
    Pipe,
    /// Two connected sockets: where even pipes are refused.
    SocketPair,
}

/// The backend's end: what it waits for.
pub(crate) struct Wakeup {
    kind: WakeupKind,
    receiver: Arc<OwnedFd>,
    sender: Arc<OwnedFd>,
    /// Set by [`drain`](Wakeup::drain).
    drained: Cell<bool>,
}

impl Wakeup {
    /// Makes the wanted kind, or the first that the kernel allows.
    pub(crate) fn open(wanted: Option<WakeupKind>) -> io::Result<Wakeup> {
        if let Some(kind) = wanted {
            return Wakeup::open_kind(kind);
        }
        Wakeup::open_kind(WakeupKind::Eventfd)
            .or_else(|_| Wakeup::open_kind(WakeupKind::Pipe))
            .or_else(|_| Wakeup::open_kind(WakeupKind::SocketPair))
    }

    fn open_kind(kind: WakeupKind) -> io::Result<Wakeup> {
        let (receiver, sender) = match kind {
            WakeupKind::Eventfd => {
                let fd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
                (Arc::clone(&fd), fd)
            }
            WakeupKind::Pipe => {
                let (receiver, sender) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
                (Arc::new(receiver), Arc::new(sender))
            }
            WakeupKind::SocketPair => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let (receiver, sender) =
                    socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                (Arc::new(receiver), Arc::new(sender))
            }
        };
        Ok(Wakeup { kind, receiver, sender, drained: Cell::new(false) })
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(Arc::new(FdWaker(Arc::clone(&self.sender))))
    }

    /// Whether an edge-triggered wait may leave the wake-up unread.
    pub(crate) fn needs_no_drain(&self) -> bool {
        self.kind == WakeupKind::Eventfd
    }

    /// Forgets the wake-ups that have arrived: also those that came after the wait had ended, for which
    /// [`was_drained`](Wakeup::was_drained) makes up.
    pub(crate) fn drain(&self) {
        self.drained.set(true);
        let mut scratch = [0u8; 512];
        // Non-blocking: the last read says EAGAIN. An eventfd is empty after one.
        while matches!(retry_on_intr(|| read(&self.receiver, &mut scratch)), Ok(512)) {}
    }

    /// Whether wake-ups were forgotten since this was last asked. If so the next wait must not sleep: some of
    /// them may have been for it.
    pub(crate) fn was_drained(&self) -> bool {
        self.drained.replace(false)
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

/// Ends a [`wait`](crate::Demux::wait). Any thread; also from a signal handler.
///
/// ```
/// use coracle_demux::{Demux, Settings};
///
/// let mut demux = coracle_demux::open(Settings::default()).unwrap();
/// let waker = demux.waker();
/// std::thread::spawn(move || waker.wake());
/// demux.wait(None).unwrap(); // returns: a wake-up is never lost, whenever it comes
/// ```
#[derive(Clone)]
pub struct Waker(Arc<dyn Wake>);

impl Waker {
    /// Makes the wait under way, or the next one, return. One system call.
    pub fn wake(&self) {
        self.0.wake();
    }

    pub(crate) fn new(wake: Arc<dyn Wake>) -> Waker {
        Waker(wake)
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}

/// What stands behind a [`Waker`]. Must be safe to call in a signal handler.
pub(crate) trait Wake: Send + Sync {
    fn wake(&self);
}

struct FdWaker(Arc<OwnedFd>);

impl Wake for FdWaker {
    fn wake(&self) {
        // EAGAIN: the pipe is full or the counter at its limit, so a wake-up is already waiting.
        match retry_on_intr(|| write(&self.0, &1u64.to_ne_bytes())) {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(error) => debug_assert!(false, "cannot wake a loop: {error}"),
        }
    }
}
