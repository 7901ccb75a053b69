//! Signals, children, randomness: statements 12 and 1.

use crate::harness::{Harness, errno};
use coracle_demux::{Operation, Outcome};
use rustix::io::Errno;
use rustix::process::Signal;

// Signals are the process's, and tests run in parallel: each test counts only on being told at least once.
const USR1: i32 = Signal::USR1.as_raw();
const USR2: i32 = Signal::USR2.as_raw();

pub(crate) fn d1_signal_is_a_completion(h: &mut Harness) {
    let token = h.submit(Operation::Signal { signal: USR1 }).token();
    for _ in 0..3 {
        h.raise(USR1);
        let completion = h.next_of(token);
        assert!(matches!(completion.result, Ok(Outcome::Signal)));
        assert!(completion.more || h.is_simulated());
        if !completion.more {
            return;
        }
    }
    h.demux.cancel(token);
    while h.next_of(token).more {}
}

pub(crate) fn d1_signal_completes_everyone_who_listens(h: &mut Harness) {
    let first = h.submit(Operation::Signal { signal: USR1 }).token();
    let second = h.submit(Operation::Signal { signal: USR1 }).token();
    let other = h.submit(Operation::Signal { signal: Signal::WINCH.as_raw() }).token();
    h.raise(USR1);
    assert!(matches!(h.next_of(first).result, Ok(Outcome::Signal)));
    assert!(matches!(h.next_of(second).result, Ok(Outcome::Signal)));
    assert!(h.settle().iter().all(|completion| completion.token != other));
}

pub(crate) fn d1_cancelled_signal_is_not_heard_any_more(h: &mut Harness) {
    let keep = h.submit(Operation::Signal { signal: USR2 }).token();
    let token = h.submit(Operation::Signal { signal: USR2 }).token();
    h.demux.cancel(token);
    loop {
        let completion = h.next_of(token);
        if !completion.more {
            break;
        }
    }
    h.raise(USR2); // without the one that is kept this would end the process
    assert!(h.next_of(keep).result.is_ok());
    assert!(h.settle().iter().all(|completion| completion.token != token));
}

pub(crate) fn d1_signal_that_cannot_be_caught_is_refused(h: &mut Harness) {
    for signal in [Signal::KILL.as_raw(), Signal::STOP.as_raw(), 0, -1, 1000] {
        let result = h.run(Operation::Signal { signal });
        assert_eq!(errno(result), Errno::INVAL.raw_os_error(), "signal {signal}");
    }
}

pub(crate) fn d6_child_exit_tells_the_status(h: &mut Harness) {
    for code in [0, 7] {
        let pid = h.spawn_child(code);
        match h.run(Operation::ChildExit { pid }) {
            Ok(Outcome::Exited(status)) => assert_eq!(status.code(), Some(code)),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn d6_unknown_child_is_an_error(h: &mut Harness) {
    let result = h.run(Operation::ChildExit { pid: i32::MAX as u32 });
    assert_eq!(errno(result), Errno::SRCH.raw_os_error());
}

pub(crate) fn seeds_differ(h: &mut Harness) {
    let (a, b) = (h.demux.seed(), h.demux.seed());
    assert_ne!(a, b);
}
