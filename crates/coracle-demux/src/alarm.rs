//! One timer in the kernel that stays set over many waits.
//!
//! ```text
//!   waits:     ├──┤├─┤├────┤├──┤ …            each must end at its deadline, which is seconds away
//!   alarm:  set ───────────────────────► rings   a wait may end early: the next deadline is then asked for
//! ```
//!
//! A wait with a time-out makes the kernel set a timer and take it back, which costs a server that idles between
//! requests more than anything of its own. But most deadlines are far away, and are put off before they come:
//! those of keep-alive and of requests. An alarm that rings at or before the deadline serves as well, and has to
//! be set only once for all of them. It is set by the first wait whose predecessor has ended before its time:
//! who waits for nothing but a timer has one system call for it, as ever. If the deadline it was set for is given
//! up, it still rings, and one wait ends early.

use std::time::{Duration, Instant};

/// A deadline that is nearer is a time-out of the wait itself: it will probably come.
const FAR: Duration = Duration::from_millis(100);

/// What is known of the kernel's timer.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    /// When it rings, at the earliest; none if it is not set.
    due: Option<Instant>,
    /// The end of the last wait that had a time-out, a far one.
    until: Option<Instant>,
}

impl Alarm {
    /// The time-out of a wait that must end at `deadline`: none if the alarm ends it.
    ///
    /// `set` sets the alarm, whether it is set or not, to ring after so long, and says whether it could.
    #[inline]
    pub(crate) fn timeout(
        &mut self,
        deadline: Instant,
        set: impl FnOnce(&Alarm, Duration) -> bool,
    ) -> Option<Duration> {
        if self.due.is_some_and(|due| due <= deadline) {
            return None;
        }
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now);
        if left < FAR {
            return Some(left);
        }
        let ended_early = self.until.is_some_and(|until| now < until);
        if !ended_early || !set(self, left) {
            self.until = Some(deadline);
            return Some(left);
        }
        self.due = Some(deadline);
        None
    }

    /// Whether it will ring.
    pub(crate) fn is_set(&self) -> bool {
        self.due.is_some()
    }

    /// It has rung.
    pub(crate) fn rang(&mut self) {
        *self = Alarm::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_set_once_for_deadlines_that_are_put_off() {
        let mut alarm = Alarm::default();
        let now = Instant::now();
        let deadline = |seconds| now + Duration::from_secs(seconds);
        assert!(alarm.timeout(deadline(100), |_, _| panic!("nothing ended early")).is_some());
        assert_eq!(alarm.timeout(deadline(100), |alarm, _| !alarm.is_set()), None);
        for seconds in [100, 101, 1000] {
            assert_eq!(alarm.timeout(deadline(seconds), |_, _| panic!("it is set")), None);
        }
        // An earlier one needs it set anew; if that fails, the wait has a time-out.
        let left = alarm.timeout(deadline(50), |alarm, _| !alarm.is_set()).unwrap();
        assert!(left <= Duration::from_secs(50) && left > Duration::from_secs(20));
        assert_eq!(alarm.timeout(deadline(50), |alarm, _| alarm.is_set()), None);
        alarm.rang(); // and does not ring again by itself
        assert!(alarm.timeout(deadline(100), |_, _| panic!("nothing ended early")).is_some());
        assert_eq!(alarm.timeout(deadline(90), |alarm, _| !alarm.is_set()), None);
    }

    #[test]
    fn near_deadline_is_a_time_out() {
        let mut alarm = Alarm::default();
        let now = Instant::now();
        assert_eq!(alarm.timeout(now, |_, _| panic!("it is over")), Some(Duration::ZERO));
        assert!(alarm.timeout(now + FAR / 2, |_, _| panic!("it is near")).is_some());
    }
}
