//! How many connections a server has, on all its loops and of all its services, and how many it has room for.

use crate::limits::{CapacitySettings, capacity, raise_descriptor_limit};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The room of one server, which its loops share. Any thread.
///
/// Two loops that look at the same moment may both find the last place: there may be one more per loop than there
/// is room for, which what is [reserved](CapacitySettings::descriptors_reserved) allows for.
pub(crate) struct Room {
    limit: usize,
    open: AtomicUsize,
}

impl Room {
    /// As many as this process may have descriptors for, or as memory allows.
    pub(crate) fn new(settings: &CapacitySettings) -> Room {
        if let Err(error) = raise_descriptor_limit() {
            tracing::warn!("{error}");
        }
        let limit = capacity(settings).connections.max(1);
        tracing::debug!("room for {limit} connections");
        Room { limit, open: AtomicUsize::new(0) }
    }

    /// How many there are too many if one more is opened.
    pub(crate) fn excess(&self) -> usize {
        (self.open.load(Ordering::Relaxed) + 1).saturating_sub(self.limit)
    }

    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
