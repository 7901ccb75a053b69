//! How a coroutine ends, and who waits for that.
//!
//! What it runs, and later what it leaves, are in one place, for they are never there at the same time. Who may
//! touch the place is a matter of the state:
//!
//! ```text
//!              the closure, until it starts         the result
//!
//!              ┌── OPEN ───────────────────────┬──► OVER ──► TAKEN
//!   the handle │    │ ▲                        │            by the handle
//!   is dropped │    ▼ │ in vain                └──► NEVER_BEGAN, NEVER_ENDS, LOST
//!              │  WAITED, HERE ────────────────┘
//!              ▼                                    the coroutine drops it,
//!           DETACHED ──────────────────────────────► or never makes it
//! ```
//!
//! There is one handle, so there is one who waits: a coroutine, a thread, or whoever polls the handle as a future,
//! whose waker stays until the next poll. If both are coroutines of one loop (HERE), then neither of them
//! can do anything while the other does, and it costs no atomic operation.
#![allow(unsafe_code)]

use crate::place::Place;
use crate::primitive::{AtomicU8, Shared};
use crate::waiter::Waker;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Nobody waits.
const OPEN: u8 = 0;
/// Somebody waits, and has left a waker.
const WAITED: u8 = 1;
/// The same, but both are coroutines of one loop, and the waker is only lent.
const HERE: u8 = 2;
/// There is no handle any more.
const DETACHED: u8 = 3;
/// There is a result.
const OVER: u8 = 4;
/// There is none, and there will be none.
const NEVER_BEGAN: u8 = 5;
/// The same: it was started, and is parked for good.
const NEVER_ENDS: u8 = 6;
/// The same: it was started, and its loop is gone.
const LOST: u8 = 7;
/// The handle has had it.
const TAKEN: u8 = 8;

/// Why there is no result, and will be none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nothing {
    /// It could not be started.
    NeverBegan,
    /// It is parked for good.
    NeverEnds,
    /// Its loop is gone.
    Lost,
}

pub(crate) struct Ending {
    state: AtomicU8,
    /// It was asked to end: its waits fail.
    pub(crate) cancelled: AtomicBool,
    /// It does not want to hear of that for now. Of coroutines only, and looked at by their own loop's thread.
    pub(crate) shielded: AtomicBool,
    /// Of who waits.
    waker: Shared<Option<ManuallyDrop<Waker>>>,
    place: Shared<Place>,
}

// SAFETY: what is in the cells is touched by one at a time, as the state has it, and its changes are what orders
// those touches. What is in the place need not be `Send`: the closure is put there and taken by the thread of its
// coroutine, and a result that is not `Send` has a handle that is not, so it stays there as well.
unsafe impl Send for Ending {}
// SAFETY: as above.
unsafe impl Sync for Ending {}

impl Ending {
    pub(crate) fn new() -> Ending {
        Ending {
            state: AtomicU8::new(OPEN),
            cancelled: AtomicBool::new(false),
            shielded: AtomicBool::new(false),
            waker: Shared::new(None),
            place: Shared::new(Place::new()),
        }
    }

    /// As new, for another coroutine.
    pub(crate) fn renew(&mut self) {
        self.state.store(OPEN, Ordering::Relaxed);
        *self.cancelled.get_mut() = false;
        *self.shielded.get_mut() = false;
    }

    /// There is no handle from the beginning. Before the coroutine is started.
    #[inline]
    pub(crate) fn begin_detached(&self) {
        self.state.store(DETACHED, Ordering::Relaxed);
    }

    // --- The coroutine's side --------------------------------------------------------------------------

    /// Puts the closure there.
    ///
    /// # Safety
    /// By the thread of the coroutine, which was not started, and has no other closure.
    #[inline]
    pub(crate) unsafe fn load<F>(&self, f: F) {
        // SAFETY: nobody looks into the place before there is a result.
        self.place.with_mut(|place| unsafe { (*place).put(f) });
    }

    /// Takes it out.
    ///
    /// # Safety
    /// By the same thread, once, after an `F` was put there.
    #[inline]
    pub(crate) unsafe fn unload<F>(&self) -> F {
        // SAFETY: as above.
        self.place.with_mut(|place| unsafe { (*place).take() })
    }

    /// Leaves the result, and wakes who waits for it. If nobody ever will, it is returned.
    ///
    /// # Safety
    /// By the coroutine, once. `T` is what the handle has.
    #[inline]
    pub(crate) unsafe fn finish<T>(&self, result: thread::Result<T>) -> Option<thread::Result<T>> {
        // SAFETY: the closure is used up, and nobody looks for a result before `close`.
        self.place.with_mut(|place| unsafe { (*place).put(result) });
        if self.close(OVER) {
            return None;
        }
        // SAFETY: it was put there a moment ago, and there is no handle that could have taken it.
        Some(self.place.with_mut(|place| unsafe { (*place).take() }))
    }

    /// There will be no result.
    ///
    /// # Safety
    /// Instead of [`finish`](Ending::finish).
    pub(crate) unsafe fn give_up(&self) {
        self.close(NEVER_BEGAN);
    }

    /// There will be no result, though it was started: the coroutine is parked for good.
    ///
    /// # Safety
    /// Instead of [`finish`](Ending::finish).
    pub(crate) unsafe fn leak(&self) {
        self.close(NEVER_ENDS);
    }

    /// There will be no result: the loop of the coroutine is gone, and it was not over.
    ///
    /// # Safety
    /// Instead of [`finish`](Ending::finish).
    pub(crate) unsafe fn lose(&self) {
        if self.state.load(Ordering::Relaxed) == HERE {
            // Who waits is a coroutine of the same loop, so it will not go on either, nor drop what it has lent.
            return;
        }
        self.close(LOST);
    }

    /// False if there is no handle.
    #[inline]
    fn close(&self, how: u8) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        if state == DETACHED {
            return false; // and nobody changes that any more
        }
        if state == HERE {
            // Who waits is of this thread, and nobody else changes the state.
            self.state.store(how, Ordering::Relaxed);
            // SAFETY: it waits until it is woken, or takes its waker back.
            let waker = self.waker.with_mut(|waker| unsafe { (*waker).take() });
            waker.expect("who waits has lent its waker").wake_here();
            return true;
        }
        let before = self.state.swap(how, Ordering::AcqRel);
        if before == WAITED {
            // SAFETY: who has left it does not touch it any more, now that this is over.
            let waker = self.waker.with_mut(|waker| unsafe { (*waker).take() });
            let waker = waker.expect("who waits has left its waker");
            ManuallyDrop::into_inner(waker).wake();
        }
        before != DETACHED
    }

    // --- The handle's side -----------------------------------------------------------------------------

    pub(crate) fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) >= OVER
    }

    /// Whether the handle has had the result.
    pub(crate) fn is_taken(&self) -> bool {
        self.state.load(Ordering::Relaxed) == TAKEN
    }

    /// The result, if there is one by now; or why there will be none.
    ///
    /// # Safety
    /// By the handle. `T` is what the coroutine leaves.
    #[inline]
    pub(crate) unsafe fn take<T>(&self) -> Option<Result<thread::Result<T>, Nothing>> {
        let state = self.state.load(Ordering::Acquire);
        if state < OVER {
            return None;
        }
        self.state.store(TAKEN, Ordering::Relaxed); // the coroutine changes it no more
        Some(match state {
            // SAFETY: it is there, of this type, and the coroutine touches it no more.
            OVER => Ok(self.place.with_mut(|place| unsafe { (*place).take() })),
            NEVER_ENDS => Err(Nothing::NeverEnds),
            LOST => Err(Nothing::Lost),
            TAKEN => panic!("a handle is joined or awaited to its end once"),
            _ => Err(Nothing::NeverBegan),
        })
    }

    /// Has `waker` woken at the end. False if it is over, and there is no need to wait.
    ///
    /// # Safety
    /// By the handle, if it is [open](Ending::reopen). If `here`, then by a coroutine of the same loop as the one
    /// it waits for, whose waker is lent until [`leave`](Ending::leave) or [`detach`](Ending::detach).
    #[inline]
    pub(crate) unsafe fn expect(&self, waker: ManuallyDrop<Waker>, here: bool) -> bool {
        // SAFETY: the coroutine does not look at it in a state without a waker.
        self.waker.with_mut(|place| unsafe { *place = Some(waker) });
        if here {
            let open = self.state.load(Ordering::Relaxed) == OPEN;
            if open {
                self.state.store(HERE, Ordering::Relaxed);
            }
            return open;
        }
        let open =
            self.state.compare_exchange(OPEN, WAITED, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !open {
            self.drop_waker();
        }
        open
    }

    /// Sees to it that nobody waits, so that somebody may. False if it is over.
    ///
    /// # Safety
    /// By the handle.
    #[inline]
    pub(crate) unsafe fn reopen(&self) -> bool {
        self.state.load(Ordering::Relaxed) == OPEN || self.take_waker_back(OPEN)
    }

    /// Nobody waits any more, if anybody does.
    ///
    /// # Safety
    /// By the handle.
    #[inline]
    pub(crate) unsafe fn leave(&self) {
        self.take_waker_back(OPEN);
    }

    /// There is no handle any more. Returns the result, if there is one that nobody has taken.
    ///
    /// # Safety
    /// By the handle, as the last thing it does. `T` is what the coroutine leaves.
    #[inline]
    pub(crate) unsafe fn detach<T>(&self) -> Option<thread::Result<T>> {
        if self.state.load(Ordering::Relaxed) == TAKEN {
            return None;
        }
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let detached = self.take_waker_back(DETACHED)
            || self.state.compare_exchange(OPEN, DETACHED, order.0, order.1).is_ok();
        // SAFETY: from then on, the coroutine drops its result. Else it is over.
        if detached { None } else { unsafe { self.take() }?.ok() }
    }

    /// From a state with a waker to one without. False if it was in another state.
    #[inline]
    fn take_waker_back(&self, next: u8) -> bool {
        match self.state.load(Ordering::Relaxed) {
            HERE => {
                self.state.store(next, Ordering::Relaxed); // it was only lent
                true
            }
            WAITED => {
                let order = (Ordering::AcqRel, Ordering::Acquire);
                let is_back = self.state.compare_exchange(WAITED, next, order.0, order.1).is_ok();
                if is_back {
                    self.drop_waker();
                }
                is_back
            }
            _ => false,
        }
    }

    /// In a state without one.
    fn drop_waker(&self) {
        // SAFETY: nobody but the handle looks at it now.
        let waker = self.waker.with_mut(|place| unsafe { (*place).take() });
        drop(waker.map(ManuallyDrop::into_inner));
    }
}
