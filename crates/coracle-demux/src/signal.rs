//! Signals as events: the handler sets a flag and wakes the loop; the loop does the work.
//!
//! ```text
//!  signal ──► handler: set bit, wake ──► wait returns ──► take() ──► completions of Operation::Signal
//! ```
//!
//! The handler touches two atomics and writes one descriptor. It takes no lock, allocates nothing, and
//! cannot meet a half-changed structure.
#![allow(unsafe_code)]

use crate::wakeup::Waker;
use rustix::io::Errno;
use rustix::process::Signal;
use signal_hook_registry::SigId;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once};

/// The highest signal number there is; bit `n` of an inbox is signal `n`, so 64 is kept in bit 0.
const SIGNALS: i32 = 64;

/// Told of a fault in the program, like those that the registry refuses.
const SIGBUS: i32 = Signal::BUS.as_raw();

/// The signals that have arrived for one demultiplexer.
pub(crate) struct Inbox {
    arrived: Arc<AtomicU64>,
    waker: Waker,
    subscriptions: Vec<Subscription>,
}

struct Subscription {
    signal: i32,
    handler: SigId,
    users: usize,
}

impl Inbox {
    pub(crate) fn new(waker: Waker) -> Inbox {
        survive_sigpipe();
        Inbox { arrived: Arc::default(), waker, subscriptions: Vec::new() }
    }

    /// Begins to listen to `signal`; one handler serves all who do.
    pub(crate) fn subscribe(&mut self, signal: i32) -> io::Result<()> {
        if let Some(known) = self.subscriptions.iter_mut().find(|known| known.signal == signal) {
            known.users += 1;
            return Ok(());
        }
        let forbidden = signal_hook_registry::FORBIDDEN.contains(&signal) || signal == SIGBUS;
        if !(1..=SIGNALS).contains(&signal) || forbidden {
            return Err(Errno::INVAL.into());
        }
        let (arrived, waker) = (Arc::clone(&self.arrived), self.waker.clone());
        let action = move || {
            arrived.fetch_or(bit(signal), Ordering::SeqCst);
            waker.wake();
        };
        // SAFETY: the action is async-signal-safe: an atomic and a write(2) of eight bytes. `wake` calls
        // the kernel directly, without libc's errno.
        let handler = unsafe { signal_hook_registry::register(signal, action)? };
        self.subscriptions.push(Subscription { signal, handler, users: 1 });
        Ok(())
    }

    /// Ends one [`subscribe`](Inbox::subscribe).
    pub(crate) fn unsubscribe(&mut self, signal: i32) {
        let Some(at) = self.subscriptions.iter().position(|known| known.signal == signal) else {
            return;
        };
        self.subscriptions[at].users -= 1;
        if self.subscriptions[at].users == 0 {
            signal_hook_registry::unregister(self.subscriptions.swap_remove(at).handler);
        }
    }

    /// Takes what has arrived, as [`bit`]s.
    #[inline]
    pub(crate) fn take(&self) -> u64 {
        match self.arrived.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.arrived.swap(0, Ordering::SeqCst),
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        for subscription in &self.subscriptions {
            signal_hook_registry::unregister(subscription.handler);
        }
    }
}

/// The bit of a signal in what [`Inbox::take`] gives.
pub(crate) fn bit(signal: i32) -> u64 {
    1 << (signal % SIGNALS)
}

/// A write to a connection that is gone must be an error, not the end of the process.
///
/// Sends say `MSG_NOSIGNAL`; sendfile(2) and writes to pipes cannot. A handler that does nothing is better
/// than `SIG_IGN`: programs we execute start with the default again.
fn survive_sigpipe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an empty action is async-signal-safe.
        let registered = unsafe { signal_hook_registry::register(Signal::PIPE.as_raw(), || ()) };
        if let Err(error) = registered {
            tracing::warn!("cannot catch SIGPIPE: {error}");
        }
    });
}

/// From now on, the second arrival of any of `signals` ends the process at once, with status
/// `128 + signal`, whatever its loops are doing; the first is left to whoever listens.
///
/// Returns a switch: while it holds `false` nothing is forced. It is set by the first arrival.
///
/// # Errors
/// A signal that cannot be caught.
pub fn force_exit_on_second(signals: &[i32]) -> io::Result<Arc<AtomicBool>> {
    let seen = Arc::new(AtomicBool::new(false));
    for &signal in signals {
        let seen = Arc::clone(&seen);
        let action = move || {
            if seen.swap(true, Ordering::SeqCst) {
                exit_at_once(128 + signal);
            }
        };
        if signal_hook_registry::FORBIDDEN.contains(&signal) {
            return Err(Errno::INVAL.into());
        }
        // SAFETY: the action is async-signal-safe: an atomic and exit_group(2).
        unsafe { signal_hook_registry::register(signal, action)? };
    }
    Ok(seen)
}

/// Ends the process without running anything, as only a signal handler must.
fn exit_at_once(status: i32) -> ! {
    // SAFETY: exit_group(2) takes a status and does not return.
    unsafe { sc::syscall1(sc::nr::EXIT_GROUP, status as usize) };
    unreachable!("exit_group returned");
}
