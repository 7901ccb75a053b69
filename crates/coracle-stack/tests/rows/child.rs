//! A test in a process of its own, because it is to die, or because another program is to watch it.

use std::process::{Command, Output};

/// Set in the child.
const CHILD: &str = "CORACLE_STACK_CHILD";

/// Runs `case` in a process of its own, in which `test` runs again; returns how it ended. In the child, nothing.
pub(crate) fn in_child(test: &str, case: impl FnOnce()) -> Option<Output> {
    in_child_of(&[], test, case)
}

/// The same, as the child of another program: `strace`, `valgrind`, with arguments.
pub(crate) fn in_child_of(program: &[&str], test: &str, case: impl FnOnce()) -> Option<Output> {
    if std::env::var_os(CHILD).is_some() {
        case();
        return None;
    }
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
    Some(command.env(CHILD, "1").output().expect("the child starts"))
}

/// What it said on standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
