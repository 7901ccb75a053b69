//! How many bytes a second? A token bucket, and nothing else.
//!
//! ```text
//!    rate ──► ▒▒▒▒▒▒▒▒ at most `burst` tokens ──► one for each byte
//!             when it is empty: not before `ready_at`
//! ```
//!
//! No clock and no timer: whoever uses it says what time it is and waits by himself. One bucket may be shared by
//! many connections, which then share its rate.

use std::time::{Duration, Instant};

const NANOSECONDS: u128 = 1_000_000_000;

/// Allows so many bytes a second on average, and so many at once.
///
/// ```
/// use coracle_net::TokenBucket;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let mut bucket = TokenBucket::new(1_000, 500, start); // 1,000 bytes a second, 500 at once
/// assert_eq!(bucket.available(start), 500); // it begins full
/// bucket.take(500);
/// assert_eq!(bucket.available(start), 0);
/// assert_eq!(bucket.ready_at(100), start + Duration::from_millis(100));
/// assert_eq!(bucket.available(start + Duration::from_millis(100)), 100);
/// ```
#[derive(Debug, Clone)]
pub struct TokenBucket {
    per_second: u64,
    burst: u64,
    tokens: u64,
    /// Up to when tokens were added.
    filled: Instant,
}

impl TokenBucket {
    /// A full bucket.
    ///
    /// # Panics
    /// When `per_second` or `burst` is zero: nothing would ever pass.
    pub fn new(per_second: u64, burst: u64, now: Instant) -> TokenBucket {
        assert!(per_second > 0 && burst > 0, "a token bucket of rate {per_second}, burst {burst}");
        TokenBucket { per_second, burst, tokens: burst, filled: now }
    }

    /// How many bytes may pass now.
    pub fn available(&mut self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.filled).as_nanos();
        let grown = elapsed * u128::from(self.per_second) / NANOSECONDS;
        if grown >= u128::from(self.burst - self.tokens) {
            (self.tokens, self.filled) = (self.burst, now.max(self.filled));
        } else if grown > 0 {
            self.tokens += grown as u64;
            // Only the time of whole tokens: the fraction of one is not lost, however often somebody asks.
            self.filled += self.time_of(grown);
        }
        self.tokens
    }

    /// Notes that `count` bytes have passed. More than are [available](TokenBucket::available) empty it.
    pub fn take(&mut self, count: u64) {
        self.tokens = self.tokens.saturating_sub(count);
    }

    /// Notes that `count` bytes have passed, available or not: none may pass until those that were not are made up
    /// for.
    ///
    /// ```
    /// # use coracle_net::TokenBucket;
    /// # use std::time::{Duration, Instant};
    /// let start = Instant::now();
    /// let mut bucket = TokenBucket::new(1_000, 500, start);
    /// bucket.charge(1_500); // a second's worth too much
    /// assert_eq!(bucket.available(start + Duration::from_secs(1)), 0);
    /// assert_eq!(bucket.available(start + Duration::from_millis(1_100)), 100);
    /// ```
    pub fn charge(&mut self, count: u64) {
        let owed = count.saturating_sub(self.tokens);
        self.tokens = self.tokens.saturating_sub(count);
        if owed > 0 {
            self.filled += self.time_of(u128::from(owed)); // what is owed is time in which nothing is added
        }
    }

    /// Notes that `count` bytes that were [taken](TokenBucket::take) have not passed after all.
    pub fn give_back(&mut self, count: u64) {
        self.tokens = self.tokens.saturating_add(count).min(self.burst);
    }

    /// When `count` bytes may pass, or as many as may ever pass at once.
    pub fn ready_at(&self, count: u64) -> Instant {
        let missing = count.min(self.burst).saturating_sub(self.tokens);
        self.filled + self.time_of(u128::from(missing))
    }

    /// How long so many tokens take, rounded up.
    fn time_of(&self, tokens: u128) -> Duration {
        let nanoseconds = (tokens * NANOSECONDS).div_ceil(u128::from(self.per_second));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Over any stretch of time no more passes than the rate and one burst, and nearly as much does.
        #[test]
        fn e8_rate_is_kept_however_often_it_is_asked(
            per_second in 1..2_000_000_000u64,
            burst in 1..1_000_000u64,
            steps in proptest::collection::vec((0..50_000_000u64, 0..200_000u64), 1..200),
        ) {
            let start = Instant::now();
            let mut bucket = TokenBucket::new(per_second, burst, start);
            let (mut now, mut passed) = (start, 0u128);
            for (pause, wanted) in steps {
                now += Duration::from_nanos(pause);
                let count = wanted.min(bucket.available(now));
                bucket.take(count);
                passed += u128::from(count);
                let elapsed = (now - start).as_nanos();
                let allowed = u128::from(burst) + elapsed * u128::from(per_second) / NANOSECONDS;
                prop_assert!(passed <= allowed, "{passed} of {allowed}");
            }
        }

        #[test]
        fn e8_ready_at_is_not_too_early_and_not_late(
            per_second in 1..2_000_000_000u64,
            burst in 1..1_000_000u64,
            taken in 0..1_000_000u64,
            wanted in 1..1_000_000u64,
        ) {
            let start = Instant::now();
            let mut bucket = TokenBucket::new(per_second, burst, start);
            bucket.take(taken);
            let wanted = wanted.min(burst);
            let ready = bucket.ready_at(wanted);
            prop_assert!(bucket.clone().available(ready) >= wanted);
            if let Some(before) = ready.checked_sub(Duration::from_nanos(1)) {
                prop_assert!(ready == start || bucket.available(before) < wanted);
            }
        }
    }

    #[test]
    fn e8_fractions_of_a_token_are_not_lost() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(3, 100, start);
        bucket.take(100);
        let mut passed = 0;
        for millisecond in 1..=10_000 {
            let count = bucket.available(start + Duration::from_millis(millisecond));
            bucket.take(count);
            passed += count;
        }
        assert!((29..=30).contains(&passed), "{passed} in ten seconds at three a second");
    }
}
