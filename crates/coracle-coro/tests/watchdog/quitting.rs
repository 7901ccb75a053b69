//! SIGQUIT: a dump on standard error, and nothing else.

use crate::child::Child;

pub(crate) fn s49_sigquit_dumps_all_loops() {
    let child = Child::start("patient");
    for _ in 0..2 {
        child.send_sigquit();
        let text =
            child.read_to("'last' is Waiting for time to pass") + &child.read_to("child.rs:");
        for part in [
            "loop of thread 'main', on ",
            ": coroutines 3, ready 0, waiting 3",
            "'main' is Waiting for the end of #",
            "'patient' is Waiting for an unpark for ",
            "place_where_it_waits",
            "child.rs:",
            " to go, spawned at ",
        ] {
            assert!(text.contains(part), "{part:?} is missing:\n{text}");
        }
    }
}

pub(crate) fn s49_loop_that_is_held_is_named() {
    let child = Child::start("hog");
    child.send_sigquit();
    let text = child.read_to("place_where_it_calculates");
    for part in [
        "loop of thread 'main', on ",
        "'main' is Waiting for an unpark for ",
        "place_where_it_waits",
        "held for 1.0s and more by coroutine 'hog', spawned at ",
    ] {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
}
