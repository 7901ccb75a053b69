//! What a watchdog sees of a loop.

use crate::harness::Harness;
use coracle_loop::{LoopHandle, Pulse};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

pub(crate) fn s43_pulse_tells_turns_apart(h: &Harness) {
    let pulses: Rc<RefCell<Vec<Pulse>>> = Rc::default();
    let handle = h.lp.handle();
    assert!(!handle.pulse().is_turning(), "nobody runs it");
    let seen = Rc::clone(&pulses);
    h.lp.repeat(
        Duration::from_millis(1),
        3,
        move |lp| {
            let pulse = lp.handle().pulse();
            assert_eq!(pulse, lp.handle().pulse(), "it is the same turn");
            seen.borrow_mut().push(pulse);
        },
        |lp| lp.stop(),
    );
    h.lp.run().unwrap();
    let pulses = pulses.take();
    assert_eq!(pulses.len(), 3);
    assert!(pulses.iter().all(|pulse| pulse.is_turning()));
    assert!(pulses[0] != pulses[1] && pulses[1] != pulses[2], "{pulses:?}");
    assert!(!handle.pulse().is_turning(), "nobody runs it any more");
}

/// A loop that never sleeps is not held.
pub(crate) fn s43_busy_loop_has_a_pulse(h: &Harness) {
    let pulses: Rc<RefCell<Vec<Pulse>>> = Rc::default();
    for _ in 0..3 {
        let seen = Rc::clone(&pulses);
        h.lp.defer(move |lp| seen.borrow_mut().push(lp.handle().pulse()));
        h.lp.run_ready().unwrap(); // without a wait that could last
    }
    let pulses = pulses.take();
    assert!(pulses.iter().all(|pulse| pulse.is_turning()));
    assert!(pulses[0] != pulses[1] && pulses[1] != pulses[2], "{pulses:?}");
}

pub(crate) fn s43_loops_are_listed_as_long_as_they_live(h: &Harness) {
    let handle = h.lp.handle();
    let is_listed = |handle: &LoopHandle| LoopHandle::all().iter().any(|one| one.is_same(handle));
    assert!(is_listed(&handle));
    assert_eq!(handle.thread().id(), std::thread::current().id());
    let gone = coracle_loop::Loop::new().unwrap().handle();
    assert!(!is_listed(&gone));
    let watcher = coracle_loop::Watcher::new().unwrap();
    assert!(!is_listed(&watcher.lp().handle()), "nobody watches over watchers");
}
