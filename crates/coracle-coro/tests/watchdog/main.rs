//! Who watches from outside: the watchdog, the dump on SIGQUIT, gdb.
//!
//! They look at whole processes, so the facts are told one after the other, and some of them of a child: this very
//! program, with the name of a part to play in its environment.

mod child;
mod debugger;
mod holding;
mod idle;
mod quitting;

use std::time::Duration;

/// No fact takes longer than this, however busy the machine. It decides none: it ends those that hang.
const PATIENCE: Duration = Duration::from_secs(300);

fn main() {
    child::play();
    let facts: &[(&str, fn())] = &[
        ("s43_coroutine_that_holds_its_loop", holding::s43_coroutine_that_holds_its_loop),
        ("s43_coroutine_that_blocks_its_thread", holding::s43_coroutine_that_blocks_its_thread),
        ("s43_callback_that_holds_its_loop", holding::s43_callback_that_holds_its_loop),
        (
            "s43_without_frames_nobody_is_interrupted",
            holding::s43_without_frames_nobody_is_interrupted,
        ),
        ("s43_it_is_reported_again_when_it_lasts", holding::s43_it_is_reported_again_when_it_lasts),
        ("s43_every_backend_is_watched", holding::s43_every_backend_is_watched),
        (
            "s43_watchdog_sleeps_while_all_loops_wait",
            idle::s43_watchdog_sleeps_while_all_loops_wait,
        ),
        ("s43_watchdog_does_not_hide_a_deadlock", idle::s43_watchdog_does_not_hide_a_deadlock),
        ("s49_sigquit_dumps_all_loops", quitting::s49_sigquit_dumps_all_loops),
        ("s49_loop_that_is_held_is_named", quitting::s49_loop_that_is_held_is_named),
        ("s50_gdb_sees_through_the_switch", debugger::s50_gdb_sees_through_the_switch),
    ];
    let (wanted, skipped) = arguments();
    let mut told = 0;
    for (name, fact) in facts {
        let named = |parts: &[String]| parts.iter().any(|part| name.contains(part.as_str()));
        if (wanted.is_empty() || named(&wanted)) && !named(&skipped) {
            println!("{name}");
            fact();
            told += 1;
        }
    }
    println!("{told} facts hold");
}

/// Parts of names, as those that std's harness is given: of what is wanted, and of what is not (`--skip`).
fn arguments() -> (Vec<String>, Vec<String>) {
    let (mut wanted, mut skipped) = (Vec::new(), Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.strip_prefix("--skip") {
            Some("") => skipped.extend(arguments.next()),
            Some(part) => skipped.extend(part.strip_prefix('=').map(str::to_owned)),
            None if argument.starts_with('-') => {}
            None => wanted.push(argument),
        }
    }
    (wanted, skipped)
}
