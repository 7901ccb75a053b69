//! What the ends of a channel share: its messages, and a line of waiters at either end.
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
//! goes from hand to hand. Whoever serves a waiter ends its wait first, under the lock: only if that counts
//! has the message changed hands. So a waiter whose time is up at that moment has its message, or another
//! gets what was meant for it.
//!
//! # Past the lock
//! When the ends are used by different threads, the buffer is a ring that needs no lock (`ring.rs`).
//! Then the lock is for the lines only, and the flags say who has to take it:
//!
//! ```text
//!   send:    no sender waits? ──► push ──► does a receiver wait? ──► lock, and serve it
//!   receive: no receiver waits? ─► pop ──► does a sender wait? ────► lock, and take its message in
//!   to wait: look for a moment ──► lock ──► say so in the flags ──► try once more ──► join the line
//! ```
//!
//! Who passes by looks at the flags *after* it has moved an end of the ring, and who wants to wait looks into
//! the ring *after* it has set its flag. So one of the two sees the other.

use crate::primitive::{AtomicUsize, Lock};
use crate::sync::chance;
use crate::sync::channel_error::{TryRecvError, TrySendError};
use crate::sync::line::{Line, Ticket, Told};
use crate::sync::ring::Ring;
use crate::waiter::{self, Waker};
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize as Seen, Ordering};

/// The largest ring. It is made with all its room; a larger buffer grows as it fills, and stays under the lock.
const LIMIT_RING_BYTES: usize = 64 << 10;

/// Senders wait, or messages for which there was no room after all.
const SENDERS_WAIT: usize = 1;
/// Receivers wait.
const RECEIVERS_WAIT: usize = 2;
/// All receivers are gone.
const CLOSED: usize = 4;
/// There are messages that come before those in the ring.
const FRONT: usize = 8;
/// There is no ring.
const LOCKED: usize = 16;

pub(super) struct Core<T> {
    gate: Gate,
    sender_hope: Hope,
    receiver_hope: Hope,
    ring: OnceLock<Box<Ring<T>>>,
    state: Lock<State<T>>,
}

/// What is looked at by everybody and hardly ever changed, so it has a line of the processor's caches to itself.
#[repr(align(64))]
struct Gate {
    /// Changed under the lock only.
    flags: AtomicUsize,
    /// The threads that were last seen at the ends; 0 for none. Only speed depends on them.
    sender: Seen,
    receiver: Seen,
}

struct State<T> {
    limit: usize,
    /// What comes before the ring; without one, all there is.
    front: VecDeque<T>,
    /// What comes after it.
    back: VecDeque<T>,
    sending: Line<Offer<T>>,
    /// Each with the name of its party.
    receiving: Line<usize>,
    /// Messages of receivers that were woken, and have not come for them yet.
    served: Vec<(Ticket, T)>,
    /// Handles, not those who wait.
    senders: usize,
    receivers: usize,
}

/// A message that waits to be sent.
pub(super) struct Offer<T> {
    pub(super) message: T,
    pub(super) party: usize,
}

/// A place in a line, and whether it is worth while to look for a moment before one waits there.
pub(super) struct Queued {
    pub(super) ticket: Ticket,
    pub(super) hopeful: bool,
}

impl<T> Core<T> {
    pub(super) fn new(limit: usize) -> Core<T> {
        Core {
            gate: Gate {
                flags: AtomicUsize::new(LOCKED),
                sender: Seen::new(0),
                receiver: Seen::new(0),
            },
            sender_hope: Hope::default(),
            receiver_hope: Hope::default(),
            ring: OnceLock::new(),
            state: Lock::new(State {
                limit,
                front: VecDeque::new(),
                back: VecDeque::new(),
                sending: Line::new(),
                receiving: Line::new(),
                served: Vec::new(),
                senders: 1,
                receivers: 1,
            }),
        }
    }

    // --- At once ---------------------------------------------------------------------------------------

    /// Sends at once, or gives it back.
    #[inline]
    pub(super) fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.note(&self.gate.sender);
        match self.push_past_the_lock(message) {
            Ok(()) => Ok(()),
            Err(message) => self.under_lock(|state, told| self.send(state, told, message)),
        }
    }

    /// Receives at once.
    #[inline]
    pub(super) fn try_receive(&self) -> Result<T, TryRecvError> {
        self.note(&self.gate.receiver);
        match self.pop_past_the_lock() {
            Some(message) => Ok(message),
            None => self.under_lock(|state, told| self.receive(state, told)),
        }
    }

    /// Which thread is at an end.
    #[inline]
    fn note(&self, end: &Seen) {
        let this = chance::thread();
        if end.load(Ordering::Relaxed) != this {
            end.store(this, Ordering::Relaxed);
        }
    }

    #[inline]
    fn push_past_the_lock(&self, message: T) -> Result<(), T> {
        if self.gate.flags.load(Ordering::Acquire) & (LOCKED | SENDERS_WAIT | CLOSED) != 0 {
            return Err(message);
        }
        let Some(ring) = self.ring.get() else { return Err(message) };
        ring.push_now(message)?;
        if self.gate.flags.load(Ordering::SeqCst) & (RECEIVERS_WAIT | CLOSED) != 0 {
            self.look_after_a_push();
        }
        Ok(())
    }

    #[inline]
    fn pop_past_the_lock(&self) -> Option<T> {
        if self.gate.flags.load(Ordering::Acquire) & (LOCKED | RECEIVERS_WAIT | FRONT) != 0 {
            return None;
        }
        let message = self.ring.get()?.pop_now()?;
        if self.gate.flags.load(Ordering::SeqCst) & SENDERS_WAIT != 0 {
            self.under_lock(|state, told| self.take_in(state, told));
        }
        Some(message)
    }

    /// As [`push_past_the_lock`](Core::push_past_the_lock), but if there is no room, one that `looks` does so for
    /// a moment.
    #[inline]
    fn send_past_the_lock(&self, message: T, looks: bool) -> Result<(), T> {
        self.note(&self.gate.sender);
        let message = match self.push_past_the_lock(message) {
            Ok(()) => return Ok(()),
            Err(message) => message,
        };
        if looks && self.can_look(SENDERS_WAIT | CLOSED) && self.sender_hope.is_there() {
            self.send_in_a_moment(message)
        } else {
            Err(message)
        }
    }

    #[inline(never)]
    fn send_in_a_moment(&self, message: T) -> Result<(), T> {
        let mut kept = Some(message);
        let sent = waiter::in_a_moment(|| {
            if !self.ring.get()?.has_room_now() {
                return None;
            }
            kept = self.push_past_the_lock(kept.take()?).err();
            kept.is_none().then_some(())
        });
        self.sender_hope.note(sent.is_some());
        kept.map_or(Ok(()), Err)
    }

    /// As [`pop_past_the_lock`](Core::pop_past_the_lock), but if there is nothing, one that `looks` does so for a
    /// moment.
    #[inline]
    fn receive_past_the_lock(&self, looks: bool) -> Option<T> {
        self.note(&self.gate.receiver);
        let message = self.pop_past_the_lock();
        if looks
            && message.is_none()
            && self.can_look(RECEIVERS_WAIT | FRONT)
            && self.receiver_hope.is_there()
        {
            return self.receive_in_a_moment();
        }
        message
    }

    #[inline(never)]
    fn receive_in_a_moment(&self) -> Option<T> {
        let message = waiter::in_a_moment(|| self.pop_past_the_lock());
        self.receiver_hope.note(message.is_some());
        message
    }

    /// Whether the ring may change in a moment, because of another thread, and the lock would not be needed then:
    /// not if one of these flags is up.
    #[inline]
    fn can_look(&self, flags: usize) -> bool {
        self.gate.flags.load(Ordering::Relaxed) & (LOCKED | flags) == 0 && self.is_between_threads()
    }

    #[cold]
    fn look_after_a_push(&self) {
        let left = self.under_lock(|state, told| {
            self.hand_out(state, told);
            if state.receivers == 0 { self.take_all(state) } else { VecDeque::new() }
        });
        drop(left); // which nobody will receive
    }

    // --- Under the lock --------------------------------------------------------------------------------

    #[inline]
    fn under_lock<R>(&self, act: impl FnOnce(&mut State<T>, &mut Told) -> R) -> R {
        let mut told = Told::default();
        let mut state = self.state.lock();
        let result = act(&mut state, &mut told);
        if self.has_ring() {
            self.raise_flags(&state, 0);
        }
        drop(state);
        drop(told);
        result
    }

    #[inline]
    fn has_ring(&self) -> bool {
        self.ring.get().is_some()
    }

    /// Says in the flags how things are, or will be in a moment.
    fn raise_flags(&self, state: &State<T>, more: usize) {
        let flag = |is_raised: bool, flag: usize| if is_raised { flag } else { 0 };
        let flags = more
            | flag(!state.sending.is_empty() || !state.back.is_empty(), SENDERS_WAIT)
            | flag(!state.receiving.is_empty(), RECEIVERS_WAIT)
            | flag(state.receivers == 0, CLOSED)
            | flag(!state.front.is_empty(), FRONT)
            | flag(self.ring.get().is_none(), LOCKED);
        if self.gate.flags.load(Ordering::Relaxed) != flags {
            self.gate.flags.store(flags, Ordering::SeqCst);
        }
    }

    #[inline]
    fn send(
        &self,
        state: &mut State<T>,
        told: &mut Told,
        message: T,
    ) -> Result<(), TrySendError<T>> {
        if state.receivers == 0 {
            return Err(TrySendError::Disconnected(message));
        }
        self.make_ring(state);
        if self.has_ring() {
            return self.send_by_ring(state, told, message).map_err(TrySendError::Full);
        }
        if let Some((ticket, _, receiver)) = state.receiving.claim_first() {
            state.served.push((ticket, message));
            told.add(receiver);
            return Ok(());
        }
        self.push(state, message).map_err(TrySendError::Full)
    }

    /// Others may put messages into the ring, and take them out, meanwhile.
    #[inline(never)]
    fn send_by_ring(&self, state: &mut State<T>, told: &mut Told, message: T) -> Result<(), T> {
        self.hand_out(state, told);
        if self.is_empty_of(state)
            && let Some((ticket, _, receiver)) = state.receiving.claim_first()
        {
            state.served.push((ticket, message));
            told.add(receiver);
            return Ok(());
        }
        self.take_in(state, told);
        if state.sending.is_empty() { self.push(state, message) } else { Err(message) }
    }

    #[inline]
    fn receive(&self, state: &mut State<T>, told: &mut Told) -> Result<T, TryRecvError> {
        self.make_ring(state);
        if self.has_ring() {
            self.hand_out(state, told);
        }
        if let Some(message) = self.pop(state) {
            if !state.sending.is_empty() || !state.back.is_empty() {
                self.take_in(state, told);
            }
            return Ok(message);
        }
        if let Some((_, offer, sender)) = state.sending.claim_first() {
            told.add(sender);
            return Ok(offer.message);
        }
        Err(if state.senders == 0 { TryRecvError::Disconnected } else { TryRecvError::Empty })
    }

    /// If there should be a ring, sees to it that there is.
    #[inline]
    fn make_ring(&self, state: &mut State<T>) {
        if self.is_between_threads() && !self.has_ring() {
            self.make_ring_now(state);
        }
    }

    #[cold]
    fn make_ring_now(&self, state: &mut State<T>) {
        if !(1..=LIMIT_RING_BYTES / (size_of::<T>() + 8)).contains(&state.limit) {
            return;
        }
        let ring = Ring::new(state.limit);
        // What was given back may be more than there is room for, and stays before the ring.
        let extra = state.front.len().saturating_sub(state.limit);
        for message in state.front.drain(extra..) {
            assert!(ring.push(message).is_ok(), "there are at most so many");
        }
        self.ring.get_or_init(|| Box::new(ring));
    }

    #[inline]
    fn is_between_threads(&self) -> bool {
        let ends = [&self.gate.sender, &self.gate.receiver].map(|end| end.load(Ordering::Relaxed));
        ends[0] != ends[1] && !ends.contains(&0)
    }

    /// Gives messages to receivers that wait, as far as there are any: whoever has put one into the ring without
    /// seeing them comes here in a moment.
    fn hand_out(&self, state: &mut State<T>, told: &mut Told) {
        while state.receiving.has(|_| true)
            && let Some(message) = self.pop(state)
        {
            match state.receiving.claim_first() {
                Some((ticket, _, receiver)) => {
                    state.served.push((ticket, message));
                    told.add(receiver);
                }
                None => state.front.push_front(message), // they have given up at this moment
            }
        }
    }

    /// Takes in the messages of senders that wait, as far as there is room.
    fn take_in(&self, state: &mut State<T>, told: &mut Told) {
        while let Some(message) = state.back.pop_front() {
            if let Err(message) = self.push(state, message) {
                return state.back.push_front(message);
            }
        }
        while self.has_room(state)
            && let Some((_, offer, sender)) = state.sending.claim_first()
        {
            told.add(sender);
            // Somebody who has not seen that others wait may have been quicker.
            if let Err(message) = self.push(state, offer.message) {
                return state.back.push_back(message);
            }
        }
    }

    /// What is first in the buffer.
    #[inline]
    fn pop(&self, state: &mut State<T>) -> Option<T> {
        let first = state.front.pop_front().or_else(|| self.ring.get()?.pop());
        first.or_else(|| state.back.pop_front())
    }

    #[inline]
    fn push(&self, state: &mut State<T>, message: T) -> Result<(), T> {
        match self.ring.get() {
            Some(ring) => ring.push(message),
            None if state.front.len() < state.limit => {
                state.front.push_back(message);
                Ok(())
            }
            None => Err(message),
        }
    }

    fn has_room(&self, state: &State<T>) -> bool {
        match self.ring.get() {
            Some(ring) => state.back.is_empty() && !ring.is_full(),
            None => state.front.len() < state.limit,
        }
    }

    fn is_empty_of(&self, state: &State<T>) -> bool {
        state.front.is_empty()
            && state.back.is_empty()
            && self.ring.get().is_none_or(|ring| ring.is_empty())
    }

    fn take_all(&self, state: &mut State<T>) -> VecDeque<T> {
        let mut all = std::mem::take(&mut state.front);
        all.extend(std::iter::from_fn(|| self.ring.get()?.pop()));
        all.append(&mut state.back);
        all
    }

    // --- Waiting ---------------------------------------------------------------------------------------

    /// Sends at once, or joins the line with the message. Not futures, but all others may look for a moment first.
    pub(super) fn send_or_join(
        &self,
        message: T,
        looks: bool,
        party: impl FnOnce() -> (Waker, usize),
    ) -> Result<Option<Queued>, TrySendError<T>> {
        let Err(message) = self.send_past_the_lock(message, looks) else { return Ok(None) };
        // Where a message is when the wait is refused by a panic: it may have a sender of this channel in it,
        // whose destructor wants the lock.
        let mut kept = None;
        self.under_lock(|state, told| {
            let message = match self.send(state, told, message) {
                Err(TrySendError::Full(message)) => message,
                other => return other.map(|()| None),
            };
            let message = if self.has_ring() {
                self.raise_flags(state, SENDERS_WAIT);
                // Somebody may have taken a message meanwhile, without seeing the flag.
                match self.send_by_ring(state, told, message) {
                    Ok(()) => return Ok(None),
                    Err(message) => message,
                }
            } else {
                message
            };
            kept = Some(message);
            let (waker, party) = party();
            let message = kept.take().expect("it was put there");
            let ticket = state.sending.join(waker, Offer { message, party });
            let hopeful = self.is_hopeful(&self.sender_hope);
            Ok(Some(Queued { ticket, hopeful }))
        })
    }

    /// Receives at once, or joins the line. Not futures, but all others may look for a moment first.
    pub(super) fn receive_or_join(
        &self,
        looks: bool,
        party: impl FnOnce() -> (Waker, usize),
    ) -> Result<Result<T, Queued>, TryRecvError> {
        if let Some(message) = self.receive_past_the_lock(looks) {
            return Ok(Ok(message));
        }
        self.under_lock(|state, told| {
            match self.receive(state, told) {
                Err(TryRecvError::Empty) => {}
                other => return other.map(Ok),
            }
            if self.has_ring() {
                self.raise_flags(state, RECEIVERS_WAIT);
                match self.receive(state, told) {
                    Err(TryRecvError::Empty) => {}
                    other => return other.map(Ok),
                }
            }
            let (waker, party) = party();
            let ticket = state.receiving.join(waker, party);
            let hopeful = self.is_hopeful(&self.receiver_hope);
            Ok(Err(Queued { ticket, hopeful }))
        })
    }

    /// Whether one should look for a moment whether the wait is over: with a ring, one has looked before.
    fn is_hopeful(&self, hope: &Hope) -> bool {
        !self.has_ring() && self.is_between_threads() && hope.is_there()
    }

    /// Joins the line of senders, unless sending again may be of use, for somebody who is not of this party.
    pub(super) fn join_senders(&self, waker: Waker, offer: Offer<T>) -> Result<Ticket, Offer<T>> {
        self.note(&self.gate.sender);
        self.under_lock(|state, _| {
            self.raise_flags(state, SENDERS_WAIT);
            let may_send = state.receivers == 0
                || self.has_room(state)
                || state.receiving.has(|other| *other != offer.party);
            if may_send { Err(offer) } else { Ok(state.sending.join(waker, offer)) }
        })
    }

    /// Joins the line of receivers, unless receiving again may be of use, for somebody who is not of this party.
    pub(super) fn join_receivers(&self, waker: Waker, party: usize) -> Option<Ticket> {
        self.note(&self.gate.receiver);
        self.under_lock(|state, _| {
            self.raise_flags(state, RECEIVERS_WAIT);
            let may_receive = state.senders == 0
                || !self.is_empty_of(state)
                || state.sending.has(|offer| offer.party != party);
            if may_receive { None } else { Some(state.receiving.join(waker, party)) }
        })
    }

    /// Leaves the line; returns the message if it was not sent. `lucky` is whether it was after a moment.
    pub(super) fn leave_senders(&self, ticket: Ticket, lucky: Option<bool>) -> Option<T> {
        lucky.into_iter().for_each(|lucky| self.sender_hope.note(lucky));
        self.under_lock(|state, _| state.sending.leave(ticket).map(|offer| offer.message))
    }

    /// Leaves the line; returns the message if there was one.
    pub(super) fn leave_receivers(&self, ticket: Ticket, lucky: Option<bool>) -> Option<T> {
        lucky.into_iter().for_each(|lucky| self.receiver_hope.note(lucky));
        self.under_lock(|state, _| {
            if state.receiving.leave(ticket).is_some() {
                return None;
            }
            let served = state.served.iter().position(|(whose, _)| *whose == ticket);
            let served = served.expect("who was taken off the line was served");
            Some(state.served.swap_remove(served).1)
        })
    }

    /// A message that was handed to somebody who is gone: the next who waits has it, or who comes first.
    pub(super) fn give_back(&self, message: T) {
        self.under_lock(|state, told| {
            state.front.push_front(message);
            self.hand_out(state, told);
        });
    }

    // --- Ends ------------------------------------------------------------------------------------------

    pub(super) fn add_sender(&self) {
        self.state.lock().senders += 1;
    }

    pub(super) fn add_receiver(&self) {
        self.state.lock().receivers += 1;
    }

    pub(super) fn remove_sender(&self) {
        self.under_lock(|state, told| {
            state.senders -= 1;
            if state.senders == 0 {
                state.receiving.call_all(told);
            }
        });
    }

    pub(super) fn remove_receiver(&self) {
        let left = self.under_lock(|state, told| {
            state.receivers -= 1;
            if state.receivers > 0 {
                return VecDeque::new();
            }
            state.sending.call_all(told);
            self.raise_flags(state, 0);
            self.take_all(state)
        });
        // What a message does when it is dropped is not ours, and may come back here.
        drop(left);
    }

    pub(super) fn len(&self) -> usize {
        let state = self.state.lock();
        state.front.len() + self.ring.get().map_or(0, |ring| ring.len()) + state.back.len()
    }

    /// How many wait to send, and to receive.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.sending.len(), state.receiving.len())
    }
}

/// How long it is remembered that looking for a moment was of use.
const MEMORY: usize = 16;

/// If it was not, it is tried again after so many waits.
const DESPAIR: usize = 8;

/// Whether it is worth while for those at one end to look for a moment, by what came of it lately. Only speed
/// depends on it. It has a line of the processor's caches to itself, for it is of no interest to the other end.
#[repr(align(64))]
#[derive(Default)]
struct Hope {
    left: Seen,
    waits: Seen,
}

impl Hope {
    #[inline]
    fn is_there(&self) -> bool {
        if self.left.load(Ordering::Relaxed) > 0 {
            return true;
        }
        let waits = self.waits.load(Ordering::Relaxed).wrapping_add(1);
        self.waits.store(waits, Ordering::Relaxed);
        waits.is_multiple_of(DESPAIR)
    }

    #[inline]
    fn note(&self, lucky: bool) {
        let left = self.left.load(Ordering::Relaxed);
        let now = if lucky { MEMORY } else { left.saturating_sub(1) };
        if now != left {
            self.left.store(now, Ordering::Relaxed);
        }
    }
}
