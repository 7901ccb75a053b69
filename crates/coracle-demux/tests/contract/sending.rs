//! Sending: statements 2, 4 and 7.

use crate::harness::{Harness, Submission, count, errno};
use coracle_demux::{Handle, Memory, Operation, Outcome, Payload};
use rustix::io::Errno;

pub(crate) fn d5_send_to_a_closed_peer_is_an_error_and_not_a_signal(h: &mut Harness) {
    let (a, b) = h.connection();
    h.close(b);
    h.settle();
    let mut failed = None;
    for _ in 0..100 {
        match h.send(a, b"anybody there?") {
            Ok(_) => drop(h.settle()),
            Err(error) => {
                failed = error.raw_os_error();
                break;
            }
        }
    }
    let expected = [Errno::PIPE.raw_os_error(), Errno::CONNRESET.raw_os_error()];
    assert!(failed.is_some_and(|error| expected.contains(&error)), "{failed:?}");
    // Pipes have no MSG_NOSIGNAL.
    let (a, b) = h.demux.socket_pair().unwrap();
    h.close(b);
    assert_eq!(errno(h.send(a, b"anybody?")), Errno::PIPE.raw_os_error());
}

pub(crate) fn rule_02_payload_comes_back_whatever_the_answer(h: &mut Harness) {
    let (a, b) = h.connection();
    let mut bytes = Vec::with_capacity(4096);
    bytes.extend_from_slice(b"reused");
    let address = bytes.as_ptr();
    for _ in 0..10 {
        let submission = h.submit(Operation::Send { socket: a, payload: Payload::from(bytes) });
        let finished = h.finish(submission);
        let sent = count(finished.result);
        bytes = finished.payload.into_vec();
        assert_eq!(bytes.as_ptr(), address, "the same allocation, not a copy");
        assert_eq!(h.receive_exactly(b, sent), b"reused"[..sent]);
    }
    h.close(a);
    let submission = h.submit(Operation::Send { socket: a, payload: Payload::from(bytes) });
    let finished = h.finish(submission);
    assert!(finished.result.is_err());
    assert_eq!(finished.payload.into_vec(), b"reused");
}

pub(crate) fn rule_04_cancelled_send_gives_its_memory_back(h: &mut Harness) {
    let (a, b) = h.connection();
    let (send, sent) = h.block_sender(a);
    h.demux.cancel(send);
    let completion = h.next_of(send);
    assert!(!completion.more);
    let more = match completion.result {
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(Errno::CANCELED.raw_os_error()));
            0
        }
        Ok(Outcome::Count(count)) => count,
        other => panic!("{other:?}"),
    };
    assert_eq!(completion.payload.into_vec().len(), 1 << 20);
    // Not one byte more, not one less than was said.
    h.close(a);
    let received = h.receive_exactly(b, sent + more);
    assert!(received.iter().all(|&byte| byte == b'x'));
    assert_eq!(h.receive(b, 1).unwrap(), b"");
}

pub(crate) fn rule_07_blocked_send_goes_on_when_the_peer_reads(h: &mut Harness) {
    let (a, b) = h.connection();
    let (send, sent) = h.block_sender(a);
    h.receive_exactly(b, sent);
    let more = count(h.next_of(send).result);
    assert!(more > 0);
    h.receive_exactly(b, more);
}

pub(crate) fn rule_07_what_the_peer_has_not_taken_is_known(h: &mut Harness) {
    let (a, b) = h.connection();
    let left = |h: &Harness| h.demux.unacknowledged_bytes(a).expect("it is a stream");
    assert_eq!(left(h), 0);
    let (send, sent) = h.block_sender(a);
    let full = left(h);
    assert!(full > 0 && full <= sent + (1 << 20), "{full} of {sent}");
    h.receive_exactly(b, sent);
    let more = count(h.next_of(send).result);
    h.receive_exactly(b, more);
    // An acknowledgement may take its time.
    let start = std::time::Instant::now();
    while left(h) > 0 {
        assert!(start.elapsed() < PATIENCE, "{} of {full} are left", left(h));
        std::thread::sleep(std::time::Duration::from_millis(1));
        h.settle();
    }
    h.close(a);
    assert!(h.demux.unacknowledged_bytes(a).is_err());
}

/// Ends what hangs; decides nothing.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

pub(crate) fn rule_07_second_send_is_refused(h: &mut Harness) {
    let (a, b) = h.connection();
    let (send, sent) = h.block_sender(a);
    let submission = h.submit(Operation::Send { socket: a, payload: b"me too".to_vec().into() });
    let finished = h.finish(submission);
    assert_eq!(errno(finished.result), Errno::ALREADY.raw_os_error());
    assert_eq!(finished.payload.into_vec(), b"me too");
    h.receive_exactly(b, sent);
    count(h.next_of(send).result);
}

pub(crate) fn rule_07_stretches_are_sent_in_order(h: &mut Harness) {
    let (a, b) = h.connection();
    let stretches = |n: usize| -> Vec<Memory> {
        (0..n).map(|i| Memory::from(format!("[{i}]").into_bytes())).collect()
    };
    // More stretches than one call takes: the send is short and goes on where it stopped.
    let mut payload = Payload::Many(stretches(200));
    let total = payload.len();
    let mut received = Vec::new();
    while !payload.is_empty() {
        let submission = h.submit(Operation::Send { socket: a, payload });
        let finished = h.finish(submission);
        let sent = count(finished.result);
        assert!(sent > 0);
        payload = finished.payload;
        payload.advance(sent);
        received.extend(h.receive_exactly(b, sent));
    }
    assert_eq!(received.len(), total);
    let expected: String = (0..200).map(|i| format!("[{i}]")).collect();
    assert_eq!(received, expected.into_bytes());
}

pub(crate) fn rule_07_shared_memory_is_sent_on_many_connections(h: &mut Harness) {
    let shared = bytes::Bytes::from_static(b"to everyone");
    let pairs: Vec<_> = (0..10).map(|_| h.connection()).collect();
    let sends: Vec<Submission> = pairs
        .iter()
        .map(|&(a, _)| {
            let payload = Payload::from(shared.clone());
            h.submit(Operation::Send { socket: a, payload })
        })
        .collect();
    for (send, &(a, b)) in sends.into_iter().zip(&pairs) {
        let finished = h.finish(send);
        let sent = count(finished.result);
        h.send_all(a, &b"to everyone"[sent..]);
        assert_eq!(h.receive_exactly(b, 11), b"to everyone");
    }
}

pub(crate) fn rule_07_tried_send_sends_what_it_says_and_no_more(h: &mut Harness) {
    let (a, b) = h.connection();
    let mut sent = Vec::new();
    for round in 0..200u32 {
        let bytes = round.to_be_bytes();
        let count = h.demux.try_send(a, &bytes).unwrap();
        sent.extend_from_slice(&bytes[..count]);
        h.send_all(a, &bytes[count..]); // what was not tried is sent in the ordinary way
        sent.extend_from_slice(&bytes[count..]);
    }
    assert_eq!(h.receive_exactly(b, sent.len()), sent);
    let (send, before) = h.block_sender(a);
    assert_eq!(errno(h.demux.try_send(a, b"me too")), Errno::ALREADY.raw_os_error());
    h.receive_exactly(b, before);
    count(h.next_of(send).result);
    h.close(a);
    assert_eq!(errno(h.demux.try_send(a, b"gone")), Errno::BADF.raw_os_error());
}

/// What was tried comes before what is submitted after it, and a shutdown comes after both.
pub(crate) fn rule_07_tried_sends_keep_their_place(h: &mut Harness) {
    for _ in 0..50 {
        let (a, b) = h.connection();
        let mut expected = Vec::new();
        for piece in [&b"one "[..], b"two ", b"three "] {
            let tried = h.demux.try_send(a, piece).unwrap();
            let rest = Payload::from(piece[tried..].to_vec());
            expected.extend_from_slice(piece);
            if tried < piece.len() {
                let submission = h.submit(Operation::Send { socket: a, payload: rest });
                assert_eq!(count(h.finish(submission).result), piece.len() - tried);
            }
        }
        let how = std::net::Shutdown::Write;
        h.run(Operation::Shutdown { socket: a, how }).unwrap();
        assert_eq!(h.receive_exactly(b, expected.len()), expected);
        assert_eq!(h.receive(b, 1).unwrap(), b"");
        h.close(a);
        h.close(b);
    }
}

/// A peer that does not read for a while gets everything that was taken from the sender, in its order.
pub(crate) fn rule_07_tried_sends_to_a_slow_reader_lose_nothing(h: &mut Harness) {
    let (a, b) = h.connection();
    let mut sent: Vec<u8> = Vec::new();
    let mut lengths = (1..=4096).step_by(61).cycle();
    let mut refused = 0;
    while refused < 2 {
        let length = lengths.next().unwrap();
        let piece: Vec<u8> = (sent.len()..sent.len() + length).map(|at| (at % 251) as u8).collect();
        let tried = h.demux.try_send(a, &piece).unwrap();
        sent.extend_from_slice(&piece[..tried]);
        refused = if tried == 0 { refused + 1 } else { 0 };
        let told = if tried == 0 { h.settle() } else { h.look() };
        assert!(told.is_empty(), "nobody is told of a tried send: {told:?}");
        assert!(sent.len() < 64 << 20, "the socket never fills");
    }
    let how = std::net::Shutdown::Write;
    let shutdown = h.submit(Operation::Shutdown { socket: a, how }); // behind everything
    assert!(h.receive_exactly(b, sent.len()) == sent, "other bytes than were sent");
    assert_eq!(h.receive(b, 1).unwrap(), b"");
    h.finish(shutdown).result.unwrap();
}

/// More in one turn than a backend may have prepared itself for.
pub(crate) fn rule_07_many_tried_sends_in_one_turn(h: &mut Harness) {
    let pairs: Vec<_> = (0..40).map(|_| h.connection()).collect();
    let sent: Vec<usize> =
        pairs.iter().map(|&(a, _)| h.demux.try_send(a, &[b'x'; 4096]).unwrap()).collect();
    for (&(_, b), sent) in pairs.iter().zip(sent) {
        assert_eq!(h.receive_exactly(b, sent), vec![b'x'; sent]);
    }
}

/// A close right after a send does not swallow it; one behind a peer that does not read ends all the same.
pub(crate) fn rule_05_close_after_a_tried_send_delivers_or_gives_up(h: &mut Harness) {
    for _ in 0..50 {
        let (a, b) = h.connection();
        let tried = h.demux.try_send(a, b"goodbye").unwrap();
        h.close(a);
        let received = if tried == 0 { Vec::new() } else { h.receive_exactly(b, tried) };
        assert_eq!(received, b"goodbye"[..tried]);
        assert_eq!(h.receive(b, 1).unwrap(), b"");
        h.close(b);
    }
    let (a, _b) = h.connection();
    let (send, _) = h.block_sender(a);
    h.demux.cancel(send);
    h.next_of(send);
    h.demux.try_send(a, b"nobody reads this").unwrap();
    h.close(a); // would hang
}

/// Tries to send until there is no room, and nothing changes that; how much was taken.
fn fill_by_tries(h: &mut Harness, a: Handle) -> usize {
    let (mut sent, mut refused) = (0, 0);
    while refused < 2 {
        let tried = h.demux.try_send(a, &[b'x'; 4096]).unwrap();
        sent += tried;
        refused = if tried == 0 { refused + 1 } else { 0 };
        if tried == 0 {
            h.settle()
        } else {
            h.look()
        };
        assert!(sent < 64 << 20, "the socket never fills");
    }
    sent
}

/// Whoever ends a direction waits until everything that was taken is out, however many they are.
pub(crate) fn rule_07_shutdowns_come_after_what_a_tried_send_left(h: &mut Harness) {
    let (a, b) = h.connection();
    let sent = fill_by_tries(h, a);
    let nothing = h.submit(Operation::Send { socket: a, payload: Payload::from(Vec::new()) });
    let how = std::net::Shutdown::Write;
    let first = h.submit(Operation::Shutdown { socket: a, how });
    let second = h.submit(Operation::Shutdown { socket: a, how });
    assert_eq!(h.receive_exactly(b, sent), vec![b'x'; sent]);
    assert_eq!(h.receive(b, 1).unwrap(), b"");
    let nothing = h.finish(nothing).result; // in whatever order it and they were done
    assert!(
        matches!(nothing, Ok(Outcome::Count(0))) || errno(nothing) == Errno::PIPE.raw_os_error()
    );
    h.finish(first).result.unwrap();
    h.finish(second).result.unwrap();
    assert!(!h.demux.is_carrying(a));
}

/// What was taken is lost neither to a shutdown that is cancelled nor to one whose peer is gone.
pub(crate) fn rule_04_cancelled_shutdown_leaves_what_a_tried_send_left(h: &mut Harness) {
    let (a, b) = h.connection();
    let sent = fill_by_tries(h, a);
    let how = std::net::Shutdown::Write;
    if let Submission::Pending(shutdown) = h.submit(Operation::Shutdown { socket: a, how }) {
        h.demux.cancel(shutdown);
        let ended = h.next_of(shutdown).result;
        assert_eq!(errno(ended), Errno::CANCELED.raw_os_error());
        assert_eq!(h.receive_exactly(b, sent), vec![b'x'; sent]);
        h.send_all(a, b"and on");
        assert_eq!(h.receive_exactly(b, 6), b"and on");
    }
    let (a, b) = h.connection();
    fill_by_tries(h, a);
    let shutdown = h.submit(Operation::Shutdown { socket: a, how });
    h.close(b); // with unread bytes: a reset
    let ended = h.finish(shutdown).result; // would hang
    assert!(ended.is_ok() || !h.demux.is_carrying(a), "told: {ended:?}");
    h.close(a);
}

/// What the peer has no room for is given up by a close, and so is whoever waits behind it.
pub(crate) fn rule_05_close_gives_up_what_a_tried_send_left(h: &mut Harness) {
    let (a, b) = h.connection();
    let sent = fill_by_tries(h, a);
    let how = std::net::Shutdown::Write;
    let shutdown = h.submit(Operation::Shutdown { socket: a, how });
    let close = h.submit(Operation::Close { handle: a });
    let shut = h.finish(shutdown).result;
    assert!(
        shut.as_ref().is_ok() || shut.as_ref().is_err_and(|it| it.raw_os_error() == Some(125)),
        "done, or cancelled: {shut:?}"
    );
    h.finish(close).result.unwrap(); // would hang
    let mut received = 0;
    loop {
        match h.receive(b, 1 << 20) {
            Ok(bytes) if bytes.is_empty() => break,
            Ok(bytes) => {
                assert!(bytes.iter().all(|&byte| byte == b'x'));
                received += bytes.len();
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(received <= sent, "{received} of {sent}");
}

/// The same with nothing else in flight.
pub(crate) fn rule_05_close_does_not_wait_for_what_a_tried_send_left(h: &mut Harness) {
    let (a, b) = h.connection();
    let (mut sent, mut refused) = (0, 0);
    while refused < 20 {
        let tried = h.demux.try_send(a, &[b'x'; 4096]).unwrap();
        sent += tried;
        refused = if tried == 0 { refused + 1 } else { 0 };
        h.look();
        assert!(sent < 64 << 20, "the socket never fills");
    }
    h.close(a); // would hang
    let mut received = 0;
    while let Ok(bytes) = h.receive(b, 1 << 20) {
        if bytes.is_empty() {
            break;
        }
        received += bytes.len();
    }
    assert!(received <= sent, "{received} of {sent}");
}
