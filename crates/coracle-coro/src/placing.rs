//! On which loop a coroutine is spawned, when there are several.

use crate::join::JoinHandle;
use crate::scheduler::Scheduler;
use crate::spawn::{Builder, spawn_on};
use coracle_loop::{Loop, LoopHandle};
use std::io;

/// Has `f` run as a coroutine of the loop that has the fewest of them, of all loops of this
/// [`Runtime`](crate::Runtime). That may be the caller's.
///
/// It stays there from its first step on. It is counted as soon as it is spawned, so that many of them are spread
/// evenly, and takes its stack when it starts.
///
/// # Errors
/// Outside a loop. If the other loop has too many posted jobs.
///
/// ```
/// use coracle_coro::{Runtime, spawn_anywhere};
///
/// Runtime::new().loops(2).run(|| {
///     let elsewhere = spawn_anywhere(|| std::thread::current().id())?;
///     assert_ne!(elsewhere.join().unwrap(), std::thread::current().id()); // here is one already
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn_anywhere<F, T>(f: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().spawn_anywhere(f)
}

impl Builder {
    /// As [`spawn_anywhere`].
    ///
    /// # Errors
    /// As [`spawn_anywhere`] and [`Builder::spawn`].
    #[track_caller]
    pub fn spawn_anywhere<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let Some(lp) = Loop::current() else {
            let text = "cannot place a coroutine outside a loop: take one of the `loops` and `spawn_on` it";
            return Err(io::Error::new(io::ErrorKind::NotConnected, text));
        };
        let elsewhere = Scheduler::of(&lp).group().and_then(|member| member.least_loaded());
        let Some(coming) = elsewhere else { return self.spawn(f) };
        let handle = coming.handle();
        let spawned = self.spawn_on(&handle, f);
        // Behind that, it is counted there. If it is not taken, it is dropped here, and as good.
        let _ = handle.post(move |_| drop(coming));
        spawned
    }
}

/// The loops of this [`Runtime`](crate::Runtime), in order; of a plain [`run`](crate::run()), the one there is.
/// Empty outside a loop. Handles can be given to other threads.
///
/// ```
/// use coracle_coro::{Runtime, loops, spawn_on};
///
/// Runtime::new().loops(3).run(|| {
///     let last = loops().pop().expect("there are three");
///     assert_eq!(spawn_on(&last, || 6 * 7)?.join().unwrap(), 42);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn loops() -> Vec<LoopHandle> {
    Loop::current().map_or_else(Vec::new, |lp| match Scheduler::of(&lp).group() {
        Some(member) => member.group.handles(),
        None => vec![lp.handle()],
    })
}

/// Spawning coroutines by the handle of a loop: `handle.spawn(f)` is [`spawn_on(&handle, f)`](spawn_on).
///
/// ```
/// use coracle_coro::SpawnOn;
///
/// # use coracle_loop::Loop;
/// let lp = Loop::new()?;
/// let handle = lp.handle();
/// std::thread::spawn(move || {
///     let answer = handle.spawn(|| 6 * 7).unwrap().join().unwrap();
///     assert_eq!(answer, 42);
///     handle.stop();
/// });
/// lp.run()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait SpawnOn {
    /// Has `f` run as a coroutine of the loop. Any thread.
    ///
    /// # Errors
    /// As [`spawn_on`].
    #[track_caller]
    fn spawn<F, T>(&self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static;
}

impl SpawnOn for LoopHandle {
    #[track_caller]
    fn spawn<F, T>(&self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        spawn_on(self, f)
    }
}
