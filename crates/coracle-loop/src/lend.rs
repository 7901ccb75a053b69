//! Descriptors of others, one poll at a time: what the hooks wait by. [`Loop::watch`] is the comfortable form.

use crate::Loop;
use coracle_demux::Handle;
use std::io;
use std::os::fd::BorrowedFd;

impl Loop {
    /// Makes a descriptor known for [`Operation::Poll`](coracle_demux::Operation::Poll), and nothing else, until
    /// it is [reclaimed](Loop::reclaim). It stays somebody else's. Loop thread only.
    ///
    /// # Errors
    /// As [`watch`](Loop::watch).
    #[doc(hidden)]
    pub fn lend(&self, descriptor: BorrowedFd<'_>) -> io::Result<Handle> {
        self.inner.demux.borrow_mut().lend(descriptor)
    }

    /// Forgets a descriptor that was [lent](Loop::lend): polls in flight end with `ECANCELED`. Loop thread only.
    #[doc(hidden)]
    pub fn reclaim(&self, handle: Handle) {
        self.inner.demux.borrow_mut().reclaim(handle);
    }
}
