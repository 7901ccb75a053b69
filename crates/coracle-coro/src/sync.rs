//! Locks, channels and `select!`, between coroutines and threads alike.
//!
//! They have the names of `std::sync`, and four things in common:
//!
//! - **Whoever came first is served first.** A lock is handed from who gives it back to who waited longest, and
//!   nobody passes by on the way. What a waiter misses because its time was up goes to the next.
//! - **A wait can end without success.** A coroutine that waits can be cancelled. The call is then an error
//!   with the code `ECANCELED`, so `?` walks out. Those that take a time-out fail with `TimedOut`; all of them
//!   do so when a [`timeout`](crate::timeout) around them is over. A thread without one may `unwrap`.
//! - **Luck is shared.** Who finds everything ready, 64 times in a row, lets the others of its loop go first; if
//!   it is cancelled by then, or late, the next call fails as a wait does. A free [`Mutex`] or [`RwLock`] does
//!   not, and `try_…` lets nobody run: see [taking turns](crate#taking-turns).
//! - **No poisoning.** A panic ends one coroutine, and unlocks what it had locked. The others go on, and see
//!   what it left behind.
//!
//! | | |
//! |---|---|
//! | [`Mutex`], [`RwLock`], [`Condvar`] | something that many share |
//! | [`channel`] | something that goes from one to another |
//! | [`select!`](crate::select!), [`Select`] | whichever of several channels is first |
//! | [`after`], [`tick`], [`Tick`] | time, in `select!` or by itself |
//! | [`Semaphore`] | so many at a time |
//! | [`Barrier`], [`WaitGroup`] | until all are there, until all are done |
//! | [`Once`], [`OnceLock`] | something that is done once |
//!
//! ```
//! use coracle_coro::sync::Mutex;
//!
//! static VISITORS: Mutex<u32> = Mutex::new(0);
//!
//! *VISITORS.lock()? += 1;
//! # Ok::<(), std::io::Error>(())
//! ```

mod barrier;
mod chance;
mod channel;
mod channel_arms;
mod channel_core;
mod channel_error;
mod channel_futures;
mod channel_wait;
mod condvar;
mod deadline;
pub(crate) mod failure;
pub(crate) mod line;
mod mutex;
mod once;
mod permits;
mod permits_future;
mod ring;
mod rwlock;
pub(crate) mod select;
mod semaphore;
#[cfg(test)]
mod tests;
mod tick;
mod wait_group;

pub use barrier::{Barrier, BarrierWaitResult};
pub use channel::{IntoIter, Iter, Receiver, Sender, TryIter, channel};
pub use channel_arms::{Receiving, Sending};
pub use channel_error::{
    RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError,
};
pub use channel_futures::{RecvFuture, SendFuture};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use once::{Once, OnceLock};
pub use permits_future::{AcquireFuture, LockFuture};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
#[doc(hidden)]
pub use select::{__choose, __choose_now, Wait};
pub use select::{After, Arm, IntoArm, Select, after};
pub use semaphore::{Permit, Semaphore};
pub use tick::{Tick, Ticking, tick};
pub use wait_group::{Member, WaitGroup};
