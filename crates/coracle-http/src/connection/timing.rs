//! What takes too long on a connection.
//!
//! While a head or a body is awaited, or a slow client is watched, a connection has a timer of its own, which
//! begins anew with everything that is received and is set to what is left of the time. Between requests it has
//! none: `idle.rs` has one for all.

use super::{Phase, Shared};
use crate::Status;
use crate::h1::Refusal;
use coracle_loop::Loop;
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
            conn.set_idle_timeout(None);
            if let Some(rare) = &mut *self.rare.borrow_mut() {
                rare.watched = None;
            }
        }
    }

    /// Since when it waits for a request.
    pub(crate) fn waits_since(&self) -> Instant {
        self.since.get()
    }

    /// It has waited for a request as long as it may, if it waits at all.
    pub(crate) fn has_waited(&self, lp: &Loop) {
        if self.phase.get() == Phase::Head && self.seen.get() == 0 {
            let _ = self.handle.get().and_then(|handle| {
                handle.with(lp, |conn| match conn.output_bytes() {
                    0 => conn.close(),
                    _ => self.watch(conn), // it has not even taken its last answer
                })
            });
        }
    }

    /// Some time has passed: whether that was too long.
    pub(super) fn look_at_the_clock(self: &Rc<Self>, conn: &mut Conn<'_>) {
        const HEAD_LATE: Refusal =
            Refusal::new(Status::REQUEST_TIMEOUT, "the header did not come in time");
        const BODY_LATE: Refusal =
            Refusal::new(Status::REQUEST_TIMEOUT, "the body did not come in time");
        if self.look_if_slow(conn) {
            return;
        }
        let (now, settings) = (conn.lp().now(), &self.site.settings);
        let late = |deadline: Instant| now >= deadline;
        match self.phase.get() {
            Phase::Head if self.seen.get() > 0 => {
                let deadline = self.since.get() + settings.header_timeout;
                if late(deadline) {
                    self.site.stats.count_timed_out();
                    self.refuse(conn, HEAD_LATE);
                } else {
                    self.arm(conn, deadline);
                }
            }
            Phase::Head => conn.close(), // it has waited before
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

    /// A client does not take all of its answer at once: looks from time to time how much it takes.
    pub(crate) fn watch(&self, conn: &mut Conn<'_>) {
        let mut rare = self.rare.borrow_mut();
        let watched = &mut rare.get_or_insert_default().watched;
        if watched.is_none() {
            *watched = Some((self.sent(conn), conn.lp().now()));
            drop(rare);
            self.arm(conn, conn.lp().now() + self.site.settings.write_timeout);
        }
    }

    /// If it is time to look how much of its answer the client has taken, does so; true if it is watched on, or
    /// was cut.
    pub(super) fn look_if_slow(&self, conn: &mut Conn<'_>) -> bool {
        let watched = self.rare.borrow().as_ref().and_then(|rare| rare.watched);
        let Some((before, when)) = watched else { return false };
        let (now, sent) = (conn.lp().now(), self.sent(conn));
        let passed = now.duration_since(when);
        if passed < self.site.settings.write_timeout {
            return false;
        }
        if sent.saturating_sub(before)
            < passed.as_secs() * u64::from(self.site.settings.min_send_rate)
        {
            self.site.stats.count_timed_out();
            conn.abort();
            return true;
        }
        if let Some(rare) = &mut *self.rare.borrow_mut() {
            rare.watched = None;
        }
        let waits = conn.unsent_bytes() > 0;
        if waits {
            self.watch(conn);
        }
        waits
    }

    /// How much was sent of what was written.
    fn sent(&self, conn: &Conn<'_>) -> u64 {
        self.written.get().saturating_sub(conn.unsent_bytes() as u64)
    }
}
