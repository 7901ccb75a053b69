//! Receiving for many before the first of them is told: a turn is three short loops, and not a long one.
//!
//! ```text
//!   events ──► recv, recv, recv … ──► told one by one: callbacks, coroutines ──► send, send, send …
//!              └──── gather ────┘                                               └ [carrier] ─────┘
//! ```
//!
//! A message that is received, worked on and answered before the next costs a server on epoll about a fifth more:
//! kernel and program take each other's code out of the processor's cache, and its predictions of where
//! functions return to (docs/benchmarks/returns.md). So each does the same for up to [`LIMIT_GATHERED`] of them.
//!
//! What was received is told, even if the operation is cancelled or its descriptor closed before: as on
//! io_uring, where the kernel gathers. It is told before their end. Until then nobody else may receive from that
//! descriptor: those above have lines for that.

use super::work::Received;
use super::{Adaptor, Poller, READER, Slot};
use crate::descriptor::Kind;
use crate::landing::{Arrival, Awaited, Landed};
use crate::lent::{LentPool, Spare};
use crate::memory::Payload;
use crate::operation::{Completion, Handle, Outcome, Readiness, Token};
use slotmap::KeyData;
use std::collections::VecDeque;
use std::rc::Rc;

/// From how many is received before the first is told.
const LIMIT_GATHERED: usize = 32;

/// How much is received before that, about: it stays in the cache.
const LIMIT_GATHERED_BYTES: usize = 64 << 10;

/// Size of a buffer. Whoever fills one has much to say, and is not gathered, but received from into a large one.
/// It is not quite a power of two, for buffers that begin at the same place of their pages share few lines of
/// the processor's cache.
const BUFFER_BYTES: u32 = 4096 + 3 * 64;

/// After so many large buffers in a row that were not needed, a descriptor is gathered again. One would not do: a
/// message of a buffer and a half would be received in two pieces each time.
const UNNEEDED: u8 = 2;

/// Buffers for lent receives: as many may be kept by callbacks as are filled at a time.
const BUFFERS: u16 = 2 * LIMIT_GATHERED as u16;

/// What was received, and not told yet.
pub(super) struct Gathered {
    pool: Rc<LentPool>,
    news: VecDeque<News>,
}

enum News {
    /// So many bytes for a lent receive.
    Lent { token: Token, spare: Spare, count: usize },
    /// What is to land at who awaits it.
    Landed { handle: Handle, awaited: Awaited, landed: Landed },
}

impl Gathered {
    pub(super) fn new() -> Gathered {
        let pool = LentPool::new(BUFFERS, BUFFER_BYTES);
        (0..BUFFERS).rev().for_each(|id| pool.give_back(id));
        Gathered { pool, news: VecDeque::with_capacity(LIMIT_GATHERED) }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.news.is_empty()
    }

    /// Whether something is to land that was received from this descriptor.
    pub(super) fn is_landing(&self, descriptor: Handle) -> bool {
        let is_landing =
            |news: &News| matches!(news, News::Landed { handle, .. } if *handle == descriptor);
        self.news.iter().any(is_landing)
    }
}

impl Slot {
    /// Whether it only waits to receive, and that can be gathered: not a message, which would be cut, nor more
    /// than is small.
    #[inline]
    fn is_gathered(&self) -> bool {
        let small = self.lent && self.kind == Kind::Tcp && self.bulky == 0;
        let receives = self.receive.is_some() || small;
        receives && self.writer.is_none() && self.polls.is_empty() && self.left.is_none()
    }

    /// Notes how much of a large buffer was needed.
    pub(super) fn note_large(&mut self, count: usize) {
        let needed = count >= BUFFER_BYTES as usize;
        self.bulky = if needed { UNNEEDED } else { self.bulky.saturating_sub(1) };
    }
}

impl<P: Poller> Adaptor<P> {
    /// Receives for the next in line, until there is enough to tell; whoever waits for something else is put in
    /// line, or stays there.
    #[inline(never)]
    pub(super) fn gather(&mut self) {
        self.hand_over();
        if self.gathered.pool.is_scarce() {
            return self.queue_events(); // one at a time, by large buffers and copies
        }
        let mut bytes = 0;
        while self.gathered.news.len() < LIMIT_GATHERED && bytes < LIMIT_GATHERED_BYTES {
            let Some(handle) = self.next_gathered() else { return };
            let slot = &mut self.slots[handle];
            if slot.receive.is_some() {
                if let Some((awaited, landed)) = slot.receive_awaited::<P>() {
                    bytes += if let Landed::Count(count) = landed { count } else { 0 };
                    self.gathered.news.push_back(News::Landed { handle, awaited, landed });
                }
            } else if let Some(token) = slot.reader {
                match slot.receive_lent::<P>(&self.gathered.pool) {
                    Received::Bytes(spare, count) => {
                        bytes += count;
                        if count == self.gathered.pool.size() {
                            slot.bulky = UNNEEDED;
                        }
                        if slot.ready.intersects(READER) {
                            self.run_again(handle);
                        }
                        self.gathered.news.push_back(News::Lent { token, spare, count });
                    }
                    Received::Nothing => {}
                    Received::End(result) => self.finish(token, result),
                }
            }
        }
    }

    /// The next descriptor that is ready to be received from, if no other comes before it.
    #[inline(always)]
    fn next_gathered(&mut self) -> Option<Handle> {
        while let Some((key, ready)) = self.poller.next_event() {
            let handle = Handle::from(KeyData::from_ffi(key));
            match self.slots.get_mut(handle) {
                Some(slot) if ready.intersects(READER) && slot.is_gathered() => {
                    slot.ready |= ready;
                    return Some(handle);
                }
                _ => self.queue_event(key, ready),
            }
        }
        let &handle = self.runnable.front()?;
        let slot = self.slots.get_mut(handle)?;
        if !slot.ready.intersects(READER) || !slot.is_gathered() {
            return None;
        }
        slot.queued = false;
        self.runnable.pop_front()
    }

    #[cold]
    fn queue_event(&mut self, key: u64, ready: Readiness) {
        if let Some(handle) = self.note(key, ready) {
            self.enqueue(handle);
        }
    }

    /// The next that was gathered.
    #[inline]
    pub(super) fn tell_gathered(&mut self) -> Option<Arrival> {
        Some(match self.gathered.news.pop_front()? {
            News::Lent { token, spare, count } => {
                let result = Ok(Outcome::Lent(self.gathered.pool.lend(spare, count)));
                let payload = Payload::Nothing;
                Arrival::Completion(Completion { token, more: true, result, payload })
            }
            News::Landed { awaited, landed, .. } => {
                self.awaited -= 1;
                awaited.land(landed);
                Arrival::Landed(awaited)
            }
        })
    }
}
