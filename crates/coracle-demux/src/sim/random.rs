//! Where every choice of the simulated kernel comes from: one stream of numbers per seed.
//!
//! ```text
//!  seed ──► 64 bits of state ──► next() ──► chance, below, between
//! ```
//!
//! SplitMix64 (Steele, Lea and Flood 2014): a counter and a hash. It is small enough to read, passes
//! the usual tests, gives different streams for neighbouring seeds, and never changes under our feet
//! as a dependency might: a seed written down in a bug report has to replay for ever.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The stream of one seed.
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The next 64 bits.
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut hash = self.state;
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    }

    /// A number below `limit`, which must not be zero. The bias of `%` is far below what a test can see.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Whether something of this probability happens. Draws nothing when the answer is certain.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        // The top 53 bits as a fraction: exact in a double, hence the same on every machine.
        let fraction = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        fraction < probability
    }

    /// A length of time in `range`.
    pub(super) fn between(&mut self, range: &RangeInclusive<Duration>) -> Duration {
        let spread = range.end().saturating_sub(*range.start()).as_nanos() as u64;
        if spread == 0 {
            return *range.start();
        }
        *range.start() + Duration::from_nanos(self.next() % spread.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_published_numbers() {
        // The first outputs of SplitMix64 for seed 1234567, as other implementations list them.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn certain_chances_are_certain() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| random.chance(1.0)));
        assert!((0..1000).all(|_| !random.chance(0.0)));
    }

    #[test]
    fn lengths_of_time_stay_in_their_range() {
        let mut random = Random::new(2);
        let range = Duration::from_micros(3)..=Duration::from_micros(5);
        assert!((0..1000).all(|_| range.contains(&random.between(&range))));
        assert_eq!(random.between(&(Duration::ZERO..=Duration::ZERO)), Duration::ZERO);
    }
}
