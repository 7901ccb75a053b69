//! Descriptors end: statement 5, and what stale handles do (1).

use crate::harness::{Harness, Submission, errno};
use coracle_demux::{Finished, Interest, OpenOptions, Operation, Outcome, Payload};
use rustix::io::Errno;

pub(crate) fn rule_01_stale_handle_is_refused_and_touches_nothing(h: &mut Harness) {
    let (a, b) = h.demux.socket_pair().unwrap();
    h.close(a);
    let (c, d) = h.demux.socket_pair().unwrap(); // likely the same numbers again
    let bad = Errno::BADF.raw_os_error();
    let payload = || Payload::from(b"lost".to_vec());
    assert_eq!(errno(h.run(Operation::Send { socket: a, payload: payload() })), bad);
    assert_eq!(errno(h.run(Operation::ReceiveLent { socket: a })), bad);
    assert_eq!(errno(h.run(Operation::Poll { handle: a, interest: Interest::READ })), bad);
    assert_eq!(errno(h.run(Operation::Close { handle: a })), bad);
    assert_eq!(errno(h.demux.local_address(a)), bad);
    h.send_all(c, b"fine");
    assert_eq!(h.receive_exactly(d, 4), b"fine");
    assert_eq!(h.receive(b, 8).unwrap(), b"", "the peer of the closed one sees the end");
}

pub(crate) fn rule_05_close_cancels_what_is_in_flight_and_completes_last(h: &mut Harness) {
    let (a, _b) = h.demux.socket_pair().unwrap();
    let receive = h.submit(Operation::ReceiveLent { socket: a }).token();
    let poll = h.submit(Operation::Poll { handle: a, interest: Interest::READ }).token();
    let close = h.submit(Operation::Close { handle: a }).token();
    let order: Vec<_> = (0..3).map(|_| h.next()).collect();
    let canceled = Some(Errno::CANCELED.raw_os_error());
    for token in [receive, poll] {
        let ends: Vec<_> = order.iter().filter(|completion| completion.token == token).collect();
        assert_eq!(ends.len(), 1, "exactly one final completion");
        assert!(!ends[0].more);
        assert_eq!(ends[0].result.as_ref().unwrap_err().raw_os_error(), canceled);
    }
    let last = order.last().unwrap();
    assert_eq!(last.token, close, "the close is the last: {order:?}");
    assert!(matches!(last.result, Ok(Outcome::Nothing)));
    assert!(h.settle().is_empty());
}

pub(crate) fn rule_05_close_with_a_receive_in_flight_sends_the_end_of_stream(h: &mut Harness) {
    let (client, server) = h.connection();
    h.submit(Operation::ReceiveLent { socket: server }).token();
    h.close(server);
    assert_eq!(h.receive(client, 8).unwrap(), b"");
}

pub(crate) fn rule_05_two_closes_are_one(h: &mut Harness) {
    let (a, _b) = h.demux.socket_pair().unwrap();
    h.submit(Operation::ReceiveLent { socket: a }).token();
    let first = h.submit(Operation::Close { handle: a });
    let second = h.submit(Operation::Close { handle: a });
    assert_eq!(errno(h.finish(second).result), Errno::BADF.raw_os_error());
    h.finish(first).result.unwrap();
}

pub(crate) fn rule_05_detached_descriptor_can_be_adopted_again(h: &mut Harness) {
    let (a, b) = h.connection();
    h.send_all(a, b"before");
    assert_eq!(h.receive_exactly(b, 6), b"before");
    let descriptor = h.demux.detach(b).unwrap();
    assert_eq!(errno(h.demux.peer_address(b)), Errno::BADF.raw_os_error());
    h.send_all(a, b"between");
    let b = h.demux.adopt(descriptor).unwrap();
    assert_eq!(h.receive_exactly(b, 7), b"between");
    h.send_all(b, b"back");
    assert_eq!(h.receive_exactly(a, 4), b"back");
}

pub(crate) fn rule_05_detach_is_refused_while_something_is_in_flight(h: &mut Harness) {
    let (a, _b) = h.demux.socket_pair().unwrap();
    let receive = h.submit(Operation::ReceiveLent { socket: a }).token();
    assert_eq!(errno(h.demux.detach(a)), Errno::BUSY.raw_os_error());
    h.demux.cancel(receive);
    assert!(h.next_of(receive).result.is_err());
    h.demux.detach(a).unwrap();
}

pub(crate) fn rule_05_close_during_a_file_operation_awaits_it(h: &mut Harness) {
    let path = h.file(&vec![7; 100_000]);
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let Ok(Outcome::Opened(file)) = h.run(Operation::Open { path, options }) else {
        panic!("not opened");
    };
    let read = h.submit(Operation::Read { file, offset: 0, space: vec![0; 100_000].into() });
    let close = h.submit(Operation::Close { handle: file });
    // Whichever way the read ended, it ended before the close did, and its memory is back.
    let finished = match (read, close) {
        (Submission::Done(finished), _) => finished,
        (Submission::Pending(_), Submission::Done(_)) => panic!("the close did not wait"),
        (Submission::Pending(read), Submission::Pending(close)) => {
            let first = h.next();
            assert_eq!(first.token, read, "the close comes last");
            assert!(!first.more);
            assert_eq!(h.next().token, close);
            Finished { result: first.result, payload: first.payload }
        }
    };
    assert_eq!(finished.payload.into_vec().len(), 100_000);
    match finished.result {
        Ok(Outcome::Count(count)) => assert!(count > 0),
        Err(error) => assert_eq!(error.raw_os_error(), Some(Errno::CANCELED.raw_os_error())),
        other => panic!("{other:?}"),
    }
}

/// Two connections become readable in one batch; while the first is looked at, the second is closed and
/// its number is given to a third. What was meant for the second must not reach the third.
pub(crate) fn a10_event_for_a_closed_descriptor_does_not_reach_the_next_owner(h: &mut Harness) {
    for _ in 0..10 {
        let (a, a_peer) = h.connection();
        let (b, b_peer) = h.connection();
        let first = h.submit(Operation::ReceiveLent { socket: a_peer }).token();
        let second = h.submit(Operation::ReceiveLent { socket: b_peer }).token();
        h.settle();
        h.send_all(a, b"one");
        h.send_all(b, b"two");
        // The first of the two to be heard of closes the other.
        let heard = loop {
            match h.demux.next() {
                Some(completion) if completion.token == first || completion.token == second => {
                    break completion.token;
                }
                Some(_) => {}
                None => h.demux.wait(None).unwrap(),
            }
        };
        let victim = if heard == first { b_peer } else { a_peer };
        let close = h.submit(Operation::Close { handle: victim });
        let (c, d) = h.connection();
        let third = h.submit(Operation::ReceiveLent { socket: d }).token();
        for completion in h.settle() {
            assert_ne!(completion.token, third, "an event reached the wrong connection");
        }
        if let Submission::Done(finished) = close {
            finished.result.unwrap();
        }
        h.send_all(c, b"three");
        let Ok(Outcome::Lent(bytes)) = h.next_of(third).result else { panic!("nothing came") };
        assert_eq!(&bytes[..], b"three");
        drop(bytes);
        for handle in [a, b, c, d, if heard == first { a_peer } else { b_peer }] {
            h.close(handle);
        }
        h.settle();
    }
}
