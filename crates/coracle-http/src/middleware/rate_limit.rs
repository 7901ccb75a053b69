//! Refusing those who ask too often: a bucket of tokens for each address, in a table that does not grow.
//!
//! ```text
//!   address ──hash──► set ──► [ a ][ b ][ c ][ d ][ e ][ f ][ g ][ h ]     eight buckets to a set, a lock to each
//!                                            new one: takes the place of the fullest, which loses least
//! ```
//!
//! Who evicts others by asking from many addresses gives them full buckets, not empty ones; and a bucket that is
//! empty, because its owner is refused, is the last to go.

use super::{Middleware, Next};
use crate::{IntoResponse, Request, Response, Status};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many addresses are remembered, unless it is said otherwise.
const LIMIT_ADDRESSES: usize = 1 << 16;

/// Buckets of a set.
const WAYS: usize = 8;

/// Lets each address ask so often, and no more: 429 with `Retry-After`.
///
/// ```
/// use coracle_http::middleware::RateLimit;
/// use coracle_http::{App, OwnedRequest, Router, Status};
///
/// let app = Router::new(()).with(RateLimit::per_second(5).burst(2)).get("/", |_, _| "ahoy\n");
/// let ask = || app.call(&OwnedRequest::new("GET", "/").request()).status();
/// assert_eq!([ask(), ask(), ask()], [Status::OK, Status::OK, Status::TOO_MANY_REQUESTS]);
/// ```
///
/// An IPv6 address counts as its network of 64 bits, since whoever has one has them all. All clients of a Unix
/// socket are one. Behind a proxy, say by [`keyed`](RateLimit::keyed) who asks.
pub struct RateLimit {
    /// Time for one token.
    interval: Duration,
    burst: u32,
    limit_addresses: usize,
    key: Box<Key>,
    table: std::sync::OnceLock<Table>,
    refused: AtomicU64,
}

type Key = dyn Fn(&Request<'_>) -> Option<IpAddr> + Send + Sync;

impl RateLimit {
    /// So many requests per second, and as many at once.
    ///
    /// # Panics
    /// When it is none.
    pub fn per_second(requests: u32) -> RateLimit {
        RateLimit::every(Duration::from_secs(1) / requests.max(1)).burst(requests)
    }

    /// So many requests per minute, and as many at once.
    ///
    /// # Panics
    /// When it is none.
    pub fn per_minute(requests: u32) -> RateLimit {
        RateLimit::every(Duration::from_secs(60) / requests.max(1)).burst(requests)
    }

    /// One request in this time.
    ///
    /// # Panics
    /// When it is no time.
    pub fn every(interval: Duration) -> RateLimit {
        assert!(!interval.is_zero(), "a rate limit needs time between requests");
        RateLimit {
            interval,
            burst: 1,
            limit_addresses: LIMIT_ADDRESSES,
            key: Box::new(|req| req.peer().ip().map(|peer| peer.ip())),
            table: std::sync::OnceLock::new(),
            refused: AtomicU64::new(0),
        }
    }

    /// So many at once, after a while without any.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn burst(mut self, requests: u32) -> RateLimit {
        assert!(requests > 0, "a rate limit of nothing refuses everybody");
        self.burst = requests;
        self
    }

    /// So many addresses are remembered; the least active are forgotten first. 32 bytes each, taken at the first
    /// request.
    #[must_use]
    pub fn limit_addresses(mut self, addresses: usize) -> RateLimit {
        self.limit_addresses = addresses.max(WAYS);
        self
    }

    /// Who asks, if it is not whom the connection is from: what a proxy says that you trust. Requests for which
    /// there is no answer share one bucket.
    #[must_use]
    pub fn keyed(
        mut self,
        key: impl Fn(&Request<'_>) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> RateLimit {
        self.key = Box::new(key);
        self
    }

    /// How many requests were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How long to wait, if it is too soon.
    fn take(&self, address: Option<IpAddr>, now: Instant) -> Result<(), Duration> {
        let table = self.table.get_or_init(|| Table::new(self.limit_addresses, now));
        table.take(network(address), now, self.interval, self.burst)
    }
}

impl Middleware for RateLimit {
    fn handle(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        let now = coracle_loop::Loop::current().map_or_else(Instant::now, |lp| lp.now());
        match self.take((self.key)(req), now) {
            Ok(()) => next.run(req),
            Err(wait) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                Status::TOO_MANY_REQUESTS
                    .into_response()
                    .with_header("retry-after", seconds.to_string())
            }
        }
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("interval", &self.interval)
            .field("burst", &self.burst)
            .field("refused", &self.refused())
            .finish_non_exhaustive()
    }
}

/// Whose bucket it is.
pub(crate) fn network(address: Option<IpAddr>) -> u128 {
    let six = match address {
        Some(IpAddr::V4(four)) => return four.to_ipv6_mapped().to_bits(),
        Some(IpAddr::V6(six)) => six,
        None => Ipv6Addr::UNSPECIFIED,
    };
    match six.to_ipv4_mapped() {
        Some(_) => six.to_bits(),
        None => six.to_bits() >> 64 << 64,
    }
}

struct Table {
    sets: Box<[Mutex<[Bucket; WAYS]>]>,
    hasher: RandomState,
    since: Instant,
}

/// Full at a point in time, and ever after; what it lacks before that are the tokens that were taken.
#[derive(Clone, Copy, Default)]
struct Bucket {
    key: u128,
    /// In nanoseconds since the table was made.
    full_at: u64,
}

impl Table {
    fn new(addresses: usize, since: Instant) -> Table {
        let sets = addresses.div_ceil(WAYS);
        let sets = (0..sets).map(|_| Mutex::new([Bucket::default(); WAYS])).collect();
        Table { sets, hasher: RandomState::new(), since }
    }

    fn take(
        &self,
        key: u128,
        now: Instant,
        interval: Duration,
        burst: u32,
    ) -> Result<(), Duration> {
        let set = self.hasher.hash_one(key) % self.sets.len() as u64;
        let mut set = self.sets[set as usize].lock().unwrap_or_else(PoisonError::into_inner);
        let now = nanoseconds(now.saturating_duration_since(self.since));
        let at = set.iter().position(|bucket| bucket.key == key && bucket.full_at > 0);
        let at = at.unwrap_or_else(|| {
            // One that nobody uses, else the fullest: that which is full again first.
            let fullest = (0..WAYS).min_by_key(|at| set[*at].full_at).unwrap_or_default();
            set[fullest] = Bucket { key, full_at: now };
            fullest
        });
        let interval = nanoseconds(interval);
        let full_at = set[at].full_at.max(now).saturating_add(interval);
        let room = interval.saturating_mul(u64::from(burst));
        match (full_at - now).checked_sub(room).filter(|late| *late > 0) {
            Some(late) => Err(Duration::from_nanos(late)),
            None => {
                set[at].full_at = full_at;
                Ok(())
            }
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn four(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn j14_tokens_come_back_with_time() {
        let limit = RateLimit::every(Duration::from_secs(10)).burst(2);
        let start = Instant::now();
        let ask = |seconds: u64| limit.take(four(1), start + Duration::from_secs(seconds));
        assert_eq!([ask(0), ask(0)], [Ok(()), Ok(())]);
        assert_eq!(ask(0), Err(Duration::from_secs(10)));
        assert_eq!(ask(9), Err(Duration::from_secs(1)));
        assert_eq!(ask(10), Ok(()));
        assert_eq!(ask(10), Err(Duration::from_secs(10)));
        assert_eq!(limit.take(four(2), start), Ok(()), "others are not concerned");
        assert_eq!(
            [ask(1000), ask(1000), ask(1000)],
            [Ok(()), Ok(()), Err(Duration::from_secs(10))]
        );
    }

    #[test]
    fn j14_networks_of_six_count_as_one_and_mapped_addresses_as_four() {
        let six = |text: &str| network(Some(text.parse().unwrap()));
        assert_eq!(six("2001:db8::1"), six("2001:db8::ffff:1:2"));
        assert_ne!(six("2001:db8::1"), six("2001:db8:0:1::1"));
        assert_eq!(six("::ffff:10.0.0.1"), six("10.0.0.1"));
        assert_ne!(six("10.0.0.1"), six("10.0.0.2"));
    }

    #[test]
    fn j14_the_table_does_not_grow_and_forgets_the_refused_last() {
        let limit = RateLimit::every(Duration::from_secs(3600)).limit_addresses(64);
        let now = Instant::now();
        let greedy = four(1);
        limit.take(four(2), now).unwrap();
        limit.take(greedy, now + Duration::from_secs(1)).unwrap();
        for at in 0..100_000_u32 {
            let _ = limit.take(Some(IpAddr::from((at | 1 << 30).to_be_bytes())), now);
        }
        assert_eq!(limit.table.get().unwrap().sets.len() * WAYS, 64);
        assert!(limit.take(greedy, now + Duration::from_secs(2)).is_err(), "it is still refused");
    }

    /// Slowly: the times of all that was let through, for each address.
    fn twin(asked: &[(u8, u64)], interval: u64, burst: u32) -> Vec<bool> {
        let mut tokens: HashMap<u8, (f64, u64)> = HashMap::new();
        let mut answers = Vec::new();
        for (who, at) in asked {
            let (have, last) = tokens.entry(*who).or_insert((f64::from(burst), *at));
            *have = (*have + (at - *last) as f64 / interval as f64).min(f64::from(burst));
            *last = *at;
            let yes = *have >= 1.0 - 1e-9;
            if yes {
                *have -= 1.0;
            }
            answers.push(yes);
        }
        answers
    }

    proptest! {
        #[test]
        fn j14_buckets_are_those_of_the_twin(
            asked in proptest::collection::vec((0_u8..3, 0_u64..30), 0..60),
            interval in 1_u64..20,
            burst in 1_u32..5,
        ) {
            let limit = RateLimit::every(Duration::from_secs(interval)).burst(burst);
            let start = Instant::now();
            let mut at = 0;
            let asked: Vec<(u8, u64)> = asked.into_iter().map(|(who, later)| { at += later; (who, at) }).collect();
            let ours: Vec<bool> = asked.iter()
                .map(|(who, at)| limit.take(four(*who), start + Duration::from_secs(*at)).is_ok())
                .collect();
            prop_assert_eq!(ours, twin(&asked, interval, burst));
        }
    }
}
