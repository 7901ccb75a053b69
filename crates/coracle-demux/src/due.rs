//! Sends that parked coroutines await: they are kept for a moment, and then made one after the other.
//!
//! ```text
//!   await_send ──► due ──► send, send, send … ──► landed ──► told: so many bytes, or an error
//!                              └──► EAGAIN: 0 bytes
//! ```
//!
//! They are of sockets that are lent, whose owners may end a direction, or the process, as soon as a send has
//! returned. So it returns when the kernel has had its attempt, and nothing is copied or kept. Why one after the
//! other is cheaper than each at its time: docs/benchmarks/returns.md.

use crate::attempt;
use crate::descriptor::Kind;
use crate::landing::{self, Awaited, Landed};
use crate::memory::Memory;
use crate::operation::Handle;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::collections::VecDeque;

/// So many are worth a row of their own, though there is more to be told before: who waits is still in the cache.
const ROW: usize = 32;

/// The sends that are due, and those that are over and not told.
#[derive(Default)]
pub(crate) struct Due {
    sends: Vec<DueSend>,
    landed: VecDeque<(Awaited, Landed)>,
}

struct DueSend {
    socket: Handle,
    bytes: Memory,
    awaited: Awaited,
}

impl Due {
    #[inline]
    pub(crate) fn push(&mut self, socket: Handle, bytes: Memory, awaited: Awaited) {
        self.sends.push(DueSend { socket, bytes, awaited });
    }

    /// Whether there is nobody to be told, now or later.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.sends.is_empty() && self.landed.is_empty()
    }

    #[inline]
    pub(crate) fn is_row(&self) -> bool {
        self.sends.len() >= ROW
    }

    /// How many were not told.
    pub(crate) fn in_flight(&self) -> usize {
        self.sends.len() + self.landed.len()
    }

    /// The sockets of those that are due.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = Handle> {
        self.sends.iter().map(|send| send.socket)
    }

    /// Makes all of them. In one function, with nothing in between.
    #[inline(always)]
    pub(crate) fn send_all<'a>(&mut self, find: impl Fn(Handle) -> Option<(BorrowedFd<'a>, Kind)>) {
        for DueSend { socket, bytes, awaited } in self.sends.drain(..) {
            let sent = match find(socket) {
                Some((fd, kind)) => attempt::send_bytes(fd, kind, bytes.as_slice()),
                None => Some(Err(Errno::BADF.into())), // never: who forgets a socket cancels what is due
            };
            let landed = match sent {
                Some(Ok(count)) => Landed::Count(count),
                Some(Err(error)) => landing::failed(&error),
                None => Landed::Count(0),
            };
            self.landed.push_back((awaited, landed));
        }
    }

    /// The socket goes. Who waits is told, when its turn comes.
    pub(crate) fn cancel(&mut self, socket: Handle) {
        let cancelled = Landed::Failed(Errno::CANCELED.raw_os_error());
        let gone = self.sends.extract_if(.., |send| send.socket == socket);
        self.landed.extend(gone.map(|send| (send.awaited, cancelled)));
    }

    /// The next to be told.
    #[inline]
    pub(crate) fn tell(&mut self) -> Option<Awaited> {
        let (awaited, landed) = self.landed.pop_front()?;
        awaited.land(landed);
        Some(awaited)
    }

    /// Nobody is told any more, and who waited may be gone.
    pub(crate) fn forget(&mut self) {
        *self = Due::default();
    }
}
