//! Did anything else run while we measured?
//!
//! The kernel's account of busy time on all cores, minus what this process and the children it has
//! waited for have used, is what others have used. A hypervisor that takes our cores away counts too.

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

    /// What others have used since. Our children count as ours once they have been waited for.
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

/// Time this process and its finished children have used.
fn own() -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name, in parentheses, may hold spaces; `state` is field 3, `utime` field 14.
    let (_, fields) = stat.rsplit_once(") ").unwrap_or_default();
    let ticks: Vec<u32> =
        fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
    let [user, system, children_user, children_system] = ticks[..] else {
        return Err(io::Error::other("cannot read /proc/self/stat"));
    };
    Ok(TICK * (user + system + children_user + children_system))
}
