//! Connections for which there is no room, as the app is told of them: one of many.
//!
//! Each is answered with a few bytes that are always the same. That it was is in the access log only if the app is
//! asked what it says to a request that is refused. A flood must not be a flood of lines, so this happens once a
//! second; all are counted, and the log of the program says when it begins.

use crate::peer::Peer;
use crate::site::Site;
use crate::{Method, Refusal, Status};
use coracle_net::Address;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long the app is not told of others, and how long nobody comes when it is over.
const PAUSE: Duration = Duration::from_secs(1);

/// What is known of those who were turned away lately.
#[derive(Default)]
pub(crate) struct TurnedAway {
    latest: Cell<Option<Instant>>,
    told: Cell<Option<Instant>>,
}

impl TurnedAway {
    /// There is one more: whether the app is to be told of it.
    fn add(&self, now: Instant) -> bool {
        let is_past = |at: Instant| now.saturating_duration_since(at) >= PAUSE;
        if self.latest.replace(Some(now)).is_none_or(is_past) {
            tracing::warn!("too many connections: new ones are turned away with a 503");
        }
        let tell = self.told.get().is_none_or(is_past);
        if tell {
            self.told.set(Some(now));
        }
        tell
    }
}

impl Site {
    /// A client is told that there is no room for it.
    #[cold]
    pub(crate) fn note_turned_away(&self, now: Instant, peer: impl FnOnce() -> Address) {
        const CROWDED: Refusal = Refusal::new(Status::SERVICE_UNAVAILABLE, "");
        self.stats.count_turned_away();
        if !self.turned_away.add(now) {
            return;
        }
        let mut exchange = self.take_exchange();
        exchange.owned.be_unknown();
        exchange.owned.method = Method::Head; // which has no body, and so has what it is told
        Peer::new(&peer()).tell(&mut exchange.owned);
        drop(self.refuse(&exchange.owned, CROWDED));
        self.give_back(exchange);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i8_app_is_told_of_one_of_many() {
        let crowd = TurnedAway::default();
        let start = Instant::now();
        let told = |millis: u64| crowd.add(start + Duration::from_millis(millis));
        assert!(told(0), "of the first");
        assert!(!told(0) && !told(400) && !told(999));
        assert!(told(1000), "it goes on");
        assert!(!told(1001) && !told(1999));
        assert!(told(60_000), "it begins again");
    }
}
