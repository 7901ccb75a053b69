//! What is known of names: answers that are remembered, and look-ups that are under way.
//!
//! ```text
//!   remembered ──► answers ── fresh ──► the answer
//!
//!   ask ──► flights ── there is one ──► Joined: its waker is with the others
//!              │
//!              └── none ──► First: whoever asked starts the look-up
//!                              │
//!                              ▼ (a thread)
//!                         Landing::land: the answer is remembered, and all are woken
//! ```
//!
//! A look-up that cannot land, because its pool or its loop is gone, lands with an error when it is dropped.

use super::{ResolverSettings, ResolverStats};
use crate::deadline;
use crate::primitive::Lock;
use crate::waiter::Waker;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) struct Table {
    settings: ResolverSettings,
    state: Lock<State>,
}

#[derive(Default)]
struct State {
    /// Until when each is good.
    answers: HashMap<Arc<str>, (Instant, Arc<Answer>)>,
    flights: HashMap<Arc<str>, Arc<Flight>>,
    stats: ResolverStats,
}

impl State {
    fn remembered(&mut self, name: &str, now: Instant) -> Option<Arc<Answer>> {
        let (until, answer) = self.answers.get(name)?;
        let answer = (now < *until).then(|| Arc::clone(answer))?;
        self.stats.asked += 1;
        self.stats.remembered += 1;
        Some(answer)
    }
}

/// A look-up under way.
struct Flight {
    name: Arc<str>,
    /// Locked for a moment, by who has locked the table or nothing.
    seats: Lock<Seats>,
}

#[derive(Default)]
struct Seats {
    /// Those who wait for it, by the number of their seat. Who joins has locked the table; who leaves has not.
    wakers: BTreeMap<u64, Waker>,
    next: u64,
    /// Set before anybody is woken.
    answer: Option<Arc<Answer>>,
}

/// What became of a question.
pub(super) enum Asked {
    Answered(Arc<Answer>),
    Joined(Seat),
    /// Whoever asked has to start the look-up.
    First(Seat),
}

/// A place on a flight. Dropping it leaves.
pub(super) struct Seat {
    flight: Arc<Flight>,
    number: u64,
    table: Arc<Table>,
}

impl Seat {
    /// The answer, if it is there.
    pub(super) fn answer(&self) -> Option<Arc<Answer>> {
        self.flight.seats.lock().answer.clone()
    }

    /// For whoever makes the look-up.
    pub(super) fn landing(&self) -> Landing {
        Landing { flight: Arc::clone(&self.flight), table: Arc::clone(&self.table), answer: None }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.flight.seats.lock().wakers.remove(&self.number);
    }
}

impl Table {
    pub(super) fn new(settings: ResolverSettings) -> Table {
        Table { settings, state: Lock::new(State::default()) }
    }

    /// An answer that is still good.
    pub(super) fn remembered(&self, name: &str, now: Instant) -> Option<Arc<Answer>> {
        self.state.lock().remembered(name, now)
    }

    /// For who has found none, and may find one now: a look-up may have ended meanwhile.
    pub(super) fn ask(self: &Arc<Table>, name: &Arc<str>, now: Instant, waker: Waker) -> Asked {
        let mut state = self.state.lock();
        if let Some(answer) = state.remembered(name, now) {
            return Asked::Answered(answer);
        }
        state.stats.asked += 1;
        if let Some(flight) = state.flights.get(name) {
            let seat = self.seat(Arc::clone(flight), waker);
            state.stats.shared += 1;
            return Asked::Joined(seat);
        }
        let flight =
            Arc::new(Flight { name: Arc::clone(name), seats: Lock::new(Seats::default()) });
        state.flights.insert(Arc::clone(name), Arc::clone(&flight));
        Asked::First(self.seat(flight, waker))
    }

    fn seat(self: &Arc<Table>, flight: Arc<Flight>, waker: Waker) -> Seat {
        let mut seats = flight.seats.lock();
        let number = seats.next;
        seats.next += 1;
        seats.wakers.insert(number, waker);
        drop(seats);
        Seat { flight, number, table: Arc::clone(self) }
    }

    pub(super) fn forget(&self) {
        let answers = std::mem::take(&mut self.state.lock().answers);
        drop(answers);
    }

    pub(super) fn note_refusal(&self) {
        self.state.lock().stats.refused += 1;
    }

    pub(super) fn stats(&self) -> ResolverStats {
        let state = self.state.lock();
        ResolverStats { names: state.answers.len(), ..state.stats }
    }

    /// The flight is over; nobody joins it any more.
    fn end(&self, flight: &Flight, answer: Arc<Answer>) -> BTreeMap<u64, Waker> {
        let time_to_live = match *answer {
            Answer::Found(_) => self.settings.time_to_live,
            Answer::Failed { remember: true, .. } => self.settings.time_to_live_failures,
            Answer::Failed { .. } => Duration::ZERO,
        };
        let now = deadline::after(Duration::ZERO);
        let mut state = self.state.lock();
        state.flights.remove(&flight.name);
        if !time_to_live.is_zero() && self.settings.limit_names > 0 {
            self.make_room(&mut state, now);
            let until = deadline::after(time_to_live);
            state.answers.insert(Arc::clone(&flight.name), (until, Arc::clone(&answer)));
        } else {
            state.answers.remove(&flight.name); // it was out of date
        }
        let mut seats = flight.seats.lock();
        seats.answer = Some(answer);
        std::mem::take(&mut seats.wakers)
    }

    /// For one answer more. Only when one was looked up, which takes longer than this.
    fn make_room(&self, state: &mut State, now: Instant) {
        if state.answers.len() < self.settings.limit_names {
            return;
        }
        state.answers.retain(|_, (until, _)| now < *until);
        while state.answers.len() >= self.settings.limit_names {
            let oldest = state.answers.iter().min_by_key(|(_, (until, _))| *until);
            let Some(oldest) = oldest.map(|(name, _)| Arc::clone(name)) else { return };
            state.answers.remove(&oldest);
        }
    }
}

/// The end of a look-up, in the hands of whoever makes it.
pub(super) struct Landing {
    flight: Arc<Flight>,
    table: Arc<Table>,
    answer: Option<Answer>,
}

impl Landing {
    pub(super) fn land(mut self, answer: Answer) {
        self.answer = Some(answer);
        // Told by the drop.
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let answer = self.answer.take().unwrap_or_else(|| Answer::lost(&self.flight.name));
        for waker in self.table.end(&self.flight, Arc::new(answer)).into_values() {
            waker.wake();
        }
    }
}

/// What came of a look-up, for all who have asked.
pub(super) enum Answer {
    Found(Vec<SocketAddr>),
    Failed {
        kind: io::ErrorKind,
        text: String,
        /// It is about the name, and will be the same in a moment.
        remember: bool,
    },
}

impl Answer {
    pub(super) fn new(name: &str, found: io::Result<Vec<SocketAddr>>) -> Answer {
        let failed = |kind, text| Answer::Failed { kind, text, remember: true };
        match found {
            Ok(addresses) if addresses.is_empty() => {
                let text = format!("cannot look up {name:?}: it has no address");
                failed(io::ErrorKind::NotFound, text)
            }
            Ok(addresses) => Answer::Found(addresses),
            Err(error) => failed(error.kind(), format!("cannot look up {name:?}: {error}")),
        }
    }

    /// The look-up did not come to its end.
    fn lost(name: &str) -> Answer {
        let text = format!(
            "cannot look up {name:?}: it was given up, because too many were under way (limit_lookups), \
             because its loop has ended, or because it panicked"
        );
        Answer::Failed { kind: io::ErrorKind::Other, text, remember: false }
    }

    pub(super) fn result(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Answer::Found(addresses) => Ok(addresses.clone()),
            Answer::Failed { kind, text, .. } => Err(io::Error::new(*kind, text.clone())),
        }
    }
}

pub(super) fn refused() -> io::Error {
    let text = "cannot look up a name: too many are being looked up already (limit_lookups)";
    io::Error::new(io::ErrorKind::QuotaExceeded, text)
}
