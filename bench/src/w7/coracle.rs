//! coracle's own timers: the loop's wheel, and its lazy idle time-outs.

use std::time::Instant;

use coracle_loop::wheel::{self, TimerId};
use coracle_loop::{IdleTimer, Loop};

use super::{HORIZON, Timers};

pub(super) struct Wheel {
    wheel: wheel::Wheel<u64>,
    /// Idle time-outs live on a loop; it is made when the first one is.
    idle: Option<Loop>,
}

impl Timers for Wheel {
    type Id = TimerId;
    type Idle = IdleTimer;

    fn new(now: Instant) -> Wheel {
        Wheel { wheel: wheel::Wheel::new(now), idle: None }
    }

    fn add(&mut self, deadline: Instant, value: u64) -> TimerId {
        self.wheel.insert(deadline, value)
    }

    fn cancel(&mut self, id: TimerId) -> Option<u64> {
        self.wheel.remove(id)
    }

    fn rearm(&mut self, id: &mut TimerId, deadline: Instant) {
        self.wheel.set_deadline(*id, deadline);
    }

    fn add_idle(&mut self, _deadline: Instant) -> IdleTimer {
        let lp = self.idle.get_or_insert_with(|| Loop::new().expect("a loop starts"));
        lp.idle_timer(HORIZON, |_| {})
    }

    fn touch(&mut self, idle: &mut IdleTimer, _deadline: Instant) {
        idle.touch();
    }

    fn expire(&mut self, now: Instant) -> usize {
        let mut expired = 0;
        while let Some((id, value)) = self.wheel.take_due(now) {
            self.wheel.put_back(id, std::hint::black_box(value), None);
            expired += 1;
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn timers_expire_once_and_in_time() {
        super::super::check::<super::Wheel>();
    }
}
