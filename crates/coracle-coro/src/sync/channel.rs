//! From one to another: a queue with a limit. What the two ends share is in `channel_core.rs`.

use crate::sync::channel_arms::{Receiving, Sending};
use crate::sync::channel_core::Core;
use crate::sync::channel_error::{
    RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError,
};
use crate::sync::channel_wait;
use crate::sync::failure::Failure;
use crate::sync::select::{self, Arm, IntoArm};
use crate::waits_for::WaitsFor;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A channel that holds up to `limit` messages. With 0, a message is handed over when both sides are there.
///
/// Either end can be cloned, used from coroutines and threads alike, and given to others. Messages are received
/// in the order they were sent; each by one receiver. A sender waits while the channel is full, a receiver
/// while it is empty.
///
/// ```
/// use coracle_coro::sync::channel;
///
/// let (sender, receiver) = channel(2);
/// std::thread::spawn(move || {
///     for n in 1..=5 {
///         sender.send(n).unwrap(); // waits when the other side is two behind
///     }
/// });
/// assert_eq!(receiver.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
/// ```
///
/// When all senders are gone, receivers get what is left, and then
/// [`Disconnected`](RecvError::Disconnected). When all receivers are gone, what is left is dropped, and senders
/// get their messages back.
///
/// There is no channel without a limit. Memory for the buffer is taken as it fills; or, when threads share
/// it, all at once if it is not much.
pub fn channel<T>(limit: usize) -> (Sender<T>, Receiver<T>) {
    let core = Arc::new(Core::new(limit));
    (Sender { core: Arc::clone(&core) }, Receiver { core })
}

/// The end of a [`channel`] that messages go into. A clone is the same end.
pub struct Sender<T> {
    pub(super) core: Arc<Core<T>>,
}

impl<T> Sender<T> {
    /// Sends a message, and waits while the channel is full.
    ///
    /// ```
    /// # use coracle_coro::sync::channel;
    /// let (sender, receiver) = channel(1);
    /// sender.send(7)?;
    /// assert_eq!(receiver.recv()?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// All receivers are gone, or the coroutine was cancelled while it waited, or a [`timeout`](crate::timeout)
    /// around it was over. The message is in the error.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        channel_wait::send(&self.core, message)
    }

    /// Sends a message if that can be done at once. With a limit of 0, that is when a receiver waits.
    ///
    /// ```
    /// # use coracle_coro::sync::{TrySendError, channel};
    /// let (sender, _receiver) = channel(1);
    /// assert_eq!(sender.try_send(1), Ok(()));
    /// assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
    /// ```
    ///
    /// # Errors
    /// The channel is full, or all receivers are gone. The message is in the error.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.core.try_send(message)
    }

    /// As [`send`](Sender::send), but waits no longer than `timeout`.
    ///
    /// ```
    /// # use coracle_coro::sync::{SendTimeoutError, channel};
    /// # use std::time::Duration;
    /// let (sender, _receiver) = channel(0);
    /// let error = sender.send_timeout(1, Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error, SendTimeoutError::Timeout(1));
    /// ```
    ///
    /// # Errors
    /// As for `send`, or the time was up. The message is in the error.
    pub fn send_timeout(&self, message: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        let mut slot = Some(message);
        let (mut arm, mut late) = (self.sending(&mut slot), select::at_last(timeout));
        let sent = match select::choose(&mut [&mut arm, &mut late]) {
            Ok(0) => Ok(arm.output()),
            other => Err(other),
        };
        match (sent, slot) {
            (Ok(Ok(())), _) => Ok(()),
            (Ok(Err(_)), Some(message)) => Err(SendTimeoutError::Disconnected(message)),
            (Err(Ok(_)), Some(message)) => Err(SendTimeoutError::Timeout(message)),
            (Err(Err(Failure::Cancelled)), Some(message)) => {
                Err(SendTimeoutError::Cancelled(message))
            }
            (Err(Err(Failure::TimedOut)), Some(message)) => {
                Err(SendTimeoutError::Deadline(message))
            }
            (_, None) => unreachable!("what was not sent is in its slot"),
        }
    }

    /// An arm of [`select!`](crate::select!) that sends what is in `slot`.
    ///
    /// The slot is empty when it was sent, and as before when not. An arm with an empty slot is never chosen:
    /// so "send, if there is something to send" needs no second `select!`.
    ///
    /// ```
    /// use coracle_coro::{select, sync::channel};
    ///
    /// let (inlet, source) = channel(4);
    /// let (sink, outlet) = channel(4);
    /// inlet.send(1)?;
    /// inlet.send(2)?;
    /// drop(inlet);
    ///
    /// let mut held = None;
    /// while held.is_some() || !source.is_empty() {
    ///     if held.is_none() {
    ///         held = Some(source.recv()? * 10);
    ///     }
    ///     select! {
    ///         sent = sink.sending(&mut held) => sent?,
    ///     }
    /// }
    /// drop(sink);
    /// assert_eq!(outlet.iter().collect::<Vec<_>>(), [10, 20]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sending<'a>(&'a self, slot: &'a mut Option<T>) -> Sending<'a, T> {
        Sending::new(self, slot)
    }

    /// How many messages are in the buffer, at one moment. Any thread.
    ///
    /// ```
    /// # use coracle_coro::sync::channel;
    /// let (sender, _receiver) = channel(3);
    /// sender.send('a')?;
    /// assert_eq!(sender.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Whether the buffer is empty, at one moment. Any thread.
    ///
    /// ```
    /// # use coracle_coro::sync::channel;
    /// let (sender, _receiver) = channel::<u32>(3);
    /// assert!(sender.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The end of a [`channel`] that messages come out of. A clone is the same end: each message goes to one of
/// them.
///
/// `for message in &receiver` waits for each, and ends when all senders are gone (or the coroutine is
/// cancelled, or a deadline around it has passed).
pub struct Receiver<T> {
    pub(super) core: Arc<Core<T>>,
}

impl<T> Receiver<T> {
    /// Receives a message, and waits while there is none.
    ///
    /// ```
    /// # use coracle_coro::sync::{RecvError, channel};
    /// let (sender, receiver) = channel(1);
    /// sender.send(7)?;
    /// drop(sender);
    /// assert_eq!(receiver.recv(), Ok(7)); // what was sent before is not lost
    /// assert_eq!(receiver.recv(), Err(RecvError::Disconnected));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no message and all senders are gone, or the coroutine was cancelled while it waited, or a
    /// [`timeout`](crate::timeout) around it was over.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.recv_for(WaitsFor::Message)
    }

    /// The same for who uses it for something else.
    #[inline]
    pub(crate) fn recv_for(&self, what: WaitsFor) -> Result<T, RecvError> {
        channel_wait::receive(&self.core, what)
    }

    /// Receives a message if that can be done at once.
    ///
    /// ```
    /// # use coracle_coro::sync::{TryRecvError, channel};
    /// let (sender, receiver) = channel::<u32>(1);
    /// assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    /// drop(sender);
    /// assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    /// ```
    ///
    /// # Errors
    /// There is no message, or there is none and all senders are gone.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.core.try_receive()
    }

    /// As [`recv`](Receiver::recv), but waits no longer than `timeout`.
    ///
    /// ```
    /// # use coracle_coro::sync::{RecvTimeoutError, channel};
    /// # use std::time::Duration;
    /// let (_sender, receiver) = channel::<u32>(1);
    /// let result = receiver.recv_timeout(Duration::from_millis(1));
    /// assert_eq!(result, Err(RecvTimeoutError::Timeout));
    /// ```
    ///
    /// # Errors
    /// As for `recv`, or the time was up.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        let (mut arm, mut late) = (self.receiving(), select::at_last(timeout));
        match select::choose(&mut [&mut arm, &mut late]) {
            Ok(0) => arm.output().map_err(|_| RecvTimeoutError::Disconnected),
            Ok(_) => Err(RecvTimeoutError::Timeout),
            Err(Failure::Cancelled) => Err(RecvTimeoutError::Cancelled),
            Err(Failure::TimedOut) => Err(RecvTimeoutError::Deadline),
        }
    }

    /// An arm of [`Select`](crate::sync::Select) that receives a message. In [`select!`](crate::select!),
    /// `&receiver` is the same.
    ///
    /// ```
    /// # use coracle_coro::{select, sync::channel};
    /// let (sender, receiver) = channel(1);
    /// sender.send(7)?;
    /// let seven = select! {
    ///     message = receiver.receiving() => message?,
    /// };
    /// assert_eq!(seven, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receiving(&self) -> Receiving<'_, T> {
        Receiving::new(self)
    }

    /// The messages, one after the other, until all senders are gone (or the coroutine is cancelled, or a deadline
    /// around it has passed). Waits for each.
    ///
    /// ```
    /// # use coracle_coro::sync::channel;
    /// let (sender, receiver) = channel(2);
    /// sender.send(1)?;
    /// sender.send(2)?;
    /// drop(sender);
    /// assert_eq!(receiver.iter().sum::<u32>(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// The messages that are there. Waits for none.
    ///
    /// ```
    /// # use coracle_coro::sync::channel;
    /// let (sender, receiver) = channel(2);
    /// sender.send(1)?;
    /// assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }

    /// How many messages are in the buffer, at one moment. Any thread.
    ///
    /// ```
    /// # use coracle_coro::sync::channel;
    /// let (sender, receiver) = channel(3);
    /// sender.send('a')?;
    /// assert_eq!(receiver.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Whether the buffer is empty, at one moment. Any thread.
    ///
    /// ```
    /// # use coracle_coro::sync::channel;
    /// let (_sender, receiver) = channel::<u32>(3);
    /// assert!(receiver.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many wait to send, and to receive.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> (usize, usize) {
        self.core.waiting()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.core.add_sender();
        Sender { core: Arc::clone(&self.core) }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.core.add_receiver();
        Receiver { core: Arc::clone(&self.core) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.core.remove_sender();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.core.remove_receiver();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({} messages)", self.len())
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({} messages)", self.len())
    }
}

/// The messages of a channel. See [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T> {
    receiver: &'a Receiver<T>,
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

/// The messages of a channel that are there. See [`Receiver::try_iter`].
#[derive(Debug)]
pub struct TryIter<'a, T> {
    receiver: &'a Receiver<T>,
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

/// The messages of a channel, and its last receiver. See [`Receiver::iter`].
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}

impl<'a, T> IntoArm for &'a Receiver<T> {
    type Arm = Receiving<'a, T>;

    fn into_arm(self) -> Receiving<'a, T> {
        self.receiving()
    }
}
