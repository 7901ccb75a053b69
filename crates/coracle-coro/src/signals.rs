//! Waiting for a signal of the system.

use crate::sync::{IntoArm, Receiver, Receiving, channel};
use crate::waits_for::WaitsFor;
use coracle_loop::{Loop, SignalListener};
use std::fmt;
use std::io;

/// Listens for `signal`, by its number, from now on: what comes can be [waited](Signals::wait) for, or be an arm
/// of [`select!`](crate::select!). It is the loop that listens, by `Loop::on_signal`, until this is dropped.
///
/// # Errors
/// Outside a loop. A number that is no signal, or one that cannot be caught or survived.
///
/// ```
/// use coracle_coro::{select, signals, sync::after};
/// use std::time::Duration;
///
/// const SIGHUP: i32 = 1;
///
/// coracle_coro::run(|| {
///     let hangups = signals(SIGHUP)?;
///     select! {
///         hangup = &hangups => println!("reading the settings again: {hangup:?}"),
///         () = after(Duration::from_millis(1)) => println!("nobody has hung up"),
///     }
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn signals(signal: i32) -> io::Result<Signals> {
    let Some(lp) = Loop::current() else {
        let text = "cannot listen for signals outside a loop: do it in a coroutine or a callback";
        return Err(io::Error::new(io::ErrorKind::NotConnected, text));
    };
    let (sender, arrived) = channel(1);
    // If one is there already, that is enough: several may be told as one.
    let listener = lp.on_signal(signal, move |_| _ = sender.try_send(()))?;
    Ok(Signals { signal, arrived, listener })
}

/// Those who listen for a signal: made by [`signals`].
pub struct Signals {
    signal: i32,
    arrived: Receiver<()>,
    listener: SignalListener,
}

impl Signals {
    /// Waits until the signal arrives. One that came before is not lost; several may be told as one.
    ///
    /// # Errors
    /// `ECANCELED` if the coroutine is cancelled while it waits, `TimedOut` if a [`timeout`](crate::timeout)
    /// around it is over.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// coracle_coro::run(|| {
    ///     let children = coracle_coro::signals(17)?;
    ///     let waited = coracle_coro::timeout(Duration::from_millis(1), || children.wait());
    ///     assert!(waited.is_err()); // there are none
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait(&self) -> io::Result<()> {
        Ok(self.arrived.recv_for(WaitsFor::Signal(self.signal))?)
    }
}

impl<'a> IntoArm for &'a Signals {
    type Arm = Receiving<'a, ()>;

    fn into_arm(self) -> Receiving<'a, ()> {
        self.arrived.receiving().waiting_for(WaitsFor::Signal(self.signal))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.listener.cancel();
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signals({:?})", self.listener)
    }
}
