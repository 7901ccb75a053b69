//! A process and the processes it has started: a server that is several processes is still one server.

use std::fs;
use std::io;

/// `pid`, and those whose parent it is, in the order of their numbers.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn family(pid: u32) -> io::Result<Vec<u32>> {
    let mut family = vec![pid];
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(process) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // One that has ended meanwhile has no parent.
        if parent(process) == Some(pid) {
            family.push(process);
        }
    }
    family[1..].sort_unstable();
    Ok(family)
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; the state and the parent follow it.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_is_of_the_family() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let family = super::family(std::process::id()).unwrap();
        assert_eq!(family[0], std::process::id());
        assert!(family[1..].contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
