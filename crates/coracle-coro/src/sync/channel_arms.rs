//! The two ends of a channel as arms of a select.

use crate::sync::channel::{Receiver, Sender};
use crate::sync::channel_core::Offer;
use crate::sync::channel_error::{RecvError, SendError, TryRecvError, TrySendError};
use crate::sync::failure::Failure;
use crate::sync::line::Ticket;
use crate::sync::select::{Arm, Party, Wait};
use crate::waits_for::WaitsFor;
use std::fmt;

/// An arm that receives a message. See [`Receiver::receiving`].
#[must_use = "an arm does nothing by itself"]
pub struct Receiving<'a, T> {
    receiver: &'a Receiver<T>,
    what: WaitsFor,
    /// Its place in the line.
    ticket: Option<Ticket>,
    /// What has come of it, if it is chosen.
    result: Option<Result<T, RecvError>>,
}

impl<'a, T> Receiving<'a, T> {
    pub(super) fn new(receiver: &'a Receiver<T>) -> Receiving<'a, T> {
        Receiving { receiver, what: WaitsFor::Message, ticket: None, result: None }
    }

    /// Says what a message means, to who [looks](crate::seeing).
    pub(crate) fn waiting_for(mut self, what: WaitsFor) -> Receiving<'a, T> {
        self.what = what;
        self
    }
}

impl<T> Wait for Receiving<'_, T> {
    fn attempt(&mut self) -> bool {
        if self.is_chosen() {
            return true; // by an earlier select, whose output nobody has asked for
        }
        self.result = match self.receiver.try_recv() {
            Ok(message) => Some(Ok(message)),
            Err(TryRecvError::Disconnected) => Some(Err(RecvError::Disconnected)),
            Err(TryRecvError::Empty) => None,
        };
        self.is_chosen()
    }

    fn join(&mut self, party: &Party) -> bool {
        self.ticket = self.receiver.core.join_receivers(party.waker.clone(), party.name);
        self.ticket.is_some()
    }

    fn leave(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        if let Some(message) = self.receiver.core.leave_receivers(ticket, None) {
            self.result = Some(Ok(message));
        }
    }

    fn waits_for(&self) -> WaitsFor {
        self.what
    }

    fn is_chosen(&self) -> bool {
        self.result.is_some()
    }

    fn end(&mut self, failure: Failure) {
        self.result = Some(Err(failure.into()));
    }
}

impl<T> Arm for Receiving<'_, T> {
    type Output = Result<T, RecvError>;

    fn output(&mut self) -> Result<T, RecvError> {
        self.result.take().expect("this arm was not chosen")
    }
}

impl<T> fmt::Debug for Receiving<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_chosen() { "Receiving(chosen)" } else { "Receiving" })
    }
}

/// An arm that sends a message. See [`Sender::sending`].
#[must_use = "an arm does nothing by itself"]
pub struct Sending<'a, T> {
    sender: &'a Sender<T>,
    /// Where the message is, but for when it waits in the line.
    slot: &'a mut Option<T>,
    ticket: Option<Ticket>,
    result: Option<Result<(), SendError<()>>>,
}

impl<'a, T> Sending<'a, T> {
    pub(super) fn new(sender: &'a Sender<T>, slot: &'a mut Option<T>) -> Sending<'a, T> {
        Sending { sender, slot, ticket: None, result: None }
    }
}

impl<T> Wait for Sending<'_, T> {
    fn attempt(&mut self) -> bool {
        if self.is_chosen() {
            return true;
        }
        let Some(message) = self.slot.take() else { return false };
        self.result = match self.sender.try_send(message) {
            Ok(()) => Some(Ok(())),
            Err(TrySendError::Disconnected(message)) => {
                *self.slot = Some(message);
                Some(Err(SendError::Disconnected(())))
            }
            Err(TrySendError::Full(message)) => {
                *self.slot = Some(message);
                None
            }
        };
        self.is_chosen()
    }

    fn join(&mut self, party: &Party) -> bool {
        let Some(message) = self.slot.take() else { return true };
        let offer = Offer { message, party: party.name };
        match self.sender.core.join_senders(party.waker.clone(), offer) {
            Ok(ticket) => self.ticket = Some(ticket),
            Err(offer) => *self.slot = Some(offer.message),
        }
        self.ticket.is_some()
    }

    fn leave(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        match self.sender.core.leave_senders(ticket, None) {
            Some(message) => *self.slot = Some(message),
            None => self.result = Some(Ok(())),
        }
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Room
    }

    fn is_chosen(&self) -> bool {
        self.result.is_some()
    }

    fn end(&mut self, failure: Failure) {
        self.result = Some(Err(SendError::of(failure, ())));
    }
}

impl<T> Arm for Sending<'_, T> {
    /// An error is about the channel; the message is in its slot.
    type Output = Result<(), SendError<()>>;

    fn output(&mut self) -> Result<(), SendError<()>> {
        self.result.take().expect("this arm was not chosen")
    }
}

impl<T> fmt::Debug for Sending<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_chosen() { "Sending(chosen)" } else { "Sending" })
    }
}
