//! Clients that are not let in because of their certificates, as the log tells of them: one of many.
//!
//! Nobody else hears of them: there is no request, and no answer. A flood of them must not be a flood of lines, so
//! there is one a second, which says how many there were besides.

use coracle_net::Address;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long there is no other line.
const PAUSE: Duration = Duration::from_secs(1);

/// Why a client is not let in.
#[derive(Debug)]
pub(crate) struct Stranger(String);

impl Stranger {
    pub(crate) fn error(why: String) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, Stranger(why))
    }
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Stranger {}

/// Those of one server, on all loops.
#[derive(Default)]
pub(crate) struct Strangers(Mutex<Told>);

#[derive(Default)]
struct Told {
    latest: Option<Instant>,
    /// Of how many nothing was said since.
    untold: u64,
}

impl Strangers {
    /// A handshake with this peer has failed: a line in the log, if it is for its certificate.
    pub(crate) fn note(&self, now: Instant, peer: &Address, error: &io::Error) {
        if !error.get_ref().is_some_and(|why| why.is::<Stranger>()) {
            return;
        }
        match self.add(now) {
            Some(0) => tracing::info!(%peer, "a client is not let in: {error}"),
            Some(others) => tracing::info!(%peer, others, "a client is not let in: {error}"),
            None => {}
        }
    }

    /// There is one more: how many others there were since the last line, if there is to be one.
    fn add(&self, now: Instant) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.latest.is_some_and(|latest| now.saturating_duration_since(latest) < PAUSE) {
            told.untold += 1;
            return None;
        }
        told.latest = Some(now);
        Some(std::mem::take(&mut told.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m2_log_tells_of_one_client_of_many() {
        let strangers = Strangers::default();
        let start = Instant::now();
        let told = |millis: u64| strangers.add(start + Duration::from_millis(millis));
        assert_eq!(told(0), Some(0), "of the first");
        assert_eq!([told(0), told(400), told(999)], [None; 3]);
        assert_eq!(told(1000), Some(3), "it goes on");
        assert_eq!(told(1001), None);
        assert_eq!([told(60_000), told(120_000)], [Some(1), Some(0)]);
    }
}
