//! Bytes out: what a callback writes is sent together, and the rest when there is room.

use super::{Link, Pause, Phase, SENT, SENT_FILE, State, layers};
use crate::output::{BYTES_PER_TURN, Mark, Next, Output};
use crate::packet::Kind;
use crate::{Packet, Reason, WriteBuffer};
use coracle_loop::Loop;
use coracle_loop::demux::{
    Finished, Operation, Outcome, Outgoing, Payload, SocketOption, Submitted,
};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// A packet up to this size is copied next to the others of its callback, rather than sent from where it is.
const JOIN_BYTES: usize = 4 << 10;

/// A kernel takes what it has room for within this time, once it is asked.
const A_MOMENT: Duration = Duration::from_millis(1);

/// How many marks are called one after the other; then it is somebody else's turn. A mark may write and set the
/// next.
const MARKS_PER_TURN: usize = 64;

impl Link {
    #[inline(always)]
    pub(crate) fn write_slice(&self, bytes: &[u8]) {
        if self.calm.get() && self.service.scratch.is_of(self) {
            self.service.scratch.written.borrow_mut().push(bytes);
        } else {
            self.queue_slice(bytes);
        }
    }

    #[inline]
    pub(crate) fn write_with<T>(&self, f: impl FnOnce(&mut WriteBuffer) -> T) -> T {
        let scratch = &self.service.scratch;
        let direct = self.calm.get() && scratch.is_of(self);
        let place = if direct { &scratch.written } else { &scratch.spare };
        // Taken and not borrowed: `f` may write to another connection.
        let written = place.take();
        let mut back = PutBack { place, keep: written.len(), written };
        let result = f(&mut back.written);
        back.keep = back.written.len();
        drop(back);
        if !direct {
            self.queue_spare();
        }
        result
    }

    /// Queues what could not be written to where it is sent from.
    #[cold]
    fn queue_spare(&self) {
        let place = &self.service.scratch.spare;
        let mut spare = place.take();
        self.queue_slice(spare.as_slice());
        spare.clear();
        place.replace(spare);
    }

    /// Writes to a connection of which more has to be known.
    #[inline(never)]
    fn queue_slice(&self, bytes: &[u8]) {
        let mut state = self.change();
        if state.accepts_output() {
            let scratch = &self.service.scratch;
            let direct = state.output.is_empty() && !state.detour;
            if direct && scratch.is_of(self) {
                scratch.written.borrow_mut().push(bytes);
            } else {
                state.queue().push_slice(bytes);
            }
        }
    }

    pub(crate) fn write(&self, packet: Packet) {
        if let Kind::Memory(memory) = &packet.0
            && memory.len() <= JOIN_BYTES
        {
            return self.write_slice(memory.as_slice());
        }
        self.queue_packet(packet, Output::push);
    }

    pub(crate) fn write_urgent(&self, packet: Packet) {
        self.queue_packet(packet, Output::push_urgent);
    }

    fn queue_packet(&self, packet: Packet, push: fn(&mut Output, Packet)) {
        if packet.is_empty() {
            return;
        }
        self.spill();
        let mut state = self.change();
        if packet.has_descriptors() && state.is_layered() {
            drop(state);
            return self.close(Reason::Refused(layers::unsupported(
                "descriptors cannot pass through layers, which change bytes",
            )));
        }
        if state.accepts_output() {
            push(state.queue(), packet);
        }
    }

    /// Has `mark` called when everything written so far has been sent.
    pub(crate) fn mark(&self, mark: Mark) {
        self.spill();
        let mut state = self.change();
        if state.accepts_output() {
            state.queue().push_mark(mark);
        }
    }

    /// Queues what the callback has written so far, in front of what cannot be sent together with it.
    pub(super) fn spill(&self) {
        let scratch = &self.service.scratch;
        if scratch.is_of(self) {
            let mut written = scratch.written.borrow_mut();
            if !written.is_empty() {
                self.change().queue().push_first(written.as_slice().into(), false);
                written.clear();
            }
        }
    }

    /// How much the callback has written so far and not queued.
    #[inline]
    fn scratch_bytes(&self) -> usize {
        let scratch = &self.service.scratch;
        if scratch.is_of(self) { scratch.written.borrow().len() } else { 0 }
    }

    /// Whether there is room. Who is told that there is none is told when there is.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        let has_room = self.scratch_bytes() <= self.service.settings.high_mark_bytes;
        (self.calm.get() && has_room) || self.has_room()
    }

    /// The same, of a connection of which more has to be known.
    #[inline(never)]
    fn has_room(&self) -> bool {
        let waiting = self.output_bytes();
        if waiting > self.service.settings.high_mark_bytes {
            self.change().full = true;
        }
        let state = self.state.borrow();
        state.accepts_output() && !state.full
    }

    pub(crate) fn output_bytes(&self) -> usize {
        self.state.borrow().output_bytes() + self.scratch_bytes()
    }

    /// The same, and what waits in files.
    pub(crate) fn unsent_bytes(&self) -> usize {
        if self.calm.get() {
            return self.scratch_bytes();
        }
        self.output_bytes() + self.state.borrow().file_bytes()
    }

    /// Sends what the callback has written.
    #[inline(always)]
    pub(super) fn flush(self: &Rc<Self>, lp: &Loop) {
        let service = &*self.service;
        let written = &mut *service.scratch.written.borrow_mut();
        if written.is_empty() {
            return;
        }
        if self.calm.get() || !self.state.borrow().detour {
            match lp.try_send(self.socket, written.as_slice()) {
                Ok(sent) if sent == written.len() => service.stats.sent_bytes.add(sent as u64),
                result => self.flush_rest(written.as_slice(), result),
            }
        } else {
            self.queue_written(written.as_slice());
        }
        written.clear();
    }

    /// Keeps what the callback of a connection with layers or a rate has written, unless it is aborted.
    #[cold]
    fn queue_written(&self, written: &[u8]) {
        let mut state = self.change();
        if !state.aborted {
            state.queue().push_first(written.into(), false);
        }
    }

    /// Not everything that the callback has written was sent.
    #[cold]
    fn flush_rest(&self, written: &[u8], result: io::Result<usize>) {
        match result {
            Ok(sent) => {
                self.service.stats.sent_bytes.add(sent as u64);
                self.change().output.push_first(written[sent..].into(), sent > 0);
            }
            Err(error) => self.abort(Reason::Failed(error)),
        }
    }

    /// Sends what waits, and stops who produces more than is taken.
    pub(super) fn pump(self: &Rc<Self>, lp: &Loop) {
        let mut marks = 0;
        loop {
            let State { resting, turn_bytes, .. } = *self.state.borrow();
            if resting {
                break;
            }
            if marks == MARKS_PER_TURN || turn_bytes as usize >= BYTES_PER_TURN {
                break self.rest(lp);
            }
            let detour = self.state.borrow().detour;
            let next = match detour {
                false => self.change().output.next(),
                true => self.next_on_detour(lp),
            };
            let Some(next) = next else { break };
            let (operation, tag) = match next {
                Next::Memory(payload) => match self.send_before_file(lp, payload) {
                    Some(payload) => (Operation::Send { socket: self.socket, payload }, SENT),
                    None if self.state.borrow().aborted => return,
                    None => continue,
                },
                Next::Message { payload, descriptors } => {
                    let message = Box::new(Outgoing { payload, to: None, descriptors });
                    (Operation::SendMessage { socket: self.socket, message }, SENT)
                }
                Next::File { file, offset, count } => {
                    (Operation::SendFile { socket: self.socket, file, offset, count }, SENT_FILE)
                }
                Next::Mark(mark) => {
                    marks += 1;
                    self.change().late = true;
                    self.enter(lp, |_, conn| mark(conn));
                    self.change().late = false;
                    self.flush(lp);
                    if self.state.borrow().aborted {
                        return;
                    }
                    continue;
                }
            };
            match lp.submit(operation, self, tag) {
                Submitted::Pending(_) => break self.watch_stall(lp),
                Submitted::Done(finished) => self.note_sent(tag, finished),
            }
            if self.state.borrow().aborted {
                return;
            }
        }
        let settings = &self.service.settings;
        let mut state = self.change();
        state.turn_bytes = 0;
        let waiting = state.output_bytes();
        let unread = self.input.len() + state.undecoded_bytes();
        if !self.service.memory.change(state.counted, waiting + unread) {
            self.service.stats.out_of_memory.add(1);
            return state.abort(Reason::MemoryLimit);
        }
        state.counted = waiting + unread;
        if waiting > settings.high_mark_bytes {
            state.full = true;
            drop(state);
            if !settings.read_when_full {
                self.pause(lp, Pause::OUTPUT);
            }
            if waiting > settings.limit_output_bytes {
                self.doubt(lp);
            }
        } else if state.full && waiting <= settings.low_mark_bytes {
            state.full = false;
            drop(state);
            self.resume(lp, Pause::OUTPUT);
            let link = Rc::downgrade(self);
            // In a callback of its own: a producer that is always sent at once must not go ever deeper.
            lp.defer(move |lp| {
                if let Some(link) = link.upgrade().filter(|link| link.is_open()) {
                    link.call(lp, |protocol, conn| protocol.on_ready(conn));
                }
            });
        }
    }

    /// Sends what goes before a file so that both leave together: a head has no packet of its own. Gives it back
    /// if no file follows, or nothing can be sent now.
    fn send_before_file(&self, lp: &Loop, payload: Payload) -> Option<Payload> {
        let Payload::One(memory) = &payload else { return Some(payload) };
        if !self.state.borrow().output.is_file_next() {
            return Some(payload);
        }
        match lp.try_send_before_file(self.socket, memory.as_slice()) {
            Ok(0) => Some(payload),
            sent => {
                let result = sent.map(Outcome::Count);
                self.note_sent(SENT, Finished { result, payload });
                None
            }
        }
    }

    /// More waits than may. That alone does not make the peer slow: the kernel may not have been asked yet
    /// to take what was written in this turn. If it does not take all it is offered, a moment and a turn later,
    /// the peer is.
    #[cold]
    fn doubt(self: &Rc<Self>, lp: &Loop) {
        let mut state = self.change();
        if state.rare().doubted.is_some() {
            return;
        }
        state.rare().doubted = Some(false);
        drop(state);
        let link = Rc::downgrade(self);
        lp.after(A_MOMENT, move |lp| {
            let link = link.clone();
            let judge = move |lp: &Loop| {
                if let Some(link) = link.upgrade().filter(|link| link.is_open()) {
                    link.judge(lp);
                }
            };
            // After a long turn, the kernel is entered between these two.
            lp.defer(move |lp| lp.defer(judge));
        });
    }

    #[cold]
    fn judge(self: &Rc<Self>, lp: &Loop) {
        let mut state = self.change();
        let doubted = state.rare.as_mut().and_then(|rare| rare.doubted.take());
        state.tidy();
        let waiting = state.output_bytes();
        drop(state);
        if doubted == Some(false) && waiting > self.service.settings.limit_output_bytes {
            self.abort_now(lp, Reason::SlowReader);
        }
    }

    /// Sends no more in this turn: a peer that takes everything at once must not keep the loop from the others.
    #[cold]
    fn rest(self: &Rc<Self>, lp: &Loop) {
        self.change().resting = true;
        let link = Rc::downgrade(self);
        lp.defer(move |lp| {
            if let Some(link) = link.upgrade() {
                link.change().resting = false;
                link.settle(lp);
            }
        });
    }

    /// What is to be sent next by a connection with layers or a rate.
    fn next_on_detour(self: &Rc<Self>, lp: &Loop) -> Option<Next> {
        self.encode(lp);
        let limit = self.may_send(lp)?;
        let mut state = self.change();
        if limit == usize::MAX {
            return state.output.next();
        }
        let next = state.output.next_piece(limit)?;
        state.charge_sent(&next);
        Some(next)
    }

    /// Gives the peer its time to take something.
    ///
    /// One that takes a little makes no room at first: the kernel says that there is some when a third of its
    /// buffer is free. So it is asked how much it still has: when half of the time is over, which hardly ever
    /// happens, and at the end.
    fn watch_stall(self: &Rc<Self>, lp: &Loop) {
        if let Some(timeout) = self.service.settings.write_timeout {
            self.set_stall_timer(lp, timeout / 2, None);
        }
    }

    fn set_stall_timer(self: &Rc<Self>, lp: &Loop, wait: Duration, before: Option<usize>) {
        let link = Rc::downgrade(self);
        let timer = lp.after(wait, move |lp| {
            if let Some(link) = link.upgrade() {
                link.look_at_stall(lp, before);
            }
        });
        self.change().rare().stalled = Some(timer); // until it is sent
    }

    /// Nothing was sent for a while, at the beginning of which the kernel had so much.
    #[cold]
    fn look_at_stall(self: &Rc<Self>, lp: &Loop, before: Option<usize>) {
        let Some(timeout) = self.service.settings.write_timeout else { return };
        let left = lp.unacknowledged_bytes(self.socket).unwrap_or(usize::MAX); // or it is gone
        match before {
            None => self.set_stall_timer(lp, timeout - timeout / 2, Some(left)),
            Some(before) if left < before => self.set_stall_timer(lp, timeout, Some(left)),
            Some(_) => {
                // What the kernel has goes with it, or it would be kept for as long as the peer takes a little.
                let _ = lp.set_option(self.socket, SocketOption::ResetOnClose(true)); // or it is gone
                self.abort_now(lp, Reason::SlowReader);
            }
        }
    }

    /// Takes in what became of a send.
    fn note_sent(&self, tag: u32, finished: Finished) {
        let Finished { result, payload } = finished;
        let mut state = self.change();
        if state.phase == Phase::Closed {
            drop(state);
            return self.discard_payload(payload);
        }
        let mut spent = Payload::Nothing;
        match result {
            Ok(Outcome::Count(count)) => {
                state.settle_sent(count);
                // What a layer says while it waits for its peer puts nothing off: that could go on for ever.
                if state.phase == Phase::Closing && !state.is_starved() {
                    state.put_off_deadline(self.service.settings.drain);
                }
                let count32 = u32::try_from(count).unwrap_or(u32::MAX);
                state.turn_bytes = state.turn_bytes.saturating_add(count32);
                self.service.stats.sent_bytes.add(count as u64);
                if let Some(doubted) = state.rare.as_mut().and_then(|rare| rare.doubted.as_mut()) {
                    *doubted = tag == SENT_FILE || count == payload.len();
                }
                if tag == SENT {
                    spent = state.output.sent(payload, count);
                } else if !state.output.sent_file(count) {
                    state.abort(Reason::Failed(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "a file that was being sent became shorter",
                    )));
                }
            }
            Ok(other) => unreachable!("a send does not give {other:?}"),
            Err(error) => {
                state.output.sent(Payload::Nothing, 0);
                state.abort(Reason::Failed(error));
                spent = payload;
            }
        }
        drop(state);
        self.discard_payload(spent);
    }

    fn discard_payload(&self, payload: Payload) {
        match payload {
            Payload::Nothing => {}
            Payload::One(memory) => self.discard(memory),
            Payload::Many(list) => list.into_iter().for_each(|memory| self.discard(memory)),
        }
    }

    /// A send that was under way is over.
    pub(super) fn sent(self: &Rc<Self>, lp: &Loop, tag: u32, finished: Finished) {
        let mut state = self.change();
        if let Some(stalled) = state.rare.as_mut().and_then(|rare| rare.stalled.take()) {
            stalled.cancel();
            state.tidy();
        }
        drop(state);
        self.note_sent(tag, finished);
        self.settle(lp); // a mark may have asked for something
    }
}

/// What a callback has written, in somebody's hands. If he panics, it is as it was before.
struct PutBack<'a> {
    place: &'a RefCell<WriteBuffer>,
    written: WriteBuffer,
    /// How much of it is good.
    keep: usize,
}

impl Drop for PutBack<'_> {
    #[inline]
    fn drop(&mut self) {
        self.written.truncate(self.keep);
        self.place.replace(std::mem::take(&mut self.written));
    }
}

impl State {
    /// Where what is written waits.
    fn queue(&mut self) -> &mut Output {
        let layers = self.rare.as_mut().and_then(|rare| rare.layers.as_mut());
        layers.and_then(|layers| layers.queue()).unwrap_or(&mut self.output)
    }

    /// How many bytes wait in memory to be sent, whether coded or not.
    fn output_bytes(&self) -> usize {
        let layers = self.rare.as_ref().and_then(|rare| rare.layers.as_ref());
        self.output.memory_bytes() + layers.map_or(0, |layers| layers.output_bytes())
    }

    /// How many bytes wait in files to be sent.
    fn file_bytes(&self) -> usize {
        let layers = self.rare.as_ref().and_then(|rare| rare.layers.as_ref());
        self.output.file_bytes() + layers.map_or(0, |layers| layers.file_bytes())
    }

    /// How many bytes have come that no layer has taken.
    fn undecoded_bytes(&self) -> usize {
        let layers = self.rare.as_ref().and_then(|rare| rare.layers.as_ref());
        layers.map_or(0, |layers| layers.input_bytes())
    }

    /// Whether nothing waits to be sent.
    pub(super) fn is_all_sent(&self) -> bool {
        let layers = self.rare.as_ref().and_then(|rare| rare.layers.as_ref());
        self.output.is_empty() && layers.is_none_or(|layers| layers.are_through(self.is_ending()))
    }
}
