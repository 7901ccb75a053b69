//! Time, for futures: sleeping, limits, and ticks.

use crate::deadline;
use crate::future::thread_time;
use crate::sync::failure::late;
use coracle_loop::{Loop, Timer};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Is ready when `duration` is over, by the monotonic clock. Never earlier.
///
/// The time begins with this call. It is a timer of the loop that it is first polled on; in a plain thread,
/// [`block_on`](super::block_on()) keeps the time.
///
/// # Panics
/// When it is polled where there is neither: by another executor.
///
/// ```
/// use coracle_coro::future::{block_on, sleep};
/// use std::time::Duration;
///
/// coracle_coro::run(|| block_on(sleep(Duration::from_millis(2))))?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(deadline::after(duration))
}

/// As [`sleep`], until a point in time.
///
/// ```
/// use coracle_coro::future::{block_on, sleep_until};
/// use std::time::{Duration, Instant};
///
/// coracle_coro::run(|| {
///     let deadline = Instant::now() + Duration::from_millis(2);
///     block_on(sleep_until(deadline))?;
///     assert!(Instant::now() >= deadline);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, alarm: None }
}

/// A future that is a matter of time. See [`sleep`]. Dropping it ends its timer.
#[must_use = "futures do nothing unless they are awaited or polled"]
pub struct Sleep {
    deadline: Instant,
    /// From its first poll on, if that was too early.
    alarm: Option<Alarm>,
}

struct Alarm {
    /// None in a plain thread.
    timer: Option<Timer>,
    state: Rc<AlarmState>,
}

/// What the one who keeps the time knows of a future that sleeps.
#[derive(Default)]
pub(super) struct AlarmState {
    fired: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl AlarmState {
    pub(super) fn ring(&self) {
        self.fired.set(true);
        let waker = self.waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Sleep {
    /// When it is due.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let deadline = Instant::now() + Duration::from_secs(1);
    /// assert_eq!(coracle_coro::future::sleep_until(deadline).deadline(), deadline);
    /// ```
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        let alarm = match &mut self.alarm {
            Some(alarm) => alarm,
            None if deadline <= deadline::after(Duration::ZERO) => return Poll::Ready(()),
            None => self.alarm.insert(Alarm::set(deadline)),
        };
        if alarm.state.fired.get() {
            return Poll::Ready(());
        }
        let mut waker = alarm.state.waker.borrow_mut();
        match &mut *waker {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            place => {
                let former = place.replace(cx.waker().clone());
                drop(waker);
                drop(former); // which may be the last of somebody's
            }
        }
        Poll::Pending
    }
}

impl Alarm {
    fn set(deadline: Instant) -> Alarm {
        let state = Rc::<AlarmState>::default();
        let ringing = Rc::clone(&state);
        let timer = Loop::current().map(|lp| lp.at(deadline, move |_| ringing.ring()));
        assert!(
            timer.is_some() || thread_time::set(deadline, &state),
            "a timer of a future needs somebody who keeps the time, and there is nobody here: `block_on` of this \
             crate does, and a loop does (`spawn_future`)"
        );
        Alarm { timer, state }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(Alarm { timer: Some(timer), state }) = &self.alarm
            && !state.fired.get()
        {
            timer.cancel();
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sleep({:?})", self.deadline)
    }
}

/// `future`, for `timeout` at most. The time begins with this call.
///
/// # Errors
/// `TimedOut`; the future is dropped then. One that is ready at the same moment is ready.
///
/// ```
/// use coracle_coro::future::{block_on, timeout};
/// use std::io::ErrorKind;
/// use std::time::Duration;
///
/// coracle_coro::run(|| {
///     let late = block_on(timeout(Duration::from_millis(1), std::future::pending::<()>()))?;
///     assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn timeout<F: IntoFuture>(
    timeout: Duration,
    future: F,
) -> impl Future<Output = io::Result<F::Output>> {
    let sleep = sleep(timeout);
    let future = future.into_future();
    async move {
        let (mut future, mut sleep) = (pin!(future), pin!(sleep));
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            sleep.as_mut().poll(cx).map(|()| Err(late()))
        })
        .await
    }
}

/// Ticks every `period`, first after one period.
///
/// They keep to the grid of the first one and do not drift. Whoever was late does not have those made up for
/// that it has missed, just as with [`Loop::every`].
///
/// ```
/// use coracle_coro::future::{block_on, interval};
/// use std::time::{Duration, Instant};
///
/// coracle_coro::run(|| {
///     let begin = Instant::now();
///     block_on(async {
///         let mut ticks = interval(Duration::from_millis(1));
///         for _ in 0..3 {
///             ticks.tick().await;
///         }
///     })?;
///     assert!(begin.elapsed() >= Duration::from_millis(3));
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Panics
/// If the period is nothing.
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval of nothing would tick without end");
    Interval { next: deadline::after(period), period }
}

/// Ticks. See [`interval`].
#[derive(Debug)]
pub struct Interval {
    next: Instant,
    period: Duration,
}

impl Interval {
    /// Is ready at the next tick, and says when that was due. Dropping it half-way misses nothing.
    pub async fn tick(&mut self) -> Instant {
        let due = self.next;
        sleep_until(due).await;
        let now = deadline::after(Duration::ZERO);
        let missed = now.saturating_duration_since(due).as_nanos() / self.period.as_nanos();
        let steps = u32::try_from(missed).unwrap_or(u32::MAX).saturating_add(1);
        self.next = due + self.period.saturating_mul(steps);
        due
    }
}
