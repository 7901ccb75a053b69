//! Sends that nobody tells when to try again: to a Unix datagram socket by its name, while its queue is full.
//!
//! The sender polls writable, for it has room itself, and sendmsg(2) says `EAGAIN`, for the receiver has none.
//! Only a *connected* sender is woken when that changes. So these are tried again after a pause: the one place
//! where the seam has a time of its own, and only while such a send is in flight.

use crate::address::Address;
use crate::operation::Operation;
use std::time::{Duration, Instant};

/// How long to leave a receiver alone that had no room.
const PAUSE: Duration = Duration::from_millis(2);

/// What is to be tried again, all at the same time.
pub(crate) struct Retries<T> {
    waiting: Vec<T>,
    due: Option<Instant>,
}

impl<T> Retries<T> {
    pub(crate) fn new() -> Retries<T> {
        Retries { waiting: Vec::new(), due: None }
    }

    pub(crate) fn add(&mut self, item: T) {
        self.waiting.push(item);
        self.due.get_or_insert_with(|| Instant::now() + PAUSE);
    }

    /// How long until something is to be tried.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// The time-out of a wait that ends when something is to be tried.
    #[inline]
    pub(crate) fn shorten(&self, timeout: Option<Duration>) -> Option<Duration> {
        if self.due.is_none() { timeout } else { self.shorten_to_due(timeout) }
    }

    #[cold]
    fn shorten_to_due(&self, timeout: Option<Duration>) -> Option<Duration> {
        match (self.timeout(), timeout) {
            (Some(own), Some(timeout)) => Some(own.min(timeout)),
            (own, timeout) => own.or(timeout),
        }
    }

    /// What is to be tried now.
    #[inline]
    pub(crate) fn take_due(&mut self) -> Vec<T> {
        if self.due.is_none() { Vec::new() } else { self.take_if_due() }
    }

    #[cold]
    fn take_if_due(&mut self) -> Vec<T> {
        match self.due {
            Some(due) if due <= Instant::now() => {
                self.due = None;
                std::mem::take(&mut self.waiting)
            }
            _ => Vec::new(),
        }
    }
}

/// Whether `operation`, once it has found no room, has to be tried again unasked.
pub(crate) fn is_unannounced(operation: &Operation) -> bool {
    matches!(operation, Operation::SendMessage { message, .. }
        if matches!(message.to, Some(Address::Unix(_))))
}
