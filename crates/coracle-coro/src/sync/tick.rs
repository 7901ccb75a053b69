//! Time that can be waited for: again and again, or once; put off, or called off.

use crate::deadline;
use crate::sync::deadline::is_over;
use crate::sync::failure::Failure;
use crate::sync::select::{Arm, IntoArm, Party, Wait};
use crate::waits_for::WaitsFor;
use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

/// Is due every `period` from now on: to be [waited](Tick::wait) for, or as `&tick` in an arm of
/// [`select!`](crate::select!).
///
/// It keeps to the grid of its beginning, and does not drift. Times that were missed, because nobody waited, are
/// left out. It is no timer that runs, but a point in time that is looked at: it costs nothing while nobody
/// waits for it, and works in plain threads, too. For callbacks there is `Loop::every`.
///
/// ```
/// use coracle_coro::{select, sync::{channel, tick}};
/// use std::time::Duration;
///
/// coracle_coro::run(|| {
///     let (_sender, jobs) = channel::<u32>(1);
///     let heartbeat = tick(Duration::from_millis(1));
///     let mut beats = 0;
///     while beats < 3 {
///         select! {
///             job = &jobs => println!("{}", job?),
///             _ = &heartbeat => beats += 1,
///         }
///     }
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn tick(period: Duration) -> Tick {
    // Nothing would be due again at once.
    let period = period.max(Duration::from_nanos(1));
    Tick { due: Cell::new(Some(deadline::after(period))), period: Cell::new(Some(period)) }
}

/// A point in time, or one after the other. See [`tick`].
#[derive(Debug)]
pub struct Tick {
    /// `None` for never.
    due: Cell<Option<Instant>>,
    /// `None` if it is due once.
    period: Cell<Option<Duration>>,
}

impl Tick {
    /// Is due once, `timeout` from now.
    ///
    /// ```
    /// use coracle_coro::{select, sync::{Tick, channel}};
    /// use std::time::Duration;
    ///
    /// coracle_coro::run(|| {
    ///     let (sender, lines) = channel(4);
    ///     sender.send("hello")?;
    ///     let idle = Tick::once(Duration::from_millis(1));
    ///     loop {
    ///         select! {
    ///             line = &lines => {
    ///                 assert_eq!(line?, "hello");
    ///                 idle.reset(Duration::from_millis(1)); // it is not idle
    ///             }
    ///             _ = &idle => break,
    ///         }
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn once(timeout: Duration) -> Tick {
        Tick { due: Cell::new(Some(deadline::after(timeout))), period: Cell::new(None) }
    }

    /// Waits until it is due, and says when that was.
    ///
    /// ```
    /// # use coracle_coro::sync::tick;
    /// # use std::time::Duration;
    /// let metronome = tick(Duration::from_millis(1));
    /// let first = metronome.wait()?;
    /// assert!(metronome.wait()? > first);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ECANCELED` if the coroutine is cancelled while it waits, `TimedOut` if a [`timeout`](crate::timeout)
    /// around it is over. `InvalidInput` if it is never due.
    pub fn wait(&self) -> io::Result<Instant> {
        let Some(due) = self.due.get() else {
            let text = "a tick that is over or cancelled is never due: `reset` it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        crate::sleep_until(due)?;
        if self.due.get() == Some(due) {
            self.go_on(due); // unless another has, or has reset it
        }
        Ok(due)
    }

    /// When it is due; `None` for never.
    ///
    /// ```
    /// # use coracle_coro::sync::Tick;
    /// # use std::time::{Duration, Instant};
    /// assert!(Tick::once(Duration::from_secs(1)).due().unwrap() > Instant::now());
    /// ```
    pub fn due(&self) -> Option<Instant> {
        self.due.get()
    }

    /// Is due `timeout` from now instead, and then, if it is due again and again, every `timeout`. Also if it
    /// was over.
    ///
    /// ```
    /// # use coracle_coro::sync::Tick;
    /// # use std::time::Duration;
    /// let tick = Tick::once(Duration::from_secs(3600));
    /// tick.reset(Duration::from_millis(1));
    /// tick.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn reset(&self, timeout: Duration) {
        self.due.set(Some(deadline::after(timeout)));
        if self.period.get().is_some() {
            self.period.set(Some(timeout.max(Duration::from_nanos(1))));
        }
    }

    /// Is never due again, until it is [reset](Tick::reset): in `select!`, its arm is not chosen. False if it
    /// was over.
    ///
    /// ```
    /// # use coracle_coro::sync::tick;
    /// # use std::time::Duration;
    /// let tick = tick(Duration::from_millis(1));
    /// assert!(tick.cancel());
    /// assert!(tick.wait().is_err() && !tick.cancel());
    /// ```
    pub fn cancel(&self) -> bool {
        self.due.take().is_some()
    }

    /// It was due at `due`: the first point of its grid that is not over comes next.
    fn go_on(&self, due: Instant) {
        let next = |period: Duration| {
            let late = deadline::after(Duration::ZERO).saturating_duration_since(due).as_nanos();
            let periods = late / period.as_nanos() + 1;
            let ahead = u64::try_from(periods.saturating_mul(period.as_nanos()));
            due.checked_add(Duration::from_nanos(ahead.unwrap_or(u64::MAX)))
        };
        self.due.set(self.period.get().and_then(next));
    }
}

impl<'a> IntoArm for &'a Tick {
    type Arm = Ticking<'a>;

    fn into_arm(self) -> Ticking<'a> {
        Ticking { tick: self, chosen: None }
    }
}

/// An arm that is a matter of time: `&tick` in [`select!`](crate::select!). What comes of it is when it was due.
#[derive(Debug)]
#[must_use = "an arm does nothing by itself"]
pub struct Ticking<'a> {
    tick: &'a Tick,
    chosen: Option<Instant>,
}

impl Wait for Ticking<'_> {
    fn attempt(&mut self) -> bool {
        if self.tick.due().is_some_and(is_over) {
            self.end(Failure::TimedOut);
        }
        self.is_chosen() // else the wait will tell
    }

    fn join(&mut self, _: &Party) -> bool {
        true
    }

    fn leave(&mut self) {}

    fn is_chosen(&self) -> bool {
        self.chosen.is_some()
    }

    fn deadline(&self) -> Option<Instant> {
        self.tick.due()
    }

    fn waits_for(&self) -> WaitsFor {
        self.tick.due().map_or(WaitsFor::Something, WaitsFor::Time)
    }

    fn can_fail(&self) -> bool {
        false
    }

    fn end(&mut self, failure: Failure) {
        let due = self.tick.due();
        self.chosen = Some(due.unwrap_or_else(|| deadline::after(Duration::ZERO)));
        if failure == Failure::TimedOut
            && let Some(due) = due
        {
            self.tick.go_on(due);
        }
    }
}

impl Arm for Ticking<'_> {
    type Output = Instant;

    fn output(&mut self) -> Instant {
        self.chosen.take().expect("this arm was not chosen")
    }
}
