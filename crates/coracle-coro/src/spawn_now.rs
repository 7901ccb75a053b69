//! Starting a coroutine without waiting for its turn: for callbacks that answer at once if they can.

use crate::current;
use crate::inherit::Inheritance;
use crate::join::JoinHandle;
use crate::scheduler::Scheduler;
use crate::spawn::spawn;
use coracle_loop::Loop;
use std::panic::Location;

/// Has `f` run as a coroutine of this loop *now*: this returns when it waits for the first time, gives way, or is
/// over. What does not wait costs little more than a call.
///
/// For callbacks of a loop. They have to expect that `f`, and whatever it wakes, changes what they have in cells;
/// what they have borrowed is borrowed while `f` runs. In a coroutine this is [`spawn`](crate::spawn()): a
/// coroutine is never run inside another.
///
/// # Panics
/// Outside a loop: neither in a coroutine nor in a callback.
///
/// ```
/// use coracle_coro::{sleep, spawn_now};
/// use std::time::Duration;
///
/// # use coracle_loop::Loop;
/// let lp = Loop::new()?;
/// lp.defer(|_| {
///     let quick = spawn_now(|| 6 * 7);
///     assert!(quick.is_finished()); // already
///     let slow = spawn_now(|| sleep(Duration::from_millis(1)));
///     assert!(!slow.is_finished());
/// });
/// # lp.after(Duration::from_millis(5), |lp| lp.stop());
/// lp.run()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn_now<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    if current::with(|frame| frame.is_some()) {
        return spawn(f);
    }
    let lp = Loop::current().expect(
        "cannot start a coroutine outside a loop: call it in a callback, or give it to a loop with `spawn_on`",
    );
    let inheritance = Inheritance::of_caller();
    Scheduler::of(&lp).spawn_now(Location::caller(), move || {
        inheritance.take_up();
        f()
    })
}
