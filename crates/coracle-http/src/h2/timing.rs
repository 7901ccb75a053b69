//! What takes too long on a connection of HTTP/2.
//!
//! There is one timer, for the earliest of what may be too late: the preface or the rest of a header, a client
//! that asks nothing or takes nothing, bodies that do not come, answers that are not taken, and requests that
//! take too long in all. What happens meanwhile does not set it anew; it looks for itself, when it fires, how much
//! time is left.

use super::Shared;
use super::session::Session;
use coracle_loop::{Loop, Timer};
use coracle_net::{Conn, SocketOption};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

pub(super) struct Clock {
    timer: RefCell<Option<(Instant, Timer)>>,
    /// When it last asked something, or had its last answer.
    active: Cell<Instant>,
    /// When something last came of it.
    heard: Cell<Instant>,
    /// Since when it is asked whether it is there, if it has sent nothing since.
    asked: Cell<Option<Instant>>,
    /// Since when the server is about to stop.
    stopping: Cell<Option<Instant>>,
    /// It has asked as often as it may.
    asked_enough: Cell<bool>,
    /// When the first of its requests takes too long in all, or earlier.
    deadline: Cell<Option<Instant>>,
    /// While the client does not take what is sent to it: since when, and how much it had taken by then.
    blocked: Cell<Option<(Instant, u64)>>,
    /// The same, but since it was last looked at how long that is.
    blocked_since: Cell<Option<Instant>>,
    /// For how long it was so before, and after that look.
    was_blocked: Cell<Duration>,
}

impl Clock {
    pub(super) fn new(now: Instant) -> Clock {
        Clock {
            timer: RefCell::default(),
            active: Cell::new(now),
            heard: Cell::new(now),
            asked: Cell::new(None),
            stopping: Cell::new(None),
            asked_enough: Cell::new(false),
            deadline: Cell::new(None),
            blocked: Cell::new(None),
            blocked_since: Cell::new(None),
            was_blocked: Cell::new(Duration::ZERO),
        }
    }

    pub(super) fn stop(&self, now: Instant) {
        self.stopping.set(Some(now));
    }

    /// Something has come of it.
    pub(super) fn note_bytes(&self, now: Instant) {
        self.heard.set(now);
        self.asked.set(None);
    }

    /// It has asked something, or had its last answer.
    pub(super) fn note_request(&self) {
        if let Some(lp) = Loop::current() {
            self.active.set(lp.now());
        }
    }

    pub(super) fn note_last_request(&self) {
        self.asked_enough.set(true);
    }

    /// One of its requests takes too long then, if at all.
    pub(super) fn note_deadline(&self, deadline: Option<Instant>) {
        let first = [self.deadline.get(), deadline].into_iter().flatten().min();
        self.deadline.set(first);
    }

    /// There is room again. Whoever did not take what was sent to it was not read, and perhaps not even asked.
    fn note_unblocked(&self, now: Instant) {
        if self.blocked.take().is_some() {
            self.asked.set(self.asked.get().map(|_| now));
        }
    }

    /// For how long the client did not take what is sent to it, since this was last asked.
    fn take_blocked(&self, now: Instant) -> Duration {
        let since = self.blocked_since.get();
        self.blocked_since.set(since.map(|_| now));
        self.was_blocked.take() + since.map_or(Duration::ZERO, |since| now - since)
    }

    pub(super) fn disarm(&self) {
        if let Some((_, timer)) = self.timer.take() {
            timer.cancel();
        }
    }
}

impl Shared {
    /// Notes whether there is room for what is sent.
    pub(super) fn note_room(&self, conn: &Conn<'_>, full: bool) {
        let (clock, now) = (&self.clock, conn.lp().now());
        if !full {
            clock.note_unblocked(now);
            if let Some(since) = clock.blocked_since.take() {
                clock.was_blocked.set(clock.was_blocked.get() + (now - since));
            }
        } else {
            clock.blocked_since.set(clock.blocked_since.get().or(Some(now)));
            if clock.blocked.get().is_none() {
                clock.blocked.set(Some((now, self.taken(conn))));
            }
        }
    }

    /// How much of what was written the client has taken. A system call.
    fn taken(&self, conn: &Conn<'_>) -> u64 {
        self.written.get().saturating_sub(not_taken(conn) as u64)
    }

    /// When something may be too late.
    fn next_look(&self, now: Instant) -> Instant {
        let (settings, clock) = (&self.site.settings, &self.clock);
        if self.over.get() {
            let since = clock.blocked.get().map_or(now, |(since, _)| since);
            return since + settings.write_timeout;
        }
        let busy = self.is_busy();
        let mut next = match busy {
            // Streams have their times, which are not looked for one by one: a little later is soon enough.
            true => now + settings.write_timeout.min(settings.body_timeout) / 4,
            false => clock.active.get() + self.patience(),
        };
        if let Some(since) = self.watch.borrow().awaits_since {
            next = next.min(since + settings.header_timeout);
        }
        if let Some(deadline) = clock.deadline.get() {
            next = next.min(deadline);
        }
        let asks = settings.http2.ping_interval.filter(|_| clock.blocked.get().is_none());
        if let Some(interval) = asks {
            let asked = clock.asked.get().map(|since| since + settings.http2.ping_timeout);
            next = next.min(asked.unwrap_or_else(|| clock.heard.get() + interval));
        }
        if let Some((since, _)) = clock.blocked.get() {
            next = next.min(since + settings.write_timeout);
        }
        if let Some(since) = clock.stopping.get().filter(|_| !busy) {
            next = next.min(since + settings.stop_timeout);
        }
        next
    }

    /// How long it may ask nothing.
    fn patience(&self) -> Duration {
        let settings = &self.site.settings;
        match self.requests.get() {
            0 => settings.header_timeout,
            _ => settings.idle_timeout,
        }
    }

    /// Has the clock looked at when something may be too late, and not later.
    pub(super) fn arm(&self, conn: &mut Conn<'_>) {
        if self.clock.asked_enough.take() {
            self.end_gracefully();
        }
        let next = self.next_look(conn.lp().now());
        let mut timer = self.clock.timer.borrow_mut();
        if timer.as_ref().is_some_and(|(when, _)| *when <= next) {
            return;
        }
        if let Some((_, timer)) = timer.take() {
            timer.cancel();
        }
        let Some(handle) = self.handle.get().cloned() else { return };
        let Some(shared) = self.this.upgrade() else { return };
        let set = conn.lp().at(next, move |lp| {
            shared.clock.timer.take();
            handle.with(lp, |conn| shared.look_at_the_clock(conn));
        });
        *timer = Some((next, set));
    }

    fn look_at_the_clock(&self, conn: &mut Conn<'_>) {
        if self.cut_if_slow(conn) {
            return;
        }
        if self.over.get() {
            if conn.unsent_bytes() > 0 {
                self.arm(conn);
            }
            return;
        }
        let (settings, clock) = (&self.site.settings, &self.clock);
        let now = conn.lp().now();
        let is_over = |since: Instant, timeout: Duration| now >= since + timeout;
        let awaits_since = self.watch.borrow().awaits_since;
        if awaits_since.is_some_and(|since| is_over(since, settings.header_timeout)) {
            self.site.stats.count_timed_out();
            return self.go_away(conn, "the header did not come in time");
        }
        let stopped = clock.stopping.get().is_some_and(|it| is_over(it, settings.stop_timeout));
        if !self.is_busy() && (stopped || is_over(clock.active.get(), self.patience())) {
            return self.say_goodbye(conn);
        }
        if self.is_silent(now) || self.look_at_streams(conn) {
            return self.say_goodbye(conn);
        }
        match self.touched.get() {
            true => self.run(conn), // which sets it anew
            false => self.arm(conn),
        }
    }

    /// Ends it, and says which was the last request that was looked at.
    fn say_goodbye(&self, conn: &mut Conn<'_>) {
        self.with_session(Session::end);
        self.run(conn);
        if !self.over.get() {
            self.close(conn);
        }
    }

    /// Asks a client of which nothing has come for a while whether it is there; true if it has not said so in
    /// time.
    fn is_silent(&self, now: Instant) -> bool {
        let (http2, clock) = (&self.site.settings.http2, &self.clock);
        let Some(interval) = http2.ping_interval else { return false };
        if clock.blocked.get().is_some() {
            return false; // it is not read meanwhile, and has to take what is sent to it in time
        }
        match clock.asked.get() {
            Some(since) => now >= since + http2.ping_timeout,
            None => {
                if now >= clock.heard.get() + interval {
                    match self.with_session(Session::ask) {
                        Some(true) => clock.asked.set(Some(now)),
                        _ => clock.heard.set(now), // it is asked later
                    }
                }
                false
            }
        }
    }

    /// Ends the streams that take too long; true if that does not help, and the connection has to end.
    fn look_at_streams(&self, conn: &Conn<'_>) -> bool {
        let (settings, clock, now) = (&self.site.settings, &self.clock, conn.lp().now());
        let mut streams: Vec<_> = self.waiting.borrow().iter().map(Rc::clone).collect();
        streams.extend(self.leaving.borrow().iter().map(Rc::clone));
        let blocked = clock.take_blocked(now);
        if !blocked.is_zero() {
            let (ahead, sharers) = (not_taken(conn), streams.len());
            let parts = streams.iter().filter_map(|stream| stream.download.unsent());
            parts.for_each(|it| it.put_off(blocked, ahead, sharers, settings));
        }
        clock.deadline.set(None);
        let mut is_stuck = false;
        for stream in streams {
            is_stuck |= stream.is_stuck(now);
            if stream.look_at_the_clock(now) {
                self.site.stats.count_timed_out();
            }
            clock.note_deadline(stream.deadline());
        }
        is_stuck
    }

    /// If the client has not taken what it was sent for as long as it may: whether that was too little, and the
    /// connection is cut.
    fn cut_if_slow(&self, conn: &mut Conn<'_>) -> bool {
        let (settings, now) = (&self.site.settings, conn.lp().now());
        let Some((since, before)) = self.clock.blocked.get() else { return false };
        if conn.unsent_bytes() == 0 {
            self.clock.note_unblocked(now);
            return false;
        }
        if now < since + settings.write_timeout {
            return false;
        }
        let taken = self.taken(conn);
        let seconds = now.duration_since(since).as_secs();
        let enough = seconds * u64::from(settings.min_send_rate);
        if taken > before && taken - before >= enough {
            self.clock.blocked.set(Some((now, taken)));
            return false;
        }
        self.site.stats.count_timed_out();
        self.end();
        // What the kernel has goes with it, or it would be kept for as long as the client drips.
        let _ = conn.set_option(SocketOption::ResetOnClose(true)); // or it is gone
        conn.abort();
        true
    }
}

/// How much the client has not taken of what was sent to it. A system call.
fn not_taken(conn: &Conn<'_>) -> usize {
    conn.unsent_bytes() + conn.unacknowledged_bytes().unwrap_or(0) // or it is gone
}
