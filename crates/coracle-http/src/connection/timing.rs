//! What takes too long on a connection.
//!
//! While a head or a body is awaited, or a slow client is watched, a connection has a timer of its own, which
//! begins anew with everything that is received and is set to what is left of the time. Between requests it has
//! none: `idle.rs` has one for all.

use super::facts::Fact;
use super::{Phase, Shared};
use crate::Status;
use crate::h1::Refusal;
use crate::idle::Wait;
use coracle_loop::Loop;
use coracle_net::{Conn, SocketOption};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How a client takes its answer, while that is looked at.
///
/// How much was handed to the kernel costs nothing to know. But a client that takes a little all the time makes no
/// room there for a long while, until a third of the kernel's buffer is free; so if it seems to take too little
/// when half of its time is over, the kernel is asked how much it still has, then and at the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watched {
    since: Instant,
    /// How much the kernel had been given by then.
    sent: u64,
    /// How much the client had taken when half of the time was over, and when that was.
    taken: Option<(u64, Instant)>,
}

impl Watched {
    /// When the clock is to be looked at next.
    fn next_look(&self, timeout: Duration) -> Instant {
        self.since + if self.taken.is_none() { timeout / 2 } else { timeout }
    }
}

impl Shared {
    /// When a body is too late that began then, and of which so much has come.
    pub(super) fn body_deadline(&self, since: Instant, received: u64) -> Instant {
        let settings = &self.site.settings;
        let earned = received / u64::from(settings.min_body_rate);
        since + settings.body_timeout + Duration::from_secs(earned).min(crate::settings::LONGEST)
    }

    /// Has the clock looked at then, and not later. False, for those who end with it.
    pub(super) fn arm(&self, conn: &mut Conn<'_>, deadline: Instant) -> bool {
        // Who is watched while it takes its answer is not forgotten for what it sends.
        let deadline = match self.watched() {
            Some(watched) => deadline.min(watched.next_look(self.site.settings.write_timeout)),
            None => deadline,
        };
        let left = deadline.saturating_duration_since(conn.lp().now());
        self.facts.set(Fact::Armed, true);
        conn.set_idle_timeout(Some(left.max(Duration::from_millis(1))));
        false
    }

    #[inline]
    pub(super) fn disarm(&self, conn: &mut Conn<'_>) {
        if self.facts.is(Fact::Armed) {
            self.disarm_now(conn);
        }
    }

    #[cold]
    fn disarm_now(&self, conn: &mut Conn<'_>) {
        self.facts.set(Fact::Armed, false);
        match self.watched().filter(|_| conn.unsent_bytes() > 0) {
            // What it has not taken is watched on, whatever it asks meanwhile.
            Some(watched) => {
                self.arm(conn, watched.next_look(self.site.settings.write_timeout));
            }
            None => {
                conn.set_idle_timeout(None);
                self.if_rare(|rare| rare.watched = None);
            }
        }
    }

    /// Something comes from a client that has not taken all of its answers: watches it. True if it was watched for
    /// long enough, and is cut.
    #[cold]
    pub(super) fn look_at_unsent(&self, conn: &mut Conn<'_>) -> bool {
        self.watch(conn);
        self.look_if_slow(conn) // what comes has put the timer off
    }

    /// Since when it waits for a request.
    pub(crate) fn waits_since(&self) -> Instant {
        self.since()
    }

    /// It has waited for a request as long as it may, if it waits at all.
    pub(crate) fn has_waited(&self, lp: &Loop) {
        let waits = self.phase.get() == Phase::Head && self.seen.get() == 0;
        if waits || self.phase.get() == Phase::Closing {
            let _ = self.handle.get().and_then(|handle| {
                handle.with(lp, |conn| match conn.unsent_bytes() {
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
            return; // it is cut
        }
        let (now, settings) = (conn.lp().now(), &self.site.settings);
        let late = |deadline: Instant| now >= deadline;
        match self.phase.get() {
            Phase::Head if self.seen.get() > 0 => {
                let deadline = self.since() + settings.header_timeout;
                if late(deadline) {
                    self.site.stats.count_timed_out();
                    self.refuse(conn, None, HEAD_LATE);
                } else {
                    self.arm(conn, deadline);
                }
            }
            // It waits for nothing any more; unless more requests have come than are answered.
            Phase::Head if self.site.stopping.get() && !self.facts.is(Fact::Left) => {
                self.close(conn)
            }
            Phase::Head if conn.unsent_bytes() > 0 => self.watch(conn),
            Phase::Head if self.facts.is(Fact::Ended) => conn.close(),
            Phase::Head => {
                // It has taken its last answer meanwhile, and may ask on.
                self.disarm(conn);
                self.begin_phase(conn);
                self.site.idle.wait(conn.lp(), &self.site, self.place.get(), Wait::Next);
            }
            Phase::Body => {
                let Some(exchange) = self.exchange.take() else { return };
                let deadline = self.body_deadline(self.since(), exchange.received());
                if late(deadline) {
                    self.site.stats.count_timed_out();
                    self.refuse(conn, Some(exchange), BODY_LATE);
                } else {
                    self.exchange.set(Some(exchange));
                    self.arm(conn, deadline);
                }
            }
            Phase::Running => {
                if self.upload_deadline().is_some_and(late) {
                    self.site.stats.count_timed_out();
                    self.with_upload(|upload| upload.fail(io::ErrorKind::TimedOut, BODY_LATE));
                    self.wake();
                }
                self.await_upload(conn);
            }
            Phase::Sending | Phase::Closing | Phase::Switched => {}
        }
    }

    /// When the rest of a body is too late that a handler reads; `None` if nothing of it is awaited.
    fn upload_deadline(&self) -> Option<Instant> {
        let times = self.with_upload(|upload| {
            let awaited = upload.is_coming() && !upload.is_full();
            awaited.then_some((upload.since, upload.received))
        });
        times.flatten().map(|(since, received)| self.body_deadline(since, received))
    }

    /// Has the clock looked at when the rest of a body is late, or not at all.
    pub(super) fn await_upload(&self, conn: &mut Conn<'_>) {
        if self.phase.get() != Phase::Running {
            return;
        }
        // Its answer may be on its way already.
        let watched = self.watched().map(|it| it.next_look(self.site.settings.write_timeout));
        match self.upload_deadline().or(watched) {
            Some(deadline) => {
                self.arm(conn, deadline);
            }
            None => self.disarm(conn),
        }
    }

    fn watched(&self) -> Option<Watched> {
        self.if_rare(|rare| rare.watched).flatten()
    }

    /// A client does not take all of its answer at once: looks from time to time how much it takes.
    pub(crate) fn watch(&self, conn: &mut Conn<'_>) {
        if self.watched().is_none() {
            let watched = Watched { since: conn.lp().now(), sent: self.sent(conn), taken: None };
            self.with_rare(|rare| rare.watched = Some(watched));
            self.arm(conn, watched.next_look(self.site.settings.write_timeout));
        }
    }

    /// If it is time to look how much of its answer the client has taken, does so; true if it was too little, and
    /// the connection is cut.
    pub(super) fn look_if_slow(&self, conn: &mut Conn<'_>) -> bool {
        let Some(watched) = self.watched() else { return false };
        let (now, timeout) = (conn.lp().now(), self.site.settings.write_timeout);
        if now < watched.next_look(timeout) {
            return false;
        }
        if now < watched.since + timeout {
            let watched = Watched { taken: Some((self.taken(conn), now)), ..watched };
            self.with_rare(|rare| rare.watched = Some(watched));
            self.arm(conn, watched.next_look(timeout));
            return false;
        }
        let rate = u64::from(self.site.settings.min_send_rate);
        let is_enough = |since, before, count: u64| {
            count.saturating_sub(before) >= now.duration_since(since).as_secs() * rate
        };
        let is_slow = |conn: &Conn<'_>| {
            !is_enough(watched.since, watched.sent, self.sent(conn))
                && !watched.taken.is_some_and(|(before, when)| {
                    // Who has taken nothing is slow in less than a second, too.
                    let taken = self.taken(conn);
                    taken > before && is_enough(when, before, taken)
                })
        };
        // Who has taken everything cannot take more.
        if conn.unsent_bytes() > 0 && is_slow(conn) {
            self.cut(conn);
            return true;
        }
        self.if_rare(|rare| rare.watched = None);
        if conn.unsent_bytes() > 0 {
            self.watch(conn);
        }
        false
    }

    /// Ends the connection of a client that has taken too long.
    pub(super) fn cut(&self, conn: &mut Conn<'_>) {
        self.site.stats.count_timed_out();
        // What the kernel has of the answer goes with it, or it would be kept for as long as the client drips.
        let _ = conn.set_option(SocketOption::ResetOnClose(true)); // or it is gone
        conn.abort();
    }

    /// How much was sent of what was written: given to the kernel.
    fn sent(&self, conn: &Conn<'_>) -> u64 {
        self.written.get().saturating_sub(conn.unsent_bytes() as u64)
    }

    /// How much of that the client has taken. A system call.
    fn taken(&self, conn: &Conn<'_>) -> u64 {
        let left = conn.unacknowledged_bytes().unwrap_or(0); // or it is gone
        self.sent(conn).saturating_sub(left as u64)
    }
}
