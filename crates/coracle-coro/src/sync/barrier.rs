//! Until all are there.

use crate::budget;
use crate::primitive::Lock;
use crate::sync::failure::Failure;
use crate::sync::line::Line;
use crate::waiter::Waiter;
use crate::waits_for::WaitsFor;
use std::fmt;
use std::io;

/// A point that nobody passes until all are there: like [`std::sync::Barrier`], but only the coroutine waits.
///
/// ```
/// use coracle_coro::sync::Barrier;
///
/// let barrier = Barrier::new(3);
/// std::thread::scope(|scope| {
///     for _ in 0..3 {
///         scope.spawn(|| {
///             // What is done before…
///             barrier.wait().unwrap();
///             // … has been done by all three.
///         });
///     }
/// });
/// ```
///
/// It can be used again, any number of times.
pub struct Barrier {
    size: usize,
    state: Lock<State>,
}

struct State {
    arrived: usize,
    /// How often all were there.
    generation: usize,
    line: Line<()>,
}

impl Barrier {
    /// A barrier for `size` of them. With 0 it is as with 1: nobody waits.
    ///
    /// ```
    /// # use coracle_coro::sync::Barrier;
    /// assert!(Barrier::new(1).wait()?.is_leader());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn new(size: usize) -> Barrier {
        Barrier { size, state: Lock::new(State { arrived: 0, generation: 0, line: Line::new() }) }
    }

    /// Waits until all are there. One of them, the last to come, is told that it is the leader.
    ///
    /// ```
    /// # use coracle_coro::sync::Barrier;
    /// let barrier = Barrier::new(2);
    /// let leaders = std::thread::scope(|scope| {
    ///     let other = scope.spawn(|| barrier.wait().unwrap().is_leader());
    ///     let this = barrier.wait().unwrap().is_leader();
    ///     u32::from(this) + u32::from(other.join().unwrap())
    /// });
    /// assert_eq!(leaders, 1);
    /// ```
    ///
    /// # Errors
    /// `ECANCELED` if the coroutine is cancelled before all are there, `TimedOut` if a
    /// [`timeout`](crate::timeout) around it is over. The others go on waiting, for one more
    /// to come in its place.
    pub fn wait(&self) -> io::Result<BarrierWaitResult> {
        budget::begin()?;
        if self.arrive_last(&mut self.state.lock()) {
            return Ok(BarrierWaitResult { leader: true });
        }
        // It may refuse, or take its time: not under the lock.
        let waiter = Waiter::new().waiting_for(WaitsFor::Barrier);
        let (ticket, generation) = {
            let mut state = self.state.lock();
            if self.arrive_last(&mut state) {
                return Ok(BarrierWaitResult { leader: true });
            }
            state.arrived += 1;
            (state.line.join(waiter.waker(), ()), state.generation)
        };
        if let Some(failure) = Failure::of(waiter.wait(None)) {
            let mut state = self.state.lock();
            if state.generation == generation {
                state.line.leave(ticket);
                state.arrived -= 1;
                return Err(failure.into());
            }
            // All were there, this one among them: that came first.
        }
        Ok(BarrierWaitResult { leader: false })
    }

    /// If all others are there, lets them go.
    fn arrive_last(&self, state: &mut State) -> bool {
        let last = state.arrived + 1 >= self.size;
        if last {
            state.arrived = 0;
            state.generation = state.generation.wrapping_add(1);
            state.line.wake_all();
        }
        last
    }

    /// How many wait at it.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().line.len()
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Barrier({} of {} are there)", self.state.lock().arrived, self.size)
    }
}

/// Whether this one was the last to come to a [`Barrier`].
///
/// ```
/// # use coracle_coro::sync::Barrier;
/// if Barrier::new(1).wait()?.is_leader() {
///     // What one of them has to do.
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarrierWaitResult {
    leader: bool,
}

impl BarrierWaitResult {
    /// Whether it was. Exactly one of each round is.
    pub fn is_leader(&self) -> bool {
        self.leader
    }
}
