//! How long to wait before a worker that has died is started again.

use std::time::Duration;

/// The pause after the first death; it doubles with each that follows, up to the last.
const FIRST: Duration = Duration::from_millis(100);
const LAST: Duration = Duration::from_secs(30);

/// Who has lived this long did not die of its start.
const STEADY: Duration = Duration::from_secs(10);

/// The pauses of one worker.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    last: Option<Duration>,
}

/// What to do about a death.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) pause: Duration,
    /// Whether the pause is another than the time before, which is when people want to hear of it.
    pub(super) is_news: bool,
}

impl Backoff {
    pub(super) fn new() -> Backoff {
        Backoff { next: FIRST, last: None }
    }

    /// It has died after it `lived` so long.
    pub(super) fn died(&mut self, lived: Duration) -> Step {
        if lived >= STEADY {
            *self = Backoff::new();
        }
        let pause = self.next;
        self.next = (pause * 2).min(LAST);
        let is_news = self.last.replace(pause) != Some(pause);
        Step { pause, is_news }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_last_which_is_news_once() {
        let mut backoff = Backoff::new();
        let mut steps = Vec::new();
        for _ in 0..12 {
            let Step { pause, is_news } = backoff.died(Duration::ZERO);
            steps.push((pause.as_millis(), is_news));
        }
        let doubling = [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000];
        let mut expected: Vec<_> = doubling.map(|pause| (pause, true)).into();
        expected.extend([(30_000, false), (30_000, false)]);
        assert_eq!(steps, expected);
    }

    #[test]
    fn long_life_is_a_fresh_start() {
        let mut backoff = Backoff::new();
        backoff.died(Duration::ZERO);
        backoff.died(STEADY - Duration::from_nanos(1));
        assert_eq!(backoff.died(STEADY), Step { pause: FIRST, is_news: true });
        assert_eq!(backoff.died(Duration::ZERO), Step { pause: 2 * FIRST, is_news: true });
    }
}
