//! `Upstream`: a server that is asked in our place, and how it is.

use super::settings::Balance;
use crate::client::place::{At, Place};
use crate::client::url::Url;
use coracle_net::Address;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A server behind a [`Proxy`](super::Proxy). A handle, for any thread.
///
/// ```
/// use coracle_http::Proxy;
///
/// # fn main() -> std::io::Result<()> {
/// let proxy = Proxy::to(["http://127.0.0.1:9001", "http://127.0.0.1:9002"])?;
/// let [first, _] = proxy.upstreams() else { panic!("there are two") };
/// first.drain(); // nobody is sent there any more; who is there is served to the end
/// assert!(first.is_draining());
/// first.restore();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Upstream(Arc<State>);

struct State {
    text: String,
    place: Place,
    /// As the header says it.
    host: String,
    /// What every path begins with, without a slash at its end.
    base: String,
    in_flight: AtomicUsize,
    draining: AtomicBool,
    /// A health check has failed.
    ill: AtomicBool,
    /// How many requests have failed on end.
    failures: AtomicU32,
    /// Until when it is left alone, in milliseconds of this process.
    paused_until: AtomicU64,
    requests: AtomicU64,
    failed: AtomicU64,
}

impl Upstream {
    /// `http://host:port/base`, or `unix:/path/of/socket`.
    pub(super) fn parse(text: &str) -> io::Result<Upstream> {
        let (place, host, base) = if text.starts_with("unix:") {
            let address: Address = text.parse().map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidInput, format!("{text:?}: {error}"))
            })?;
            (
                Place { at: At::Address(address), secure: None },
                "localhost".to_owned(),
                String::new(),
            )
        } else {
            let url = Url::parse(text)?;
            if url.target.contains('?') {
                let text = format!("{text:?}: the URL of an upstream has no query");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            let mut place = url.place(None);
            // An address need not be looked up.
            if let Ok(address) =
                format!("{}:{}", url.name, url.port).parse::<std::net::SocketAddr>()
            {
                place.at = At::Address(address.into());
            }
            (place, url.host, url.target.trim_end_matches('/').to_owned())
        };
        Ok(Upstream(Arc::new(State {
            text: text.to_owned(),
            place,
            host,
            base,
            in_flight: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            ill: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            paused_until: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })))
    }

    /// Sends nobody there any more. Who is there is served to the end.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }

    /// Takes that back.
    pub fn restore(&self) {
        self.0.draining.store(false, Ordering::Relaxed);
    }

    /// Whether nobody is sent there any more.
    pub fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Relaxed)
    }

    /// Whether its last health check went well, if there was one.
    pub fn is_well(&self) -> bool {
        !self.0.ill.load(Ordering::Relaxed)
    }

    /// How many requests it has now.
    pub fn in_flight(&self) -> usize {
        self.0.in_flight.load(Ordering::Relaxed)
    }

    /// How many it has had.
    pub fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// How many of them it has not answered.
    pub fn failed(&self) -> u64 {
        self.0.failed.load(Ordering::Relaxed)
    }

    pub(super) fn place(&self) -> &Place {
        &self.0.place
    }

    pub(super) fn host(&self) -> &str {
        &self.0.host
    }

    pub(super) fn base(&self) -> &str {
        &self.0.base
    }

    /// Whether it may be asked at all.
    fn is_open(&self) -> bool {
        !self.is_draining() && self.is_well()
    }

    fn is_paused(&self, now: u64) -> bool {
        self.0.paused_until.load(Ordering::Relaxed) > now
    }

    /// Notes a request; until that is dropped it counts as one that is under way.
    pub(super) fn begin(&self) -> InFlight {
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        InFlight(self.clone())
    }

    pub(super) fn succeeded(&self) {
        if self.0.failures.load(Ordering::Relaxed) > 0 {
            self.0.failures.store(0, Ordering::Relaxed);
            self.0.paused_until.store(0, Ordering::Relaxed);
        }
    }

    /// Notes a request that was not answered.
    pub(super) fn note_failure(&self, now: Instant, limit: u32, pause: Duration) {
        self.0.failed.fetch_add(1, Ordering::Relaxed);
        let failures = self.0.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures >= limit {
            let until = milliseconds(now).saturating_add(pause.as_millis() as u64);
            let before = self.0.paused_until.swap(until, Ordering::Relaxed);
            if before == 0 {
                tracing::warn!("{self} has not answered {failures} requests: others are asked");
            }
        }
    }

    /// Notes what came of a health check.
    pub(super) fn note_health(&self, result: &io::Result<()>) {
        let was_ill = self.0.ill.swap(result.is_err(), Ordering::Relaxed);
        match result {
            Ok(()) if was_ill => tracing::info!("{self} is well again"),
            Err(error) if !was_ill => tracing::warn!("{self} is not well: {error}"),
            _ => {}
        }
        if result.is_ok() {
            self.succeeded();
        }
    }
}

/// A request that is under way.
pub(super) struct InFlight(Upstream);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Who is asked next: the number of one who was not tried. Those that are paused only if there is nobody else.
pub(super) fn choose(
    upstreams: &[Upstream],
    turn: usize,
    balance: Balance,
    now: Instant,
    tried: &[usize],
) -> Option<usize> {
    if let [only] = upstreams {
        return (only.is_open() && tried.is_empty()).then_some(0);
    }
    let now = milliseconds(now);
    let order = (0..upstreams.len()).map(|step| (turn + step) % upstreams.len());
    let open = order.filter(|at| upstreams[*at].is_open() && !tried.contains(at));
    let paused = |at: &usize| upstreams[*at].is_paused(now);
    match balance {
        Balance::RoundRobin => open.min_by_key(paused),
        Balance::LeastConnections => open.min_by_key(|at| (paused(at), upstreams[*at].in_flight())),
    }
}

fn milliseconds(now: Instant) -> u64 {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    let epoch = *EPOCH.get_or_init(|| now);
    // Loops of a simulated kernel have clocks of their own.
    now.checked_duration_since(epoch).map_or(1, |since| since.as_millis() as u64 + 1)
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("url", &self.0.text)
            .field("in_flight", &self.in_flight())
            .field("is_draining", &self.is_draining())
            .field("is_well", &self.is_well())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn j15_next_is_who_has_the_least_to_do_and_can() {
        let three: Vec<Upstream> = (1..4)
            .map(|port| Upstream::parse(&format!("http://127.0.0.1:{port}")).unwrap())
            .collect();
        let now = Instant::now();
        let next = |turn, balance, tried: &[usize]| choose(&three, turn, balance, now, tried);
        assert_eq!(
            [0, 1, 2, 3].map(|turn| next(turn, Balance::RoundRobin, &[])),
            [0, 1, 2, 0].map(Some)
        );
        assert_eq!(next(1, Balance::RoundRobin, &[1]), Some(2));
        let _busy = [three[0].begin(), three[1].begin(), three[1].begin()];
        assert_eq!(next(0, Balance::LeastConnections, &[]), Some(2));
        three[2].drain();
        assert_eq!(next(0, Balance::LeastConnections, &[]), Some(0));
        for _ in 0..3 {
            three[0].note_failure(now, 3, Duration::from_secs(10));
        }
        assert_eq!(next(0, Balance::LeastConnections, &[]), Some(1));
        three[1].note_health(&Err(io::ErrorKind::TimedOut.into()));
        assert_eq!(next(0, Balance::RoundRobin, &[]), Some(0), "better than nobody");
        assert_eq!(next(0, Balance::RoundRobin, &[0]), None);
        three[0].succeeded();
        three[1].note_health(&Ok(()));
        three[2].restore();
        assert_eq!(next(2, Balance::RoundRobin, &[]), Some(2));
    }

    #[test]
    fn j15_upstreams_are_urls_or_sockets() {
        let told = |text: &str| {
            let upstream = Upstream::parse(text).unwrap();
            (upstream.place().to_string(), upstream.host().to_owned(), upstream.base().to_owned())
        };
        let part = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(told("http://a:81/b/"), part("a:81", "a:81", "/b"));
        assert_eq!(told("http://127.0.0.1"), part("127.0.0.1:80", "127.0.0.1", ""));
        assert_eq!(told("unix:/run/app"), part("unix:/run/app", "localhost", ""));
        for wrong in ["", "a:80", "ftp://a", "http://a/?b", "http://u:p@a", "unix:"] {
            assert!(Upstream::parse(wrong).is_err(), "{wrong}");
        }
    }
}
