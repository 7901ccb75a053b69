//! What is true of a connection or not, in one byte: there are many of them.

use std::cell::Cell;

/// One of the things that can be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Fact {
    /// The peer has sent everything.
    Ended = 1,
    /// The connection is gone.
    Gone = 2,
    /// Something that came was left where it is, because a request is being answered.
    Left = 4,
    /// Nothing is read, because enough has come.
    Paused = 8,
    /// It has a timer of its own.
    Armed = 16,
    /// A callback of the connection starts the handler: it is out of the handler's reach.
    Starting = 32,
    /// A request was answered, and it does not [wait](super::Shared::wait_for_next) for the next one yet.
    Answered = 64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Facts(Cell<u8>);

impl Facts {
    #[inline]
    pub(super) fn is(&self, fact: Fact) -> bool {
        self.0.get() & fact as u8 != 0
    }

    /// Notes whether it is true; gives what was noted before.
    #[inline]
    pub(super) fn set(&self, fact: Fact, value: bool) -> bool {
        let before = self.0.get();
        let bit = fact as u8;
        self.0.set(if value { before | bit } else { before & !bit });
        before & bit != 0
    }
}
