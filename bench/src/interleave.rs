//! Repeats measurements round robin, and drops the repetitions that others have spoilt.
//!
//! All candidates are measured once, then all of them again: whatever drifts (temperature, neighbours)
//! touches all alike.

use std::io;

use crate::noise::{LIMIT_SHARE, Noise};

/// How often to measure, and what to do about noise.
#[derive(Clone, Copy, Debug)]
pub struct Repetitions {
    /// Good repetitions wanted of each candidate.
    pub wanted: usize,
    /// Keep what others have spoilt (for trying things out).
    pub keep_noisy: bool,
}

/// The repetitions of one candidate.
#[derive(Clone, Debug)]
pub struct Series<R> {
    /// What was measured.
    pub kept: Vec<R>,
    /// How many repetitions others have spoilt. They are in `kept` only if that was asked for.
    pub noisy: usize,
}

impl Repetitions {
    /// Measures every candidate until each has enough good repetitions, for at most twice as many rounds.
    ///
    /// # Errors
    /// The first error of `measure`.
    pub fn run<C, R>(
        self,
        candidates: &[C],
        mut measure: impl FnMut(&C) -> io::Result<R>,
    ) -> io::Result<Vec<Series<R>>> {
        let mut all: Vec<Series<R>> =
            candidates.iter().map(|_| Series { kept: Vec::new(), noisy: 0 }).collect();
        for _round in 0..2 * self.wanted {
            for (candidate, series) in candidates.iter().zip(&mut all) {
                if series.kept.len() == self.wanted {
                    continue;
                }
                let noise = Noise::begin()?;
                let result = measure(candidate)?;
                let others = noise.end()?;
                if others.spoils {
                    series.noisy += 1;
                }
                if !others.spoils || self.keep_noisy {
                    series.kept.push(result);
                }
            }
        }
        Ok(all)
    }
}

impl<R> Series<R> {
    /// A remark for the report, when there was noise.
    pub fn remark(&self, keep_noisy: bool) -> Option<String> {
        let percent = LIMIT_SHARE * 100.0;
        match (self.noisy, keep_noisy) {
            (0, _) => None,
            (noisy, true) => Some(format!(
                "{noisy} of {} repetitions were kept although others used more than {percent} % of a core",
                self.kept.len()
            )),
            (noisy, false) => Some(format!(
                "{noisy} repetitions discarded: others used more than {percent} % of a core"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Repetitions;

    #[test]
    fn candidates_take_turns() {
        let mut order = Vec::new();
        let repetitions = Repetitions { wanted: 2, keep_noisy: true };
        let series = repetitions
            .run(&['a', 'b'], |&name| {
                order.push(name);
                Ok(order.len())
            })
            .unwrap();
        assert_eq!(order, ['a', 'b', 'a', 'b']);
        assert_eq!(series[1].kept, [2, 4]);
    }
}
