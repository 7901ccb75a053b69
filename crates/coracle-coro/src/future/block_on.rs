//! A future, waited for like anything else.

use crate::budget;
use crate::current;
use crate::deadline;
use crate::failures;
use crate::future::thread_time::{self, Blocking};
use crate::park::yield_now;
use crate::sleeper::Sleeper;
use crate::waiter::{Waiter, Woken};
use crate::waits_for::WaitsFor;
use coracle_loop::Loop;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

/// Polls `future` until it is ready, and waits in between: a coroutine gives up its turn, a plain thread sleeps.
///
/// The future needs no `Send` and may borrow. Any thread may wake it. It is polled here, on the stack of whoever
/// calls: so in a coroutine it may itself call what waits.
///
/// # Errors
/// `ECANCELED` if the coroutine is [cancelled](crate::JoinHandle::cancel), `TimedOut` if a
/// [`timeout`](crate::timeout) around it is over. The future is dropped then, wherever it was. A future that is
/// ready is no wait, and never fails.
///
/// That is why this returns a `Result`, as every wait here does, and not what the future gives: who could not
/// be told would have to wait on. If the future gives a `Result`, it is `block_on(future)??`.
///
/// # Panics
/// In a callback of a loop, and where a loop polls a future; if the future does.
///
/// ```
/// use coracle_coro::future::{block_on, sleep};
/// use std::time::Duration;
///
/// coracle_coro::run(|| {
///     let answer = block_on(async {
///         sleep(Duration::from_millis(2)).await;
///         42
///     })?;
///     assert_eq!(answer, 42);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn block_on<F: IntoFuture>(future: F) -> io::Result<F::Output> {
    refuse_callbacks();
    budget::share();
    let mut future = pin!(future.into_future());
    let signal = Arc::new(Signal::of_caller());
    let waker = Arc::clone(&signal).into();
    let mut context = Context::from_waker(&waker);
    // A plain thread has no loop that would keep the time for its futures.
    let _blocking = Loop::current().is_none().then(Blocking::begin);
    loop {
        budget::begin_poll();
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
        if signal.take() {
            // It woke itself, and may go on to do so: others have their turn, and it can be ended.
            yield_now();
            end_if_asked()?;
        } else {
            signal.wait()?;
        }
    }
}

/// Before the future is polled: not when it turns out that it is not ready.
fn refuse_callbacks() {
    let in_callback = current::with(|frame| frame.is_none()) && Loop::current().is_some();
    assert!(
        !in_callback,
        "cannot block on a future in a callback of a loop, which would wait with it: `spawn_future` it from \
         here, or `spawn` a coroutine and block there; a future that the loop polls awaits instead"
    );
}

/// Fails as a wait would.
fn end_if_asked() -> io::Result<()> {
    let cancelled = current::with(|frame| {
        frame.is_some_and(|frame| frame.sleeper.is_cancelled() && !frame.is_shielded())
    });
    if cancelled {
        return Waiter::new().wait(None).result();
    }
    let late = deadline::limit().is_some_and(|limit| limit <= deadline::after(Duration::ZERO));
    if !late {
        return Ok(());
    }
    failures::note();
    Woken::TimedOut.result()
}

/// What the future's wakers leave for whoever blocks on it: as `unpark` does for `park`, but for this call only.
struct Signal {
    sleeper: Arc<Sleeper>,
    given: AtomicBool,
    /// The ticket of the wait that a wake ends, or 0.
    waiting: AtomicU64,
}

impl Signal {
    fn of_caller() -> Signal {
        Signal {
            sleeper: Sleeper::of_caller(),
            given: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
        }
    }

    fn take(&self) -> bool {
        self.given.swap(false, Ordering::SeqCst)
    }

    /// Until it is given, which it may have been by now; or until a timer of this thread's futures is due.
    fn wait(&self) -> io::Result<()> {
        let alarm = thread_time::next();
        let outer = deadline::limit();
        let waiter = Waiter::new().waiting_for(WaitsFor::Future);
        let ticket = waiter.ticket;
        self.waiting.store(ticket, Ordering::SeqCst);
        if self.given.load(Ordering::SeqCst) {
            self.sleeper.end(ticket, Woken::Woken);
        }
        let woken = waiter.wait(alarm);
        self.waiting.store(0, Ordering::SeqCst);
        self.take(); // by a swap: whoever gave it did something before that we must see
        deadline::ended(woken, alarm, outer)?;
        if alarm.is_some() {
            thread_time::ring_due();
        }
        Ok(())
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // First this, then a look at who waits for it; he says that he waits, and then looks at this.
        self.given.store(true, Ordering::SeqCst);
        let ticket = self.waiting.load(Ordering::SeqCst);
        if ticket != 0 {
            self.sleeper.end_and_tell(ticket, Woken::Woken);
        }
    }
}
