//! One wait: what is queued is handed over, what is due by time is done, and somebody ends it in time.

use super::{ALARM, SILENT, Stage, Uring};
use crate::alarm::Alarm;
use crate::memory::Payload;
use crate::operation::{Completion, Operation, Outcome};
use crate::signal;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{opcode, squeue};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// The alarm, and where the kernel reads when it is to ring: at an address that does not change.
#[derive(Default)]
pub(super) struct Clock {
    pub(super) alarm: Alarm,
    left: Box<Timespec>,
}

impl Uring {
    /// Hands over what is queued, and waits for a completion if `timeout` allows it.
    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.connects = 0;
        let entered = match timeout {
            Some(Duration::ZERO) => {
                let queue = self.ring.submission();
                // Completions that need our thread are announced by a flag: no flag, no call.
                if queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
                    return Ok(());
                }
                drop(queue);
                self.ring.submit()
            }
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                let arguments = SubmitArgs::new().timespec(&timeout);
                self.ring.submitter().submit_with_args(1, &arguments)
            }
            None => self.ring.submit_and_wait(1),
        };
        match entered.map_err(|error| error.raw_os_error().map(Errno::from_raw_os_error)) {
            // ETIME: the time-out. EBUSY, EAGAIN: the completion queue must be emptied first.
            Ok(_) | Err(Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN)) => Ok(()),
            Err(Some(error)) => Err(error.into()),
            Err(None) => Err(io::Error::other("io_uring_enter failed without saying why")),
        }
    }

    /// Waits with a time-out that is asked for when there is nothing to do at once.
    #[inline]
    pub(super) fn wait_for(
        &mut self,
        timeout: impl FnOnce(&mut Uring) -> Option<Duration>,
    ) -> io::Result<()> {
        self.fork.check()?;
        if let Some(notice) = self.notice.get() {
            notice.clear();
        }
        self.resident.forget();
        self.send_due();
        self.buffers.refill();
        self.queue_asked();
        if !self.starved.is_empty() {
            for token in std::mem::take(&mut self.starved) {
                self.issue(token); // no more than half of the buffers are kept: the kernel has some again
            }
        }
        if !self.behind.is_empty() {
            self.hand_over(); // and then, with the rest of this wait, what has to go behind
        }
        self.collect();
        // If something is still behind or has failed, the kernel was interrupted: it must be handed over first.
        let unsettled = !self.behind.is_empty() || !self.failed.is_empty();
        let unheard = self.wakeup.was_drained() || !self.finished.is_empty() || !self.due.is_idle();
        let busy = unheard || self.taken < self.arrived.len() || unsettled;
        let timeout = if busy { Some(Duration::ZERO) } else { timeout(self) };
        self.enter(self.retries.shorten(timeout))?;
        self.settle();
        for token in self.retries.take_due() {
            if self.operations.get(token).is_some_and(|it| it.stage == Stage::Here) {
                self.attempt_staged(token);
            }
        }
        self.note_signals();
        self.note_reports();
        Ok(())
    }

    fn note_signals(&mut self) {
        let arrived = self.signals.take();
        if arrived == 0 {
            return;
        }
        for (token, in_flight) in &self.operations {
            if let Operation::Signal { signal } = in_flight.operation
                && arrived & signal::bit(signal) != 0
            {
                let result = Ok(Outcome::Signal);
                let payload = Payload::Nothing;
                self.finished.push_back(Completion { token, more: true, result, payload });
            }
        }
    }

    fn note_reports(&mut self) {
        for (token, _) in self.reports.take() {
            let stage = self.operations.get(token).map(|in_flight| in_flight.stage);
            if stage == Some(Stage::Thread) {
                self.attempt_send_file(token, true); // warm, or without a thread that could have warmed it
            }
        }
    }

    /// The time-out of a wait that must end at `deadline`; none if the alarm ends it.
    #[inline]
    pub(super) fn timeout_of(&mut self, deadline: Instant) -> Option<Duration> {
        let (ring, place) = (&mut self.ring, &mut self.clock.left);
        self.clock.alarm.timeout(deadline, |alarm, left| {
            **place = Timespec::from(left);
            let request = entry(place, alarm.is_set());
            // SAFETY: it points to `place`, which stays where it is until the ring is gone. If the queue is full,
            // it cannot be set now: to make room would take in completions, and who waits would not hear of them.
            unsafe { ring.submission().push(&request) }.is_ok()
        })
    }
}

/// A request for an alarm, or for another time of the one that is set. If that has rung meanwhile, there is
/// nothing to change; and then this wait ends, and the next sets another.
#[cold]
fn entry(left: &Timespec, is_set: bool) -> squeue::Entry {
    if is_set {
        let update = opcode::TimeoutUpdate::new(ALARM, left).build();
        return update.flags(squeue::Flags::SKIP_SUCCESS).user_data(SILENT);
    }
    opcode::Timeout::new(left).build().user_data(ALARM)
}
