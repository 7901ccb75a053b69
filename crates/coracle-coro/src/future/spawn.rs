//! Futures that run by themselves on a loop, and waiting for them.

use crate::future::block_on;
use crate::future::outcome::Outcome;
use crate::future::table::{Body, Shell};
use crate::join::{JoinError, JoinHandle, message};
use crate::scheduler::Scheduler;
use coracle_loop::{Loop, LoopHandle};
use rustix::io::Errno;
use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

/// Has `future` polled on this loop until it is ready, beside the coroutines and callbacks. Never inline: it is
/// behind all that are ready now.
///
/// It stays on this thread, so it needs no `Send`. It has no stack of its own: it is polled on the loop's, where
/// nothing may wait that does not `.await` (that panics, and says so). [`run`](crate::run()) waits for it as it
/// waits for coroutines.
///
/// Waking it from its own loop takes neither a lock nor a system call; from another thread, a posted job, and one
/// only until it is polled.
///
/// # Panics
/// Outside a loop: neither in a coroutine nor in a callback nor in a future of a loop.
///
/// ```
/// use coracle_coro::future::spawn_future;
/// use coracle_coro::sync::channel;
/// use std::rc::Rc;
///
/// coracle_coro::run(|| {
///     let (sender, receiver) = channel::<u32>(1);
///     let shared = Rc::new(2);
///     let doubled = spawn_future(async move { receiver.recv_async().await.unwrap() * *shared });
///     sender.send(21).unwrap(); // this is a coroutine
///     assert_eq!(doubled.join()?, 42);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn_future<F>(future: F) -> FutureHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let lp = Loop::current().expect(
        "cannot spawn a future outside a loop: call it inside `run` or in a callback, or give it to a loop with \
         `spawn_future_on`; `block_on` needs none",
    );
    let shell = Shell::new(lp.handle(), Location::caller());
    let outcome = Outcome::new();
    let body = body(future, Finish::new(&outcome));
    Scheduler::of(&lp).enter_future(&lp, Arc::clone(&shell), body);
    FutureHandle { shell, outcome }
}

/// The same on the loop that `handle` names. Any thread.
///
/// # Errors
/// If the loop is gone, or has too many posted jobs.
///
/// ```
/// use coracle_coro::future::spawn_future_on;
///
/// # use coracle_loop::Loop;
/// let lp = Loop::new()?;
/// let handle = lp.handle();
/// let thread = std::thread::spawn(move || {
///     let answer = spawn_future_on(&handle, async { 6 * 7 }).unwrap().join();
///     handle.stop();
///     answer
/// });
/// lp.run()?;
/// assert_eq!(thread.join().unwrap()?, 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn_future_on<F>(handle: &LoopHandle, future: F) -> io::Result<FutureHandle<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let shell = Shell::new(handle.clone(), Location::caller());
    let outcome = Outcome::new();
    let finish = Finish::new(&outcome);
    let entering = Arc::clone(&shell);
    handle.post(move |lp| Scheduler::of(lp).enter_future(lp, entering, body(future, finish)))?;
    Ok(FutureHandle { shell, outcome })
}

/// What the loop polls: the future, and telling the handle how it ended.
fn body<F: Future + 'static>(future: F, finish: Finish<F::Output>) -> Body {
    Box::pin(async move {
        let result = {
            let mut future = pin!(future);
            let poll = |cx: &mut Context<'_>| future.as_mut().poll(cx);
            caught(poll).await
        }; // the future is gone before anybody hears that it is over
        finish.tell(result.map_err(|payload| {
            let said = message(&*payload);
            tracing::error!(said, "a future panicked");
            FutureError::Panicked(payload)
        }));
    })
}

/// A panic in `poll` is its result.
async fn caught<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> thread::Result<T> {
    poll_fn(move |cx| match catch_unwind(AssertUnwindSafe(|| poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Err(payload) => Poll::Ready(Err(payload)),
    })
    .await
}

/// The future's side of its ending. One that is dropped before it was ready says so.
struct Finish<T>(Option<Arc<Outcome<T>>>);

impl<T> Finish<T> {
    fn new(outcome: &Arc<Outcome<T>>) -> Finish<T> {
        Finish(Some(Arc::clone(outcome)))
    }

    fn tell(mut self, result: Result<T, FutureError>) {
        if let Some(outcome) = self.0.take() {
            outcome.set(result);
        }
    }
}

impl<T> Drop for Finish<T> {
    fn drop(&mut self) {
        if let Some(outcome) = self.0.take() {
            outcome.set(Err(FutureError::Cancelled));
        }
    }
}

/// Owns the right to wait for a [spawned](spawn_future) future: by `.await`, or by [`join`](FutureHandle::join).
///
/// Dropping it *detaches* the future, which goes on.
///
/// ```
/// use coracle_coro::future::{block_on, spawn_future};
///
/// coracle_coro::run(|| {
///     let one = spawn_future(async { 1 });
///     let two = spawn_future(async { 2 });
///     assert_eq!(block_on(async { one.await.unwrap() + two.await.unwrap() })?, 3);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// If what the future gives is `Send`, so is the handle; else it stays on its thread:
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<coracle_coro::future::FutureHandle<std::rc::Rc<u8>>>();
/// ```
pub struct FutureHandle<T> {
    shell: Arc<Shell>,
    outcome: Arc<Outcome<T>>,
}

impl<T> FutureHandle<T> {
    /// Waits until the future is over, as [`block_on`] does.
    ///
    /// # Errors
    /// It panicked, or was cancelled; or it is the *caller* who cannot wait any longer.
    ///
    /// # Panics
    /// In a callback of a loop.
    ///
    /// ```
    /// use coracle_coro::future::{FutureError, spawn_future};
    ///
    /// coracle_coro::run(|| {
    ///     let careless = spawn_future(async { panic!("oh") });
    ///     assert!(matches!(careless.join(), Err(FutureError::Panicked(_))));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join(self) -> Result<T, FutureError> {
        block_on(self).unwrap_or_else(|error| Err(FutureError::Interrupted(error)))
    }

    /// Whether it is over.
    ///
    /// ```
    /// use coracle_coro::future::spawn_future;
    ///
    /// coracle_coro::run(|| {
    ///     let soon = spawn_future(async {});
    ///     assert!(!soon.is_finished()); // spawning polls nothing
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_finished(&self) -> bool {
        self.outcome.is_there()
    }

    /// Has the loop drop the future, when its turn comes, wherever it is; its destructors run there. Whoever
    /// waits for it is told. Nothing happens if it is over. Any thread.
    ///
    /// ```
    /// use coracle_coro::future::{FutureError, spawn_future};
    ///
    /// coracle_coro::run(|| {
    ///     let never = spawn_future(std::future::pending::<()>());
    ///     never.cancel();
    ///     assert!(matches!(never.join(), Err(FutureError::Cancelled)));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cancel(&self) {
        self.shell.cancel();
    }
}

impl<T> Future for FutureHandle<T> {
    type Output = Result<T, FutureError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, FutureError>> {
        self.outcome.poll(cx)
    }
}

impl<T> fmt::Debug for FutureHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FutureHandle(spawned at {})", self.shell.spawned)
    }
}

/// Why there is no value of a [spawned](spawn_future) future.
///
/// ```
/// use coracle_coro::future::FutureError;
///
/// let error = std::io::Error::from(FutureError::Cancelled);
/// assert_eq!(error.to_string(), "Operation canceled (os error 125)");
/// ```
#[non_exhaustive]
pub enum FutureError {
    /// It panicked with this.
    Panicked(Box<dyn Any + Send>),
    /// It was [cancelled](FutureHandle::cancel), or its loop is gone.
    Cancelled,
    /// Who waited for it is cancelled (`ECANCELED`), or a [`timeout`](crate::timeout) around it was over
    /// (`TimedOut`). The future itself goes on. Only of [`join`](FutureHandle::join).
    Interrupted(io::Error),
}

impl fmt::Debug for FutureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FutureError::Panicked(payload) => write!(f, "Panicked({:?})", message(&**payload)),
            FutureError::Cancelled => f.write_str("Cancelled"),
            FutureError::Interrupted(error) => write!(f, "Interrupted({error:?})"),
        }
    }
}

impl fmt::Display for FutureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FutureError::Panicked(payload) => {
                write!(f, "the future panicked: {}", message(&**payload))
            }
            FutureError::Cancelled => f.write_str("the future was cancelled"),
            FutureError::Interrupted(error) => write!(f, "cannot wait for the future: {error}"),
        }
    }
}

impl std::error::Error for FutureError {}

/// `ECANCELED` for one that was cancelled.
impl From<FutureError> for io::Error {
    fn from(error: FutureError) -> io::Error {
        match error {
            FutureError::Panicked(_) => io::Error::other(error.to_string()),
            FutureError::Cancelled => Errno::CANCELED.into(),
            FutureError::Interrupted(error) => error,
        }
    }
}

/// A coroutine can be awaited: what [`join`](JoinHandle::join) gives, without holding whoever polls.
///
/// ```
/// use coracle_coro::{future::spawn_future, sleep, spawn};
/// use std::time::Duration;
///
/// coracle_coro::run(|| {
///     let coroutine = spawn(|| sleep(Duration::from_millis(2)));
///     let future = spawn_future(async move { coroutine.await.unwrap() });
///     future.join()?
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError<T>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, JoinError<T>>> {
        self.poll_join(cx)
    }
}
