//! Starting a coroutine without waiting for its turn: for callbacks that answer at once if they can.

use crate::current;
use crate::join::JoinHandle;
use crate::scheduler::Scheduler;
use crate::sleeper::Sleeper;
use crate::spawn::spawn;
use coracle_loop::Loop;
use std::fmt;
use std::panic::Location;
use std::rc::{Rc, Weak};

/// Has `f` run as a coroutine of this loop *now*: this returns when it waits for the first time, gives way, or
/// is over. What does not wait costs little more than a call.
///
/// For callbacks of a loop. They have to expect that `f`, and whatever it wakes, changes what they have in cells;
/// what they have borrowed is borrowed while `f` runs. It inherits neither locals nor a span: a callback has
/// none. In a coroutine this is [`spawn`](crate::spawn()): a coroutine is never run inside another.
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
    let lp = Loop::current().expect(
        "cannot start a coroutine outside a loop: call it in a callback, \
         or give it to a loop with `spawn_on`",
    );
    Spawner::of(&lp).spawn_now(&lp, f)
}

/// The coroutines of one loop, for callbacks that start many: [`spawn_now`], without looking for them each time.
///
/// ```
/// use coracle_coro::Spawner;
///
/// # use coracle_loop::Loop;
/// let lp = Loop::new()?;
/// let spawner = Spawner::of(&lp);
/// lp.repeat(
///     std::time::Duration::from_millis(1),
///     3,
///     move |lp| assert!(spawner.spawn_now(lp, || ()).is_finished()),
///     |lp| lp.stop(),
/// );
/// lp.run()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Spawner(Weak<Scheduler>);

impl Spawner {
    /// That of `lp`.
    pub fn of(lp: &Loop) -> Spawner {
        Spawner(Rc::downgrade(&Scheduler::of(lp)))
    }

    /// As [`spawn_now`], on the loop it is of.
    ///
    /// # Panics
    /// When it is of another loop, and outside a turn of that loop.
    #[inline]
    #[track_caller]
    pub fn spawn_now<F, T>(&self, lp: &Loop, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        if current::with(|frame| frame.is_some()) {
            return spawn(f);
        }
        self.scheduler(lp).spawn_now(lp, Location::caller(), f)
    }

    /// The same for who never asks how it ends: without a handle it costs less.
    ///
    /// ```
    /// # use coracle_coro::Spawner;
    /// # use coracle_loop::Loop;
    /// let lp = Loop::new()?;
    /// let spawner = Spawner::of(&lp);
    /// lp.defer(move |lp| spawner.start_now(lp, || println!("ahoy")));
    /// # lp.after(std::time::Duration::from_millis(1), |lp| lp.stop());
    /// lp.run()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// As [`spawn_now`](Spawner::spawn_now).
    #[inline]
    #[track_caller]
    pub fn start_now<F: FnOnce() + 'static>(&self, lp: &Loop, f: F) {
        if current::with(|frame| frame.is_some()) {
            return drop(spawn(f));
        }
        self.scheduler(lp).start_now(lp, Location::caller(), f);
    }

    #[inline]
    fn scheduler(&self, lp: &Loop) -> Rc<Scheduler> {
        let scheduler = self.0.upgrade().filter(|scheduler| scheduler.handle().is_of(lp));
        let scheduler = scheduler.expect("a spawner is used on the loop it is of");
        assert!(
            scheduler.is_turning(),
            "cannot start a coroutine outside a turn of its loop: call it in a callback, \
             or give it to the loop with `spawn_on`"
        );
        scheduler
    }
}

/// For a coroutine that does one job after the other, each of which should find a coroutine of its own: whether
/// the next one can be done by this one, for nobody could tell. That is so if nobody has a handle of it, it was
/// neither cancelled nor unparked, has no [locals](crate::coroutine_local!) and no span, and is within no
/// deadline, shield or `no_park`. Only its [id](crate::Coroutine::id) is the same. Then it may also do as much as
/// a new one before others have their turn.
///
/// ```
/// use coracle_coro::{Spawner, begin_anew, current};
///
/// # use coracle_loop::Loop;
/// let lp = Loop::new()?;
/// let spawner = Spawner::of(&lp);
/// lp.defer(move |lp| {
///     spawner.start_now(lp, || {
///         assert!(begin_anew());
///         let known = current();
///         assert!(!begin_anew()); // whoever has that could wake somebody else by it
///         drop(known);
///         assert!(begin_anew());
///     });
/// });
/// # lp.after(std::time::Duration::from_millis(1), |lp| lp.stop());
/// lp.run()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[inline]
pub fn begin_anew() -> bool {
    current::with(|frame| {
        let Some(frame) = frame else { return false };
        let is_new = frame.extras.get().is_none()
            && frame.deadline.get().is_none()
            && frame.shields.get() == 0
            && frame.no_park.get() == 0
            && Sleeper::is_unknown(&frame.sleeper);
        if is_new {
            frame.budget.renew();
        }
        is_new
    })
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}
