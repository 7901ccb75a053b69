//! How unkind the simulated kernel is: what may go wrong, how likely, and how often it did.
//!
//! ```text
//!  left open by the contract   seen and dealt with          visible to everyone
//!  ─────────────────────────   ───────────────────          ───────────────────
//!  Done or Pending, delays,    short counts, spurious       resets, refused connects,
//!  order, who wins a race      polls, ended multishots,     EMFILE, lost datagrams
//!                              stalls, small buffers
//!  Faults::benign() ────────►  + Faults::default() ──────►  + Faults::hostile()
//! ```
//!
//! Nothing but the last column may change what a program achieves, only how many steps it takes; so
//! ordinary tests run under [`Faults::default`], and what fails there is a bug of the program.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// What a simulated kernel does to its users. Chances are between 0 (never) and 1 (always).
///
/// ```
/// use coracle_demux::sim::{Faults, Kernel};
///
/// // Everything that can go wrong, except that connections last.
/// let faults = Faults { reset: 0.0, ..Faults::hostile() };
/// let kernel = Kernel::with_faults(7, faults);
/// # drop(kernel);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// An operation that could finish at once says `Pending` (contract 2).
    pub pending: f64,
    /// A result is fixed when it is due, as on io_uring, and not when it is taken, as on epoll.
    pub early: f64,
    /// How much virtual time passes between a cause and its completion. Random delays are what
    /// reorders completions; the bytes of one stream stay in order.
    pub delay: RangeInclusive<Duration>,
    /// A completion takes [`stall_time`](Faults::stall_time) instead.
    pub stall: f64,
    /// How long a stall is.
    pub stall_time: Duration,
    /// A receive or a file read gives less than it could, but at least one byte.
    pub short_receive: f64,
    /// A send or a file write takes less than it could, but at least one byte.
    pub short_send: f64,
    /// A wait returns at once for no reason.
    pub spurious_wait: f64,
    /// A poll completes although the descriptor is not ready for it, and says so: what it reports is
    /// still what is the case, if only that nothing is.
    pub spurious_poll: f64,
    /// A multishot operation ends with an ordinary outcome and has to be submitted again.
    pub end_multishot: f64,
    /// A cancel comes too late for an operation that could still finish, which then does.
    pub cancel_loses: f64,
    /// A connection is reset when somebody sends or receives on it: both ends learn of it.
    pub reset: f64,
    /// A reset, however caused, overtakes data: what the receiver had not read is cut at a random
    /// point. Otherwise all that was sent before the reset can still be read.
    pub reset_overtakes: f64,
    /// A TCP send to a peer that has closed is taken and lost, and the reset comes later, as on a
    /// real network. Otherwise it fails with `EPIPE` at once.
    pub lost_send: f64,
    /// A connect is refused although somebody listens.
    pub refuse_connect: f64,
    /// A connect is not answered and ends with `ETIMEDOUT` after two minutes.
    pub time_out_connect: f64,
    /// Making or accepting a socket, or opening a file, fails with `EMFILE`.
    pub exhaust_descriptors: f64,
    /// A UDP datagram is lost.
    pub drop_datagram: f64,
    /// A UDP datagram overtakes others.
    pub reorder_datagram: f64,
    /// How many descriptors may be open in the kernel; beyond, `EMFILE`.
    pub limit_descriptors: usize,
    /// How many bytes of one direction of a connection may be unread before its sender has to wait,
    /// unless [`SocketOption::SendBuffer`](crate::SocketOption::SendBuffer) says otherwise.
    pub limit_send_buffer_bytes: usize,
    /// How many of them must have been read before a sender that had to wait goes on. Linux waits until a third
    /// of its buffer is free.
    pub least_room_bytes: usize,
    /// How many lent buffers each demultiplexer has; when all are out, lent receives pause.
    pub limit_lent_buffers: u16,
    /// Size of a lent buffer, in bytes.
    pub lent_buffer_bytes: u32,
}

impl Faults {
    /// A kernel that does everything at once, in full, and never fails by itself.
    pub fn none() -> Faults {
        Faults {
            pending: 0.0,
            early: 0.0,
            delay: Duration::ZERO..=Duration::ZERO,
            stall: 0.0,
            stall_time: Duration::ZERO,
            short_receive: 0.0,
            short_send: 0.0,
            spurious_wait: 0.0,
            spurious_poll: 0.0,
            end_multishot: 0.0,
            cancel_loses: 0.0,
            reset: 0.0,
            reset_overtakes: 0.0,
            lost_send: 0.0,
            refuse_connect: 0.0,
            time_out_connect: 0.0,
            exhaust_descriptors: 0.0,
            drop_datagram: 0.0,
            reorder_datagram: 0.0,
            limit_descriptors: 1 << 20,
            limit_send_buffer_bytes: 64 << 10,
            least_room_bytes: 1,
            limit_lent_buffers: 16,
            lent_buffer_bytes: 4096,
        }
    }

    /// Only what the contract leaves open is decided by chance: now or later, in which order, who wins a
    /// race. Counts are full, multishot operations go on, nothing is spurious but waits. For tests that
    /// ask for exact results.
    pub fn benign() -> Faults {
        Faults {
            pending: 0.5,
            early: 0.5,
            delay: Duration::ZERO..=Duration::from_micros(200),
            spurious_wait: 0.05,
            cancel_loses: 0.5,
            limit_lent_buffers: 4,
            ..Faults::none()
        }
    }

    /// Everything at once: also what a correct program can only report, not hide. Connections break,
    /// descriptors run out, datagrams vanish, buffers are tiny.
    pub fn hostile() -> Faults {
        Faults {
            pending: 0.5,
            delay: Duration::ZERO..=Duration::from_millis(20),
            stall: 0.02,
            stall_time: Duration::from_secs(5),
            short_receive: 0.5,
            short_send: 0.5,
            spurious_wait: 0.1,
            spurious_poll: 0.1,
            end_multishot: 0.2,
            cancel_loses: 0.5,
            reset: 0.01,
            reset_overtakes: 0.5,
            lost_send: 0.5,
            refuse_connect: 0.05,
            time_out_connect: 0.02,
            exhaust_descriptors: 0.05,
            drop_datagram: 0.1,
            reorder_datagram: 0.1,
            limit_send_buffer_bytes: 256,
            limit_lent_buffers: 2,
            lent_buffer_bytes: 64,
            ..Faults::default()
        }
    }

    /// How likely a fault is.
    pub(super) fn chance(&self, fault: Fault) -> f64 {
        match fault {
            Fault::Pending => self.pending,
            Fault::Early => self.early,
            Fault::Stall => self.stall,
            Fault::ShortReceive => self.short_receive,
            Fault::ShortSend => self.short_send,
            Fault::SpuriousWait => self.spurious_wait,
            Fault::SpuriousPoll => self.spurious_poll,
            Fault::EndMultishot => self.end_multishot,
            Fault::CancelLoses => self.cancel_loses,
            Fault::Reset => self.reset,
            Fault::ResetOvertakes => self.reset_overtakes,
            Fault::LostSend => self.lost_send,
            Fault::RefuseConnect => self.refuse_connect,
            Fault::TimeOutConnect => self.time_out_connect,
            Fault::ExhaustDescriptors => self.exhaust_descriptors,
            Fault::DropDatagram => self.drop_datagram,
            Fault::ReorderDatagram => self.reorder_datagram,
            // These happen by order or by shortage, not by chance.
            Fault::FailNth | Fault::PauseLent => 0.0,
        }
    }
}

impl Default for Faults {
    /// Moderately hostile: everything a correct program copes with without anybody noticing, and
    /// nothing that breaks a connection or loses data.
    fn default() -> Faults {
        Faults {
            pending: 0.5,
            early: 0.5,
            delay: Duration::ZERO..=Duration::from_millis(2),
            stall: 0.005,
            stall_time: Duration::from_millis(500),
            short_receive: 0.2,
            short_send: 0.2,
            spurious_wait: 0.05,
            spurious_poll: 0.05,
            end_multishot: 0.05,
            cancel_loses: 0.3,
            limit_send_buffer_bytes: 4096,
            limit_lent_buffers: 4,
            lent_buffer_bytes: 512,
            ..Faults::none()
        }
    }
}

/// One kind of fault, by which they are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// See [`Faults::pending`].
    Pending,
    /// See [`Faults::early`].
    Early,
    /// See [`Faults::stall`].
    Stall,
    /// See [`Faults::short_receive`].
    ShortReceive,
    /// See [`Faults::short_send`].
    ShortSend,
    /// See [`Faults::spurious_wait`].
    SpuriousWait,
    /// See [`Faults::spurious_poll`].
    SpuriousPoll,
    /// See [`Faults::end_multishot`].
    EndMultishot,
    /// See [`Faults::cancel_loses`].
    CancelLoses,
    /// See [`Faults::reset`].
    Reset,
    /// See [`Faults::reset_overtakes`].
    ResetOvertakes,
    /// See [`Faults::lost_send`].
    LostSend,
    /// See [`Faults::refuse_connect`].
    RefuseConnect,
    /// See [`Faults::time_out_connect`].
    TimeOutConnect,
    /// See [`Faults::exhaust_descriptors`].
    ExhaustDescriptors,
    /// See [`Faults::drop_datagram`].
    DropDatagram,
    /// See [`Faults::reorder_datagram`].
    ReorderDatagram,
    /// An operation was made to fail by [`Kernel::fail_nth`](super::Kernel::fail_nth) or a call by
    /// [`Kernel::fail_nth_call`](super::Kernel::fail_nth_call).
    FailNth,
    /// A lent receive paused because all buffers were out ([`Faults::limit_lent_buffers`]).
    PauseLent,
}

/// How many faults of each kind a kernel has injected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Injected {
    // A list, not a map: sorted, a dozen entries, and printed in order.
    counts: Vec<(Fault, u64)>,
}

impl Injected {
    /// How many faults of this kind.
    pub fn count(&self, fault: Fault) -> u64 {
        match self.counts.binary_search_by_key(&fault, |&(kind, _)| kind) {
            Ok(at) => self.counts[at].1,
            Err(_) => 0,
        }
    }

    /// How many faults of all kinds.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|&(_, count)| count).sum()
    }

    pub(super) fn note(&mut self, fault: Fault) {
        match self.counts.binary_search_by_key(&fault, |&(kind, _)| kind) {
            Ok(at) => self.counts[at].1 += 1,
            Err(at) => self.counts.insert(at, (fault, 1)),
        }
    }
}

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.counts.is_empty() {
            return f.write_str("none");
        }
        for (at, (fault, count)) in self.counts.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{fault:?} {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn injected_faults_are_counted_by_kind() {
        let mut injected = Injected::default();
        assert_eq!(injected.to_string(), "none");
        injected.note(Fault::Reset);
        injected.note(Fault::Pending);
        injected.note(Fault::Reset);
        assert_eq!(injected.count(Fault::Reset), 2);
        assert_eq!(injected.count(Fault::Stall), 0);
        assert_eq!(injected.total(), 3);
        assert_eq!(injected.to_string(), "Pending 1, Reset 2");
    }

    #[test]
    fn the_default_faults_break_nothing() {
        let faults = Faults::default();
        for fault in [
            Fault::Reset,
            Fault::ResetOvertakes,
            Fault::LostSend,
            Fault::RefuseConnect,
            Fault::TimeOutConnect,
            Fault::ExhaustDescriptors,
            Fault::DropDatagram,
            Fault::ReorderDatagram,
        ] {
            assert_eq!(faults.chance(fault), 0.0, "{fault:?}");
        }
    }
}
