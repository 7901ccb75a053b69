//! Bytes in: when a connection is read, and to whom the bytes are shown.

use super::{Link, Pause, Phase, RECEIVED, State};
use crate::operations::is_cancelled;
use crate::{Buffer, Reason};
use coracle_loop::Loop;
use coracle_loop::demux::{Finished, Lent, Operation, Outcome, Submitted};
use std::io;
use std::rc::Rc;

impl Link {
    pub(crate) fn pause(&self, lp: &Loop, why: Pause) {
        let mut state = self.change();
        if state.paused.contains(why) {
            return;
        }
        state.paused |= why;
        if let Some(token) = state.receiving
            && !state.reads()
        {
            lp.cancel(token);
        }
    }

    pub(crate) fn resume(self: &Rc<Self>, lp: &Loop, why: Pause) {
        let mut state = self.change();
        if !state.paused.intersects(why) {
            return;
        }
        state.paused -= why;
        if state.paused.intersects(Pause::HOLDING) {
            return;
        }
        let link = Rc::downgrade(self);
        // Not from inside the callback that asked for it: bytes that wait are a callback of their own.
        lp.defer(move |lp| {
            if let Some(link) = link.upgrade() {
                link.offer_input(lp);
                if link.state.borrow().is_layered() {
                    link.decode(lp);
                }
                link.tell_end(lp);
                link.read_on(lp);
            }
        });
    }

    /// Has what waits shown to the protocol again, though it has paused the connection, and reads nothing for it.
    pub(crate) fn show_again(self: &Rc<Self>, lp: &Loop) {
        self.change();
        let link = Rc::downgrade(self);
        lp.defer(move |lp| {
            if let Some(link) = link.upgrade() {
                link.offer_input_but_for(lp, Pause::OUTPUT);
            }
        });
    }

    /// Receives, if that is wanted and not under way.
    pub(super) fn read_on(self: &Rc<Self>, lp: &Loop) {
        let state = self.state.borrow();
        if !state.reads() || state.ended || state.receiving.is_some() || state.has_piece {
            return;
        }
        let paced = state.receives_pieces();
        drop(state);
        if paced {
            return self.receive_piece(lp);
        }
        match lp.submit(Operation::ReceiveLent { socket: self.socket }, self, RECEIVED) {
            Submitted::Pending(token) => self.change().receiving = Some(token),
            Submitted::Done(Finished { result, .. }) => {
                let error = result.err().unwrap_or_else(|| io::ErrorKind::Other.into());
                self.abort_now(lp, Reason::Failed(error));
            }
        }
    }

    #[inline(always)]
    pub(super) fn received(self: &Rc<Self>, lp: &Loop, bytes: Lent) {
        if !self.is_calm() {
            return self.received_amid(lp, bytes);
        }
        self.note_received(bytes.len());
        // Most often nothing will be left: the connection's own buffer is not touched.
        let mut input = Buffer::lent(bytes);
        self.enter(lp, |protocol, conn| protocol.on_data(conn, &mut input));
        if !input.is_empty() {
            self.keep_input(input);
        }
        self.settle(lp);
    }

    #[inline(always)]
    fn note_received(&self, count: usize) {
        self.touch();
        let stats = &*self.service.stats;
        stats.received.add(1);
        stats.received_bytes.add(count as u64);
    }

    /// Bytes have come amid other things.
    #[inline(never)]
    fn received_amid(self: &Rc<Self>, lp: &Loop, bytes: Lent) {
        if self.state.borrow().detour {
            return self.received_on_detour(lp, bytes.len(), |input| input.receive(bytes));
        }
        if self.is_open() {
            self.note_received(bytes.len());
            self.input.add(|input| input.receive(bytes));
            self.offer_input(lp);
        }
    }

    /// The same for a connection with layers or a rate. `give` adds the bytes to a buffer.
    #[cold]
    pub(super) fn received_on_detour(
        self: &Rc<Self>,
        lp: &Loop,
        count: usize,
        give: impl FnOnce(&mut Buffer),
    ) {
        let state = self.state.borrow();
        let wanted = match state.phase {
            Phase::Open => true,
            Phase::Closing => state.is_starved(),
            Phase::Draining | Phase::Closed => false,
        };
        if !wanted || state.aborted {
            return;
        }
        state.charge_received(count);
        let layered = state.is_layered();
        drop(state);
        self.note_received(count);
        if layered {
            self.give_to_layers(give);
            return self.decode(lp);
        }
        self.input.add(give);
        self.offer_input(lp);
    }

    /// Shows the protocol what has come and was not read.
    #[inline]
    pub(super) fn offer_input(self: &Rc<Self>, lp: &Loop) {
        self.offer_input_but_for(lp, Pause::HOLDING);
    }

    /// The same, unless it is paused for one of these reasons.
    #[inline]
    fn offer_input_but_for(self: &Rc<Self>, lp: &Loop, holding: Pause) {
        let mut input = self.input.take();
        let state = self.state.borrow();
        let held = state.paused.intersects(holding);
        let wanted = state.phase == Phase::Open && !held && !state.is_hijacked();
        drop(state);
        if wanted && !input.is_empty() {
            self.enter(lp, |protocol, conn| protocol.on_data(conn, &mut input));
        }
        self.keep_input(input);
        self.settle(lp);
    }

    /// Keeps what a callback has left for the next one, within limits.
    ///
    /// Only who could have taken more is judged by what is left: not who has paused, and is shown the rest later,
    /// nor who leaves it to somebody else. Nothing is read for those, so that they do not get ever more.
    #[cold]
    fn keep_input(&self, mut input: Buffer) {
        self.calm.set(false);
        let state = self.state.borrow();
        if state.phase != Phase::Open {
            return; // nobody reads it any more
        }
        let excused = state.paused.intersects(Pause::HOLDING) || state.is_handed_over();
        drop(state);
        input.settle();
        if input.len() > self.service.settings.limit_input_bytes && !excused {
            self.abort(Reason::InputLimit);
        }
        self.input.put(input);
    }

    /// The receive in flight is over.
    pub(super) fn receive_ended(self: &Rc<Self>, lp: &Loop, result: io::Result<Outcome>) {
        self.change().receiving = None;
        match result {
            Ok(Outcome::Lent(bytes)) if bytes.is_empty() => self.wire_ended(lp),
            Ok(Outcome::Lent(bytes)) => self.received(lp, bytes),
            Err(error) if is_cancelled(&error) => {}
            Err(error) => self.abort(Reason::Failed(error)),
            Ok(other) => unreachable!("a receive does not give {other:?}"),
        }
        self.settle(lp);
        self.read_on(lp);
    }

    /// The peer has ended its side.
    pub(super) fn wire_ended(self: &Rc<Self>, lp: &Loop) {
        let mut state = self.change();
        state.ended = true;
        let (open, layered) = (state.phase == Phase::Open, state.is_layered());
        drop(state);
        match (open, layered) {
            (false, _) => self.go_on(lp),
            (true, false) => self.tell_end(lp),
            (true, true) => self.decode(lp),
        }
    }

    /// Tells the protocol that nothing more comes, once: after everything that has come, and not while it is
    /// paused.
    pub(super) fn tell_end(self: &Rc<Self>, lp: &Loop) {
        let state = self.state.borrow();
        let held = state.paused.intersects(Pause::HOLDING);
        let told = state.end_told || state.is_hijacked(); // whoever takes the socket sees for himself
        if state.phase != Phase::Open || state.aborted || told || held {
            return;
        }
        drop(state);
        if self.has_ended() {
            self.change().end_told = true;
            self.call(lp, |protocol, conn| protocol.on_end(conn));
        } else if !self.is_open() || self.state.borrow().aborted {
            self.go_on(lp); // a layer misses something, or has panicked
        }
    }
}

impl State {
    /// Whether the socket is to be read.
    pub(super) fn reads(&self) -> bool {
        let (paced, starved) = (self.paused.contains(Pause::RATE), self.is_starved());
        match self.phase {
            Phase::Open => !self.is_hijacked() && !paced && (self.paused.is_empty() || starved),
            Phase::Closing => starved && !paced,
            Phase::Draining => true, // to see its end
            Phase::Closed => false,
        }
    }
}
