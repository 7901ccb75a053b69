//! Why a message was not sent, or not received.
//!
//! As in `std::sync::mpsc`, each call has an error that says no more than what can happen to it; and one thing
//! is new: a coroutine that waits can be cancelled, or run into a deadline around it. All of them become an
//! `io::Error` by `?`.

use crate::sync::failure::{Failure, late};
use rustix::io::Errno;
use std::error::Error;
use std::fmt;
use std::io;

const DISCONNECTED_RECEIVERS: &str = "cannot send: all receivers are gone";
const DISCONNECTED_SENDERS: &str = "cannot receive: all senders are gone";
const SEND_CANCELLED: &str = "cannot send: the coroutine was cancelled";
const RECEIVE_CANCELLED: &str = "cannot receive: the coroutine was cancelled";
const SEND_DEADLINE: &str = "cannot send: a deadline around it has passed";
const RECEIVE_DEADLINE: &str = "cannot receive: a deadline around it has passed";

/// Why [`recv`](crate::sync::Receiver::recv) has no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvError {
    /// There is none left, and all senders are gone.
    Disconnected,
    /// The coroutine was cancelled.
    Cancelled,
    /// A [`timeout`](crate::timeout) or [`deadline`](crate::deadline()) around it is over.
    Deadline,
}

/// Why [`try_recv`](crate::sync::Receiver::try_recv) has no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TryRecvError {
    /// There is none now.
    Empty,
    /// There is none left, and all senders are gone.
    Disconnected,
}

/// Why [`recv_timeout`](crate::sync::Receiver::recv_timeout) has no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvTimeoutError {
    /// None came in time.
    Timeout,
    /// There is none left, and all senders are gone.
    Disconnected,
    /// The coroutine was cancelled.
    Cancelled,
    /// A [`timeout`](crate::timeout) or [`deadline`](crate::deadline()) around it is over.
    Deadline,
}

/// Why [`send`](crate::sync::Sender::send) has not sent the message, which is inside.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendError<T> {
    /// All receivers are gone.
    Disconnected(T),
    /// The coroutine was cancelled.
    Cancelled(T),
    /// A [`timeout`](crate::timeout) or [`deadline`](crate::deadline()) around it is over.
    Deadline(T),
}

/// Why [`try_send`](crate::sync::Sender::try_send) has not sent the message, which is inside.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// There is no room, or with a limit of 0, no receiver waits.
    Full(T),
    /// All receivers are gone.
    Disconnected(T),
}

/// Why [`send_timeout`](crate::sync::Sender::send_timeout) has not sent the message, which is inside.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendTimeoutError<T> {
    /// There was no room in time.
    Timeout(T),
    /// All receivers are gone.
    Disconnected(T),
    /// The coroutine was cancelled.
    Cancelled(T),
    /// A [`timeout`](crate::timeout) or [`deadline`](crate::deadline()) around it is over.
    Deadline(T),
}

impl<T> SendError<T> {
    /// The message.
    ///
    /// ```
    /// # use coracle_coro::sync::channel;
    /// let (sender, receiver) = channel(1);
    /// drop(receiver);
    /// assert_eq!(sender.send(7).unwrap_err().into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            SendError::Disconnected(message)
            | SendError::Cancelled(message)
            | SendError::Deadline(message) => message,
        }
    }

    pub(crate) fn of(failure: Failure, message: T) -> SendError<T> {
        match failure {
            Failure::Cancelled => SendError::Cancelled(message),
            Failure::TimedOut => SendError::Deadline(message),
        }
    }
}

impl<T> TrySendError<T> {
    /// The message.
    ///
    /// ```
    /// # use coracle_coro::sync::channel;
    /// let (sender, _receiver) = channel(0);
    /// assert_eq!(sender.try_send(7).unwrap_err().into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            TrySendError::Full(message) | TrySendError::Disconnected(message) => message,
        }
    }
}

impl<T> SendTimeoutError<T> {
    /// The message.
    ///
    /// ```
    /// # use coracle_coro::sync::channel;
    /// # use std::time::Duration;
    /// let (sender, _receiver) = channel(0);
    /// assert_eq!(sender.send_timeout(7, Duration::ZERO).unwrap_err().into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            SendTimeoutError::Timeout(message)
            | SendTimeoutError::Disconnected(message)
            | SendTimeoutError::Cancelled(message)
            | SendTimeoutError::Deadline(message) => message,
        }
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecvError::Disconnected => DISCONNECTED_SENDERS,
            RecvError::Cancelled => RECEIVE_CANCELLED,
            RecvError::Deadline => RECEIVE_DEADLINE,
        })
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryRecvError::Empty => "cannot receive: the channel is empty",
            TryRecvError::Disconnected => DISCONNECTED_SENDERS,
        })
    }
}

impl fmt::Display for RecvTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecvTimeoutError::Timeout => "cannot receive: no message came in time",
            RecvTimeoutError::Disconnected => DISCONNECTED_SENDERS,
            RecvTimeoutError::Cancelled => RECEIVE_CANCELLED,
            RecvTimeoutError::Deadline => RECEIVE_DEADLINE,
        })
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Disconnected(_) => DISCONNECTED_RECEIVERS,
            SendError::Cancelled(_) => SEND_CANCELLED,
            SendError::Deadline(_) => SEND_DEADLINE,
        })
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "cannot send: the channel is full",
            TrySendError::Disconnected(_) => DISCONNECTED_RECEIVERS,
        })
    }
}

impl<T> fmt::Display for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendTimeoutError::Timeout(_) => "cannot send: there was no room in time",
            SendTimeoutError::Disconnected(_) => DISCONNECTED_RECEIVERS,
            SendTimeoutError::Cancelled(_) => SEND_CANCELLED,
            SendTimeoutError::Deadline(_) => SEND_DEADLINE,
        })
    }
}

/// The messages need not be `Debug` for that.
macro_rules! debug_as_name {
    ($error:ident { $($variant:ident),+ }) => {
        impl<T> fmt::Debug for $error<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $($error::$variant(_) => concat!(stringify!($variant), "(..)"),)+
                })
            }
        }
    };
}

debug_as_name!(SendError { Disconnected, Cancelled, Deadline });
debug_as_name!(TrySendError { Full, Disconnected });
debug_as_name!(SendTimeoutError { Timeout, Disconnected, Cancelled, Deadline });

impl Error for RecvError {}
impl Error for TryRecvError {}
impl Error for RecvTimeoutError {}
impl<T> Error for SendError<T> {}
impl<T> Error for TrySendError<T> {}
impl<T> Error for SendTimeoutError<T> {}

impl From<Failure> for RecvError {
    fn from(failure: Failure) -> RecvError {
        match failure {
            Failure::Cancelled => RecvError::Cancelled,
            Failure::TimedOut => RecvError::Deadline,
        }
    }
}

/// The end of a channel is the end of a stream.
fn disconnected_senders() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, DISCONNECTED_SENDERS)
}

fn disconnected_receivers() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, DISCONNECTED_RECEIVERS)
}

impl From<RecvError> for io::Error {
    fn from(error: RecvError) -> io::Error {
        match error {
            RecvError::Disconnected => disconnected_senders(),
            RecvError::Cancelled => Errno::CANCELED.into(),
            RecvError::Deadline => late(),
        }
    }
}

impl From<TryRecvError> for io::Error {
    fn from(error: TryRecvError) -> io::Error {
        match error {
            TryRecvError::Empty => io::ErrorKind::WouldBlock.into(),
            TryRecvError::Disconnected => disconnected_senders(),
        }
    }
}

impl From<RecvTimeoutError> for io::Error {
    fn from(error: RecvTimeoutError) -> io::Error {
        match error {
            RecvTimeoutError::Timeout | RecvTimeoutError::Deadline => late(),
            RecvTimeoutError::Disconnected => disconnected_senders(),
            RecvTimeoutError::Cancelled => Errno::CANCELED.into(),
        }
    }
}

impl<T> From<SendError<T>> for io::Error {
    fn from(error: SendError<T>) -> io::Error {
        match error {
            SendError::Disconnected(_) => disconnected_receivers(),
            SendError::Cancelled(_) => Errno::CANCELED.into(),
            SendError::Deadline(_) => late(),
        }
    }
}

impl<T> From<TrySendError<T>> for io::Error {
    fn from(error: TrySendError<T>) -> io::Error {
        match error {
            TrySendError::Full(_) => io::ErrorKind::WouldBlock.into(),
            TrySendError::Disconnected(_) => disconnected_receivers(),
        }
    }
}

impl<T> From<SendTimeoutError<T>> for io::Error {
    fn from(error: SendTimeoutError<T>) -> io::Error {
        match error {
            SendTimeoutError::Timeout(_) | SendTimeoutError::Deadline(_) => late(),
            SendTimeoutError::Disconnected(_) => disconnected_receivers(),
            SendTimeoutError::Cancelled(_) => Errno::CANCELED.into(),
        }
    }
}
