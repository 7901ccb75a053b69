//! Ending operations: from a completion of the kernel's to what it means for the loop.

use super::awaited::AWAITED;
use super::{ALARM, CARRIED, Extra, Stage, Uring, WAKEUP};
use crate::attempt;
use crate::descriptor::{Kind, Source};
use crate::file;
use crate::landing::Arrival;
use crate::lent::Lent;
use crate::memory::Payload;
use crate::operation::{
    Completion, FileKind, Handle, Metadata, Operation, Outcome, Readiness, Token,
};
use crate::poll;
use io_uring::cqueue;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::FileType;
use rustix::io::Errno;
use slotmap::{Key, KeyData};
use std::io;
use std::sync::Arc;

impl Uring {
    /// Takes in the most frequent of all completions: bytes in a lent buffer, and more to follow.
    #[inline(always)]
    pub(super) fn received_more(&self, entry: &cqueue::Entry) -> Option<Completion> {
        if !cqueue::more(entry.flags()) {
            return None;
        }
        let id = cqueue::buffer_select(entry.flags())?;
        let count = u32::try_from(entry.result()).ok().filter(|&count| count > 0)?;
        if self.lent.is_scarce() {
            return None; // a copy will do
        }
        // Only a lent receive takes a buffer. The token is in use: its last completion is still to come.
        let token = Token::from(KeyData::from_ffi(entry.user_data()));
        let result = Ok(Outcome::Lent(self.lent.lend(self.lent.spare(id), count as usize)));
        Some(Completion { token, more: true, result, payload: Payload::Nothing })
    }

    /// A completion that needed no kernel.
    #[cold]
    pub(super) fn take_finished(&mut self) -> Option<Completion> {
        let completion = self.finished.pop_front()?;
        if !completion.more {
            self.operations.remove(completion.token);
        }
        Some(completion)
    }

    /// Takes in one completion of the kernel's, and says what it means for the loop.
    #[inline(never)]
    pub(super) fn take_in(&mut self, entry: &cqueue::Entry) -> Option<Arrival> {
        let user_data = entry.user_data();
        if user_data < CARRIED {
            self.rest_sent(user_data, decode(entry.result()));
            return None;
        }
        if user_data >= ALARM {
            match user_data {
                WAKEUP => self.woken(entry.flags()),
                ALARM => self.clock.alarm.rang(),
                _ => {}
            }
            return None;
        }
        if user_data & AWAITED != 0 {
            return self.failed_awaited(entry).map(Arrival::Landed);
        }
        let token = Token::from(KeyData::from_ffi(user_data));
        self.take_in_operation(token, entry).map(Arrival::Completion)
    }

    /// The same if it is about an operation of the table.
    fn take_in_operation(&mut self, token: Token, entry: &cqueue::Entry) -> Option<Completion> {
        let more = cqueue::more(entry.flags());
        let Some(in_flight) = self.operations.get_mut(token) else {
            debug_assert!(false, "the kernel completed an operation twice");
            return None;
        };
        if !more {
            self.with_kernel -= 1;
        }
        if in_flight.stage == Stage::Readiness {
            self.staged_ready(token, decode(entry.result()));
            return None;
        }
        let result = decode(entry.result());
        match in_flight.operation {
            Operation::ReceiveLent { .. } => self.received_lent(token, result, entry.flags(), more),
            Operation::Send { .. } | Operation::Receive { .. }
                if matches!(result, Err(Errno::AGAIN | Errno::INTR)) =>
            {
                self.again(token, |uring| uring.issue(token))
            }
            Operation::Send { .. } => {
                let result = result.map(|count| Outcome::Count(count as usize));
                Some(self.complete(token, result.map_err(io::Error::from)))
            }
            Operation::Accept { .. } => self.accepted(token, result, more),
            _ => {
                let result = self.outcome(token, result, entry.flags());
                Some(self.complete(token, result))
            }
        }
    }

    pub(super) fn woken(&mut self, flags: u32) {
        if !self.wakeup.needs_no_drain() {
            self.wakeup.drain();
        }
        if !cqueue::more(flags) {
            self.watch_wakeup();
        }
    }

    pub(super) fn received_lent(
        &mut self,
        token: Token,
        result: Result<u32, Errno>,
        flags: u32,
        more: bool,
    ) -> Option<Completion> {
        let lent = match result {
            Ok(0) => {
                if let Some(id) = cqueue::buffer_select(flags) {
                    self.lent.give_back(id);
                }
                return Some(self.complete(token, Ok(Outcome::Lent(Lent::end()))));
            }
            Ok(count) => {
                let id = cqueue::buffer_select(flags).expect("a lent receive took a buffer");
                self.lent.lend(self.lent.spare(id), count as usize).or_copy()
            }
            Err(Errno::NOBUFS) if !more => {
                // More arrived in one turn than there are buffers. They are back at the end of it.
                return self.again(token, |uring| uring.starved.push(token));
            }
            Err(Errno::INTR | Errno::AGAIN) => {
                return self.again(token, |uring| uring.issue(token));
            }
            Err(error) => return Some(self.complete(token, Err(error.into()))),
        };
        let result = Ok(Outcome::Lent(lent));
        if !more {
            if self.multishot || self.operations[token].cancelled {
                return Some(self.complete(token, result)); // the kernel has had enough: submit again
            }
            self.issue(token);
        }
        Some(Completion { token, more: true, result, payload: Payload::Nothing })
    }

    pub(super) fn accepted(
        &mut self,
        token: Token,
        result: Result<u32, Errno>,
        more: bool,
    ) -> Option<Completion> {
        let in_flight = &self.operations[token];
        let result = match result {
            Ok(fd) => {
                // A listener's kind is its connections' kind.
                let kind = self.slots[in_flight.handle].kind;
                // SAFETY: accept has just made this descriptor, and nobody else knows it.
                let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
                Ok(Outcome::Accepted(self.insert(Source::Owned(fd), kind)))
            }
            Err(error)
                if attempt::is_of_the_connection(error)
                    || matches!(error, Errno::INTR | Errno::AGAIN) =>
            {
                return if more { None } else { self.again(token, |uring| uring.issue(token)) };
            }
            Err(error) => Err(error.into()),
        };
        if more {
            return Some(Completion { token, more, result, payload: Payload::Nothing });
        }
        let ended = self.multishot || self.operations[token].cancelled || result.is_err();
        if ended {
            return Some(self.complete(token, result));
        }
        self.issue(token);
        Some(Completion { token, more: true, result, payload: Payload::Nothing })
    }

    /// Goes on with an operation that the kernel has ended early, unless it was cancelled meanwhile.
    pub(super) fn again(
        &mut self,
        token: Token,
        go_on: impl FnOnce(&mut Uring),
    ) -> Option<Completion> {
        if self.operations[token].cancelled {
            return Some(self.complete(token, Err(Errno::CANCELED.into())));
        }
        self.operations[token].stage = Stage::Here;
        go_on(self);
        None
    }

    /// What the kernel's number means for this operation.
    pub(super) fn outcome(
        &mut self,
        token: Token,
        result: Result<u32, Errno>,
        flags: u32,
    ) -> io::Result<Outcome> {
        let in_flight = &mut self.operations[token];
        match (&in_flight.operation, result) {
            (Operation::Connect { .. }, Err(Errno::AGAIN)) => {
                Err(Errno::CONNREFUSED.into()) // the backlog of a Unix socket is full
            }
            (_, Err(error)) => Err(error.into()),
            (Operation::Receive { space, .. }, Ok(count)) => {
                // One that was lent may have been taken back meanwhile.
                if let Some(slot) = self.slots.get_mut(in_flight.handle) {
                    let short = (count as usize) < space.len();
                    let drained = short && count > 0 && !cqueue::sock_nonempty(flags);
                    slot.drained = drained && slot.kind == Kind::Tcp;
                }
                Ok(Outcome::Count(count as usize))
            }
            (
                Operation::Send { .. } | Operation::Read { .. } | Operation::Write { .. },
                Ok(count),
            ) => Ok(Outcome::Count(count as usize)),
            (Operation::Poll { interest, .. }, Ok(flags)) => {
                let ready = poll::readiness(PollFlags::from_bits_truncate(flags as u16));
                Ok(Outcome::Ready(ready.answer(*interest).unwrap_or(Readiness::empty())))
            }
            (Operation::AcceptNumber { .. }, Ok(fd)) => {
                // SAFETY: accept has just made this descriptor, and nobody else knows it.
                Ok(Outcome::Taken(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
            }
            (Operation::Open { .. }, Ok(fd)) => {
                // SAFETY: open has just made this descriptor, and nobody else knows it.
                let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
                let kind = Kind::of(fd.as_fd())?;
                Ok(Outcome::Opened(self.insert(Source::File(Arc::new(fd)), kind)))
            }
            (Operation::Stat { .. }, Ok(_)) => match in_flight.extra.as_deref() {
                Some(Extra::Statx(statx)) => Ok(Outcome::Metadata(Box::new(metadata(statx)))),
                _ => unreachable!("a stat has a place for its answer"),
            },
            (_, Ok(_)) => Ok(Outcome::Nothing),
        }
    }

    /// The descriptor of a staged operation is ready, or the wait for it has failed.
    pub(super) fn staged_ready(&mut self, token: Token, result: Result<u32, Errno>) {
        match result {
            Ok(_) => self.attempt_staged(token),
            Err(Errno::INTR | Errno::AGAIN) => self.await_readiness(token),
            Err(error) => self.finish(token, Err(error.into())),
        }
    }

    /// The final completion of an operation, to be taken later.
    pub(super) fn finish(&mut self, token: Token, result: io::Result<Outcome>) {
        self.detach_operation(token);
        let in_flight = &mut self.operations[token];
        in_flight.stage = Stage::Ended;
        let handle = in_flight.handle;
        let nothing = Operation::Close { handle: Handle::null() };
        let operation = std::mem::replace(&mut in_flight.operation, nothing);
        let payload = self.wind_up(handle, operation);
        self.finished.push_back(Completion { token, more: false, result, payload });
        self.close_if_idle(handle);
    }

    /// The final completion of an operation, to be taken now.
    #[inline]
    pub(super) fn complete(&mut self, token: Token, result: io::Result<Outcome>) -> Completion {
        self.detach_operation(token);
        let ended = self.operations.remove(token).expect("an operation ends once");
        let handle = ended.handle;
        let payload = self.wind_up(handle, ended.operation);
        self.close_if_idle(handle);
        Completion { token, more: false, result, payload }
    }

    /// Goes on with a close that has waited for the last operation in flight.
    #[inline]
    pub(super) fn close_if_idle(&mut self, handle: Handle) {
        if let Some(slot) = self.slots.get(handle)
            && slot.in_flight == 0
            && slot.closer.is_some()
        {
            self.close_now(handle);
        }
    }

    /// Takes an operation away from its descriptor.
    #[inline]
    fn detach_operation(&mut self, token: Token) {
        let Some(slot) = self.slots.get_mut(self.operations[token].handle) else { return };
        if slot.closer == Some(token) {
            return;
        }
        slot.in_flight -= 1;
        if slot.reader == Some(token) {
            slot.reader = None;
        } else if slot.writer == Some(token) {
            slot.writer = None;
        }
    }

    /// The end of an operation that has left its descriptor.
    #[inline]
    fn wind_up(&mut self, handle: Handle, operation: Operation) -> Payload {
        match operation {
            Operation::ChildExit { .. } => drop(self.slots.remove(handle)),
            Operation::Signal { signal } => self.signals.unsubscribe(signal),
            _ => {}
        }
        operation.into_payload()
    }
}

/// The kernel's number: a count or a descriptor, or an error below zero.
#[inline]
pub(super) fn decode(result: i32) -> Result<u32, Errno> {
    if result >= 0 { Ok(result as u32) } else { Err(Errno::from_raw_os_error(-result)) }
}

fn metadata(statx: &libc::statx) -> Metadata {
    Metadata {
        len: statx.stx_size,
        modified: file::time(statx.stx_mtime.tv_sec, statx.stx_mtime.tv_nsec),
        kind: match FileType::from_raw_mode(statx.stx_mode.into()) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            _ => FileKind::Other,
        },
        mode: u32::from(statx.stx_mode) & 0o7777,
        inode: statx.stx_ino,
        device: rustix::fs::makedev(statx.stx_dev_major, statx.stx_dev_minor),
    }
}
