//! One bound for all that waits in the buffers of many connections.
//!
//! ```text
//!   MemoryLimit   what all loops have drawn together: one number, which all of them write
//!       ▲ a step at a time, there and back
//!   Share         what one service has waiting on one loop: exact, and nobody else's
//!       ▲ when it changes
//!   connection    unread input, unsent output
//! ```
//!
//! A message that is read and answered at once never waits, and is never counted: a peer that keeps up costs
//! nothing here.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much a loop draws at once, at most. Half of it lies idle on average.
const STEP_BYTES: usize = 64 << 10;

/// Into how many steps a small limit is divided at least.
const STEPS: usize = 256;

/// How many bytes may wait in the buffers of connections together: received and not read, or written and not
/// sent. Clones are the same limit. Any thread.
///
/// A [`Server`](crate::Server) has one for all its loops
/// ([`limit_memory_bytes`](crate::Server::limit_memory_bytes)); connections of loops of your own get one by
/// [`Settings::limit_memory`](crate::Settings::limit_memory).
///
/// When there is no room, the connection that has more to keep ends
/// ([`Reason::MemoryLimit`](crate::Reason::MemoryLimit)), and new ones are turned away like those over
/// [`limit_connections`](crate::Settings::limit_connections).
///
/// ```
/// use coracle_net::{MemoryLimit, Settings};
///
/// let limit = MemoryLimit::new(256 << 20);
/// let web = Settings { limit_memory: Some(limit.clone()), ..Settings::default() };
/// let chat = Settings { limit_memory: Some(limit.clone()), ..Settings::default() };
/// # drop((web, chat));
/// assert_eq!(limit.used_bytes(), 0);
/// ```
///
/// Bytes that several connections share (`Bytes`) count for each of them; files do not count. Buffers of the
/// kernel's are the kernel's, see [`ListenOptions`](crate::ListenOptions).
#[derive(Debug, Clone)]
pub struct MemoryLimit {
    all: Arc<All>,
}

#[derive(Debug)]
struct All {
    limit: usize,
    step: usize,
    used: AtomicUsize,
}

impl MemoryLimit {
    /// So many bytes, for whoever is given a clone.
    pub fn new(bytes: usize) -> MemoryLimit {
        let step = (bytes / STEPS).clamp(1, STEP_BYTES);
        MemoryLimit { all: Arc::new(All { limit: bytes, step, used: AtomicUsize::new(0) }) }
    }

    /// How many bytes wait; rounded up by at most 128 KiB for each service and loop.
    pub fn used_bytes(&self) -> usize {
        self.all.used.load(Ordering::Relaxed)
    }

    /// Whether there is no room for one more step.
    fn is_full(&self) -> bool {
        self.used_bytes() + self.all.step > self.all.limit
    }

    /// Draws so many bytes, or none.
    fn draw(&self, bytes: usize) -> bool {
        let room = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.all.limit);
        self.all.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.all.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What one service has drawn on one loop. Nothing is counted where there is no limit.
#[derive(Debug)]
pub(crate) struct Share {
    limit: Option<MemoryLimit>,
    /// What its connections have waiting.
    counted: Cell<usize>,
    /// What was drawn for that, and a little more.
    drawn: Cell<usize>,
}

impl Share {
    pub(crate) fn new(limit: Option<MemoryLimit>) -> Share {
        Share { limit, counted: Cell::new(0), drawn: Cell::new(0) }
    }

    /// A connection that had `before` bytes waiting has `now`. False if there is no room for them: then they are
    /// not counted.
    pub(crate) fn change(&self, before: usize, now: usize) -> bool {
        let Some(limit) = self.limit.as_ref().filter(|_| before != now) else { return true };
        let drawn = self.drawn.get();
        let counted = self.counted.get() - before + now;
        // Who has little draws little: there may be many services, of one connection each.
        let step = limit.all.step.min(counted.next_power_of_two());
        let needed = counted.next_multiple_of(step);
        if counted > drawn {
            // A whole step, or what is left of the last one.
            let drawn = [needed, counted].into_iter().find(|more| limit.draw(more - drawn));
            let Some(drawn) = drawn else { return false };
            self.drawn.set(drawn);
        } else if needed + 2 * step <= drawn {
            limit.give_back(drawn - needed);
            self.drawn.set(needed);
        }
        self.counted.set(counted);
        true
    }

    /// Whether there is no room for what another connection would bring.
    pub(crate) fn is_full(&self) -> bool {
        self.limit.as_ref().is_some_and(MemoryLimit::is_full)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        debug_assert_eq!(self.counted.get(), 0, "connections go before their service");
        if let Some(limit) = &self.limit {
            limit.give_back(self.drawn.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn e11_last_bytes_of_a_limit_can_be_used() {
        let limit = MemoryLimit::new(1000); // steps of 3 bytes
        let share = Share::new(Some(limit.clone()));
        assert!(share.change(0, 1000));
        assert!(share.is_full() && !share.change(0, 1));
        assert!(share.change(1000, 400) && !share.is_full());
        assert!(share.change(400, 0));
        drop(share);
        assert_eq!(limit.used_bytes(), 0, "a loop that is gone keeps nothing");
    }

    #[test]
    fn e11_services_with_little_leave_the_rest_to_others() {
        let limit = MemoryLimit::new(1 << 20); // steps of 4 KiB
        let shares: Vec<Share> = (0..1000).map(|_| Share::new(Some(limit.clone()))).collect();
        assert!(shares.iter().all(|share| share.change(0, 100)));
        assert!(limit.used_bytes() < 1000 * 200 && !shares[0].is_full());
        assert!(shares.iter().all(|share| share.change(100, 0)));
        assert_eq!(limit.used_bytes(), 0);
    }

    proptest! {
        /// Two loops that count at will: what is drawn covers what is counted, and not much more.
        #[test]
        fn e11_what_is_drawn_covers_what_is_counted(
            bytes in 0_usize..5000,
            changes in prop::collection::vec((0_usize..4, 0_usize..3000), 0..200),
        ) {
            let limit = MemoryLimit::new(bytes);
            let shares = [(); 2].map(|()| Share::new(Some(limit.clone())));
            let mut held = [0; 4]; // two connections of each
            for (who, now) in changes {
                let fits = held.iter().sum::<usize>() - held[who] + now <= bytes;
                let taken = shares[who / 2].change(held[who], now);
                prop_assert!(fits || !taken, "more than there is");
                prop_assert!(taken || now > held[who], "less always fits");
                if taken {
                    held[who] = now;
                }
                let sum: usize = held.iter().sum();
                prop_assert!((sum..=bytes).contains(&limit.used_bytes()));
                prop_assert!(limit.used_bytes() < sum + 2 * 3 * limit.all.step);
            }
            for (who, held) in held.into_iter().enumerate() {
                prop_assert!(shares[who / 2].change(held, 0));
            }
        }
    }
}
