//! The end of a server: everybody is cancelled, and has some time to finish what it does.

use super::stream::Stream;
use crate::space::Space;
use coracle::{Loop, LoopHandle, shield_until};
use std::io::{self, Read};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// What all loops know of the end.
pub(crate) struct Stop {
    drain: Duration,
    /// When connections must have finished.
    deadline: OnceLock<Instant>,
    failure: Mutex<Option<io::Error>>,
}

impl Stop {
    pub(super) fn new(drain: Duration) -> Stop {
        Stop { drain, deadline: OnceLock::new(), failure: Mutex::new(None) }
    }

    /// From now on nobody is accepted, and the waits of all coroutines fail. `handle` is that of any loop.
    pub(super) fn begin(&self, handle: &LoopHandle) {
        let now = Instant::now();
        // First the deadline: who is cancelled looks for it.
        self.deadline.get_or_init(|| now.checked_add(self.drain).unwrap_or(now));
        handle.stop();
    }

    /// Ends everything because of an error. In a coroutine.
    pub(super) fn fail(&self, error: io::Error) {
        self.failure.lock().expect("nobody panics with it").get_or_insert(error);
        if let Some(lp) = Loop::current() {
            self.begin(&lp.handle());
        }
    }

    pub(super) fn result(&self) -> io::Result<()> {
        self.failure.lock().expect("nobody panics with it").take().map_or(Ok(()), Err)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.deadline.get().is_some()
    }

    /// Sends all of `bytes`, in the time there is, even if the server is asked to stop meanwhile.
    #[inline]
    pub(super) fn write_all(&self, stream: &mut impl Stream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) => return self.again(error, || stream.write_all(bytes)),
            }
        }
        Ok(())
    }

    /// After a wait that has failed: if it was because the server stops, waits again, in the time there is.
    #[cold]
    pub(super) fn again<T>(
        &self,
        error: io::Error,
        wait: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        match self.deadline.get() {
            Some(&deadline) if is_cancelled(&error) => shield_until(deadline, wait),
            _ => Err(error),
        }
    }

    /// After a read that has failed: if it was because the server stops, this is a proper end. Tells `to` that no
    /// more will come, and takes what `from` still sends until it ends, too: to close a connection on which
    /// something is unread would destroy what is on its way to the peer.
    #[cold]
    pub(super) fn finish(
        &self,
        error: io::Error,
        from: &mut impl Read,
        to: &impl Stream,
        space: &mut Space,
    ) -> io::Result<()> {
        self.again(error, || {
            to.end()?;
            while from.read(space.get())? > 0 {}
            Ok(())
        })
    }
}

/// Whether the coroutine was cancelled: by the stop, or by another that goes with it.
pub(super) fn is_cancelled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECANCELED)
}
