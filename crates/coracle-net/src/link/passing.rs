//! Descriptors that travel with the bytes of a Unix connection (SCM_RIGHTS, unix(7)).
//!
//! Out, they are a kind of packet. In, they come with a message, and the loop's lent buffers take bytes alone: so
//! a connection that accepts them receives piece by piece, into memory of its own, as a [paced](super::pacing)
//! one does.

use super::{Link, State};
use crate::Reason;
use coracle_loop::Loop;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// What a connection has that accepts descriptors.
#[derive(Default)]
pub(super) struct Passing {
    /// How many may wait to be taken.
    limit: usize,
    waiting: Vec<OwnedFd>,
}

impl Link {
    pub(crate) fn accept_descriptors(self: &Rc<Self>, lp: &Loop, limit: usize) {
        let mut state = self.change();
        state.rare().passing.get_or_insert_default().limit = limit;
        if let Some(token) = state.receiving {
            lp.cancel(token); // the next one accepts them, or does not
        }
    }

    pub(crate) fn take_descriptors(&self) -> Vec<OwnedFd> {
        let mut state = self.change();
        let passing = state.rare.as_mut().and_then(|rare| rare.passing.as_mut());
        passing.map(|passing| std::mem::take(&mut passing.waiting)).unwrap_or_default()
    }

    /// Keeps what has come until the protocol takes it, within its limit.
    pub(super) fn keep_descriptors(&self, descriptors: Vec<OwnedFd>) {
        let mut state = self.change();
        let Some(passing) = state.rare.as_mut().and_then(|rare| rare.passing.as_mut()) else {
            return; // it is over
        };
        passing.waiting.extend(descriptors);
        if passing.waiting.len() > passing.limit {
            state.abort(Reason::InputLimit);
        }
    }
}

impl State {
    /// How many descriptors the next message may bring; `None` where none are accepted. One more than may be kept:
    /// the kernel would close it without a word.
    pub(super) fn descriptor_room(&self) -> Option<usize> {
        let passing = self.rare.as_ref()?.passing.as_ref().filter(|passing| passing.limit > 0)?;
        Some(passing.limit.saturating_sub(passing.waiting.len()).saturating_add(1))
    }
}
