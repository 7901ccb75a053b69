//! gdb, in a coroutine: out of the box, it sees the scheduler below the user's functions.

use crate::child;
use std::process::Command;

/// Whether gdb is there and may do its work. If not, says so loudly; in continuous integration (`CI` is set) its
/// absence is a failure: what is skipped there is never tested anywhere.
fn has_gdb() -> bool {
    let true_ = Command::new("gdb").args(["-nx", "-batch", "-ex", "run", "/bin/true"]).output();
    let works = true_
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("exited normally"));
    if !works {
        assert!(std::env::var_os("CI").is_none(), "gdb is not installed, or must not trace");
        eprintln!("SKIPPED: gdb is not installed, or must not trace");
    }
    works
}

pub(crate) fn s50_gdb_sees_through_the_switch() {
    if !has_gdb() {
        return;
    }
    let program = child::command("breakpoint");
    let place = format!("break child.rs:{}", child::BREAKPOINT);
    let mut gdb = Command::new("gdb");
    for (name, value) in program.get_envs() {
        value.map(|value| gdb.env(name, value));
    }
    gdb.args(["-nx", "-batch", "-ex", "set startup-with-shell off"]);
    gdb.args(["-ex", &place, "-ex", "run", "-ex", "backtrace"]);
    gdb.arg(program.get_program());
    let output = gdb.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut rest = &*text;
    for function in ["#0", "place_of_the_breakpoint", "scheduler.rs:", "coracle-loop", "main"] {
        let at = rest.find(function);
        let at =
            at.unwrap_or_else(|| panic!("{function} is missing, or not in its place:\n{text}"));
        rest = &rest[at..];
    }
}
