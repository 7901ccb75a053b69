//! How long a request may take in all: from the first byte of its head until its answer is with the kernel.
//!
//! Requests that came together are begun one after the other and their answers may wait together, so a connection
//! has a list of them, and one timer for the first.

use super::{Phase, Shared};
use crate::Status;
use crate::h1::Refusal;
use coracle_loop::{Loop, Timer};
use coracle_net::Conn;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Requests that have begun, and whose answers are not sent.
#[derive(Default)]
pub(super) struct Total {
    /// When each of them is late.
    deadlines: RefCell<VecDeque<Instant>>,
    timer: Cell<Option<Timer>>,
}

impl Total {
    /// The answer to the first is sent.
    pub(super) fn end_first(&self) {
        self.deadlines.borrow_mut().pop_front();
    }
}

impl Drop for Total {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            timer.cancel();
        }
    }
}

impl Shared {
    /// A request begins; it may take so long.
    pub(super) fn begin_total(self: &Rc<Self>, conn: &Conn<'_>, timeout: Duration) {
        let total = self.with_rare(|rare| Rc::clone(rare.total.get_or_insert_default()));
        total.deadlines.borrow_mut().push_back(conn.lp().now() + timeout);
        match total.timer.take() {
            None => self.set_total_timer(conn.lp(), &total, timeout),
            timer => total.timer.set(timer),
        }
    }

    fn set_total_timer(self: &Rc<Self>, lp: &Loop, total: &Total, left: Duration) {
        let shared = Rc::downgrade(self);
        let timer = lp.after(left, move |lp| {
            if let Some(shared) = shared.upgrade() {
                shared.look_at_total(lp);
            }
        });
        total.timer.set(Some(timer));
    }

    /// The first request may be late, or another one is the first by now.
    fn look_at_total(self: &Rc<Self>, lp: &Loop) {
        let Some(total) = self.if_rare(|rare| rare.total.clone()).flatten() else { return };
        total.timer.set(None);
        let (first, count) = {
            let deadlines = total.deadlines.borrow();
            (deadlines.front().copied(), deadlines.len())
        };
        let Some(deadline) = first else { return };
        let left = deadline.saturating_duration_since(lp.now());
        if !left.is_zero() {
            return self.set_total_timer(lp, &total, left);
        }
        let _ = self
            .handle
            .get()
            .and_then(|handle| handle.with(lp, |conn| self.end_late_request(conn, count == 1)));
    }

    /// A request takes too long; `is_last`: it is the one that is being received, if any is.
    fn end_late_request(&self, conn: &mut Conn<'_>, is_last: bool) {
        const LATE: Refusal = Refusal::new(Status::REQUEST_TIMEOUT, "the request took too long");
        match self.phase.get() {
            Phase::Head if is_last && self.seen.get() > 0 => {
                self.site.stats.count_timed_out();
                self.refuse(conn, None, LATE);
            }
            Phase::Body if is_last => {
                self.site.stats.count_timed_out();
                let exchange = self.exchange.take();
                self.refuse(conn, exchange, LATE);
            }
            Phase::Switched => {}
            // Its answer is not there, or is not taken.
            Phase::Head | Phase::Body | Phase::Running | Phase::Sending | Phase::Closing => {
                self.cut(conn);
            }
        }
    }
}
