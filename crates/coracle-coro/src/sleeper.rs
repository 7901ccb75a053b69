//! Somebody who can wait and be woken: a coroutine, or a plain thread.
//!
//! Every wait has a number of its own, its *ticket*, and ends once. Both are in one word, so that whoever
//! changes it first decides how the wait ends, and everybody else learns that it was too late:
//!
//! ```text
//!    word: │ ticket: 62 bits │ state: 2 bits │
//!
//!               ┌── wake ────► WOKEN
//!    begin ──► OPEN ── time ──► TIMED_OUT          the next wait has the next ticket: a wake that was
//!               └── cancel ──► CANCELLED           meant for this one cannot touch it
//! ```
//!
//! Whoever has ended a wait then tells the one who waits: a thread is unparked; a coroutine is put at the end
//! of its loop's queue, directly if that is the loop of the caller, and else by a posted job.

use crate::coroutine::CoroutineId;
use crate::current;
use crate::scheduler::Scheduler;
use crate::task::Key;
use crate::waiter::Woken;
use coracle_loop::{Loop, LoopHandle, PostError};
use slotmap::{Key as _, KeyData};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};

/// The states of a wait, in the two low bits of the word.
const OPEN: u64 = 0;
const WOKEN: u64 = 1;
const TIMED_OUT: u64 = 2;
const CANCELLED: u64 = 3;
const STATE: u64 = 3;
const STATE_BITS: u32 = 2;

thread_local! {
    /// This thread, as one that waits; not for its coroutines.
    static THREAD: Arc<Sleeper> = Arc::new(Sleeper::of_thread());
}

pub(crate) struct Sleeper {
    pub(crate) id: CoroutineId,
    pub(crate) name: Option<Box<str>>,
    /// Where it was spawned, if it is a coroutine.
    pub(crate) spawned: &'static Location<'static>,
    home: Home,
    /// Ticket and state of its last wait. The first ticket is 1.
    word: AtomicU64,
    cancelled: AtomicBool,
    /// What `unpark` leaves and `park` takes.
    permit: AtomicBool,
    /// The ticket of the wait that an `unpark` ends, or 0.
    parked: AtomicU64,
}

/// Where it is to be told.
enum Home {
    Thread(Thread),
    /// The key is that of its task, from when the loop has one for it.
    Loop {
        handle: LoopHandle,
        key: AtomicU64,
    },
}

impl Sleeper {
    pub(crate) fn of_coroutine(
        handle: LoopHandle,
        name: Option<Box<str>>,
        spawned: &'static Location<'static>,
    ) -> Sleeper {
        Sleeper::new(Home::Loop { handle, key: AtomicU64::new(0) }, name, spawned)
    }

    fn of_thread() -> Sleeper {
        let thread = thread::current();
        let name = thread.name().map(Box::from);
        Sleeper::new(Home::Thread(thread), name, Location::caller())
    }

    fn new(home: Home, name: Option<Box<str>>, spawned: &'static Location<'static>) -> Sleeper {
        Sleeper {
            id: CoroutineId::next(),
            name,
            spawned,
            home,
            word: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            permit: AtomicBool::new(false),
            parked: AtomicU64::new(0),
        }
    }

    /// Makes it another coroutine of the same loop. Nobody knows the former one any more: it is borrowed
    /// exclusively.
    pub(crate) fn renew(&mut self, name: Option<Box<str>>, spawned: &'static Location<'static>) {
        self.id = CoroutineId::next();
        self.name = name;
        self.spawned = spawned;
        *self.cancelled.get_mut() = false;
        *self.permit.get_mut() = false;
        *self.parked.get_mut() = 0;
    }

    /// Whoever calls.
    pub(crate) fn of_caller() -> Arc<Sleeper> {
        current::with(|frame| match frame {
            Some(frame) => Arc::clone(&frame.sleeper),
            // A thread that is about to end has no thread-locals any more.
            None => THREAD.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Sleeper::of_thread())),
        })
    }

    pub(crate) fn set_key(&self, key: Key) {
        if let Home::Loop { key: place, .. } = &self.home {
            place.store(key.data().as_ffi(), Ordering::Relaxed);
        }
    }

    // --- Waiting ---------------------------------------------------------------------------------------

    /// Begins a wait; returns its ticket. Only by the one who waits.
    pub(crate) fn begin(&self) -> u64 {
        let ticket = (self.word.load(Ordering::Relaxed) >> STATE_BITS) + 1;
        self.word.store(ticket << STATE_BITS, Ordering::SeqCst);
        ticket
    }

    /// How the wait has ended, if it has.
    pub(crate) fn outcome(&self, ticket: u64) -> Option<Woken> {
        let word = self.word.load(Ordering::SeqCst);
        assert!(
            word >> STATE_BITS == ticket,
            "a wait was begun before the last one was over: this is a bug in coracle"
        );
        match word & STATE {
            OPEN => None,
            WOKEN => Some(Woken::Woken),
            TIMED_OUT => Some(Woken::TimedOut),
            _ => Some(Woken::Cancelled),
        }
    }

    /// Ends the wait without telling the one who waits. False if it was over.
    pub(crate) fn end(&self, ticket: u64, how: Woken) -> bool {
        let state = match how {
            Woken::Woken => WOKEN,
            Woken::TimedOut => TIMED_OUT,
            Woken::Cancelled => CANCELLED,
        };
        let open = ticket << STATE_BITS;
        self.word.compare_exchange(open, open | state, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Ends the wait, and has the one who waits go on. False if it was over. Any thread.
    pub(crate) fn end_and_tell(&self, ticket: u64, how: Woken) -> bool {
        let first = self.end(ticket, how);
        if first {
            self.tell(ticket);
        }
        first
    }

    fn tell(&self, ticket: u64) {
        match &self.home {
            Home::Thread(thread) => thread.unpark(),
            Home::Loop { handle, key } => {
                let key = Key::from(KeyData::from_ffi(key.load(Ordering::Relaxed)));
                if !tell_here(handle, key, ticket) {
                    tell_elsewhere(handle, key, ticket);
                }
            }
        }
    }

    // --- Cancelling ------------------------------------------------------------------------------------

    /// Ends the wait it is in, and every later one. Any thread.
    pub(crate) fn cancel(&self) {
        // It looks at this after it has begun a wait, and we look for a wait after this: one sees the other.
        self.cancelled.store(true, Ordering::SeqCst);
        let ticket = self.word.load(Ordering::SeqCst) >> STATE_BITS;
        if ticket != 0 {
            self.end_and_tell(ticket, Woken::Cancelled);
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    // --- Parking ---------------------------------------------------------------------------------------

    /// Leaves the permit, and ends the wait of a `park`. Any thread.
    pub(crate) fn unpark(&self) {
        // As with `cancel`: first the permit, then a look at who waits for it.
        self.permit.store(true, Ordering::SeqCst);
        let ticket = self.parked.load(Ordering::SeqCst);
        if ticket != 0 {
            self.end_and_tell(ticket, Woken::Woken);
        }
    }

    /// Takes the permit, if it is there.
    pub(crate) fn take_permit(&self) -> bool {
        self.permit.swap(false, Ordering::SeqCst)
    }

    /// An `unpark` ends the wait with this ticket, also one that came a moment ago. 0: none does.
    pub(crate) fn set_parked(&self, ticket: u64) {
        self.parked.store(ticket, Ordering::SeqCst);
        if ticket != 0 && self.permit.load(Ordering::SeqCst) {
            self.end(ticket, Woken::Woken);
        }
    }
}

/// Tells a coroutine of the loop whose turn it is on this thread. False if it is of another.
fn tell_here(handle: &LoopHandle, key: Key, ticket: u64) -> bool {
    let told = current::with(|frame| match frame {
        Some(frame) if frame.scheduler().is_of(handle) => {
            frame.scheduler().make_ready(key, ticket);
            true
        }
        _ => false,
    });
    told || match Loop::current() {
        Some(lp) if handle.is_of(&lp) => {
            Scheduler::of(&lp).make_ready(key, ticket);
            true
        }
        _ => false,
    }
}

fn tell_elsewhere(handle: &LoopHandle, key: Key, ticket: u64) {
    let tell = move |lp: &Loop| Scheduler::of(lp).make_ready(key, ticket);
    // A wake-up must not be lost, so a loop that is behind with its posted jobs is waited for. One that is gone
    // has nobody left who waits.
    while handle.post(tell) == Err(PostError::Full) {
        thread::yield_now();
    }
}

/// `'resolver'`, or `#7` if it has no name.
impl fmt::Display for Sleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "'{name}'"),
            None => write!(f, "#{}", self.id),
        }
    }
}
