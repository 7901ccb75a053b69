//! Something that holds up a thread until it is let go.

use std::sync::{Arc, Condvar, Mutex};

#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    open: bool,
    arrived: usize,
}

impl Gate {
    /// Waits, on a worker thread, until it is open.
    pub(crate) fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.arrived += 1;
        drop(changed.wait_while(state, |state| !state.open).unwrap());
    }

    pub(crate) fn open(&self) {
        let (state, changed) = &*self.0;
        state.lock().unwrap().open = true;
        changed.notify_all();
    }

    /// How many have come to it.
    pub(crate) fn arrived(&self) -> usize {
        self.0.0.lock().unwrap().arrived
    }

    /// Returns when so many have.
    pub(crate) fn await_arrivals(&self, count: usize) {
        while self.arrived() < count {
            coracle_coro::sleep(crate::harness::MS).unwrap();
        }
    }
}
