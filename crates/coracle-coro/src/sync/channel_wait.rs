//! Waiting at one end of a channel, and for nothing else.
//!
//! ```text
//!   try ──┬──► done                                  in one step
//!         └──► look for a moment ──► join the line ──► wait ──► leave the line
//!              if the other side is of another thread, and that has been of use lately
//! ```
//!
//! Where a message goes from hand to hand, one looks when one is in the line: there is nothing to see before.
//!
//! To be woken from a real wait, a thread costs its kernel some microseconds. Two threads that take turns
//! with each other are much quicker if who waits looks a little longer.

use crate::budget;
use crate::sync::channel_core::{Core, Queued};
use crate::sync::channel_error::{RecvError, SendError, TryRecvError, TrySendError};
use crate::sync::failure::Failure;
use crate::sync::line::Ticket;
use crate::waiter::{self, Waiter, Waker, Woken};
use crate::waits_for::WaitsFor;

/// Sends, and waits while there is no room.
#[inline]
pub(super) fn send<T>(core: &Core<T>, mut message: T) -> Result<(), SendError<T>> {
    if let Err(failure) = budget::begin() {
        return Err(SendError::of(failure, message));
    }
    loop {
        let mut waiter = None;
        let queued = match core.send_or_join(message, true, || begin(&mut waiter)) {
            Ok(None) => return Ok(()),
            Ok(Some(queued)) => queued,
            Err(TrySendError::Disconnected(message) | TrySendError::Full(message)) => {
                return Err(SendError::Disconnected(message));
            }
        };
        let place = Place {
            core,
            ticket: queued.ticket,
            leave: |core, ticket| core.leave_senders(ticket, None),
        };
        let (woken, lucky) = wait(waiter, &queued, WaitsFor::Room);
        std::mem::forget(place);
        message = match core.leave_senders(queued.ticket, lucky) {
            None => return Ok(()),
            Some(message) => match failure(woken) {
                Some(failure) => return Err(SendError::of(failure, message)),
                None => message, // the receivers are gone
            },
        };
    }
}

/// Receives, and waits while there is nothing.
#[inline]
pub(super) fn receive<T>(core: &Core<T>, what: WaitsFor) -> Result<T, RecvError> {
    budget::begin()?;
    loop {
        let mut waiter = None;
        let queued = match core.receive_or_join(true, || begin(&mut waiter)) {
            Ok(Ok(message)) => return Ok(message),
            Ok(Err(queued)) => queued,
            Err(TryRecvError::Disconnected | TryRecvError::Empty) => {
                return Err(RecvError::Disconnected);
            }
        };
        let place = Place {
            core,
            ticket: queued.ticket,
            leave: |core, ticket| core.leave_receivers(ticket, None),
        };
        let (woken, lucky) = wait(waiter, &queued, what);
        std::mem::forget(place);
        if let Some(message) = core.leave_receivers(queued.ticket, lucky) {
            return Ok(message);
        }
        if let Some(failure) = failure(woken) {
            return Err(failure.into());
        }
        // The senders are gone.
    }
}

/// Who waits, and a name for it that nobody else has meanwhile.
#[inline]
fn begin(place: &mut Option<Waiter>) -> (Waker, usize) {
    let name = std::ptr::from_ref(place).addr();
    let waiter = place.insert(Waiter::begin());
    (waiter.waker(), name)
}

/// How the wait has ended; and if it was looked for a moment, whether that was of use.
#[inline(always)]
fn wait(waiter: Option<Waiter>, queued: &Queued, what: WaitsFor) -> (Woken, Option<bool>) {
    let waiter = waiter.expect("who has joined the line has begun to wait");
    let lucky = queued.hopeful.then(|| waiter.is_woken_in_a_moment());
    (waiter.waiting_for(what).wait(None), lucky)
}

/// Why a wait has ended without success.
fn failure(woken: Woken) -> Option<Failure> {
    match woken {
        Woken::Woken => None,
        Woken::TimedOut => Some(Failure::TimedOut),
        Woken::Cancelled => {
            waiter::back_off();
            Some(Failure::Cancelled)
        }
    }
}

/// A place in a line, which is left after a panic.
struct Place<'a, T> {
    core: &'a Core<T>,
    ticket: Ticket,
    leave: fn(&Core<T>, Ticket) -> Option<T>,
}

impl<T> Drop for Place<'_, T> {
    fn drop(&mut self) {
        drop((self.leave)(self.core, self.ticket));
    }
}
