//! Signals as events of the loop.

use crate::{Complete, Loop, WeakLoop};
use coracle_demux::{Completion, Operation, Outcome, Submitted, Token};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;

/// Interrupt from the keyboard (Ctrl-C).
const SIGINT: i32 = 2;
/// A polite request to end.
const SIGTERM: i32 = 15;

type Callback = Box<dyn FnMut(&Loop)>;

impl Loop {
    /// Calls `callback` in a turn of this loop each time `signal` arrives. Several arrivals may be told as
    /// one. Every loop and every listener of a signal hears it.
    ///
    /// Nothing runs in the signal handler but an atomic and a wake-up. Any signal that can be caught is free
    /// for use: `SIGHUP` (1), `SIGUSR1` (10), `SIGUSR2` (12), `SIGCHLD` (17), …
    ///
    /// The returned [`SignalListener`] can end it. Without a listener the signal is ignored from then on: its
    /// default effect does not come back, because another part of the program may rely on its having none.
    ///
    /// # Errors
    /// A number that is no signal, one that cannot be caught (`SIGKILL`, `SIGSTOP`), or one that tells of a
    /// fault in the program, behind which there is nothing to go on with (`SIGSEGV`, `SIGILL`, `SIGFPE`,
    /// `SIGBUS`).
    pub fn on_signal(
        &self,
        signal: i32,
        callback: impl FnMut(&Loop) + 'static,
    ) -> io::Result<SignalListener> {
        let listener = Rc::new(Listener {
            signal,
            token: Cell::new(None),
            counted: Cell::new(false),
            callback: RefCell::new(Some(Box::new(callback))),
        });
        listener.listen(self).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::InvalidInput => {
                    "there is none, or it cannot be caught and survived".into()
                }
                _ => error.to_string(),
            };
            let text = format!("cannot listen for signal {signal}: {why}");
            io::Error::new(error.kind(), text)
        })?;
        Ok(SignalListener { lp: self.downgrade(), listener })
    }

    /// Stops this loop gracefully when the process is asked to end (`SIGINT`, `SIGTERM`): `callback` is called
    /// once, and decides when to [`stop`](Loop::stop). A second request ends the process at once, with status
    /// `128 + signal`, even if the loop hangs.
    ///
    /// ```
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// lp.on_terminate(|lp| lp.stop()).unwrap();
    /// ```
    ///
    /// # Errors
    /// The kernel refuses the handlers.
    pub fn on_terminate(&self, callback: impl FnOnce(&Loop) + 'static) -> io::Result<()> {
        coracle_demux::force_exit_on_second(&[SIGINT, SIGTERM])?;
        let callback = Rc::new(RefCell::new(Some(callback)));
        for signal in [SIGINT, SIGTERM] {
            let callback = Rc::clone(&callback);
            self.on_signal(signal, move |lp| {
                if let Some(callback) = callback.take() {
                    callback(lp);
                }
            })?;
        }
        Ok(())
    }
}

/// Somebody who listens for a signal. Dropping it changes nothing.
pub struct SignalListener {
    lp: WeakLoop,
    listener: Rc<Listener>,
}

impl SignalListener {
    /// Ends it: the callback is not called any more. The loop [is idle](Loop::is_idle) again only after another
    /// turn, in which the system tells it of the end.
    pub fn cancel(&self) {
        let token = self.listener.token.take();
        if let (Some(lp), Some(token)) = (self.lp.upgrade(), token) {
            drop(self.listener.callback.take());
            self.listener.note_end(&lp); // its last completion is still to come, and a loop that is idle has none
            lp.cancel(token);
        }
    }
}

impl fmt::Debug for SignalListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignalListener({})", self.listener.signal)
    }
}

struct Listener {
    signal: i32,
    /// The operation in flight; `None` once it was cancelled.
    token: Cell<Option<Token>>,
    /// It is one of those that keep no loop from being idle.
    counted: Cell<bool>,
    /// `None` while it is being called.
    callback: RefCell<Option<Callback>>,
}

impl Listener {
    fn listen(self: &Rc<Self>, lp: &Loop) -> io::Result<()> {
        let operation = Operation::Signal { signal: self.signal };
        match lp.submit(operation, self, 0) {
            Submitted::Pending(token) => {
                lp.inner.listening.set(lp.inner.listening.get() + 1);
                self.counted.set(true);
                self.token.set(Some(token));
                Ok(())
            }
            Submitted::Done(finished) => Err(match finished.result {
                Err(error) => error,
                Ok(_) => io::Error::other("a signal operation ended before it began"),
            }),
        }
    }

    /// It is over, or will be: there is something left to be told of, once.
    fn note_end(&self, lp: &Loop) {
        if self.counted.replace(false) {
            lp.inner.listening.set(lp.inner.listening.get() - 1);
        }
    }
}

impl Complete for Listener {
    fn complete(self: Rc<Self>, lp: &Loop, _tag: u32, completion: Completion) {
        if !completion.more {
            self.note_end(lp);
        }
        if !matches!(completion.result, Ok(Outcome::Signal)) {
            return; // cancelled
        }
        let callback = self.callback.take();
        let mut call = Call { lp, listener: &self, callback, more: completion.more };
        if let Some(callback) = &mut call.callback {
            callback(lp);
        }
    }
}

/// A callback that is being called. Puts it back afterwards, also after a panic, and goes on listening, unless it
/// was cancelled.
struct Call<'a> {
    lp: &'a Loop,
    listener: &'a Rc<Listener>,
    callback: Option<Callback>,
    /// The operation goes on by itself.
    more: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.listener.token.get().is_none() {
            return;
        }
        if let Some(callback) = self.callback.take() {
            *self.listener.callback.borrow_mut() = Some(callback);
        }
        if !self.more && self.listener.listen(self.lp).is_err() {
            tracing::error!("a signal can no longer be listened for");
        }
    }
}
