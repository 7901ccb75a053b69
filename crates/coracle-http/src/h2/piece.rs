//! A piece of an answer, counted until it is in frames.
//!
//! Hyper is done with a request when it has handed on the last piece of its answer, of which the client's windows
//! need let no more than a byte pass. So it is counted here what still waits for them, and how long.

use crate::Settings;
use bytes::{Buf, Bytes};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

pub(super) struct Piece {
    bytes: Bytes,
    unsent: Rc<Unsent>,
}

/// What hyper has of one answer and has not put into frames.
pub(super) struct Unsent {
    bytes: Cell<usize>,
    /// When the last of them came.
    since: Cell<Instant>,
    /// When the client is late, if it has not taken them by then.
    deadline: Cell<Instant>,
}

impl Unsent {
    pub(super) fn new(now: Instant) -> Rc<Unsent> {
        Rc::new(Unsent { bytes: Cell::new(0), since: Cell::new(now), deadline: Cell::new(now) })
    }

    /// The next piece. It gives the client the time that it takes at the least rate, and no more: else one that
    /// takes nothing would never be late while there is something new for it.
    pub(super) fn piece(self: &Rc<Self>, bytes: Bytes, now: Instant, settings: &Settings) -> Piece {
        let before = self.bytes.replace(self.bytes.get() + bytes.len());
        self.since.set(now);
        let mut deadline = now + settings.write_timeout + earned(self.bytes.get(), settings);
        if before > 0 {
            let more = self.deadline.get() + earned(bytes.len(), settings);
            deadline = deadline.min(more);
        }
        self.deadline.set(deadline);
        Piece { bytes, unsent: Rc::clone(self) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.get() == 0
    }

    pub(super) fn is_late(&self, now: Instant) -> bool {
        !self.is_empty() && now >= self.deadline.get()
    }

    /// The client could not take any for so long, which is not its time; but it has no more in all than it may
    /// take for the bytes `ahead` of them, and for as many as these of each who has a share in the connection.
    pub(super) fn put_off(
        &self,
        blocked: Duration,
        ahead: usize,
        sharers: usize,
        settings: &Settings,
    ) {
        let all = earned(ahead + sharers * self.bytes.get(), settings);
        let last = self.since.get() + settings.write_timeout + all;
        let deadline = (self.deadline.get() + blocked).min(last);
        self.deadline.set(deadline.max(self.deadline.get()));
    }
}

/// How long a client may take for so many bytes.
fn earned(bytes: usize, settings: &Settings) -> Duration {
    Duration::from_millis(bytes as u64 * 1000 / u64::from(settings.min_send_rate))
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.unsent.bytes.set(self.unsent.bytes.get() - count);
    }
}

impl Drop for Piece {
    /// It is in frames, or thrown away. That happens deep in hyper's connection, so it is counted and no more.
    fn drop(&mut self) {
        self.unsent.bytes.set(self.unsent.bytes.get() - self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn j13_pieces_are_counted_until_they_are_gone() {
        let (now, settings) = (Instant::now(), Settings::default());
        let unsent = Unsent::new(now);
        let mut first = unsent.piece(Bytes::from_static(b"ahoy"), now, &settings);
        let second = unsent.piece(Bytes::from_static(b"!"), now, &settings);
        first.advance(4);
        drop(first);
        assert!(!unsent.is_empty());
        drop(second);
        assert!(unsent.is_empty() && !unsent.is_late(now + settings.write_timeout * 2));
    }

    #[test]
    fn j13_more_of_an_answer_gives_no_more_time_than_it_takes() {
        let settings =
            Settings { write_timeout: 30 * SECOND, min_send_rate: 100, ..Settings::default() };
        let begin = Instant::now();
        let unsent = Unsent::new(begin);
        let mut pieces = Vec::new();
        for second in 0..20 {
            pieces.push(unsent.piece(vec![0; 10].into(), begin + second * SECOND, &settings));
        }
        assert!(!unsent.is_late(begin + 31 * SECOND));
        assert!(unsent.is_late(begin + 32 * SECOND));
        // While there is no room, it has more; but not for ever.
        unsent.put_off(10 * SECOND, 10_000, 2, &settings);
        assert!(!unsent.is_late(begin + 41 * SECOND) && unsent.is_late(begin + 42 * SECOND));
        for _ in 0..100 {
            unsent.put_off(10 * SECOND, 10_000, 2, &settings);
        }
        let last = begin + (19 + 30 + 104) * SECOND;
        assert!(!unsent.is_late(last - SECOND) && unsent.is_late(last));
        // Who has taken everything begins anew; and who takes much does not save up time.
        pieces.clear();
        let begin = begin + 100 * SECOND;
        for _ in 0..100 {
            pieces.push(unsent.piece(vec![0; 10_000].into(), begin, &settings));
            pieces.drain(..pieces.len() - 1);
        }
        assert!(!unsent.is_late(begin + 129 * SECOND));
        assert!(unsent.is_late(begin + 231 * SECOND));
    }
}
