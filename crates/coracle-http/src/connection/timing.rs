//! What takes too long on a connection.
//!
//! A connection has one timer, which begins anew with everything that is received. While a head or a body is
//! awaited it is set to what is left of their time; otherwise it is only looked at from time to time.

use super::{Phase, Shared};
use crate::Status;
use crate::h1::Refusal;
use coracle_net::Conn;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

impl Shared {
    /// When a body is too late that began then, and of which so much has come.
    pub(super) fn body_deadline(&self, since: Instant, received: u64) -> Instant {
        let settings = &self.site.settings;
        let earned = received / u64::from(settings.min_body_rate);
        since + settings.body_timeout + Duration::from_secs(earned)
    }

    /// Has the clock looked at then, and not later. False, for those who end with it.
    pub(super) fn arm(&self, conn: &mut Conn<'_>, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(conn.lp().now());
        self.armed.set(true);
        conn.set_idle_timeout(Some(left.max(Duration::from_millis(1))));
        false
    }

    #[inline]
    pub(super) fn disarm(&self, conn: &mut Conn<'_>) {
        if self.armed.replace(false) {
            conn.set_idle_timeout(Some(self.site.settings.first_timeout()));
        }
    }

    /// Some time has passed: whether that was too long.
    pub(super) fn look_at_the_clock(self: &Rc<Self>, conn: &mut Conn<'_>) {
        const HEAD_LATE: Refusal =
            Refusal::new(Status::REQUEST_TIMEOUT, "the header did not come in time");
        const BODY_LATE: Refusal =
            Refusal::new(Status::REQUEST_TIMEOUT, "the body did not come in time");
        if !self.takes_enough(conn) {
            self.site.stats.count_timed_out();
            return conn.abort();
        }
        let (now, settings) = (conn.lp().now(), &self.site.settings);
        let late = |deadline: Instant| now >= deadline;
        match self.phase.get() {
            Phase::Head => {
                let begun = self.seen.get() > 0;
                let patience = match begun || self.requests.get() == 0 {
                    true => settings.header_timeout,
                    false => settings.idle_timeout,
                };
                let deadline = self.since.get() + patience;
                if !late(deadline) {
                    self.arm(conn, deadline);
                } else if begun {
                    self.site.stats.count_timed_out();
                    self.refuse(conn, HEAD_LATE);
                } else {
                    conn.close();
                }
            }
            Phase::Body => {
                let Some(exchange) = self.exchange.take() else { return };
                let deadline = self.body_deadline(self.since.get(), exchange.received());
                self.exchange.set(Some(exchange));
                if late(deadline) {
                    self.site.stats.count_timed_out();
                    self.refuse(conn, BODY_LATE);
                } else {
                    self.arm(conn, deadline);
                }
            }
            Phase::Running => {
                let times = self.with_upload(|upload| {
                    (!upload.is_over() && !upload.is_full())
                        .then_some((upload.since, upload.received))
                });
                let Some((since, received)) = times.flatten() else { return };
                let deadline = self.body_deadline(since, received);
                if late(deadline) {
                    self.site.stats.count_timed_out();
                    self.with_upload(|upload| upload.fail(io::ErrorKind::TimedOut));
                    self.wake();
                } else {
                    self.arm(conn, deadline);
                }
            }
            Phase::Sending | Phase::Closing | Phase::Switched => {}
        }
    }

    /// Whether the client takes its answers fast enough, since somebody last looked.
    fn takes_enough(&self, conn: &mut Conn<'_>) -> bool {
        let (now, waiting) = (conn.lp().now(), conn.unsent_bytes() as u64);
        let (sent, settings) = (self.written.get().saturating_sub(waiting), &self.site.settings);
        let (before, when) = self.watched.get();
        let passed = when.map(|when| now.duration_since(when));
        // A client that reads steadily is seen to take much at a time: its kernel makes room in large steps.
        if waiting > 0 && passed.is_some_and(|passed| passed < settings.idle_timeout) {
            return true;
        }
        self.watched.set((sent, (waiting > 0).then_some(now)));
        match passed {
            Some(passed) if waiting > 0 => {
                let enough = passed.as_secs() * u64::from(settings.min_send_rate);
                sent.saturating_sub(before) >= enough
            }
            _ => true,
        }
    }
}
