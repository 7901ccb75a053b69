//! What connections cost in memory: the process's own, and the kernel's.

use std::fs;
use std::io;

/// Bytes of memory that belong to the processes alone: written to, and backed by no file.
///
/// # Errors
/// When one of them is not there.
pub fn private_bytes(pids: &[u32]) -> io::Result<u64> {
    pids.iter()
        .map(|pid| {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
            // What is dirty and private has been written to; the few pages of data that a program maps from its
            // file and changes at its start are in it, and cancel out in a difference.
            field(&rollup, "Private_Dirty:")
        })
        .sum()
}

/// Bytes that a process has in memory, page tables included.
///
/// # Errors
/// When it is not there.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    // Not `VmRSS`, which is a sum of what each core has last said.
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok(field(&rollup, "Rss:")? + page_table_bytes(pid)?)
}

/// Bytes of small objects that the kernel has, for everybody: sockets, files, epoll items, requests.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn slab_bytes() -> io::Result<u64> {
    field(&fs::read_to_string("/proc/meminfo")?, "Slab:")
}

/// Bytes of the stacks that threads have in the kernel, for everybody: given back as soon as a thread has ended.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn kernel_stack_bytes() -> io::Result<u64> {
    field(&fs::read_to_string("/proc/meminfo")?, "KernelStack:")
}

/// Bytes of a process's page tables.
///
/// # Errors
/// When it is not there.
pub fn page_table_bytes(pid: u32) -> io::Result<u64> {
    field(&fs::read_to_string(format!("/proc/{pid}/status"))?, "VmPTE:")
}

fn field(text: &str, name: &str) -> io::Result<u64> {
    let kilobytes = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes
        .map(|kilobytes| kilobytes * 1024)
        .ok_or_else(|| io::Error::other(format!("no {name} in /proc")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_that_is_written_to_is_counted() {
        let own = [std::process::id()];
        let before = super::private_bytes(&own).unwrap();
        let written = std::hint::black_box(vec![1_u8; 32 << 20]);
        let after = super::private_bytes(&own).unwrap();
        assert!(after >= before + (30 << 20), "{before} {after}");
        drop(written);
    }
}
