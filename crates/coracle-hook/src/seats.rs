//! Who waits on which descriptor, in all loops: for whoever closes it.
//!
//! A number that is closed under somebody's wait would leave him waiting: epoll forgets a closed descriptor
//! without a word. So a wait takes a seat at its number, and `close` wakes all who sit there.

use coracle_coro::hooking::Wake;
use coracle_loop::LoopHandle;
use coracle_loop::demux::lock::Lock;
use libc::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

/// So many counters, which numbers share: a close looks at one of them, and nearly always finds zero.
const COUNTERS: usize = 4096;

/// Numbers beyond share a place with lower ones. Memory that is not used is not there.
const NUMBERS: usize = 1 << 20;

static COUNTS: [AtomicU32; COUNTERS] = [const { AtomicU32::new(0) }; COUNTERS];

/// The lowest bit: whether a loop knows this number; then it is told of a close. The rest counts how often such a
/// number was closed.
static LENT: [AtomicU32; NUMBERS] = [const { AtomicU32::new(0) }; NUMBERS];

/// By number.
static SEATS: Lock<Vec<Vec<Arc<Seat>>>> = Lock::new(Vec::new());

/// Somebody who waits on a descriptor.
struct Seat {
    closed: AtomicBool,
    wake: Wake,
}

/// A seat that is given back when this is dropped.
pub(crate) struct Sitting {
    fd: c_int,
    seat: Arc<Seat>,
}

impl Sitting {
    /// Takes a seat at `fd`, which is a number from 0 on.
    pub(crate) fn new(fd: c_int, wake: Wake) -> Sitting {
        let seat = Arc::new(Seat { closed: AtomicBool::new(false), wake });
        counter(fd).fetch_add(1, Ordering::SeqCst);
        let mut seats = SEATS.lock();
        let index = fd as usize;
        if index >= seats.len() {
            seats.resize_with(index + 1, Vec::new);
        }
        seats[index].push(Arc::clone(&seat));
        Sitting { fd, seat }
    }

    /// The number it is at.
    pub(crate) fn fd(&self) -> c_int {
        self.fd
    }

    /// Whether the descriptor was closed meanwhile.
    pub(crate) fn is_closed(&self) -> bool {
        self.seat.closed.load(Ordering::Acquire)
    }
}

impl Drop for Sitting {
    fn drop(&mut self) {
        counter(self.fd).fetch_sub(1, Ordering::SeqCst);
        if let Some(seats) = SEATS.lock().get_mut(self.fd as usize) {
            seats.retain(|seat| !Arc::ptr_eq(seat, &self.seat));
        }
    }
}

/// Loops that have a socket of this number, by number: they are told of its close.
static HOMES: Lock<Vec<Vec<LoopHandle>>> = Lock::new(Vec::new());

/// A loop knows this number from now on. Tells which of those that have had the number it is.
pub(crate) fn note_lent(fd: c_int) -> u32 {
    LENT[fd as usize % NUMBERS].fetch_or(1, Ordering::Relaxed) >> 1
}

/// A loop has a socket of this number from now on.
pub(crate) fn note_home(fd: c_int, home: LoopHandle) {
    note_lent(fd);
    let mut homes = HOMES.lock();
    let index = fd as usize;
    if index >= homes.len() {
        homes.resize_with(index + 1, Vec::new);
    }
    if !homes[index].iter().any(|other| other.is_same(&home)) {
        homes[index].push(home);
    }
}

/// Which of those that have had the number it is.
#[inline]
pub(crate) fn generation(fd: c_int) -> u32 {
    LENT[fd as usize % NUMBERS].load(Ordering::Relaxed) >> 1
}

/// What changes before a number that a loop knows is closed.
#[inline]
pub(crate) fn closes(fd: c_int) -> &'static AtomicU32 {
    &LENT[fd as usize % NUMBERS]
}

/// A number is born. If a loop has it still, it was closed past libc.
pub(crate) fn renew(fd: c_int) {
    if LENT[fd as usize % NUMBERS].load(Ordering::Relaxed) & 1 == 1 {
        drop(closing(fd));
    }
}

/// Whether somebody has to be told that this number is closed.
#[inline]
pub(crate) fn matters(fd: c_int) -> bool {
    LENT[fd as usize % NUMBERS].load(Ordering::Relaxed) & 1 == 1
        || counter(fd).load(Ordering::SeqCst) != 0
}

/// The descriptor is about to be closed: all who wait on it are told. Those loops that have a socket of it are
/// still to be.
pub(crate) fn closing(fd: c_int) -> Vec<LoopHandle> {
    let place = &LENT[fd as usize % NUMBERS];
    let next = |lent: u32| Some((lent | 1).wrapping_add(1));
    let _ = place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    let leaving = SEATS.lock().get_mut(fd as usize).map(std::mem::take).unwrap_or_default();
    for seat in leaving {
        seat.closed.store(true, Ordering::Release);
        seat.wake.wake();
    }
    let mut homes = HOMES.lock();
    homes.get_mut(fd as usize).map(std::mem::take).unwrap_or_default()
}

/// The descriptors `first` to `last` were closed just now. Who has sat down at one of them since they were
/// [about to be](closing) may have begun a wait that nobody would end: they look again, and find it closed, or
/// somebody else's.
pub(crate) fn closed(first: c_int, last: c_int) {
    fence(Ordering::SeqCst); // who sits down after this finds it closed
    let single = first == last;
    if single && counter(first).load(Ordering::SeqCst) == 0 {
        return;
    }
    let mut sitting = Vec::new();
    for seats in SEATS.lock().iter().take(last as usize + 1).skip(first as usize) {
        sitting.extend(seats.iter().cloned());
    }
    for seat in sitting {
        seat.wake.wake();
    }
}

fn counter(fd: c_int) -> &'static AtomicU32 {
    &COUNTS[fd as usize % COUNTERS]
}
