//! How another thread ends a simulated wait.
//!
//! ```text
//!  Waker ──► Alarm { rung } ──► is the kernel's thread asleep? ──yes──► unpark
//! ```
//!
//! A simulated kernel lives on one thread and almost never sleeps: it moves its clock instead. Only when
//! nothing can happen in the simulation, and somebody outside still holds a [`Waker`](crate::Waker), does
//! the thread sleep for real, until an alarm rings. Parking needs no lock, so that an alarm may also be
//! rung by a signal handler.

use crate::wakeup::Wake;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The thread of a kernel, and whether it sleeps. One per kernel.
pub(super) struct Sleeper {
    thread: Thread,
    asleep: AtomicBool,
}

impl Sleeper {
    /// The sleeper of the calling thread.
    pub(super) fn new() -> Arc<Sleeper> {
        Arc::new(Sleeper { thread: thread::current(), asleep: AtomicBool::new(false) })
    }

    /// Sleeps until `woken` says so, at most for `limit` of real time; tells whether it did.
    pub(super) fn sleep_until(&self, limit: Duration, woken: impl Fn() -> bool) -> bool {
        let end = Instant::now() + limit;
        // Sequentially consistent on both sides: either we see the alarm, or it sees us asleep.
        self.asleep.store(true, Ordering::SeqCst);
        let woken = loop {
            if woken() {
                break true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break false;
            }
            thread::park_timeout(left);
        };
        self.asleep.store(false, Ordering::SeqCst);
        woken
    }
}

/// What stands behind the wakers of one demultiplexer.
pub(super) struct Alarm {
    rung: AtomicBool,
    sleeper: Arc<Sleeper>,
}

impl Alarm {
    pub(super) fn new(sleeper: &Arc<Sleeper>) -> Arc<Alarm> {
        Arc::new(Alarm { rung: AtomicBool::new(false), sleeper: Arc::clone(sleeper) })
    }

    /// Whether a wake-up has come since the last [`reset`](Alarm::reset).
    pub(super) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst)
    }

    pub(super) fn reset(&self) {
        self.rung.store(false, Ordering::SeqCst);
    }
}

impl Wake for Alarm {
    fn wake(&self) {
        self.rung.store(true, Ordering::SeqCst);
        if self.sleeper.asleep.load(Ordering::SeqCst) {
            self.sleeper.thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_ends_the_sleep_and_its_absence_does_not() {
        let sleeper = Sleeper::new();
        let alarm = Alarm::new(&sleeper);
        assert!(!sleeper.sleep_until(Duration::from_millis(5), || alarm.is_rung()));

        let other = Arc::clone(&alarm);
        let thread = thread::spawn(move || other.wake());
        assert!(sleeper.sleep_until(Duration::from_secs(10), || alarm.is_rung()));
        thread.join().unwrap();
        alarm.reset();
        assert!(!alarm.is_rung());
    }
}
