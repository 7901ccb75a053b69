//! A test in a process of its own, because it is to die, or because another program is to watch it.

use std::process::{Command, Output};

/// What the child is to do.
const ERRAND: &str = "CORACLE_CORO_ERRAND";

/// In the child: what it is to do.
pub(crate) fn errand() -> Option<String> {
    std::env::var(ERRAND).ok()
}

/// Runs `test` again in a child with something to do, under another program if one is given.
pub(crate) fn send(program: &[&str], test: &str, errand: &str) -> Output {
    let test_program = std::env::current_exe().expect("the test has a path");
    let mut command = match program {
        [] => Command::new(test_program),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(test_program);
            command
        }
    };
    command.args([test, "--exact", "--nocapture", "--include-ignored", "--test-threads=1"]);
    command.env(ERRAND, errand).output().expect("the child starts")
}

/// What it said on standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
