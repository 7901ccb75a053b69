//! Readiness for foreign code: statement 8.

use crate::harness::{Harness, errno};
use coracle_demux::{Handle, Interest, OpenOptions, Operation, Outcome, Readiness};
use rustix::io::Errno;
use std::net::Shutdown;

fn ready(h: &mut Harness, handle: Handle, interest: Interest) -> Readiness {
    match h.run(Operation::Poll { handle, interest }) {
        Ok(Outcome::Ready(ready)) => ready,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn a7_poll_is_one_shot(h: &mut Harness) {
    let (a, b) = h.connection();
    let poll = h.submit(Operation::Poll { handle: b, interest: Interest::READ }).token();
    h.send_all(a, b"x");
    let completion = h.next_of(poll);
    assert!(!completion.more);
    h.send_all(a, b"y");
    assert!(h.settle().iter().all(|completion| completion.token != poll));
}

pub(crate) fn a7_poll_reports_a_level_each_time_it_is_submitted(h: &mut Harness) {
    let (a, b) = h.connection();
    h.send_all(a, b"x");
    for _ in 0..5 {
        assert!(ready(h, b, Interest::READ).contains(Readiness::READ));
    }
    assert_eq!(h.receive_exactly(b, 1), b"x");
    assert!(ready(h, b, Interest::WRITE).contains(Readiness::WRITE));
}

pub(crate) fn a7_poll_waits_for_what_is_not_there_yet(h: &mut Harness) {
    let (a, b) = h.connection();
    let poll = h.submit(Operation::Poll { handle: b, interest: Interest::READ }).token();
    assert!(h.settle().is_empty(), "there is nothing to read");
    h.send_all(a, b"x");
    let Ok(Outcome::Ready(ready)) = h.next_of(poll).result else { panic!("not ready") };
    assert!(ready.contains(Readiness::READ));
}

pub(crate) fn a8_half_close_is_told_apart_and_unread_data_survives(h: &mut Harness) {
    let (a, b) = h.connection();
    h.send_all(a, b"last words");
    h.run(Operation::Shutdown { socket: a, how: Shutdown::Write }).unwrap();
    h.settle();
    let ready = ready(h, b, Interest::READ);
    assert!(ready.contains(Readiness::READ | Readiness::READ_CLOSED), "{ready:?}");
    assert!(!ready.intersects(Readiness::ERROR | Readiness::CLOSED), "{ready:?}");
    assert_eq!(h.receive_exactly(b, 10), b"last words");
    assert_eq!(h.receive(b, 1).unwrap(), b"");
    h.send_all(b, b"answer");
    assert_eq!(h.receive_exactly(a, 6), b"answer");
}

pub(crate) fn a11_regular_file_cannot_be_polled(h: &mut Harness) {
    let path = h.file(b"always ready");
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let Ok(Outcome::Opened(handle)) = h.run(Operation::Open { path, options }) else {
        panic!("not opened");
    };
    let result = h.run(Operation::Poll { handle, interest: Interest::READ });
    assert_eq!(errno(result), Errno::PERM.raw_os_error());
}

pub(crate) fn rule_08_several_polls_of_one_descriptor_all_complete(h: &mut Harness) {
    let (a, b) = h.connection();
    let polls: Vec<_> = (0..5)
        .map(|_| h.submit(Operation::Poll { handle: b, interest: Interest::READ }).token())
        .collect();
    h.send_all(a, b"x");
    for poll in polls {
        assert!(matches!(h.next_of(poll).result, Ok(Outcome::Ready(_))));
    }
}

pub(crate) fn rule_08_full_connection_is_not_writable_until_read(h: &mut Harness) {
    let (a, b) = h.connection();
    let (send, before) = h.block_sender(a);
    h.demux.cancel(send);
    let finished = h.next_of(send);
    let extra = finished.result.map_or(0, |outcome| match outcome {
        Outcome::Count(count) => count,
        other => panic!("{other:?}"),
    });
    let poll = h.submit(Operation::Poll { handle: a, interest: Interest::WRITE }).token();
    assert!(h.settle().iter().all(|completion| match &completion.result {
        Ok(Outcome::Ready(ready)) => !ready.contains(Readiness::WRITE),
        _ => true,
    }));
    h.receive_exactly(b, before + extra);
    assert!(ready(h, a, Interest::WRITE).contains(Readiness::WRITE));
    h.demux.cancel(poll);
}

pub(crate) fn rule_08_poll_and_receive_of_one_descriptor_do_not_disturb_each_other(
    h: &mut Harness,
) {
    let (a, b) = h.connection();
    let receive = h.submit(Operation::ReceiveLent { socket: b }).token();
    for round in 0..20u8 {
        let poll = h.submit(Operation::Poll { handle: b, interest: Interest::READ }).token();
        h.send_all(a, &[round]);
        let Ok(Outcome::Lent(bytes)) = h.next_of(receive).result else { panic!("nothing") };
        assert_eq!(bytes[..], [round]);
        h.demux.cancel(poll);
        h.next_of(poll);
    }
}
