//! Did anything else run while we measured?
//!
//! The kernel's account of busy time on all cores, minus what this process and its children have used, is what
//! others have used. A hypervisor that takes our cores away counts too. The kernel's own threads do not: they work
//! for whom we measure, whose files they write and whose packets they deliver; who else keeps them busy is seen
//! himself.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// The unit of both `stat` files: USER_HZ is 100.
const TICK: Duration = Duration::from_millis(10);
/// More than this share of one core used by others spoils a repetition.
pub const LIMIT_SHARE: f64 = 0.10;
/// Less than this is not told from rounding.
const LIMIT_TIME: Duration = Duration::from_millis(40);

/// A measurement of the others, begun with [`Noise::begin`].
pub struct Noise {
    start: Instant,
    busy: Duration,
    own: Duration,
}

/// What the others did during a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Others {
    /// Their share of one core.
    pub share: f64,
    /// Too much to believe the measurement.
    pub spoils: bool,
}

impl Noise {
    /// Starts to watch.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn begin() -> io::Result<Noise> {
        Ok(Noise { start: Instant::now(), busy: busy()?, own: own()? })
    }

    /// What others have used since.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn end(self) -> io::Result<Others> {
        let elapsed = self.start.elapsed();
        let used = (busy()? - self.busy).saturating_sub(own()?.saturating_sub(self.own));
        let share = used.as_secs_f64() / elapsed.as_secs_f64();
        Ok(Others { share, spoils: share > LIMIT_SHARE && used > LIMIT_TIME })
    }
}

/// Time all cores together have spent on anything.
fn busy() -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().unwrap_or_default();
    // cpu user nice system idle iowait irq softirq steal guest guest_nice; guest is part of user.
    let fields: Vec<u32> =
        line.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal] = fields[..] else {
        return Err(io::Error::other("cannot read /proc/stat"));
    };
    Ok(TICK * (user + nice + system + irq + softirq + steal))
}

/// Time this process and its children have used, finished or not: a server that is asked all the time is no other.
/// With it that of the kernel's threads.
fn own() -> io::Result<Duration> {
    let own = Used::of(std::process::id())?;
    let mut ticks = own.ticks;
    let processes: Vec<Used> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Used::of(pid).ok()) // some end meanwhile
        .collect();
    // The first process and the parent of the kernel's threads have none.
    let kernel = processes.iter().find(|process| process.parent == 0 && process.pid != 1);
    let mut parents: Vec<u32> = kernel.map(|kernel| kernel.pid).into_iter().collect();
    parents.push(std::process::id());
    while let Some(parent) = parents.pop() {
        for child in processes.iter().filter(|process| process.parent == parent) {
            ticks += child.ticks;
            parents.push(child.pid);
        }
    }
    Ok(TICK * ticks)
}

/// What a process and the children it has waited for have used.
struct Used {
    pid: u32,
    parent: u32,
    ticks: u32,
}

impl Used {
    fn of(pid: u32) -> io::Result<Used> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name, in parentheses, may hold spaces; `state` is field 3, `ppid` field 4, `utime` field 14.
        let (_, fields) = stat.rsplit_once(") ").unwrap_or_default();
        let mut numbers = fields.split_whitespace().skip(1).map(|field| field.parse::<u32>());
        let parent = numbers.next();
        let times: Vec<u32> = numbers.skip(9).take(4).filter_map(Result::ok).collect();
        match (parent, &times[..]) {
            (Some(Ok(parent)), [_, _, _, _]) => Ok(Used { pid, parent, ticks: times.iter().sum() }),
            _ => Err(io::Error::other(format!("cannot read /proc/{pid}/stat"))),
        }
    }
}
