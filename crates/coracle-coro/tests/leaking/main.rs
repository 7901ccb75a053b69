//! A coroutine that will not end, and a `run` that must not return before it: the process ends.

#[path = "../generator/child.rs"]
mod child;

use coracle_coro::{Builder, Runtime, loops, scope, sleep, spawn, spawn_on};
use coracle_loop::Loop;
use coracle_loop::demux::sim::Kernel;
use std::io;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Runs `main` on a simulated loop, where waiting costs no time.
fn run(main: impl FnOnce() -> io::Result<()> + 'static) -> io::Result<()> {
    let lp = Loop::builder().demux(Kernel::new(1).demux()).build()?;
    coracle_coro::run_on(&lp, main)
}

/// Waits on, whatever it is told. It may be cancelled from another loop, and an hour later than it begins.
fn stubborn() -> io::Result<()> {
    loop {
        let _ = sleep(HOUR);
    }
}

#[test]
fn s10_run_ends_the_process_if_a_coroutine_will_not_end() {
    if child::errand().is_some() {
        let ended = run(|| {
            Builder::new().name("stubborn").spawn(stubborn)?.cancel();
            spawn(|| {
                sleep(HOUR).expect("nobody cancels it");
                eprintln!("the others come to their end");
            });
            Ok(())
        });
        eprintln!("run has returned: {ended:?}");
        return;
    }
    let output = child::send(&[], "s10_run_ends_the_process_if_a_coroutine_will_not_end", "go");
    let said = child::said(&output);
    assert_eq!(output.status.code(), Some(70), "{said}");
    let others = said.find("the others come to their end").expect(&said);
    let end = said.find("these never will be").expect(&said);
    assert!(others < end && said.contains("'stubborn'"), "{said}");
    assert!(!said.contains("run has returned"), "{said}");
}

#[test]
fn s11_run_ends_the_process_if_a_child_of_main_will_not_end() {
    if child::errand().is_some() {
        let ended = run(|| {
            scope(|scope| {
                scope.spawn(stubborn);
                Err(io::Error::other("which cancels it"))
            })
        });
        eprintln!("run has returned: {ended:?}");
        return;
    }
    let output = child::send(&[], "s11_run_ends_the_process_if_a_child_of_main_will_not_end", "go");
    let said = child::said(&output);
    assert_eq!(output.status.code(), Some(70), "{said}");
    assert!(said.contains("'main'"), "the parent is leaked with it: {said}");
    assert!(!said.contains("run has returned"), "{said}");
}

#[test]
fn s10_stop_ends_the_process_if_a_coroutine_will_not_end() {
    if child::errand().is_some() {
        let ended = run(|| {
            spawn(stubborn_if_cancelled);
            Loop::current().expect("we are on one").stop();
            sleep(HOUR)
        });
        eprintln!("run has returned: {ended:?}");
        return;
    }
    let output = child::send(&[], "s10_stop_ends_the_process_if_a_coroutine_will_not_end", "go");
    let said = child::said(&output);
    assert_eq!(output.status.code(), Some(70), "{said}");
    assert!(!said.contains("run has returned"), "{said}");
}

fn stubborn_if_cancelled() {
    while sleep(HOUR).is_err() {}
}

#[test]
fn s38_run_on_several_loops_ends_the_process_if_a_coroutine_will_not_end() {
    if child::errand().is_some() {
        let simulated = |index| Loop::builder().demux(Kernel::new(index as u64).demux()).build();
        let ended = Runtime::new().loops(3).make_loops(simulated).run(|| {
            let named = Builder::new().name("stubborn");
            named.spawn_on(&loops()[2], stubborn)?.cancel();
            spawn_on(&loops()[1], || sleep(HOUR))?;
            Ok(())
        });
        eprintln!("run has returned: {ended:?}");
        return;
    }
    let test = "s38_run_on_several_loops_ends_the_process_if_a_coroutine_will_not_end";
    let output = child::send(&[], test, "go");
    let said = child::said(&output);
    assert_eq!(output.status.code(), Some(70), "{said}");
    assert!(said.contains("'stubborn'") && !said.contains("run has returned"), "{said}");
}
