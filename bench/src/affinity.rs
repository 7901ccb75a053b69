//! Which core a program runs on.

use std::io;
use std::path::Path;
use std::process::Command;

use rustix::thread::{CpuSet, sched_setaffinity};

/// A command that starts `program` on `core`; it is killed when this thread ends.
pub fn pinned(core: usize, program: &Path) -> Command {
    pinned_to(&[core], program)
}

/// A command that starts `program` on any of `cores`; it is killed when this thread ends, however that happens.
///
/// Both helpers are replaced by what they start: the process is the program itself.
pub fn pinned_to(cores: &[usize], program: &Path) -> Command {
    let cores = cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "taskset", "--cpu-list", &cores]).arg(program);
    command
}

/// Keeps the calling thread, and the threads it starts from now on, on `core`.
///
/// # Errors
/// When there is no such core.
pub fn pin_this_thread(core: usize) -> io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}
