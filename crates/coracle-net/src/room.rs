//! How many connections a server has, on all its loops and of all its services, and how many it has room for.

use crate::limits::{
    Bottleneck, Capacity, CapacitySettings, capacity_within, raise_descriptor_limit,
};
use crate::listener::LIMIT_TURNING_AWAY;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many descriptors select(2) can wait for.
const FD_SETSIZE: u64 = 1024;

/// Room for fewer than this is hardly meant, and is told.
const FEW: usize = 32;

/// The room of one server, which its loops share. Any thread.
///
/// Two loops that look at the same moment may both find the last place: there may be one more per loop than there
/// is room for, which what is [reserved](CapacitySettings::descriptors_reserved) allows for.
pub(crate) struct Room {
    settings: CapacitySettings,
    limit: AtomicUsize,
    open: AtomicUsize,
    /// How many of them are only told that there is no room.
    turning_away: AtomicUsize,
}

impl Room {
    /// As many as this process may have descriptors for, or as memory allows.
    pub(crate) fn new(settings: CapacitySettings) -> Room {
        if let Err(error) = raise_descriptor_limit() {
            tracing::warn!("{error}");
        }
        let limit = AtomicUsize::new(usize::MAX);
        let (open, turning_away) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let room = Room { settings, limit, open, turning_away };
        room.lower(u64::MAX);
        room
    }

    /// A loop of the server is on select. Those who are told that it is full need descriptors, too.
    pub(crate) fn lower_for_select(&self) {
        self.lower(FD_SETSIZE - LIMIT_TURNING_AWAY as u64);
    }

    /// Only so many descriptors are of use.
    fn lower(&self, descriptors: u64) {
        let Capacity { connections, bottleneck, .. } = capacity_within(&self.settings, descriptors);
        let limit = connections.max(1);
        if self.limit.fetch_min(limit, Ordering::Relaxed) <= limit {
            return;
        }
        match bottleneck {
            _ if limit >= FEW => tracing::debug!("room for {limit} connections"),
            Bottleneck::Descriptors => tracing::warn!(
                "room for only {limit} connections: the process may have few descriptors; raise `ulimit -Hn`"
            ),
            Bottleneck::Memory => tracing::warn!(
                "room for only {limit} connections: there is little memory; see CapacitySettings"
            ),
        }
    }

    /// Whether there is a place for one more.
    pub(crate) fn has_place(&self) -> bool {
        // One that begins to be turned away on another loop may not be open yet.
        let served = self.open.load(Ordering::Relaxed).saturating_sub(self.turning_away());
        served < self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn turning_away(&self) -> usize {
        self.turning_away.load(Ordering::Relaxed)
    }

    pub(crate) fn begin_turning_away(&self) {
        self.turning_away.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_turning_away(&self) {
        self.turning_away.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
