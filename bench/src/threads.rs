//! What the threads of another process are doing.

use std::fs;
use std::io;

/// Whether all threads of a process are in `state`, as /proc has it: `S` asleep, `T` stopped, `R` running.
///
/// # Errors
/// When there is no such process.
pub fn are_all(pid: u32, state: char) -> io::Result<bool> {
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = match fs::read_to_string(entry?.path().join("stat")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue, // it has just ended
            stat => stat?,
        };
        // The name, in parentheses, may hold anything; the state follows it.
        if !stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(state)) {
            return Ok(false);
        }
    }
    Ok(true)
}
