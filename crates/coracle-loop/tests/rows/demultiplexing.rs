//! Row A: the backends, behind one loop. The contract itself is held by coracle-demux's suite.

use crate::harness::{Harness, describe, errno, is_child};
use coracle_loop::Loop;
use coracle_loop::demux::sim::Faults;
use coracle_loop::demux::{
    Backend, Completion, Handle, Interest, OpenOptions, Operation, Outcome, Readiness, SocketKind,
    Submitted, Token,
};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::net::Shutdown;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

// --- A1 to A4: each of them ----------------------------------------------------------------------------

pub(crate) fn a1_epoll_serves_a_conversation(h: &Harness) {
    converse(h);
}

pub(crate) fn a2_poll_serves_a_conversation(h: &Harness) {
    converse(h);
}

pub(crate) fn a3_select_serves_a_conversation(h: &Harness) {
    converse(h);
}

pub(crate) fn a4_io_uring_serves_a_conversation(h: &Harness) {
    converse(h);
}

/// Two ends talk: a question in two pieces, a long answer, a half-close each.
fn converse(h: &Harness) -> (Vec<u8>, Vec<u8>) {
    let (client, server) = h.connection();
    h.send(client, b"how do you ");
    h.send(client, b"do?");
    let question = h.receive(server, 14);
    assert_eq!(question, b"how do you do?");
    h.operate(Operation::Shutdown { socket: client, how: Shutdown::Write }).result.unwrap();
    assert_eq!(h.receive(server, 1), b"", "the question is over");
    // Less than what fits into the smallest send buffer: nobody reads while it is sent.
    let answer: Vec<u8> = (0..1000u32).flat_map(u32::to_ne_bytes).collect();
    h.send(server, &answer);
    h.close(server);
    let received = h.receive(client, answer.len() + 1);
    assert_eq!(received, answer);
    h.close(client);
    (question, received)
}

pub(crate) fn a2_poll_takes_more_than_1024_descriptors(h: &Harness) {
    h.succeed_in_child(|| {
        let pairs: Vec<_> =
            (0..1500).map(|_| h.lp.socket_pair().expect("`ulimit -n` 4096")).collect();
        let heard = Rc::new(Cell::new(0));
        for &(_, b) in &pairs {
            let heard = Rc::clone(&heard);
            let receive = Operation::Receive { socket: b, space: vec![0; 1].into() };
            h.lp.operate(receive, move |_, _| heard.set(heard.get() + 1));
        }
        for &(a, _) in &pairs {
            h.lp.operate(Operation::Send { socket: a, payload: vec![1].into() }, |_, _| ());
        }
        h.run_until(&heard, move |heard| heard.get() == 1500);
    });
}

pub(crate) fn a3_select_refuses_descriptors_from_1024_on(h: &Harness) {
    h.succeed_in_child(|| {
        // Fill the numbers below.
        let mut filler = Vec::new();
        let mut refused = 0;
        while refused == 0 {
            match h.lp.socket(SocketKind::Tcp4) {
                Ok(socket) => filler.push(socket),
                Err(error) => {
                    assert!(
                        error.to_string().contains("is beyond what select can wait for (1023)")
                    );
                    refused += 1;
                }
            }
            assert!(filler.len() < 1100, "a descriptor beyond 1023 was taken");
        }
        let (reader, _writer) = std::io::pipe().unwrap();
        let watch = h.lp.watch(reader, Interest::READ, coracle_loop::Trigger::Level, |_, _| ());
        assert!(watch.err().expect("refused").to_string().contains("1023"));
        // What it has goes on working.
        for socket in filler.drain(..20) {
            h.close(socket);
        }
        converse(h);
    });
}

// --- A5, A6: choosing one ------------------------------------------------------------------------------

pub(crate) fn a5_backend_is_chosen_at_run_time(h: &Harness) {
    let other = if h.backend == Backend::Poll { Backend::Epoll } else { Backend::Poll };
    let environment = [("CORACLE_BACKEND", h.backend.name())];
    h.succeed_in_child_with(&environment, || {
        assert_eq!(Loop::new().unwrap().backend(), h.backend, "the environment decides");
        let lp = Loop::builder().backend(other).build().unwrap();
        assert_eq!(lp.backend(), other, "unless the program does");
    });
    assert_eq!(h.backend.name().parse::<Backend>().unwrap(), h.backend);
}

pub(crate) fn a5_unknown_backend_is_an_error_that_names_the_choices(h: &Harness) {
    h.succeed_in_child_with(&[("CORACLE_BACKEND", "kqueue")], || {
        let error = Loop::new().expect_err("there is no such backend").to_string();
        let expected =
            "CORACLE_BACKEND: unknown backend \"kqueue\": use uring, epoll, poll or select";
        assert_eq!(error, expected);
    });
}

pub(crate) fn a5_empty_choice_is_no_choice(h: &Harness) {
    h.succeed_in_child_with(&[("CORACLE_BACKEND", "")], || {
        Loop::new().expect("the best there is");
    });
}

pub(crate) fn a6_backend_tells_its_name_and_what_it_can_do(h: &Harness) {
    let features = h.lp.features();
    let (name, shown) = match h.backend {
        Backend::Uring => ("uring", "io_uring"),
        Backend::Epoll => ("epoll", "epoll"),
        Backend::Poll => ("poll", "poll"),
        Backend::Select => ("select", "select"),
        Backend::Sim => ("sim", "sim"),
    };
    assert_eq!(h.lp.backend().name(), name);
    assert_eq!(h.lp.backend().to_string(), shown);
    assert_eq!(format!("{:?}", h.lp), format!("Loop({shown})"));
    let completing = matches!(h.backend, Backend::Uring | Backend::Sim);
    assert_eq!(features.completions, completing);
    assert_eq!(features.files, completing);
    assert_eq!(features.constant_cost, !matches!(h.backend, Backend::Poll | Backend::Select));
    assert_eq!(features.any_descriptor, h.backend != Backend::Select);
    assert!(features.early_close);
}

// --- A7, A8, A9: readiness -----------------------------------------------------------------------------

/// Polls once.
fn poll(h: &Harness, handle: Handle, interest: Interest) -> Readiness {
    match h.operate(Operation::Poll { handle, interest }).result {
        Ok(Outcome::Ready(ready)) => ready,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn a7_poll_is_one_shot_and_reports_levels(h: &Harness) {
    let (a, b) = h.connection();
    let reports = Rc::new(Cell::new(0));
    let count = Rc::clone(&reports);
    let read = Operation::Poll { handle: b, interest: Interest::READ };
    h.lp.operate(read, move |_, _| count.set(count.get() + 1));
    h.send(a, b"x");
    h.run_until(&reports, move |reports| reports.get() == 1);
    h.send(a, b"y");
    h.run_for(2 * MS);
    assert_eq!(reports.get(), 1, "one shot");
    for _ in 0..5 {
        assert!(poll(h, b, Interest::READ).contains(Readiness::READ), "a level, asked again");
    }
    assert_eq!(h.receive(b, 2), b"xy");
    assert!(poll(h, b, Interest::WRITE).contains(Readiness::WRITE));
}

pub(crate) fn a8_half_close_is_told_apart_and_the_answer_survives(h: &Harness) {
    // Seed 000 lost 20 of 50 answers like this.
    for round in 0..50u8 {
        let (client, server) = h.connection();
        h.send(client, &[round; 10]);
        h.operate(Operation::Shutdown { socket: client, how: Shutdown::Write }).result.unwrap();
        let mut ready = poll(h, server, Interest::READ);
        while !ready.contains(Readiness::READ_CLOSED) {
            ready = poll(h, server, Interest::READ); // the data was there before the end was
        }
        assert!(ready.contains(Readiness::READ), "{ready:?}");
        assert!(!ready.intersects(Readiness::ERROR | Readiness::CLOSED), "{ready:?}");
        assert_eq!(h.receive(server, 11), [round; 10], "unread data survives");
        h.send(server, &[round; 20]);
        h.close(server);
        assert_eq!(h.receive(client, 21), [round; 20], "and so does the answer");
        h.close(client);
    }
}

pub(crate) fn a9_connection_with_nothing_to_send_does_not_wake_the_loop(h: &Harness) {
    // All of them are writable, all the time. Whoever registers for that without need never sleeps.
    let nobody = Rc::new(|_: &Loop, _: u32, _: Completion| ());
    for _ in 0..10 {
        let (a, b) = h.connection();
        for socket in [a, b] {
            let submitted = h.lp.submit(Operation::ReceiveLent { socket }, &nobody, 0);
            assert!(matches!(submitted, Submitted::Pending(_)));
        }
    }
    h.run_for(2 * MS);
    let turns = h.count_turns();
    h.run_for(30 * MS);
    assert!(turns.get() < 20, "{} turns with nothing to do", turns.get());
}

pub(crate) fn a9_interest_is_registered_once(h: &Harness) {
    let Some(mut strace) = crate::strace::strace() else { return };
    if is_child() {
        let (client, server) = h.connection();
        for round in 0..500u32 {
            h.send(client, &round.to_ne_bytes());
            let question = h.receive(server, 4);
            h.send(server, &question);
            assert_eq!(h.receive(client, 4), question);
        }
        return;
    }
    let list = std::env::temp_dir().join(format!("coracle-rows-a9-{}", std::process::id()));
    strace.args(["-f", "-qq", "-e", "trace=epoll_ctl", "-o"]).arg(&list);
    let output = crate::strace::trace(strace, &h.child(&[])).output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    let calls = std::fs::read_to_string(&list).unwrap();
    std::fs::remove_file(&list).unwrap();
    // The wake-up, the listener and two connections, and not once per message.
    assert!(calls.lines().count() <= 8, "{calls}");
}

// --- A10: nothing stale --------------------------------------------------------------------------------

pub(crate) fn a10_stale_event_does_not_reach_the_next_owner(h: &Harness) {
    // All sockets are readable in one batch. Whose completion comes first closes the others and opens new
    // ones, which take over their numbers.
    let sockets: Vec<_> = (0..8).map(|_| h.lp.socket_pair().unwrap()).collect();
    let first = Rc::new(Cell::new(true));
    let stale: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let ended = Rc::new(Cell::new(0));
    for (number, &(_, b)) in sockets.iter().enumerate() {
        let (first, ended, stale) = (Rc::clone(&first), Rc::clone(&ended), Rc::clone(&stale));
        let others: Vec<_> = sockets.iter().map(|&(_, b)| b).filter(|&other| other != b).collect();
        let told = move |lp: &Loop, _: u32, completion: Completion| {
            if !completion.more {
                ended.set(ended.get() + 1);
            }
            if first.replace(false) {
                for &handle in &others {
                    lp.operate(Operation::Close { handle }, |_, done| assert!(done.result.is_ok()));
                }
                for _ in &others {
                    let (_quiet, newcomer) = lp.socket_pair().unwrap();
                    let stale = Rc::clone(&stale);
                    let heard = move |_: &Loop, _: u32, completion: Completion| {
                        if let Ok(Outcome::Lent(bytes)) = completion.result {
                            stale.borrow_mut().push(bytes.to_vec());
                        }
                    };
                    let _ =
                        lp.submit(Operation::ReceiveLent { socket: newcomer }, &Rc::new(heard), 0);
                }
            } else if let Ok(Outcome::Lent(bytes)) = completion.result {
                // Received before the close: never thrown away. But only what was its own.
                assert!(bytes.is_empty() || bytes[..] == [number as u8]);
            }
        };
        let submitted = h.lp.submit(Operation::ReceiveLent { socket: b }, &Rc::new(told), 0);
        assert!(matches!(submitted, Submitted::Pending(_)));
    }
    for (number, &(a, _)) in sockets.iter().enumerate() {
        let payload = vec![number as u8].into();
        h.lp.operate(Operation::Send { socket: a, payload }, |_, _| ());
    }
    h.run_until(&ended, move |ended| ended.get() == 7);
    h.run_for(3 * MS);
    assert!(stale.borrow().is_empty(), "stale bytes: {stale:?}");
    assert_eq!(ended.get(), 7, "each of the others ended once");
}

pub(crate) fn a10_callback_may_cancel_and_close_anything(h: &Harness) {
    let (a, b) = h.lp.socket_pair().unwrap();
    let (c, d) = h.lp.socket_pair().unwrap();
    let log: Rc<RefCell<Vec<&'static str>>> = Rc::default();
    let note = |what: &'static str| {
        let log = Rc::clone(&log);
        move |_: &Loop, _: coracle_loop::demux::Finished| log.borrow_mut().push(what)
    };
    let other =
        h.lp.operate(Operation::Receive { socket: d, space: vec![0; 1].into() }, note("other"));
    let (own_end, other_end) = (note("closed own"), note("closed other"));
    h.lp.operate(Operation::Receive { socket: b, space: vec![0; 1].into() }, move |lp, done| {
        assert!(done.result.is_ok());
        other.cancel();
        other.cancel(); // twice is no harm
        lp.operate(Operation::Close { handle: b }, own_end);
        lp.operate(Operation::Close { handle: d }, other_end);
        // From here on the handles are stale: answered, and nothing is touched.
        for handle in [b, d] {
            let receive = Operation::Receive { socket: handle, space: vec![0; 1].into() };
            lp.operate(receive, |_, done| {
                assert_eq!(errno(done.result), Errno::BADF.raw_os_error())
            });
        }
    });
    h.send(a, b"x");
    h.lp.run_until_idle().unwrap();
    let mut log = log.take();
    log.sort_unstable();
    assert_eq!(log, ["closed other", "closed own", "other"]);
    assert_eq!(h.receive(a, 1), b"");
    assert_eq!(h.receive(c, 1), b"");
}

pub(crate) fn a10_cancelled_operation_and_a_new_one_are_not_mixed_up(h: &Harness) {
    // The end of a cancelled operation has not been told yet when the next one is submitted: the two must
    // not share a place.
    const CANCELLED: u32 = 1;
    let told: Rc<RefCell<Vec<(u32, Token, bool)>>> = Rc::default();
    let slot = Rc::clone(&told);
    let who = Rc::new(move |_: &Loop, tag: u32, completion: Completion| {
        slot.borrow_mut().push((tag, completion.token, completion.result.is_ok()));
    });
    let (a, b) = h.lp.socket_pair().unwrap();
    let (c, d) = h.lp.socket_pair().unwrap();
    let mut expected = Vec::new();
    for round in 0..20 {
        let Submitted::Pending(first) =
            h.lp.submit(Operation::ReceiveLent { socket: b }, &who, CANCELLED)
        else {
            panic!("a multishot operation is pending");
        };
        h.lp.cancel(first);
        let tag = 100 + round;
        let Submitted::Pending(second) =
            h.lp.submit(Operation::ReceiveLent { socket: d }, &who, tag)
        else {
            panic!("a multishot operation is pending");
        };
        assert_ne!(first, second);
        h.send(c, b"x");
        h.run_until(&told, move |told| {
            told.borrow().iter().any(|&(told, _, ok)| told == tag && ok)
        });
        h.lp.cancel(second);
        h.lp.run_until_idle().unwrap();
        expected.push((first, second));
        for (tag, token, _) in told.take() {
            assert_eq!(token, if tag == CANCELLED { first } else { second }, "mixed up");
        }
    }
    drop((a, expected));
}

// --- A11, T1 -------------------------------------------------------------------------------------------

pub(crate) fn a11_regular_file_cannot_be_polled(h: &Harness) {
    let path: PathBuf = if h.is_simulated() {
        h.kernel().add_file("/file", b"always ready");
        "/file".into()
    } else {
        std::env::current_exe().unwrap()
    };
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let Ok(Outcome::Opened(handle)) = h.operate(Operation::Open { path, options }).result else {
        panic!("not opened");
    };
    let polled = h.operate(Operation::Poll { handle, interest: Interest::READ }).result;
    assert_eq!(errno(polled), Errno::PERM.raw_os_error());
    h.close(handle);
}

pub(crate) fn t1_same_program_gives_the_same_answer(h: &Harness) {
    // What the program sees on any backend is what it sees on the simulated one.
    assert_eq!(converse(h), converse(&h.simulated(Faults::default())));
}
