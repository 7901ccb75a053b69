//! The simulated kernel itself: its clock, what is scheduled, and what each demultiplexer has of it.
//!
//! ```text
//!   submit ─┐                                    ┌─► completion queue of demux 1 ─► next()
//!   cancel ─┼─► events, ordered by virtual time ─┤
//!   peers  ─┘         (Duration, serial)         └─► completion queue of demux 2 ─► next()
//! ```
//!
//! Time stands still while the program works and jumps to the next event when it waits. Everything is
//! decided by the order of calls and one [`Random`]; nothing here iterates over a hash map, asks the
//! real clock or the operating system. (A wait that can only be ended from outside sleeps for real:
//! `alarm.rs`.)

use super::alarm::{Alarm, Sleeper};
use super::descriptor::{Entry, Holder, Id};
use super::faults::{Fault, Faults, Injected};
use super::files::Files;
use super::in_flight::{InFlight, Ready};
use super::names::Names;
use super::random::Random;
use crate::lent::LentPool;
use crate::lock::Lock;
use crate::operation::{Handle, Token};
use rustix::io::Errno;
use slotmap::SlotMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

/// What a wait takes that finds something at once or may not sleep: a loop that is never idle still has to
/// see its timers come due.
const TURN: Duration = Duration::from_micros(1);

/// A time-out from here on (a century) is for ever: nothing is lost, and the clock cannot overflow.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Waits without result in a row after which a loop is told that the others, who have not waited
/// meanwhile, will not help it either.
const LIMIT_FRUITLESS_WAITS: u32 = 10_000;

/// The first process id of a simulated child: above what Linux gives by default, so that mixing up a real
/// and a simulated child fails instead of reaping the wrong one.
const FIRST_PID: u32 = 1 << 23;

/// How long a wait that nothing can end sleeps for real before that is a deadlock: a test that hangs is worse
/// than one that fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// Everything there is.
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) random: Random,
    pub(super) faults: Faults,
    pub(super) injected: Injected,
    birth: Instant,
    /// Virtual time since `birth`.
    pub(super) elapsed: Duration,
    events: BTreeMap<EventKey, Event>,
    last_serial: u64,
    pub(super) demuxes: BTreeMap<DemuxId, DemuxState>,
    last_demux: u32,
    pub(super) entries: BTreeMap<Id, Entry>,
    pub(super) last_id: u64,
    pub(super) names: Names,
    pub(super) files: Files,
    pub(super) children: BTreeMap<u32, Child>,
    last_pid: u32,
    pub(super) orphans: Arc<Orphans>,
    pub(super) sleeper: Arc<Sleeper>,
    /// How long a wait that nothing can end sleeps for real.
    pub(super) patience: Duration,
    pub(super) submitted: u64,
    pub(super) failing_operations: BTreeMap<u64, Errno>,
    pub(super) called: u64,
    pub(super) failing_calls: BTreeMap<u64, Errno>,
    /// Who has waited without result since anything last happened.
    quiet: BTreeSet<DemuxId>,
    fruitless_waits: u32,
}

/// Names a demultiplexer of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DemuxId(u32);

/// Names an operation in flight among all demultiplexers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OperationId {
    pub(super) demux: DemuxId,
    pub(super) token: Token,
}

/// When something happens; the serial number keeps what is due together in order.
pub(super) type EventKey = (Duration, u64);

/// Something that will happen.
pub(super) enum Event {
    /// An operation is tried.
    Attempt(OperationId),
    /// A child process ends.
    Exit(u32),
    /// The answer to a send that went to nobody.
    Reset(Id),
}

/// The kernel's side of one demultiplexer.
pub(super) struct DemuxState {
    pub(super) handles: SlotMap<Handle, Id>,
    pub(super) operations: SlotMap<Token, InFlight>,
    /// What [`next`](crate::Demux::next) gives, in order.
    pub(super) queue: VecDeque<Ready>,
    pub(super) lent: Rc<LentPool>,
    pub(super) free_buffers: Vec<u16>,
    /// Lent receives that wait for a buffer.
    pub(super) paused: Vec<Token>,
    /// The signals it has asked for, and whether one came while no operation was there to be told.
    pub(super) signals: BTreeMap<i32, bool>,
    pub(super) alarm: Arc<Alarm>,
}

/// A simulated child process.
pub(super) struct Child {
    pub(super) has_ended: bool,
    pub(super) status: ExitStatus,
    pub(super) waiting: Vec<OperationId>,
}

/// Detached descriptors that were dropped. Shared, not owned, by the descriptors: so they can be sent to
/// other threads like those of the operating system, although a kernel cannot.
#[derive(Default)]
pub(super) struct Orphans(Lock<Vec<Id>>);

impl Orphans {
    pub(super) fn add(&self, id: Id) {
        self.0.lock().push(id);
    }

    fn take(&self) -> Vec<Id> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// Why [`World::wait`] came back.
pub(super) enum Waited {
    /// There may be something, or it is time.
    Over,
    /// Nothing is there and nothing will come, unless from outside.
    Quiet,
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> World {
        World {
            seed,
            random: Random::new(seed),
            faults,
            injected: Injected::default(),
            birth: Instant::now(),
            elapsed: Duration::ZERO,
            events: BTreeMap::new(),
            last_serial: 0,
            demuxes: BTreeMap::new(),
            last_demux: 0,
            entries: BTreeMap::new(),
            last_id: 0,
            names: Names::new(),
            files: Files::default(),
            children: BTreeMap::new(),
            last_pid: FIRST_PID,
            orphans: Arc::default(),
            sleeper: Sleeper::new(),
            patience: PATIENCE,
            submitted: 0,
            failing_operations: BTreeMap::new(),
            called: 0,
            failing_calls: BTreeMap::new(),
            quiet: BTreeSet::new(),
            fruitless_waits: 0,
        }
    }

    pub(super) fn add_demux(&mut self) -> DemuxId {
        self.last_demux += 1;
        let id = DemuxId(self.last_demux);
        let buffers = self.faults.limit_lent_buffers.max(1);
        let state = DemuxState {
            handles: SlotMap::with_key(),
            operations: SlotMap::with_key(),
            queue: VecDeque::new(),
            lent: LentPool::new(buffers, self.faults.lent_buffer_bytes.max(1)),
            free_buffers: (0..buffers).collect(),
            paused: Vec::new(),
            signals: BTreeMap::new(),
            alarm: Alarm::new(&self.sleeper),
        };
        self.demuxes.insert(id, state);
        id
    }

    /// Closes what a demultiplexer held. What was in flight is given back, to be dropped outside: memory
    /// may have an owner whose destructor uses the kernel.
    pub(super) fn remove_demux(&mut self, id: DemuxId) -> Option<DemuxState> {
        let state = self.demuxes.remove(&id)?;
        self.quiet.remove(&id);
        self.stir();
        let held: Vec<Id> = (self.entries.iter())
            .filter(|(_, entry)| entry.holder == Holder::Demux(id))
            .map(|(&id, _)| id)
            .collect();
        for id in held {
            self.release(id);
        }
        Some(state)
    }

    /// The state of a demultiplexer that is known to be there.
    pub(super) fn demux(&mut self, id: DemuxId) -> &mut DemuxState {
        self.demuxes.get_mut(&id).expect("a demultiplexer is forgotten when it is dropped")
    }

    // --- Chance ----------------------------------------------------------------------------------------

    /// Whether a fault strikes now; if so, it is counted.
    pub(super) fn strike(&mut self, fault: Fault) -> bool {
        let strikes = self.random.chance(self.faults.chance(fault));
        if strikes {
            self.injected.note(fault);
        }
        strikes
    }

    /// How long the next effect takes.
    pub(super) fn delay(&mut self) -> Duration {
        if self.strike(Fault::Stall) {
            return self.faults.stall_time;
        }
        self.random.between(&self.faults.delay)
    }

    /// Counts a call that never waits, and says whether it is to fail.
    pub(super) fn count_call(&mut self) -> Result<(), Errno> {
        self.stir();
        self.called += 1;
        match self.failing_calls.remove(&self.called) {
            None => Ok(()),
            Some(error) => {
                self.injected.note(Fault::FailNth);
                Err(error)
            }
        }
    }

    // --- Time ------------------------------------------------------------------------------------------

    pub(super) fn now(&self) -> Instant {
        self.birth + self.elapsed
    }

    /// Lets something happen in `delay` from now.
    pub(super) fn schedule(&mut self, delay: Duration, event: Event) -> EventKey {
        self.last_serial += 1;
        let key = (self.elapsed + delay.min(FOR_EVER), self.last_serial);
        self.events.insert(key, event);
        key
    }

    pub(super) fn unschedule(&mut self, key: EventKey) {
        self.events.remove(&key);
    }

    pub(super) fn next_event(&self) -> Option<Duration> {
        self.events.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Lets `duration` pass.
    pub(super) fn advance(&mut self, duration: Duration) {
        self.advance_to(self.elapsed + duration.min(FOR_EVER));
    }

    /// Moves the clock to `end`, letting happen on the way what is due by then.
    pub(super) fn advance_to(&mut self, end: Duration) {
        while let Some(entry) = self.events.first_entry() {
            let (at, _) = *entry.key();
            if at > end {
                break;
            }
            let event = entry.remove();
            self.elapsed = self.elapsed.max(at);
            self.stir();
            self.happen(event);
        }
        if end > self.elapsed {
            self.elapsed = end;
            self.stir();
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Attempt(operation) => self.attempt(operation),
            // Of several lost sends, the first reset is told and the others find nobody to tell.
            Event::Reset(id) => {
                if self.socket(id).is_ok_and(|socket| !socket.write_closed) {
                    self.reset(id);
                }
            }
            Event::Exit(pid) => {
                if let Some(child) = self.children.get_mut(&pid) {
                    child.has_ended = true;
                    let waiting = std::mem::take(&mut child.waiting);
                    self.nudge_all(waiting);
                }
            }
        }
    }

    // --- Waiting ---------------------------------------------------------------------------------------

    /// Waits in virtual time until `me` has a completion, at most for `timeout`.
    ///
    /// Comes back early when another demultiplexer has got something, so that whoever steps them all can
    /// see to that one first.
    pub(super) fn wait(&mut self, me: DemuxId, timeout: Option<Duration>) -> Waited {
        self.tidy(me);
        if self.strike(Fault::SpuriousWait) {
            return Waited::Over;
        }
        if self.has_something(me) || timeout == Some(Duration::ZERO) {
            self.advance_to(self.elapsed + TURN);
            return Waited::Over;
        }
        let end =
            timeout.filter(|&timeout| timeout < FOR_EVER).map(|timeout| self.elapsed + timeout);
        let others = self.waiting_elsewhere(me);
        loop {
            let next = match (self.next_event(), end) {
                (None, None) => return self.be_quiet(me),
                (Some(event), Some(end)) => event.min(end),
                (Some(at), None) | (None, Some(at)) => at,
            };
            self.advance_to(next);
            let is_over = end.is_some_and(|end| self.elapsed >= end);
            if is_over || self.has_something(me) || self.waiting_elsewhere(me) > others {
                return Waited::Over;
            }
        }
    }

    /// Whether a wait of `me` has a reason to return.
    fn has_something(&self, me: DemuxId) -> bool {
        self.demuxes.get(&me).is_some_and(|demux| !demux.queue.is_empty() || demux.alarm.is_rung())
    }

    fn waiting_elsewhere(&self, me: DemuxId) -> usize {
        self.demuxes.iter().filter(|&(&id, _)| id != me).map(|(_, demux)| demux.queue.len()).sum()
    }

    /// Nothing is scheduled. With other loops about, that may change as soon as one of them is stepped.
    fn be_quiet(&mut self, me: DemuxId) -> Waited {
        self.quiet.insert(me);
        self.fruitless_waits += 1;
        let somebody_may_act = (self.demuxes.keys())
            .any(|&id| id != me && (!self.quiet.contains(&id) || self.has_something(id)));
        if somebody_may_act && self.fruitless_waits < LIMIT_FRUITLESS_WAITS {
            return Waited::Over;
        }
        Waited::Quiet
    }

    /// Something has happened: whoever has waited in vain may try again.
    pub(super) fn stir(&mut self) {
        self.quiet.clear();
        self.fruitless_waits = 0;
    }

    /// The alarms that have been rung, or that somebody outside can still ring.
    pub(super) fn alarms(&self) -> Vec<Arc<Alarm>> {
        let mut alarms = Vec::new();
        for DemuxState { alarm, .. } in self.demuxes.values() {
            // The state's own reference is one; any other is a waker's. One that was used and dropped
            // just now counts by what it did, which is seen once its absence is: hence the fence.
            let has_waker = Arc::strong_count(alarm) > 1;
            fence(Ordering::Acquire);
            if has_waker || alarm.is_rung() {
                alarms.push(Arc::clone(alarm));
            }
        }
        alarms
    }

    // --- Housekeeping ----------------------------------------------------------------------------------

    /// Takes in what came back without a call: lent buffers, and descriptors dropped on their way.
    pub(super) fn tidy(&mut self, demux: DemuxId) {
        self.close_orphans();
        let state = self.demux(demux);
        state.lent.take_all_returned(|buffer| state.free_buffers.push(buffer));
        if !state.free_buffers.is_empty() && !state.paused.is_empty() {
            let paused = std::mem::take(&mut state.paused);
            self.nudge_all(paused.into_iter().map(|token| OperationId { demux, token }).collect());
        }
    }

    pub(super) fn close_orphans(&mut self) {
        for id in self.orphans.take() {
            self.release(id);
        }
    }

    // --- Children --------------------------------------------------------------------------------------

    pub(super) fn spawn_child(&mut self, after: Duration, status: ExitStatus) -> u32 {
        self.stir();
        self.last_pid += 1;
        let pid = self.last_pid;
        self.children.insert(pid, Child { has_ended: false, status, waiting: Vec::new() });
        self.schedule(after, Event::Exit(pid));
        pid
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A failing seed prints itself, so that it can be replayed.
        if std::thread::panicking() {
            eprintln!(
                "simulated kernel: seed {}, {:?} of virtual time, {} operations, faults injected: {}",
                self.seed, self.elapsed, self.submitted, self.injected
            );
        }
    }
}
