//! A piece of an answer, counted until it is in frames.
//!
//! What `h2` is given it keeps until the client's windows let it pass, which may be never. So it is counted here
//! what still waits for them, and how long.

use crate::Settings;
use bytes::{Buf, Bytes};
use std::cell::Cell;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

pub(super) struct Piece {
    bytes: Bytes,
    unsent: Rc<Unsent>,
}

/// What `h2` has of one answer and has not put into frames.
pub(super) struct Unsent {
    bytes: Cell<usize>,
    /// When the last of them came.
    since: Cell<Instant>,
    /// When the client is late, if it has not taken them by then.
    deadline: Cell<Instant>,
    /// Who waits until there are none, to give it more.
    feeder: Cell<Option<Waker>>,
}

impl Unsent {
    pub(super) fn new(now: Instant) -> Rc<Unsent> {
        let (since, deadline) = (Cell::new(now), Cell::new(now));
        Rc::new(Unsent { bytes: Cell::new(0), since, deadline, feeder: Cell::new(None) })
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

    /// The client does not get them any more; `h2` has so long to throw them away.
    pub(super) fn begin_anew(&self, now: Instant, settings: &Settings) {
        self.since.set(now);
        self.deadline.set(now + settings.write_timeout);
    }

    /// Has somebody woken when there are none.
    pub(super) fn set_feeder(&self, feeder: &Waker) {
        self.feeder.set(Some(feeder.clone()));
    }

    fn count_off(&self, count: usize) {
        self.bytes.set(self.bytes.get() - count);
        if self.is_empty()
            && let Some(feeder) = self.feeder.take()
        {
            feeder.wake();
        }
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
        self.unsent.count_off(count);
    }
}

impl Drop for Piece {
    /// It is in frames, or thrown away. That happens deep in `h2`, which must not be touched here: so it is
    /// counted and no more.
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.unsent.count_off(self.bytes.len());
        }
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
