//! TCP's own: how an idle peer is probed, what the kernel knows of a connection, and options that rustix does
//! not set.
#![allow(unsafe_code)]

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::ioctl::{self, Getter, Opcode};
use rustix::net::sockopt;
use std::ffi::c_int;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::time::Duration;

/// How the kernel finds out that an idle peer is gone. Linux counts whole seconds, from one to 32767.
///
/// ```
/// use coracle_demux::KeepAlive;
/// use std::time::Duration;
///
/// // A peer that has been silent for a minute is asked every ten seconds, and given up after the third time.
/// let minute = Duration::from_secs(60);
/// let probes = KeepAlive { interval: Some(minute / 6), count: Some(3), ..KeepAlive::from(minute) };
/// # assert_eq!(probes.idle, minute);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// How long it must have been silent before it is probed (TCP_KEEPIDLE).
    pub idle: Duration,
    /// How long each probe waits for an answer (TCP_KEEPINTVL). `None`: `net.ipv4.tcp_keepalive_intvl`.
    pub interval: Option<Duration>,
    /// After how many probes without an answer it is given up, at most 127 (TCP_KEEPCNT). `None`:
    /// `net.ipv4.tcp_keepalive_probes`.
    pub count: Option<u32>,
}

/// Probes after so long; how often, and when to give up, is left to the system.
impl From<Duration> for KeepAlive {
    fn from(idle: Duration) -> KeepAlive {
        KeepAlive { idle, interval: None, count: None }
    }
}

/// What the kernel knows of a TCP connection (TCP_INFO, see tcp(7)), at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// The time from a packet to its acknowledgement, smoothed (RFC 6298).
    pub rtt: Duration,
    /// How much that varies.
    pub rtt_variance: Duration,
    /// After how long without an acknowledgement a packet is sent again.
    pub retransmission_timeout: Duration,
    /// How often the packet that now waits for its acknowledgement was sent again.
    pub retransmits: u32,
    /// How many packets were sent again since the connection began.
    pub total_retransmits: u32,
    /// How many packets may be under way without an acknowledgement, by the congestion window.
    pub congestion_window: u32,
    /// From which window on it grows slowly.
    pub slow_start_threshold: u32,
    /// How many packets are under way.
    pub unacknowledged: u32,
    /// How many of them are taken for lost.
    pub lost: u32,
    /// How many bytes a packet carries at most.
    pub maximum_segment_bytes: u32,
}

pub(crate) fn info(fd: impl AsFd) -> io::Result<TcpInfo> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open while it is borrowed; `info` has room for the `len` bytes that the kernel
    // writes at most.
    let done = unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &mut len)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is made of integers alone; what an older kernel has not written is zero.
    let info = unsafe { info.assume_init() };
    let microseconds = |count: u32| Duration::from_micros(u64::from(count));
    Ok(TcpInfo {
        rtt: microseconds(info.tcpi_rtt),
        rtt_variance: microseconds(info.tcpi_rttvar),
        retransmission_timeout: microseconds(info.tcpi_rto),
        retransmits: u32::from(info.tcpi_retransmits),
        total_retransmits: info.tcpi_total_retrans,
        congestion_window: info.tcpi_snd_cwnd,
        slow_start_threshold: info.tcpi_snd_ssthresh,
        unacknowledged: info.tcpi_unacked,
        lost: info.tcpi_lost,
        maximum_segment_bytes: info.tcpi_snd_mss,
    })
}

/// SIOCOUTQ, by the name that libc has for it.
pub(crate) fn unacknowledged_bytes(fd: impl AsFd) -> io::Result<usize> {
    const SIOCOUTQ: Opcode = libc::TIOCOUTQ as Opcode;
    // SAFETY: SIOCOUTQ changes nothing, and writes an `int`.
    let count = unsafe { ioctl::ioctl(fd, Getter::<SIOCOUTQ, c_int>::new()) }?;
    Ok(usize::try_from(count).unwrap_or(0))
}

pub(crate) fn set_keep_alive(fd: BorrowedFd<'_>, probes: Option<KeepAlive>) -> io::Result<()> {
    sockopt::set_socket_keepalive(fd, probes.is_some())?;
    if let Some(KeepAlive { idle, interval, count }) = probes {
        sockopt::set_tcp_keepidle(fd, idle)?;
        interval.map_or(Ok(()), |interval| sockopt::set_tcp_keepintvl(fd, interval))?;
        count.map_or(Ok(()), |count| sockopt::set_tcp_keepcnt(fd, count))?;
    }
    Ok(())
}

pub(crate) fn set_defer_accept(fd: BorrowedFd<'_>, patience: Option<Duration>) -> io::Result<()> {
    let seconds = patience.map_or(0, |patience| patience.as_secs().max(1));
    set(fd, libc::TCP_DEFER_ACCEPT, seconds)
}

pub(crate) fn set_fast_open(fd: BorrowedFd<'_>, waiting: u32) -> io::Result<()> {
    set(fd, libc::TCP_FASTOPEN, u64::from(waiting))
}

fn set(fd: BorrowedFd<'_>, option: c_int, value: u64) -> io::Result<()> {
    let value = c_int::try_from(value).unwrap_or(c_int::MAX);
    let len = size_of::<c_int>() as libc::socklen_t;
    let fd = fd.as_raw_fd();
    // SAFETY: the descriptor is open while it is borrowed; the kernel reads the `len` bytes that `value` has.
    let done =
        unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, option, (&raw const value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn get(fd: BorrowedFd<'_>, option: c_int) -> c_int {
        let mut value: c_int = -1;
        let mut len = size_of::<c_int>() as libc::socklen_t;
        let (fd, to) = (fd.as_raw_fd(), (&raw mut value).cast());
        // SAFETY: the descriptor is open while it is borrowed; `value` has the `len` bytes that are written.
        let done = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, option, to, &mut len) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        value
    }

    #[test]
    fn f11_deferring_and_fast_opening_are_set_and_taken_back() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let fd = socket.as_fd();
        set_defer_accept(fd, Some(Duration::from_millis(200))).unwrap();
        assert!(get(fd, libc::TCP_DEFER_ACCEPT) >= 1, "less than a second is one");
        set_defer_accept(fd, None).unwrap();
        assert_eq!(get(fd, libc::TCP_DEFER_ACCEPT), 0);
        set_fast_open(fd, 17).unwrap();
        assert_eq!(get(fd, libc::TCP_FASTOPEN), 17);
    }
}
