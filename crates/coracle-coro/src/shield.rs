//! Waiting in spite of being cancelled or late: for clean-up, and for parents who wait for their children.

use crate::current::{self, Frame};
use crate::deadline;
use crate::sleeper::Sleeper;
use std::time::{Duration, Instant};

/// Runs `f`, whose waits are neither struck by a [cancel](crate::JoinHandle::cancel) nor by a
/// [`timeout`](crate::timeout) around it, for as long as `timeout`; then they fail with `TimedOut`. What is
/// left to do when a coroutine is cancelled, and cannot be done without a wait.
///
/// When `f` is over, everything is as before: the next wait fails. Inside another shield, one can only end
/// earlier. In a destructor that runs because of a panic there is no shield: waits fail there at once.
///
/// ```
/// use coracle_coro::{shield, sleep, spawn, yield_now};
/// use std::time::Duration;
///
/// coracle_coro::run(|| {
///     let session = spawn(|| {
///         let ended = sleep(Duration::from_secs(3600));
///         shield(Duration::from_secs(1), || {
///             sleep(Duration::from_millis(1)) // as if it were a farewell to the peer
///         })?;
///         ended
///     });
///     yield_now();
///     session.cancel();
///     assert_eq!(session.join().unwrap().unwrap_err().to_string(), "Operation canceled (os error 125)");
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn shield<T>(timeout: Duration, f: impl FnOnce() -> T) -> T {
    shield_until(deadline::after(timeout), f)
}

/// As [`shield`], until a point in time.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let soon = Instant::now() + Duration::from_millis(1);
/// let late = coracle_coro::shield_until(soon, coracle_coro::park); // also in a plain thread
/// assert!(late.is_err());
/// ```
pub fn shield_until<T>(deadline: Instant, f: impl FnOnce() -> T) -> T {
    let sleeper = Sleeper::of_caller();
    let inside = sleeper.set_shielded(true);
    let around = deadline::limit().filter(|_| inside);
    let _restore = Restore(inside);
    let _shield = Shield::new(Some(around.map_or(deadline, |around| around.min(deadline))));
    f()
}

/// Whether a cancel may strike, as it was before. Also after a panic.
struct Restore(bool);

impl Drop for Restore {
    fn drop(&mut self) {
        Sleeper::of_caller().set_shielded(self.0);
    }
}

/// Waits of whoever calls come to their end or to this deadline, even if it is cancelled, and whatever the
/// deadlines around it; until this is dropped. A cancel still ends the wait it finds, so that one can take note
/// of it.
pub(crate) struct Shield {
    before: Option<Instant>,
}

impl Shield {
    pub(crate) fn new(deadline: Option<Instant>) -> Shield {
        let before = deadline::limit();
        deadline::set_limit(deadline);
        count(1);
        Shield { before }
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        count(-1);
        deadline::set_limit(self.before);
    }
}

fn count(by: i32) {
    let add = |frame: &Frame| frame.shields.set(frame.shields.get().saturating_add_signed(by));
    current::with(|frame| frame.into_iter().for_each(add));
}
