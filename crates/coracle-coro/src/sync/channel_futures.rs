//! The two ends of a channel, for futures. They wait in the same lines as everybody else.
//!
//! A future may be dropped at any time. If it was handed a message by then, the next who waits gets it; if its
//! message was taken, it is sent.

use crate::budget;
use crate::future::wait::FutureWait;
use crate::sync::channel::{Receiver, Sender};
use crate::sync::channel_error::{RecvError, SendError, TryRecvError, TrySendError};
use crate::sync::line::Ticket;
use crate::waiter::Waker;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

impl<T> Receiver<T> {
    /// As [`recv`](Receiver::recv), for futures: any, on any thread.
    ///
    /// Dropping it loses nothing. While it waits it has its place in the line, also when nobody polls it: one that
    /// is kept and not polled holds up who is behind it. If the last sender is gone meanwhile, others may be told
    /// so before a message comes back that was handed to a future and not fetched.
    ///
    /// ```
    /// use coracle_coro::{block_on, sync::channel};
    ///
    /// let (sender, receiver) = channel(1);
    /// std::thread::spawn(move || sender.send(7));
    /// assert_eq!(block_on(receiver.recv_async())?, Ok(7)); // in a plain thread, too
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Disconnected`](RecvError::Disconnected): there is no message and all senders are gone.
    pub fn recv_async(&self) -> RecvFuture<'_, T> {
        RecvFuture { receiver: self, waiting: None }
    }
}

/// A future that receives a message. See [`Receiver::recv_async`].
#[must_use = "futures do nothing unless they are awaited or polled"]
pub struct RecvFuture<'a, T> {
    receiver: &'a Receiver<T>,
    /// While it is in the line.
    waiting: Option<(FutureWait, Ticket)>,
}

/// Nothing in it is pinned: a message is moved in and out.
impl<T> Unpin for RecvFuture<'_, T> {}

impl<T> Future for RecvFuture<'_, T> {
    type Output = Result<T, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, RecvError>> {
        if self.waiting.is_none() {
            ready!(budget::poll(cx));
        }
        loop {
            if let Some((wait, _)) = &self.waiting {
                if !wait.is_over(cx) {
                    return Poll::Pending;
                }
                if let Some(message) = self.leave() {
                    return Poll::Ready(Ok(message));
                } // the senders are gone
            }
            let mut place = None;
            match self.receiver.core.receive_or_join(false, || begin(&mut place)) {
                Ok(Ok(message)) => return Poll::Ready(Ok(message)),
                Ok(Err(queued)) => self.waiting = place.map(|wait| (wait, queued.ticket)),
                Err(TryRecvError::Disconnected | TryRecvError::Empty) => {
                    return Poll::Ready(Err(RecvError::Disconnected));
                }
            }
        }
    }
}

impl<T> RecvFuture<'_, T> {
    /// Leaves the line, with what it was handed there.
    fn leave(&mut self) -> Option<T> {
        // Its waker is the last to go, when nothing is locked: what that does is not ours.
        let (_wait, ticket) = self.waiting.take()?;
        self.receiver.core.leave_receivers(ticket, None)
    }
}

impl<T> Drop for RecvFuture<'_, T> {
    fn drop(&mut self) {
        if let Some(message) = self.leave() {
            self.receiver.core.give_back(message);
        }
    }
}

impl<T> fmt::Debug for RecvFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecvFuture")
    }
}

impl<T> Sender<T> {
    /// As [`send`](Sender::send), for futures: any, on any thread.
    ///
    /// Dropped before it is ready, it drops the message, unless that was taken.
    ///
    /// ```
    /// use coracle_coro::{block_on, sync::channel};
    ///
    /// let (sender, receiver) = channel(0);
    /// let receiving = std::thread::spawn(move || receiver.recv());
    /// block_on(sender.send_async(7))?.unwrap();
    /// assert_eq!(receiving.join().unwrap(), Ok(7));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Disconnected`](SendError::Disconnected): all receivers are gone. The message is in the error.
    pub fn send_async(&self, message: T) -> SendFuture<'_, T> {
        SendFuture { sender: self, message: Some(message), waiting: None }
    }
}

/// A future that sends a message. See [`Sender::send_async`].
#[must_use = "futures do nothing unless they are awaited or polled"]
pub struct SendFuture<'a, T> {
    sender: &'a Sender<T>,
    /// Unless it waits in the line, or was sent.
    message: Option<T>,
    waiting: Option<(FutureWait, Ticket)>,
}

/// Nothing in it is pinned: a message is moved in and out.
impl<T> Unpin for SendFuture<'_, T> {}

impl<T> Future for SendFuture<'_, T> {
    type Output = Result<(), SendError<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        if self.waiting.is_none() {
            ready!(budget::poll(cx));
        }
        loop {
            if let Some((wait, _)) = &self.waiting {
                if !wait.is_over(cx) {
                    return Poll::Pending;
                }
                self.message = self.leave();
                if self.message.is_none() {
                    return Poll::Ready(Ok(()));
                }
            }
            let message = self.message.take().expect("a future was polled after it was ready");
            let mut place = None;
            match self.sender.core.send_or_join(message, false, || begin(&mut place)) {
                Ok(None) => return Poll::Ready(Ok(())),
                Ok(Some(queued)) => self.waiting = place.map(|wait| (wait, queued.ticket)),
                Err(TrySendError::Disconnected(message) | TrySendError::Full(message)) => {
                    return Poll::Ready(Err(SendError::Disconnected(message)));
                }
            }
        }
    }
}

impl<T> SendFuture<'_, T> {
    /// Leaves the line, with the message if nobody has taken it.
    fn leave(&mut self) -> Option<T> {
        // Its waker is the last to go, when nothing is locked: what that does is not ours.
        let (_wait, ticket) = self.waiting.take()?;
        self.sender.core.leave_senders(ticket, None)
    }
}

impl<T> Drop for SendFuture<'_, T> {
    fn drop(&mut self) {
        let message = self.leave();
        drop(message); // what that does is not ours, and may come back here
    }
}

impl<T> fmt::Debug for SendFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendFuture")
    }
}

/// Who waits, and a name for it that nobody else has meanwhile.
fn begin(place: &mut Option<FutureWait>) -> (Waker, usize) {
    let wait = place.insert(FutureWait::begin());
    (wait.waker(), wait.name())
}
