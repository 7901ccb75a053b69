//! Who is told that hyper's connection has something to do.
//!
//! ```text
//!   idle ──wake──► (the driver is woken)      polled ──wake──► again: it is polled once more, by who polls it
//! ```
//!
//! A connection is polled by whoever has brought bytes for it, or by its driver, a future of the loop. What wakes
//! it while it is polled is mostly what it does itself: that need not cost the driver a turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Wake, Waker};

const IDLE: u8 = 0;
const POLLED: u8 = 1;
const AGAIN: u8 = 2;

pub(super) struct Notice {
    driver: Waker,
    state: AtomicU8,
}

impl Notice {
    pub(super) fn new(driver: Waker) -> Arc<Notice> {
        Arc::new(Notice { driver, state: AtomicU8::new(IDLE) })
    }

    /// It is polled from now on.
    pub(super) fn begin(&self) {
        self.state.store(POLLED, Ordering::Release);
    }

    /// It was polled. True if it was woken meanwhile: then it is to be polled again.
    pub(super) fn is_woken(&self) -> bool {
        let ended = self.state.compare_exchange(POLLED, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if ended.is_err() {
            self.begin();
        }
        ended.is_err()
    }

    /// It is not polled any more, although it may have been woken.
    pub(super) fn put_off(&self) {
        self.state.store(IDLE, Ordering::Release);
        self.driver.wake_by_ref();
    }
}

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.state.load(Ordering::Acquire);
        while state == POLLED {
            let noted =
                self.state.compare_exchange(POLLED, AGAIN, Ordering::AcqRel, Ordering::Acquire);
            match noted {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
        if state == IDLE {
            self.driver.wake_by_ref();
        }
    }
}
