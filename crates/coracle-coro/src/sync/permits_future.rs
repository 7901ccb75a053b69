//! Locks and permits, for futures. They wait in the same line as everybody else.
//!
//! A future that was given permits and is dropped before it is polled gives them back.

use crate::budget;
use crate::future::wait::FutureWait;
use crate::sync::line::Ticket;
use crate::sync::permits::Permits;
use crate::sync::{Mutex, MutexGuard, Permit, Semaphore};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Takes permits, when it is its turn and they are there.
pub(super) struct Acquiring<'a> {
    permits: &'a Permits,
    count: usize,
    waiting: Option<(FutureWait, Ticket)>,
}

impl<'a> Acquiring<'a> {
    pub(super) fn new(permits: &'a Permits, count: usize) -> Acquiring<'a> {
        Acquiring { permits, count, waiting: None }
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.waiting.is_none() {
            ready!(budget::poll(cx));
            if self.permits.try_acquire(self.count) {
                return Poll::Ready(());
            }
            let wait = FutureWait::begin();
            match self.permits.join(self.count, wait.waker()) {
                Some(ticket) => self.waiting = Some((wait, ticket)),
                None => return Poll::Ready(()),
            }
        }
        match &self.waiting {
            Some((wait, _)) if !wait.is_over(cx) => Poll::Pending,
            _ => {
                self.waiting = None; // who woke us has taken the permits for us
                Poll::Ready(())
            }
        }
    }
}

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        // Its waker is the last to go, when nothing is locked: what that does is not ours.
        if let Some((_wait, ticket)) = self.waiting.take()
            && !self.permits.leave(ticket)
        {
            self.permits.release(self.count);
        }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// As [`lock`](Mutex::lock), for futures: any, on any thread. It cannot fail.
    ///
    /// The guard may be held across an `.await`. While it waits it has its place in the line, also when nobody
    /// polls it: one that is kept and not polled holds up who is behind it.
    ///
    /// ```
    /// use coracle_coro::{block_on, sync::Mutex};
    ///
    /// let mutex = Mutex::new(1);
    /// block_on(async { *mutex.lock_async().await += 1 })?;
    /// assert_eq!(mutex.into_inner(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn lock_async(&self) -> LockFuture<'_, T> {
        LockFuture { mutex: self, acquiring: self.acquiring() }
    }
}

/// A future that locks a [`Mutex`]. See [`Mutex::lock_async`].
#[must_use = "futures do nothing unless they are awaited or polled"]
pub struct LockFuture<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    acquiring: Acquiring<'a>,
}

impl<'a, T: ?Sized> Future for LockFuture<'a, T> {
    type Output = MutexGuard<'a, T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<MutexGuard<'a, T>> {
        let mutex = self.mutex;
        self.acquiring.poll(cx).map(|()| MutexGuard::new(mutex))
    }
}

impl<T: ?Sized> fmt::Debug for LockFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockFuture")
    }
}

impl Semaphore {
    /// As [`acquire`](Semaphore::acquire), for futures: any, on any thread. It cannot fail.
    ///
    /// ```
    /// use coracle_coro::{block_on, sync::Semaphore};
    ///
    /// let semaphore = Semaphore::new(3);
    /// let two = block_on(semaphore.acquire_async(2))?;
    /// assert_eq!(semaphore.available_permits(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn acquire_async(&self, count: usize) -> AcquireFuture<'_> {
        AcquireFuture { semaphore: self, count, acquiring: self.acquiring(count) }
    }
}

/// A future that takes permits of a [`Semaphore`]. See [`Semaphore::acquire_async`].
#[must_use = "futures do nothing unless they are awaited or polled"]
pub struct AcquireFuture<'a> {
    semaphore: &'a Semaphore,
    count: usize,
    acquiring: Acquiring<'a>,
}

impl<'a> Future for AcquireFuture<'a> {
    type Output = Permit<'a>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit<'a>> {
        let (semaphore, count) = (self.semaphore, self.count);
        self.acquiring.poll(cx).map(|()| semaphore.permit(count))
    }
}

impl fmt::Debug for AcquireFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AcquireFuture")
    }
}
