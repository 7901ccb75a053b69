//! From one to another: a queue with a limit, and a line of waiters at either end.
//!
//! ```text
//!   sending (each with its message)        buffer                receiving
//!   ┌───┐┌───┐┌───┐                  ┌───┬───┬───┬───┐           ┌───┐┌───┐
//!   │ 7 ││ 6 ││ 5 │ ───────────────► │ 4 │ 3 │ 2 │ 1 │ ────────► │   ││   │
//!   └───┘└───┘└───┘  when there is   └───┴───┴───┴───┘           └───┘└───┘
//!                    room            at most `limit`
//!       waits only while the buffer is full          waits only while it is empty
//! ```
//!
//! A message goes to who has waited longest for it, from who has waited longest with it; with a limit of 0 it
//! goes from hand to hand. Whoever serves a waiter wakes it first, under the lock: only if that counts has the
//! message changed hands. So a waiter whose time is up at that moment has its message, or another gets what was
//! meant for it.

use crate::primitive::Lock;
use crate::sync::channel_arms::{Receiving, Sending};
use crate::sync::channel_error::{
    RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError,
};
use crate::sync::line::{Line, Ticket};
use crate::sync::select::{self, Arm, IntoArm};
use std::collections::VecDeque;
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
/// There is no channel without a limit. Memory for the buffer is taken as it fills.
pub fn channel<T>(limit: usize) -> (Sender<T>, Receiver<T>) {
    let state = State {
        limit,
        buffer: VecDeque::new(),
        sending: Line::new(),
        receiving: Line::new(),
        served: Vec::new(),
        senders: 1,
        receivers: 1,
    };
    let shared = Arc::new(Lock::new(state));
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared })
}

pub(super) struct State<T> {
    limit: usize,
    buffer: VecDeque<T>,
    pub(super) sending: Line<Offer<T>>,
    /// Each with the name of its party.
    pub(super) receiving: Line<usize>,
    /// Messages of receivers that were woken, and have not come for them yet.
    pub(super) served: Vec<(Ticket, T)>,
    /// Handles, not those who wait.
    senders: usize,
    receivers: usize,
}

/// A message that waits to be sent.
pub(super) struct Offer<T> {
    pub(super) message: T,
    pub(super) party: usize,
}

impl<T> State<T> {
    /// Sends at once, or gives it back.
    fn send(&mut self, message: T) -> Result<(), TrySendError<T>> {
        if self.receivers == 0 {
            return Err(TrySendError::Disconnected(message));
        }
        if let Some((ticket, _)) = self.receiving.wake_first() {
            self.served.push((ticket, message));
        } else if self.buffer.len() < self.limit {
            self.buffer.push_back(message);
        } else {
            return Err(TrySendError::Full(message));
        }
        Ok(())
    }

    /// Whether sending again may be of use, for somebody who is not of `party`.
    pub(super) fn may_send(&self, party: usize) -> bool {
        self.receivers == 0
            || self.buffer.len() < self.limit
            || self.receiving.has(|other| *other != party)
    }

    /// Receives at once.
    fn receive(&mut self) -> Result<T, TryRecvError> {
        let first = self.buffer.pop_front();
        let offer = self.sending.wake_first().map(|(_, offer)| offer.message);
        match (first, offer) {
            (Some(message), offer) => {
                self.buffer.extend(offer); // there is room now
                Ok(message)
            }
            (None, Some(message)) => Ok(message),
            (None, None) if self.senders == 0 => Err(TryRecvError::Disconnected),
            (None, None) => Err(TryRecvError::Empty),
        }
    }

    /// Whether receiving again may be of use, for somebody who is not of `party`.
    pub(super) fn may_receive(&self, party: usize) -> bool {
        self.senders == 0
            || !self.buffer.is_empty()
            || self.sending.has(|offer| offer.party != party)
    }
}

/// The end of a [`channel`] that messages go into. A clone is the same end.
pub struct Sender<T> {
    pub(super) shared: Arc<Lock<State<T>>>,
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
    /// All receivers are gone, or the coroutine was cancelled while it waited. The message is in the error.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let message = match self.try_send(message) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Disconnected(message)) => {
                return Err(SendError::Disconnected(message));
            }
            Err(TrySendError::Full(message)) => message,
        };
        let mut slot = Some(message);
        let mut arm = self.sending(&mut slot);
        let chosen = select::choose(&mut [&mut arm]);
        let sent = chosen.map(|_| arm.output());
        match (sent, slot) {
            (Ok(Ok(())), _) => Ok(()),
            (Ok(Err(_)), Some(message)) => Err(SendError::Disconnected(message)),
            (Err(_), Some(message)) => Err(SendError::Cancelled(message)),
            (_, None) => unreachable!("what was not sent is in its slot"),
        }
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
        self.shared.lock().send(message)
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
        let (mut arm, mut late) = (self.sending(&mut slot), select::after(timeout));
        let sent = match select::choose(&mut [&mut arm, &mut late]) {
            Ok(0) => Ok(arm.output()),
            other => Err(other),
        };
        match (sent, slot) {
            (Ok(Ok(())), _) => Ok(()),
            (Ok(Err(_)), Some(message)) => Err(SendTimeoutError::Disconnected(message)),
            (Err(Ok(_)), Some(message)) => Err(SendTimeoutError::Timeout(message)),
            (Err(Err(_)), Some(message)) => Err(SendTimeoutError::Cancelled(message)),
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
        self.shared.lock().buffer.len()
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
/// cancelled).
pub struct Receiver<T> {
    pub(super) shared: Arc<Lock<State<T>>>,
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
    /// There is no message and all senders are gone, or the coroutine was cancelled while it waited.
    pub fn recv(&self) -> Result<T, RecvError> {
        match self.try_recv() {
            Ok(message) => return Ok(message),
            Err(TryRecvError::Disconnected) => return Err(RecvError::Disconnected),
            Err(TryRecvError::Empty) => {}
        }
        let mut arm = self.receiving();
        match select::choose(&mut [&mut arm]) {
            Ok(_) => arm.output(),
            Err(_) => Err(RecvError::Cancelled),
        }
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
        self.shared.lock().receive()
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
        let (mut arm, mut late) = (self.receiving(), select::after(timeout));
        match select::choose(&mut [&mut arm, &mut late]) {
            Ok(0) => arm.output().map_err(|_| RecvTimeoutError::Disconnected),
            Ok(_) => Err(RecvTimeoutError::Timeout),
            Err(_) => Err(RecvTimeoutError::Cancelled),
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

    /// The messages, one after the other, until all senders are gone (or the coroutine is cancelled). Waits for
    /// each.
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
        self.shared.lock().buffer.len()
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
        let state = self.shared.lock();
        (state.sending.len(), state.receiving.len())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.lock().senders += 1;
        Sender { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.lock().receivers += 1;
        Receiver { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.senders -= 1;
        if state.senders == 0 {
            state.receiving.call_all();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.receivers -= 1;
        if state.receivers == 0 {
            state.sending.call_all();
            let left = std::mem::take(&mut state.buffer);
            drop(state);
            // What a message does when it is dropped is not ours, and may come back here.
            drop(left);
        }
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
