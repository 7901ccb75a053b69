//! Layers of one connection: who moves the bytes through them, and when.
//!
//! ```text
//!     socket      stage 0                  stage 1                     protocol
//!            ──► [input] ─ receive ──►    [input] ─ receive ──►       Link::input
//!   State::output ◄── send ─ [queue]   ◄── send ─ [queue] ◄────────── Conn::write
//! ```
//!
//! Out: each stage has a queue of packets, of its own kind, and moves them to the queue below as long as that is
//! short ([`PIECE_BYTES`]). Marks are moved too, so they are still called when what was before them is sent. The
//! lowest queue is the connection's, and is sent as if there were no layers.
//!
//! In: bytes are decoded a piece at a time and shown to the protocol in between, so that one that pauses gets no
//! more.
//!
//! While a layer works, the stages are taken out of the state: it is code of the user's, and nothing is borrowed.
//! The protocol is taken out too: so nobody reaches the connection meanwhile, not even the layer by a handle, and
//! nothing goes past the layers.

use super::{FILE_READ, Fin, Link, Pause, Phase, State};
use crate::guard::guard;
use crate::output::{Front, Output};
use crate::{Buffer, Layer, Reason};
use coracle_loop::Loop;
use coracle_loop::demux::{Finished, Handle, Operation, Outcome, Submitted, Token};
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// How much is offered to a layer at once, coded ahead of the socket, and decoded between two looks at the
/// protocol.
const PIECE_BYTES: usize = 64 << 10;

/// How long to wait when the worker pool, which reads files for some kernels, has too much to do.
const READ_PAUSE: Duration = Duration::from_millis(5);

/// The layers of one connection, the one next to the socket first.
#[derive(Default)]
pub(super) struct Layers {
    stages: Vec<Stage>,
    reading: Reading,
    /// Nothing passes until something is received.
    starved: bool,
    /// The receive that was cancelled last.
    cancelled: Option<Token>,
    /// One has failed and is gone, and those above it: what is written now would go out as it is.
    cut: bool,
}

/// What becomes of a piece of a file. One at a time is read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Reading {
    #[default]
    Nothing,
    /// It is being read for this stage.
    For(usize),
    /// It is being read for a stage that is gone.
    ForNobody,
    /// There was nobody to read it; asked for again soon.
    Later,
}

struct Stage {
    layer: Box<dyn Layer>,
    /// What came from below and was not taken.
    input: Buffer,
    /// What waits to be sent through it.
    queue: Output,
    /// What was read of the file in front of the queue, and not taken.
    file_piece: Buffer,
    /// It has not got what was unread when it was put on.
    is_new: bool,
    /// It took nothing of what it was offered last.
    blocked: bool,
    /// Why it cannot go on, while what it gave before that is shown to the protocol.
    failed: Option<io::Error>,
    /// Our side's end was said.
    end_said: bool,
    /// It was told that the wire has ended.
    end_heard: bool,
}

/// A layer that cannot go on: which, and why.
struct Failure {
    index: usize,
    error: io::Error,
}

/// A piece of a file that has to be read.
struct Wanted {
    index: usize,
    file: Handle,
    offset: u64,
    count: usize,
}

impl Layers {
    /// The queue that what is written goes to.
    pub(super) fn queue(&mut self) -> Option<&mut Output> {
        self.stages.last_mut().map(|stage| &mut stage.queue)
    }

    /// How many bytes wait to pass through.
    pub(super) fn output_bytes(&self) -> usize {
        self.stages.iter().map(|stage| stage.queue.memory_bytes()).sum()
    }

    /// How many bytes in files wait to pass through.
    pub(super) fn file_bytes(&self) -> usize {
        self.stages.iter().map(|stage| stage.queue.file_bytes()).sum()
    }

    /// How many bytes have come and were not taken by a layer.
    pub(super) fn input_bytes(&self) -> usize {
        self.stages.iter().map(|stage| stage.input.len()).sum()
    }

    /// Whether nothing waits to pass, the last words included when it is `ending`.
    pub(super) fn are_through(&self, ending: bool) -> bool {
        self.stages.iter().all(|stage| stage.queue.is_empty() && (!ending || stage.end_said))
    }

    pub(super) fn are_starved(&self) -> bool {
        self.starved
    }

    fn look(&mut self) {
        self.starved = self
            .stages
            .iter()
            .any(|stage| !stage.layer.is_ready() || (stage.blocked && !stage.queue.is_empty()));
    }

    // --- Out -------------------------------------------------------------------------------------------

    /// Moves what waits towards `wire`, until enough is there.
    fn send(&mut self, wire: &mut Output, ending: bool) -> Result<Option<Wanted>, Failure> {
        let mut wanted = None;
        loop {
            let mut moved = false;
            for index in (0..self.stages.len()).rev() {
                let result = self.send_stage(index, wire, ending, &mut wanted);
                moved |= result.map_err(|error| Failure { index, error })?;
            }
            if !moved {
                self.look();
                return Ok(wanted);
            }
        }
    }

    /// Moves what waits at one stage to the queue below. True if anything was moved.
    fn send_stage(
        &mut self,
        index: usize,
        wire: &mut Output,
        ending: bool,
        wanted: &mut Option<Wanted>,
    ) -> io::Result<bool> {
        let said_above = self.stages.get(index + 1).is_none_or(|above| above.end_said);
        let (stage, below) = self.split(index, wire);
        let (mut coded, mut moved) = (Vec::new(), false);
        let mut result = Ok(());
        stage.blocked = false;
        while below.bytes() + coded.len() < PIECE_BYTES {
            let Stage { layer, queue, file_piece, .. } = &mut *stage;
            let bytes = match queue.front() {
                None => break,
                Some(Front::Memory(bytes)) => bytes,
                Some(Front::File { .. }) if !file_piece.is_empty() => file_piece.unread(),
                Some(Front::File { file, offset, count }) => {
                    *wanted = Some(Wanted { index, file, offset, count });
                    queue.begin_front(); // it stays in front while it is read
                    break;
                }
                Some(Front::Mark) => {
                    below.push(std::mem::take(&mut coded).into());
                    queue.take_mark().into_iter().for_each(|mark| below.push_mark(mark));
                    moved = true;
                    continue;
                }
            };
            let bytes = &bytes[..bytes.len().min(PIECE_BYTES)];
            let offered = bytes.len();
            match layer.send(bytes, &mut coded) {
                Ok(0) => {
                    stage.blocked = true;
                    break;
                }
                Ok(taken) => {
                    assert!(taken <= offered, "a layer took {taken} bytes of {offered}");
                    file_piece.consume(taken.min(file_piece.len()));
                    queue.consume(taken);
                    moved = true;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if ending && said_above && stage.queue.is_empty() && !stage.end_said && result.is_ok() {
            stage.layer.end(&mut coded);
            stage.end_said = true;
            moved = true;
        }
        moved |= !coded.is_empty();
        below.push(coded.into());
        result.map(|()| moved)
    }

    /// A stage, and the queue below it.
    fn split<'a>(
        &'a mut self,
        index: usize,
        wire: &'a mut Output,
    ) -> (&'a mut Stage, &'a mut Output) {
        let (below, from) = self.stages.split_at_mut(index);
        (&mut from[0], below.last_mut().map_or(wire, |stage| &mut stage.queue))
    }

    // --- In --------------------------------------------------------------------------------------------

    /// Decodes about a piece of what has come. True if anything was moved.
    fn receive(&mut self, plain: &mut Buffer, wire: &mut Output) -> Result<bool, Failure> {
        let mut moved = false;
        for index in 0..self.stages.len() {
            let mut reply = Vec::new();
            let result = self.receive_stage(index, plain, &mut reply);
            let (stage, below) = self.split(index, wire);
            if !stage.end_said {
                below.push(reply.into());
            }
            moved |= result.map_err(|error| Failure { index, error })?;
        }
        self.look();
        Ok(moved)
    }

    fn receive_stage(
        &mut self,
        index: usize,
        plain: &mut Buffer,
        reply: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let (stages, above) = self.stages.split_at_mut(index + 1);
        let Stage { layer, input, failed, .. } = &mut stages[index];
        if let Some(error) = failed.take() {
            return Err(error);
        }
        let plain = above.first_mut().map_or(plain, |above| &mut above.input);
        let (first, mut any) = (plain.len(), false);
        while !layer.has_ended() && plain.len() < first + PIECE_BYTES {
            let before = (input.len(), plain.len());
            let result = layer.receive(input, plain, reply);
            if result.is_err() && plain.len() > first {
                *failed = result.err();
                return Ok(true); // what came before the error is not lost by it
            }
            result?;
            if (input.len(), plain.len()) == before {
                break;
            }
            any = true;
        }
        if layer.has_ended() || input.is_empty() {
            *input = Buffer::new(); // who is idle holds nothing
        }
        input.settle();
        Ok(any)
    }

    /// Whether nothing more comes out at the top, given whether the wire `has_ended`.
    fn have_ended(&mut self, mut has_ended: bool) -> Result<bool, Failure> {
        for (index, stage) in self.stages.iter_mut().enumerate() {
            if stage.layer.has_ended() {
                has_ended = true;
            } else if has_ended && !stage.end_heard {
                stage.end_heard = true;
                let heard = stage.layer.wire_ended(stage.input.len());
                heard.map_err(|error| Failure { index, error })?;
            }
        }
        Ok(has_ended)
    }
}

impl Link {
    pub(crate) fn push_layer(self: &Rc<Self>, lp: &Loop, layer: Box<dyn Layer>) {
        self.spill(); // what was written before goes by the way it was written for
        let mut state = self.change();
        if state.phase != Phase::Open || state.aborted {
            return;
        }
        if state.fin != Fin::No || state.is_hijacked() {
            drop(state);
            return self.close(Reason::Refused(unsupported(
                "a layer was put on a connection whose sending side was ended or given away",
            )));
        }
        let layers = state.rare().layers.get_or_insert_default();
        layers.stages.push(Stage {
            layer,
            input: Buffer::new(),
            queue: Output::default(),
            file_piece: Buffer::new(),
            is_new: true,
            blocked: false,
            failed: None,
            end_said: false,
            end_heard: false,
        });
        state.detour = true;
        drop(state);
        let link = Rc::downgrade(self);
        lp.defer(move |lp| {
            if let Some(link) = link.upgrade() {
                link.decode(lp);
            }
        });
    }

    /// Gives the lowest new layer what the protocol has left unread. When no callback runs.
    pub(super) fn give_leftovers(&self) {
        if self.is_in_callback() {
            return; // one does: it may still read them
        }
        let mut state = self.change();
        let Some(layers) = state.layers() else { return };
        let mut new = layers.stages.iter_mut().filter(|stage| stage.is_new);
        if let Some(lowest) = new.next() {
            lowest.is_new = false;
            new.for_each(|stage| stage.is_new = false);
            lowest.input = self.input.take();
        }
    }

    /// Lets the layers work, with nothing borrowed.
    fn with_layers<T>(
        &self,
        work: impl FnOnce(&mut Layers, &mut Output, &mut Buffer) -> Result<T, Failure>,
    ) -> Option<T> {
        let mut state = self.change();
        let mut layers = state.rare.as_mut()?.layers.take()?;
        let mut wire = std::mem::take(&mut state.output);
        drop(state);
        let mut plain = self.input.take();
        let protocol = self.protocol.take();
        let result = guard(|| work(&mut layers, &mut wire, &mut plain));
        self.protocol.set(protocol);
        self.input.put(plain);
        let mut state = self.change();
        state.output = wire;
        match result {
            Some(Ok(result)) => {
                state.rare().layers = Some(layers);
                Some(result)
            }
            Some(Err(Failure { index, error })) => {
                // It and those above have nothing more to say; those below end in order.
                let failed = layers.stages.split_off(index);
                if matches!(layers.reading, Reading::For(reader) if reader >= index) {
                    layers.reading = Reading::ForNobody; // until that has ended: what it gives is nobody else's
                }
                layers.look();
                layers.cut = true;
                state.rare().layers = Some(layers);
                drop(state);
                self.close(Reason::Failed(error)); // first: who is dropped may write
                failed.into_iter().for_each(|stage| self.discard_stage(stage));
                None
            }
            None => {
                drop(state);
                self.note_panic();
                self.discard_layers(*layers);
                None
            }
        }
    }

    pub(super) fn discard_layers(&self, layers: Layers) {
        layers.stages.into_iter().for_each(|stage| self.discard_stage(stage));
    }

    fn discard_stage(&self, stage: Stage) {
        self.discard(stage.layer);
        self.discard_output(stage.queue);
    }

    // --- Out -------------------------------------------------------------------------------------------

    /// Codes what waits, until there is enough for the socket.
    pub(super) fn encode(self: &Rc<Self>, lp: &Loop) {
        loop {
            let state = self.state.borrow();
            if state.aborted || !state.is_layered() {
                return;
            }
            let ending = state.is_ending();
            drop(state);
            let Some(wanted) = self.with_layers(|layers, wire, _| layers.send(wire, ending)) else {
                continue; // it failed: those below have to say so
            };
            match wanted {
                Some(wanted) if self.read_piece(lp, &wanted) => {}
                _ => return,
            }
        }
    }

    /// Reads a piece of the file in front of a queue. True if it is there at once.
    fn read_piece(self: &Rc<Self>, lp: &Loop, wanted: &Wanted) -> bool {
        let &Wanted { index, file, offset, count } = wanted;
        let mut state = self.change();
        let is_free = |layers: &&mut Layers| layers.reading == Reading::Nothing;
        let Some(layers) = state.layers().filter(is_free) else { return false };
        layers.reading = Reading::For(index);
        drop(state);
        let space = vec![0; count.min(PIECE_BYTES)].into();
        match lp.submit(Operation::Read { file, offset, space }, self, FILE_READ) {
            Submitted::Pending(_) => false,
            Submitted::Done(finished) => self.take_piece(lp, finished),
        }
    }

    /// Takes in a piece of a file that was read. False if it has to be asked for again, later.
    fn take_piece(self: &Rc<Self>, lp: &Loop, finished: Finished) -> bool {
        let Finished { result, payload } = finished;
        let mut state = self.change();
        let Some(layers) = state.layers() else { return true };
        let Reading::For(index) = std::mem::take(&mut layers.reading) else { return true };
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                layers.reading = Reading::Later;
                drop(state);
                self.read_later(lp);
                return false;
            }
            Ok(Outcome::Count(0)) => state.abort(Reason::Failed(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "a file that was being sent became shorter",
            ))),
            Ok(Outcome::Count(count)) => {
                let mut bytes = payload.into_vec();
                bytes.truncate(count);
                layers.stages[index].file_piece = bytes.into();
            }
            Ok(other) => unreachable!("a read does not give {other:?}"),
            Err(error) => state.abort(Reason::Failed(error)),
        }
        true
    }

    /// Asks again for a piece of a file that nobody could read.
    #[cold]
    fn read_later(self: &Rc<Self>, lp: &Loop) {
        let link = Rc::downgrade(self);
        lp.after(READ_PAUSE, move |lp| {
            let Some(link) = link.upgrade() else { return };
            let mut state = link.change();
            let Some(layers) = state.layers() else { return };
            layers.reading = Reading::Nothing;
            drop(state);
            link.settle(lp);
        });
    }

    /// A piece of a file was read.
    pub(super) fn file_read(self: &Rc<Self>, lp: &Loop, finished: Finished) {
        self.take_piece(lp, finished);
        self.settle(lp); // a mark may have asked for something
    }

    // --- In --------------------------------------------------------------------------------------------

    /// Takes in what the socket gave.
    pub(super) fn give_to_layers(&self, give: impl FnOnce(&mut Buffer)) {
        let mut state = self.change();
        if let Some(lowest) = state.layers().and_then(|layers| layers.stages.first_mut()) {
            give(&mut lowest.input);
        }
    }

    /// Decodes what has come, and shows it to the protocol, as long as that wants it.
    pub(super) fn decode(self: &Rc<Self>, lp: &Loop) {
        while self.state.borrow().decodes() {
            let before = self.input.len();
            let moved = self
                .with_layers(|layers, wire, plain| layers.receive(plain, wire))
                .unwrap_or(false);
            if !self.is_open() {
                self.input.take(); // nobody reads it any more
            }
            if self.input.len() > before {
                self.offer_input(lp);
            } else {
                self.settle(lp);
            }
            if !moved {
                break;
            }
        }
        let mut state = self.change();
        let waiting = state.layers().map_or(0, |layers| layers.input_bytes());
        if let Some(lowest) = state.layers().and_then(|layers| layers.stages.first_mut()) {
            lowest.input.settle(); // what the loop has lent goes back
        }
        let is_judged = state.phase == Phase::Open
            && (!state.paused.intersects(Pause::HOLDING) || state.is_starved())
            && !state.is_handed_over();
        drop(state);
        let waiting = waiting + self.input.len();
        if waiting > self.service.settings.limit_input_bytes && is_judged {
            return self.abort_now(lp, Reason::InputLimit);
        }
        self.tell_end(lp);
        self.steer(lp);
    }

    /// Whether the peer has sent everything, as far as the protocol is concerned.
    pub(super) fn has_ended(&self) -> bool {
        let state = self.state.borrow();
        let ended = state.ended;
        if !state.is_layered() {
            return ended;
        }
        drop(state);
        self.with_layers(|layers, _, _| layers.have_ended(ended)).unwrap_or(false)
    }

    /// Reads, or stops reading, as the layers have it.
    pub(super) fn steer(self: &Rc<Self>, lp: &Loop) {
        let state = self.state.borrow();
        if !state.is_layered() {
            return;
        }
        if state.reads() {
            drop(state);
            self.read_on(lp);
        } else if let (Phase::Open, Some(token)) = (state.phase, state.receiving) {
            drop(state);
            let mut state = self.change();
            if let Some(layers) = state.layers().filter(|layers| layers.cancelled != Some(token)) {
                layers.cancelled = Some(token);
                lp.cancel(token);
            }
        }
    }
}

impl State {
    fn layers(&mut self) -> Option<&mut Layers> {
        self.rare.as_mut()?.layers.as_deref_mut()
    }

    pub(super) fn is_layered(&self) -> bool {
        self.detour && self.rare.as_ref().is_some_and(|rare| rare.layers.is_some())
    }

    /// Whether a file is being read that is to be sent.
    pub(super) fn is_reading_file(&self) -> bool {
        let layers = self.rare.as_ref().and_then(|rare| rare.layers.as_ref());
        layers.is_some_and(|layers| matches!(layers.reading, Reading::For(_) | Reading::Later))
    }

    /// Whether a layer is missing that what is written was meant for.
    pub(super) fn is_cut(&self) -> bool {
        let layers = self.rare.as_ref().and_then(|rare| rare.layers.as_ref());
        layers.is_some_and(|layers| layers.cut)
    }

    /// Whether a layer has to hear from the peer before anything passes.
    pub(super) fn is_starved(&self) -> bool {
        let layers = self.rare.as_ref().and_then(|rare| rare.layers.as_ref());
        layers.is_some_and(|layers| layers.are_starved())
    }

    /// Whether a layer waits for something that will not come any more. Where the protocol can be told of the end,
    /// the layer is asked first.
    pub(super) fn is_lost(&self) -> bool {
        let untold = self.phase != Phase::Open || self.paused.intersects(Pause::HOLDING);
        self.ended && untold && self.is_starved()
    }

    /// Whether our side is to end when everything is sent.
    pub(super) fn is_ending(&self) -> bool {
        match self.phase {
            Phase::Open => self.fin == Fin::Wanted && !self.has_errands(),
            Phase::Closing => !self.has_errands(),
            Phase::Draining | Phase::Closed => true,
        }
    }

    /// Whether what has come is to be decoded.
    fn decodes(&self) -> bool {
        !self.aborted
            && match self.phase {
                Phase::Open => {
                    !self.is_hijacked()
                        && (!self.paused.intersects(Pause::HOLDING) || self.is_starved())
                }
                Phase::Closing => self.is_starved(),
                Phase::Draining | Phase::Closed => false,
            }
    }
}

pub(super) fn unsupported(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::Hub;
    use crate::{Conn, Settings, attach};

    /// Changes nothing.
    struct Plain;

    impl Layer for Plain {
        fn receive(
            &mut self,
            wire: &mut Buffer,
            plain: &mut Buffer,
            _: &mut Vec<u8>,
        ) -> io::Result<()> {
            plain.extend_from_slice(wire.take_all());
            Ok(())
        }

        fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
            wire.extend_from_slice(plain);
            Ok(plain.len())
        }
    }

    #[test]
    fn i9_piece_of_a_file_for_a_layer_that_is_gone_is_nobody_elses() {
        let lp = Loop::new().expect("a loop");
        let (_client, socket) = lp.socket_pair().expect("a pair");
        let serve = |_: &mut Conn<'_>, _: &mut Buffer| Ok(());
        let handle = attach(&lp, socket, Settings::default(), serve).expect("a connection");
        let link = Hub::of(&lp).get(handle.key).expect("it is open");
        (0..2).for_each(|_| link.push_layer(&lp, Box::new(Plain)));
        let reading = || link.change().layers().expect("it has layers").reading;
        link.change().layers().expect("it has layers").reading = Reading::For(1);
        let fails = |_: &mut Layers, _: &mut Output, _: &mut Buffer| -> Result<(), Failure> {
            Err(Failure { index: 1, error: io::Error::other("worn out") })
        };
        assert!(link.with_layers(fails).is_none());
        assert_eq!(reading(), Reading::ForNobody, "the place is taken until the read has ended");
        let wanted = Wanted { index: 0, file: Handle::default(), offset: 0, count: 10 };
        assert!(!link.read_piece(&lp, &wanted), "one at a time");
        let (result, payload) = (Ok(Outcome::Count(1)), b"x".to_vec().into());
        link.take_piece(&lp, Finished { result, payload });
        assert_eq!(reading(), Reading::Nothing);
        let mut state = link.change();
        let lowest = &state.layers().expect("it has layers").stages[0];
        assert!(lowest.file_piece.is_empty(), "it got what was not for it");
    }
}
