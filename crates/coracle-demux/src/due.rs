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
use crate::landing::{self, Awaited, CANCELLED, Landed};
use crate::memory::Memory;
use crate::operation::Handle;
use rustix::fd::BorrowedFd;
use std::collections::VecDeque;

/// So many are worth a row of their own, though there is more to be told before: who waits is still in the cache.
const ROW: usize = 32;

/// The sends that are due, and those that are over and not told.
#[derive(Default)]
pub(crate) struct Due {
    sends: Vec<Send>,
    landed: VecDeque<(Awaited, Landed)>,
    /// What has ended before it began, of which somebody is told before everything else.
    ended: VecDeque<Awaited>,
    /// How many were not told, of all three: most loops look at this in every turn and have none.
    untold: usize,
    /// Below [`ROW`], how many were told in a row; from there on, how many others were told since. For who is told
    /// may send again, and again.
    told: usize,
}

/// A send that a parked coroutine [awaits](crate::Demux::await_send).
struct Send {
    /// Where to: a socket that is lent.
    socket: Handle,
    bytes: Memory,
    awaited: Awaited,
}

impl Send {
    #[inline(always)]
    fn make(&self, fd: BorrowedFd<'_>, kind: Kind) -> Landed {
        match attempt::send_bytes(fd, kind, self.bytes.as_slice()) {
            Some(Ok(count)) => Landed::Count(count),
            Some(Err(error)) => landing::failed(&error),
            None => Landed::Count(0),
        }
    }
}

impl Due {
    #[inline]
    pub(crate) fn push(&mut self, socket: Handle, bytes: Memory, awaited: Awaited) {
        self.sends.push(Send { socket, bytes, awaited });
        self.untold += 1;
    }

    /// Whether there is nobody to be told, now or later.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.untold == 0
    }

    /// Whether somebody can be told now.
    #[inline]
    pub(crate) fn has_landed(&self) -> bool {
        !self.landed.is_empty()
    }

    #[inline]
    pub(crate) fn is_row(&self) -> bool {
        self.sends.len() >= ROW
    }

    /// How many were not told.
    pub(crate) fn in_flight(&self) -> usize {
        debug_assert_eq!(self.untold, self.sends.len() + self.landed.len() + self.ended.len());
        self.untold
    }

    /// The sockets of those that are due.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = Handle> {
        self.sends.iter().map(|send| send.socket)
    }

    /// Makes all of them, in one function and with nothing in between.
    #[inline(always)]
    pub(crate) fn send_all<'a>(&mut self, find: impl Fn(Handle) -> Option<(BorrowedFd<'a>, Kind)>) {
        for send in self.sends.drain(..) {
            let landed = match find(send.socket) {
                Some((fd, kind)) if !send.awaited.is_lost() => send.make(fd, kind),
                _ => CANCELLED, // its number is another's by now
            };
            self.landed.push_back((send.awaited, landed));
        }
    }

    /// Makes those of a socket that is taken back, and still open.
    pub(crate) fn send_last(&mut self, socket: Handle, fd: BorrowedFd<'_>, kind: Kind) {
        let last = self.sends.extract_if(.., |send| send.socket == socket);
        self.landed.extend(last.map(|send| {
            let landed = send.make(fd, kind);
            (send.awaited, landed)
        }));
    }

    /// The socket is gone. Who waits is told, when its turn comes.
    pub(crate) fn cancel(&mut self, socket: Handle) {
        let gone = self.sends.extract_if(.., |send| send.socket == socket);
        self.landed.extend(gone.map(|send| (send.awaited, CANCELLED)));
    }

    /// Somebody is told that what they await has ended before it began.
    #[cold]
    pub(crate) fn end(&mut self, awaited: Awaited) {
        self.ended.push_back(awaited);
        self.untold += 1;
    }

    /// The next of those. They are told first: there is nothing to do for them, and few are cancelled in a turn.
    #[inline]
    pub(crate) fn tell_ended(&mut self) -> Option<Awaited> {
        let awaited = self.ended.pop_front()?;
        self.untold -= 1;
        awaited.land(CANCELLED);
        Some(awaited)
    }

    /// The next to be told, unless it is the turn of others.
    #[inline]
    pub(crate) fn tell(&mut self) -> Option<Awaited> {
        if self.told >= ROW {
            return None;
        }
        let (awaited, landed) = self.landed.pop_front()?;
        self.untold -= 1;
        self.told += 1;
        awaited.land(landed);
        Some(awaited)
    }

    /// Whether it is the turn of others to be told. It is over when a row of them was, or there are none.
    #[inline]
    pub(crate) fn is_others_turn(&self) -> bool {
        self.told >= ROW
    }

    /// One of the others is told, or there is none.
    #[inline]
    pub(crate) fn note_other(&mut self, some: bool) {
        self.told += 1;
        if !some || self.told >= 2 * ROW {
            self.told = 0;
        }
    }

    /// Nobody is told any more, and who waited may be gone.
    pub(crate) fn forget(&mut self) {
        *self = Due::default();
    }
}
