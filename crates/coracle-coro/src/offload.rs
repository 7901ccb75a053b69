//! Work that blocks, or takes long, on a thread of the loop's worker pool; only the coroutine waits for it.
//!
//! ```text
//!   coroutine: offload(work) ──► pool queue ──► thread: work() ──► result ──post──► the same coroutine
//!        │                                                                              ▲
//!        └── waits, while its loop runs others ─────────────────────────────────────────┘
//! ```
//!
//! Two kinds: one whose work owns what it needs, which a coroutine that is cancelled or late leaves behind; and
//! one whose work borrows, which is waited for whatever happens.
#![allow(unsafe_code)]

use crate::current;
use crate::deadline;
use crate::must_not_unwind::MustNotUnwind;
use crate::primitive::Lock;
use crate::shield::Shield;
use crate::waiter::{Waiter, Waker, current_loop, refuse_callbacks};
use crate::waits_for::WaitsFor;
use coracle_loop::OffloadError;
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

thread_local! {
    /// This thread runs offloaded work. In the simulator that is the loop's own.
    static ELSEWHERE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` on a thread of the worker pool, and returns what it returned. Only this coroutine waits.
///
/// For what would hold up the loop: files, databases, a password hash, an image. In a plain thread it simply
/// runs. The pool is that of the loop ([`Builder::pool`](coracle_loop::Builder::pool)); all loops share one
/// unless they were given their own.
///
/// Work that has begun cannot be stopped. A coroutine that is cancelled, or late, goes on without it, and
/// what it returns is then dropped, on the loop's thread; that is why it must own what it needs.
/// [`offload_scoped`] may borrow.
///
/// # Errors
/// - `QuotaExceeded`, at once, if the pool's queue is full (`limit_queue`, 1,024 unless set) and its policy is to
///   refuse: nothing was started. Whoever would rather wait puts a [`Semaphore`](crate::sync::Semaphore) in front.
/// - `ECANCELED` if the coroutine is cancelled, `TimedOut` if a [`timeout`](crate::timeout) around it is over.
///   If that is so beforehand, nothing is started.
/// - `Other` if the work was dropped before it began: the pool was shut down, or drops its oldest.
///
/// # Panics
/// If `work` does, with the same. In a callback of a loop, which has
/// [`Loop::offload`](coracle_loop::Loop::offload).
///
/// ```
/// coracle_coro::run(|| {
///     let sum = coracle_coro::offload(|| (1..=1_000_000_u64).sum::<u64>())?;
///     assert_eq!(sum, 500_000_500_000);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn offload<F, T>(work: F) -> io::Result<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    if runs_here() {
        return Ok(work());
    }
    refuse_if_over()?;
    let place = Rc::new(Cell::new(None));
    let waiter = Waiter::new().waiting_for(WaitsFor::Offload);
    let done = {
        let (place, waker) = (Rc::clone(&place), waiter.waker());
        move |_: &_, result| {
            // Nobody is left to take it if the coroutine was faster: then it goes with the `Rc`.
            place.set(Some(result));
            waker.wake();
        }
    };
    current_loop().offload(move || catch_elsewhere(work), done)?;
    let woken = waiter.wait(None);
    match place.take() {
        Some(Ok(result)) => Ok(result.unwrap_or_else(|payload| resume_unwind(payload))),
        Some(Err(error)) => Err(dropped(&error)),
        None => Err(woken.result().expect_err("it was woken without a result")),
    }
}

/// As [`offload`], with work that may borrow: it *never returns before the work is over*, not even if the
/// coroutine is cancelled or a [`timeout`](crate::timeout) around it has passed. What comes of it is delivered
/// then, and the next wait fails.
///
/// # Errors
/// As [`offload`]; cancelled or late only beforehand, and nothing was started.
///
/// # Panics
/// As [`offload`].
///
/// ```
/// coracle_coro::run(|| {
///     let mut numbers = vec![3, 1, 2];
///     coracle_coro::offload_scoped(|| numbers.sort())?;
///     assert_eq!(numbers, [1, 2, 3]);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn offload_scoped<F, T>(work: F) -> io::Result<T>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    if runs_here() {
        return Ok(work());
    }
    refuse_if_over()?;
    let place = Arc::new(Lock::new(None));
    let body: Box<dyn FnOnce() + Send + '_> = {
        let place = Arc::clone(&place);
        Box::new(move || {
            let result = catch_elsewhere(work);
            *place.lock() = Some(result);
        })
    };
    // SAFETY: only the lifetime changes. This function does not return, and is not unwound (`MustNotUnwind`),
    // before `Ending` says that the body is used up or dropped, with its copy of `place`. If this coroutine is
    // leaked instead, its stack stays as it is for ever, and what the body borrows with it: that is on this
    // stack, or on one whose coroutine waits for this one and so is leaked, too.
    let body: Box<dyn FnOnce() + Send + 'static> = unsafe { std::mem::transmute(body) };
    let ending = Arc::new(Ending::default());
    let job = Borrowing { body: Some(body), _over: Over(Arc::clone(&ending)) };

    let must_not_unwind = MustNotUnwind("cannot wait for offloaded work that borrows");
    let taken = current_loop().offload(move || job.run(), |_, _| ());
    ending.wait();
    std::mem::forget(must_not_unwind);

    taken?;
    let result = place.lock().take();
    match result {
        Some(result) => Ok(result.unwrap_or_else(|payload| resume_unwind(payload))),
        None => Err(dropped(&OffloadError::Dropped)),
    }
}

/// Whether there is no coroutine that could wait.
fn runs_here() -> bool {
    if current::with(|frame| frame.is_some()) {
        return false;
    }
    if !ELSEWHERE.get() {
        refuse_callbacks();
    }
    true
}

/// A coroutine whose next wait would fail starts nothing.
pub(crate) fn refuse_if_over() -> io::Result<()> {
    let cancelled = current::with(|frame| {
        frame.is_some_and(|frame| {
            frame.assert_may_park();
            (frame.sleeper.is_cancelled() && !frame.is_shielded()) || thread::panicking()
        })
    });
    let now = deadline::after(Duration::ZERO);
    let late = deadline::limit().is_some_and(|limit| limit <= now);
    if cancelled || late {
        return Waiter::new().wait(Some(now)).result();
    }
    Ok(())
}

fn catch_elsewhere<T>(work: impl FnOnce() -> T) -> thread::Result<T> {
    let before = ELSEWHERE.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    ELSEWHERE.set(before);
    result
}

fn dropped(error: &OffloadError) -> io::Error {
    io::Error::other(format!(
        "{error}: the worker pool was shut down, or full and its policy is to drop the oldest"
    ))
}

/// Work that borrows. Its fields are dropped in order: the body is gone before that is told.
struct Borrowing {
    body: Option<Box<dyn FnOnce() + Send>>,
    _over: Over,
}

impl Borrowing {
    fn run(mut self) {
        let body = self.body.take().expect("it runs once");
        body();
    }
}

/// Tells whoever waits that the body is gone.
struct Over(Arc<Ending>);

impl Drop for Over {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.0.0.lock();
            state.over = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Whether borrowing work is over, and who waits for that.
struct Ending(Lock<EndingState>);

#[derive(Default)]
struct EndingState {
    over: bool,
    waker: Option<Waker>,
}

impl Default for Ending {
    fn default() -> Ending {
        Ending(Lock::new(EndingState::default()))
    }
}

impl Ending {
    /// Until the work is over, whatever happens to the one that waits.
    fn wait(&self) {
        let _shield = Shield::new(None);
        loop {
            let waiter = Waiter::new().waiting_for(WaitsFor::Offload);
            {
                let mut state = self.0.lock();
                if state.over {
                    return;
                }
                state.waker = Some(waiter.waker());
            }
            waiter.wait(None);
        }
    }
}
