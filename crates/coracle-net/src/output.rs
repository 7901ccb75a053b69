//! What waits to be sent on one connection, packet by packet.
//!
//! ```text
//!     in flight           front                                back
//!   ┌──────────────┐     ┌─────────┬─────────┬──────────────┐
//!   │ being sent   │ ◄── │ urgent  │ packet  │ packet       │ ◄── push
//!   └──────────────┘     └─────────┴─────────┴──────────────┘
//!                                  ▲ push_urgent: before everything that is not urgent and has not begun
//! ```
//!
//! A packet is what one `write` was given. It is never cut open: what is urgent goes between packets, not into
//! one. A short send puts the rest of its packets back to the front, where nothing overtakes them.

use crate::Conn;
use crate::packet::{Kind, Packet};
use coracle_loop::demux::{Handle, Memory, Payload};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

/// How many packets one send takes at most; the kernel is asked again for the rest.
const PACKETS_PER_SEND: usize = 64;

/// Small packets that wait one behind the other are put together up to this size.
const JOINED_BYTES: usize = 16 << 10;

/// From how many bytes on a connection leaves the rest for the next turn; so no send begins another packet behind
/// so many.
pub(crate) const BYTES_PER_TURN: usize = 1 << 20;

/// Something to be called when everything before it has been sent.
pub(crate) type Mark = Box<dyn FnOnce(&mut Conn<'_>) -> io::Result<()>>;

/// The queue of one connection, which has no memory while nothing waits and nothing is being sent.
#[derive(Default)]
pub(crate) struct Output(Option<Box<Queue>>);

#[derive(Default)]
struct Queue {
    packets: VecDeque<Packet>,
    /// How many packets at the front are not to be overtaken: what has begun, and what is urgent.
    fixed: u32,
    /// All bytes that wait, those in flight included.
    bytes: usize,
    /// Those of them that are in files.
    file_bytes: usize,
    /// A send is under way.
    in_flight: bool,
}

/// What is in front.
pub(crate) enum Front<'a> {
    Memory(&'a [u8]),
    File { file: Handle, offset: u64, count: usize },
    Mark,
}

/// What is to be done next.
pub(crate) enum Next {
    /// These bytes, which come back to [`Output::sent`].
    Memory(Payload),
    /// The same, with descriptors.
    Message { payload: Payload, descriptors: Vec<OwnedFd> },
    /// This stretch of a file.
    File { file: Handle, offset: u64, count: usize },
    /// Nothing to send: this is to be called.
    Mark(Mark),
}

impl Output {
    /// How many bytes wait, those being sent included.
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.bytes)
    }

    /// How many of them are in memory. What waits in files costs none.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.bytes - queue.file_bytes)
    }

    /// How many of them are in files.
    pub(crate) fn file_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.file_bytes)
    }

    /// Whether nothing waits and nothing is being sent.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|queue| queue.is_empty())
    }

    /// Whether a file waits right behind what is being sent.
    pub(crate) fn is_file_next(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|queue| matches!(queue.packets.front(), Some(Packet(Kind::File { .. }))))
    }

    /// Whether a mark is in front: everything before it has been sent, or is being sent.
    pub(crate) fn is_mark_next(&self) -> bool {
        matches!(self.front(), Some(Front::Mark))
    }

    /// Adds a packet at the end.
    pub(crate) fn push(&mut self, packet: Packet) {
        if !packet.is_empty() {
            self.queue().push(packet);
        }
    }

    /// Adds bytes at the end, to the last packet if that may grow: one send takes only so many packets.
    pub(crate) fn push_slice(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.queue().push_slice(bytes);
        }
    }

    /// Adds a packet that is older than all that wait: what was written while nothing did. If it has `begun` to be
    /// sent, nothing overtakes it.
    pub(crate) fn push_first(&mut self, packet: Packet, begun: bool) {
        if !packet.is_empty() {
            self.queue().push_first(packet, begun);
        }
    }

    /// Adds a packet before all that have not begun and are not urgent themselves.
    pub(crate) fn push_urgent(&mut self, packet: Packet) {
        if !packet.is_empty() {
            self.queue().push_urgent(packet);
        }
    }

    /// Adds a mark at the end.
    pub(crate) fn push_mark(&mut self, mark: Mark) {
        self.queue().packets.push_back(Packet(Kind::Mark(mark)));
    }

    /// The packet in front has begun, though nothing of it is gone: nothing overtakes it.
    pub(crate) fn begin_front(&mut self) {
        self.with(|queue| queue.begin_front());
    }

    /// Takes out what is to be done next, if nothing is being sent. What became of it is told by
    /// [`sent`](Output::sent) or [`sent_file`](Output::sent_file).
    pub(crate) fn next(&mut self) -> Option<Next> {
        self.with(|queue| queue.next())?
    }

    /// The same, with at most `limit` bytes. A packet that is longer is cut by copying its front.
    pub(crate) fn next_piece(&mut self, limit: usize) -> Option<Next> {
        self.with(|queue| queue.next_piece(limit))?
    }

    /// What is in front, for who takes it in pieces and sends it by another way.
    pub(crate) fn front(&self) -> Option<Front<'_>> {
        self.0.as_ref()?.front()
    }

    /// `taken` bytes of the packet in front went another way. It has begun: nothing overtakes the rest.
    pub(crate) fn consume(&mut self, taken: usize) {
        self.with(|queue| queue.consume(taken));
    }

    /// Takes out the mark in front, if one is.
    pub(crate) fn take_mark(&mut self) -> Option<Mark> {
        self.with(|queue| queue.take_mark())?
    }

    /// `count` bytes of `payload` were sent. The rest goes back to the front. Gives what is spent, which may be
    /// somebody's who wants to know: drop it when nothing is borrowed.
    pub(crate) fn sent(&mut self, payload: Payload, count: usize) -> Payload {
        let mut payload = Some(payload);
        let spent = self.with(|queue| queue.sent(payload.take().unwrap_or_default(), count));
        spent.or(payload).unwrap_or_default()
    }

    /// `count` bytes of the file in front were sent. False if it ended before it should have.
    pub(crate) fn sent_file(&mut self, count: usize) -> bool {
        let sent = self.with(|queue| queue.sent_file(count));
        sent.expect("the file in front was being sent")
    }

    /// All that waits, to be thrown away.
    pub(crate) fn into_packets(self) -> impl Iterator<Item = Packet> {
        self.0.into_iter().flat_map(|queue| queue.packets)
    }

    fn queue(&mut self) -> &mut Queue {
        self.0.get_or_insert_default()
    }

    /// Does something with the queue, if there is one, and gives its memory back if nothing is left of it.
    fn with<T>(&mut self, f: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        let queue = self.0.as_mut()?;
        let result = f(queue);
        if queue.is_empty() {
            self.0 = None;
        }
        Some(result)
    }
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.packets.is_empty() && !self.in_flight
    }

    fn push(&mut self, packet: Packet) {
        self.count(&packet);
        self.packets.push_back(packet);
    }

    fn push_slice(&mut self, bytes: &[u8]) {
        let may_grow = self.packets.len() > self.fixed as usize; // nothing of it has begun
        if may_grow
            && let Some(Packet(Kind::Memory(memory))) = self.packets.back_mut()
            && memory.append(bytes, JOINED_BYTES)
        {
            self.bytes += bytes.len();
        } else {
            self.push(bytes.into());
        }
    }

    fn push_first(&mut self, packet: Packet, begun: bool) {
        self.count(&packet);
        self.packets.push_front(packet);
        if begun || self.fixed > 0 {
            self.fixed += 1;
        }
    }

    fn push_urgent(&mut self, packet: Packet) {
        self.count(&packet);
        self.packets.insert(self.fixed as usize, packet);
        self.fixed += 1;
    }

    fn count(&mut self, packet: &Packet) {
        self.bytes += packet.len();
        if let Kind::File { count, .. } = packet.0 {
            self.file_bytes += count;
        }
    }

    fn begin_front(&mut self) {
        self.fixed = self.fixed.max(1);
    }

    fn next(&mut self) -> Option<Next> {
        if self.in_flight {
            return None;
        }
        let mut bytes = 0;
        let fits = |packet: &&Packet| {
            let fits = packet.is_memory() && bytes < BYTES_PER_TURN;
            bytes += packet.len();
            fits
        };
        let memories = self.packets.iter().take(PACKETS_PER_SEND).take_while(fits).count();
        let next = match memories {
            0 => match &self.packets.front()?.0 {
                &Kind::File { file, offset, count } => {
                    self.begin_front(); // it stays in front while it is sent
                    Next::File { file, offset, count: count.min(BYTES_PER_TURN) }
                }
                Kind::Descriptors { .. } => self.take_message(usize::MAX)?,
                _ => return self.take_mark().map(Next::Mark),
            },
            1 => Next::Memory(Payload::One(self.take_memory()?)),
            _ => Next::Memory(Payload::Many(
                (0..memories).map_while(|_| self.take_memory()).collect(),
            )),
        };
        self.in_flight = true;
        Some(next)
    }

    fn next_piece(&mut self, limit: usize) -> Option<Next> {
        if self.in_flight {
            return None;
        }
        let next = match &mut self.packets.front_mut()?.0 {
            Kind::Mark(_) => return self.take_mark().map(Next::Mark),
            &mut Kind::File { file, offset, count } => {
                self.begin_front();
                Next::File { file, offset, count: count.min(limit).min(BYTES_PER_TURN) }
            }
            Kind::Descriptors { .. } => self.take_message(limit)?,
            Kind::Memory(memory) if memory.len() <= limit => {
                Next::Memory(Payload::One(self.take_memory()?))
            }
            Kind::Memory(memory) => {
                let piece = memory.as_slice()[..limit].to_vec();
                memory.advance(limit);
                self.fixed = self.fixed.max(1); // it has begun
                Next::Memory(Payload::One(piece.into()))
            }
        };
        self.in_flight = true;
        Some(next)
    }

    fn front(&self) -> Option<Front<'_>> {
        Some(match &self.packets.front()?.0 {
            Kind::Memory(memory) | Kind::Descriptors { memory, .. } => {
                Front::Memory(memory.as_slice())
            }
            &Kind::File { file, offset, count } => Front::File { file, offset, count },
            Kind::Mark(_) => Front::Mark,
        })
    }

    fn consume(&mut self, taken: usize) {
        let Some(packet) = self.packets.front_mut() else { return };
        match &mut packet.0 {
            Kind::Memory(memory) | Kind::Descriptors { memory, .. } => memory.advance(taken),
            Kind::File { offset, count, .. } => {
                *offset += taken as u64;
                *count -= taken;
                self.file_bytes -= taken;
            }
            Kind::Mark(_) => return,
        }
        self.bytes -= taken;
        if packet.is_empty() {
            self.packets.pop_front();
            self.fixed = self.fixed.saturating_sub(1);
        } else {
            self.fixed = self.fixed.max(1);
        }
    }

    fn take_memory(&mut self) -> Option<Memory> {
        self.fixed = self.fixed.saturating_sub(1);
        match self.packets.pop_front()?.0 {
            Kind::Memory(memory) => Some(memory),
            Kind::Descriptors { .. } | Kind::File { .. } | Kind::Mark(_) => None,
        }
    }

    /// Takes out the descriptors in front, with at most `limit` of their bytes. The rest are bytes like others.
    fn take_message(&mut self, limit: usize) -> Option<Next> {
        self.fixed = self.fixed.saturating_sub(1);
        let Kind::Descriptors { mut memory, descriptors } = self.packets.pop_front()?.0 else {
            return None;
        };
        if memory.len() > limit {
            let piece = memory.as_slice()[..limit].to_vec();
            memory.advance(limit);
            self.packets.push_front(Packet(Kind::Memory(memory)));
            self.fixed += 1; // it has begun
            memory = piece.into();
        }
        Some(Next::Message { payload: Payload::One(memory), descriptors })
    }

    fn take_mark(&mut self) -> Option<Mark> {
        self.fixed = self.fixed.saturating_sub(1);
        match self.packets.pop_front()?.0 {
            Kind::Mark(mark) => Some(mark),
            Kind::Memory(_) | Kind::Descriptors { .. } | Kind::File { .. } => None,
        }
    }

    fn sent(&mut self, mut payload: Payload, count: usize) -> Payload {
        self.in_flight = false;
        self.bytes -= count;
        payload.advance(count);
        match payload {
            Payload::One(memory) if !memory.is_empty() => {
                self.push_rest(memory);
                Payload::Nothing
            }
            Payload::Many(mut list) => {
                let spent = list.iter().take_while(|memory| memory.is_empty()).count();
                list.drain(spent..).rev().for_each(|memory| self.push_rest(memory));
                Payload::Many(list)
            }
            spent => spent,
        }
    }

    fn push_rest(&mut self, memory: Memory) {
        self.packets.push_front(Packet(Kind::Memory(memory)));
        self.fixed += 1;
    }

    fn sent_file(&mut self, sent: usize) -> bool {
        self.in_flight = false;
        let Some(Packet(Kind::File { offset, count, .. })) = self.packets.front_mut() else {
            unreachable!("the file in front was being sent");
        };
        *offset += sent as u64;
        *count -= sent;
        self.bytes -= sent;
        self.file_bytes -= sent;
        let over = *count == 0;
        if over {
            self.packets.pop_front();
            self.fixed = self.fixed.saturating_sub(1);
        } else {
            self.fixed = self.fixed.max(1); // it has begun
        }
        over || sent > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use slotmap::Key;

    #[test]
    fn e4_file_that_is_being_sent_is_not_overtaken() {
        for paced in [false, true] {
            let mut output = Output::default();
            output.push(Packet::file(Handle::null(), 0, 100));
            let next = if paced { output.next_piece(10) } else { output.next() };
            assert!(matches!(next, Some(Next::File { .. })));
            output.push_urgent("urgent".into());
            assert!(output.sent_file(5), "it is the file that was being sent");
            assert_eq!((output.bytes(), output.memory_bytes()), (95 + 6, 6));
        }
    }

    fn text(output: &mut Output) -> String {
        let mut all = String::new();
        while let Some(next) = output.next() {
            let Next::Memory(payload) = next else { panic!("no files here") };
            let len = payload.len();
            let list = match &payload {
                Payload::One(memory) => vec![memory],
                Payload::Many(list) => list.iter().collect(),
                Payload::Nothing => vec![],
            };
            list.iter()
                .for_each(|memory| all.push_str(std::str::from_utf8(memory.as_slice()).unwrap()));
            output.sent(payload, len);
        }
        all
    }

    #[test]
    fn e8_file_is_sent_a_turn_at_a_time_whatever_the_rate() {
        let mut output = Output::default();
        output.push(Packet::file(Handle::null(), 0, 1 << 40));
        let next = output.next_piece(1 << 40);
        assert!(matches!(next, Some(Next::File { count: BYTES_PER_TURN, .. })));
    }

    #[test]
    fn i9_nothing_is_no_packet() {
        let mut output = Output::default();
        output.push_slice(b"");
        assert!(output.is_empty());
        output.push("some".into());
        output.consume(2);
        output.push_slice(b""); // behind one that has begun, and cannot grow
        output.consume(2);
        assert!(output.front().is_none());
    }

    #[test]
    fn e4_urgent_goes_between_packets_not_into_one() {
        let mut output = Output::default();
        output.push("first ".into());
        let Some(Next::Memory(payload)) = output.next() else { panic!("nothing to send") };
        output.push("second ".into());
        output.sent(payload, 2); // "fi"
        output.push_urgent("now! ".into());
        output.push_urgent("and this! ".into());
        assert_eq!(output.bytes(), "rst second now! and this! ".len());
        assert_eq!(text(&mut output), "rst now! and this! second ");
        assert!(output.is_empty() && output.bytes() == 0);
    }

    #[test]
    fn e2_one_send_is_in_flight_at_a_time() {
        let mut output = Output::default();
        output.push("one".into());
        let Some(Next::Memory(payload)) = output.next() else { panic!("nothing to send") };
        output.push("two".into());
        assert!(output.next().is_none());
        output.sent(payload, 3);
        assert_eq!(text(&mut output), "two");
    }

    #[test]
    fn e2_empty_packets_are_nothing() {
        let mut output = Output::default();
        output.push("".into());
        output.push_urgent("".into());
        assert!(output.is_empty() && output.next().is_none());
    }

    #[test]
    fn e8_pieces_are_cut_and_nothing_urgent_goes_into_a_packet() {
        let mut output = Output::default();
        output.push("packet ".into());
        output.push("next ".into());
        output.push(Packet::file(Handle::default(), 0, 100));
        let Some(Next::Memory(payload)) = output.next_piece(3) else { panic!("nothing to send") };
        assert_eq!((payload.len(), output.bytes()), (3, 112));
        assert!(output.next_piece(3).is_none(), "one at a time");
        output.sent(payload, 2); // "pa"
        output.push_urgent("now! ".into());
        let mut all = String::new();
        while let Some(Next::Memory(payload)) = output.next_piece(4) {
            let Payload::One(memory) = &payload else { panic!("one piece") };
            all.push_str(std::str::from_utf8(memory.as_slice()).unwrap());
            let len = payload.len();
            output.sent(payload, len);
        }
        assert_eq!(all, "cket now! next ");
        assert_eq!(output.bytes(), 100, "the file is in front, and in flight");
    }

    #[test]
    fn i9_packet_that_was_begun_is_not_overtaken() {
        let mut output = Output::default();
        output.push("one ".into());
        output.push(Packet::file(Handle::default(), 5, 10));
        output.consume(1);
        output.push_urgent("now ".into());
        assert!(matches!(output.front(), Some(Front::Memory(b"ne "))));
        output.consume(3);
        assert!(matches!(output.front(), Some(Front::Memory(b"now "))));
        output.consume(4);
        output.consume(4);
        assert!(matches!(output.front(), Some(Front::File { offset: 9, count: 6, .. })));
        assert_eq!(output.bytes(), 6);
        output.consume(6);
        assert!(output.is_empty() && output.front().is_none());
    }

    #[test]
    fn f6_descriptors_go_with_the_first_bytes_whatever_is_sent_short() {
        for limit in [1, 3, usize::MAX] {
            let mut output = Output::default();
            let file = std::fs::File::open("/dev/null").unwrap();
            output.push("before ".into());
            output.push(Packet::descriptors("with them", vec![file.into()]));
            output.push(" after".into());
            assert_eq!((output.bytes(), output.memory_bytes()), (22, 22));
            let (mut all, mut passed) = (String::new(), Vec::new());
            while let Some(next) = output.next_piece(limit) {
                let payload = match next {
                    Next::Memory(payload) => payload,
                    Next::Message { payload, descriptors } => {
                        passed.push((all.len(), descriptors.len()));
                        payload
                    }
                    Next::File { .. } | Next::Mark(_) => panic!("there is none"),
                };
                output.push_urgent("".into());
                let Payload::One(memory) = &payload else { panic!("one piece") };
                let short = memory.len().div_ceil(2);
                all.push_str(std::str::from_utf8(&memory.as_slice()[..short]).unwrap());
                output.sent(payload, short);
            }
            assert_eq!(all, "before with them after");
            assert_eq!(passed, [(7, 1)], "with the first byte of theirs");
        }
    }

    #[test]
    fn e2_file_that_ends_early_is_noticed() {
        let mut output = Output::default();
        output.push(Packet::file(Handle::default(), 10, 100));
        output.push("behind".into());
        assert!(matches!(output.next(), Some(Next::File { offset: 10, count: 100, .. })));
        assert!(output.sent_file(60));
        output.push_urgent("between".into());
        assert!(matches!(output.next(), Some(Next::File { offset: 70, count: 40, .. })));
        assert!(!output.sent_file(0), "nothing more is in the file");
        assert!(matches!(output.next(), Some(Next::File { count: 40, .. })));
        assert!(output.sent_file(40));
        assert_eq!(text(&mut output), "betweenbehind");
    }

    proptest! {
        /// Whatever is sent short, nothing is lost, doubled or reordered, and every byte is counted.
        #[test]
        fn e1_short_sends_lose_nothing(
            steps in proptest::collection::vec((0..40usize, 0..200usize), 1..100),
        ) {
            let (mut output, mut expected, mut sent) = (Output::default(), Vec::new(), Vec::new());
            for (write, send) in steps {
                let bytes: Vec<u8> = (0..write).map(|at| (expected.len() + at) as u8).collect();
                expected.extend_from_slice(&bytes);
                output.push(bytes.into());
                let Some(Next::Memory(payload)) = output.next() else { continue };
                let count = send.min(payload.len());
                let mut all = Vec::new();
                match &payload {
                    Payload::One(memory) => all.extend_from_slice(memory.as_slice()),
                    Payload::Many(list) => list.iter().for_each(|it| all.extend_from_slice(it.as_slice())),
                    Payload::Nothing => {}
                }
                sent.extend_from_slice(&all[..count]);
                output.sent(payload, count);
                prop_assert_eq!(output.bytes(), expected.len() - sent.len());
            }
            while let Some(Next::Memory(payload)) = output.next() {
                match &payload {
                    Payload::One(memory) => sent.extend_from_slice(memory.as_slice()),
                    Payload::Many(list) => list.iter().for_each(|it| sent.extend_from_slice(it.as_slice())),
                    Payload::Nothing => {}
                }
                let len = payload.len();
                output.sent(payload, len);
            }
            prop_assert_eq!(sent, expected);
        }
    }
}
