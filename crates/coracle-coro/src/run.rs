//! Running a program as a coroutine, until it and all it has spawned are over.

use crate::join::JoinHandle;
use crate::scheduler::Scheduler;
use crate::spawn::start;
use coracle_loop::{Hook, HookKind, Loop};
use coracle_stack::StackSize;
use std::cell::Cell;
use std::io;
use std::panic::{Location, resume_unwind};
use std::rc::Rc;

/// The stack of the first coroutine, which is the size of a program's first thread's.
const MAIN_STACK_BYTES: usize = 8 << 20;

/// Makes a loop, and runs `f` as its first coroutine, called `main`. Returns what `f` returned, when it *and
/// every coroutine and [future](crate::future) of the loop* is over: no child outlives it.
///
/// Whoever stops the loop ([`LoopHandle::stop`](coracle_loop::LoopHandle::stop)) cancels all its coroutines;
/// they are waited for all the same. If none is left but such as were cancelled and [would not
/// end](crate#cancelling), the process ends, with their names on standard error and status 70.
///
/// # Errors
/// What `f` says; or that there is no loop to be had; or that the kernel's side of it broke. [`Deadlock`],
/// with a list of who waits, when every coroutine waits and nobody is left who could wake one; all are
/// cancelled then. It is found only where it is certain: in a process with one thread, whose loop has nothing
/// to do and listens for no signals.
///
/// [`Deadlock`]: std::io::ErrorKind::Deadlock
///
/// # Panics
/// If `f` does, with the same. In a coroutine or a callback, where there is a loop already: `spawn` is for those.
///
/// ```
/// use std::time::Duration;
///
/// fn main() -> std::io::Result<()> {
///     coracle_coro::run(|| {
///         let slow = coracle_coro::spawn(|| coracle_coro::sleep(Duration::from_millis(5)));
///         coracle_coro::sleep(Duration::from_millis(5))?; // both at the same time
///         slow.join().unwrap()
///     })
/// }
/// ```
#[track_caller]
pub fn run<F, T>(f: F) -> io::Result<T>
where
    F: FnOnce() -> io::Result<T> + 'static,
    T: 'static,
{
    refuse_turns();
    run_on(&Loop::new()?, f)
}

/// As [`run`], on a loop of your own: with settings, with callbacks beside the coroutines, or simulated. Loop
/// thread only.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// As [`run`].
///
/// ```
/// use coracle_loop::Loop;
/// use std::time::{Duration, Instant};
///
/// // A year, on a simulated kernel.
/// let kernel = coracle_loop::demux::sim::Kernel::new(42);
/// let lp = Loop::builder().demux(kernel.demux()).build()?;
/// let begin = Instant::now();
/// coracle_coro::run_on(&lp, || coracle_coro::sleep(Duration::from_secs(365 * 86_400)))?;
/// assert!(begin.elapsed() < Duration::from_secs(60));
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn run_on<F, T>(lp: &Loop, f: F) -> io::Result<T>
where
    F: FnOnce() -> io::Result<T> + 'static,
    T: 'static,
{
    refuse_turns();
    let main = start_main(lp, f)?;
    let scheduler = Scheduler::of(lp);
    let looking = Looking::begin(lp);
    let main = loop {
        scheduler.stop_when_empty();
        lp.run()?;
        match main.take() {
            Some(main) if scheduler.is_empty() => break main,
            other => main.set(other),
        }
        if scheduler.will_stop() {
            // It was somebody else who stopped the loop. In a turn, where no job has to be posted for each.
            lp.defer(|lp| Scheduler::of(lp).cancel_all());
        }
    };
    drop(looking);
    match scheduler.take_deadlock() {
        Some(deadlock) => Err(deadlock), // whatever it made of being cancelled
        None => main.join().unwrap_or_else(|error| resume_unwind(error.into_panic())),
    }
}

/// Looks for a deadlock whenever the loop is about to sleep with nothing to wait for, until it is dropped.
struct Looking<'a>(&'a Loop, Hook);

impl Looking<'_> {
    fn begin(lp: &Loop) -> Looking<'_> {
        let scheduler = Rc::downgrade(&Scheduler::of(lp));
        let look = move |lp: &Loop| {
            if let Some(scheduler) = scheduler.upgrade() {
                scheduler.look_for_deadlock(lp);
            }
        };
        Looking(lp, lp.on_turn(HookKind::Stuck, look))
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.remove_hook(self.1);
    }
}

/// Has `f` run as the first coroutine. Its handle is there after the first turn: coroutines are spawned in turns.
#[track_caller]
pub(crate) fn start_main<F, T>(lp: &Loop, f: F) -> io::Result<Rc<Cell<Option<JoinHandle<T>>>>>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    let size = StackSize::at_least(MAIN_STACK_BYTES)?;
    let spawned = Location::caller();
    let main = Rc::new(Cell::new(None));
    let place = Rc::clone(&main);
    lp.defer(move |_| place.set(Some(start(Some("main".into()), size, spawned, f))));
    Ok(main)
}

#[track_caller]
pub(crate) fn refuse_turns() {
    assert!(
        Loop::current().is_none(),
        "`run` cannot be called in a coroutine or a callback, whose loop would have to wait for it: use `spawn`"
    );
}
