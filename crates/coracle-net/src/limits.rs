//! What the machine has: descriptors, memory, cores. How many connections fit into that.
//!
//! ```text
//!   limit of the process − reserved,            by descriptors per connection ─┐
//!                                                                              ├─ the smaller ─► connections
//!   least of machine and cgroups, a share of it,      by bytes per connection ─┘
//! ```
//!
//! A server that knows this before it starts can refuse the connection it has no room for, instead of being
//! killed for the memory of those it took.

use rustix::process::{self, Resource, Rlimit};
use std::fs;
use std::io;
use std::path::Path;
use std::thread;

const DESCRIPTORS_PER_CONNECTION: u32 = 1;

/// Standard streams, the loops' own (a few each), listeners, logs, a database.
const DESCRIPTORS_RESERVED: u64 = 64;

/// An idle TCP connection is about 4 KiB in the kernel (the slabs TCP, sock_inode_cache, filp, dentry and the poll
/// item) and less here; the rest is for the bytes of those that are busy.
const BYTES_PER_CONNECTION: u64 = 16 << 10;

/// The program needs memory for other things too.
const MEMORY_PERCENT: u8 = 75;

/// Lets the process open as many descriptors as it may: raises the soft limit to the hard limit, and returns it.
///
/// The soft limit is 1024 nearly everywhere, for the sake of programs that use select(2), which cannot count
/// further. Programs that this one starts inherit the limit: lower it again for those that are so old.
///
/// ```
/// let limit = coracle_net::raise_descriptor_limit().unwrap();
/// assert_eq!(coracle_net::raise_descriptor_limit().unwrap(), limit); // once is enough
/// ```
///
/// # Errors
/// The system's, if it refuses (the hard limit is above `fs.nr_open`). Then the limit is what it was.
///
/// # Threads
/// Any; the limit is the process's.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let Rlimit { current, maximum } = process::getrlimit(Resource::Nofile);
    if current != maximum {
        let raised = Rlimit { current: maximum, maximum };
        process::setrlimit(Resource::Nofile, raised).map_err(|error| {
            let error = io::Error::from(error);
            let text = format!(
                "cannot raise the limit of open files from {} to {}: {error}",
                or_unlimited(current),
                or_unlimited(maximum),
            );
            io::Error::new(error.kind(), text)
        })?;
    }
    Ok(maximum.unwrap_or(u64::MAX))
}

fn or_unlimited(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

/// How many threads can run at once: what a loop per core means here.
///
/// Counts the processors that the process may run on, and no more than its cgroup's quota pays for, rounded
/// down and at least one. It looks at the system each time: ask once, at the start.
///
/// ```
/// assert!(coracle_net::available_cores() >= 1);
/// ```
///
/// # Threads
/// Any; a thread bound to fewer processors counts only those.
pub fn available_cores() -> usize {
    thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// The memory that the process may use: that of the machine, or less if one of its cgroups (v2 or v1) says so.
///
/// ```
/// assert!(coracle_net::memory_bytes() > 1 << 20);
/// ```
///
/// # Threads
/// Any. It reads a few small files.
pub fn memory_bytes() -> u64 {
    let machine = machine_memory_bytes();
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let cgroups = cgroup_memory_bytes(Path::new("/sys/fs/cgroup"), &membership);
    cgroups.map_or(machine, |cgroups| cgroups.min(machine))
}

fn machine_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

/// The least that the process's memory cgroup or one above it says.
///
/// `membership` has a line `NUMBER:CONTROLLERS:PATH` for each hierarchy, where v2 is number 0 without
/// controllers (cgroups(7)). In a container the path may be the host's while the mount shows only what is
/// below it: whatever of the path is not there is passed over, down to the root of the mount.
fn cgroup_memory_bytes(mount: &Path, membership: &str) -> Option<u64> {
    let mut least = None;
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (root, file) = if number == "0" && controllers.is_empty() {
            (mount.to_owned(), "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (mount.join("memory"), "memory.limit_in_bytes")
        } else {
            continue;
        };
        // `..` is the path of a cgroup outside of this namespace: only the root of the mount is ours to see.
        let inside = !path.split('/').any(|part| part == "..");
        let path = if inside { path.trim_start_matches('/') } else { "" };
        let group = root.join(path);
        for group in group.ancestors().take_while(|group| group.starts_with(&root)) {
            // `max` is not a number and not a limit; neither is the nearly 2^63 of v1, which the caller's own
            // is below.
            let text = fs::read_to_string(group.join(file)).unwrap_or_default();
            if let Ok(limit) = text.trim().parse::<u64>() {
                least = Some(least.map_or(limit, |least: u64| least.min(limit)));
            }
        }
    }
    least
}

/// What a connection needs, and what is not for connections.
///
/// ```
/// use coracle_net::{CapacitySettings, capacity};
///
/// // A proxy: two sockets each, and a coroutine's stack of 64 KiB beside the buffers.
/// let settings = CapacitySettings::new().descriptors_per_connection(2).bytes_per_connection(80 << 10);
/// assert!(capacity(&settings).connections <= capacity(&CapacitySettings::new()).connections);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapacitySettings {
    descriptors_per_connection: u32,
    descriptors_reserved: u64,
    bytes_per_connection: u64,
    memory_percent: u8,
}

impl Default for CapacitySettings {
    fn default() -> CapacitySettings {
        CapacitySettings {
            descriptors_per_connection: DESCRIPTORS_PER_CONNECTION,
            descriptors_reserved: DESCRIPTORS_RESERVED,
            bytes_per_connection: BYTES_PER_CONNECTION,
            memory_percent: MEMORY_PERCENT,
        }
    }
}

impl CapacitySettings {
    /// The defaults, which each method names.
    ///
    /// ```
    /// # use coracle_net::CapacitySettings;
    /// assert_eq!(CapacitySettings::new(), CapacitySettings::default());
    /// ```
    pub fn new() -> CapacitySettings {
        CapacitySettings::default()
    }

    /// How many descriptors each connection has: 1. A proxy has 2. Zero counts as one.
    ///
    /// ```
    /// # use coracle_net::CapacitySettings;
    /// let settings = CapacitySettings::new().descriptors_per_connection(2);
    /// # assert_ne!(settings, CapacitySettings::new());
    /// ```
    pub fn descriptors_per_connection(mut self, descriptors: u32) -> CapacitySettings {
        self.descriptors_per_connection = descriptors.max(1);
        self
    }

    /// How many descriptors are for something else: 64.
    ///
    /// ```
    /// # use coracle_net::CapacitySettings;
    /// let settings = CapacitySettings::new().descriptors_reserved(512);
    /// # assert_ne!(settings, CapacitySettings::new());
    /// ```
    pub fn descriptors_reserved(mut self, descriptors: u64) -> CapacitySettings {
        self.descriptors_reserved = descriptors;
        self
    }

    /// What a connection takes on average, in the kernel and here: 16 KiB. Zero counts as one.
    ///
    /// An idle one takes about 4 KiB of the kernel. To be safe against peers that mean ill, count with the
    /// most that one is allowed to have waiting.
    ///
    /// ```
    /// # use coracle_net::CapacitySettings;
    /// let settings = CapacitySettings::new().bytes_per_connection(64 << 10);
    /// # assert_ne!(settings, CapacitySettings::new());
    /// ```
    pub fn bytes_per_connection(mut self, bytes: u64) -> CapacitySettings {
        self.bytes_per_connection = bytes.max(1);
        self
    }

    /// How much of the memory is for connections, in percent: 75. More than 100 counts as 100.
    ///
    /// ```
    /// # use coracle_net::CapacitySettings;
    /// let settings = CapacitySettings::new().memory_percent(50);
    /// # assert_ne!(settings, CapacitySettings::new());
    /// ```
    pub fn memory_percent(mut self, percent: u8) -> CapacitySettings {
        self.memory_percent = percent.min(100);
        self
    }
}

/// How many connections fit, and why no more.
///
/// ```
/// let capacity = coracle_net::capacity(&coracle_net::CapacitySettings::new());
/// println!("room for {} connections, for want of {:?}", capacity.connections, capacity.bottleneck);
/// # assert!(capacity.memory_bytes > 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capacity {
    /// So many connections at once.
    pub connections: usize,
    /// What would have to grow for more.
    pub bottleneck: Bottleneck,
    /// The process's limit of descriptors, all included.
    pub descriptors: u64,
    /// The memory the process may use, all included.
    pub memory_bytes: u64,
}

/// What there is least of.
///
/// ```
/// use coracle_net::{Bottleneck, CapacitySettings, capacity};
///
/// let settings = CapacitySettings::new().memory_percent(0); // none at all
/// assert_eq!(capacity(&settings).bottleneck, Bottleneck::Memory);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bottleneck {
    /// The limit of open descriptors: see [`raise_descriptor_limit`] and `ulimit -Hn`.
    Descriptors,
    /// The memory of the machine or of the cgroup.
    Memory,
}

/// How many connections the process has room for, under the limits it has now.
///
/// It is an estimate from averages, good for a bound and for a warning at the start. It does not look at what is
/// in use already, nor at the kernel's own bound for all TCP buffers (`net.ipv4.tcp_mem`).
///
/// ```
/// use coracle_net::{Bottleneck, CapacitySettings, capacity, raise_descriptor_limit};
///
/// raise_descriptor_limit().unwrap(); // first: what counts is the limit as it is now
/// let capacity = capacity(&CapacitySettings::new());
/// match capacity.bottleneck {
///     Bottleneck::Descriptors => assert!((capacity.connections as u64) < capacity.descriptors),
///     Bottleneck::Memory => assert!((capacity.connections as u64) < capacity.memory_bytes >> 14),
/// }
/// ```
///
/// # Threads
/// Any. It reads a few small files.
pub fn capacity(settings: &CapacitySettings) -> Capacity {
    capacity_within(settings, u64::MAX)
}

/// The same, if only the first so many descriptors can be used.
pub(crate) fn capacity_within(settings: &CapacitySettings, descriptors: u64) -> Capacity {
    let limit = process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    fit(settings, limit.min(descriptors), memory_bytes())
}

fn fit(settings: &CapacitySettings, descriptors: u64, memory_bytes: u64) -> Capacity {
    let by_descriptors = descriptors.saturating_sub(settings.descriptors_reserved)
        / u64::from(settings.descriptors_per_connection);
    // In 128 bits: the memory may be "unlimited".
    let share = u128::from(memory_bytes) * u128::from(settings.memory_percent) / 100;
    let by_memory = (share / u128::from(settings.bytes_per_connection)) as u64; // no more than `memory_bytes`
    let bottleneck =
        if by_descriptors <= by_memory { Bottleneck::Descriptors } else { Bottleneck::Memory };
    let connections = usize::try_from(by_descriptors.min(by_memory)).unwrap_or(usize::MAX);
    Capacity { connections, bottleneck, descriptors, memory_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const GIB: u64 = 1 << 30;

    #[test]
    fn soft_limit_becomes_the_hard_limit() {
        let before = process::getrlimit(Resource::Nofile);
        let hard = before.maximum.unwrap();
        // One less hurts no test beside this one.
        let lowered = Rlimit { current: Some(hard - 1), maximum: before.maximum };
        process::setrlimit(Resource::Nofile, lowered).unwrap();
        assert_eq!(raise_descriptor_limit().unwrap(), hard);
        assert_eq!(process::getrlimit(Resource::Nofile).current, Some(hard));
    }

    #[test]
    fn descriptors_or_memory_whichever_is_less() {
        let settings = CapacitySettings::new();
        let few = fit(&settings, 1024, 64 * GIB);
        assert_eq!((few.connections, few.bottleneck), (1024 - 64, Bottleneck::Descriptors));
        let small = fit(&settings, 1 << 20, GIB);
        assert_eq!((small.connections, small.bottleneck), (49_152, Bottleneck::Memory));
        assert_eq!((small.descriptors, small.memory_bytes), (1 << 20, GIB));
    }

    #[test]
    fn settings_count() {
        let settings =
            CapacitySettings::new().descriptors_per_connection(2).descriptors_reserved(100);
        assert_eq!(fit(&settings, 1100, GIB).connections, 500);
        let settings = CapacitySettings::new().bytes_per_connection(1 << 20).memory_percent(50);
        assert_eq!(fit(&settings, 1 << 20, GIB).connections, 512);
    }

    #[test]
    fn extremes_do_not_overflow() {
        assert_eq!(fit(&CapacitySettings::new(), 10, GIB).connections, 0);
        assert_eq!(fit(&CapacitySettings::new(), 1024, 0).connections, 0);
        let settings = CapacitySettings::new()
            .descriptors_per_connection(0)
            .descriptors_reserved(0)
            .bytes_per_connection(0)
            .memory_percent(255);
        assert_eq!(fit(&settings, u64::MAX, u64::MAX).connections, usize::MAX);
    }

    #[test]
    fn memory_is_at_most_that_of_the_machine() {
        let text = fs::read_to_string("/proc/meminfo").unwrap();
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
        let total: u64 = total.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        assert_eq!(machine_memory_bytes() >> 10, total);
        assert!((1..=total << 10).contains(&memory_bytes()));
    }

    #[test]
    fn nearest_cgroup_is_not_always_the_tightest() {
        let mount = Mount::new();
        mount.write("memory.max", "max\n");
        mount.write("a/memory.max", "1000\n");
        mount.write("a/b/memory.max", "2000\n");
        mount.write("other/memory.max", "1\n");
        assert_eq!(cgroup_memory_bytes(&mount.0, "0::/a/b\n"), Some(1000));
        assert_eq!(cgroup_memory_bytes(&mount.0, "0::/\n"), None);
        assert_eq!(cgroup_memory_bytes(&mount.0, ""), None);
    }

    #[test]
    fn cgroups_of_the_first_version_are_read_too() {
        let mount = Mount::new();
        mount.write("memory/a/memory.limit_in_bytes", "3000\n");
        mount.write("cpu/a/memory.limit_in_bytes", "1\n");
        let membership = "5:cpu,cpuacct:/a\n4:hugetlb,memory:/a\n1:name=systemd:/a\n0::/\n";
        assert_eq!(cgroup_memory_bytes(&mount.0, membership), Some(3000));
    }

    #[test]
    fn container_that_sees_only_its_own_cgroup_finds_it() {
        let mount = Mount::new();
        mount.write("memory/memory.limit_in_bytes", "4000\n");
        mount.write("memory.max", "5000\n");
        assert_eq!(cgroup_memory_bytes(&mount.0, "4:memory:/docker/0123\n"), Some(4000));
        assert_eq!(cgroup_memory_bytes(&mount.0, "0::/../../elsewhere\n"), Some(5000));
    }

    /// A directory that looks like /sys/fs/cgroup.
    struct Mount(PathBuf);

    impl Mount {
        fn new() -> Mount {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("coracle-cgroup-{}-{count}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Mount(path)
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Mount {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
