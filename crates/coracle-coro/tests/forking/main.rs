//! A copy of a process does not run the coroutines of the original. In processes that can be forked.
#![allow(unsafe_code)]

#[path = "../generator/child.rs"]
mod child;

use coracle_coro::{park, scope, sleep, spawn, yield_now};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use coracle_loop::demux::sim::Kernel;
use rustix::io::Errno;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn open(backend: Backend) -> io::Result<Loop> {
    match backend {
        Backend::Sim => Loop::builder().demux(Kernel::new(1).demux()).build(),
        _ => Loop::builder().backend(backend).build(),
    }
}

/// What the coroutine that has forked saw, and what came of its `run`.
#[derive(Default)]
struct Seen {
    is_copy: Cell<bool>,
    others_ran: Cell<bool>,
    failed: Cell<u32>,
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// In a process of its own: forks in a coroutine, with others that are ready.
fn fork_in_a_coroutine(backend: Backend) {
    let lp = open(backend).expect("the backend opens");
    let seen = Rc::new(Seen::default());
    let shared = Rc::clone(&seen);
    let ended = coracle_coro::run_on(&lp, move || {
        let steps = Rc::new(Cell::new(0));
        let counter = Rc::clone(&steps);
        let other = spawn(move || {
            for _ in 0..10 {
                counter.set(counter.get() + 1);
                yield_now();
            }
        });
        yield_now();
        let before = steps.get();
        assert!(before > 0 && !other.is_finished());
        // SAFETY: the other thread of this process waits for this one, and holds no lock that the copy could
        // need; glibc makes its allocator usable in the copy.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", io::Error::last_os_error()),
            0 => {
                shared.is_copy.set(true);
                let canceled = Some(Errno::CANCELED.raw_os_error());
                let waits = [errno(sleep(MS)), errno(park())];
                shared.failed.set(waits.iter().filter(|wait| **wait == canceled).count() as u32);
                assert!(other.join().is_err(), "it cannot be waited for");
                for _ in 0..100 {
                    yield_now(); // there is nobody to give way to
                    if sleep(MS).is_ok() {
                        shared.failed.set(0);
                    }
                }
                shared.others_ran.set(steps.get() != before);
                Ok(())
            }
            copy => {
                let mut status = 0;
                // SAFETY: `status` is a place for the answer, and the copy is a child of ours.
                assert_eq!(unsafe { libc::waitpid(copy, &raw mut status, 0) }, copy);
                assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
                other.join().expect("the original goes on");
                scope(|scope| {
                    scope.spawn(|| sleep(MS));
                    Ok(())
                })?;
                assert_eq!(steps.get(), 10);
                Ok(())
            }
        }
    });
    if seen.is_copy.get() {
        let owner_dead = Some(Errno::OWNERDEAD.raw_os_error());
        let fine = errno(ended) == owner_dead && !seen.others_ran.get() && seen.failed.get() == 2;
        drop(lp);
        // SAFETY: ends the copy at once, without running what belongs to the original.
        unsafe { libc::_exit(if fine { 0 } else { 1 }) }
    }
    ended.expect("the original");
}

/// In a process of its own: forks where children are to be waited for, which the copy cannot do.
fn fork_in_a_scope(backend: Backend) {
    let lp = open(backend).expect("the backend opens");
    let seen = Rc::new(Seen::default());
    let shared = Rc::clone(&seen);
    let ended = coracle_coro::run_on(&lp, move || {
        let ended = scope(|scope| {
            scope.spawn(|| sleep(MS));
            // SAFETY: as above.
            match unsafe { libc::fork() } {
                -1 => panic!("fork: {}", io::Error::last_os_error()),
                0 => shared.is_copy.set(true),
                copy => {
                    let mut status = 0;
                    // SAFETY: as above.
                    assert_eq!(unsafe { libc::waitpid(copy, &raw mut status, 0) }, copy);
                    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
                }
            }
            Ok(())
        });
        shared.others_ran.set(true); // the scope has returned
        ended
    });
    if seen.is_copy.get() {
        let owner_dead = Some(Errno::OWNERDEAD.raw_os_error());
        let fine = errno(ended) == owner_dead && !seen.others_ran.get();
        // SAFETY: as above.
        unsafe { libc::_exit(if fine { 0 } else { 1 }) }
    }
    ended.expect("the original");
}

fn case(backend: Backend, test: &str) {
    match child::errand().as_deref() {
        Some("coroutine") => return fork_in_a_coroutine(backend),
        Some(_) => return fork_in_a_scope(backend),
        None => {}
    }
    for errand in ["coroutine", "scope"] {
        let output = child::send(&[], test, errand);
        assert!(output.status.success(), "{errand}: {}", child::said(&output));
    }
}

#[test]
fn s54_copy_runs_no_coroutines_of_the_original_on_uring() {
    case(Backend::Uring, "s54_copy_runs_no_coroutines_of_the_original_on_uring");
}

#[test]
fn s54_copy_runs_no_coroutines_of_the_original_on_epoll() {
    case(Backend::Epoll, "s54_copy_runs_no_coroutines_of_the_original_on_epoll");
}

#[test]
fn s54_copy_runs_no_coroutines_of_the_original_on_poll() {
    case(Backend::Poll, "s54_copy_runs_no_coroutines_of_the_original_on_poll");
}

#[test]
fn s54_copy_runs_no_coroutines_of_the_original_on_select() {
    case(Backend::Select, "s54_copy_runs_no_coroutines_of_the_original_on_select");
}

#[test]
fn s54_copy_runs_no_coroutines_of_the_original_on_sim() {
    case(Backend::Sim, "s54_copy_runs_no_coroutines_of_the_original_on_sim");
}
