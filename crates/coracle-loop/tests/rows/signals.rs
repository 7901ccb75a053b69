//! Row D: signals and children as events.
//!
//! Signals are the process's: cases that depend on their default effect, or that count, run in a process
//! of their own; the others listen for signals that no other case sends, and are content to hear it once.

use crate::harness::{Harness, describe, errno, is_child, run_until, send_signal};
use coracle_loop::demux::sim::Faults;
use coracle_loop::demux::{Operation, Outcome};
use coracle_loop::{Loop, SignalListener};
use rustix::io::Errno;
use rustix::process::Signal;
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, ErrorKind, Lines, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const HUP: i32 = Signal::HUP.as_raw();
const USR1: i32 = Signal::USR1.as_raw();
const USR2: i32 = Signal::USR2.as_raw();

/// Listens for `signal` and counts.
fn listen(lp: &Loop, signal: i32) -> (SignalListener, Rc<Cell<u32>>) {
    let heard = Rc::new(Cell::new(0));
    let count = Rc::clone(&heard);
    let token = lp.on_signal(signal, move |lp| {
        assert!(Loop::current().is_some(), "a callback of {lp:?}, not of the handler");
        count.set(count.get() + 1);
    });
    (token.unwrap(), heard)
}

// --- D1: signals as events -----------------------------------------------------------------------------

pub(crate) fn d1_signal_is_a_callback_of_the_loop(h: &Harness) {
    let (token, heard) = listen(&h.lp, USR1);
    for _ in 0..3 {
        let before = heard.get();
        h.raise(USR1);
        h.run_until(&heard, move |heard| heard.get() > before);
    }
    token.cancel();
    h.lp.run_until_idle().unwrap();
}

pub(crate) fn d1_signal_reaches_every_listener(h: &Harness) {
    let (_, first) = listen(&h.lp, USR1);
    let (_, second) = listen(&h.lp, USR1);
    let (_, other) = listen(&h.lp, Signal::WINCH.as_raw());
    let another = h.builder().build().unwrap();
    let (_, elsewhere) = listen(&another, USR1);
    h.raise(USR1);
    h.run_until(&(first.clone(), second.clone()), |(first, second)| {
        first.get() > 0 && second.get() > 0
    });
    run_until(&another, &elsewhere, |elsewhere| elsewhere.get() > 0);
    assert_eq!(other.get(), 0);
}

pub(crate) fn d1_signal_that_cannot_be_caught_is_refused(h: &Harness) {
    for signal in [Signal::KILL.as_raw(), Signal::STOP.as_raw(), 0, -1, 1000] {
        let error = h.lp.on_signal(signal, |_| ()).expect_err("it cannot be caught");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let beginning = format!("cannot listen for signal {signal}: ");
        assert!(error.to_string().starts_with(&beginning), "{error}");
    }
    assert!(h.lp.is_idle());
}

pub(crate) fn d1_listener_does_not_keep_a_loop_from_being_idle(h: &Harness) {
    let (_, _heard) = listen(&h.lp, USR2);
    assert!(h.lp.is_idle());
    h.lp.after(MS, |_| ());
    h.lp.run_until_idle().unwrap();
}

pub(crate) fn d1_callback_may_cancel_its_own_listener(h: &Harness) {
    let (_keep, other) = listen(&h.lp, USR2); // so that the signal never has its default effect
    let own: Rc<RefCell<Option<SignalListener>>> = Rc::default();
    let calls = Rc::new(Cell::new(0));
    let (token, count) = (Rc::clone(&own), Rc::clone(&calls));
    let listener = h.lp.on_signal(USR2, move |_| {
        count.set(count.get() + 1);
        token.borrow().as_ref().unwrap().cancel();
    });
    *own.borrow_mut() = Some(listener.unwrap());
    h.raise(USR2);
    h.run_until(&(calls.clone(), other.clone()), |(calls, other)| {
        calls.get() == 1 && other.get() > 0
    });
    h.run_for(2 * MS); // the end of the listener has come
    let before = other.get();
    h.raise(USR2);
    h.run_until(&other, move |other| other.get() > before);
    h.run_for(2 * MS);
    assert_eq!(calls.get(), 1, "a listener that was cancelled has heard something");
}

pub(crate) fn d1_cancelled_listener_keeps_its_loop_until_its_end(h: &Harness) {
    let (listener, _heard) = listen(&h.lp, USR1);
    assert!(h.lp.is_idle() && h.lp.is_listening());
    listener.cancel();
    assert!(!h.lp.is_idle() && !h.lp.is_listening(), "its last completion is still to come");
    h.lp.run_until_idle().unwrap();
    assert!(h.lp.dump().contains(": 0 operations,"), "{}", h.lp.dump());
    listener.cancel(); // which is over
    assert!(h.lp.is_idle() && !h.lp.is_listening());
}

pub(crate) fn d1_listener_that_was_renewed_can_still_be_cancelled(h: &Harness) {
    // The contract lets a multishot operation end at any time; the loop then submits it again.
    let h = h.simulated(Faults { end_multishot: 1.0, ..Faults::none() });
    let (token, heard) = listen(&h.lp, USR1);
    h.raise(USR1);
    h.run_until(&heard, move |heard| heard.get() == 1);
    token.cancel();
    h.run_for(MS);
    h.raise(USR1);
    h.run_for(MS);
    assert_eq!(heard.get(), 1, "the token that on_signal returned does not end it any more");
}

pub(crate) fn d1_signal_without_a_listener_any_more_is_ignored(h: &Harness) {
    let output = h.in_child(|| {
        let (token, heard) = listen(&h.lp, HUP);
        h.raise(HUP);
        h.run_until(&heard, move |heard| heard.get() > 0);
        token.cancel();
        h.run_for(2 * MS);
        h.raise(HUP);
        thread::sleep(200 * MS);
        println!("survived");
    });
    if let Some(output) = output {
        assert!(output.status.success(), "{}", describe(&output));
        assert!(String::from_utf8_lossy(&output.stdout).contains("survived"));
    }
}

pub(crate) fn d1_signal_wakes_a_sleeping_loop(h: &Harness) {
    h.succeed_in_child(|| {
        let pid = std::process::id();
        let thread = thread::spawn(move || {
            thread::sleep(30 * MS);
            send_signal(pid, USR1);
        });
        h.lp.on_signal(USR1, Loop::stop).unwrap();
        h.lp.run().unwrap(); // would sleep for ever
        thread.join().unwrap();
    });
}

pub(crate) fn d1_signal_during_its_own_callback_is_heard(h: &Harness) {
    h.succeed_in_child(|| {
        let heard = Cell::new(0);
        let callback = move |lp: &Loop| {
            heard.set(heard.get() + 1);
            match heard.get() {
                100 => lp.stop(),
                _ => send_signal(std::process::id(), USR1), // or the loop would sleep for ever
            }
        };
        h.lp.on_signal(USR1, callback).unwrap();
        send_signal(std::process::id(), USR1);
        h.lp.run().unwrap();
    });
}

pub(crate) fn d1_burst_of_signals_is_heard_at_least_once(h: &Harness) {
    h.succeed_in_child(|| {
        let (_, heard) = listen(&h.lp, USR1);
        // More than a pipe has room for, while the loop does not look.
        for _ in 0..70_000 {
            send_signal(std::process::id(), USR1);
        }
        h.run_until(&heard, move |heard| heard.get() > 0);
        let turns = h.count_turns();
        h.run_for(20 * MS);
        assert!(turns.get() < 50, "the loop spins on a signal it has heard: {}", turns.get());
    });
}

// --- D2: requests to end -------------------------------------------------------------------------------

/// A process that says when it is ready, and how it goes on.
struct Subject {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Subject {
    fn start(h: &Harness) -> Subject {
        let mut process = h.child(&[]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut subject = Subject { process, lines };
        subject.await_line("ready");
        subject
    }

    fn await_line(&mut self, text: &str) {
        let said = self.lines.any(|line| line.unwrap() == text);
        assert!(said, "it ended without saying {text:?}");
    }

    fn end(mut self) -> ExitStatus {
        for line in &mut self.lines {
            line.unwrap();
        }
        self.process.wait().unwrap()
    }
}

fn say(text: &str) {
    println!("\n{text}");
    std::io::stdout().flush().unwrap();
}

fn graceful(h: &Harness, signal: Signal) {
    if is_child() {
        h.lp.on_terminate(|lp| {
            say("ending");
            lp.after(20 * MS, Loop::stop); // there is still something to finish
        })
        .unwrap();
        say("ready");
        h.lp.run().unwrap();
        say("ended");
        return;
    }
    let mut subject = Subject::start(h);
    send_signal(subject.process.id(), signal.as_raw());
    subject.await_line("ending");
    subject.await_line("ended");
    assert_eq!(subject.end().code(), Some(0));
}

pub(crate) fn d2_first_request_to_end_is_graceful(h: &Harness) {
    graceful(h, Signal::TERM);
}

pub(crate) fn d2_interrupt_from_the_keyboard_is_such_a_request(h: &Harness) {
    graceful(h, Signal::INT);
}

pub(crate) fn d2_second_request_to_end_is_forced_while_the_loop_hangs(h: &Harness) {
    if is_child() {
        h.lp.on_terminate(|_| {
            say("hanging");
            loop {
                thread::sleep(1000 * MS);
            }
        })
        .unwrap();
        say("ready");
        h.lp.run().unwrap();
        return;
    }
    for (first, second) in [(Signal::TERM, Signal::TERM), (Signal::TERM, Signal::INT)] {
        let mut subject = Subject::start(h);
        send_signal(subject.process.id(), first.as_raw());
        subject.await_line("hanging");
        send_signal(subject.process.id(), second.as_raw());
        assert_eq!(subject.end().code(), Some(128 + second.as_raw()));
    }
}

// --- D5: SIGPIPE ---------------------------------------------------------------------------------------

pub(crate) fn d5_write_to_a_closed_pipe_is_an_error_and_not_the_end(h: &Harness) {
    h.succeed_in_child(|| {
        let (client, server) = h.connection();
        let (reader, writer) = std::io::pipe().unwrap();
        let pipe = h.lp.adopt(writer).unwrap();
        drop(reader);
        h.close(server);
        for (socket, limit) in [(pipe, 1), (client, 100)] {
            // A peer that is gone is known at once of a pipe, of a connection when its answer has come.
            let error = (0..limit).find_map(|_| {
                h.run_for(MS);
                h.operate(Operation::Send { socket, payload: vec![1].into() }).result.err()
            });
            let error = error.expect("nobody is there").kind();
            assert!(matches!(error, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
        }
    });
}

pub(crate) fn d5_children_start_with_the_default_again(h: &Harness) {
    // A handler is not inherited, an ignored signal would be: then `yes | head` never ended.
    h.succeed_in_child(|| {
        h.lp.run_ready().unwrap();
        let status = Command::new("sh").args(["-c", "kill -PIPE $$; exit 0"]).status().unwrap();
        assert_eq!(status.signal(), Some(Signal::PIPE.as_raw()));
    });
}

// --- D6: children --------------------------------------------------------------------------------------

pub(crate) fn d6_child_exit_is_a_completion_with_its_status(h: &Harness) {
    for code in [0, 7] {
        let pid = h.spawn_child(code);
        match h.operate(Operation::ChildExit { pid }).result {
            Ok(Outcome::Exited(status)) => assert_eq!(status.code(), Some(code)),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn d6_many_children_are_all_reaped(h: &Harness) {
    let start = Instant::now();
    let left = Rc::new(Cell::new(10));
    for code in 0..10 {
        let pid = h.spawn_child(code);
        let left = Rc::clone(&left);
        h.lp.operate(Operation::ChildExit { pid }, move |_, done| match done.result {
            Ok(Outcome::Exited(status)) => {
                assert_eq!(status.code(), Some(code));
                left.set(left.get() - 1);
                if let Ok(pid) = i32::try_from(pid) {
                    let pid = rustix::process::Pid::from_raw(pid).unwrap();
                    let again = rustix::process::test_kill_process(pid);
                    assert_eq!(again, Err(Errno::SRCH), "it is a zombie still");
                }
            }
            other => panic!("{other:?}"),
        });
    }
    h.lp.run_until_idle().unwrap();
    assert_eq!(left.get(), 0, "after {:?}", start.elapsed());
}

pub(crate) fn d6_unknown_child_is_an_error(h: &Harness) {
    let result = h.operate(Operation::ChildExit { pid: i32::MAX as u32 }).result;
    assert_eq!(errno(result), Errno::SRCH.raw_os_error());
}
