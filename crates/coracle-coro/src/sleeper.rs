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
//! of its loop's queue, directly if that is the loop of the caller, and else by a posted job; a future's waker is
//! woken.
//!
//! `park` has a second word: nothing, a permit, or the ticket of the wait that an `unpark` is to end. And a cancel
//! is a flag that is looked at when a wait begins. So that a wait that begins at the same moment is struck as
//! well, a coroutine is struck by its own loop's thread, and a thread looks in an order that leaves no gap.

#![allow(unsafe_code)]

use crate::coroutine::{CoroutineId, Name};
use crate::current::Caller;
use crate::ending::Ending;
use crate::inbox;
use crate::primitive::Lock;
use crate::scheduler::Scheduler;
use crate::task::{Key, Task};
use crate::waiter::Woken;
use crate::way::Way;
use coracle_loop::{Loop, LoopHandle};
use slotmap::{Key as _, KeyData};
use std::fmt;
use std::panic::Location;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
use std::task;
use std::thread::{self, Thread};

/// The states of a wait, in the two low bits of the word.
const OPEN: u64 = 0;
const WOKEN: u64 = Woken::Woken as u64;
const TIMED_OUT: u64 = Woken::TimedOut as u64;
const STATE: u64 = 3;
const STATE_BITS: u32 = 2;

/// The word of one whose loop is gone: it is in no wait, and never will be.
const LOST: u64 = u64::MAX;

/// What is in the word of `park`, but for a ticket.
const NOTHING: u64 = 0;
const PERMIT: u64 = u64::MAX;

thread_local! {
    /// This thread, as one that waits; not for its coroutines.
    static THREAD: Arc<Sleeper> = Arc::new(Sleeper::of_thread());
}

pub(crate) struct Sleeper {
    pub(crate) id: CoroutineId,
    pub(crate) name: Option<Name>,
    /// Where it was spawned, if it is a coroutine.
    pub(crate) spawned: &'static Location<'static>,
    home: Home,
    /// Ticket and state of its last wait. The first ticket is 1.
    word: AtomicU64,
    /// What `unpark` leaves and `park` takes, or the ticket of the wait that an `unpark` ends.
    park: AtomicU64,
    /// Whether it is cancelled; and if it is a coroutine: what it runs, what it leaves, and who waits for that.
    pub(crate) ending: Ending,
}

/// Where it is to be told.
enum Home {
    Thread(Thread),
    /// The others are there from when the loop has a task for it.
    Loop {
        handle: LoopHandle,
        /// That of its task, for other threads.
        key: AtomicU64,
        /// Its task, for the thread of its loop; null when that is gone, or runs another.
        task: AtomicPtr<Task>,
        /// That of its scheduler.
        inbox: Way,
    },
    /// Whoever polls the future that waits, if it was polled since.
    Future(Lock<Option<task::Waker>>),
}

impl Sleeper {
    pub(crate) fn of_coroutine(
        handle: LoopHandle,
        id: CoroutineId,
        name: Option<Box<str>>,
        spawned: &'static Location<'static>,
    ) -> Sleeper {
        let (key, task) = (AtomicU64::new(0), AtomicPtr::new(null_mut()));
        let home = Home::Loop { handle, key, task, inbox: Way::default() };
        Sleeper::new(home, id, name, spawned)
    }

    fn of_thread() -> Sleeper {
        let thread = thread::current();
        let name = thread.name().map(Box::from);
        Sleeper::new(Home::Thread(thread), CoroutineId::next(), name, Location::caller())
    }

    /// One wait of a future, whoever polls it.
    pub(crate) fn of_future(waker: Option<task::Waker>) -> Sleeper {
        Sleeper::new(Home::Future(Lock::new(waker)), CoroutineId::next(), None, Location::caller())
    }

    fn new(
        home: Home,
        id: CoroutineId,
        name: Option<Box<str>>,
        spawned: &'static Location<'static>,
    ) -> Sleeper {
        Sleeper {
            id,
            name: name.map(Name::new),
            spawned,
            home,
            word: AtomicU64::new(0),
            park: AtomicU64::new(NOTHING),
            ending: Ending::new(),
        }
    }

    /// Makes it another coroutine of the same loop, if nobody knows the former one any more.
    #[inline]
    pub(crate) fn renew(
        this: &mut Arc<Sleeper>,
        id: CoroutineId,
        name: Option<Box<str>>,
        spawned: &'static Location<'static>,
    ) -> Result<(), Option<Box<str>>> {
        if Arc::strong_count(this) != 1 {
            return Err(name);
        }
        fence(Ordering::Acquire); // whoever had it has done with it
        #[cfg(feature = "thread-sanitizer")] // which does not know fences, but the ordering of what this loads
        assert!(Arc::get_mut(this).is_some());
        // SAFETY: this is the only one, and is borrowed exclusively; nobody makes a `Weak` of a sleeper. What
        // is only lent of it (`current.rs`) is lent by a coroutine that runs, and this one is over.
        let sleeper = unsafe { &mut *Arc::as_ptr(this).cast_mut() };
        sleeper.id = id;
        if sleeper.name.is_some() || name.is_some() {
            sleeper.name = name.map(Name::new);
        }
        sleeper.spawned = spawned;
        *sleeper.park.get_mut() = NOTHING;
        sleeper.ending.renew();
        Ok(())
    }

    /// Whether nobody but its task, or a coroutine that lends it, has one, and nobody who had has asked anything
    /// of it.
    #[inline]
    pub(crate) fn is_unknown(this: &Arc<Sleeper>) -> bool {
        if Arc::strong_count(this) != 1 {
            return false;
        }
        fence(Ordering::Acquire); // what others did before they dropped theirs is seen
        this.park.load(Ordering::Relaxed) == NOTHING
            && !this.ending.cancelled.load(Ordering::Relaxed)
    }

    /// Its tickets go on where those of `former`, whose place in the scheduler it takes, have ended. A wake that
    /// was meant for that one, and is still on its way, then cannot be taken for one of its own. So does its key.
    pub(crate) fn succeed(&self, former: &Sleeper) {
        let last = former.word.load(Ordering::Relaxed) >> STATE_BITS;
        self.word.store(last << STATE_BITS | WOKEN, Ordering::Relaxed);
        if let Home::Loop { key, .. } = &self.home {
            key.store(former.key().data().as_ffi(), Ordering::Relaxed);
        }
    }

    /// That of its task, if it has one.
    #[inline]
    pub(crate) fn key(&self) -> Key {
        match &self.home {
            Home::Loop { key, .. } => KeyData::from_ffi(key.load(Ordering::Relaxed)).into(),
            Home::Thread(_) | Home::Future(_) => Key::null(),
        }
    }

    /// This thread, as one that waits.
    #[cold]
    pub(crate) fn of_this_thread() -> Arc<Sleeper> {
        // A thread that is about to end has no thread-locals any more.
        THREAD.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Sleeper::of_thread()))
    }

    /// Whoever calls.
    pub(crate) fn of_caller() -> Arc<Sleeper> {
        Arc::clone(&Caller::new())
    }

    /// It has a task now, which its owner has under this key. By the thread of its loop.
    pub(crate) fn settle(&self, owner: &Scheduler, new_key: Key, new_task: &Task) {
        if let Home::Loop { key, task, inbox, .. } = &self.home {
            inbox.lead_to(owner.inbox());
            key.store(new_key.data().as_ffi(), Ordering::Relaxed);
            task.store(std::ptr::from_ref(new_task).cast_mut(), Ordering::Relaxed);
        }
    }

    /// It has none any more. By the thread of its loop.
    pub(crate) fn unsettle(&self) {
        if let Home::Loop { task, .. } = &self.home {
            task.store(null_mut(), Ordering::Relaxed);
        }
    }

    /// Whether it is a coroutine of the loop that `handle` names.
    #[inline]
    pub(crate) fn is_of(&self, other: &LoopHandle) -> bool {
        matches!(&self.home, Home::Loop { handle, .. } if handle.is_same(other))
    }

    /// Whom to tell, if it is a future that waits. Whoever calls looks at the outcome after this.
    pub(crate) fn set_waker(&self, waker: &task::Waker) {
        let Home::Future(place) = &self.home else { return };
        let mut told = place.lock();
        if told.as_ref().is_some_and(|told| told.will_wake(waker)) {
            return;
        }
        let former = told.replace(waker.clone());
        drop(told);
        drop(former); // which may be the last of somebody's
    }

    // --- Waiting ---------------------------------------------------------------------------------------

    /// Begins a wait; returns its ticket. Only by the one who waits.
    #[inline]
    pub(crate) fn begin(&self) -> u64 {
        match self.home {
            Home::Loop { .. } => self.begin_in_coroutine(),
            Home::Thread(_) | Home::Future(_) => {
                let open = (self.word.load(Ordering::Relaxed) | STATE) + 1;
                self.word.store(open, Ordering::SeqCst);
                open >> STATE_BITS
            }
        }
    }

    /// The same for who is known to be a coroutine. Nobody knows of this wait before its waker was given away, and
    /// what strikes it comes from this thread.
    #[inline]
    pub(crate) fn begin_in_coroutine(&self) -> u64 {
        let open = (self.word.load(Ordering::Relaxed) | STATE) + 1;
        self.word.store(open, Ordering::Release);
        open >> STATE_BITS
    }

    /// How the wait has ended, if it has.
    #[inline]
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
    #[inline]
    pub(crate) fn end(&self, ticket: u64, how: Woken) -> bool {
        let open = ticket << STATE_BITS;
        self.word
            .compare_exchange(open, open | how as u64, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// The same, if all who know of the wait are of the thread of who waits.
    #[inline]
    pub(crate) fn end_here(&self, ticket: u64, how: Woken) -> bool {
        let open = ticket << STATE_BITS;
        let first = self.word.load(Ordering::Relaxed) == open;
        if first {
            self.word.store(open | how as u64, Ordering::Release);
        }
        first
    }

    /// Its loop is gone: whatever it waits for is for somebody else.
    pub(crate) fn lose(&self) {
        self.word.store(LOST, Ordering::SeqCst);
    }

    /// Whether its loop is gone, so that it never comes to leave the lines that it is in.
    #[cold]
    pub(crate) fn is_lost(&self) -> bool {
        self.word.load(Ordering::SeqCst) == LOST
    }

    /// Ends the wait, and has the one who waits go on. False if it was over. Any thread.
    #[inline]
    pub(crate) fn end_and_tell(&self, ticket: u64, how: Woken) -> bool {
        let first = self.end(ticket, how);
        if first {
            self.tell(ticket);
        }
        first
    }

    /// The time of the wait with this ticket is over: the coroutine goes on at once, ahead of those who are ready,
    /// for it has waited long enough. False if it was over. Only for what the loop itself calls, with nothing
    /// borrowed: a timer.
    pub(crate) fn time_out_now(&self, lp: &Loop, ticket: u64) -> bool {
        if !self.end(ticket, Woken::TimedOut) {
            return false;
        }
        match &self.home {
            Home::Loop { handle, task, .. } if handle.is_of(lp) => {
                // SAFETY: as in `tell`.
                if let Some(task) = unsafe { task.load(Ordering::Relaxed).as_ref() } {
                    task.go_on_now(ticket);
                }
            }
            _ => self.tell_elsewhere(ticket),
        }
        true
    }

    /// The same for whatever wait it is in. False if it is in none.
    pub(crate) fn time_out_wait(&self, lp: &Loop) -> bool {
        let word = self.word.load(Ordering::SeqCst);
        word != 0 && word & STATE == OPEN && self.time_out_now(lp, word >> STATE_BITS)
    }

    /// The wait with this ticket was ended by who calls: has the one who waits go on.
    #[inline]
    pub(crate) fn tell(&self, ticket: u64) {
        match &self.home {
            Home::Loop { handle, task, .. } if handle.is_current() => {
                // SAFETY: this is a turn of its loop, so this is the thread that frees its tasks; each of them
                // takes this pointer back before it is freed.
                if let Some(task) = unsafe { task.load(Ordering::Relaxed).as_ref() } {
                    task.go_on(ticket);
                }
            }
            _ => self.tell_elsewhere(ticket),
        }
    }

    #[inline(never)]
    fn tell_elsewhere(&self, ticket: u64) {
        match &self.home {
            Home::Thread(thread) => thread.unpark(),
            Home::Future(waker) => {
                let waker = waker.lock().take();
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Home::Loop { handle, key, inbox, .. } => {
                let key = Key::from(KeyData::from_ffi(key.load(Ordering::Relaxed)));
                if let Some(inbox) = inbox.get() {
                    inbox.put(handle, key, ticket);
                }
            }
        }
    }

    // --- Cancelling ------------------------------------------------------------------------------------

    /// Ends the wait it is in, and every later one. Any thread.
    pub(crate) fn cancel(self: &Arc<Self>) {
        self.ending.cancelled.store(true, Ordering::SeqCst);
        match &self.home {
            Home::Loop { handle, .. } if !handle.is_current() => {
                let sleeper = Arc::clone(self);
                inbox::post(handle, move |_| sleeper.strike());
            }
            // A coroutine of this loop has either begun its wait, or will look at the flag when it does. A thread
            // looks at the flag after it has begun, and we look for a wait after the flag: one sees the other.
            _ => self.strike(),
        }
    }

    fn strike(&self) {
        let ticket = self.word.load(Ordering::SeqCst) >> STATE_BITS;
        if ticket != 0 && !self.ending.shielded.load(Ordering::Relaxed) {
            self.end_and_tell(ticket, Woken::Cancelled);
        }
    }

    /// Raises or lowers the [shield](crate::shield()); returns whether it was up. Only by the one who waits.
    pub(crate) fn set_shielded(&self, shielded: bool) -> bool {
        self.ending.shielded.swap(shielded, Ordering::Relaxed)
    }

    pub(crate) fn is_shielded(&self) -> bool {
        self.ending.shielded.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.ending.cancelled.load(Ordering::SeqCst)
    }

    // --- Parking ---------------------------------------------------------------------------------------

    /// Leaves the permit, and ends the wait of a `park`. Any thread.
    pub(crate) fn unpark(&self) {
        let before = self.park.swap(PERMIT, Ordering::AcqRel);
        if before != NOTHING && before != PERMIT {
            self.end_and_tell(before, Woken::Woken);
        }
    }

    /// Takes the permit, if it is there. Only by the one who parks.
    #[inline]
    pub(crate) fn take_permit(&self) -> bool {
        // Taken in one step, so that whatever an `unpark` that comes meanwhile wants to be seen is seen.
        self.park.load(Ordering::Relaxed) == PERMIT
            && self.park.swap(NOTHING, Ordering::AcqRel) == PERMIT
    }

    /// An `unpark` ends the wait with this ticket. False if one has come before, and left the permit.
    #[inline]
    pub(crate) fn begin_park(&self, ticket: u64) -> bool {
        self.park.compare_exchange(NOTHING, ticket, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The wait is over; from now on an `unpark` only leaves the permit.
    #[inline]
    pub(crate) fn end_park(&self, ticket: u64) {
        if self.park.load(Ordering::Relaxed) == ticket {
            let order = (Ordering::AcqRel, Ordering::Acquire);
            let _ = self.park.compare_exchange(ticket, NOTHING, order.0, order.1);
        }
    }
}

/// `'resolver'`, or `#7` if it has no name.
impl fmt::Display for Sleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_deref() {
            Some(name) => write!(f, "'{name}'"),
            None => write!(f, "#{}", self.id),
        }
    }
}
