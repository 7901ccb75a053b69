//! tokio-util's `DelayQueue`, on a runtime whose clock stands still until `expire` moves it.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use tokio::runtime::{Builder, Runtime};
use tokio::task::unconstrained;
use tokio::time::{advance, pause};
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use super::Timers;

pub(super) struct Delays {
    queue: DelayQueue<u64>,
    runtime: Runtime,
    /// The runtime's clock at the caller's `now`.
    start: tokio::time::Instant,
    now: Instant,
}

impl Delays {
    fn runtime_time(&self, instant: Instant) -> tokio::time::Instant {
        self.start + (instant - self.now)
    }
}

impl Timers for Delays {
    type Id = Key;
    type Idle = Key;

    fn new(now: Instant) -> Delays {
        let runtime =
            Builder::new_current_thread().enable_time().build().expect("a runtime starts");
        let start = runtime.block_on(async {
            pause();
            tokio::time::Instant::now()
        });
        Delays { queue: DelayQueue::new(), runtime, start, now }
    }

    fn add(&mut self, deadline: Instant, value: u64) -> Key {
        let deadline = self.runtime_time(deadline);
        let _context = self.runtime.enter();
        self.queue.insert_at(value, deadline)
    }

    fn cancel(&mut self, id: Key) -> Option<u64> {
        let _context = self.runtime.enter();
        self.queue.try_remove(&id).map(|expired| expired.into_inner())
    }

    fn rearm(&mut self, id: &mut Key, deadline: Instant) {
        let deadline = self.runtime_time(deadline);
        let _context = self.runtime.enter();
        self.queue.reset_at(id, deadline);
    }

    fn add_idle(&mut self, deadline: Instant) -> Key {
        self.add(deadline, 0)
    }

    fn touch(&mut self, idle: &mut Key, deadline: Instant) {
        self.rearm(idle, deadline);
    }

    fn expire(&mut self, now: Instant) -> usize {
        let target = self.runtime_time(now);
        let queue = &mut self.queue;
        self.runtime.block_on(async move {
            advance(target - tokio::time::Instant::now()).await;
            let mut expired = 0;
            let take_all = poll_fn(|context| {
                while let Poll::Ready(Some(value)) = queue.poll_expired(context) {
                    std::hint::black_box(value.into_inner());
                    expired += 1;
                }
                Poll::Ready(())
            });
            // Without this, tokio's budget would stop us after some hundred timers.
            unconstrained(take_all).await;
            expired
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn timers_expire_once_and_in_time() {
        super::super::check::<super::Delays>();
    }
}
