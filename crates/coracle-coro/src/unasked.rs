//! Time-outs that nobody asks for before a wait has lasted a while.
//!
//! A socket of somebody else's may have a time-out of its own, and only the kernel knows. To ask is a system call,
//! and most waits are over before any time-out could be. So whoever begins such a wait leaves a note, and as long
//! as there are notes, somebody comes by now and then. What is still there when he comes for the second time is
//! asked for:
//!
//! ```text
//!   call ──► young ──► old ──► ask ──► a time-out: a timer, which ends the wait
//!               └───────┴───────┴────► over, or none: forgotten
//! ```
//!
//! That the kernel is asked later than it would have looked itself is nothing that anybody could tell: it is as if
//! the call had been made, and its thread had been held up for a moment before it got there. The time counts from
//! the beginning of the call, so that nothing ends early; and by two rounds late at most, if the time-out is
//! shorter than that. Rounds are made as often as the shortest time-out that was ever set in this process wants it
//! ([`expect_timeouts_of`]), and so often in any case that one that was set elsewhere is not missed for long.

use crate::current::{self, Frame};
use crate::scheduler::Scheduler;
use crate::sleeper::Sleeper;
use coracle_loop::{Loop, Timer};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How often somebody comes by at least, and at most: the kernel's own time-outs are no finer.
const LONGEST_ROUND: Duration = Duration::from_millis(25);
const SHORTEST_ROUND: Duration = Duration::from_millis(1);

/// So many rounds are made in the shortest time-out.
const ROUNDS: u32 = 16;

/// How long a round takes, in microseconds.
static ROUND: AtomicU32 = AtomicU32::new(LONGEST_ROUND.as_micros() as u32);

/// There are time-outs as short as this, from now on.
pub fn expect_timeouts_of(timeout: Duration) {
    let round = (timeout / ROUNDS).clamp(SHORTEST_ROUND, LONGEST_ROUND);
    ROUND.fetch_min(round.as_micros() as u32, Ordering::Relaxed);
}

/// What the kernel says of a descriptor, when it is asked.
pub type Ask = fn(i32) -> Option<Duration>;

/// The notes of a scheduler.
#[derive(Default)]
pub(crate) struct Notes {
    /// The number of the last call that has left one.
    last: Cell<u64>,
    /// Of all calls that are not over.
    calls: RefCell<HashMap<u64, Note>>,
    young: RefCell<Vec<u64>>,
    old: RefCell<Vec<u64>>,
    /// Somebody will come by, in a round of so many microseconds.
    next: RefCell<Option<(Timer, u32)>>,
}

impl Notes {
    /// Who makes a call, if that is not over.
    fn sleeper(&self, call: u64) -> Option<Arc<Sleeper>> {
        Some(Arc::clone(&self.calls.borrow().get(&call)?.sleeper))
    }
}

struct Note {
    sleeper: Arc<Sleeper>,
    begin: Instant,
    fd: i32,
    ask: Ask,
    /// It was asked for, and has a time-out.
    found: Option<(Instant, Timer)>,
}

/// A call of a coroutine that may wait, and whose own time-out is not known. It is over when this is dropped.
pub struct Unasked {
    call: u64,
    /// It stays with its coroutine.
    thread: PhantomData<*const ()>,
}

impl Unasked {
    /// A call of the coroutine that calls, on this descriptor.
    #[inline]
    pub fn new(fd: i32, ask: Ask) -> Unasked {
        let call = current::with(|frame| frame.map_or(0, |frame| leave(frame, fd, ask)));
        Unasked { call, thread: PhantomData }
    }

    /// When its own time is over, as far as that is known.
    pub fn deadline(&self) -> Option<Instant> {
        current::with(|frame| {
            let calls = frame?.scheduler().notes.calls.borrow();
            calls.get(&self.call)?.found.as_ref().map(|(deadline, _)| *deadline)
        })
    }
}

impl Drop for Unasked {
    #[inline]
    fn drop(&mut self) {
        current::with(|frame| {
            let Some(frame) = frame else { return };
            let note = frame.scheduler().notes.calls.borrow_mut().remove(&self.call);
            if let Some((_, timer)) = note.and_then(|note| note.found) {
                timer.cancel();
            }
        });
    }
}

/// Leaves a note, and has it found. The number of the call.
fn leave(frame: &Frame, fd: i32, ask: Ask) -> u64 {
    let notes = &frame.scheduler().notes;
    let call = notes.last.get() + 1;
    notes.last.set(call);
    let (sleeper, begin) = (Arc::clone(&frame.sleeper), frame.lp().deadline(Duration::ZERO));
    notes.calls.borrow_mut().insert(call, Note { sleeper, begin, fd, ask, found: None });
    notes.young.borrow_mut().push(call);
    let round = ROUND.load(Ordering::Relaxed);
    if notes.next.borrow().as_ref().is_none_or(|&(_, expected)| round < expected) {
        expect(notes, frame.lp(), round);
    }
    call
}

/// Has somebody come by at the end of a round.
#[cold]
fn expect(notes: &Notes, lp: &Loop, round: u32) {
    let timer = lp.after(Duration::from_micros(round.into()), come_by);
    let before = notes.next.replace(Some((timer, round)));
    before.into_iter().for_each(|(timer, _)| _ = timer.cancel());
}

/// Asks for what is old, and has what was young grow old.
fn come_by(lp: &Loop) {
    let scheduler = Scheduler::of(lp);
    let notes = &scheduler.notes;
    let mut calls = notes.calls.borrow_mut();
    let mut old = notes.old.borrow_mut();
    for call in old.drain(..) {
        let Some(note) = calls.get_mut(&call) else { continue }; // it is over
        let Some(timeout) = (note.ask)(note.fd) else { continue };
        // Beyond what the clock can tell is as good as never.
        let Some(deadline) = note.begin.checked_add(timeout) else { continue };
        let timer = lp.at(deadline, move |lp| time_out(lp, call));
        note.found = Some((deadline, timer));
    }
    let mut young = notes.young.borrow_mut();
    young.retain(|call| calls.contains_key(call));
    mem::swap(&mut *young, &mut *old); // whose memory is used again
    let waiting = !old.is_empty();
    drop((calls, young, old));
    notes.next.take();
    if waiting {
        expect(notes, lp, ROUND.load(Ordering::Relaxed));
    }
}

/// The time of a call is over: ends the wait that it is in. One that is between two waits, woken from the first
/// and not yet in the second, is looked for again.
fn time_out(lp: &Loop, call: u64) {
    let scheduler = Scheduler::of(lp);
    let Some(sleeper) = scheduler.notes.sleeper(call) else { return };
    if sleeper.time_out_wait(lp) {
        return; // what it did after that may have ended the call
    }
    if let Some(note) = scheduler.notes.calls.borrow_mut().get_mut(&call)
        && let Some((_, timer)) = &mut note.found
    {
        *timer = lp.after(SHORTEST_ROUND, move |lp| time_out(lp, call));
    }
}
