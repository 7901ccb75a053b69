//! Counting system calls: a process under strace(1).

use std::process::{Command, Stdio};

/// strace, ready for its options and a program; `None` where it is not installed. Under continuous
/// integration (`CI` is set) its absence is a failure: what is skipped there is never tested anywhere.
pub(crate) fn strace() -> Option<Command> {
    let found =
        Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return Some(Command::new("strace"));
    }
    assert!(std::env::var_os("CI").is_none(), "strace is not installed");
    eprintln!("SKIPPED: strace is not installed");
    None
}

/// Puts `program`, with its arguments and environment, behind the options of `strace`.
pub(crate) fn trace(mut strace: Command, program: &Command) -> Command {
    strace.arg("--").arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    strace
}
