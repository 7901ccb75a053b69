//! Something that holds up a thread until it is let go.

use coracle_loop::demux::lock::{Condvar, Lock};
use std::sync::Arc;

#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Lock<State>, Condvar)>);

#[derive(Default)]
struct State {
    open: bool,
    arrived: usize,
}

impl Gate {
    /// Waits, on a worker thread, until it is open.
    pub(crate) fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock();
        state.arrived += 1;
        while !state.open {
            state = changed.wait(state);
        }
    }

    pub(crate) fn open(&self) {
        let (state, changed) = &*self.0;
        state.lock().open = true;
        changed.notify_all();
    }

    /// How many have come to it.
    pub(crate) fn arrived(&self) -> usize {
        self.0.0.lock().arrived
    }

    /// Returns when so many have.
    pub(crate) fn await_arrivals(&self, count: usize) {
        while self.arrived() < count {
            coracle_coro::sleep(crate::harness::MS).unwrap();
        }
    }
}
