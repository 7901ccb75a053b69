//! One wait: what was left over, what the kernel reports, and what is due by time.

use super::{Adaptor, Arrival, Poller, WAKEUP};
use crate::Demux;
use crate::memory::Payload;
use crate::operation::{Completion, Handle, Operation, Outcome, Readiness};
use crate::signal;
use slotmap::KeyData;
use std::io;
use std::time::Duration;

impl<P: Poller> Adaptor<P> {
    /// Waits with a time-out that is asked for when there is nothing to do at once.
    #[inline]
    pub(super) fn wait_for(
        &mut self,
        timeout: impl FnOnce(&mut P) -> Option<Duration>,
    ) -> io::Result<()> {
        self.fork.check()?;
        self.hand_over();
        self.resident.forget();
        self.queue_events();
        if !self.again.is_empty() {
            self.runnable.extend(self.again.drain(..));
        }
        let busy = self.wakeup.was_drained() || self.is_busy();
        let timeout = if busy { Some(Duration::ZERO) } else { timeout(&mut self.poller) };
        self.poller.wait(self.retries.shorten(timeout))?;
        if !self.runnable.is_empty() {
            // Those who were left over come first: some pollers report the same few as ready every time.
            self.queue_events();
        }
        for handle in self.retries.take_due() {
            if let Some(slot) = self.slots.get_mut(handle) {
                slot.ready |= Readiness::WRITE;
                slot.pausing = false;
                self.enqueue(handle);
            }
        }
        self.note_signals();
        for (token, report) in self.reports.take() {
            self.finish_job(token, report);
        }
        if self.gathered.is_empty() && self.finished.is_empty() {
            self.gather();
        }
        Ok(())
    }

    /// Puts the descriptors that were reported and not looked at in line.
    pub(super) fn queue_events(&mut self) {
        while let Some((key, ready)) = self.poller.next_event() {
            if let Some(handle) = self.note(key, ready) {
                self.enqueue(handle);
            }
        }
    }

    /// Takes in an event that is not simply a lent receive's: gives the descriptor to be looked at.
    pub(super) fn note(&mut self, key: u64, ready: Readiness) -> Option<Handle> {
        let handle = Handle::from(KeyData::from_ffi(key));
        match self.slots.get_mut(handle) {
            Some(slot) => {
                slot.ready |= ready;
                self.finish_polls(handle, ready);
                return Some(handle);
            }
            None if key == WAKEUP => self.note_wakeup(),
            None => {} // an event for a descriptor that is gone
        }
        None
    }

    fn note_wakeup(&self) {
        // With edges, each write to an eventfd is a new one; anything else fills up.
        if !(P::EDGE && self.wakeup.needs_no_drain()) {
            self.wakeup.drain();
        }
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
                let completion = Completion { token, more: true, result, payload };
                self.finished.push_back(Arrival::Completion(completion));
            }
        }
    }
}
