//! Choices of the test itself, apart from the kernel's: SplitMix64.

use std::time::Duration;

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed ^ 0x5eed_5eed_5eed_5eed)
    }

    /// A generator of its own, for somebody else.
    pub(crate) fn fork(&mut self) -> Random {
        Random(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn chance(&mut self, chance: f64) -> bool {
        (self.next() >> 11) as f64 / ((1u64 << 53) as f64) < chance
    }

    /// A time up to `limit`.
    pub(crate) fn duration(&mut self, limit: Duration) -> Duration {
        Duration::from_nanos(self.below(limit.as_nanos() as u64 + 1))
    }
}
