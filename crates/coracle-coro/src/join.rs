//! Waiting for a coroutine to end, and what it leaves.
#![allow(unsafe_code)]

use crate::budget;
use crate::coroutine::Coroutine;
use crate::current::{self, Frame};
use crate::deadline;
use crate::ending::Nothing;
use crate::future::wait::FutureWait;
use crate::sync::failure::Failure;
use crate::waiter::{Waiter, Waker, Woken};
use crate::waits_for::WaitsFor;
use std::any::Any;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Why there is no result, for people.
const DROPPED: &str =
    "it was dropped before it could start: its loop was gone, or had no stack for it";
const LEAKED: &str = "it is parked for good: it was cancelled, and went on waiting (the error of a cancelled wait \
                      is to be handed on, by `?`)";
const LOST: &str =
    "its loop was dropped before it was over: `run` and `run_on` wait for all coroutines";

/// Owns the right to wait for a coroutine: what `std::thread::JoinHandle` is for a thread.
///
/// Dropping it *detaches* the coroutine, which goes on. If the result is `Send`, so is the handle, and a
/// plain thread or a coroutine of another loop may wait as well.
///
/// ```
/// coracle_coro::run(|| {
///     let sum = coracle_coro::spawn(|| 1 + 2);
///     assert_eq!(sum.join().unwrap(), 3);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<coracle_coro::JoinHandle<std::rc::Rc<u8>>>();
/// ```
pub struct JoinHandle<T> {
    coroutine: Coroutine,
    /// It is sent and shared as this is: the result goes from one thread to another, never to two.
    result: PhantomData<Mutex<T>>,
}

impl<T> JoinHandle<T> {
    /// # Safety
    /// It is the only handle of this coroutine, which will leave a `T`.
    #[inline]
    pub(crate) unsafe fn new(coroutine: Coroutine) -> JoinHandle<T> {
        JoinHandle { coroutine, result: PhantomData }
    }

    /// Waits until the coroutine is over, and returns what it returned.
    ///
    /// # Errors
    /// It panicked; or there will never be a result, and the error says why; or it is the *caller* who cannot wait
    /// any longer, since it is cancelled or a [`timeout`](crate::timeout) around it is over: the error has the
    /// handle then, and dropping it detaches the coroutine. So `join().unwrap()` is not for who may be cancelled
    /// meanwhile, as whoever is on a loop that is stopped; `join()?` is, where `?` makes it an [`io::Error`].
    ///
    /// # Panics
    /// In a callback of a loop, if it would have to wait.
    ///
    /// ```
    /// coracle_coro::run(|| {
    ///     let careless = coracle_coro::spawn(|| -> u32 { "seven".parse().unwrap() });
    ///     assert!(careless.join().is_err()); // nobody else has noticed
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join(self) -> Result<T, JoinError<T>> {
        self.join_until(None)
    }

    /// As [`join`](JoinHandle::join), for `timeout` at most.
    ///
    /// # Errors
    /// Says what happened; who only waited too short a time has the handle back.
    ///
    /// ```
    /// use coracle_coro::{JoinError, sleep, spawn};
    /// use std::time::Duration;
    ///
    /// coracle_coro::run(|| {
    ///     let slow = spawn(|| sleep(Duration::from_millis(20)));
    ///     let Err(JoinError::TimedOut(slow)) = slow.join_timeout(Duration::from_millis(1)) else {
    ///         panic!("it was fast");
    ///     };
    ///     slow.join().unwrap()
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join_timeout(self, timeout: Duration) -> Result<T, JoinError<T>> {
        self.join_until(Some(deadline::after(timeout)))
    }

    fn join_until(self, deadline: Option<Instant>) -> Result<T, JoinError<T>> {
        match self.wait(deadline) {
            Ok(result) => result,
            Err(Woken::Cancelled) => Err(JoinError::Cancelled(self)),
            Err(Woken::Woken | Woken::TimedOut) => Err(JoinError::TimedOut(self)),
        }
    }

    /// Whether it is over, so that [`join`](JoinHandle::join) does not wait.
    ///
    /// ```
    /// coracle_coro::run(|| {
    ///     let child = coracle_coro::spawn(|| ());
    ///     assert!(!child.is_finished()); // spawning runs nothing
    ///     coracle_coro::yield_now();
    ///     assert!(child.is_finished());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_finished(&self) -> bool {
        self.coroutine.sleeper().ending.is_over()
    }

    /// Asks it to end: the wait it is in and every later one fail with `ECANCELED`, so that `?` leads it out,
    /// past its destructors. Nothing is done by force. Any thread.
    ///
    /// What it waited for and what has happened by now is delivered first; then the cancel strikes the next
    /// wait. One that waits on in spite of it is made to wait longer and longer, and named in the log.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// coracle_coro::run(|| {
    ///     let patient = coracle_coro::spawn(|| coracle_coro::sleep(Duration::from_secs(3600)));
    ///     patient.cancel();
    ///     let ended = patient.join().unwrap();
    ///     assert_eq!(ended.unwrap_err().to_string(), "Operation canceled (os error 125)");
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cancel(&self) {
        self.coroutine.cancel();
    }

    /// The coroutine itself: its name, its id, and how to unpark it.
    ///
    /// ```
    /// coracle_coro::run(|| {
    ///     let parked = coracle_coro::spawn(coracle_coro::park);
    ///     parked.coroutine().unpark();
    ///     parked.join().unwrap()
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn coroutine(&self) -> &Coroutine {
        &self.coroutine
    }

    /// What it left, for a future that waits.
    pub(crate) fn poll_join(&self, cx: &Context<'_>) -> Poll<Result<T, JoinError<T>>> {
        let ending = &self.coroutine.sleeper().ending;
        assert!(!ending.is_taken(), "a handle was polled after it was ready");
        // SAFETY: this is the handle.
        if unsafe { ending.reopen() } {
            let waker = FutureWait::told(Some(cx.waker().clone())).waker();
            // SAFETY: as above, and it is open; the waker is not lent.
            if unsafe { ending.expect(ManuallyDrop::new(waker), false) } {
                return Poll::Pending;
            }
        }
        self.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// What it left, or why there is nothing yet.
    #[inline(always)]
    fn wait(&self, deadline: Option<Instant>) -> Result<Result<T, JoinError<T>>, Woken> {
        if let Some(result) = self.take() {
            budget::share();
            return Ok(result);
        }
        let woken = current::with(|frame| match frame {
            Some(frame) if frame.scheduler().owns(self.coroutine.sleeper()) => {
                self.wait_here(frame, deadline)
            }
            _ => self.wait_elsewhere(deadline),
        });
        self.take().ok_or(woken)
    }

    /// By a coroutine of the same loop.
    #[inline(always)]
    fn wait_here(&self, frame: &Frame, deadline: Option<Instant>) -> Woken {
        let ending = &self.coroutine.sleeper().ending;
        let waiter = Waiter::of(frame).waiting_for(WaitsFor::End(self.coroutine.id()));
        // SAFETY: the waker is not dropped, and not used after `leave`, below, or, after a panic, after `detach`.
        let sleeper = unsafe { waiter.sleeper.lend() };
        let waker = ManuallyDrop::new(Waker { sleeper, ticket: waiter.ticket });
        // SAFETY: this is the handle, it is open, and both are of one loop. It may have been polled as a future
        // before, and then it may be over by now.
        unsafe {
            if !ending.reopen() || !ending.expect(waker, true) {
                return Woken::Woken;
            }
            let woken = waiter.wait_in(frame, deadline);
            ending.leave();
            woken
        }
    }

    /// By whomever else.
    #[inline(never)]
    fn wait_elsewhere(&self, deadline: Option<Instant>) -> Woken {
        let ending = &self.coroutine.sleeper().ending;
        let waiter = Waiter::new().waiting_for(WaitsFor::End(self.coroutine.id()));
        // SAFETY: as above, but that both may be of different threads: the waker is not lent.
        unsafe {
            if !ending.reopen() || !ending.expect(ManuallyDrop::new(waiter.waker()), false) {
                return Woken::Woken;
            }
            let woken = waiter.wait(deadline);
            ending.leave();
            woken
        }
    }

    /// What it left, if it is over.
    #[inline]
    fn take(&self) -> Option<Result<T, JoinError<T>>> {
        let ending = &self.coroutine.sleeper().ending;
        // SAFETY: this is the handle, and the coroutine leaves a `T`.
        Some(match unsafe { ending.take()? } {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(payload)) => Err(JoinError::Panicked(payload)),
            Err(Nothing::NeverBegan) => Err(JoinError::Lost(DROPPED)),
            Err(Nothing::NeverEnds) => Err(JoinError::Lost(LEAKED)),
            Err(Nothing::Lost) => Err(JoinError::Lost(LOST)),
        })
    }
}

/// Detaches it.
impl<T> Drop for JoinHandle<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this is the handle, and the coroutine leaves a `T`.
        drop(unsafe { self.coroutine.sleeper().ending.detach::<T>() });
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinHandle({:?})", self.coroutine)
    }
}

/// Why [`JoinHandle::join`] has no value.
///
/// ```
/// use coracle_coro::{JoinError, spawn};
///
/// coracle_coro::run(|| {
///     let careless = spawn(|| -> u32 { panic!("oh") });
///     let error = careless.join().unwrap_err();
///     assert_eq!(error.to_string(), "the coroutine panicked: oh");
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[non_exhaustive]
pub enum JoinError<T> {
    /// The coroutine panicked with this.
    Panicked(Box<dyn Any + Send>),
    /// There is no result, and there will be none: it could not be started, its loop was dropped before it was
    /// over, or it is parked for good, because it was cancelled and went on waiting. Says which.
    Lost(&'static str),
    /// It was not over in time: that of [`join_timeout`](JoinHandle::join_timeout), or of a
    /// [`timeout`](crate::timeout) around it.
    TimedOut(JoinHandle<T>),
    /// Who waited for it is cancelled.
    Cancelled(JoinHandle<T>),
}

impl<T> fmt::Debug for JoinError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Panicked(payload) => write!(f, "Panicked({:?})", message(&**payload)),
            JoinError::Lost(why) => write!(f, "Lost({why:?})"),
            JoinError::TimedOut(handle) => write!(f, "TimedOut({handle:?})"),
            JoinError::Cancelled(handle) => write!(f, "Cancelled({handle:?})"),
        }
    }
}

impl<T> fmt::Display for JoinError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Panicked(payload) => {
                write!(f, "the coroutine panicked: {}", message(&**payload))
            }
            JoinError::Lost(why) => write!(f, "the coroutine leaves no result: {why}"),
            JoinError::TimedOut(handle) => {
                write!(f, "coroutine {} was not over in time", handle.coroutine)
            }
            JoinError::Cancelled(handle) => {
                write!(f, "cannot wait for coroutine {}: who waits is cancelled", handle.coroutine)
            }
        }
    }
}

impl<T> std::error::Error for JoinError<T> {}

impl<T> JoinError<T> {
    /// What `std::thread` would give: what the coroutine panicked with, for `resume_unwind`. What is no panic is a
    /// `String` that says so.
    ///
    /// ```
    /// use coracle_coro::spawn;
    ///
    /// coracle_coro::run(|| {
    ///     let error = spawn(|| -> u32 { panic!("oh") }).join().unwrap_err();
    ///     assert_eq!(error.into_panic().downcast_ref(), Some(&"oh"));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        match self {
            JoinError::Panicked(payload) => payload,
            other => Box::new(other.to_string()),
        }
    }
}

/// `ECANCELED` and `TimedOut` if it is the caller who cannot wait any longer; the coroutine is detached then.
impl<T> From<JoinError<T>> for io::Error {
    fn from(error: JoinError<T>) -> io::Error {
        match error {
            JoinError::Panicked(_) | JoinError::Lost(_) => io::Error::other(error.to_string()),
            JoinError::TimedOut(_) => Failure::TimedOut.into(),
            JoinError::Cancelled(_) => Failure::Cancelled.into(),
        }
    }
}

/// Writes to the log that the coroutine that calls has panicked. Returns what it said.
#[cold]
pub(crate) fn report(payload: &(dyn Any + Send)) -> &str {
    let coroutine = crate::current().to_string();
    let said = message(payload);
    tracing::error!(coroutine, said, "a coroutine panicked");
    said
}

/// What a panic said.
pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}
