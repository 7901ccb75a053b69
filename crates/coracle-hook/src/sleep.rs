//! Sleeping. std sleeps by `clock_nanosleep`. The others are C's, whose libraries sleep in critical sections,
//! and park only if that was asked for.
//!
//! A sleep that is cancelled, or late, ends early and says that it was none of that: std takes any error but
//! `EINTR` for a bug, and after that one sleeps on. The next wait fails.
#![allow(unsafe_code)]

use crate::gate;
use crate::wait::{self, lp};
use libc::{c_int, c_uint, clockid_t, timespec};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether C's sleeping functions park.
static SLEEPING: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_sleeping(on: bool) {
    SLEEPING.store(on, Ordering::Relaxed);
}

pub(crate) fn is_sleeping() -> bool {
    SLEEPING.load(Ordering::Relaxed)
}

fn parks() -> bool {
    SLEEPING.load(Ordering::Relaxed) && gate::may_park()
}

hook! {
    park fn clock_nanosleep(clock: clockid_t, flags: c_int, time: *const timespec, rest: *mut timespec) -> c_int {
        // SAFETY: null, or a time that the caller lends.
        match unsafe { time.as_ref() }.and_then(duration) {
            Some(time) if is_known(clock) => {
                if flags & libc::TIMER_ABSTIME != 0 { sleep_until(clock, time) } else { sleep_for(time) }
                0
            }
            // SAFETY: as it was called: libc knows what is wrong, or how that clock goes.
            _ => unsafe {
                next!(clock_nanosleep(
                    clock: clockid_t, flags: c_int, time: *const timespec, rest: *mut timespec,
                ) -> c_int)
            },
        }
    }

    always fn nanosleep(time: *const timespec, rest: *mut timespec) -> c_int {
        // SAFETY: null, or a time that the caller lends.
        if parks() && let Some(time) = unsafe { time.as_ref() }.and_then(duration) {
            gate::inside(|| sleep_for(time));
            return 0;
        }
        // SAFETY: as it was called.
        unsafe { next!(nanosleep(time: *const timespec, rest: *mut timespec) -> c_int) }
    }

    always fn usleep(microseconds: c_uint) -> c_int {
        if parks() {
            gate::inside(|| sleep_for(Duration::from_micros(microseconds.into())));
            return 0;
        }
        // SAFETY: a number.
        unsafe { next!(usleep(microseconds: c_uint) -> c_int) }
    }

    always fn sleep(seconds: c_uint) -> c_uint {
        if parks() {
            gate::inside(|| sleep_for(Duration::from_secs(seconds.into())));
            return 0;
        }
        // SAFETY: a number.
        unsafe { next!(sleep(seconds: c_uint) -> c_uint) }
    }
}

fn duration(time: &timespec) -> Option<Duration> {
    let nanoseconds = u32::try_from(time.tv_nsec).ok().filter(|&it| it < 1_000_000_000)?;
    Some(Duration::new(time.tv_sec.try_into().ok()?, nanoseconds))
}

/// The clocks that go as the loop's does.
fn is_known(clock: clockid_t) -> bool {
    matches!(clock, libc::CLOCK_MONOTONIC | libc::CLOCK_REALTIME | libc::CLOCK_BOOTTIME)
}

fn sleep_for(time: Duration) {
    let _early = wait::pause(lp().deadline(time));
}

fn sleep_until(clock: clockid_t, time: Duration) {
    // A wall clock may be set back meanwhile.
    loop {
        let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a clock that there is, and a place for its time. It is no call that waits, and not hooked.
        unsafe { libc::clock_gettime(clock, &raw mut now) };
        let left = time.saturating_sub(duration(&now).unwrap_or_default());
        if left.is_zero() || wait::pause(lp().deadline(left)).is_err() || is_simulated() {
            return;
        }
    }
}

/// Simulated time passes at once: the real clock will not have moved.
fn is_simulated() -> bool {
    lp().backend() == coracle_loop::demux::Backend::Sim
}
