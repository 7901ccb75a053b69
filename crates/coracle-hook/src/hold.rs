//! Calls that are never parked in, and hold their loop meanwhile: they are counted, and told if they took long.
//!
//! A lock that somebody waits for in a coroutine (`futex`), a file that goes to the disk (`fsync`), a lock on a
//! file (`flock`), a file that is opened from afar (`open`): to park there would let other coroutines into code
//! that takes its thread for its own. So they block, as ever, and this is how one hears of it.
#![allow(unsafe_code)]

use crate::close;
use crate::gate;
use coracle_coro::hooking::unhooked;
use libc::{c_char, c_int, c_long, c_uint, mode_t};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Whoever holds a loop so long is told.
pub(crate) const LIMIT_HOLD: Duration = Duration::from_millis(20);

/// How often calls that are never parked in have held a loop of coroutines for long: 20 ms or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Holds {
    /// A lock, a condition variable, a channel of std's, of `parking_lot`'s: anything that asks for a futex by
    /// `syscall`. Not what waits inside libc: `JoinHandle::join` of a thread.
    pub futex: u64,
    /// `fsync`, `fdatasync`.
    pub fsync: u64,
    /// `flock`.
    pub flock: u64,
    /// `open` and its kin.
    pub open: u64,
}

impl Holds {
    /// How many there were.
    pub(crate) fn all(&self) -> u64 {
        self.futex + self.fsync + self.flock + self.open
    }
}

#[derive(Clone, Copy)]
enum What {
    Futex,
    Fsync,
    Flock,
    Open,
}

static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

pub(crate) fn counts() -> Holds {
    let [futex, fsync, flock, open] = COUNTS.each_ref().map(|count| count.load(Ordering::Relaxed));
    Holds { futex, fsync, flock, open }
}

hook! {
    always fn fsync(fd: c_int) -> c_int {
        held(What::Fsync, || {
            // SAFETY: as it was called.
            unsafe { next!(fsync(fd: c_int) -> c_int) }
        })
    }

    always fn fdatasync(fd: c_int) -> c_int {
        held(What::Fsync, || {
            // SAFETY: as it was called.
            unsafe { next!(fdatasync(fd: c_int) -> c_int) }
        })
    }

    always fn flock(fd: c_int, operation: c_int) -> c_int {
        held(What::Flock, || {
            // SAFETY: as it was called.
            unsafe { next!(flock(fd: c_int, operation: c_int) -> c_int) }
        })
    }

    // These take a variable number of arguments in C. On the machines that there are hooks for, those are passed
    // as the fixed ones are, and one that was not given is whatever is there, and not looked at.

    always fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        held(What::Open, || {
            // SAFETY: as it was called.
            unsafe { next!(open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int) }
        })
    }

    always fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        held(What::Open, || {
            // SAFETY: as it was called.
            unsafe { next!(open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int) }
        })
    }

    always fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        held(What::Open, || {
            // SAFETY: as it was called.
            unsafe { next!(openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int) }
        })
    }

    always fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        held(What::Open, || {
            // SAFETY: as it was called.
            unsafe { next!(openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int) }
        })
    }

    always fn syscall(
        number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long,
    ) -> c_long {
        let call = || {
            // SAFETY: as it was called.
            unsafe {
                next!(syscall(
                    number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long,
                ) -> c_long)
            }
        };
        if number == libc::SYS_close && gate::is_enabled() {
            close::closing(a as c_int);
            let answer = call();
            close::closed(a as c_int);
            return answer;
        }
        if number == libc::SYS_futex && is_wait(b) { held(What::Futex, call) } else { call() }
    }
}

/// Whether an operation of futex(2) waits.
fn is_wait(operation: c_long) -> bool {
    let operation = operation as c_int & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    matches!(operation, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_LOCK_PI)
}

/// Makes the call, and looks how long it took if a coroutine makes it.
#[inline]
fn held<T>(what: What, call: impl FnOnce() -> T) -> T {
    if !gate::may_park() {
        return call();
    }
    let begin = Instant::now();
    let answer = call();
    let took = begin.elapsed();
    if took >= LIMIT_HOLD {
        let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        unhooked(|| note(what, took));
        crate::raw::set_errno(error);
    }
    answer
}

#[cold]
fn note(what: What, took: Duration) {
    COUNTS[what as usize].fetch_add(1, Ordering::Relaxed);
    let (name, cure) = match what {
        What::Futex => {
            ("a lock (futex)", "use coracle's `sync`, or hold no lock of std's over a wait")
        }
        What::Fsync => ("fsync", "use `offload`"),
        What::Flock => ("flock", "use `offload`"),
        What::Open => ("open", "use `offload`"),
    };
    let who = coracle_coro::current();
    tracing::warn!("coroutine {who} held its loop for {took:?} in {name}: {cure}");
}

const _: () = assert!(size_of::<c_uint>() == size_of::<mode_t>());
