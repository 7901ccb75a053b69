//! What keeps a `run` from returning: something that is still to be done beside coroutines and futures.

use crate::scheduler::Scheduler;
use coracle_loop::Loop;
use std::rc::Rc;

/// Until it is dropped, a `run` of its loop does not return.
pub(crate) struct Hold(Rc<Scheduler>);

impl Hold {
    /// Only in a turn of the loop.
    pub(crate) fn begin(lp: &Loop) -> Hold {
        let scheduler = Scheduler::of(lp);
        scheduler.other_entered();
        Hold(scheduler)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Else the loop is gone, and nobody runs it.
        if self.0.is_turning() {
            self.0.other_left();
        }
    }
}
