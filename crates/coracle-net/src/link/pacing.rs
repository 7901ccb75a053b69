//! The rate of one connection: what it may send and receive now, and what wakes it when it may again.
//!
//! ```text
//!   receive_piece ──► own gate ──► group's gate ──► as many bytes as may pass, into memory of that size
//!   may_send      ──► own gate ──► group's gate ──► as many bytes of the queue
//!                        └─────────────┴── none: waits there, and is called
//! ```
//!
//! Received is never more than may pass at that moment: what is over the rate stays with the kernel, and so with
//! the peer. That is why a paced connection receives into memory of its own, piece by piece, and not in the
//! loop's.

use super::{Link, Pause, Phase, RECEIVED_PIECE, State};
use crate::operations::is_cancelled;
use crate::output::Next;
use crate::rate_limit::{Direction, Gate};
use crate::{RateGroup, RateLimit, Reason};
use coracle_loop::Loop;
use coracle_loop::demux::{Finished, Operation, Outcome, Submitted};
use std::rc::Rc;

/// How much is received at once; as much memory waits with a paced connection.
const PIECE_BYTES: usize = 16 << 10;

/// What a paced connection has to ask.
#[derive(Default)]
pub(super) struct Pace {
    own: Gates,
    group: Gates,
    /// It waits at a gate, and sends nothing until it is called.
    waits_to_send: bool,
    /// How much of what may pass was taken for the send in flight.
    sending: usize,
}

#[derive(Default)]
struct Gates {
    receive: Option<Rc<Gate>>,
    send: Option<Rc<Gate>>,
}

impl Pace {
    fn gates(&self, direction: Direction) -> impl Iterator<Item = &Rc<Gate>> {
        [&self.own, &self.group].into_iter().filter_map(move |gates| match direction {
            Direction::Receive => gates.receive.as_ref(),
            Direction::Send => gates.send.as_ref(),
        })
    }

    fn is_unlimited(&self) -> bool {
        self.gates(Direction::Receive).chain(self.gates(Direction::Send)).next().is_none()
    }

    /// How many of `wanted` bytes may pass all gates; or the gate to wait at.
    fn ask(&self, lp: &Loop, direction: Direction, wanted: usize) -> Result<usize, Rc<Gate>> {
        let mut room = wanted;
        for gate in self.gates(direction) {
            room = gate.ask(lp, room).ok_or_else(|| Rc::clone(gate))?;
        }
        Ok(room)
    }
}

impl Link {
    pub(crate) fn limit_rate(self: &Rc<Self>, lp: &Loop, limit: &RateLimit) {
        let own = Gates {
            receive: Gate::new(lp, Direction::Receive, limit),
            send: Gate::new(lp, Direction::Send, limit),
        };
        self.change_pace(lp, |pace| pace.own = own);
    }

    pub(crate) fn join_rate_group(self: &Rc<Self>, lp: &Loop, group: &RateGroup) {
        let (receive, send) = (group.receive.clone(), group.send.clone());
        self.change_pace(lp, |pace| pace.group = Gates { receive, send });
    }

    fn change_pace(self: &Rc<Self>, lp: &Loop, change: impl FnOnce(&mut Pace)) {
        let mut state = self.change();
        if state.phase == Phase::Closed || state.aborted {
            return;
        }
        let pace = state.rare().pace.get_or_insert_default();
        change(pace);
        pace.waits_to_send = false; // whoever it waited for may be gone
        state.detour = true;
        state.end_pace();
        state.paused -= Pause::RATE;
        if let Some(token) = state.receiving {
            lp.cancel(token); // and the next is paced
        }
        drop(state);
        let link = Rc::downgrade(self);
        lp.defer(move |lp| {
            if let Some(link) = link.upgrade() {
                link.settle(lp);
                link.read_on(lp);
            }
        });
    }

    /// Whether it still has something to do when a gate calls.
    pub(crate) fn waits_at_gates(&self) -> bool {
        self.state.borrow().phase != Phase::Closed
    }

    /// A gate has called.
    pub(crate) fn may_pass(self: &Rc<Self>, lp: &Loop, direction: Direction) {
        let mut state = self.change();
        match direction {
            Direction::Receive => {
                state.paused -= Pause::RATE;
                drop(state);
                self.read_on(lp);
            }
            Direction::Send => {
                if let Some(pace) = state.pace() {
                    pace.waits_to_send = false;
                }
                drop(state);
                self.settle(lp); // a mark may have asked for something
            }
        }
    }

    // --- Out -------------------------------------------------------------------------------------------

    /// How much of what waits may be sent now. `None`: nothing, and it will be called.
    pub(super) fn may_send(self: &Rc<Self>, lp: &Loop) -> Option<usize> {
        let mut state = self.change();
        let (waiting, is_mark) = (state.output.bytes(), state.output.is_mark_next());
        let Some(pace) = state.pace() else { return Some(usize::MAX) };
        if waiting == 0 || is_mark || pace.sending > 0 {
            return Some(0); // marks, at the most
        }
        if pace.waits_to_send {
            return None;
        }
        match pace.ask(lp, Direction::Send, waiting) {
            Ok(room) => Some(room),
            Err(gate) => {
                pace.waits_to_send = true;
                gate.wait(lp, self, waiting);
                None
            }
        }
    }

    // --- In --------------------------------------------------------------------------------------------

    /// Receives as much as may be received now.
    pub(super) fn receive_piece(self: &Rc<Self>, lp: &Loop) {
        let mut state = self.change();
        let room = match state.pace().map(|pace| pace.ask(lp, Direction::Receive, PIECE_BYTES)) {
            None => PIECE_BYTES,
            Some(Ok(room)) => room,
            Some(Err(gate)) => {
                state.paused |= Pause::RATE;
                return gate.wait(lp, self, usize::MAX);
            }
        };
        let (socket, space) = (self.socket, vec![0; room].into());
        let operation = match state.descriptor_room() {
            None => Operation::Receive { socket, space },
            Some(limit) => Operation::ReceiveMessage { socket, space, limit_descriptors: limit },
        };
        drop(state);
        match lp.submit(operation, self, RECEIVED_PIECE) {
            Submitted::Pending(token) => self.change().receiving = Some(token),
            Submitted::Done(finished) => {
                // When its turn comes: one who always has something must not go ever deeper.
                self.change().has_piece = true;
                let link = Rc::clone(self);
                lp.defer(move |lp| link.received_piece(lp, finished));
            }
        }
    }

    /// A piece was received, or the receive is over without one.
    pub(super) fn received_piece(self: &Rc<Self>, lp: &Loop, finished: Finished) {
        let Finished { result, payload } = finished;
        let mut state = self.change();
        state.receiving = None;
        state.has_piece = false;
        state.end_pace();
        drop(state);
        let result = result.map(|outcome| match outcome {
            Outcome::Count(count) => count,
            Outcome::Message(message) => {
                self.keep_descriptors(message.descriptors);
                message.count
            }
            other => unreachable!("a receive does not give {other:?}"),
        });
        match result {
            Ok(0) => self.wire_ended(lp),
            Ok(count) => {
                let mut bytes = payload.into_vec();
                bytes.truncate(count);
                self.received_on_detour(lp, count, |input| input.extend_from_slice(&bytes));
            }
            Err(error) if is_cancelled(&error) => {}
            Err(error) => self.abort(Reason::Failed(error)),
        }
        self.settle(lp);
        self.read_on(lp);
    }
}

impl State {
    fn pace(&mut self) -> Option<&mut Pace> {
        self.rare.as_mut()?.pace.as_deref_mut()
    }

    /// Forgets the rate if there is none any more, and nothing is on its way that was paced.
    fn end_pace(&mut self) {
        if !self.has_piece && self.pace().is_some_and(|pace| pace.is_unlimited()) {
            self.rare().pace = None;
            self.detour = self.aborted || self.is_layered();
            self.tidy();
        }
    }

    /// Whether what it has to send waits for its rate.
    pub(super) fn waits_to_send(&self) -> bool {
        let pace = self.rare.as_ref().and_then(|rare| rare.pace.as_ref());
        pace.is_some_and(|pace| pace.waits_to_send)
    }

    /// Whether it receives piece by piece. Who only waits for the end of the stream does not.
    pub(super) fn receives_pieces(&self) -> bool {
        let paced = self.detour && self.paces(Direction::Receive);
        self.phase != Phase::Draining && (paced || self.descriptor_room().is_some())
    }

    fn paces(&self, direction: Direction) -> bool {
        let pace = self.rare.as_ref().and_then(|rare| rare.pace.as_ref());
        pace.is_some_and(|pace| pace.gates(direction).next().is_some())
    }

    /// Notes what was received.
    pub(super) fn charge_received(&self, count: usize) {
        if let Some(pace) = self.rare.as_ref().and_then(|rare| rare.pace.as_ref()) {
            pace.gates(Direction::Receive).for_each(|gate| gate.charge(count));
        }
    }

    /// Notes what is about to be sent.
    pub(super) fn charge_sent(&mut self, next: &Next) {
        let count = match next {
            Next::Memory(payload) | Next::Message { payload, .. } => payload.len(),
            Next::File { count, .. } => *count,
            Next::Mark(_) => return,
        };
        if let Some(pace) = self.pace() {
            pace.sending = count;
            pace.gates(Direction::Send).for_each(|gate| gate.charge(count));
        }
    }

    /// Gives back what was not sent after all.
    pub(super) fn settle_sent(&mut self, count: usize) {
        if let Some(pace) = self.pace() {
            let unsent = std::mem::take(&mut pace.sending).saturating_sub(count);
            pace.gates(Direction::Send).for_each(|gate| gate.give_back(unsent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::Hub;
    use crate::{Buffer, Conn, Settings, attach};
    use std::cell::Cell;

    #[test]
    fn e8_connection_whose_limit_was_taken_away_is_as_it_was() {
        for has_piece in [false, true] {
            let lp = Loop::new().expect("a loop");
            let (_client, socket) = lp.socket_pair().expect("a pair");
            let serve = |_: &mut Conn<'_>, input: &mut Buffer| {
                input.take_all();
                Ok(())
            };
            let handle = attach(&lp, socket, Settings::default(), serve).expect("a connection");
            let link = Hub::of(&lp).get(handle.key).expect("it is open");
            let receive_bytes_per_second = Some(1000);
            link.limit_rate(&lp, &RateLimit { receive_bytes_per_second, ..RateLimit::default() });
            assert!(!link.is_calm());
            link.pause(&lp, Pause::USER); // so that it does not go on receiving
            link.change().has_piece = has_piece;
            link.limit_rate(&lp, &RateLimit::default());
            if has_piece {
                assert!(link.state.borrow().rare.is_some(), "a piece is on its way");
                let (result, payload) = (Ok(Outcome::Count(1)), b"x".to_vec().into());
                link.received_piece(&lp, Finished { result, payload });
            }
            let state = link.state.borrow();
            assert!(state.rare.is_none() && !state.detour, "with a piece: {has_piece}");
        }
    }

    #[test]
    fn i5_end_that_is_on_its_way_does_not_hold_up_who_takes_the_socket() {
        let lp = Loop::new().expect("a loop");
        let (_client, socket) = lp.socket_pair().expect("a pair");
        let serve = |_: &mut Conn<'_>, _: &mut Buffer| Ok(());
        let handle = attach(&lp, socket, Settings::default(), serve).expect("a connection");
        let link = Hub::of(&lp).get(handle.key).expect("it is open");
        link.pause(&lp, Pause::USER); // so that nothing else is received
        lp.run_until_idle().expect("it was cancelled");
        link.change().has_piece = true;
        let taken = Rc::new(Cell::new(false));
        let flag = Rc::clone(&taken);
        handle.with(&lp, |conn| conn.hijack(move |_, _, _| flag.set(true)));
        assert!(!taken.get(), "a piece is on its way");
        let (result, payload) = (Ok(Outcome::Count(0)), Vec::new().into());
        link.received_piece(&lp, Finished { result, payload });
        assert!(taken.get());
    }
}
