//! A coroutine whose stack is too small: the process ends, and says which it was.

#[path = "../generator/child.rs"]
mod child;

use coracle_coro::{Builder, on_big_stack, run_on, spawn, yield_now};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use coracle_loop::demux::sim::Kernel;
use std::io;
use std::os::unix::process::ExitStatusExt;

const SIGABRT: i32 = 6;

fn make_loop(backend: Backend) -> io::Result<Loop> {
    match backend {
        Backend::Sim => Loop::builder().demux(Kernel::new(1).demux()).build(),
        backend => Loop::builder().backend(backend).build(),
    }
}

fn recurse(depth: u64) -> u64 {
    let filler = std::hint::black_box([depth; 32]);
    if depth == u64::MAX { 0 } else { recurse(depth + 1) + filler[7] }
}

/// Does what the errand says, in a process of its own. It does not come back.
fn sink(errand: &str, backend: Backend) -> io::Result<()> {
    let lp = make_loop(backend)?;
    let (name, size, big) = match errand {
        "small" => ("vasa", 64 << 10, false),
        "large" => ("titanic", 1 << 20, false),
        _ => ("andrea doria", 256 << 10, true),
    };
    run_on(&lp, move || {
        // Others are there, and one of them ran last.
        let neighbours = [spawn(yield_now), spawn(yield_now)];
        let sinking = Builder::new().name(name).stack_size(size).spawn(move || {
            yield_now();
            if big { on_big_stack(2 << 20, || recurse(0)).unwrap() } else { recurse(0) }
        })?;
        neighbours.into_iter().for_each(|one| one.join().unwrap());
        println!("{:?}", sinking.join().map_err(|_| "it has panicked"));
        Ok(())
    })
}

fn assert_named(test: &str, backend: Backend) {
    if let Some(errand) = child::errand() {
        sink(&errand, backend).unwrap();
        return;
    }
    for (errand, report) in [
        ("small", "coroutine 'vasa' has overflowed its stack of 64 KiB"),
        ("large", "coroutine 'titanic' has overflowed its stack of 1 MiB"),
        ("big", "coroutine 'andrea doria' has overflowed its stack of 2 MiB"),
    ] {
        let output = child::send(&[], test, errand);
        let said = child::said(&output);
        assert_eq!(output.status.signal(), Some(SIGABRT), "{said}");
        assert_eq!(said.matches(report).count(), 1, "{said}");
    }
}

#[test]
fn s44_an_overflow_names_the_coroutine_on_uring() {
    assert_named("s44_an_overflow_names_the_coroutine_on_uring", Backend::Uring);
}

#[test]
fn s44_an_overflow_names_the_coroutine_on_epoll() {
    assert_named("s44_an_overflow_names_the_coroutine_on_epoll", Backend::Epoll);
}

#[test]
fn s44_an_overflow_names_the_coroutine_on_poll() {
    assert_named("s44_an_overflow_names_the_coroutine_on_poll", Backend::Poll);
}

#[test]
fn s44_an_overflow_names_the_coroutine_on_select() {
    assert_named("s44_an_overflow_names_the_coroutine_on_select", Backend::Select);
}

#[test]
fn s44_an_overflow_names_the_coroutine_on_sim() {
    assert_named("s44_an_overflow_names_the_coroutine_on_sim", Backend::Sim);
}
