//! That a server is about to stop: for answers that would not end by themselves.

use coracle_coro::sync::{Receiver, Sender, channel};
use std::cell::{Cell, OnceCell};
use std::fmt;

/// Whether the server of a loop is about to stop, and who is told when it is.
#[derive(Default)]
pub(crate) struct Stopping {
    has_begun: Cell<bool>,
    /// Nothing is ever sent: it ends. Not there before somebody waits for it.
    sender: Cell<Option<Sender<()>>>,
    receiver: OnceCell<Receiver<()>>,
}

impl Stopping {
    pub(crate) fn get(&self) -> bool {
        self.has_begun.get()
    }

    /// It begins now; more than once is the same.
    pub(crate) fn begin(&self) {
        self.has_begun.set(true);
        drop(self.sender.take());
    }

    /// A channel that ends when it begins.
    pub(crate) fn begun(&self) -> Receiver<()> {
        let receiver = self.receiver.get_or_init(|| {
            let (sender, receiver) = channel(1);
            self.sender.set((!self.get()).then_some(sender));
            receiver
        });
        receiver.clone()
    }
}

impl fmt::Debug for Stopping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stopping").field(&self.get()).finish()
    }
}
