//! The life of an operation, from submit to its final completion.
//!
//! ```text
//!  submit ─► Waiting ─something changed─► Scheduled ─delay─► attempt ─┬─early─► Settled ─► next()
//!     │         ▲                                                     └───────► Due ─────► next()
//!     └─► Done  └──────────── still blocked, or a multishot operation goes on ────┘
//! ```
//!
//! A result is fixed either in the attempt (as io_uring does: a cancel then comes too late) or when it is
//! taken (as the readiness backends do: a cancel or close of the same batch is still respected). The seed
//! decides which.

use super::descriptor::{Holder, Id};
use super::faults::Fault;
use super::perform::{Progress, Task, Until};
use super::stream::CONNECT_TIMEOUT;
use super::world::{DemuxId, Event, EventKey, OperationId, World};
use crate::memory::{Payload, Space};
use crate::operation::{Completion, Finished, Handle, Operation, Outcome, Submitted, Token};
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// An operation of which the final completion has not been taken.
pub(super) struct InFlight {
    /// `None` while it is being performed, and once it is settled.
    pub(super) task: Option<Task>,
    step: Step,
    id: Option<Id>,
    file: Option<Id>,
    direction: Option<Direction>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Until something changes.
    Waiting,
    /// It will be tried.
    Scheduled(EventKey),
    /// It will be tried when its turn in the queue comes.
    Due,
    /// Its final completion is in the queue.
    Settled,
}

/// What a descriptor has only one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Receive,
    Send,
}

/// An entry of a completion queue.
pub(super) enum Ready {
    Due(Token),
    Settled(Completion),
}

impl World {
    // --- Submitting ------------------------------------------------------------------------------------

    pub(super) fn submit(&mut self, demux: DemuxId, operation: Operation) -> Submitted {
        self.stir();
        self.tidy(demux);
        self.submitted += 1;
        let failure = self.failing_operations.remove(&self.submitted);
        let (id, file) = match self.find_descriptors(demux, &operation) {
            Ok(found) => found,
            Err(error) => return operation.refuse(error),
        };
        if let Err(error) = self.check(id, &operation) {
            return operation.refuse(error);
        }
        let mut task = Task::new(operation, id, file);
        task.failure = failure;
        if failure.is_some() {
            self.injected.note(Fault::FailNth);
        }
        match task.operation {
            Operation::Close { handle } => return self.submit_close(demux, handle, task),
            Operation::Connect { .. }
                if failure.is_none() && self.strike(Fault::TimeOutConnect) =>
            {
                task.failure = Some(Errno::TIMEDOUT);
                let operation = self.insert(demux, task);
                self.schedule_attempt(operation, CONNECT_TIMEOUT);
                return Submitted::Pending(operation.token);
            }
            Operation::Signal { signal } => {
                let missed = self.demux(demux).signals.entry(signal).or_default();
                task.has_arrived = std::mem::take(missed);
            }
            _ => {}
        }
        let could_finish = self.could_finish(&task);
        let at_once = could_finish && !task.is_multishot();
        if at_once && !self.strike(Fault::Pending) {
            return match self.perform(demux, &mut task) {
                Progress::Blocked(until) => {
                    let operation = self.insert(demux, task);
                    self.block(operation, until);
                    Submitted::Pending(operation.token)
                }
                Progress::End(result) => done(result, task.operation),
                Progress::More(_) => unreachable!("multishot operations are not tried at submit"),
            };
        }
        let operation = self.insert(demux, task);
        if could_finish {
            let delay = self.delay();
            self.schedule_attempt(operation, delay);
        } else {
            self.await_change(operation);
        }
        Submitted::Pending(operation.token)
    }

    /// Starts a receive for which there is nothing to do but to wait, if the seed has it so. None, and nothing was
    /// done, in all other cases.
    pub(super) fn submit_awaited(
        &mut self,
        demux: DemuxId,
        socket: Handle,
        space: Space,
    ) -> Option<Token> {
        let operation = Operation::Receive { socket, space: space.into() };
        let (id, file) = self.find_descriptors(demux, &operation).ok()?;
        self.check(id, &operation).ok()?;
        let task = Task::new(operation, id, file);
        let is_to_fail = self.failing_operations.contains_key(&(self.submitted + 1));
        if is_to_fail || self.could_finish(&task) || self.random.chance(0.5) {
            return None;
        }
        self.stir();
        self.tidy(demux);
        self.submitted += 1;
        let operation = self.insert(demux, task);
        self.await_change(operation);
        Some(operation.token)
    }

    /// Looks up what an operation is about: the descriptor, and the file of a send_file.
    fn find_descriptors(
        &mut self,
        demux: DemuxId,
        operation: &Operation,
    ) -> Result<(Option<Id>, Option<Id>), Errno> {
        let id = operation.handle().map(|handle| self.find(demux, handle)).transpose()?;
        let file = match operation {
            Operation::SendFile { file, .. } => Some(self.find(demux, *file)?),
            _ => None,
        };
        Ok((id, file))
    }

    /// The descriptor behind a handle, unless it is stale.
    pub(super) fn find(&self, demux: DemuxId, handle: Handle) -> Result<Id, Errno> {
        let handles = &self.demuxes.get(&demux).ok_or(Errno::BADF)?.handles;
        handles.get(handle).copied().ok_or(Errno::BADF)
    }

    /// Refuses what no kernel would begin.
    fn check(&self, id: Option<Id>, operation: &Operation) -> Result<(), Errno> {
        if let Operation::Signal { signal } = operation
            && (!(1..=64).contains(signal) || signal_hook_registry::FORBIDDEN.contains(signal))
        {
            return Err(Errno::INVAL);
        }
        let (Some(id), Some(direction)) = (id, direction(operation)) else { return Ok(()) };
        let entry = &self.entries[&id];
        let Holder::Demux(holder) = entry.holder else { return Ok(()) };
        let operations = &self.demuxes[&holder].operations;
        let is_taken = (entry.operations.iter())
            .any(|&token| operations.get(token).is_some_and(|o| o.direction == Some(direction)));
        if is_taken { Err(Errno::ALREADY) } else { Ok(()) }
    }

    /// Makes the handle stale, cancels what is in flight on it, and closes it after that.
    /// A send that owns nothing: what can be done at once is done, the rest is nobody's.
    pub(super) fn try_send(
        &mut self,
        demux: DemuxId,
        socket: Handle,
        bytes: &[u8],
    ) -> io::Result<usize> {
        let operation = Operation::Send { socket, payload: Payload::from(bytes.to_vec()) };
        self.stir();
        self.tidy(demux);
        self.submitted += 1;
        let failure = self.failing_operations.remove(&self.submitted);
        let (id, file) = self.find_descriptors(demux, &operation)?;
        self.check(id, &operation)?;
        let mut task = Task::new(operation, id, file);
        task.failure = failure;
        if !self.could_finish(&task) || self.strike(Fault::Pending) {
            return Ok(0);
        }
        match self.perform(demux, &mut task) {
            Progress::End(Ok(Outcome::Count(count))) => Ok(count),
            Progress::End(Ok(other)) => unreachable!("a send does not give {other:?}"),
            Progress::End(Err(error)) => Err(error),
            Progress::Blocked(_) | Progress::More(_) => Ok(0),
        }
    }

    fn submit_close(&mut self, demux: DemuxId, handle: Handle, mut task: Task) -> Submitted {
        self.demux(demux).handles.remove(handle);
        let id = task.id.expect("a close has a descriptor");
        let in_flight = self.entries[&id].operations.clone();
        for &token in &in_flight {
            self.cancel(OperationId { demux, token });
        }
        if in_flight.is_empty() && !self.strike(Fault::Pending) {
            return match self.perform(demux, &mut task) {
                Progress::End(result) => done(result, task.operation),
                _ => unreachable!("a close that waits for nothing ends"),
            };
        }
        let operation = self.insert(demux, task);
        self.entries.get_mut(&id).expect("looked at above").closing = Some(operation.token);
        if in_flight.is_empty() {
            let delay = self.delay();
            self.schedule_attempt(operation, delay);
        }
        Submitted::Pending(operation.token)
    }

    /// Enters an operation into the tables.
    fn insert(&mut self, demux: DemuxId, task: Task) -> OperationId {
        let (id, file) = (task.id, task.file);
        let is_close = matches!(task.operation, Operation::Close { .. });
        let direction = direction(&task.operation);
        let task = Some(task);
        let in_flight = InFlight { task, step: Step::Waiting, id, file, direction };
        let token = self.demux(demux).operations.insert(in_flight);
        if !is_close {
            for id in [id, file].into_iter().flatten() {
                self.entries.get_mut(&id).expect("looked up at submit").operations.push(token);
            }
        }
        OperationId { demux, token }
    }

    /// A first try that blocks, to learn what the operation waits for. Only a reset can come in between.
    fn await_change(&mut self, operation: OperationId) {
        if let Some(completion) = self.determine(operation) {
            debug_assert!(self.faults.reset > 0.0, "could_finish was wrong in saying no");
            self.demux(operation.demux).queue.push_back(Ready::Settled(completion));
        }
        self.maybe_spurious(operation);
    }

    /// Lets a poll complete soon although nothing is ready, if the seed has it so.
    fn maybe_spurious(&mut self, operation: OperationId) {
        let chance = self.faults.spurious_poll;
        let Some(InFlight { task: Some(task), .. }) = self.in_flight_mut(operation) else { return };
        if matches!(task.operation, Operation::Poll { .. }) && self.random.chance(chance) {
            self.task_mut(operation).is_spurious = true;
            let delay = self.delay();
            self.schedule_attempt(operation, delay);
        }
    }

    // --- Trying ----------------------------------------------------------------------------------------

    fn in_flight_mut(&mut self, operation: OperationId) -> Option<&mut InFlight> {
        self.demuxes.get_mut(&operation.demux)?.operations.get_mut(operation.token)
    }

    fn task_mut(&mut self, operation: OperationId) -> &mut Task {
        let in_flight = self.in_flight_mut(operation).expect("the operation is in flight");
        in_flight.task.as_mut().expect("the operation is not settled")
    }

    fn schedule_attempt(&mut self, operation: OperationId, delay: Duration) {
        let key = self.schedule(delay, Event::Attempt(operation));
        self.in_flight_mut(operation).expect("the operation is in flight").step =
            Step::Scheduled(key);
    }

    /// Something about a descriptor has changed: whatever waits for it may go on.
    pub(super) fn touch(&mut self, id: Id) {
        let Some(entry) = self.entries.get(&id) else { return };
        let Holder::Demux(demux) = entry.holder else { return };
        let waiting = entry.operations.iter().map(|&token| OperationId { demux, token }).collect();
        self.nudge_all(waiting);
    }

    /// Schedules those of `operations` that wait and could finish now.
    pub(super) fn nudge_all(&mut self, operations: Vec<OperationId>) {
        for operation in operations {
            let Some(demux) = self.demuxes.get(&operation.demux) else { continue };
            let Some(InFlight { task: Some(task), step: Step::Waiting, .. }) =
                demux.operations.get(operation.token)
            else {
                continue;
            };
            if self.could_finish(task) {
                let delay = self.delay();
                self.schedule_attempt(operation, delay);
            }
        }
    }

    /// An operation's time has come: fixes its result, or lets it be fixed when it is taken.
    pub(super) fn attempt(&mut self, operation: OperationId) {
        let OperationId { demux, token } = operation;
        let Some(in_flight) = self.in_flight_mut(operation) else { return };
        in_flight.step = Step::Waiting;
        let task = self.demuxes[&demux].operations[token].task.as_ref();
        let could_finish =
            task.is_some_and(|task| self.could_finish(task) && !self.lacks_buffer(demux, task));
        if could_finish && !self.strike(Fault::Early) {
            self.in_flight_mut(operation).expect("looked at above").step = Step::Due;
            self.demux(demux).queue.push_back(Ready::Due(token));
        } else if let Some(completion) = self.determine(operation) {
            self.demux(demux).queue.push_back(Ready::Settled(completion));
        }
    }

    /// Tries an operation for good: its completion, or `None` when it still has to wait.
    fn determine(&mut self, operation: OperationId) -> Option<Completion> {
        let OperationId { demux, token } = operation;
        let mut task = self.in_flight_mut(operation)?.task.take()?;
        let progress = match self.perform_unless_cancelled(demux, &mut task) {
            // A multishot operation may end whenever it likes, and does when it is cancelled.
            Progress::More(outcome) if task.is_cancelled => Progress::End(Ok(outcome)),
            Progress::More(outcome) if self.strike(Fault::EndMultishot) => {
                Progress::End(Ok(outcome))
            }
            progress => progress,
        };
        if let Progress::End(result) = progress {
            self.in_flight_mut(operation)?.step = Step::Settled;
            let is_cancelled = matches!(&result, Err(error) if is_cancellation(error));
            if let (Operation::Signal { signal }, true) = (&task.operation, is_cancelled) {
                self.forget_signal(demux, *signal);
            }
            let payload = task.operation.into_payload();
            return Some(Completion { token, more: false, result, payload });
        }
        let in_flight = self.in_flight_mut(operation)?;
        in_flight.task = Some(task);
        in_flight.step = Step::Waiting;
        match progress {
            Progress::Blocked(until) => {
                self.block(operation, until);
                None
            }
            Progress::More(outcome) => {
                self.nudge_all(vec![operation]);
                let (result, payload) = (Ok(outcome), Payload::Nothing);
                Some(Completion { token, more: true, result, payload })
            }
            Progress::End(_) => unreachable!("returned above"),
        }
    }

    fn perform_unless_cancelled(&mut self, demux: DemuxId, task: &mut Task) -> Progress {
        if !task.is_cancelled || matches!(task.operation, Operation::Close { .. }) {
            return self.perform(demux, task);
        }
        // A cancel loses only to something that really happens, not to a failure still to come.
        task.is_cancelled = false;
        let could_finish = task.failure.is_none() && self.could_finish(task);
        task.is_cancelled = true;
        if could_finish
            && self.strike(Fault::CancelLoses)
            && let progress @ (Progress::End(_) | Progress::More(_)) = self.perform(demux, task)
        {
            return progress;
        }
        Progress::End(Err(Errno::CANCELED.into()))
    }

    /// Notes what an operation waits for.
    fn block(&mut self, operation: OperationId, until: Until) {
        match until {
            Until::Changed => {}
            Until::Buffer => {
                let paused = &mut self.demux(operation.demux).paused;
                if !paused.contains(&operation.token) {
                    paused.push(operation.token);
                }
            }
            Until::Room(destination) => self.await_datagram_room(destination, operation),
            Until::Exit(pid) => {
                let child = self.children.get_mut(&pid).expect("blocked on a child that is there");
                child.waiting.push(operation);
            }
            Until::Later(delay) => self.schedule_attempt(operation, delay),
        }
    }

    // --- Ending ----------------------------------------------------------------------------------------

    /// Asks for the end of an operation.
    pub(super) fn cancel(&mut self, operation: OperationId) {
        let Some(in_flight) = self.in_flight_mut(operation) else { return };
        let step = in_flight.step;
        let Some(task) = &mut in_flight.task else { return }; // settled: its result will be delivered
        if matches!(task.operation, Operation::Close { .. }) {
            return; // a descriptor half closed is of no use to anybody
        }
        task.is_cancelled = true;
        match step {
            Step::Due | Step::Settled => return,
            Step::Waiting => {}
            Step::Scheduled(key) => self.unschedule(key), // it may be two minutes off
        }
        let delay = self.delay();
        self.schedule_attempt(operation, delay);
    }

    /// Tells every operation for this signal that it has arrived.
    pub(super) fn raise(&mut self, signal: i32) {
        self.stir();
        let mut reached = Vec::new();
        for (&demux, state) in &mut self.demuxes {
            let mut is_missed = true;
            for (token, in_flight) in &mut state.operations {
                let Some(task) = &mut in_flight.task else { continue };
                if matches!(task.operation, Operation::Signal { signal: own } if own == signal) {
                    task.has_arrived = true;
                    is_missed = false;
                    reached.push(OperationId { demux, token });
                }
            }
            if let Some(missed) = state.signals.get_mut(&signal) {
                *missed |= is_missed;
            }
        }
        self.nudge_all(reached);
    }

    /// A signal is cancelled, not merely ended: unless somebody else listens, arrivals mean nothing now.
    fn forget_signal(&mut self, demux: DemuxId, signal: i32) {
        let state = self.demux(demux);
        let is_wanted = state.operations.values().any(|other| {
            other.task.as_ref().is_some_and(
                |task| matches!(task.operation, Operation::Signal { signal: own } if own == signal),
            )
        });
        if !is_wanted {
            state.signals.remove(&signal);
        }
    }

    /// The next completion of a demultiplexer.
    pub(super) fn next(&mut self, demux: DemuxId) -> Option<Completion> {
        loop {
            let completion = match self.demux(demux).queue.pop_front()? {
                Ready::Settled(completion) => completion,
                Ready::Due(token) => match self.determine(OperationId { demux, token }) {
                    Some(completion) => completion,
                    None => continue,
                },
            };
            self.stir();
            if !completion.more {
                self.retire(OperationId { demux, token: completion.token });
            }
            return Some(completion);
        }
    }

    /// Forgets an operation whose final completion is being taken; the last one lets a close go on.
    fn retire(&mut self, operation: OperationId) {
        let OperationId { demux, token } = operation;
        let Some(in_flight) = self.demux(demux).operations.remove(token) else { return };
        for id in [in_flight.id, in_flight.file].into_iter().flatten() {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.operations.retain(|&other| other != token);
            if let (Some(token), true) = (entry.closing, entry.operations.is_empty()) {
                self.nudge_all(vec![OperationId { demux, token }]);
            }
        }
    }
}

fn done(result: io::Result<Outcome>, operation: Operation) -> Submitted {
    Submitted::Done(Finished { result, payload: operation.into_payload() })
}

fn is_cancellation(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::CANCELED.raw_os_error())
}

fn direction(operation: &Operation) -> Option<Direction> {
    match operation {
        Operation::Accept { .. }
        | Operation::ReceiveLent { .. }
        | Operation::Receive { .. }
        | Operation::ReceiveMessage { .. } => Some(Direction::Receive),
        Operation::Connect { .. }
        | Operation::Send { .. }
        | Operation::SendMessage { .. }
        | Operation::SendFile { .. } => Some(Direction::Send),
        _ => None,
    }
}
