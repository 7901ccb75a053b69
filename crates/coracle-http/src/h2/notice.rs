//! Who is told that a stream has something to do, and with it its connection.
//!
//! ```text
//!   h2 ──wake──► a stream's place is noted ──► polled: whoever polls looks at them when it is through
//!                                         └──► idle: the driver is woken, which polls
//! ```
//!
//! A connection is polled by whoever has brought bytes for it, or by its driver, a future of the loop. What wakes
//! its streams is mostly what came with these bytes: that need not cost the driver a turn.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

pub(super) struct Notice {
    driver: Waker,
    /// It is polled at this moment.
    polled: AtomicBool,
    /// The places of streams that were woken, in that order.
    woken: Mutex<VecDeque<usize>>,
}

/// The waker of the stream that is at a place of its connection.
struct Place {
    notice: Arc<Notice>,
    number: usize,
}

impl Notice {
    pub(super) fn new(driver: Waker) -> Arc<Notice> {
        Arc::new(Notice { driver, polled: AtomicBool::new(false), woken: Mutex::default() })
    }

    /// Who wakes the stream at this place.
    pub(super) fn waker_of(self: &Arc<Self>, number: usize) -> Waker {
        Waker::from(Arc::new(Place { notice: Arc::clone(self), number }))
    }

    /// It is polled from now on.
    pub(super) fn begin(&self) {
        self.polled.store(true, Ordering::Release);
    }

    pub(super) fn is_polled(&self) -> bool {
        self.polled.load(Ordering::Acquire)
    }

    /// It was polled: the driver goes on, if there is more to do.
    pub(super) fn end(&self, is_more: bool) {
        self.polled.store(false, Ordering::Release);
        if is_more || self.is_woken() {
            self.wake_driver();
        }
    }

    pub(super) fn is_woken(&self) -> bool {
        !self.woken().is_empty()
    }

    /// The next stream that was woken.
    pub(super) fn take_woken(&self) -> Option<usize> {
        self.woken().pop_front()
    }

    pub(super) fn wake_driver(&self) {
        self.driver.wake_by_ref();
    }

    fn woken(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Place {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let notice = &self.notice;
        let mut woken = notice.woken();
        if !woken.contains(&self.number) {
            woken.push_back(self.number);
        }
        drop(woken);
        if !notice.is_polled() {
            notice.wake_driver();
        }
    }
}
